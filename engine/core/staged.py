"""What has been decided and waits for its condition: one class a kind of change, each with one `apply`.

A staged change says how far its shard must have got, in the page cache and on disk. `Commit` applies the changes of a
topic strictly in order; `apply` is all that changes a topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from engine.core.catalog import Catalog
from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.formats.append import SharedBody
from engine.formats.moving import MoveBody, MoveState
from engine.fragment import Rendered
from engine.routers.router import Router
from engine.types import AppendResult, DeleteResult, Reason, TopicConfig, TopicDropped, TopicPut


class Staged:
    """A change between decision and visibility.

    lsn       where its frame begins; nothing that a checkpoint takes down of a topic may reach beyond its first one
    end_lsn   where its frame ends: its shard must have written that far (0: it has no frame)
    sync_lsn  what must be on disk before it is visible (0: nothing)
    ack_lsn   what must be on disk before the answer, beyond that (0: nothing)
    """

    __slots__ = ("ack_lsn", "end_lsn", "lsn", "slot", "sync_lsn", "ticket")

    joined: Sequence[tuple[Any, ...]] = ()
    """Commands whose changes have joined this one, in one frame (ADR 0050): of each its ticket, and what is its own."""
    ts = 0
    """The moment of what others may join."""

    def __init__(self, slot: Slot, ticket: Ticket[Any] | None) -> None:
        self.slot = slot
        self.ticket = ticket
        self.lsn = 0
        self.end_lsn = 0
        self.sync_lsn = 0
        self.ack_lsn = 0

    def apply(self, catalog: Catalog, now_ms: int) -> Any:
        """Make the change, and return the answer to its command."""
        raise NotImplementedError

    def others(self) -> Iterator[tuple[Ticket[Any], Any]]:
        """The tickets of what has joined, and their answers; once the change is made."""
        raise NotImplementedError


class StagedElsewhere(Staged):
    """A change whose frame may lie in another shard's log, that of `shard`: it then waits until somebody says so."""

    __slots__ = ("shard",)

    def __init__(self, slot: Slot, shard: int) -> None:
        Staged.__init__(self, slot, None)
        self.shard = shard


Joined: TypeAlias = tuple[Ticket[AppendResult], int, int]
"""A write that has joined another one's frame: its ticket, first seq and count."""


class StagedAppend(Staged):
    """Records that will be readable."""

    __slots__ = (
        "created",
        "digest",
        "first_seq",
        "followers",
        "joined",
        "key",
        "rendered",
        "shared",
        "staged_bytes",
        "ts",
    )

    def __init__(
        self,
        slot: Slot,
        ticket: Ticket[AppendResult],
        first_seq: int,
        rendered: Rendered,
        ts: int,
        key: bytes | None,
        digest: bytes,
        created: bool,
        staged_bytes: int,
    ) -> None:
        self.slot = slot
        self.ticket = ticket
        self.end_lsn = self.sync_lsn = self.ack_lsn = self.lsn = 0
        self.first_seq = first_seq
        self.rendered = rendered
        self.ts = ts
        self.key = key
        self.digest = digest
        self.created = created
        self.staged_bytes = staged_bytes
        self.followers: list[tuple[Ticket[AppendResult], bool]] | None = None
        """Retries with the same key that arrived while this one was being committed, and whether they want a sync."""
        self.shared: SharedBody | None = None
        """The body of its frame where other writes have joined it, and they."""
        self.joined: list[Joined] = []

    def apply(self, catalog: Catalog, now_ms: int) -> AppendResult:
        slot, topic = self.slot, self.slot.topic
        rendered = self.rendered if self.shared is None else self.shared.rendered
        count = len(rendered.strides)
        records, size = topic.count, topic.bytes
        key = self.key
        topic.apply_append(
            self.first_seq,
            rendered,
            self.ts,
            (slot.shard, self.lsn) if self.end_lsn else None,
            None if key is None else (key, self.digest),
        )
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size
        catalog.census.written += count
        slot.staged_records -= count
        if self.staged_bytes:
            slot.staged_bytes -= self.staged_bytes
            catalog.bytes_staged -= self.staged_bytes
        if key is not None and slot.keys is not None:
            slot.keys.pop(key, None)
        if slot.host is not None:
            slot.host.appended(count)
        if slot.outlets is not None:
            slot.outlets.note()
        return self._answer(self.first_seq, len(self.rendered.strides), self.created)

    def others(self) -> Iterator[tuple[Ticket[Any], Any]]:
        for ticket, first_seq, count in self.joined:
            yield ticket, self._answer(first_seq, count, False)

    def _answer(self, first_seq: int, count: int, created: bool) -> AppendResult:
        """What one of the writes that it holds is told."""
        topic, last_seq = self.slot.topic, first_seq + count - 1
        return AppendResult(topic.name, first_seq, last_seq, last_seq, count, created, False, topic.epoch)


class StagedCreate(Staged):
    """A topic that readers will see."""

    __slots__ = ()

    def apply(self, catalog: Catalog, now_ms: int) -> TopicPut:
        topic = self.slot.topic
        catalog.show(self.slot)
        return TopicPut(topic=topic.name, created=True, config=topic.config, epoch=topic.epoch)


class StagedConfig(Staged):
    """A configuration that will hold."""

    __slots__ = ("config", "ts")

    def __init__(self, slot: Slot, ticket: Ticket[TopicPut], config: TopicConfig, ts: int) -> None:
        Staged.__init__(self, slot, ticket)
        self.config = config
        self.ts = ts

    def apply(self, catalog: Catalog, now_ms: int) -> TopicPut:
        topic = self.slot.topic
        records, size = topic.count, topic.bytes
        catalog.change(self.slot, lambda: topic.apply_config(self.config, self.ts))
        catalog.tend(self.slot)
        catalog.freed(self.slot)
        if self.slot.host is not None:
            self.slot.host.settle()
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size
        return TopicPut(topic=topic.name, created=False, config=topic.config, epoch=topic.epoch)


class StagedUnchanged(Staged):
    """An answer that has to wait for the changes before it: a PUT that changes nothing."""

    __slots__ = ()

    def apply(self, catalog: Catalog, now_ms: int) -> TopicPut:
        topic = self.slot.topic
        return TopicPut(topic=topic.name, created=False, config=topic.config, epoch=topic.epoch)


class StagedDrop(Staged):
    """A topic that will be gone, and its routers with it."""

    __slots__ = ("_routers",)

    def __init__(self, slot: Slot, ticket: Ticket[TopicDropped] | None, routers: list[Router]) -> None:
        Staged.__init__(self, slot, ticket)
        self._routers = routers

    def apply(self, catalog: Catalog, now_ms: int) -> TopicDropped:
        topic = self.slot.topic
        catalog.hide(self.slot)
        if self.slot.host is not None:
            self.slot.host.poke()
        catalog.records_live -= topic.count
        catalog.bytes_live -= topic.bytes
        topic.release()
        for router in self._routers:
            catalog.routers.left(router)
        removed = [router.name for router in self._routers]
        return TopicDropped(topic=topic.name, deleted=True, routers_removed=removed)


class StagedDelete(Staged):
    """Records that nobody will see again."""

    __slots__ = ("ranges", "ts")

    def __init__(self, slot: Slot, ticket: Ticket[DeleteResult], ranges: list[tuple[int, int]], ts: int) -> None:
        Staged.__init__(self, slot, ticket)
        self.ranges = ranges
        self.ts = ts

    def apply(self, catalog: Catalog, now_ms: int) -> DeleteResult:
        topic = self.slot.topic
        records, size = topic.count, topic.bytes
        host = self.slot.host
        deleted = topic.apply_delete(self.ranges, self.ts) if host is None else host.delete(self.ranges, self.ts)
        catalog.freed(self.slot)
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size
        return DeleteResult(
            topic=topic.name,
            deleted=deleted,
            earliest_seq=topic.earliest_seq,
            head_seq=topic.head,
            count=topic.count,
            bytes=topic.bytes,
        )


class StagedGap(Staged):
    """A loss that became known: seqs that will never be readable."""

    __slots__ = ("first", "last", "reason")

    def __init__(self, slot: Slot, first: int, last: int, reason: Reason) -> None:
        Staged.__init__(self, slot, None)
        self.first = first
        self.last = last
        self.reason = reason

    def apply(self, catalog: Catalog, now_ms: int) -> None:
        topic = self.slot.topic
        records, size = topic.count, topic.bytes
        if self.slot.host is not None:
            self.slot.host.age(now_ms)
        catalog.change(self.slot, lambda: topic.apply_gap(self.first, self.last, self.reason, now_ms))
        if self.slot.host is not None:
            self.slot.host.lost(self.first, self.last)
        if self.slot.outlets is not None:
            self.slot.outlets.note()
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size


class StagedHandover(Staged):
    """Where a topic is from now on."""

    __slots__ = ("move",)

    def __init__(self, slot: Slot, ticket: Ticket[MoveBody] | None, move: MoveBody) -> None:
        Staged.__init__(self, slot, ticket)
        self.move = move

    def apply(self, catalog: Catalog, now_ms: int) -> MoveBody:
        note_move(self.slot, self.move)
        return self.move


def note_move(slot: Slot, move: MoveBody) -> None:
    """Take in what the log says of where a topic is."""
    slot.moved = None if move.state is MoveState.STAYS else move
    slot.moves = move.generation


class StagedAttach(Staged):
    """A topic with a history that readers will see."""

    __slots__ = ("_token",)

    def __init__(self, slot: Slot, ticket: Ticket[TopicPut], token: str) -> None:
        Staged.__init__(self, slot, ticket)
        self._token = token

    def apply(self, catalog: Catalog, now_ms: int) -> TopicPut:
        topic = self.slot.topic
        catalog.attached.add(self._token)
        catalog.show(self.slot)
        catalog.records_live += topic.count
        catalog.bytes_live += topic.bytes
        return TopicPut(topic=topic.name, created=True, config=topic.config, epoch=topic.epoch)
