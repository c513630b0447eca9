"""Where the time of a row goes: the daemon under the sampler of `sampled.py` while the row's load runs.

    python -m tests.bench.profile "POST 1 × 100 B disk 16 conn" --save

Two tables: self (the function itself and what it calls in C) and total (with everything below it), in percent of the
CPU time of the daemon's process; and the single lines that cost most.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.bench import servers
from tests.bench.load import http_turn
from tests.bench.report import say
from tests.bench.rows_http import HttpRow, all_rows, prepare

DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


Samples = list[tuple[list[str], int]]


def folded(row: HttpRow, where: Path, seconds: int) -> tuple[Samples, float]:
    """The samples of a row (stacks from outside in, how often each was seen), and the row's CPU in µs meanwhile."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "samples")
        with servers.topicsd(where, out) as daemon:
            prepare(daemon, row)
            turn = http_turn(daemon, row.request, row.connections, seconds)
        lines = [line.rpartition(" ") for line in out.read_text().splitlines()]
    return [(stack.split(";"), int(count)) for stack, _, count in lines], turn.cpu_us / row.per


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


def tables(samples: Samples, most: int) -> str:
    """The tables as text."""
    own, total, at_line, everything = Counter[str](), Counter[str](), Counter[str](), 0
    for stack, count in samples:
        names = [short(frame) for frame in stack]
        everything += count
        own[names[-1]] += count
        at_line[f"{names[-1]} line {stack[-1].rpartition(':')[2].rstrip(')')}"] += count
        for name in set(names):
            total[name] += count
    lines = [f"{everything} samples"]
    for title, counter in (("self", own), ("total", total), ("line", at_line)):
        lines += ["", f"{title:>7}  function"]
        lines += [f"{count / everything:7.1%}  {name}" for name, count in counter.most_common(most)]
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
    for row in all_rows():
        if not any(part in row.name for part in options.rows):
            continue
        samples, cpu_us = folded(row, options.dir, options.seconds)
        unit = "a record" if row.per > 1 else "a request"
        text = f"{row.name}: {cpu_us:.1f} µs {unit}\n{tables(samples, options.most)}\n"
        say(text)
        if options.save:
            DOCS.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", row.name.lower().replace("×", "x"))
            (DOCS / f"profile-{name}.txt").write_text(text.replace(f"{DOCS.parents[1]}/", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
