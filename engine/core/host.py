"""What makes a queue of a topic: the machine (engine.queue) beside it, and everything that the one has to hear of the
other.

The machine counts what is live; so every change of its topic is told here, right after it was made and with what it
cost: appends, deletes, gaps, evictions, age. What leaves the front of a topic by itself (age between two changes, the
bound on volatile memory) need not be told: the difference shows at the next look (`settle`). Acks and moves to the
dead letters happen to the queue first and to the topic then (`take`).

The same functions run at replay, so that a queue which was made from its log equals the one that wrote it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.formats.append import BadBody
from engine.queue.cohort import Cohort
from engine.queue.events import (
    Acked,
    Appended,
    DeadLetterBody,
    DeadLettered,
    Move,
    Removed,
    Restarted,
    Why,
    decode_dead_letter_body,
    decode_lease_body,
)
from engine.queue.machine import Queue
from engine.queue.snapshot import QueueSnapshot
from engine.topic.state import Topic
from engine.topic.tags import next_tagged, passes
from engine.types import Match, TopicConfig

if TYPE_CHECKING:
    from engine.core.claims import Waiter
    from engine.core.standing import Standing

ENTRY_BYTES: Final = 192
"""What a claimed entry has beside what its record counts for: names, numbers, its lease."""


class Host:
    """One queue. As `Jobs` it answers what the machine asks of the topic."""

    __slots__ = (
        "_now_ms",
        "blocked",
        "cohort",
        "earliest",
        "moving",
        "poked",
        "queue",
        "standing",
        "topic",
        "uncovered",
        "waiters",
    )

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.queue = Queue(self)
        self.earliest = topic.earliest_seq
        """Where the topic began at the last look."""
        self.waiters: deque[Waiter] | None = None
        """Claims that wait (None: none ever did), in order."""
        self.cohort: Cohort[Waiter] | None = None
        self.standing: dict[int, Standing] | None = None
        """Claims that stand, by connection; None while there are none."""
        self.poked: set[Host] | None = None
        """Where to say that there may be something for those who wait; None while nobody does."""
        self.moving = 0
        """Moves to the dead letters that are staged and not applied."""
        self.blocked = False
        """Whether moves wait for the dead-letter topic, or for room in the log."""
        self.uncovered = False
        """Whether leases were given, or ended, of which neither the log nor a snapshot says."""
        self._now_ms = 0

    # -- what the machine asks (engine.queue.jobs) -----------------------------------------------------------------

    def at(self, now_ms: int) -> None:
        """What follows is asked at this time."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms

    def as_of(self, now_ms: int) -> Queue:
        """The queue as it is at this time: told of what its topic has let go of, and of what is over."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        if self.topic.config.ttl_ms or self.topic.earliest_seq != self.earliest:
            self.settle()
        queue = self.queue
        if now_ms > queue.now_ms:
            queue.pass_time(now_ms)
        return queue

    def _first(self) -> int:
        topic = self.topic
        return topic.at(self._now_ms).earliest_seq if topic.config.ttl_ms else topic.earliest_seq

    def head(self) -> int:
        return self.topic.head

    def next_live(self, seq: int, match: Match | None) -> int:
        topic = self.topic
        if topic.config.ttl_ms:
            seq = max(seq, self._first())
        return topic.next_live(seq) if match is None else next_tagged(topic, max(seq, topic.earliest_seq), match)

    def is_live(self, seq: int) -> bool:
        topic = self.topic
        return self._first() <= seq <= topic.head and seq not in topic.deleted and topic.gaps.holding(seq) is None

    def all_live(self, first: int, last: int) -> bool:
        topic = self.topic
        earliest = self._first() if topic.config.ttl_ms else topic.earliest_seq
        return earliest <= first <= last <= topic.head and topic.live_until(first, last) == last

    def run(self, seq: int, count: int) -> tuple[int, int]:
        topic, tail = self.topic, self.topic.tail
        block = tail.block_of(seq)
        assert block is not None, "what is live lies in a block"
        last = topic.live_until(seq, min(seq + count - 1, block.last_seq))
        index, found = seq - block.first_seq, last - seq + 1
        return last, tail.size(block, index, index + found) + found * ENTRY_BYTES

    def passes(self, seq: int, match: Match) -> bool:
        return passes(self.topic, seq, match)

    def size(self, seq: int) -> int:
        tail = self.topic.tail
        block = tail.block_of(seq)
        assert block is not None, "what is live lies in a block"
        index = seq - block.first_seq
        return tail.size(block, index, index + 1) + ENTRY_BYTES

    def ts(self, seq: int) -> int:
        tail = self.topic.tail
        block = tail.block_of(seq)
        assert block is not None, "what is live lies in a block"
        return tail.ts_at(block, seq - block.first_seq)

    def counters(self, now_ms: int) -> dict[str, Any]:
        """What a state shows as `queue`."""
        self.at(now_ms)
        self.settle()
        shown: dict[str, Any] = msgspec.to_builtins(self.queue.counters(now_ms))
        shown["claim_waiters"] = len(self.waiters or ()) + len(self.cohort or ())
        return shown

    # -- what the topic tells --------------------------------------------------------------------------------------

    def poke(self) -> None:
        """There may be something for those who wait."""
        if self.poked is not None:
            self.poked.add(self)

    def settle(self) -> None:
        """Tell the queue what the topic has let go of from its front since the last look, or would by now: age is exact
        although the topic itself forgets what is too old at its next change."""
        earliest, count = self._left()
        if earliest != self.earliest:
            gone = self.queue.live - count
            if gone:
                self.queue.apply(Removed(self.earliest, earliest - 1, gone, Why.EVICTED))
            self.earliest = earliest

    def _left(self) -> tuple[int, int]:
        """The first live record and how many there are, at the time of the last look."""
        topic = self.topic
        if not topic.config.ttl_ms:
            return topic.earliest_seq, topic.count
        view = topic.at(self._now_ms)
        return view.earliest_seq, view.count

    def age(self, now_ms: int) -> None:
        """Let go of what is too old, before a change that is counted as something else."""
        self.at(now_ms)
        self.topic.expire(now_ms)
        self.settle()

    def appended(self, count: int) -> None:
        """The topic has taken records."""
        self.queue.apply(Appended(count))
        self.settle()
        self.poke()

    def delete(self, ranges: list[tuple[int, int]], ts: int) -> int:
        """Let the topic delete records; returns how many were live."""
        self.age(ts)
        deleted = self.topic.apply_delete(ranges, ts)
        self._removed(ranges, Why.DELETED)
        return deleted

    def lost(self, first: int, last: int) -> None:
        """The topic has lost records to a crash or to damage."""
        gone = max(self.queue.live - self._left()[1], 0)
        self.queue.apply(Removed(first, last, gone, Why.LOST))
        self._front(Why.LOST)

    def _removed(self, ranges: Iterable[tuple[int, int]], why: Why) -> None:
        earliest, count = self._left()
        gone = self.queue.live - count
        if gone:
            for first, last in ranges:
                self.queue.apply(Removed(first, last, gone, why))
                gone = 0
        self.earliest = earliest

    def _front(self, why: Why) -> None:
        earliest, _count = self._left()
        if self.earliest < earliest:
            self.queue.apply(Removed(self.earliest, earliest - 1, 0, why))
        self.earliest = earliest

    def take(self, event: Acked | DeadLettered, ranges: list[tuple[int, int]]) -> None:
        """Jobs are done, or move: the queue hears of it first, then the topic deletes them."""
        topic = self.topic
        if topic.config.ttl_ms:
            topic.expire(event.at)
        self.as_of(event.at).apply(event)
        topic.apply_delete(ranges, event.at)
        self.earliest = self._left()[0]

    # -- starts ----------------------------------------------------------------------------------------------------

    def happened(self, body: bytes, ts: int) -> None:
        """Apply the event of a Lease frame. Raises `BadBody`."""
        self.age(ts)
        try:
            self.queue.apply(decode_lease_body(body))
        except msgspec.DecodeError as error:
            raise BadBody(f"the body of a LEASE frame: {error}") from error

    def restore(self, image: Any) -> None:
        """Put the queue of a snapshot back, beside its topic. Without one it was a log until now, for all we know."""
        topic = self.topic
        if image is None:
            self.queue = Queue(self)
            self.queue.apply(Appended(topic.count))
        else:
            self.queue = Queue.restore(self, msgspec.convert(image, QueueSnapshot))
            # Some of its records may be nobody's any more: those that only memory had, or whose segment is lost.
            gone = max(self.queue.live - topic.count, 0)
            if gone:
                for job in msgspec.convert(image, QueueSnapshot).jobs:
                    if not self.is_live(job.seq):
                        self.queue.apply(Removed(job.seq, job.seq, 0, Why.LOST))
                self.queue.apply(Removed(0, 0, gone, Why.LOST))
        self.earliest = topic.earliest_seq

    def restarted(self, now_ms: int, config: TopicConfig) -> None:
        """The log is applied, and a new process begins."""
        self.at(now_ms)
        self.queue.apply(Restarted(now_ms, config.leases_durable))


def acked(at: int, seqs: Sequence[int]) -> Acked:
    """An ack out of the log."""
    return Acked(at, tuple(seqs))


def dead_lettered(at: int, seqs: Sequence[int]) -> DeadLettered:
    """A move out of the log."""
    return DeadLettered(at, tuple(map(Move, seqs)))


def dead_letter_parts(body: bytes) -> tuple[DeadLetterBody, bytes]:
    """The head of a DeadLetter frame, and the Append body of the copies. Raises `BadBody`."""
    try:
        return decode_dead_letter_body(body)
    except msgspec.DecodeError as error:
        raise BadBody(f"the body of a DEAD_LETTER frame: {error}") from error
