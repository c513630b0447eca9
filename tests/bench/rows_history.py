"""Rows of history: what records cost once they are in segments, and what the work of getting them there does to others.

    sizes        the same load at several sizes: memory, start and disk must not grow with the records
    sustained    two minutes of writing as fast as it goes, checkpoints included, against the first seconds
    cold         pages of 1000 out of segments: with the page cache warm, and dropped
    checkpoint   the latency of single writes while a checkpoint of 10,000 changed topics runs
    tag delete   ten tagged records among all

The client of the latency rows is one connection of this process, asking again as soon as it is answered.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import ask_json
from tests.bench.rows_bulk import BATCH, RECORD_BYTES, load, pump_once, requests_for, run_load, settle, single
from tests.bench.rows_http import Plan, payload
from tests.bench.servers import Server

TOPICS = 50
SMALL_CACHE = ("--cache-bytes", "4MiB")
"""So that pages come from files, not from what the daemon still holds."""
PAGES = 300
CHANGED_TOPICS = 10_000
BURST_S = 5.0
PLAIN_S = 10.0


class Client:
    """One connection that asks, waits for the answer, and notes how long it took."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> float:
        """Seconds until the whole answer was there. Raises `BenchError` for anything but 2xx."""
        began = time.perf_counter()
        self.sock.sendall(request)
        data = self.sock.recv(1 << 20)
        while b"\r\n\r\n" not in data:
            data += self.sock.recv(1 << 20)
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise servers.BenchError(f"{head[:200]!r} {body[:200]!r}")
        missing = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]) - len(body)
        while missing > 0:
            missing -= len(self.sock.recv(1 << 20))
        return time.perf_counter() - began


def post(path: str, body: object) -> bytes:
    """The bytes of a request."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text


def p99(latencies: list[float]) -> float:
    """The 99th percentile, in microseconds."""
    return statistics.quantiles(latencies, n=100)[98] * 1e6


def run_sizes(sizes: list[int], plan: Plan) -> Iterator[Row]:
    """The same load at several sizes."""
    for records in sizes:
        yield from run_load(records, plan, TOPICS)


# -- sustained ingest ----------------------------------------------------------------------------------------------


def run_sustained(seconds: float, plan: Plan) -> Iterator[Row]:
    """Writing as fast as it goes for a while, against the first seconds; and what single writes see beside it."""
    with servers.topicsd(plan.where) as server:
        quiet = _single_writes(server, lambda: time.sleep(BURST_S))
        blob = b"".join(requests_for(10))
        rates: list[float] = []

        def pour() -> None:
            end = time.monotonic() + seconds
            while (now := time.monotonic()) < end:
                done = 0
                while time.monotonic() < now + 1:
                    pump_once(server.port, blob, 10)
                    done += 10 * BATCH
                rates.append(done / (time.monotonic() - now))

        before = server.loop_s()
        loaded = _single_writes(server, pour)
        worked, waited = (100 * (now - then) / seconds for now, then in zip(server.loop_s(), before, strict=True))
        burst = statistics.mean(rates[: int(BURST_S)])
        sustained = statistics.mean(rates)
        ratio = sustained / burst
        name = f"ingest sustained over {seconds:.0f} s"
        resident = server.resident_bytes() / 1e6
        note = f"{sustained:,.0f} against {burst:,.0f} records/s; resident {resident:.0f} MB"
        yield Row(f"{name} / burst", "ratio", single(ratio), "≥ 0.6", ratio >= 0.6, note=note)
        ratio = p99(loaded) / p99(quiet)
        note = (
            f"p99 {p99(loaded):,.0f} µs against {p99(quiet):,.0f} alone; p50 {statistics.median(loaded) * 1e6:,.0f} "
            f"against {statistics.median(quiet) * 1e6:,.0f}; a batch of the ingest holds the loop for about 1,200; the "
            f"loop worked {worked:.0f} % of the time and waited {waited:.0f} % of it for a processor; plain processes "
            f"that write as many bytes: {_plain_appends(sustained * RECORD_BYTES, plan)}"
        )
        yield Row(f"{name}: single write p99 beside it / alone", "ratio", single(ratio), "≤ 2", ratio <= 2.0, note=note)


def _plain_appends(rate: float, plan: Plan) -> str:
    """What single records see in plain processes that write so many bytes a second (`appends`)."""
    with servers.scratch(plan.where) as directory:
        command = [sys.executable, "-m", "tests.bench.appends", str(directory), f"{rate:.0f}", f"{PLAIN_S:.0f}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    alone_p50, alone_p99, p50, p99_ = (f"{float(figure):,.0f}" for figure in done.stdout.split())
    return f"p99 {p99_} against {alone_p99}, p50 {p50} against {alone_p50}"


def _single_writes(server: Server, during: Callable[[], None]) -> list[float]:
    """Latencies of single writes on a connection of their own while `during` runs."""
    done = threading.Event()
    latencies: list[float] = []

    def write() -> None:
        client = Client(server.port)
        request = post("/v0/topics/beside", {"records": [{"data": payload(100)}]})
        while not done.is_set():
            latencies.append(client.ask(request))
            time.sleep(0.0005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        during()
    finally:
        done.set()
        thread.join()
    return latencies


# -- cold pages ----------------------------------------------------------------------------------------------


def run_cold(records: int, plan: Plan) -> Iterator[Row]:
    """Pages of 1000 from random places of sealed history."""
    with servers.scratch(plan.where) as directory:
        server = servers.spawn_topicsd(directory)
        load(server, records)
        server.stop(60)
        server = servers.spawn_topicsd(directory, options=SMALL_CACHE)
        try:
            each = records // 10
            hot = Spread.of([_pages(server, lambda: each - 1000)[0] for _ in range(plan.rounds)])
            rng = random.Random(7)
            somewhere = [_pages(server, lambda: rng.randrange(each - 2000)) for _ in range(plan.rounds)]
            warm = Spread.of([cpu for cpu, _ in somewhere])
            note = f"hot {hot.show()} µs; p50 {statistics.median(wall for _, wall in somewhere):,.0f} µs"
            ratio = warm.median / hot.median
            goal = "≤ 2 × hot"
            yield Row(
                "diff of 1000 from segments, page cache warm",
                "CPU µs / request",
                warm,
                goal,
                ratio <= 2.0,
                compiled=22700.0,
                note=note,
            )
            dropped = []
            for _ in range(plan.rounds):
                forget_pages(directory)
                dropped.append(_pages(server, lambda: rng.randrange(each - 2000), 50))
            wall = Spread.of([wall for _, wall in dropped])
            note = f"p50 {wall.show()} µs; CPU beside it"
            figure = Spread.of([cpu for cpu, _ in dropped])
            yield Row(
                "diff of 1000 from segments, page cache dropped", "CPU µs / request", figure, "told", None, note=note
            )
        finally:
            server.stop(60)


def _pages(server: Server, place: Callable[[], int], count: int = PAGES) -> tuple[float, float]:
    """Server CPU in µs a page, and the median latency in µs."""
    client = Client(server.port)
    rng = random.Random(11)
    asked = [
        post(f"/v0/topics/bulk-{rng.randrange(10)}/diff", {"from_seq": place(), "limit": 1000, "max_bytes": 8 << 20})
        for _ in range(count)
    ]
    before = server.cpu_s()
    walls = [client.ask(request) for request in asked]
    return (server.cpu_s() - before) / count * 1e6, statistics.median(walls) * 1e6


def forget_pages(directory: Path) -> None:
    """Ask the kernel to drop the pages of all files of a store."""
    for path in directory.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


# -- what a checkpoint does to others ---------------------------------------------------------------------------------


def run_checkpoint(plan: Plan) -> Iterator[Row]:
    """Single writes while a checkpoint of many changed topics runs."""
    with servers.scratch(plan.where) as directory:
        counted = directory / "syncs"
        server = servers.spawn_topicsd(directory, syncs=counted)
        client = Client(server.port)
        seconds, syncs, quiet, during = [], [], [], []

        def checkpoint() -> None:
            began, before = time.monotonic(), counted.stat().st_size
            ask_json(server, "POST", "/v0/admin/checkpoint")
            seconds.append(time.monotonic() - began)
            syncs.append(float(counted.stat().st_size - before))

        try:
            for number in range(plan.rounds):
                for topic in range(CHANGED_TOPICS):
                    client.ask(post(f"/v0/topics/many-{topic}?return_seqs=false", {"records": [{"data": number}]}))
                quiet.append(p99(_single_writes(server, lambda: time.sleep(3))))
                during.append(p99(_single_writes(server, checkpoint)))
        finally:
            server.stop()
        ratio = statistics.median(during) / statistics.median(quiet)
        note = (
            f"p99 {Spread.of(during).show()} µs against {Spread.of(quiet).show()} without; a checkpoint takes "
            f"{Spread.of(seconds).show()} s and, with those of the log meanwhile, {Spread.of(syncs).show()} syncs"
        )
        name = f"write p99 during a checkpoint of {CHANGED_TOPICS:,} changed topics / without"
        yield Row(name, "ratio", single(ratio), "≤ 2", ratio <= 2.0, note=note)


def run_tag_delete(records: int, plan: Plan) -> Iterator[Row]:
    """Ten tagged records deleted among many sealed ones."""
    with servers.topicsd(plan.where) as server:
        blob = requests_for(1)[0]
        walls = []
        every = max(1, records // (10 * BATCH) // 10)
        for number in range(max(10, records // (10 * BATCH))):
            pump_once(server.port, blob * 10, 10)
            if number % every == 0:
                tagged = [{"data": n, "tag": f"rare-{n}"} for n in range(plan.rounds)]
                Client(server.port).ask(post("/v0/topics/bulk-0", {"records": tagged}))
        settle(server)
        client = Client(server.port)
        for number in range(plan.rounds):
            request = post("/v0/topics/bulk-0/delete", {"match": ["tag", "Eq", f"rare-{number}"]})
            walls.append(client.ask(request) * 1e3)
        wall = Spread.of(walls)
        name = f"tag delete of 10 among {records:,}"
        yield Row(name, "ms", wall, "≤ 5 ms", wall.median <= 5.0, note=f"records of {RECORD_BYTES} B in segments")
