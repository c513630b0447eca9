"""Rows of routers: one write at a time into a source with 1, 10 and 100 dests, and when its copy can be read.

The figure is the median time from a write's answer to a page of the last dest that has the copy (the request itself
makes the routers go on, as every request does that shows a dest). Beside it, each against a topic without routers: the
write's own answer, the bytes and syncs of the log for one record, and the server's CPU for all its copies. What a write
itself costs is measured in this process: the CPU of writes in a row, before any pass is made for them.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from engine import Engine
from engine.commands import Batch
from engine.routers.router import RouterSpec
from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import ask_json
from tests.bench.rows_http import Plan, payload
from tests.bench.servers import BenchError, Server

FANS = (1, 10, 100)
GOAL_MS = 1.0
GOAL_LOG_BYTES = 16
"""Bytes of the log for each dest, where a frame has several."""
BURST = 8
"""Writes in a row before routers have their turn, where the write itself is measured."""


def row_name(fan: int) -> str:
    """What the row is called."""
    return f"router fan-out {fan}"


def _turn(server: Server, source: str, dest: str, writes: int) -> tuple[list[float], list[float], float]:
    """Milliseconds of the answers, and from there until the copy was read; server CPU in seconds. On one connection."""
    acks, seen = [], []
    body = {"records": [{"data": payload(100)}]}
    before = server.cpu_s()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as kept:

        def post(path: str, body: object) -> Any:
            kept.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            return json.loads(kept.getresponse().read())

        for _ in range(writes):
            began = time.perf_counter()
            head = post(f"/v0/topics/{source}", body)["head_seq"]
            answered = time.perf_counter()
            page = post(f"/v0/topics/{dest}/diff", {"from_seq": head - 1})
            if not page["records"]:
                raise BenchError(f"the copy of {source} {head} is not in {dest}")
            acks.append((answered - began) * 1000)
            seen.append((time.perf_counter() - answered) * 1000)
    return acks, seen, server.cpu_s() - before


def _metrics(server: Server) -> dict[str, float]:
    """The server's figures without labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v0/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#") and "{" not in line)
    return {name: float(value) for name, value in pairs}


def _syncs(server: Server, topic: str, dest: str, writes: int) -> float:
    """Syncs in each 100 ms."""
    before, began = _metrics(server), time.perf_counter()
    _turn(server, topic, dest, writes)
    took_s = time.perf_counter() - began
    return (_metrics(server)["topics_wal_syncs_total"] - before["topics_wal_syncs_total"]) / took_s / 10


def write_itself(fan: int, where: Path, rounds: int = 50) -> tuple[float, float]:
    """CPU in µs of one write into a source with so many routers (0: none), the passes left out; then bytes of the log
    for a record with one pass after each, the blocks that a sync leaves unused left out. By hand, in this process."""
    batch, took = Batch.of([payload(100)]), list[int]()
    with servers.scratch(where) as directory, Engine(str(directory / "data")) as engine:
        engine.create("source")
        core = engine.core
        for number in range(fan):
            engine._wait(core.routers.put(f"r{number}", "source", f"d{number}", RouterSpec()))

        def write_and_route(writes: int) -> None:
            for turn in range(writes):
                began_ns = time.thread_time_ns()
                core.append("source", batch)
                core.turn()
                if turn:  # The first one finds the processor's caches as the passes have left them.
                    took.append(time.thread_time_ns() - began_ns)
            while core.route():
                pass

        for _ in range(rounds):
            write_and_route(BURST)
            engine._tend()
        before = core.wal.shards[0].tip_lsn
        for _ in range(rounds):
            write_and_route(1)
        logged = core.wal.shards[0].tip_lsn - before
    return sorted(took)[len(took) // 2] / 1000, logged / rounds


def run_all(fans: Iterable[int], plan: Plan) -> Iterator[Row]:
    """A row for each fan-out."""
    for fan in fans:
        with servers.topicsd(plan.where) as server:
            for number in range(fan):
                ask_json(server, "PUT", f"/v0/routers/r{number}", {"source": "source", "dest": f"d{number}"})
            writes = max(50, int(200 * plan.seconds) // max(fan // 10, 1))
            dest = f"d{fan - 1}"
            ask_json(server, "POST", "/v0/topics/alone", {"records": [{"data": 0}]})
            rounds, alone = [], []
            for _ in range(plan.rounds):
                rounds.append(_turn(server, "source", dest, writes))
                alone.append(_turn(server, "alone", "alone", writes))
            syncs, syncs_alone = _syncs(server, "source", dest, writes), _syncs(server, "alone", "alone", writes)
        medians = [sorted(seen)[len(seen) // 2] for _, seen, _ in rounds]
        plain = Spread.of([sorted(seen)[len(seen) // 2] for _, seen, _ in alone])
        figure = Spread.of(medians)
        acked = Spread.of([sorted(acks)[len(acks) // 2] for acks, _, _ in rounds])
        acked_alone = Spread.of([sorted(acks)[len(acks) // 2] for acks, _, _ in alone])
        cpu = Spread.of([(own[2] - other[2]) / writes * 1e6 for own, other in zip(rounds, alone, strict=True)])
        (own_us, logged), (own_alone_us, logged_alone) = write_itself(fan, plan.where), write_itself(0, plan.where)
        dest_bytes = (logged - logged_alone) / fan
        yield Row(
            name=row_name(fan),
            unit="ms from ack to copy",
            figure=figure,
            goal=f"≤ {GOAL_MS:.0f} ms; log + ≤ {GOAL_LOG_BYTES} B a dest beside the frame",
            met=figure.median <= GOAL_MS and (fan == 1 or dest_bytes <= GOAL_LOG_BYTES),
            floor=plain,
            note=(
                f"ack {acked.median:.2f} ms, without routers {acked_alone.median:.2f}; the write itself"
                f" {own_us:.0f} µs CPU, without {own_alone_us:.0f}; copies {cpu.median / fan:.0f} µs CPU each; log"
                f" + {dest_bytes:.0f} B a dest; {syncs:.1f} syncs in 100 ms, without {syncs_alone:.1f}"
            ),
            extra={
                "cpu_us_all_copies": cpu.median,
                "ack_ms": acked.median,
                "ack_alone_ms": acked_alone.median,
                "write_cpu_us": own_us,
                "write_alone_cpu_us": own_alone_us,
                "log_bytes_per_dest": dest_bytes,
            },
        )
