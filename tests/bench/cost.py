"""What access keys cost a request, and what came since another checkout: `python -m tests.bench.cost [--beside TREE]`.

Daemons of this checkout without keys and with a hundred of them, and one of the other checkout without, are loaded in
turns (A B C A B C …) with the same bytes. The figure is the server's CPU for a request. Writes docs/benchmarks/cost.md.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench import rows_http, servers
from tests.bench.figures import Spread
from tests.bench.load import Request, ask, http_turn
from tests.bench.report import say
from tests.bench.servers import BenchError, Server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "cost.md"
KEYS = 100
CONNECTIONS = 16
RECORDS = 1000
WITHOUT, WITH = "without keys", f"with {KEYS} keys"


def requests() -> dict[str, Request]:
    """The requests of the rows, by name."""
    topic = f"/v0/topics/{rows_http.TOPIC}"
    return {
        "GET of a state": Request("GET", f"{topic}?touch=false", headers=()),
        "POST 1 × 100 B": rows_http.post(1, 100, CONNECTIONS, "disk").request,
        "POST 100 × 200 B": rows_http.post(100, 200, CONNECTIONS, "disk").request,
        "diff of 256": Request("POST", f"{topic}/diff", b'{"from_seq":0,"limit":256}'),
    }


def with_key(request: Request, key: str) -> Request:
    """The same request of somebody who has a key."""
    return replace(request, headers=(*request.headers, ("Authorization", f"Bearer {key}"))) if key else request


def spawn(directory: Path, tree: Path | None, keys: Path | None) -> Server:
    """A daemon, of another checkout when one is given."""
    was = os.environ.get("PYTHONPATH")
    if tree is not None:
        os.environ["PYTHONPATH"] = str(tree)
    try:
        return servers.spawn_topicsd(directory, options=("--api-keys-file", str(keys)) if keys else ())
    finally:
        if tree is not None:
            os.environ.pop("PYTHONPATH")
            if was is not None:
                os.environ["PYTHONPATH"] = was


def fill(server: Server, key: str) -> None:
    """Records to read."""
    path = f"/v0/topics/{rows_http.TOPIC}"
    body = b'{"records":[%b]}' % b",".join([b'{"data":"%b"}' % (b"x" * 198)] * RECORDS)
    json_type = ("Content-Type", "application/json")
    status, answer = ask(server, with_key(Request("POST", path, body, (json_type,)), key))
    if status != 201:
        raise BenchError(f"filling: {status} {answer[:200]!r}")


def measure(where: Path, tree: Path | None, rounds: int) -> dict[str, dict[str, Spread]]:
    """CPU in µs a request, by row and by daemon."""
    key = secrets.token_hex(16)
    names = [WITHOUT, WITH, *(["before"] if tree is not None else [])]
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="topics-keys-") as private:
        file = Path(private, "keys")
        file.write_text("\n".join([*(secrets.token_hex(16) for _ in range(KEYS - 1)), key]) + "\n")
        file.chmod(0o600)
        running = {}
        for name in names:
            directory = stack.enter_context(servers.scratch(where))
            running[name] = spawn(directory, tree if name == "before" else None, file if name == WITH else None)
            stack.callback(running[name].stop)
            fill(running[name], key if name == WITH else "")
        found: dict[str, dict[str, Spread]] = {}
        for row, request in requests().items():
            turns: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    asked = with_key(request, key if name == WITH else "")
                    turns[name].append(http_turn(running[name], asked, CONNECTIONS, 1).cpu_us)
            found[row] = {name: Spread.of(values) for name, values in turns.items()}
            say(f"{row:18}" + "  ".join(f"{name} {spread.show()}" for name, spread in found[row].items()))
        return found


def described(tree: Path) -> str:
    """The commit that a checkout is at."""
    command = ["git", "-C", str(tree), "log", "-1", "--format=%h of %as, “%s”"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def difference(now: Spread, then: Spread) -> str:
    """How much more it is, in brackets where either median lies in the other's range: nothing is known then."""
    said = f"{(now.median / then.median - 1) * 100:+.0f} %"
    more, less = now.median > then.high and then.median < now.low, now.median < then.low and then.median > now.high
    return said if more or less else f"({said})"


def page(found: dict[str, dict[str, Spread]], before: str | None, rounds: int) -> str:
    """The page of docs/benchmarks."""
    since = ["before", "since then"] if before is not None else []
    lines = [
        "# What access costs",
        "",
        f"Made by `python -m tests.bench.cost`: server CPU in µs a request on {CONNECTIONS} connections, median and",
        f"range of {rounds} turns, the daemons loaded in turns. The key is the last of {KEYS}. A head that was",
        "seen before is known with its caller, so a key is hashed and compared once for each distinct head.",
        "In brackets: a difference that is no larger than the turns among themselves, so that nothing is known of it.",
        "",
        "| request | " + " | ".join([WITHOUT, WITH, "keys cost", *since]) + " |",
        "|---" * (4 + len(since)) + "|",
    ]
    for row, spreads in found.items():
        plain, keyed = spreads[WITHOUT], spreads[WITH]
        cells = [plain.show(), keyed.show(), difference(keyed, plain)]
        if before is not None:
            then = spreads["before"]
            cells += [then.show(), difference(plain, then)]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    if before is not None:
        lines += [
            "",
            f"*Before* is {before}: no WebSocket, no HTTP/2, no routers, no priorities, no governor.",
        ]
    return "\n".join([*lines, ""])


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cost", description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout of this repository, with the same dependencies")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    found = measure(options.dir, options.beside, options.rounds)
    PAGE.write_text(page(found, described(options.beside) if options.beside else None, options.rounds))
    say(f"written to {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
