"""Rows of how long one request holds the loop: the dearest ones that each route takes, at its bounds.

Each is asked alone of a daemon whose loop notes what its rounds cost (`held`); the figure is the dearest round of all,
in CPU milliseconds of the loop's thread. While it lasts nobody else is looked at, so this is what a client can do to
the p99 of others with one request. Bodies up to `SMALL_BYTES` are one row, those up to the bound of a body the other:
what is written at once is decoded and rendered at once, so that bound says how long others may have to wait.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import servers
from tests.bench.figures import Row, Spread
from tests.bench.rows_http import Plan
from tests.bench.servers import BenchError, Server

SMALL_BYTES = 2 * 1024 * 1024
GOAL_MS = 5.0
SHOWN = 4
"""Of the dearest, how many are named in the note."""
IDLE_S = 0.1
"""After this what a request has started is noted, too."""
JSON, NDJSON, LINES = "application/json", "application/x-ndjson", "text/x-lines"
RECORD = b'{"data":"' + b"x" * 98 + b'"}'


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and what it is called."""

    name: str
    method: str
    path: str
    body: bytes = b""
    kind: str = JSON
    coding: str = ""

    @property
    def is_small(self) -> bool:
        """Whether its body is no larger than what most servers take."""
        return len(self.body) <= SMALL_BYTES and not self.coding

    def wire(self) -> bytes:
        """The request as it goes over the wire."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: localhost", f"Content-Type: {self.kind}"]
        lines += [f"Content-Encoding: {self.coding}"] if self.coding else []
        return "\r\n".join([*lines, f"Content-Length: {len(self.body)}", "", ""]).encode() + self.body


def _records(*records: bytes) -> bytes:
    return b'{"records":[' + b",".join(records) + b"]}"


def _topics(count: int, part: bytes) -> bytes:
    return b'{"topics":{' + b",".join(b'"many-%d":%b' % (number, part) for number in range(count)) + b"}}"


def _seqs(first: int, count: int) -> bytes:
    return json.dumps({"node": "w", "seqs": list(range(first, first + count))}).encode()


def requests() -> Iterator[Asked]:
    """The dearest requests, in an order in which each finds what it needs."""
    write, post = "/v0/topics/held", "POST"
    full = [b'{"data":%d,"tag":"t%d","node":"n%d","meta":{"a":1}}' % (n, n, n) for n in range(10_000)]
    yield Asked("write of 10,000 × 100 B", post, write, _records(*[RECORD] * 10_000))
    yield Asked("write of 10,000 with tag, node and meta", post, write, _records(*full))
    yield Asked("write of 100,000 records", post, write, _records(*[b'{"data":1}'] * 100_000))
    mib = b'{"data":"' + b"x" * 1_048_573 + b'"}'
    yield Asked("write of 1 × 1 MiB", post, write, _records(mib))
    yield Asked("write of 1 MiB of arrays", post, write, _records(b'{"data":[' + b"[]," * 340_000 + b"1]}"))
    escapes = b'{"data":"' + rb"\ud800" * 170_000 + b'"}'
    yield Asked("write of 1 MiB of escapes", post, write, _records(escapes))
    yield Asked("write of 100,000 unknown fields", post, write, _unknown(100_000))
    yield Asked("write nested 100,000 deep", post, write, b'{"records":' + b"[" * 100_000)
    yield Asked("lines of 10,000 × 100 B", post, write, (b"x" * 99 + b"\n") * 10_000, LINES)
    yield Asked("NDJSON of 10,000, the last one wrong", post, write, b'{"a":1}\n' * 9999 + b"{", NDJSON)
    yield Asked("NDJSON of 1,000,000 lines", post, write, b"1\n" * 1_000_000, NDJSON)
    yield Asked("write to 1000 new topics", post, "/v0/write", _topics(1000, _records(b'{"data":1}')))
    yield Asked("write to 1000 topics × 10", post, "/v0/write", _topics(1000, _records(*[b'{"data":1}'] * 10)))
    yield Asked("diff of 1000", post, f"{write}/diff", b'{"from_seq":0,"limit":1000}')
    yield Asked("diff of 8 MiB", post, f"{write}/diff", b'{"from_seq":20000,"max_bytes":8388608}')
    yield Asked("diff of 1000 topics", post, "/v0/diff", _topics(1000, b'{"from_seq":0}'))
    yield Asked("watch of 256 topics", post, "/v0/watch", _topics(256, b"{}"))
    yield Asked("delete of 1000 seqs", post, f"{write}/delete", _seqs(1, 1000))
    yield Asked("delete by tag", post, f"{write}/delete", b'{"match":["tag","Glob","t1*"]}')
    yield Asked("delete of 15,000", post, f"{write}/delete", b'{"before_seq":15000}')
    tagged = _records(*[b'{"data":1,"tag":"%d"}' % (n % 2) for n in range(10_000)])
    for part in range(5):
        yield Asked(f"write of tagged records, {part}", post, f"{write}-tags", tagged)
    yield Asked("delete of every other by tag", post, f"{write}-tags/delete", b'{"match":["tag","Eq","1"]}')
    yield Asked("page that nothing passes", post, f"{write}-tags/diff", b'{"limit":1000,"match":["tag","Eq","2"]}')
    yield Asked("delete of a range with holes", post, f"{write}-tags/delete", b'{"before_seq":45000}')
    yield Asked("diff of 50,000 topics", post, "/v0/diff", _topics(50_000, b"{}"))
    yield Asked("claim with 100,000 arrays", post, f"{write}/claim", b'{"node":"w","x":[%b1]}' % (b"[]," * 100_000))
    yield Asked("the store", "GET", "/v0/admin/store")
    yield Asked("list of 1000 topics", "GET", "/v0/topics?page_size=1000")
    yield Asked("metrics", "GET", "/v0/metrics")
    yield Asked("OpenAPI, for the first time", "GET", "/v0/openapi.json")
    queue = "/v0/topics/held-queue"
    yield Asked("a queue", "PUT", queue, b'{"type":"queue"}')
    yield Asked("10,000 jobs", post, queue, _records(*[RECORD] * 10_000))
    yield Asked("claim of 1000", post, f"{queue}/claim", b'{"node":"w","max":1000}')
    yield Asked("extend of 1000", post, f"{queue}/extend", _seqs(1, 1000))
    yield Asked("nack of 1000", post, f"{queue}/nack", _seqs(1, 1000))
    yield Asked("ack of 1000", post, f"{queue}/ack", _seqs(1, 1000))
    yield Asked("requeue of all", post, f"{queue}/requeue", b'{"all":true}')
    yield Asked("write of 60 × 1 MiB", post, write, _records(*[mib] * 60))
    yield Asked(
        "write of 60 MiB of escapes", post, write, _records(*[b'{"data":"' + rb"\ud800" * 170_000 + b'"}'] * 60)
    )
    yield Asked("write of 1,000,000 records", post, write, _records(*[b'{"data":1}'] * 1_000_000))
    yield Asked("NDJSON of 60 MiB of blank lines", post, write, b"\n" * 60_000_000, NDJSON)
    yield Asked("write to 1000 topics × 100", post, "/v0/write", _topics(1000, _records(*[b'{"data":1}'] * 100)))
    yield Asked("gzip bomb of 100 MB", post, write, gzip.compress(b" " * 100_000_000), coding="gzip")
    yield Asked("gzip of 10,000 empty members", post, write, gzip.compress(b"") * 10_000, coding="gzip")


def _unknown(count: int) -> bytes:
    return b'{"records":[{"data":1}]' + b"".join(b',"f%d":1' % number for number in range(count)) + b"}"


def ask(port: int, asked: Asked) -> int:
    """Ask on a connection of its own; the status."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(asked.wire())
        seen = b""
        while b"\r\n\r\n" not in seen:
            data = sock.recv(1 << 20)
            if not data:
                raise BenchError(f"{asked.name}: no answer")
            seen += data
        found = re.search(rb"(?i)\r\ncontent-length: (\d+)", seen)
        left = int(found[1]) - len(seen.partition(b"\r\n\r\n")[2]) if found else 0
        while left > 0:
            left -= len(sock.recv(1 << 20))
    return int(seen[9:12])


def rounds_of(server: Server, asked: Asked, out: Path) -> float:
    """CPU milliseconds of the dearest round of the loop that one request caused."""
    time.sleep(IDLE_S)
    out.write_bytes(b"")
    status = ask(server.port, asked)
    if status >= 500:
        raise BenchError(f"{asked.name}: {status}")
    time.sleep(IDLE_S)
    return max((float(line) for line in out.read_text().split()), default=0.0)


def run(plan: Plan) -> Iterator[Row]:
    """The two rows; each round with a daemon of its own."""
    names = {
        True: f"loop held by one request of up to {SMALL_BYTES >> 20} MiB",
        False: "loop held by one larger request",
    }
    held: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for _ in range(min(plan.rounds, 3)):
        with servers.scratch(plan.where) as directory:
            directory.mkdir(exist_ok=True)
            out = directory / "rounds"
            server = servers.spawn_topicsd(directory, held=out)
            try:
                seen: dict[bool, dict[str, float]] = {True: {}, False: {}}
                for asked in requests():
                    seen[asked.is_small][asked.name] = rounds_of(server, asked, out)
            finally:
                server.stop()
        for is_small, one in seen.items():
            held[is_small].append(one)
    for is_small, all_rounds in held.items():
        figure = Spread.of([max(one.values()) for one in all_rounds])
        medians = {name: Spread.of([one[name] for one in all_rounds]).median for name in all_rounds[0]}
        dearest = sorted(medians.items(), key=lambda item: -item[1])[:SHOWN]
        note = "; ".join(f"{name} {ms:.1f}" for name, ms in dearest)
        met = figure.median <= GOAL_MS
        yield Row(names[is_small], "CPU ms", figure, f"≤ {GOAL_MS:.0f}", met, note=f"{len(medians)} requests; {note}")
