"""Workers in a process of their own: take jobs, be done with them, again; for topics (claims, or work streams), for
consumer groups of Redis, and for beanstalkd.

Each worker has a connection (two with a work stream) and one request in flight. A turn ends when its time is over or
when there are no more jobs, which is an error: the figure would be about an empty queue. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import selectors
import socket
import time

_JOB = re.compile(rb'"\$seq":(\d+),"lease_id":"(lease_[0-9a-f]{16})"')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ENTRY = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")
_RESERVED = re.compile(rb"RESERVED (\d+) (\d+)\r\n")


class Out(Exception):
    """There are no jobs any more."""


def _post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Line:
    """One connection, and what has come over it."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = b""


class TopicsWorker:
    """Claims and acks over one connection."""

    def __init__(self, port: int, number: int, batch: int) -> None:
        self.lines = [Line(port)]
        self.done = 0
        self._claim = _post("/v0/topics/jobs/claim", b'{"node":"w%d","max":%d}' % (number, batch))
        self._node = number
        self._held = 0
        self.begin = self._claim

    def heard(self, _line: Line) -> bytes | None:
        """What to send next, once an answer is whole."""
        line = self.lines[0]
        end = line.input.find(b"\r\n\r\n") + 4
        if end < 4:
            return None
        length = _LENGTH.search(line.input)
        assert length is not None
        if len(line.input) < end + int(length[1]):
            return None
        assert line.input.startswith(b"HTTP/1.1 200"), line.input[:300]
        body, line.input = line.input[end:], b""
        if self._held:
            self.done += self._held
            self._held = 0
            return self._claim
        jobs = _JOB.findall(body)
        if not jobs:
            raise Out
        self._held = len(jobs)
        return _ack(self._node, jobs)


def _ack(node: int, jobs: list[tuple[bytes, bytes]]) -> bytes:
    seqs, leases = b",".join(seq for seq, _ in jobs), b",".join(b'"%b"' % lease for _, lease in jobs)
    return _post("/v0/topics/jobs/ack", b'{"node":"w%d","seqs":[%b],"lease_ids":[%b]}' % (node, seqs, leases))


class StreamWorker:
    """Jobs come over a work stream; each is acked over a second connection."""

    def __init__(self, port: int, number: int, batch: int) -> None:
        self.lines = [Line(port), Line(port)]
        self.done = 0
        self._node = number
        self._waiting = False
        self._sent = 0
        self._jobs: list[tuple[bytes, bytes]] = []
        query = f"node=w{number}&max={batch}"
        self.begin = f"GET /v0/topics/jobs/work?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    def heard(self, line: Line) -> bytes | None:
        """The next ack, when there is something to ack and none is on its way."""
        if line is self.lines[0]:
            self._jobs += _JOB.findall(line.input)
            line.input = line.input[line.input.rfind(b"\n\n") + 2 :] if b"\n\n" in line.input else line.input
        else:
            end = line.input.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(line.input)
            if end < 4 or length is None or len(line.input) < end + int(length[1]):
                return None
            assert line.input.startswith(b"HTTP/1.1 200"), line.input[:300]
            line.input = b""
            self._waiting = False
            self.done += self._sent
        if self._waiting or not self._jobs:
            return None
        self._waiting = True
        self._sent = len(self._jobs)
        jobs, self._jobs = self._jobs, []
        return _ack(self._node, jobs)


class RedisWorker:
    """XREADGROUP, then XACK and XDEL of the same entries in one write."""

    def __init__(self, port: int, number: int, batch: int) -> None:
        self.lines = [Line(port)]
        self.done = 0
        self._held = 0
        words = ("XREADGROUP", "GROUP", "g", f"w{number}", "COUNT", str(batch), "STREAMS", "jobs", ">")
        self._read = _resp(*(word.encode() for word in words))
        self.begin = self._read
        self._batch = batch

    def heard(self, _line: Line) -> bytes | None:
        """The next command."""
        line = self.lines[0]
        if self._held:
            if line.input.count(b"\r\n") < 2:
                return None
            line.input = b""
            self.done += self._held
            self._held = 0
            return self._read
        if line.input.startswith((b"*-1", b"$-1")):
            raise Out
        ids = _ENTRY.findall(line.input)
        if len(ids) < self._batch or line.input.count(b"\r\n") < 5 + 8 * self._batch:
            return None
        line.input = b""
        self._held = len(ids)
        return _resp(b"XACK", b"jobs", b"g", *ids) + _resp(b"XDEL", b"jobs", *ids)


def _resp(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class BeanstalkWorker:
    """As many `reserve` as a batch has in one write, then as many `delete`."""

    def __init__(self, port: int, number: int, batch: int) -> None:
        self.lines = [Line(port)]
        self.done = 0
        self._batch = batch
        self._held = 0
        self.begin = b"reserve-with-timeout 0\r\n" * batch

    def heard(self, _line: Line) -> bytes | None:
        """The next commands."""
        line = self.lines[0]
        if self._held:
            if line.input.count(b"DELETED\r\n") < self._held:
                return None
            line.input = b""
            self.done += self._held
            self._held = 0
            return self.begin
        if b"TIMED_OUT" in line.input:
            raise Out
        found = _RESERVED.findall(line.input)
        size = sum(len(b"RESERVED %b %b\r\n\r\n" % one) + int(one[1]) for one in found)
        if len(found) < self._batch or len(line.input) < size:
            return None
        line.input = b""
        self._held = len(found)
        return b"".join(b"delete %b\r\n" % ident for ident, _ in found)


AnyWorker = TopicsWorker | StreamWorker | RedisWorker | BeanstalkWorker
KINDS: dict[str, type[AnyWorker]] = {
    "topics": TopicsWorker,
    "stream": StreamWorker,
    "redis": RedisWorker,
    "beanstalkd": BeanstalkWorker,
}


def main() -> None:
    """One turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    selector = selectors.DefaultSelector()
    workers = [KINDS[options.kind](options.port, number, options.batch) for number in range(options.workers)]
    for worker in workers:
        for line in worker.lines:
            selector.register(line.sock, selectors.EVENT_READ, (worker, line))
        worker.lines[0].sock.sendall(worker.begin)
    begun, is_out = time.monotonic(), False
    try:
        while time.monotonic() - begun < options.seconds:
            for key, _ in selector.select(1.0):
                worker, line = key.data
                line.input += line.sock.recv(1 << 20)
                answer = worker.heard(line)
                if answer is not None:
                    worker.lines[-1].sock.sendall(answer)
    except Out:
        is_out = True
    seconds = time.monotonic() - begun
    usage = resource.getrusage(resource.RUSAGE_SELF)
    count = sum(worker.done for worker in workers)
    print(json.dumps({"count": count, "seconds": seconds, "out": is_out, "cpu_s": usage.ru_utime + usage.ru_stime}))


if __name__ == "__main__":
    main()
