"""Cursors: places of readers, kept with the topic (http-api.md §11).

A cursor is a name and a seq. Setting one is a CursorPut frame in the log of the topic, answered as the topic's class
asks; what is set last counts. They hold no records back, and are gone with their topic. With `if_seq` a cursor is set
only where the one before, as of everything that was taken until now, stands there (0: where there is none).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.catalog import Catalog
from engine.core.refusals import capped
from engine.core.slot import Slot
from engine.core.staged import Staged
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, invalid, topic_not_found
from engine.formats.control import CursorPutBody, encode_control_body
from engine.formats.frame import FrameType
from engine.limits import CURSORS_PER_TOPIC_MAX
from engine.names import check_topic_name
from engine.topic.place import Place
from engine.types import U64_MAX, Durability

if TYPE_CHECKING:
    from engine.core.core import Core


class CursorState(NamedTuple):
    """What is shown of a cursor; `lag` counts seqs up to the topic's head."""

    name: str
    seq: int
    epoch: int
    lag: int
    updated_ts: int


class CursorPut(NamedTuple):
    """The answer to setting one."""

    cursor: CursorState
    created: bool


class StagedCursor(Staged):
    """A cursor that will be set, or gone (`place` is None)."""

    __slots__ = ("_known", "name", "place")

    def __init__(self, slot: Slot, ticket: Ticket[Any], name: str, place: Place | None, known: bool) -> None:
        super().__init__(slot, ticket)
        self.name = name
        self.place = place
        self._known = known

    def apply(self, catalog: Catalog, now_ms: int) -> CursorPut | bool:
        put_cursor(self.slot, self.name, self.place)
        if self.place is None:
            return self._known
        return CursorPut(_shown(self.slot, self.name, self.place), not self._known)


def put_cursor(slot: Slot, name: str, place: Place | None) -> None:
    """Set a cursor of a topic, or take it away; the same live and at replay."""
    cursors = slot.cursors
    if place is not None:
        if cursors is None:
            cursors = slot.cursors = {}
        cursors[name] = place
    elif cursors is not None:
        cursors.pop(name, None)
        slot.cursors = cursors or None


def _shown(slot: Slot, name: str, place: Place) -> CursorState:
    lag = max(slot.topic.head - place.seq, 0)
    return CursorState(name, place.seq, slot.topic.epoch, lag, place.ts)


class Cursors:
    """The cursors of one running store."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def put(
        self, topic: str, name: str, seq: int, *, epoch: int | None = None, if_seq: int | None = None
    ) -> Ticket[CursorPut]:
        """Set a cursor. 409 when the one before does not stand at `if_seq`, or the topic is not of that epoch."""
        check_topic_name(topic)
        check_topic_name(name, "cursor")
        for field, value in (("seq", seq), ("if_seq", if_seq)):
            if value is not None and not 0 <= value <= U64_MAX:
                raise invalid(f"{field} must be between 0 and {U64_MAX}", field)
        return self._taken(topic, partial(self._put, topic, name, seq, epoch, if_seq))

    def drop(self, topic: str, name: str) -> Ticket[bool]:
        """Take a cursor away; the answer is whether there was one."""
        check_topic_name(topic)
        check_topic_name(name, "cursor")
        return self._taken(topic, partial(self._drop, topic, name))

    def get(self, topic: str, name: str) -> CursorState:
        """One cursor, or 404."""
        slot = self._core.catalog.reader(topic)
        place = (slot.cursors or {}).get(name)
        if place is None:
            check_topic_name(name, "cursor")
            raise Refused(Code.NOT_FOUND, f"topic {topic!r} has no cursor {name!r}", {"topic": topic, "cursor": name})
        return _shown(slot, name, place)

    def all(self, topic: str) -> list[CursorState]:
        """A topic's cursors by name."""
        slot = self._core.catalog.reader(topic)
        return [_shown(slot, name, place) for name, place in sorted((slot.cursors or {}).items())]

    # -- how it is done --------------------------------------------------------------------------------------------

    def _taken(self, topic: str, attempt: Any) -> Ticket[Any]:
        core = self._core
        ticket: Ticket[Any] = Ticket()
        if core.parking.blocks(topic) or not attempt(ticket):
            core._park(topic, ticket, partial(attempt, ticket))
        return ticket

    def _slot(self, topic: str) -> Slot:
        slot = self._core.catalog.reader(topic)
        if slot.dropped:
            raise topic_not_found(topic)
        self._core._check_writable(slot.shard, slot)
        return slot

    @staticmethod
    def _tip(slot: Slot, name: str) -> Place | None:
        """The cursor as of everything that is staged."""
        for change in reversed(slot.pending or ()):
            if isinstance(change, StagedCursor) and change.name == name:
                return change.place
        return (slot.cursors or {}).get(name)

    def _put(
        self, topic: str, name: str, seq: int, epoch: int | None, if_seq: int | None, ticket: Ticket[CursorPut]
    ) -> bool:
        slot = self._slot(topic)
        before = self._tip(slot, name)
        stands = 0 if before is None else before.seq
        detail = {"topic": topic, "cursor": name, "seq": stands, "epoch": slot.topic.epoch}
        if epoch is not None and epoch != slot.topic.epoch:
            raise Refused(
                Code.CURSOR_CONFLICT, f"topic {topic!r} was made anew since: its epoch is {slot.topic.epoch}", detail
            )
        if if_seq is not None and if_seq != stands:
            raise Refused(Code.CURSOR_CONFLICT, f"cursor {name!r} stands at {stands}, not at {if_seq}", detail)
        if before is None and self._count(slot) >= CURSORS_PER_TOPIC_MAX:
            raise capped("cursors_per_topic", CURSORS_PER_TOPIC_MAX)
        place = Place(seq, self._core.now())
        return self._stage(slot, ticket, name, place, before is not None)

    def _drop(self, topic: str, name: str, ticket: Ticket[bool]) -> bool:
        slot = self._slot(topic)
        if self._tip(slot, name) is None:
            ticket.complete(False)
            return True
        return self._stage(slot, ticket, name, None, True)

    @staticmethod
    def _count(slot: Slot) -> int:
        names = {change.name for change in slot.pending or () if isinstance(change, StagedCursor)}
        return len(names.union(slot.cursors or ()))

    def _stage(self, slot: Slot, ticket: Ticket[Any], name: str, place: Place | None, known: bool) -> bool:
        core = self._core
        body = encode_control_body(CursorPutBody(name=name, seq=None if place is None else place.seq))
        if not core._room(slot.shard, len(body), control=place is None):
            return False
        now = core.now() if place is None else place.ts
        end = core.wal.stage(slot.shard, FrameType.CURSOR_PUT, 0, 0, slot.topic.id, 0, now, body)
        change = StagedCursor(slot, ticket, name, place, known)
        core.commit.add(change, end, sync=slot.config.durability is Durability.FSYNC)
        return True
