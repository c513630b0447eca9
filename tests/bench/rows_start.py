"""Rows of starting: wall and CPU of the quick commands as they are installed, on one record or job each, in turns with
a bare interpreter, `curl` on the same socket, and `redis-cli` on a Redis beside.

The wheel is built from these sources and installed into an environment of its own, because `python -m topics_cli`
starts another way than the installed script.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import ask_json
from tests.bench.rows_http import Plan
from tests.bench.servers import BenchError

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("engine", "topics_daemon", "topics_cli", "topics_lake", "topics_objects")
SOURCES: Final = (*ROOMS, "packaging", "man", "completions")
NODE: Final = "bench"
FILES: Final = ("pyproject.toml", "README.md", "LICENSE")
ROUNDS: Final = 7
"""Starts of each in a round; the median of a round is one measurement."""
COMMANDS: Final = {
    "write": ["write", "t", "x"],
    "tail": ["tail", "t", "-n", "1"],
    "diff": ["diff", "t", "--limit", "1"],
    "get": ["get", "t", "1"],
    "claim": ["claim", "q"],
    "ack": ["ack", "q", "{job}"],
    "nack": ["nack", "q", "{job}"],
    "extend": ["extend", "q", "{job}"],
}
JOBS: Final = 2000
"""Jobs of the queue; half of them are leased to us before the clock runs, for the commands that settle one."""


def row_name(command: str) -> str:
    """What a row is called."""
    return f"start: topics {command}"


def run_all(commands: list[str], plan: Plan) -> Iterator[Row]:
    """Every row, all of them measured in one run of turns."""
    if not commands:
        return
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=plan.where)))
        program = install(place)
        daemon = stack.enter_context(servers.topicsd(plan.where))
        ask_json(daemon, "PUT", "/v0/topics/q", {"type": "queue", "lease_ms": 3_600_000})
        ask_json(daemon, "POST", "/v0/topics/t", {"records": [{"data": "x"}]})
        ask_json(daemon, "POST", "/v0/topics/q", {"records": [{"data": "x"}] * JOBS})
        for _ in range(JOBS // 2 // 100):
            ask_json(daemon, "POST", "/v0/topics/q/claim", {"node": NODE, "max": 100})
        url = f"http://127.0.0.1:{daemon.port}"
        lines = {
            "python3 -I -S -c pass": [str(program.parent / "python3"), "-I", "-S", "-c", "pass"],
            "curl": ["curl", "-sf", f"{url}/v0/topics/t/records/1"],
        }
        if servers.installed("redis-cli") and servers.installed("redis-server"):
            peer = stack.enter_context(servers.redis(plan.where, "no"))
            lines["redis-cli"] = ["redis-cli", "-p", str(peer.port), "get", "x"]
        lines |= {row_name(name): [str(program), *COMMANDS[name]] for name in commands}
        yield from _rows(commands, _measured(lines, {"TOPICS_URL": url, "TOPICS_NODE": NODE}, plan.rounds))


def install(place: Path) -> Path:
    """Build the wheel and install it by itself; its script."""
    source = place / "source"
    source.mkdir()
    for name in (*SOURCES, *FILES):
        (source / name).symlink_to(ROOT / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    venv.create(place / "env", with_pip=False)
    for words in (
        ["wheel", "--no-deps", "--no-build-isolation", "-w", str(place), str(source)],
        ["--python", str(place / "env"), "install", "--no-deps", "--no-index", "--find-links", str(place), "topics"],
    ):
        done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise BenchError(f"pip: {done.stderr[-500:]}")
    return place / "env/bin/topics"


def _measured(
    lines: dict[str, list[str]], environment: dict[str, str], rounds: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Median wall and CPU (ms) of each line in each round."""
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment}
    seen: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in lines}
    jobs = count(1)
    for turn in range(rounds + 1):
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
        for _ in range(ROUNDS if turn else 1):
            for name, line in lines.items():
                words = [str(next(jobs)) if word == "{job}" else word for word in line]
                wall, cpu, status = started(words, environment)
                if status:
                    raise BenchError(f"{name} ended with {status}")
                taken[name].append((wall, cpu))
        if turn:  # The first one made what is kept of a first run.
            for name, pairs in taken.items():
                seen[name][0].append(statistics.median(wall for wall, _ in pairs))
                seen[name][1].append(statistics.median(cpu for _, cpu in pairs))
    return seen


def started(line: list[str], environment: dict[str, str]) -> tuple[float, float, int]:
    """Run a command to its end: wall ms, CPU ms, exit status."""
    path = line[0] if "/" in line[0] else f"/usr/bin/{line[0]}"
    null = [(os.POSIX_SPAWN_OPEN, handle, os.devnull, os.O_RDWR, 0) for handle in (0, 1, 2)]
    begun = time.perf_counter()
    pid = os.posix_spawn(path, line, environment, file_actions=null)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - begun
    return wall * 1e3, (used.ru_utime + used.ru_stime) * 1e3, os.waitstatus_to_exitcode(status)


def _rows(commands: list[str], seen: dict[str, tuple[list[float], list[float]]]) -> Iterator[Row]:
    bare = Spread.of(seen["python3 -I -S -c pass"][0])
    goal = 1.5 * bare.median + 5
    for name in commands:
        figure = Spread.of(seen[row_name(name)][0])
        yield Row(
            name=row_name(name),
            unit="wall ms",
            figure=figure,
            goal=f"≤ 1.5 × bare + 5 = {goal:.1f} ms",
            met=figure.median <= goal,
            floor=bare,
            peers={key: Spread.of(pair[0]) for key, pair in seen.items() if key in ("curl", "redis-cli")},
            note="CPU ms: "
            + ", ".join(
                f"{key} {statistics.median(pair[1]):.1f}"
                for key, pair in seen.items()
                if key == row_name(name) or not key.startswith("start: ")
            ),
        )
