"""Where the time of a row goes: `py-spy` on the daemon while the row's load runs.

    python -m tests.bench.profile "POST 1 × 100 B disk 16 conn" --save      (py-spy on the path, or $PYSPY)

Samples hold native frames' time under the Python function that called them. Two tables: self (the function itself and
what it calls in C) and total (with everything below it), in percent of the samples in which the daemon ran.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

from tests.bench import servers
from tests.bench.load import http_turn
from tests.bench.report import say
from tests.bench.rows_http import HttpRow, all_rows, prepare
from tests.bench.servers import BenchError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def folded(row: HttpRow, where: Path, seconds: int, pyspy: str) -> list[tuple[list[str], int]]:
    """The samples of a row: stacks from outside in, and how often each was seen."""
    with servers.topicsd(where) as daemon, tempfile.TemporaryDirectory() as scratch:
        prepare(daemon, row)
        http_turn(daemon, row.request, row.connections, 1)
        load = threading.Thread(target=http_turn, args=(daemon, row.request, row.connections, seconds + 2))
        load.start()
        out = Path(scratch, "folded")
        command = [pyspy, "record", "--pid", str(daemon.pid), "--duration", str(seconds), "--rate", "500"]
        done = subprocess.run(
            [*command, "--format", "raw", "--output", str(out), "--nonblocking"], capture_output=True, text=True
        )
        load.join()
        if done.returncode:
            raise BenchError(f"py-spy: {done.stderr[-500:]}")
        lines = [line.rpartition(" ") for line in out.read_text().splitlines()]
    return [(stack.split(";"), int(count)) for stack, _, count in lines]


def short(frame: str) -> str:
    """`function (file:line)` without the path before the package and without the line."""
    found = re.fullmatch(r"(.*) \((.*?)(?::\d+)?\)", frame)
    if found is None:
        return frame
    path = found[2]
    for mark in ("engine/", "topics_daemon/", "site-packages/", "python3.11/"):
        at = path.rfind(mark)
        if at >= 0:
            path = path[at:].removeprefix("site-packages/").removeprefix("python3.11/")
            break
    return f"{found[1]} ({path})"


def tables(samples: list[tuple[list[str], int]], most: int) -> str:
    """Both tables as text."""
    own, total, everything = Counter[str](), Counter[str](), 0
    for stack, count in samples:
        names = [short(frame) for frame in stack]
        everything += count
        own[names[-1]] += count
        for name in set(names):
            total[name] += count
    lines = [f"{everything} samples", "", "self %   function"]
    lines += [f"{count / everything:7.1%}  {name}" for name, count in own.most_common(most)]
    lines += ["", "total %  function"]
    lines += [f"{count / everything:7.1%}  {name}" for name, count in total.most_common(most)]
    return "\n".join(lines)


def main() -> int:
    """Profile the rows that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("rows", nargs="+", help="parts of names of rows")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--most", type=int, default=28, help="lines of each table")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--save", action="store_true", help="write docs/benchmarks/profile-<row>.txt")
    options = parser.parse_args()
    pyspy = os.environ.get("PYSPY") or shutil.which("py-spy")
    if pyspy is None:
        say("py-spy is not installed: pip install py-spy somewhere, and name it in $PYSPY")
        return 69
    for row in all_rows():
        if not any(part in row.name for part in options.rows):
            continue
        text = f"{row.name}\n{tables(folded(row, options.dir, options.seconds, pyspy), options.most)}\n"
        say(text)
        if options.save:
            DOCS.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", row.name.lower().replace("×", "x"))
            (DOCS / f"profile-{name}.txt").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
