"""`python -m tests.bench`: every row, in turns against the floor and the peers, within a quarter of an hour.

`BENCH=post,diff` (or `--rows`) picks rows by a part of their name; `--save` writes JSON, table and plot into
`docs/benchmarks/` (a whole run does so by itself). It uses the loopback only, a scratch directory on the disk that
`--dir` is on, and stops everything it started.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import (
    report,
    rows_beside,
    rows_bulk,
    rows_held,
    rows_history,
    rows_http,
    rows_ladder,
    rows_queue,
    rows_router,
    rows_sse,
    rows_start,
    servers,
)
from tests.bench.bare import loop_cpu_ms
from tests.bench.figures import Row, Spread
from tests.bench.rows_http import Plan

WATCHERS = (1, 10, 100, 1000)
SIZES = [100_000, 1_000_000, 10_000_000]
"""Of the rows `sizes`, which run only when they are asked for: the last takes minutes and gigabytes."""
QUEUE_SIZES = [100_000, 10_000_000]
"""Of the rows `queue sizes`, likewise."""
DOCS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rows", default=os.environ.get("BENCH", ""), help="parts of names, with commas (or $BENCH)")
    parser.add_argument("--row", action="append", default=[], help="part of a name that has a comma; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each server in a row")
    parser.add_argument("--seconds", type=float, default=0.6, help="how long a turn is")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many records the bulk rows move")
    parser.add_argument("--sustained", type=float, default=20, help="seconds of the sustained ingest")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the scratch stores go")
    parser.add_argument("--save", type=Path, nargs="?", const=DOCS, help="write the results there (docs/benchmarks)")
    return parser.parse_args()


def measured(options: argparse.Namespace) -> Iterator[Row]:
    """Every row that was picked, as it is done."""
    picks = [pick.strip() for pick in options.rows.split(",") if pick.strip()] + options.row

    def picked(name: str) -> bool:
        return not picks or any(pick.lower() in name.lower() for pick in picks)

    plan = Plan(options.dir, options.rounds, options.seconds)
    yield from rows_http.run_all([row for row in rows_http.all_rows() if picked(row.name)], plan)
    yield from rows_sse.run_all([count for count in WATCHERS if picked(f"SSE write → seen, {count} watchers")], plan)
    yield from rows_sse.run_sockets([count for count in WATCHERS if picked(rows_sse.socket_name(count))], plan)
    yield from rows_queue.run_all([row for row in rows_queue.all_rows(options.records) if picked(row.name)], plan)
    yield from rows_router.run_all([fan for fan in rows_router.FANS if picked(rows_router.row_name(fan))], plan)
    yield from rows_start.run_all([name for name in rows_start.COMMANDS if picked(rows_start.row_name(name))], plan)
    yield from rows_ladder.run_all([size for size in rows_ladder.SIZES if picked(rows_ladder.append_name(size))], plan)
    if "queue sizes" in picks:
        yield from rows_queue.run_sizes(QUEUE_SIZES, plan)
    if picked("load records"):
        yield from rows_bulk.run_load(options.records, plan)
    if picked("tail ndjson"):
        yield from rows_bulk.run_tail(options.records, plan)
    if "sizes" in picks:
        yield from rows_history.run_sizes(SIZES, plan)
    if picked("cold pages"):
        yield from rows_history.run_cold(options.records, plan)
    if picked("checkpoint"):
        yield from rows_history.run_checkpoint(plan)
    if picked("tag delete"):
        yield from rows_history.run_tag_delete(options.records, plan)
    if picked("cold hanging"):
        yield from rows_beside.run_cold_hanging(min(options.records, 300_000), plan)
    if picked("stalled watchers"):
        yield from rows_beside.run_stalled(plan)
    if picked("hostile client beside"):
        yield from rows_beside.run_hostile(plan)
    if picked("loop held"):
        yield from rows_held.run(plan)
    if picked("sustained"):
        yield from rows_history.run_sustained(options.sustained, plan)


def main() -> int:
    """Run and report."""
    options = arguments()
    for name in ("wrk", "redis-server", "nats-server"):
        if not servers.installed(name):
            report.say(f"{name} is not installed: rows go without it")
    started = last = time.monotonic()
    rows, loop_ms = [], [loop_cpu_ms()]
    for row in measured(options):
        rows.append(row)
        loop_ms.append(loop_cpu_ms())
        now = time.monotonic()
        report.say(f"{report.line_of(row)}  [{now - last:.0f} s]")
        last = now
    report.say(f"a fixed Python loop took {Spread.of(loop_ms).show()} CPU ms; load average {os.getloadavg()[1]:.1f}")
    report.say(f"{len(rows)} rows in {time.monotonic() - started:.0f} s")
    if options.save or not (options.rows or options.row):
        report.save(rows, options.save or DOCS, loop_ms)
        report.say(f"written to {options.save or DOCS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
