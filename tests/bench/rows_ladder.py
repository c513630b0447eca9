"""Rows of the size ladder: appends and a streaming read with records from 12 bytes to 11,760, in MB/s and records/s.

Beside each size, in the same run and in turns with it, stand the limits of what is below: the disk's (blocks of 1 MiB
to a file and a sync at its end, as `dd conv=fdatasync` does), and memory's, twice: bytes copied within a process, and
bytes that go from one process to another over a loopback connection, which is all that a server could do that had
nothing else to do. A write is one request of at most 1 MiB or 1000 records, as NDJSON; a read is one stream of events
from the first record on, out of memory, by a client that only counts bytes.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import ask_json, pump_turn
from tests.bench.rows_bulk import pump_once
from tests.bench.rows_http import Plan
from tests.bench.servers import BenchError, Server

SIZES: Final = (12, 140, 560, 1120, 2940, 11_760)
REQUEST_BYTES: Final = 1 << 20
RECORDS_MAX: Final = 1000
READ_BYTES: Final = 24 << 20
"""Payload of a read; with what is around small records all of it stays in the daemon's memory …"""
READ_RECORDS: Final = 200_000
"""… so small records are no more than this."""
GOAL_FROM: Final = 1024
GOAL: Final = 2.0
DISK_BYTES: Final = 128 << 20
MEMORY_BYTES: Final = 64 << 20
BLOCK_BYTES: Final = 1 << 20
MB: Final = 1e6


def append_name(size: int) -> str:
    """What the row of appends of a size is called."""
    return f"ladder append {size} B"


def read_name(size: int) -> str:
    """What the row of reads of a size is called."""
    return f"ladder read {size} B"


def batch_of(size: int) -> int:
    """Records of a request."""
    return max(1, min(RECORDS_MAX, REQUEST_BYTES // size))


def request_of(topic: str, size: int) -> bytes:
    """A write of a batch, as NDJSON."""
    body = (json.dumps("x" * (size - 2)).encode() + b"\n") * batch_of(size)
    head = f"POST /v0/topics/{topic}?return_seqs=false HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def disk_mb_s(where: Path) -> float:
    """Blocks one after the other into a file, and a sync: MB a second."""
    block, path = os.urandom(BLOCK_BYTES), where / "disk-limit"
    try:
        with path.open("wb", 0) as file:
            started = time.monotonic()
            for _ in range(DISK_BYTES // BLOCK_BYTES):
                file.write(block)
            os.fdatasync(file.fileno())
            return DISK_BYTES / (time.monotonic() - started) / MB
    finally:
        path.unlink(missing_ok=True)


def copy_mb_s() -> float:
    """Bytes copied within this process: MB a second."""
    source, target = bytearray(os.urandom(BLOCK_BYTES)) * 64, bytearray(MEMORY_BYTES)
    started = time.monotonic()
    for _ in range(4):
        target[:] = source
    return 4 * MEMORY_BYTES / (time.monotonic() - started) / MB


def loopback_mb_s() -> float:
    """Bytes from one process to another over a loopback connection: MB a second."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if not pid:
            try:
                with socket.create_connection(listener.getsockname(), timeout=30) as sock:
                    block = bytes(BLOCK_BYTES)
                    for _ in range(4 * MEMORY_BYTES // BLOCK_BYTES):
                        sock.sendall(block)
            finally:
                os._exit(0)
        try:
            sock, _ = listener.accept()
            with sock:
                started, seen = time.monotonic(), 0
                buffer = bytearray(BLOCK_BYTES)
                while count := sock.recv_into(buffer):
                    seen += count
                return seen / (time.monotonic() - started) / MB
        finally:
            os.waitpid(pid, 0)


def filled(server: Server, size: int) -> int:
    """Write what is to be read; how many records."""
    blob, batch = request_of("ladder-read", size), batch_of(size)
    requests = max(1, min(READ_RECORDS, READ_BYTES // size) // batch)
    for first in range(0, requests, 8):
        count = min(8, requests - first)
        pump_once(server.port, blob * count, count)
    return requests * batch


def stream_s(server: Server, records: int) -> float:
    """Seconds that a stream of all records takes, from opening it to the last byte."""
    wanted = {"topics": {"ladder-read": {"from_seq": 0}}, "limit": 1000, "max_batch_bytes": BLOCK_BYTES}
    where = ask_json(server, "POST", "/v0/watch", wanted)["stream_url"]
    head = f"GET {where} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    mark = b'"to_seq":%d,' % records
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        started = time.monotonic()
        sock.sendall(head)
        buffer, tail = bytearray(BLOCK_BYTES), b""
        while True:
            count = sock.recv_into(buffer)
            if not count:
                raise BenchError("the stream ended")
            tail = (tail + bytes(buffer[max(0, count - 256) : count]))[-512:]
            if mark in tail:
                return time.monotonic() - started


class _Turns:
    """What a size took, turn by turn."""

    def __init__(self) -> None:
        self.append: list[float] = []
        self.append_records: list[float] = []
        self.append_cpu_us: list[float] = []
        self.read: list[float] = []
        self.read_records: list[float] = []
        self.read_cpu_us: list[float] = []
        self.disk: list[float] = []
        self.copy: list[float] = []
        self.loopback: list[float] = []


def run_size(size: int, plan: Plan) -> Iterator[Row]:
    """The two rows of a size."""
    turns, batch = _Turns(), batch_of(size)
    with servers.topicsd(plan.where) as server:
        records = filled(server, size)
        for _ in range(plan.rounds):  # Before the appends, which would push what is to be read out of memory.
            before = server.cpu_s()
            took = stream_s(server, records)
            turns.read.append(records * size / took / MB)
            turns.read_records.append(records / took)
            turns.read_cpu_us.append((server.cpu_s() - before) / records * 1e6)
            turns.copy.append(copy_mb_s())
            turns.loopback.append(loopback_mb_s())
        for _ in range(plan.rounds):
            turn = pump_turn(server, request_of("ladder-append", size), 2, plan.seconds)
            turns.append.append(turn.rate * batch * size / MB)
            turns.append_records.append(turn.rate * batch)
            turns.append_cpu_us.append(turn.cpu_us / batch)
            turns.disk.append(disk_mb_s(plan.where))
    yield _row(
        append_name(size), size, turns.append, turns.append_records, turns.append_cpu_us, {"disk": turns.disk}, "disk"
    )
    limits = {"loopback": turns.loopback, "memory": turns.copy}
    yield _row(read_name(size), size, turns.read, turns.read_records, turns.read_cpu_us, limits, "loopback")


def _row(
    name: str,
    size: int,
    rates: list[float],
    records: list[float],
    cpu_us: list[float],
    limits: dict[str, list[float]],
    goal_of: str,
) -> Row:
    figure, spreads = Spread.of(rates), {limit: Spread.of(values) for limit, values in limits.items()}
    goal, met = f"from 1 KiB up ≥ 1/{GOAL:g} of the {goal_of}'s limit", None
    if size >= GOAL_FROM:
        met = figure.median >= spreads[goal_of].median / GOAL
    cpu = Spread.of(cpu_us)
    said = "; ".join(f"{limit} {spread.show(0)} MB/s" for limit, spread in spreads.items())
    return Row(
        name=name,
        unit="payload MB/s",
        figure=figure,
        goal=goal,
        met=met,
        rate=Spread.of(records),
        rate_unit="records/s",
        note=f"{cpu.show(2)} µs CPU a record; {said}",
        extra={
            "size": size,
            "cpu_us": {"median": cpu.median, "low": cpu.low, "high": cpu.high},
            "limits": {
                limit: {"median": spread.median, "low": spread.low, "high": spread.high}
                for limit, spread in spreads.items()
            },
        },
    )


def run_all(sizes: list[int], plan: Plan) -> Iterator[Row]:
    """The rows of some sizes."""
    for size in sizes:
        yield from run_size(size, plan)
