"""Load for `topics bench`: what one process of it does, over as many connections as it is told.

Each connection follows a script: a generator that yields the next request, or the moment until which it waits, and is
sent the answer. One loop moves all scripts of a process, so a connection costs no thread, and the figures are of the
daemon and of HTTP, not of a scheduler of ours. Sums and latencies go to the parent as lines of JSON, ten a second.

With a rate each operation has a moment at which it is due, and its latency counts from there: an operation that had to
wait because the one before was slow is slow as well (otherwise a daemon that stalls would look well). Without a rate a
connection asks again as soon as it was answered.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from topics_cli.claimed import claimed_lines
from topics_cli.client import JSON, NDJSON, Client, Request, api_error, topic_path
from topics_cli.commands.settle import settle_body
from topics_cli.cut import number, seq_of
from topics_cli.exits import NoDaemon
from topics_cli.latencies import Latencies
from topics_cli.wire import Answer, Channel, Lost

REPORT_S: Final = 0.1
RECONNECT_S: Final = 0.05
BUSY_S: Final = 0.05
"""Pause after a 429 or 503 that names none."""
WAIT_MS: Final = 1000
"""How long readers that have seen everything let the daemon wait."""
LOST_MAX: Final = 200
"""Connections lost in a row after which a process gives up: ten seconds."""
TAIL_RATE: Final = 100.0
"""Writes a second of the mode `tail`, unless a rate is given."""

WRITE, READ, TAIL, QUEUE = MODES = ("write", "read", "tail", "queue")

Script = Generator[Request | float, Answer | None, None]


@dataclass(frozen=True, slots=True)
class Load:
    """What to do; rates and counts are those of one process."""

    mode: str
    topic: str
    connections: int
    batch: int
    """Records of a request (jobs of a cycle)."""
    size: int
    """Bytes of a record's data."""
    seconds: float
    records: int | None
    """Most records, None for no bound but the time."""
    rate: float | None
    """Requests a second, None for as many as are answered."""


class Tally:
    """What was done since the last report."""

    __slots__ = ("bytes", "latencies", "lost", "records", "refused", "requests")

    def __init__(self) -> None:
        self.requests = self.records = self.bytes = self.refused = self.lost = 0
        self.latencies = Latencies()

    def line(self) -> bytes:
        """As a line for the parent."""
        seen = self.latencies
        values = {
            **{name: getattr(self, name) for name in ("requests", "records", "bytes", "refused", "lost")},
            "counts": seen.counts,
            "total": seen.total,
            "largest": seen.largest,
        }
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def payload(size: int, sent_ns: int | None = None) -> bytes:
    """Data of so many bytes: JSON with a member to fill it up, and the moment when it was sent where that is wanted."""
    head = b'{"sent_ns":%d,"fill":"' % sent_ns if sent_ns is not None else b'{"fill":"'
    return head + b"x" * max(0, size - len(head) - 2) + b'"}'


class Process:
    """One process at its load."""

    def __init__(self, client: Client, load: Load, report: int) -> None:
        self._client = client
        self._load = load
        self._report = report
        self._path = topic_path(load.topic)
        self._tally = Tally()
        self._records = 0
        self._until = time.monotonic() + load.seconds

    def run(self) -> None:
        """Do it all; raises `Failure` when the daemon refuses what is asked, or stays away."""
        load = self._load
        scripts = {WRITE: self._writer, READ: self._reader, TAIL: self._watcher, QUEUE: self._worker}
        runners = [_Runner(self._client.channel(), scripts[load.mode](place)) for place in range(load.connections)]
        if load.mode == TAIL:
            runners.append(_Runner(self._client.channel(), self._stamper()))
        stop, told_at = self._client.stop, time.monotonic() + REPORT_S
        try:
            while self._goes_on and not stop.signum and any(not runner.is_done for runner in runners):
                now = time.monotonic()
                if now >= told_at:
                    self._tell()
                    told_at = now + REPORT_S
                wake_at = min([told_at, self._until, *(runner.wake_at for runner in runners if runner.wake_at)])
                watch = [item for runner in runners for item in runner.watch]
                ready = stop.wait(watch, max(0.0, wake_at - now))
                now = time.monotonic()
                for runner in runners:
                    if runner.is_due(ready, now):
                        runner.step(self._tally)
        finally:
            self._tell()
            for runner in runners:
                runner.channel.close()

    @property
    def _goes_on(self) -> bool:
        bound = self._load.records
        return time.monotonic() < self._until and (bound is None or self._records < bound)

    def _tell(self) -> None:
        line, self._tally = self._tally.line(), Tally()
        while line:
            line = line[os.write(self._report, line) :]

    def _done(self, begun: float, records: int, size: int) -> None:
        tally = self._tally
        tally.requests += 1
        tally.records += records
        tally.bytes += size
        tally.latencies.add(max(0, int((time.monotonic() - begun) * 1e9)))
        self._records += records

    def _post(self, path: str, body: bytes, content_type: str = JSON, accept: str = JSON) -> Request:
        return self._client.request("POST", self._path + path, body, content_type=content_type, accept=accept)

    def _moments(self, place: int, share: float) -> Generator[float, None, None]:
        """When each operation of a connection is due; now, where no rate was given."""
        if not self._load.rate:
            while True:
                yield 0.0
        step = share / self._load.rate
        due = time.monotonic() + step * place / max(1, self._load.connections)
        while True:
            yield due
            due += step

    # -- scripts ---------------------------------------------------------------------------------------------------

    def _writer(self, place: int) -> Script:
        load = self._load
        request = self._post("?return_seqs=false", (payload(load.size) + b"\n") * load.batch, NDJSON)
        for due in self._moments(place, load.connections):
            if due:
                yield due
            begun = due or time.monotonic()
            yield request
            self._done(begun, load.batch, load.batch * load.size)

    def _reader(self, place: int) -> Script:
        load, from_seq = self._load, 0
        for due in self._moments(place, load.connections):
            if due:
                yield due
            begun = due or time.monotonic()
            body = b'{"from_seq":%d,"limit":%d}' % (from_seq, load.batch)
            answer = yield self._post("/diff", body, accept=NDJSON)
            lines, end = _page(answer)
            self._done(begun, lines, len(answer.body) if answer else 0)
            from_seq = 0 if lines < load.batch else end

    def _watcher(self, _place: int) -> Script:
        """Follows the topic; what counts is when a record was written and when it is here."""
        from_seq = 0
        while True:
            body = b'{"from_seq":%d,"wait_ms":%d,"limit":1000}' % (from_seq, WAIT_MS)
            answer = yield self._post("/diff", body, accept=NDJSON)
            if answer is None:
                continue
            now = time.monotonic_ns()
            lines, end = _page(answer)
            from_seq = max(from_seq, end)
            if not lines:
                continue
            self._tally.requests += 1
            for line in answer.body.split(b"\n"):
                sent = number(line, "sent_ns")
                if sent is not None:
                    self._tally.records += 1
                    self._tally.bytes += self._load.size
                    self._tally.latencies.add(max(0, now - sent))
                    self._records += 1

    def _stamper(self) -> Script:
        """Writes what the watchers see."""
        load = self._load
        for due in self._moments(0, 1):
            yield due
            body = (payload(load.size, int(due * 1e9)) + b"\n") * load.batch
            yield self._post("?return_seqs=false", body, NDJSON)

    def _worker(self, place: int) -> Script:
        """A cycle: put jobs, claim as many, ack them."""
        load, node = self._load, f"bench-{os.getpid()}-{place}"
        put = self._post("?return_seqs=false", (payload(load.size) + b"\n") * load.batch, NDJSON)
        claim = self._post("/claim", b'{"node":"%b","max":%d,"wait_ms":%d}' % (node.encode(), load.batch, WAIT_MS))
        for due in self._moments(place, load.connections):
            if due:
                yield due
            begun = due or time.monotonic()
            yield put
            answer = yield claim
            jobs = claimed_lines(answer.body) if answer else []
            if not jobs:
                continue
            leases = [(seq_of(line), "") for line in jobs]
            yield self._post("/ack", settle_body(node, leases, ""))
            self._done(begun, len(jobs), len(jobs) * load.size)


def _page(answer: Answer | None) -> tuple[int, int]:
    """How many records a page of NDJSON holds, and where the next one begins."""
    if answer is None:
        return 0, 0
    body = answer.body
    at = body.rfind(b'{"$page":')
    return body.count(b"\n", 0, at), number(body[at:], "next_from_seq") or 0


class _Runner:
    """A connection and its script."""

    __slots__ = ("_busy", "_lost", "_request", "_script", "channel", "is_done", "wake_at")

    def __init__(self, channel: Channel, script: Script) -> None:
        self.channel = channel
        self._script = script
        self._request: Request | None = None
        self._lost = 0
        self._busy = False
        self.is_done = False
        self.wake_at = time.monotonic()
        """When it goes on by itself; 0 while it waits for the daemon."""

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for."""
        return [] if self.wake_at or self.is_done else self.channel.watch

    def is_due(self, ready: dict[int, int], now: float) -> bool:
        """Whether there is something to do."""
        if self.is_done:
            return False
        return now >= self.wake_at if self.wake_at else any(handle in ready for handle, _ in self.channel.watch)

    def step(self, tally: Tally) -> None:
        """Move on."""
        if self.wake_at:
            self.wake_at = 0.0
            if self._request is None:
                self._go_on(None)
            else:
                self._send(tally)
            return
        try:
            answer = self.channel.step()
        except Lost as lost:
            self._has_lost(tally, lost)
            return
        if answer is None:
            return
        self._lost = 0
        if answer.status in (429, 503):
            tally.refused += 1
            wait = answer.headers.get(b"retry-after", b"")
            self.wake_at = time.monotonic() + (float(wait) if wait.isdigit() else BUSY_S)
            return
        if answer.status >= 400:
            raise api_error(answer)
        self._request = None
        self._go_on(answer)

    def _go_on(self, answer: Answer | None) -> None:
        try:
            wanted = self._script.send(answer)
        except StopIteration:
            self.is_done = True
            return
        if isinstance(wanted, float):
            self.wake_at = max(wanted, 1e-9)
        else:
            self._request = wanted
            self._send(None)

    def _send(self, tally: Tally | None) -> None:
        assert self._request is not None
        try:
            self.channel.start(self._request.head, self._request.body)
        except Lost as lost:
            self._has_lost(tally or Tally(), lost)

    def _has_lost(self, tally: Tally, lost: Lost) -> None:
        tally.lost += 1
        self._lost += 1
        if self._lost > LOST_MAX:
            raise NoDaemon(f"the daemon is gone: {lost.why}", "its topics may still be there: topics ls")
        self.channel.close()
        self.wake_at = time.monotonic() + RECONNECT_S
