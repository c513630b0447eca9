"""Rows of live delivery: from the moment a write is sent to the moment a watcher has read the record.

One process writes a record at a steady pace, its data the clock at sending; another process holds all the watchers and
notes, for each record on each stream, how late it came (the monotonic clock is the same for both). CPU a delivery is
the daemon's CPU minus that of the same writes with nobody watching, over the deliveries.

The same over WebSockets: the writer publishes on one, and every watcher subscribes on one of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.load import ask_json
from tests.bench.rows_http import Plan
from tests.bench.servers import BenchError, Server
from tests.conformance.ws import frame, handshake

TOPIC = "bench-live"
PACE_S = 0.01
PACE_MANY_S = 0.1
"""How far writes are apart with more than `MANY` watchers: the process that reads takes longer than the daemon."""
MANY = 100
SETTLE_S = 0.5
"""How long watchers go on reading after the last write."""
GOALS_MS = {1: 0.3, 10: 0.4, 100: 1.5, 1000: 15}
MEMORY_GOAL_KIB = 20.0
COMPILED_MS: dict[int, float | None] = {1: 0.6, 10: 1.0, 100: 3.1, 1000: None}
CPU_GOAL_US = 6.0
SOCKET = "websocket"
"""Stands for a stream's path where a watcher subscribes on a WebSocket."""
Write = Callable[[Server, float, float], int]
_STAMP = re.compile(rb'"data":(\d{6,})')


def write_paced(server: Server, seconds: float, pace_s: float) -> int:
    """Write a record every `pace_s`, its data the clock; how many."""
    head = (
        f"POST /v0/topics/{TOPIC}?return_seqs=false HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    count, started = 0, time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (now := time.monotonic()) - started < seconds:
            due = started + count * pace_s
            if due > now:
                time.sleep(due - now)
            body = b'{"records":[{"data":%d}]}' % time.monotonic_ns()
            sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            answer = sock.recv(65536)
            if not answer.startswith(b"HTTP/1.1 20"):
                raise BenchError(f"write: {answer[:200]!r}")
            count += 1
    return count


def publish_paced(server: Server, seconds: float, pace_s: float) -> int:
    """The same over a WebSocket."""
    count, started = 0, time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(handshake())
        if not sock.recv(65536).startswith(b"HTTP/1.1 101"):
            raise BenchError("the WebSocket was not opened")
        while (now := time.monotonic()) - started < seconds:
            due = started + count * pace_s
            if due > now:
                time.sleep(due - now)
            records = f'[{{"data":{time.monotonic_ns()}}}]'
            text = f'{{"op":"publish","topic":"{TOPIC}","return_seqs":false,"records":{records}}}'
            sock.sendall(frame(text))
            answer = sock.recv(65536)
            if b'{"op":"ack"' not in answer:
                raise BenchError(f"publish: {answer[:200]!r}")
            count += 1
    return count


def opening(url: str) -> bytes:
    """What a watcher says first: the request for a stream, or a subscription on a WebSocket."""
    if url == SOCKET:
        return handshake() + frame(f'{{"op":"subscribe","topic":"{TOPIC}","tail":true}}')
    return f"GET {url} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()


def watch(port: int, urls: list[str], seconds: float) -> dict[str, float]:
    """Hold all streams until `SETTLE_S` after `seconds`; percentiles and the count of deliveries."""
    poller = select.epoll()
    socks: dict[int, socket.socket] = {}
    late: list[int] = []
    for url in urls:
        sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        sock.sendall(opening(url))
        seen = b""
        while b"caught-up" not in seen and b"caught_up" not in seen:
            seen += sock.recv(65536)
        socks[sock.fileno()] = sock
        poller.register(sock.fileno(), select.EPOLLIN)
    print("WATCHING", flush=True)
    cpu, end = time.process_time(), time.monotonic() + seconds + SETTLE_S
    while time.monotonic() < end:
        for fd, _ in poller.poll(0.2):
            data = socks[fd].recv(65536)
            now = time.monotonic_ns()
            late += [now - int(stamp) for stamp in _STAMP.findall(data)]
    late.sort()
    count = len(late)
    if not count:
        raise BenchError("no record was seen")
    return {
        "count": count,
        "p50_us": late[count // 2] / 1000,
        "p99_us": late[min(count - 1, count * 99 // 100)] / 1000,
        "client_cpu_s": time.process_time() - cpu,
    }


def pace_of(watchers: int) -> float:
    """Seconds between two writes."""
    return PACE_MANY_S if watchers > MANY else PACE_S


def seconds_of(watchers: int, plan: Plan) -> float:
    """How long a turn is: with more than `MANY` watchers there are few writes a second."""
    return max(2.0 if watchers > MANY else 1.0, plan.seconds)


def quiet_cpu_us(server: Server, seconds: float, pace_s: float, write: Write = write_paced) -> float:
    """CPU a write at this pace while nobody watches."""
    before = server.cpu_s()
    count = write(server, seconds, pace_s)
    return (server.cpu_s() - before) / count * 1e6


def sessions(server: Server, watchers: int) -> list[str]:
    """A watch session for each watcher; their streams' paths."""
    body = {"topics": {TOPIC: {"tail": True}}}
    return [ask_json(server, "POST", "/v0/watch", body)["stream_url"] for _ in range(watchers)]


def round_of(
    server: Server, urls: list[str], seconds: float, write_us: float, write: Write = write_paced
) -> dict[str, float]:
    """One round: watchers in a process of their own, paced writes from here."""
    command = [sys.executable, "-m", "tests.bench.rows_sse", "--port", str(server.port), "--seconds", str(seconds)]
    process = subprocess.Popen([*command, "--urls", json.dumps(urls)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline() != "WATCHING\n":
        raise BenchError("the watchers did not start")
    before = server.cpu_s()
    written = write(server, seconds, pace_of(len(urls)))
    time.sleep(0.2)
    used, resident = server.cpu_s() - before, server.resident_bytes()
    out, _ = process.communicate(timeout=seconds + 30)
    seen: dict[str, float] = json.loads(out)
    if seen["count"] != written * len(urls):
        raise BenchError(f"{written} records to {len(urls)} watchers, but {seen['count']:.0f} deliveries")
    seen["resident_bytes"] = resident
    seen["cpu_us"] = max(0.0, used * 1e6 - written * write_us) / seen["count"]
    return seen


def run_all(watchers: list[int], plan: Plan) -> Iterator[Row]:
    """A row for each number of watchers."""
    if not watchers:
        return
    with servers.topicsd(plan.where) as server, servers.floor(180, is_fan_out=True) as floor:
        ask_json(server, "PUT", f"/v0/topics/{TOPIC}", {"durability": "disk"})
        for count in watchers:
            pace_s, seconds = pace_of(count), seconds_of(count, plan)
            alone = Spread.of([quiet_cpu_us(server, seconds, pace_s) for _ in range(3)]).median
            floor_alone = quiet_cpu_us(floor, seconds, pace_s)
            before = server.resident_bytes()
            mine, beside = [], []
            for _ in range(plan.rounds):
                mine.append(round_of(server, sessions(server, count), seconds, alone))
                beside.append(round_of(floor, [f"/{n}" for n in range(count)], seconds, floor_alone))
            # While those of the first round are there: sessions of all rounds stay until their time is over.
            kib = (mine[0]["resident_bytes"] - before) / 1024 / count
            row = row_of(count, mine, beside, seconds, f"a write {alone:.0f} µs; resident + {kib:.1f} KiB a watcher")
            if count >= MANY:
                row.goal += f"; ≤ {MEMORY_GOAL_KIB:.0f} KiB a watcher"
                row.met = row.met and kib <= MEMORY_GOAL_KIB
            yield row


def socket_name(watchers: int) -> str:
    """What a row over WebSockets is called."""
    return f"WebSocket publish → seen, {watchers} watchers"


def run_sockets(watchers: list[int], plan: Plan) -> Iterator[Row]:
    """A row for each number of watchers, over WebSockets, in turns with the same number of event streams."""
    if not watchers:
        return
    with servers.topicsd(plan.where) as server:
        ask_json(server, "PUT", f"/v0/topics/{TOPIC}", {"durability": "disk"})
        for count in watchers:
            pace_s, seconds = pace_of(count), seconds_of(count, plan)
            alone = Spread.of([quiet_cpu_us(server, seconds, pace_s, publish_paced) for _ in range(3)]).median
            streams_alone = Spread.of([quiet_cpu_us(server, seconds, pace_s) for _ in range(3)]).median
            mine, beside = [], []
            for _ in range(plan.rounds):
                mine.append(round_of(server, [SOCKET] * count, seconds, alone, publish_paced))
                beside.append(round_of(server, sessions(server, count), seconds, streams_alone))
            note = f"a publish {alone:.0f} µs, a write {streams_alone:.0f}; the floor is SSE in the same run"
            row = row_of(count, mine, beside, seconds, note)
            row.name, row.compiled = socket_name(count), None
            yield row


def row_of(
    watchers: int, mine: list[dict[str, float]], beside: list[dict[str, float]], seconds: float, note: str
) -> Row:
    """The rounds as a row."""
    p50 = Spread.of([one["p50_us"] / 1000 for one in mine])
    cpu, floor_cpu = Spread.of([one["cpu_us"] for one in mine]), Spread.of([one["cpu_us"] for one in beside])
    bound = GOALS_MS[watchers]
    return Row(
        name=f"SSE write → seen, {watchers} watchers",
        unit="p50 ms",
        figure=p50,
        goal=f"≤ {bound} ms; ≤ {CPU_GOAL_US:.0f} µs CPU a delivery",
        met=p50.median <= bound and (watchers == 1 or cpu.median <= CPU_GOAL_US),
        floor=Spread.of([one["p50_us"] / 1000 for one in beside]),
        compiled=COMPILED_MS[watchers],
        rate=Spread.of([one["count"] / seconds for one in mine]),
        rate_unit="deliveries/s (paced)",
        p50_us=p50.median * 1000,
        p99_us=Spread.of([one["p99_us"] for one in mine]).median,
        client_cpu_us=Spread.of([one["client_cpu_s"] / one["count"] * 1e6 for one in mine]).median,
        note=f"{cpu.show()} CPU µs a delivery (floor {floor_cpu.show()}); {note}",
        extra={"cpu_us_per_delivery": cpu.median, "floor_cpu_us_per_delivery": floor_cpu.median},
    )


def main() -> None:
    """The process that holds the watchers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--urls", required=True)
    options = parser.parse_args()
    print(json.dumps(watch(options.port, json.loads(options.urls), options.seconds)))


if __name__ == "__main__":
    main()
