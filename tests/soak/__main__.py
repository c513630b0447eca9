"""The soak: mixed work on a real daemon, killed each minute (`make soak`, SOAK_SECONDS=600).

Its disk fails now and then: syncs hang for a moment, there is no space (a start that meets this is refused, and tried
again), and before each third kill a sync fails, after which what is left of that life can only be read.

It ends with one table and 0, or with what went wrong and 1. Checked are: nothing acked is lost, repeated or out of
order in `memory`, `disk` and `fsync`, for every reader and once more at the end from the start; deleted records stay
away and caps hold; memory and file descriptors of the daemon are as high at the end as in the beginning.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.soak.client import Client, Daemon, Usage
from tests.soak.roles import CAP_RECORDS, CAPPED, CLASSES, Book, Reader, everyone, fail

KILL_SECONDS: Final = 60
DESCRIPTORS_MORE_MAX: Final = 16
"""Log files are added as the log grows; connections come and go."""
RESIDENT_GROWTH_MAX: Final = 1.25
RESIDENT_SLACK_BYTES: Final = 32 * 1024 * 1024
"""The cache fills up to its bound of 64 MiB during the first lives."""


class Life(NamedTuple):
    """One life of the daemon: how long it took to be ready, and what it held at its end."""

    ready_seconds: float
    usage: Usage


def main() -> int:
    """Run, print, judge."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        daemon = Daemon(Path(name))
        try:
            return _soak(daemon, seconds)
        except BaseException:
            print(daemon.log(), file=sys.stderr)
            raise
        finally:
            daemon.kill()


def _soak(daemon: Daemon, seconds: float) -> int:
    book = Book(daemon.socket, daemon.faults)
    ready = daemon.start()
    client = Client(daemon.socket)
    for topic in CLASSES:
        window = {"durability": topic, "idempotency_window_ms": 600_000}
        assert client.ask("PUT", f"/v0/topics/{topic}", window).status == 201
    assert client.ask("PUT", f"/v0/topics/{CAPPED}", {"cap_records": CAP_RECORDS}).status == 201
    client.close()

    threads = [threading.Thread(target=role, name=name, daemon=True) for name, role in everyone(book)]
    for thread in threads:
        thread.start()
    lives = _live_and_die(daemon, book, seconds, ready)
    book.over.set()
    for thread in threads:
        thread.join(60)
        if thread.is_alive():
            book.complain(f"{thread.name} hangs")
    lives.append(Life(0, daemon.usage()))
    code = daemon.stop()
    if code != 0:
        book.complain(f"the daemon ended with {code} after SIGTERM")
    _read_all(daemon, book)
    _judge_usage(book, lives)
    _report(book, lives, seconds, daemon.refused)
    return 1 if book.wrong else 0


def _live_and_die(daemon: Daemon, book: Book, seconds: float, ready: float) -> list[Life]:
    """Kill the daemon each minute (each fifth of a shorter soak) until the time is over."""
    lives: list[Life] = []
    life_seconds = min(KILL_SECONDS, seconds / 5)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > life_seconds / 2:
        time.sleep(min(life_seconds, left))
        lives.append(Life(ready, daemon.usage()))
        if len(lives) % 3 == 0:
            fail(book, "sync", 1.0)
        daemon.kill()
        ready = daemon.start()
        acked = " ".join(f"{topic} {count:,}" for topic, count in book.acked.items())
        usage = lives[-1].usage
        print(
            f"kill {len(lives)}: acked {acked}; resident {usage.resident_bytes >> 20} MiB, {usage.descriptors} fds;"
            f" ready again after {ready:.2f} s; wrong so far {len(book.wrong)}",
            flush=True,
        )
    return lives


def _read_all(daemon: Daemon, book: Book) -> None:
    """After the last, clean stop: everything once more from the start."""
    daemon.start()
    client = Client(daemon.socket)
    for topic in CLASSES:
        reader = Reader(book, topic, "last read")
        while True:
            page = client.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": reader.seq, "limit": 1000}).body
            if page["tombstone"]:
                reader.lost(page["tombstone"])
            reader.take(page["records"])
            if page["caught_up"]:
                break
        if reader.seq < book.acked[topic]:
            book.complain(f"{topic}: {book.acked[topic]} acked, {reader.seq} there")


def _judge_usage(book: Book, lives: list[Life]) -> None:
    """Flat: the last life is no fatter than the third, when the caches were full."""
    settled = lives[min(2, len(lives) - 1)].usage
    last = Usage(*map(max, zip(*(life.usage for life in lives[-2:]), strict=True)))
    if last.resident_bytes > settled.resident_bytes * RESIDENT_GROWTH_MAX + RESIDENT_SLACK_BYTES:
        book.complain(f"resident memory grew from {settled.resident_bytes:,} to {last.resident_bytes:,} bytes")
    if last.descriptors > settled.descriptors + DESCRIPTORS_MORE_MAX:
        book.complain(f"file descriptors grew from {settled.descriptors} to {last.descriptors}")


def _report(book: Book, lives: list[Life], seconds: float, refused: int) -> None:
    print(f"\nsoak of {seconds:.0f} s, {len(lives) - 1} SIGKILLs")
    print(f"{'class':8} {'acked':>10} {'per s':>8} {'writes':>8} {'p50 ms':>8} {'p99 ms':>8} {'p99.9 ms':>9}")
    for topic in CLASSES:
        times = sorted(book.write_ms[topic]) or [0.0]
        cuts = [times[min(len(times) - 1, int(len(times) * part))] for part in (0.5, 0.99, 0.999)]
        shown = " ".join(f"{cut:>8.2f}" for cut in cuts)
        print(f"{topic:8} {book.acked[topic]:>10,} {book.acked[topic] / seconds:>8,.0f} {len(times):>8,} {shown}")
    resident = [life.usage.resident_bytes >> 20 for life in lives]
    print(f"resident MiB at the end of each life: {' '.join(map(str, resident))}")
    print(f"file descriptors:                     {' '.join(str(life.usage.descriptors) for life in lives)}")
    ready = [life.ready_seconds for life in lives[1:-1]] or [0.0]
    print(f"ready after a kill: median {statistics.median(ready):.2f} s, longest {max(ready):.2f} s;", end="")
    print(f" starts without space {refused}")
    print(f"read: {', '.join(f'{who} {seq:,}' for who, seq in sorted(book.read.items()))}")
    print(f"asked again {book.retries}, streams broken off {book.cut_off}, deleted {book.deleted:,}", end="")
    print(f", tombstones {book.tombstones}")
    print(f"the disk failed: {', '.join(f'{fault} {times}' for fault, times in sorted(book.failed.items()))}")
    for line in book.wrong[:20]:
        print(f"WRONG: {line}")
    print(f"wrong: {len(book.wrong)}")


if __name__ == "__main__":
    sys.exit(main())
