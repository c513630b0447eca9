"""Going on behind log that cannot be read (`TOPICS_ON_CORRUPTION=salvage`): losses are said, and no seq comes twice.

A hole in the log may have held anything. A topic that it may have concerned is *doubtful* until the log shows where its
seqs have got to: the records that are missing then are a `corruption` gap. A topic that is doubtful to the end goes on
behind a gap of a window's size, as after a power failure. Of a lost frame whose header is good, topic and type are
known:

    Drop            is done: its header says all
    Mark            concerned no topic
    any other       its topic is doubtful; a lost Delete is said, for its records may be readable again
    Create          and whatever was in a hole: a topic whose Create is lost is called `salvaged-<id>`

Deletions that segments and snapshots know of are not in question: they were taken down before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from engine.core.catalog import Catalog
from engine.core.slot import Slot
from engine.formats.frame import FrameType
from engine.store.walk import Frame, Hole
from engine.types import Reason, TopicConfig

_NAMES_SAID: Final = 8


def few_of(names: Collection[str]) -> str:
    """The first of these names, for a line of the log."""
    return ", ".join(sorted(names)[:_NAMES_SAID]) + (" and others" if len(names) > _NAMES_SAID else "")


class Salvage:
    """What one replay knows of holes; without any it costs a look at an empty dict."""

    def __init__(self, catalog: Catalog, report: list[str]) -> None:
        self._catalog = catalog
        self._report = report
        self.doubtful: dict[int, set[int]] = {}
        """Ids of topics whose seqs may have gone further than the log shows, and the shards where the log is missing: a
        topic of copies stands in two, and what one shows says nothing of the other."""
        self.holes: list[Hole] = []
        """Every place that was passed over."""
        self.concerned: dict[str, None] = {}
        """Names of the topics that these may have spoken of."""
        self._hit: set[int] = set()
        """Ids of topics that were doubtful: what stands in two logs, as copies do, may have lost more than once."""
        self._queues: set[int] = set()
        """Topics that look like logs, and were queues."""
        self.nameless = False
        """No snapshot checks, so there may be topics that nothing speaks of before their frames do."""

    @property
    def lacks(self) -> bool:
        """Whether something may be missing that came before."""
        return self.nameless or bool(self.holes)

    def hole(
        self,
        hole: Hole,
        told: Callable[[int, int, int], bool],
        concerns: Callable[[Slot], bool],
        drop: Callable[[Slot], None],
    ) -> None:
        """Take one in. `told(topic_id, shard, lsn)`: whether a topic's image has what the log said up to there."""
        self.holes.append(hole)
        where = f"{hole.path}: offset {hole.offset}"
        if hole.type == FrameType.MARK:
            self._report.append(f"{where}: a Mark that does not check was passed over; it concerned no topic")
            return
        if hole.topic_id:
            slots = [slot] if (slot := self._catalog.by_id.get(hole.topic_id)) is not None else []
        else:
            slots = [slot for slot in self._catalog.by_id.values() if concerns(slot)]
        if hole.type in (None, FrameType.FORWARD, FrameType.DEAD_LETTER):
            slots = list({slot.topic.id: slot for slot in (*slots, *self._followers(slots))}.values())
        if not hole.open:
            slots = [slot for slot in slots if not told(slot.topic.id, hole.shard, max(hole.end - 1, hole.lsn))]
        self.concerned.update(dict.fromkeys(slot.name for slot in slots))
        names = few_of([slot.name for slot in slots]) or "no topic that is known"
        kind = "the log" if hole.type is None else f"a {FrameType(hole.type).name} frame"
        self._report.append(
            f"{where}: {kind} of shard {hole.shard} cannot be read up to "
            f"{'its end' if hole.open else f'lsn {hole.end}'}, and was passed over; "
            f"concerned: {names}"
            + (
                "; what was deleted, acked or evicted there may be readable again"
                if hole.type is None and slots
                else ""
            )
        )
        if hole.type == FrameType.DROP:
            for slot in slots:
                drop(slot)
            return
        if hole.type == FrameType.MOVE and slots:
            self._report.append(
                f"{where}: whether {names} has moved to another store is not known; look for TAKEN in the place before "
                "anything is written"
            )
        if hole.type == FrameType.DELETE and slots:
            self._report.append(f"{where}: records of {names} that this Delete took may be readable again")
        for slot in slots:
            slot.quiet = False
            self.doubtful.setdefault(slot.topic.id, set()).add(hole.shard)

    def _followers(self, slots: list[Slot]) -> Iterator[Slot]:
        """Topics that get copies of others, which stand in the others' log: of routers, and dead letters."""
        catalog = self._catalog
        for slot in slots:
            for router in catalog.routers.of_source(slot.topic.id):
                if (dest := catalog.by_id.get(router.dest)) is not None:
                    yield dest
            if (
                slot.config.dead_letter is not None
                and (letters := catalog.tip.get(slot.config.dead_letter)) is not None
            ):
                yield letters

    def orphan(self, frame: Frame) -> Slot | None:
        """The topic of a frame that nothing before speaks of, made where there is a record; None: pass it over."""
        return self.nobodys(frame.topic_id) if frame.type == FrameType.APPEND else None

    def nobodys(self, topic_id: int) -> Slot | None:
        """The topic of records that are there, and of which nothing else is, made now; None: pass them over."""
        name = _name_of(topic_id)
        if not self.lacks or name in self._catalog.tip:
            return None
        slot = self._catalog.add_tip(name, topic_id, topic_id, TopicConfig())
        self._catalog.show(slot)
        self._report.append(f"the name of topic {topic_id:x} is lost: it is called {name!r}")
        self.doubtful[topic_id] = set()
        return slot

    def was_queue(self, slot: Slot) -> bool:
        """Whether a topic that looks like a log was a queue, because nothing says any more how it was created."""
        if not self.lacks or slot.name != _name_of(slot.topic.id):
            return False
        if slot.topic.id not in self._queues:
            self._queues.add(slot.topic.id)
            self._report.append(f"{slot.name!r} was a queue: its jobs are the records of a log now")
        return True

    def reason_of(self, topic_id: int, shard: int) -> Reason:
        """Why seqs are missing before a frame that shows where a topic has got to, which is no longer doubtful then."""
        shards = self.doubtful.get(topic_id)
        if shards is not None:
            self._hit.add(topic_id)
            shards.discard(shard)
            if not shards:
                del self.doubtful[topic_id]
        return Reason.CORRUPTION if topic_id in self._hit else Reason.CRASH


def _name_of(topic_id: int) -> str:
    """What a topic is called whose name is lost."""
    return f"salvaged-{topic_id:x}"
