"""Three shows of a history in a bucket, with their figures.

    python -m tests.objects.shows pages [RECORDS]     1,000,000 records: pages cold and warm, requests and bytes of each
    python -m tests.objects.shows stopped [SECONDS]   the bucket stopped for a minute under load, and what follows
    python -m tests.objects.shows small [BATCHES]     small objects: pages before they are joined, and after

Each starts a daemon and a server of the S3 protocol, says what it finds, and ends with 1 if it is not as promised.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.daemon.kit import DaemonProcess, post, request, start
from tests.daemon.test_cold import checkpoint
from tests.objects.server import Server
from tests.objects.test_daemon import environment, local_data, metric

PAGE = 1000
BATCH = 1000


def quantile(times: Sequence[float], part: float) -> float:
    """In milliseconds."""
    return sorted(times)[min(int(len(times) * part), len(times) - 1)] * 1000


def write(daemon: DaemonProcess, first: int, count: int = BATCH) -> float:
    """A batch; how long it took."""
    records = [{"data": {"number": first + at, "pad": "x" * 100}} for at in range(count)]
    request_ = post("/v0/topics/t", json.dumps({"records": records}))
    while True:
        began = time.perf_counter()
        answer = daemon.ask(request_)
        took = time.perf_counter() - began
        if answer.status != 429:
            assert answer.status in (200, 201), answer
            return took
        time.sleep(0.2)  # as it is told to


def read(daemon: DaemonProcess, seq: int) -> float:
    """A page from a seq; how long it took."""
    began = time.perf_counter()
    answer = daemon.ask(post("/v0/topics/t/diff", {"from_seq": seq, "limit": PAGE}))
    assert answer.status == 200, answer
    took = time.perf_counter() - began
    assert json.loads(answer.body)["records"][0]["data"]["number"] == seq, "another page than was asked for"
    return took


def settings(place: str) -> dict[str, str]:
    more = {"TOPICS_SEGMENT_MAX_EVENTS": "10000", "TOPICS_COLD_DEADLINE_MS": "10000", "TOPICS_CACHE_BYTES": "32MiB"}
    return {**environment(place), **more}


def move_all(directory: Path, daemon: DaemonProcess, within_s: float) -> float:
    """Until one segment is here; how long that took."""
    began = time.monotonic()
    while local_data(directory) > 1:
        assert time.monotonic() - began < within_s, f"{local_data(directory)} segments are still here"
        daemon.write("other", 1)
        checkpoint(daemon)
        time.sleep(0.2)
    return time.monotonic() - began


def pages(records: int) -> bool:
    """Random pages of a history that lies in the bucket."""
    server = Server()
    with tempfile.TemporaryDirectory() as name:
        directory, place = Path(name), server.place("pages")
        daemon = start(directory, environ=settings(place))
        began = time.monotonic()
        for first in range(0, records, BATCH):
            write(daemon, first)
            if first % 100_000 == 0:
                checkpoint(daemon)
        written = time.monotonic() - began
        checkpoint(daemon)
        moving = move_all(directory, daemon, 200)
        print(f"{records} records written in {written:.1f} s; moved {moving:.1f} s after the last")
        assert daemon.stop() == 0
        daemon = start(directory, environ=settings(place))
        before, logged = metric(daemon, "topics_cold_requests_total"), server.requests("pages")
        size = metric(daemon, "topics_cold_bytes_total")["get"]
        rng = random.Random(15)
        segments = (records - 10_000) // 10_000
        asked = [10_000 * at + rng.randrange(10_000 - PAGE) for at in rng.sample(range(segments), segments)]
        first_of_each = [read(daemon, seq) for seq in asked]
        middle = metric(daemon, "topics_cold_requests_total")
        again = [read(daemon, 10_000 * at + rng.randrange(10_000 - PAGE)) for at in range(segments)]
        after, logged = metric(daemon, "topics_cold_requests_total"), server.requests("pages") - logged
        size = metric(daemon, "topics_cold_bytes_total")["get"] - size
        warm_at = rng.randrange(records - 20_000)
        read(daemon, warm_at)
        warm = [read(daemon, warm_at) for _ in range(200)]
        for what, times in (("first of a segment", first_of_each), ("cold", again), ("warm (in memory)", warm)):
            p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
            print(f"page of {PAGE}, {what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(times)} pages")
        made = {op: after[op] - before[op] for op in after if after[op] != before[op]}
        each = (middle["get"] - before["get"]) / len(asked), (after["get"] - middle["get"]) / len(again)
        per_page = size / (len(asked) + len(again))
        print(f"requests a page: {each[0]:.2f} (first of a segment), {each[1]:.2f} (others); {per_page:.0f} bytes")
        print(f"metrics {made}, the server's own log {dict(logged)}")
        cost = metric(daemon, "topics_object_store_cost_dollars_total")
        print(f"estimate of this process: ${sum(cost.values()):.6f}")
        assert daemon.stop() == 0
    server.stop()
    return made == dict(logged)


def stopped(seconds: int) -> bool:
    """A load of writes and of reads at the head, during which the bucket does not answer for a while."""
    server = Server()
    with tempfile.TemporaryDirectory() as name:
        directory, place = Path(name), server.place("stopped")
        daemon = start(directory, environ=settings(place))
        total = 0
        worst: dict[str, list[float]] = {"before": [], "stopped": [], "after": []}
        heads: dict[str, list[float]] = {"before": [], "stopped": [], "after": []}

        def load(phase: str, for_s: float) -> None:
            nonlocal total
            end, marked = time.monotonic() + for_s, time.monotonic()
            while time.monotonic() < end:
                worst[phase].append(write(daemon, total, 200))
                total += 200
                heads[phase].append(read(daemon, max(0, total - PAGE)))
                if time.monotonic() - marked > 5:
                    marked = time.monotonic()
                    checkpoint(daemon)
                time.sleep(0.01)

        load("before", 15)
        server.pause()
        load("stopped", seconds)
        waiting = local_data(directory)
        failing = metric(daemon, "topics_cold_failing")[""]
        server.go_on()
        load("after", 10)
        took = move_all(directory, daemon, 150)
        for phase, writes in worst.items():
            for what, times in (("write of 200", writes), ("read at the head", heads[phase])):
                p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
                print(f"{phase}: {what}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {len(times)} of them")
        print(f"{waiting} segments had to stay here (failing: {failing:.0f}); all moved {took:.1f} s after the load")
        count = json.loads(daemon.ask(request("GET", "/v0/topics/t")).body)["count"]
        seen = sum(1 for seq in range(0, total, PAGE) if read(daemon, seq))
        print(f"{count} records of {total} written; {seen} pages read back, each from its seq")
        assert daemon.stop() == 0
    server.stop()
    return bool(count == total and waiting > 1)


def cold_pages(daemon: DaemonProcess, total: int, count: int, what: str) -> float:
    """Random pages that were not read before; how many requests one of them cost."""
    rng = random.Random(15)
    before, size = metric(daemon, "topics_cold_requests_total"), metric(daemon, "topics_cold_bytes_total")["get"]
    seqs = rng.sample(range(0, total - 20 * PAGE, PAGE), count)
    pages = [read(daemon, seq) for seq in seqs]
    after = metric(daemon, "topics_cold_requests_total")
    each = sum(after[op] - before[op] for op in after) / count
    got = (metric(daemon, "topics_cold_bytes_total")["get"] - size) / count
    p50, p99 = quantile(pages, 0.5), quantile(pages, 0.99)
    print(
        f"{what}: a page of {PAGE}: {each:.1f} requests, {got:.0f} bytes; p50 {p50:.1f} ms, p99 {p99:.1f} ms ({count})"
    )
    return each


def small(segments: int) -> bool:
    """Small segments of 128 records are moved, read, joined, and read again."""
    server = Server()
    with tempfile.TemporaryDirectory() as name:
        directory, place = Path(name), server.place("small")
        early = {**environment(place), "TOPICS_SEGMENT_MAX_EVENTS": "100", "TOPICS_COLD_MERGE_MIN": "0"}
        daemon, total = start(directory, environ=early), 128 * segments
        for first in range(0, total, 128):
            write(daemon, first, 128)
            if first % 12_800 == 0:
                checkpoint(daemon)
        began = time.monotonic()
        while len(list(directory.glob("data/topics/0000000000000001/*.data"))) > 1:
            assert time.monotonic() - began < 400, "the segments do not move"
            daemon.write("other", 1)
            checkpoint(daemon)
            time.sleep(0.5)
        moved = metric(daemon, "topics_cold_moved_total")[""]
        print(f"{total} records in {moved:.0f} small segments moved, {time.monotonic() - began:.0f} s after the last")
        assert daemon.stop() == 0
        daemon = start(directory, environ=early)
        before = cold_pages(daemon, total, 40, "small")
        assert daemon.stop() == 0
        late = {**early, "TOPICS_SEGMENT_MAX_EVENTS": "10000", "TOPICS_COLD_MERGE_MIN": "8"}
        daemon = start(directory, environ=late)
        began, asked = time.monotonic(), metric(daemon, "topics_cold_requests_total")
        checkpoint(daemon)
        while metric(daemon, "topics_cold_merged_total")[""] < moved - 9:
            assert time.monotonic() - began < 400, metric(daemon, "topics_cold_merged_total")
            time.sleep(0.5)
        took = time.monotonic() - began
        now = metric(daemon, "topics_cold_requests_total")
        made, joined = metric(daemon, "topics_cold_merges_total")[""], metric(daemon, "topics_cold_merged_total")[""]
        print(f"{joined:.0f} became {made:.0f} in {took:.0f} s, by { ({op: now[op] - asked[op] for op in now}) }")
        for _ in range(2):
            daemon.write("other", 1)
            checkpoint(daemon)
        assert daemon.stop() == 0
        daemon = start(directory, environ=late)
        after = cold_pages(daemon, total, 40, "joined")
        seen = sum(1 for seq in range(0, total - PAGE, PAGE) if read(daemon, seq))
        print(f"{seen} pages read through, each from its seq")
        assert daemon.stop() == 0
    server.stop()
    return after < before


def main(argv: Sequence[str]) -> int:
    show, number = (argv[0] if argv else ""), (int(argv[1]) if len(argv) > 1 else 0)
    if show == "pages":
        return 0 if pages(number or 1_000_000) else 1
    if show == "stopped":
        return 0 if stopped(number or 60) else 1
    if show == "small":
        return 0 if small(number or 1000) else 1
    print(__doc__)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
