"""Load for `topics bench`: what one process of it does, over as many connections as it is told.

Its connections follow scripts (`runner`), one for each mode.

With a rate each operation has a moment at which it is due, and its latency counts from there: an operation that had to
wait because the one before was slow is slow as well (otherwise a daemon that stalls would look well). Without a rate a
connection asks again as soon as it was answered.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

from topics_cli.claimed import claimed_lines
from topics_cli.client import JSON, NDJSON, Client, Request, topic_path
from topics_cli.commands.settle import settle_body
from topics_cli.cut import number, seq_of
from topics_cli.runner import Reports, Runner, Script, drive, moments
from topics_cli.wire import Answer

WAIT_MS: Final = 1000
"""How long readers that have seen everything let the daemon wait."""
TAIL_RATE: Final = 100.0
"""Writes a second of the mode `tail`, unless a rate is given."""

WRITE, READ, TAIL, QUEUE = MODES = ("write", "read", "tail", "queue")


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


def payload(size: int, sent_ns: int | None = None) -> bytes:
    """Data of so many bytes: JSON with a member to fill it up, and the moment when it was sent where that is wanted."""
    head = b'{"sent_ns":%d,"fill":"' % sent_ns if sent_ns is not None else b'{"fill":"'
    return head + b"x" * max(0, size - len(head) - 2) + b'"}'


class Process:
    """One process at its load."""

    def __init__(self, client: Client, load: Load, report: int) -> None:
        self._client = client
        self._load = load
        self._path = topic_path(load.topic)
        self._reports = Reports(report)
        self._records = 0
        self._until = time.monotonic() + load.seconds

    def run(self) -> None:
        """Do it all; raises `Failure` when the daemon refuses what is asked, or stays away."""
        load = self._load
        mode = {WRITE: self._writer, READ: self._reader, TAIL: self._watcher, QUEUE: self._worker}[load.mode]
        scripts = [mode(place) for place in range(load.connections)]
        if load.mode == TAIL:
            scripts.append(self._stamper())
        runners = [Runner(self._client, script, self._reports) for script in scripts]
        drive(runners, self._client.stop, self._reports, self._until, lambda _: self._goes_on)

    @property
    def _goes_on(self) -> bool:
        bound = self._load.records
        return bound is None or self._records < bound

    def _done(self, begun: float, records: int, size: int) -> None:
        self._reports.tally.done(begun, records, size)
        self._records += records

    def _post(self, path: str, body: bytes, content_type: str = JSON, accept: str = JSON) -> Request:
        return self._client.request("POST", self._path + path, body, content_type=content_type, accept=accept)

    # -- scripts ---------------------------------------------------------------------------------------------------

    def _writer(self, place: int) -> Script:
        load = self._load
        request = self._post("?return_seqs=false", (payload(load.size) + b"\n") * load.batch, NDJSON)
        for due in moments(load.rate, load.connections, place):
            if due:
                yield due
            begun = due or time.monotonic()
            yield request
            self._done(begun, load.batch, load.batch * load.size)

    def _reader(self, place: int) -> Script:
        load, from_seq = self._load, 0
        for due in moments(load.rate, load.connections, place):
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
            tally = self._reports.tally
            tally.requests += 1
            for line in answer.body.split(b"\n"):
                sent = number(line, "sent_ns")
                if sent is not None:
                    tally.records += 1
                    tally.bytes += self._load.size
                    tally.latencies.add(max(0, now - sent))
                    self._records += 1

    def _stamper(self) -> Script:
        """Writes what the watchers see."""
        load = self._load
        for due in moments(load.rate, 1, 0):
            yield due
            body = (payload(load.size, int(due * 1e9)) + b"\n") * load.batch
            yield self._post("?return_seqs=false", body, NDJSON)

    def _worker(self, place: int) -> Script:
        """A cycle: put jobs, claim as many, ack them."""
        load, node = self._load, f"bench-{os.getpid()}-{place}"
        put = self._post("?return_seqs=false", (payload(load.size) + b"\n") * load.batch, NDJSON)
        claim = self._post("/claim", b'{"node":"%b","max":%d,"wait_ms":%d}' % (node.encode(), load.batch, WAIT_MS))
        for due in moments(load.rate, load.connections, place):
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
