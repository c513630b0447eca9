"""Rows of many records: loading them, what they take in memory and on disk, starting again, reading all of them.

`--records` scales the million. Loading is done by this process over one connection, in batches of 1000, the requests
made before the clock starts.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import Request, ask, ask_json, pump_turn
from tests.bench.rows_http import Plan, payload
from tests.bench.servers import Server

TOPICS = 10
BATCH = 1000
RECORD_BYTES = 206


def requests_for(topics: int) -> list[bytes]:
    """A write of a batch for each topic."""
    body = json.dumps({"records": [{"data": payload(RECORD_BYTES)}] * BATCH}, separators=(",", ":")).encode()
    head = "POST /v0/topics/bulk-%d?return_seqs=false HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return [(head % n).encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body for n in range(topics)]


def load(server: Server, records: int, topics: int = TOPICS) -> tuple[float, float]:
    """Write `records` over all topics; server CPU in µs a record, and records a second.

    What the server goes on to do with them (sealing) is in the CPU: it is asked to settle before the clock stops.
    """
    rounds = max(1, records // (topics * BATCH))
    blobs = [b"".join(requests_for(topics)[first : first + 10]) for first in range(0, topics, 10)]
    before, started = server.cpu_s(), time.monotonic()
    for _ in range(rounds):
        for blob in blobs:
            pump_once(server.port, blob, min(10, topics))
    wall = time.monotonic() - started
    settle(server)
    count = rounds * topics * BATCH
    return (server.cpu_s() - before) / count * 1e6, count / wall


def settle(server: Server) -> None:
    """Have everything sealed, and wait until what that leaves behind is gone."""
    for _ in range(2):  # the log is trimmed when two snapshots cover it
        ask_json(server, "POST", "/v0/admin/checkpoint")
    time.sleep(1.5)


def pump_once(port: int, blob: bytes, answers: int) -> None:
    """Send pipelined requests over a connection, wait for all their answers."""
    import socket

    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(blob)
        seen = b""
        while seen.count(b"HTTP/1.1 20") < answers or not seen.endswith(b"}"):
            data = sock.recv(1 << 20)
            if not data:
                raise servers.BenchError(f"closed: {seen[-200:]!r}")
            seen += data


def run_load(records: int, plan: Plan, topics: int = TOPICS) -> Iterator[Row]:
    """The row of loading and of starting again."""
    with servers.scratch(plan.where) as directory:
        server = servers.spawn_topicsd(directory)
        idle = server.resident_bytes()
        try:
            cpu_us, rate = load(server, records, topics)
            resident, disk = server.resident_bytes(), server.disk_bytes() / records
        finally:
            server.kill()
        kill_ready, server = timed_start(directory)
        try:
            again = server.resident_bytes()
        finally:
            stopped = server.stop(60)
        clean_ready, server = timed_start(directory)
        server.stop(60)
    name, mb = f"{records:,} records of {RECORD_BYTES} B in {topics} topics", 1e6
    beside = f"empty daemon {idle / mb:.0f} MB; after SIGKILL and restart {again / mb:.0f} MB"
    once = [
        (
            "load",
            "CPU µs / record",
            cpu_us,
            "≤ 2.5 µs, all in",
            cpu_us <= 2.5,
            13.0,
            f"{rate:,.0f} records/s; 10 pipelined",
        ),
        ("resident", "MB", resident / mb, "≤ 150 MB", resident <= 150 * mb, 461.0, beside),
        (
            "disk",
            "B / record",
            disk,
            "≤ 300 B settled",
            disk <= 300,
            482.0,
            "blocks, zero-filled rest of files included",
        ),
        (
            "ready after SIGKILL",
            "s",
            kill_ready,
            "≤ 1 s",
            kill_ready <= 1.0,
            7.0,
            "from exec, the interpreter's start included",
        ),
        ("ready after a clean stop", "s", clean_ready, "≤ 0.3 s", clean_ready <= 0.3, None, "the same"),
        ("stop", "s", stopped, "≤ 2 s", stopped <= 2.0, None, ""),
    ]
    for part, unit, value, goal, met, compiled, note in once:
        yield Row(f"{name}: {part}", unit, single(value), goal, met, compiled=compiled, note=note)


def single(value: float) -> Spread:
    """A figure that was measured once."""
    return Spread(value, value, value)


def timed_start(directory: Path) -> tuple[float, Server]:
    """Start on an existing directory; seconds from exec to ready (the interpreter's start included)."""
    started = time.monotonic()
    server = servers.spawn_topicsd(directory)
    return time.monotonic() - started, server


def run_tail(records: int, plan: Plan) -> Iterator[Row]:
    """The rows of reading all of it: NDJSON pages from the server, and `topics tail --from 0` to /dev/null."""
    with servers.topicsd(plan.where) as server:
        blob = requests_for(1)[0]
        for _ in range(max(1, records // (10 * BATCH))):
            pump_once(server.port, blob * 10, 10)
        total = max(1, records // (10 * BATCH)) * 10 * BATCH
        size = total * RECORD_BYTES
        yield ndjson_row(server, plan, total)
        yield cli_row(server, plan, total, size)


def ndjson_row(server: Server, plan: Plan, total: int) -> Row:
    """Pages of 1000 as NDJSON from the middle of the topic: MB of payload a second of server CPU."""
    body = json.dumps({"from_seq": max(0, total - 5000), "limit": 1000}).encode()
    request = Request(
        "POST",
        "/v0/topics/bulk-0/diff",
        body,
        (("Content-Type", "application/json"), ("Accept", "application/x-ndjson")),
    )
    status, answer = ask(server, request)
    if status != 200 or answer.count(b"\n") < 1000:
        raise servers.BenchError(f"NDJSON: {status} {answer[:200]!r}")
    lines = ["POST /v0/topics/bulk-0/diff HTTP/1.1", "Host: localhost", *(f"{n}: {v}" for n, v in request.headers)]
    blob = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    turns = [pump_turn(server, blob, 1, plan.seconds) for _ in range(plan.rounds)]
    size = 1000 * RECORD_BYTES / 1e6
    rates = Spread.of([turn.count * size / turn.server_cpu_s for turn in turns])
    return Row(
        name="NDJSON diff of 1000 hot",
        unit="payload MB / s of CPU",
        figure=rates,
        goal="≥ 300 MB/s",
        met=rates.median >= 300,
        rate=Spread.of([turn.rate for turn in turns]),
        p50_us=Spread.of([turn.p50_us for turn in turns]).median,
        p99_us=Spread.of([turn.p99_us for turn in turns]).median,
    )


def cli_row(server: Server, plan: Plan, total: int, size: int) -> Row:
    """The command line reading everything to /dev/null."""
    command = Path(sys.executable).with_name("topics")
    environ = {**os.environ, "TOPICS_URL": f"http://127.0.0.1:{server.port}"}
    arguments = [str(command), "tail", "bulk-0", "--from", "0", "-o", "raw"]
    rates, server_cpu, client_cpu = [], [], []
    for _ in range(max(2, plan.rounds // 2)):
        before, own, started = server.cpu_s(), children_cpu_s(), time.monotonic()
        with open(os.devnull, "wb") as sink:
            done = subprocess.run(arguments, env=environ, stdout=sink, stderr=subprocess.PIPE, timeout=300)
        if done.returncode:
            raise servers.BenchError(f"topics tail: {done.returncode} {done.stderr[-300:]!r}")
        rates.append(size / (time.monotonic() - started) / 1e6)
        server_cpu.append(size / (server.cpu_s() - before) / 1e6)
        client_cpu.append((children_cpu_s() - own) / total * 1e6)
    rate = Spread.of(rates)
    served, taken = Spread.of(server_cpu).show(0), Spread.of(client_cpu).show(2)
    note = f"server {served} MB a second of its CPU; client {taken} µs CPU a record"
    name = f"topics tail --from 0 of {total:,} records to /dev/null"
    return Row(name, "payload MB/s", rate, "≥ 100 MB/s", rate.median >= 100, note=note)


def children_cpu_s() -> float:
    """CPU of finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
