"""Rows of queues: claim and ack one at a time, 8 and 100 at a time, and over work streams; on a small queue, on a
million jobs that are in segments, and on new ones behind a million that are in segments and leased to somebody who is
slow; the small one beside consumer groups of Redis and beanstalkd.

The jobs are there before the clock runs. A turn that empties a queue is an error. Server CPU is over jobs done.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench import servers
from tests.bench.figures import Row, Spread, Turn, spread_of
from tests.bench.load import ask_json, children_cpu_s, run_wrk
from tests.bench.peers import resp
from tests.bench.rows_http import Plan, payload
from tests.bench.servers import BenchError, Server

JOB_BYTES = 100
SMALL = 800_000
"""Jobs of a small queue: more than some turns can do."""
PEERS = {1: 150_000, 8: 300_000, 100: 600_000}
"""Jobs of a peer by how many are taken at a time: beanstalkd takes a second to be given 20,000."""
PEERS_NOTE = (
    "workers are requests of wrk, of work streams and peers a script: Redis: XREADGROUP, XACK + XDEL, RESP, AOF "
    "everysec; beanstalkd: reserve, delete, as many pipelined"
)
CLAIMS = Path(__file__).with_name("claims.lua")
"""What workers do, for wrk."""
BATCH_OF_WHOLE_TURN = 16
"""With more jobs at a time a turn is shorter by as much: a queue that is empty before its end would say nothing."""
SETTLED_S = 3
"""After a checkpoint the daemon gives memory back, once it is quiet."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One row."""

    kind: str
    batch: int
    workers: int
    goal_us: float
    jobs: int = SMALL
    behind: bool = False
    """Whether those are leased already, and the workers get `SMALL` newer ones."""

    @property
    def is_small(self) -> bool:
        """Whether it is the small queue's, the only one that peers have too."""
        return self.jobs == SMALL

    @property
    def name(self) -> str:
        """What it is called."""
        how = "work stream + ack" if self.kind == "stream" else "claim + ack"
        where = "" if self.is_small else f", {self.jobs:,} jobs in segments"
        where = f", new jobs behind {self.jobs:,} leased ones in segments" if self.behind else where
        return f"queue: {how} of {self.batch}, {self.workers} workers{where}"


def all_rows(records: int) -> list[QueueRow]:
    """Every row of this kind."""
    shapes = [("topics", 1, 1, 120.0), ("topics", 1, 16, 120.0), ("topics", 8, 16, 15.0), ("topics", 100, 4, 3.0)]
    rows = [QueueRow(*shape) for shape in shapes]
    rows += [QueueRow("stream", 1, 16, 100.0)]
    rows += [QueueRow(*shape, jobs=records) for shape in shapes[1:]]
    return rows + [QueueRow(*shape, jobs=records, behind=True) for shape in shapes[1:3]]


def turn(server: Server, kind: str, batch: int, workers: int, seconds: float) -> Turn:
    """Workers at work for some time."""
    if kind == "topics" and servers.installed("wrk"):
        return _wrk_turn(server, batch, workers, seconds)
    command = [sys.executable, "-m", "tests.bench.jobs", "--kind", kind, "--port", str(server.port)]
    command += ["--batch", str(batch), "--workers", str(workers), "--seconds", str(seconds)]
    before = server.cpu_s()
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    used = server.cpu_s() - before
    if finished.returncode:
        raise BenchError(f"workers: {finished.stderr[-500:]}")
    seen = json.loads(finished.stdout)
    if seen["out"] or not seen["count"]:
        raise BenchError(f"{kind}: the queue ran dry: {seen}")
    return Turn(seen["count"], used, seen["seconds"], 0.0, 0.0, 0.0, seen["cpu_s"])


def _wrk_turn(server: Server, batch: int, workers: int, seconds: float) -> Turn:
    """The same by a client that costs a third of the daemon: so there are always as many requests as workers."""
    with tempfile.TemporaryDirectory(prefix="topics-wrk-") as directory:
        script = Path(directory, "claims.lua")
        script.write_text(f"local BATCH = {batch}\n{CLAIMS.read_text()}")
        acked = ask_json(server, "GET", "/v0/topics/jobs")["queue"]["acked"]
        before, own, began = server.cpu_s(), children_cpu_s(), time.monotonic()
        done = run_wrk(script, server, workers, seconds)
        took_s, own, used = time.monotonic() - began, children_cpu_s() - own, server.cpu_s() - before
    left = ask_json(server, "GET", "/v0/topics/jobs")["queue"]
    count = left["acked"] - acked
    if done.returncode or "a worker got" in done.stderr or not count or left["ready"] <= 0:
        raise BenchError(f"workers: {left}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return Turn(count, used, took_s, 0.0, 0.0, 0.0, own)


def fill(server: Server, row: QueueRow) -> None:
    """Make the queue and its jobs; where the row says so, let them be sealed."""
    config = {"type": "queue", "lease_ms": 3_600_000, "durability": "disk"}
    ask_json(server, "PUT", "/v0/topics/jobs", config)
    _write(server, row.jobs)
    if not row.is_small:
        for _ in range(2):
            ask_json(server, "POST", "/v0/admin/checkpoint")
    if row.behind:
        while ask_json(server, "POST", "/v0/topics/jobs/claim", {"node": "slow", "max": 1000})["count"]:
            pass
        _write(server, SMALL)


def _write(server: Server, jobs: int) -> None:
    batch = {"records": [{"data": payload(JOB_BYTES)}] * 1000}
    for _ in range(jobs // 1000):
        ask_json(server, "POST", "/v0/topics/jobs?return_seqs=false", batch)


def fill_redis(server: Server, jobs: int) -> None:
    """The same jobs as entries of a stream with a group."""
    blob = resp(b"XADD", b"jobs", b"*", b"d", payload(JOB_BYTES).encode()) * 1000
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        for _ in range(jobs // 1000):
            sock.sendall(blob)
            _wait_for(sock, b"\r\n", 2000)
        sock.sendall(resp(b"XGROUP", b"CREATE", b"jobs", b"g", b"0"))
        _wait_for(sock, b"\r\n", 1)


def fill_beanstalkd(server: Server, jobs: int) -> None:
    """The same jobs."""
    data = payload(JOB_BYTES).encode()
    blob = b"put 0 0 3600 %d\r\n%b\r\n" % (len(data), data) * 1000
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        for _ in range(jobs // 1000):
            sock.sendall(blob)
            _wait_for(sock, b"\r\n", 1000)


def _wait_for(sock: socket.socket, mark: bytes, count: int) -> None:
    seen = b""
    while seen.count(mark) < count:
        data = sock.recv(1 << 20)
        if not data:
            raise BenchError("the peer closed the connection")
        seen += data


def run(row: QueueRow, plan: Plan) -> Row:
    """Measure a row, in turns with its peers."""
    with ExitStack() as stack:
        daemon = stack.enter_context(servers.topicsd(plan.where))
        fill(daemon, row)
        running = {"topicsd": (daemon, row.kind)}
        if row.is_small and servers.installed("redis-server"):
            peer = stack.enter_context(servers.redis(plan.where, "everysec"))
            fill_redis(peer, PEERS[row.batch])
            running["Redis consumer group"] = (peer, "redis")
        if row.is_small and servers.installed("beanstalkd"):
            peer = stack.enter_context(servers.beanstalkd(plan.where))
            fill_beanstalkd(peer, PEERS[row.batch])
            running["beanstalkd, binlog"] = (peer, "beanstalkd")
        turns: dict[str, list[Turn]] = {name: [] for name in running}
        seconds = plan.seconds * min(1.0, BATCH_OF_WHOLE_TURN / row.batch)
        for _ in range(plan.rounds):
            for name, (server, kind) in list(running.items()):
                try:
                    turns[name].append(turn(server, kind, row.batch, row.workers, seconds))
                except BenchError:
                    if name == "topicsd" or not turns[name]:
                        raise
                    del running[name]  # It was fast enough to do all of its jobs; what was seen before stands.
    mine = turns["topicsd"]
    figure = spread_of(mine)
    return Row(
        name=row.name,
        unit="CPU µs / job",
        figure=figure,
        goal=f"≤ {row.goal_us:.0f} µs a job",
        met=figure.median <= row.goal_us,
        peers={name: spread_of(seen) for name, seen in turns.items() if name != "topicsd"},
        rate=Spread.of([one.rate for one in mine]),
        rate_unit="jobs/s",
        client_cpu_us=Spread.of([one.client_cpu_s / one.count * 1e6 for one in mine]).median,
        note=PEERS_NOTE if row.is_small else "peers: at the small queue",
    )


def run_all(rows: list[QueueRow], plan: Plan) -> Iterator[Row]:
    """Every row, one after the other."""
    for row in rows:
        yield run(row, plan)


def run_sizes(sizes: list[int], plan: Plan) -> Iterator[Row]:
    """What a queue of so many ready jobs costs, after a checkpoint and again after a restart: CPU of a claim and an
    ack, and resident memory."""
    for jobs in sizes:
        row = QueueRow("topics", 1, 16, 120.0, jobs)
        with servers.scratch(plan.where) as directory:
            daemon = servers.spawn_topicsd(directory)
            try:
                fill(daemon, row)
                yield _size_row(daemon, jobs, "after a checkpoint", plan)
                daemon.stop()
                began = time.monotonic()
                daemon = servers.spawn_topicsd(directory)
                ready_s = time.monotonic() - began
                yield _size_row(daemon, jobs, f"after a restart, ready in {ready_s:.1f} s", plan)
            finally:
                daemon.stop()


def _size_row(daemon: Server, jobs: int, when: str, plan: Plan) -> Row:
    time.sleep(SETTLED_S)
    settled = daemon.resident_bytes()
    turns = [turn(daemon, "topics", 1, 16, plan.seconds) for _ in range(plan.rounds)]
    return Row(
        name=f"queue sizes: {jobs:,} ready jobs, claim + ack of 1, {when.partition(',')[0]}",
        unit="CPU µs / job",
        figure=spread_of(turns),
        goal="as an empty queue's",
        met=None,
        rate=Spread.of([one.rate for one in turns]),
        rate_unit="jobs/s",
        note=f"{when}: {settled / 1e6:.0f} MB resident, {daemon.resident_bytes() / 1e6:.0f} MB after the turns",
    )
