"""What is staged for queues: answers that wait for a Lease frame, acks, and moves to the dead letters in two halves.

A move is one frame in the log of its source, and two changes: jobs leave the source (`StagedMove`), copies appear in
the target (`StagedCopies`), which may live on another shard. The frame is synced before either shows, whatever the
class; then both show in the same moment. So the log of the source alone decides whether the move has happened: where
the frame is lost nobody has seen a copy, and where it is found replay makes both halves, as the target's seqs tell
whether its image has them.

Nothing but copies of the same source may be pending in the target when a move is staged. So the copies are always the
first of what is pending there when their move is applied, and what comes behind them waits for the source's sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from engine.core.catalog import Catalog
from engine.core.slot import Slot
from engine.core.staged import Staged, StagedElsewhere
from engine.core.ticket import Ticket
from engine.formats.control import DeleteBody, encode_control_body
from engine.fragment import Rendered
from engine.queue.events import Acked, DeadLettered
from engine.ranges import runs_of

if TYPE_CHECKING:
    from engine.core.commit import Commit

JOINED_SEQS_MAX: Final = 256
"""Jobs that acks which share a frame may have together."""
NEVER: Final = 1 << 63
"""No sync gets there: such a change waits for something else."""


class StagedAnswer(Staged):
    """An answer about an event that is applied already, and whose frame it waits for."""

    __slots__ = ("_answer",)

    def __init__(self, slot: Slot, ticket: Ticket[Any] | None, answer: Callable[[], Any] | None) -> None:
        super().__init__(slot, ticket)
        self._answer = answer

    def apply(self, catalog: Catalog, now_ms: int) -> Any:
        return None if self._answer is None else self._answer()


class StagedTake(Staged):
    """Jobs that will be gone: acked, or moved where the copies need no frame of the source."""

    __slots__ = ("_answer", "event", "joined", "ranges", "ts")

    def __init__(
        self,
        slot: Slot,
        ticket: Ticket[Any] | None,
        event: Acked | DeadLettered,
        ranges: list[tuple[int, int]],
        answer: Callable[[], Any] | None,
    ) -> None:
        self.slot = slot
        self.ticket = ticket
        self.lsn = self.end_lsn = self.sync_lsn = self.ack_lsn = 0
        self.event = event
        self.ranges = ranges
        self.ts = event.at
        self.joined: list[tuple[Ticket[Any], Callable[[], Any]]] = []
        self._answer = answer

    def apply(self, catalog: Catalog, now_ms: int) -> Any:
        topic, host = self.slot.topic, self.slot.host
        assert host is not None, "only queues have jobs"
        records, size = topic.count, topic.bytes
        host.take(self.event, self.ranges)
        catalog.freed(self.slot)
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size
        if isinstance(self.event, DeadLettered):
            host.moving -= 1
        if host.poked is not None:
            host.poke()
        return None if self._answer is None else self._answer()

    def others(self) -> Iterator[tuple[Ticket[Any], Any]]:
        for ticket, answer in self.joined:
            yield ticket, answer()

    def join(self, commit: Commit, ticket: Ticket[Any], event: Acked, answer: Callable[[], Any]) -> bool:
        """Let an ack of the same moment share the frame of this one; False where it needs one of its own."""
        seqs = sorted((*self.event.seqs, *event.seqs)) if isinstance(self.event, Acked) else []
        if not 0 < len(seqs) <= JOINED_SEQS_MAX:
            return False
        ranges = runs_of(seqs)
        body = encode_control_body(DeleteBody(ranges=ranges, acked=True))
        if not commit.grow(self, body, len(body)):
            return False
        self.event, self.ranges = Acked(event.at, tuple(seqs)), ranges
        self.joined.append((ticket, answer))
        return True


class StagedCopies(StagedElsewhere):
    """Dead letters that will be readable, together with the move that they are the other half of.

    shard     of the source, whose log holds them
    """

    __slots__ = ("_first_seq", "_lsn", "_rendered", "_size", "source", "ts")

    def __init__(
        self, slot: Slot, source: Slot, place: tuple[int, int], first_seq: int, rendered: Rendered, ts: int, size: int
    ) -> None:
        super().__init__(slot, place[0])
        self.sync_lsn = NEVER
        self.source = source
        self._lsn = place[1]
        self._first_seq = first_seq
        self._rendered = rendered
        self.ts = ts
        self._size = size

    def apply(self, catalog: Catalog, now_ms: int) -> None:
        slot, topic = self.slot, self.slot.topic
        count = len(self._rendered.strides)
        records, size = topic.count, topic.bytes
        topic.apply_append(self._first_seq, self._rendered, self.ts, (self.shard, self._lsn))
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size
        catalog.census.written += count
        slot.staged_records -= count
        slot.staged_bytes -= self._size
        catalog.bytes_staged -= self._size
        # They are on disk, though no sync of the target's own shard ever says so.
        before, last = self._first_seq - 1, self._first_seq + count - 1
        slot.syncing = last if slot.syncing == before else slot.syncing
        slot.synced = last if slot.synced == before else slot.synced
        if slot.host is not None:
            slot.host.appended(count)
        if slot.outlets is not None:
            slot.outlets.note()


class StagedMove(StagedTake):
    """Jobs that go to the dead letters: this half, and then the other."""

    __slots__ = ("_copies", "_show")

    def __init__(
        self,
        slot: Slot,
        ticket: Ticket[Any] | None,
        event: DeadLettered,
        ranges: list[tuple[int, int]],
        answer: Callable[[], Any] | None,
        copies: StagedCopies,
        show: Callable[[StagedCopies, int], None],
    ) -> None:
        super().__init__(slot, ticket, event, ranges, answer)
        self._copies = copies
        self._show = show

    def apply(self, catalog: Catalog, now_ms: int) -> Any:
        answer = super().apply(catalog, now_ms)
        self._show(self._copies, now_ms)
        return answer
