"""The scripts of a scenario's producers and readers, and what a process of theirs reports and writes down.

A producer ends with its time, but not before its last request was answered; readers end when they are told to (the
parent's pipe is closed), which is when they have read everything, or have had time enough. Every request to write has
an idempotency key, so that one whose answer was lost may be sent again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from topics_cli.claimed import claimed_lines
from topics_cli.client import JSON, NDJSON, Client, topic_path
from topics_cli.commands.settle import settle_body, skipped_of
from topics_cli.cut import bare_data, end_of, number, seq_of, ts_of
from topics_cli.exits import Failure
from topics_cli.harness.ledger import ProducerLedger, ReaderLedger, ledger_name
from topics_cli.harness.payloads import check_of, payloads, tag_of
from topics_cli.harness.scenario import DIFF, SSE, WORK, Reader, Scenario
from topics_cli.runner import Reports, Runner, Script, Stream, drive, moments
from topics_cli.signals import POLLIN

WAIT_MS: Final = 500
"""How long readers that have seen everything let the daemon wait."""
HEARTBEAT_MS: Final = 1000
"""A stream that has nothing to say says so, which is when its reader notices that it is to end."""
GRACE_S: Final = 5.0
"""How long the last answers are waited for."""
LOST_MAX: Final = 2400
"""Connections lost in a row before a process gives up: two minutes."""
REOPEN_S: Final = 0.05
_EVENT: Final = b"event: "
_DATA: Final = b"data: "
_RECORDS: Final = b'"records":['
_NEXT: Final = b'},{"$seq":'


class ProducerProcess:
    """The connections of one producer."""

    def __init__(self, client: Client, scenario: Scenario, place: int, prefix: str, run: Path, until: float) -> None:
        self._client = client
        self._scenario = scenario
        self._producer = scenario.producers[place]
        self._payload = payloads(scenario, place)
        self._prefix = prefix
        self._until = until
        self._ledger = ProducerLedger(run, self._producer.name)
        self._key = f"{prefix}{place}"
        self._next = 0
        self._is_over = False

    def run(self, reports: Reports) -> None:
        """Write until the time is over; raises `Failure` when the daemon refuses or stays away."""
        producer, client = self._producer, self._client
        scripts = [self._script(reports, place) for place in range(producer.connections)]
        runners = [Runner(client, script, reports, LOST_MAX) for script in scripts]

        def goes_on(_: dict[int, int]) -> bool:
            self._is_over = self._is_over or time.monotonic() >= self._until
            return True

        try:
            drive(runners, client.stop, reports, self._until + GRACE_S, goes_on)
        finally:
            self._ledger.close()

    def _script(self, reports: Reports, place: int) -> Script:
        producer, turn = self._producer, place
        rate = producer.rate / producer.batch if producer.rate else None
        for due in moments(rate, producer.connections, place):
            if due:
                if due >= self._until:
                    return
                yield due
            left = producer.batch if producer.records is None else min(producer.batch, producer.records - self._next)
            if self._is_over or left <= 0:
                return
            n, topic = self._next, producer.topics[turn % len(producer.topics)]
            self._next += left
            turn += 1
            begun = due or time.monotonic()
            body, content_type, size = self._body(n, left)
            path = topic_path(self._prefix + topic) + "?return_seqs=false"
            key = f"Idempotency-Key: {self._key}-{n}\r\n"
            self._ledger.sends(n, left, topic)
            answer = yield self._client.request("POST", path, body, content_type=content_type, headers=key)
            self._ledger.answered(n, number(answer.body, "first_seq"), number(answer.body, "last_seq"))
            reports.tally.done(begun, left, size)

    def _body(self, n: int, count: int) -> tuple[bytes, str, int]:
        """Body and type of a request, and the bytes of its records' data."""
        producer, payload = self._producer, self._payload
        data = [payload(m) for m in range(n, n + count)]
        size = sum(map(len, data))
        if not producer.tags and not producer.node and not producer.ack:
            return b"\n".join(data) + b"\n", NDJSON, size
        import json

        records = []
        for place, item in enumerate(data):
            tag = (
                b',"tag":' + json.dumps(tag_of(self._scenario, producer, n + place)).encode() if producer.tags else b""
            )
            records.append(b'{"data":' + item + tag + b"}")
        more = b"" if producer.node is None else b'"node":' + json.dumps(producer.node).encode() + b","
        more += b"" if producer.ack is None else b'"ack":"fsync",'
        return b"{" + more + b'"records":[' + b",".join(records) + b"]}", JSON, size


class ReaderProcess:
    """The connections of one reader."""

    def __init__(self, client: Client, reader: Reader, prefix: str, run: Path, ends: int) -> None:
        self._client = client
        self._reader = reader
        self._prefix = prefix
        self._ends = ends
        self._is_over = False
        self._over_at = float("inf")
        self._delay_ms = 0
        self._ledgers: dict[tuple[int, str], ReaderLedger] = {}
        for place in range(reader.connections):
            for topic in reader.topics:
                name = ledger_name(reader.name, place, topic)
                self._ledgers[place, topic] = ReaderLedger(run, name, topic, reader.kind)

    def more(self) -> dict[str, Any]:
        """How far the slowest connection has read each topic."""
        at: dict[str, int] = {}
        for (_, topic), ledger in self._ledgers.items():
            at[topic] = min(at.get(topic, 1 << 63), ledger.end["at"])
        return {"at": at, "delay_ms": self._delay_ms}

    def _ends_now(self) -> bool:
        return self._is_over

    def run(self, reports: Reports) -> None:
        """Read until we are told to end; raises `Failure` when the daemon refuses or stays away."""
        client, reader = self._client, self._reader
        script = {DIFF: self._pages, SSE: self._events, WORK: self._jobs}[reader.kind]
        places = [(place, topic) for place in range(reader.connections) for topic in reader.topics]
        if reader.kind == SSE:
            places = [(place, "") for place in range(reader.connections)]
        runners = [Runner(client, script(reports, *place), reports, LOST_MAX) for place in places]

        def goes_on(ready: dict[int, int]) -> bool:
            if self._ends in ready and not self._is_over:
                self._is_over, self._over_at = True, time.monotonic() + GRACE_S
            return time.monotonic() < self._over_at

        try:
            drive(runners, client.stop, reports, float("inf"), goes_on, [(self._ends, POLLIN)])
        finally:
            for ledger in self._ledgers.values():
                ledger.close()

    def _take(self, reports: Reports, ledger: ReaderLedger, lines: list[bytes]) -> None:
        """Records have come."""
        data = bare_data(lines)
        ledger.read(zip(map(seq_of, lines), map(check_of, data), strict=True))
        ledger.end["at"] = max(ledger.end["at"], seq_of(lines[-1]))
        tally = reports.tally
        tally.records += len(lines)
        tally.bytes += sum(map(len, data))
        tally.requests += 1
        self._delay_ms = max(0, time.time_ns() // 1_000_000 - ts_of(lines[-1]))
        tally.latencies.add(self._delay_ms * 1_000_000)

    def _pages(self, reports: Reports, place: int, topic: str) -> Script:
        ledger, from_seq = self._ledgers[place, topic], 0
        path = topic_path(self._prefix + topic) + "/diff"
        while not self._ends_now():
            wanted = b'{"from_seq":%d,"limit":%d,"wait_ms":%d,"include_meta":false}'
            body = wanted % (from_seq, self._reader.limit, WAIT_MS)
            before = reports.lost
            answer = yield self._client.request("POST", path, body, accept=NDJSON)
            ledger.end["lost"] += reports.lost > before
            *lines, page = answer.body.splitlines()
            from_seq = number(page, "next_from_seq") or from_seq
            _sort_out(ledger, lines)
            if lines:
                self._take(reports, ledger, lines)
            if self._reader.pause_s:
                yield time.monotonic() + self._reader.pause_s

    def _events(self, reports: Reports, place: int, _: str) -> Script:
        """A watch session after the other, each from where the one before was heard to the end of an event."""
        ledgers = {topic: self._ledgers[place, topic] for topic in self._reader.topics}
        at = dict.fromkeys(ledgers, 0)
        while not self._ends_now():
            wanted = ",".join(f'"{self._prefix}{topic}":{{"from_seq":{seq}}}' for topic, seq in at.items())
            body = f'{{"topics":{{{wanted}}},"limit":{self._reader.limit},"include_meta":false,'
            body += f'"heartbeat_ms":{HEARTBEAT_MS}}}'
            answer = yield self._client.request("POST", "/v0/watch", body.encode())
            where = answer.body.split(b'"stream_url":"', 1)[1].split(b'"', 1)[0].decode()
            stream = Stream(self._client.request("GET", where, accept="text/event-stream"))
            rest = b""
            while not self._ends_now():
                data = yield stream
                if data is None:
                    break
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    self._event(reports, ledgers, at, event)
            else:
                return
            for ledger in ledgers.values():
                ledger.end["lost"] += 1
            yield time.monotonic() + REOPEN_S

    def _event(self, reports: Reports, ledgers: dict[str, ReaderLedger], at: dict[str, int], event: bytes) -> None:
        lines = event.split(b"\n")
        kind = next((line[7:] for line in lines if line.startswith(_EVENT)), b"")
        data = b" ".join(line[6:] for line in lines if line.startswith(_DATA))
        if kind not in (b"record", b"tombstone"):
            return
        name = data.split(b'"topic":"', 1)[1].split(b'"', 1)[0].decode().removeprefix(self._prefix)
        ledger = ledgers[name]
        if kind == b"tombstone":
            _tell(ledger, data)
            at[name] = max(at[name], number(data, "gap_to") or 0)
            return
        begin, end = data.index(_RECORDS) + len(_RECORDS), data.rindex(b'],"from_seq":')
        pieces = data[begin:end].split(_NEXT)
        last = len(pieces) - 1
        records = [
            (b'{"$seq":' if place else b"") + piece + (b"}" if place < last else b"")
            for place, piece in enumerate(pieces)
        ]
        self._take(reports, ledger, records)
        at[name] = number(data[end:], "to_seq") or at[name]

    def _jobs(self, reports: Reports, place: int, topic: str) -> Script:
        """Claim, ack, and so on."""
        ledger, path = self._ledgers[place, topic], topic_path(self._prefix + topic)
        node = f"{self._reader.name}-{place + 1}"
        wanted = f'{{"node":"{node}","max":{self._reader.limit},"wait_ms":{WAIT_MS}}}'.encode()
        while not self._ends_now():
            begun = time.monotonic()
            answer = yield self._client.request("POST", path + "/claim", wanted)
            jobs = claimed_lines(answer.body)
            if not jobs:
                continue
            if self._reader.pause_s:
                yield time.monotonic() + self._reader.pause_s
            leases, checks = [], {}
            for line in jobs:
                at = line.index(b'"lease_id":"') + 12
                leases.append((seq_of(line), line[at : line.index(b'"', at)].decode()))
                begin = line.index(b'"data":') + 7
                checks[leases[-1][0]] = check_of(line[begin : end_of(line, begin)])
            before = reports.lost
            answer = yield self._client.request("POST", path + "/ack", settle_body(node, leases, ""))
            ledger.end["lost"] += reports.lost > before
            skipped = dict(skipped_of(answer.body))
            ledger.end["skipped"] |= skipped
            done = [(seq, check) for seq, check in checks.items() if seq not in skipped]
            ledger.read(done)
            ledger.end["at"] += len(done)
            reports.tally.done(begun, len(done), sum(map(len, jobs)))


def _sort_out(ledger: ReaderLedger, lines: list[bytes]) -> None:
    """Take the tombstones out of a page's lines."""
    if any(line.startswith(b'{"$tombstone":') for line in lines):
        for line in lines:
            if line.startswith(b'{"$tombstone":'):
                _tell(ledger, line)
        lines[:] = [line for line in lines if not line.startswith(b'{"$tombstone":')]


def _tell(ledger: ReaderLedger, data: bytes) -> None:
    gap_from, gap_to = number(data, "gap_from"), number(data, "gap_to")
    reason = data.split(b'"reason":"', 1)[1].split(b'"', 1)[0].decode()
    ledger.end["told"].append({"gap_from": gap_from, "gap_to": gap_to, "reason": reason})
    ledger.end["at"] = max(ledger.end["at"], gap_to or 0)


def whole_topic(client: Client, topic: str) -> Iterator[tuple[list[bytes], list[dict[str, Any]]]]:
    """All of a topic, page by page: records as they stand, and what is told to be lost."""
    import json

    from_seq = 0
    while True:
        body = b'{"from_seq":%d,"limit":1000,"max_bytes":8388608,"include_meta":false}' % from_seq
        answer = client.call(client.request("POST", topic_path(topic) + "/diff", body, accept=NDJSON))
        *lines, page = answer.body.splitlines()
        told = [json.loads(line)["$tombstone"] for line in lines if line.startswith(b'{"$tombstone":')]
        yield [line for line in lines if line.startswith(b'{"$seq":')], told
        end = json.loads(page)["$page"]
        if end["caught_up"]:
            return
        if end["next_from_seq"] <= from_seq:
            raise Failure(f"reading {topic} does not get beyond {from_seq}", "bench_failed", "")
        from_seq = end["next_from_seq"]
