"""A topic as naive as can be, and a host around a queue, for tests: what has to be called when, in few lines."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.queue.commands import Ack, Claim, Claimed, Extend, Nack, Settled
from engine.queue.events import (
    Acked,
    Appended,
    DeadLettered,
    Event,
    Extended,
    Leased,
    Move,
    Nacked,
    Released,
    Removed,
    TimePassed,
    Undelivered,
    Why,
    decode_lease_body,
    encode_lease_body,
    is_logged,
)
from engine.queue.machine import Queue
from engine.types import Match, TopicConfig, TopicType

START_MS = 1_000_000


class Records:
    """Live records as a dictionary; everything that a queue asks of its topic."""

    def __init__(self) -> None:
        self.tags: dict[int, str | None] = {}
        self.written_ms: dict[int, int] = {}
        self.top = 0
        self.asked = 0
        """How often the queue has asked anything."""
        self.record_bytes = 10
        self.run_records = 3
        """How many records lie together at most."""

    def append(self, count: int, tag: str | None, now: int) -> None:
        for _ in range(count):
            self.top += 1
            self.tags[self.top] = tag
            self.written_ms[self.top] = now

    def head(self) -> int:
        return self.top

    def next_live(self, seq: int, match: Match | None) -> int:
        self.asked += 1
        while seq <= self.top and (seq not in self.tags or (match is not None and not match.accepts(self.tags[seq]))):
            seq += 1
        return seq

    def is_live(self, seq: int) -> bool:
        self.asked += 1
        return seq in self.tags

    def all_live(self, first: int, last: int) -> bool:
        self.asked += 1
        return last - first < len(self.tags) and all(seq in self.tags for seq in range(first, last + 1))

    def run(self, seq: int, count: int) -> tuple[int, int]:
        self.asked += 1
        last = seq
        while last - seq + 1 < min(count, self.run_records) and last + 1 in self.tags:
            last += 1
        return last, (last - seq + 1) * self.record_bytes

    def passes(self, seq: int, match: Match) -> bool:
        self.asked += 1
        return match.accepts(self.tags[seq])

    def size(self, seq: int) -> int:
        return self.record_bytes

    def ts(self, seq: int) -> int:
        return self.written_ms[seq]


def queue_config(**changes: object) -> TopicConfig:
    """A queue's configuration: leases of one second unless said otherwise."""
    return msgspec.structs.replace(TopicConfig(type=TopicType.QUEUE, lease_ms=1000), **changes)


class Host:
    """One queue with its topic, clock and log, everything applied at once."""

    def __init__(self, **config: object) -> None:
        self.config = queue_config(**config)
        self.records = Records()
        self.queue = Queue(self.records)
        self.now = START_MS
        self.next_lease_id = 1 << 32
        self.log: list[Event] = []
        """What the WAL would hold of the queue, as its frames would give it back."""

    # -- what the host does with events ----------------------------------------------------------------------------

    def happen(self, event: Event) -> None:
        """Log, stage and apply an event, and change the topic as it says."""
        if is_logged(event, self.config.leases_durable):
            self.log.append(logged(event))
        if isinstance(event, Acked | DeadLettered):
            self.queue.stage(event)
        self.queue.apply(event)
        for seq in _leaving(event):
            self.records.tags.pop(seq, None)

    def pass_ms(self, ms: int) -> None:
        self.now += ms
        self.queue.apply(TimePassed(self.now))

    # -- commands --------------------------------------------------------------------------------------------------

    def write(self, count: int = 1, tag: str | None = None) -> list[int]:
        first = self.records.top + 1
        self.records.append(count, tag, self.now)
        self.happen(Appended(count))
        return list(range(first, first + count))

    def remove(self, first: int, last: int, why: Why = Why.DELETED) -> int:
        gone = [seq for seq in range(first, last + 1) if self.records.tags.pop(seq, "-") != "-"]
        self.happen(Removed(first, last, len(gone), why))
        return len(gone)

    def claim_all(self, *claims: Claim) -> Claimed:
        decision = self.queue.claim(list(claims), self.config, self.now, self.next_lease_id)
        self.next_lease_id = decision.next_lease_id
        for leased in decision.leased:
            if leased is not None:
                self.happen(leased)
        if decision.moved is not None:
            self.happen(decision.moved)
        return decision

    def claim(self, max: int = 1, node: str = "w", **fields: object) -> Leased | None:
        claim = msgspec.structs.replace(Claim(node=node, max=max), **fields)
        return self.claim_all(claim).leased[0]

    def seqs(self, max: int = 1, node: str = "w", **fields: object) -> list[int]:
        """The seqs that a claim gives."""
        leased = self.claim(max, node, **fields)
        return [] if leased is None else [seq for seq, _ in leased.jobs]

    def settle(self, decision: Settled) -> Settled:
        for event in (decision.event, decision.moved):
            if event is not None:
                self.happen(event)
        return decision

    def ack(self, *seqs: int, node: str = "w", lease_ids: list[int] | None = None) -> Settled:
        return self.settle(self.queue.ack(Ack(node=node, seqs=list(seqs), lease_ids=lease_ids), self.now))

    def nack(self, *seqs: int, node: str = "w", **fields: Any) -> Settled:
        command = msgspec.structs.replace(Nack(node=node, seqs=list(seqs)), **fields)
        return self.settle(self.queue.nack(command, self.config, self.now))

    def extend(self, *seqs: int, node: str = "w", **fields: Any) -> Settled:
        command = msgspec.structs.replace(Extend(node=node, seqs=list(seqs)), **fields)
        return self.settle(self.queue.extend(command, self.config, self.now))


def logged(event: Event) -> Event:
    """An event as the log gives it back."""
    if isinstance(event, Leased | Extended | Nacked | Released | Undelivered):
        return decode_lease_body(encode_lease_body(event))
    return (
        DeadLettered(event.at, tuple(Move(move.seq) for move in event.moves))
        if isinstance(event, DeadLettered)
        else event
    )


def _leaving(event: Event) -> list[int]:
    if isinstance(event, Acked):
        return list(event.seqs)
    return [move.seq for move in event.moves] if isinstance(event, DeadLettered) else []
