"""Damage that was found in segments while they were read, and how it becomes known to everybody.

    a job meets records that do not check ─► found ─► Gap frames, like any change ─► synced and applied: tombstones,
                                                      `damage` in the topic's state ─► `Segment.bad`: readers pass over

Exactly the records that are bad become a `corruption` gap; what was deleted or lost before does not. A reader waits for
it (`Ticket`), asks again, and meets the tombstone. Records that are being told already are not told twice: who finds
them again waits for the first telling. After a restart the gap is known and the segment is still bad: then only
`Segment.bad` has to be filled again. With `on_corruption = refuse` nothing is told, and readers of those records get a
409 until somebody has looked after the files. What a checkpoint meets in the log is told the same way, and it is tried
again: otherwise one bad frame would keep all later ones from being made. So is what a reader meets in the log when it
reads a block back (engine/topic/damaged.py).

Bytes that the disk refuses (EIO) may be had a moment later. Until that has lasted (engine/topic/refusals.py) nothing is
told, their readers get a 503, and the checkpoint fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol

from engine.core.catalog import Catalog
from engine.core.commit import Commit
from engine.core.slot import Slot
from engine.core.staged import Staged, StagedGap
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, TopicsError, Unavailable
from engine.formats.control import GapBody, encode_control_body
from engine.formats.frame import FrameType
from engine.limits import OnCorruption
from engine.segment.damaged import DamagedSegment
from engine.segment.segment import Segment
from engine.topic.cache import Cache
from engine.topic.damaged import DamagedFrames
from engine.topic.history import ReadJob
from engine.topic.rangeset import RangeSet
from engine.topic.refusals import UNREADABLE_MS, Place
from engine.topic.state import Topic
from engine.types import Reason

SAID_MAX: Final = 64
"""Lines about damage that wait to be logged; what more there is shows in the counters."""


class Room(Protocol):
    """Whether the log of a shard has room for a body: False when it is on its way; raises when it cannot be had."""

    def __call__(self, shard: int, body_len: int, *, control: bool = False) -> bool: ...


Park = Callable[[str, Ticket[bool], Callable[[], bool]], None]


Found = DamagedSegment | DamagedFrames


class StagedBad(Staged):
    """Damage that readers will pass over, once the gaps before it are applied."""

    __slots__ = ("_damage", "_found")

    def __init__(
        self,
        slot: Slot,
        ticket: Ticket[bool],
        found: Found,
        damage: Damage,
    ) -> None:
        super().__init__(slot, ticket)
        self._found = found
        self._damage = damage

    def apply(self, catalog: Catalog, now_ms: int) -> bool:
        _mark(catalog.cache, self._found)
        self._damage.told(self.slot)
        return True


class Damage:
    """The damage of one running store.

    segments   how often damage was found
    records    how many live records were lost by it
    said       lines about it for the log; whoever logs them takes them
    """

    def __init__(
        self,
        catalog: Catalog,
        commit: Commit,
        room: Room,
        park: Park,
        now: Callable[[], int],
    ) -> None:
        self.segments = 0
        self.records = 0
        self.said: list[str] = []
        self._catalog = catalog
        self._commit = commit
        self._room = room
        self._park = park
        self._now = now
        self._refuse = commit.settings.on_corruption is OnCorruption.REFUSE
        self._telling: dict[Slot, tuple[RangeSet, int]] = {}
        """Seqs whose gaps are staged and not applied, and how many times that is."""

    def found(self, damage: Iterable[Found], ticket: Ticket[bool]) -> None:
        """See to it that everybody learns of damage; the ticket is answered when it makes sense to ask again."""
        waits = False
        certain: list[tuple[Slot, Found]] = []
        for found in damage:
            slot = self._catalog.by_id.get(topic_of(found))
            if slot is None or slot.dropped or not is_still_there(slot.topic, found):
                continue
            if found.unread and self._may_pass(slot, found):
                ticket.fail(
                    Unavailable(
                        Code.NOT_READY,
                        f"the disk refuses records of topic {slot.name!r}; look after it and its cable, and try again; "
                        f"they count as lost when that lasts for {UNREADABLE_MS // 1000} s; {found}",
                    )
                )
            else:
                certain.append((slot, found))
        for slot, found in certain:
            error = self._why_not(slot, found)
            if error is not None:
                ticket.fail(error)
                return
            # Changes of a topic are applied in order, so the last ticket is enough.
            waits, last = True, Ticket[bool]()
            last.on_done = partial(_pass_on, ticket)
            attempt = partial(self._stage, slot, found, last)
            if not self._at_once(attempt, last):
                self._park(slot.name, last, attempt)
        if not waits:
            ticket.complete(True)

    def take(self, damage: list[Found]) -> None:
        """The same for damage that no reader waits for; the list is emptied."""
        found, damage[:] = damage[:], []
        self.found(found, Ticket())

    @staticmethod
    def _at_once(attempt: Callable[[], bool], ticket: Ticket[bool]) -> bool:
        try:
            return attempt()
        except TopicsError as error:
            ticket.fail(error)
            return True

    def _may_pass(self, slot: Slot, found: Found) -> bool:
        """Whether what the disk refuses has not been refused for long enough to count as lost; it is said once."""
        waits, is_new = self._catalog.cache.refusals.refused(place_of(found), seqs_of(found), self._now())
        if is_new and len(self.said) < SAID_MAX:
            self.said.append(f"topic {slot.name!r}: {found}; lost when that lasts for {UNREADABLE_MS // 1000} s")
        return waits

    def _why_not(self, slot: Slot, found: Found) -> TopicsError | None:
        if self._refuse:
            self._say(slot, found, 0)
            return Refused(
                Code.TOPIC_DAMAGED,
                f"records of topic {slot.name!r} are damaged, and on_corruption is refuse; {found}",
                {"topic": slot.name, "ranges": seqs_of(found)[:16]},
            )
        failed = self._commit.wal.shards[slot.shard].failed
        if failed is not None:
            return Unavailable(
                Code.READ_ONLY, f"records are damaged, which cannot be noted: the log failed ({failed}); restart"
            )
        return None

    def _stage(self, slot: Slot, found: Found, ticket: Ticket[bool]) -> bool:
        """Stage the gaps of what is live and not staged yet; False when the log has no room now."""
        topic, commit = slot.topic, self._commit
        if not is_still_there(topic, found):
            ticket.complete(True)
            return True
        telling, times = self._telling.setdefault(slot, (RangeSet(), 0))
        lost = 0
        for start, stop in _live(topic, found):
            for first_new, last_new in _minus(start, stop, telling):
                body = encode_control_body(GapBody(first=first_new, last=last_new, reason=Reason.CORRUPTION))
                if not self._room(slot.shard, len(body), control=True):
                    return False
                end = commit.wal.stage(slot.shard, FrameType.GAP, 0, 0, topic.id, 0, self._now(), body)
                if slot.quiet:
                    slot.quiet = False
                    slot.wake_lsn = end
                commit.add(StagedGap(slot, first_new, last_new, Reason.CORRUPTION), end, sync=True)
                telling.add(first_new, last_new)
                lost += last_new - first_new + 1
        self._telling[slot] = (telling, times + 1)
        commit.add_free(StagedBad(slot, ticket, found, self))
        if lost:
            self._say(slot, found, lost)
        return True

    def told(self, slot: Slot) -> None:
        """One telling is complete."""
        telling, times = self._telling.pop(slot, (RangeSet(), 0))
        if times > 1:
            self._telling[slot] = (telling, times - 1)

    def _say(self, slot: Slot, found: Found, lost: int) -> None:
        self.segments += 1
        self.records += lost
        if len(self.said) < SAID_MAX:
            first = seqs_of(found)[0][0]
            self.said.append(f"topic {slot.name!r}: {found} (seqs from {first} on); {lost} lost")


def topic_of(found: Found) -> int:
    """The id of the topic whose records are damaged."""
    return found.topic_id if isinstance(found, DamagedFrames) else found.segment.topic_id


def place_of(found: Found) -> Place:
    """Where they lie."""
    return found.topic_id if isinstance(found, DamagedFrames) else found.segment


def seqs_of(found: Found) -> list[tuple[int, int]]:
    """Which records."""
    if isinstance(found, DamagedFrames):
        return found.ranges
    first = found.segment.first_seq
    return [(first + low, first + high) for low, high in found.rows]


def is_still_there(topic: Topic, found: Found) -> bool:
    """Whether the records are (still) read from where they are damaged."""
    return isinstance(found, DamagedFrames) or is_current(topic, found.segment)


def lose(topic: Topic, found: Found, now_ms: int | None = None) -> None:
    """Show what is damaged as lost, without writing anything: for who looks at a store that is not started."""
    for start, stop in _live(topic, found):
        topic.apply_gap(start, stop, Reason.CORRUPTION, now_ms)
    _mark(topic.tail.cache, found)


def _live(topic: Topic, found: Found) -> Iterator[tuple[int, int]]:
    """What is live of the damaged records, as inclusive runs; the topic may change while they are gone through."""
    for low, high in seqs_of(found):
        yield from list(topic.live_runs(max(low, topic.earliest_seq), min(high, topic.head)))


def _mark(cache: Cache, found: Found) -> None:
    """What was told is nobody's any more: it is not met as damage again."""
    if isinstance(found, DamagedSegment):
        mark_bad(found.segment, found.rows)
    else:
        cache.bad.update(found.frames)


def is_current(topic: Topic, segment: Segment) -> bool:
    """Whether the records of a topic are (still) read from this segment."""
    block = topic.tail.block_of(segment.first_seq)
    return block is not None and block.segment is segment


def mark_bad(segment: Segment, rows: list[tuple[int, int]]) -> None:
    """Let readers pass over rows."""
    segment.bad = list(RangeSet.of([*segment.bad, *rows]))


def why_unread(job: ReadJob, error: OSError | None) -> TopicsError | None:
    """Why a job could not read, or None when it could."""
    if job.refusal is not None:
        return Refused(Code.TOPIC_DAMAGED, f"a segment cannot be read: {job.refusal}")
    if error is None:
        return None
    reason = error.strerror or str(error)
    if job.cold:
        return Unavailable(Code.COLD_UNAVAILABLE, f"the cold tier does not answer ({reason}); try again")
    return Unavailable(Code.NOT_READY, f"history cannot be read now ({reason}); try again")


def _pass_on(ticket: Ticket[bool], done: Ticket[bool]) -> None:
    if done.error is not None:
        ticket.fail(done.error)
    else:
        ticket.complete(True)


def _minus(first: int, last: int, known: RangeSet) -> list[tuple[int, int]]:
    """The parts of a range that are not in a set."""
    found = []
    for low, high in known.between(first, last):
        if first < low:
            found.append((first, low - 1))
        first = high + 1
    if first <= last:
        found.append((first, last))
    return found
