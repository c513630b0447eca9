"""What the disk and the page cache do with as much: `python -m tests.bench.appends DIRECTORY BYTES_PER_S SECONDS`.

Plain processes without an engine, a protocol or a lock of an interpreter between them. One appends groups of 200 kB to
a file at that rate, and single records of 200 B between them, as a loop does that has both; one syncs the file every
10 ms; one writes the same bytes again to files of 2 MB, each synced, as sealing does. It prints how long a single
record took from when it was due until it was written: 50th and 99th percentile in µs, alone and beside.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

GROUP_BYTES: Final = 206_000
SINGLE_BYTES: Final = 200
PAUSE_S: Final = 0.0005
SYNC_S: Final = 0.01
FILE_BYTES: Final = 2_000_000
ALONE_S: Final = 3.0


def main() -> None:
    """Both measurements."""
    directory, rate, seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    log = directory / "log"
    log.touch()
    over = multiprocessing.Event()
    others = [
        multiprocessing.Process(target=_syncs, args=(log, over)),
        multiprocessing.Process(target=_seals, args=(directory, rate, ALONE_S, over)),
    ]
    for other in others:
        other.start()
    try:
        alone = _appends(log, 0.0, ALONE_S)
        beside = _appends(log, rate, seconds)
    finally:
        over.set()
        for other in others:
            other.join()
    figures = [figure for found in (alone, beside) for figure in (statistics.median(found), _p99(found))]
    sys.stdout.write(" ".join(f"{1e6 * figure:.0f}" for figure in figures) + "\n")


def _p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def _appends(log: Path, rate: float, seconds: float) -> list[float]:
    """Seconds that each single record took."""
    handle = os.open(log, os.O_WRONLY)
    group, single = os.urandom(GROUP_BYTES), os.urandom(SINGLE_BYTES)
    offset, latencies = os.fstat(handle).st_size, []
    began = now = time.monotonic()
    os.posix_fallocate(handle, offset, int((rate + SINGLE_BYTES / PAUSE_S) * seconds) + GROUP_BYTES)
    group_due, due = now, now
    while now < began + seconds:
        if rate and now >= group_due:
            offset += os.pwrite(handle, group, offset)
            group_due += GROUP_BYTES / rate
        now = time.monotonic()
        if now >= due:
            offset += os.pwrite(handle, single, offset)
            now = time.monotonic()
            latencies.append(now - due)
            due = now + PAUSE_S
        time.sleep(max(0.0, min(due, group_due if rate else due) - time.monotonic()))
        now = time.monotonic()
    os.close(handle)
    return latencies


def _syncs(log: Path, over: Event) -> None:
    """Sync the file, again and again."""
    handle = os.open(log, os.O_WRONLY)
    while not over.wait(SYNC_S):
        os.fdatasync(handle)
    os.close(handle)


def _seals(directory: Path, rate: float, wait_s: float, over: Event) -> None:
    """Write files at that rate, each synced, after a while."""
    content = os.urandom(FILE_BYTES)
    due, number = time.monotonic() + wait_s, 0
    while not over.wait(max(0.0, due - time.monotonic())):
        handle = os.open(directory / str(number), os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(handle, content, 0)
        os.fdatasync(handle)
        os.close(handle)
        due += FILE_BYTES / rate
        number += 1


if __name__ == "__main__":
    main()
