"""Small segments of the cold tier are joined: which ones, when the new one counts, and when all that is over.

    checkpoint done ─► plan ─► MergeJob: read, put, read back ─► `take` at the next checkpoint: it stands in their place
         ─► neither kept snapshot names the old ones: they go ─► their work goes

It is done for the requests: a page, a scan and a listing cost one for each object. The new segment takes the place of
the old ones as one that a checkpoint has rewritten does, and is cold from the beginning; a snapshot alone says that it
counts. What a process did not live to end, another one finds by the works in the tier, and undoes.

A work stays until a kept snapshot has its number, so that nobody ever takes its name again: a put that was under way
when its process ended may still come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from engine.checkpoint.jobs import Copy
from engine.checkpoint.merge import MergeJob
from engine.checkpoint.plan import Group
from engine.checkpoint.reclaim import REWRITE_BYTES, to_merge
from engine.core.catalog import Catalog
from engine.core.slot import Slot
from engine.formats.work import Work
from engine.limits import EngineSettings
from engine.segment.damaged import DamagedSegment
from engine.segment.segment import Segment
from engine.segment.tiers import ColdMissingError
from engine.store.recovery import OpenedStore
from engine.topic.damaged import DamagedFrames

SPOILED_MAX: Final = 4096
"""Segments that are known not to be had whole; beyond that the first ones are tried again."""


class _Ended(NamedTuple):
    """A work with which nothing more is done."""

    number: int
    """Its own…"""
    absent_from: int
    """…and that of the first snapshot that names none of the old ones."""
    path: str
    paths: list[str]
    """The data of all that are concerned."""


class Merges:
    """What is joined, of one store; owned by the loop."""

    def __init__(
        self,
        catalog: Catalog,
        settings: EngineSettings,
        opened: OpenedStore,
        damage: list[DamagedSegment | DamagedFrames],
    ) -> None:
        """`damage` gets what the jobs meet."""
        self.made = 0
        """Segments that this process has made of others…"""
        self.joined = 0
        """…of how many…"""
        self.bytes = 0
        """…and how many bytes of records were read for that."""
        self.undone = 0
        """Works that others did not end."""
        self._catalog = catalog
        self._settings = settings
        self._opened = opened
        self._damage = damage
        self._planned: list[tuple[Slot, Group]] = []
        self._planned_bytes = 0
        self._number = 0
        """The least number that the next one may have."""
        self._running: MergeJob | None = None
        self._waiting: list[MergeJob] = []
        self._ended: list[_Ended] = []
        self._spoiled: dict[Segment, None] = {}

    @property
    def waits(self) -> bool:
        """Whether something was joined that no snapshot says yet."""
        return bool(self._waiting)

    @property
    def left(self) -> int:
        """How many groups are still to be joined, as far as the last plan goes."""
        return len(self._planned) + (self._running is not None)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def plan(self, number: int) -> None:
        """Checkpoint `number` is done: look for what can be joined until the next one."""
        self._number = max(self._number, number + 1)
        self._planned, self._planned_bytes = [], 0

    def plan_for(self, slot: Slot) -> None:
        """The same for one topic."""
        if self._planned_bytes >= REWRITE_BYTES or not slot.visible:
            return
        for group in to_merge(slot.topic.tail.blocks, self._settings):
            if not any(block.segment in self._spoiled for block in group.blocks):
                self._planned.append((slot, group))
                self._planned_bytes += group.size
            if self._planned_bytes >= REWRITE_BYTES:
                return

    def job(self, now_ms: int) -> MergeJob | None:
        """The next one."""
        while self._planned:
            slot, group = self._planned.pop()
            if self._is_as_planned(slot, group):
                number = max(self._number, *(block.segment.number + 1 for block in group.blocks if block.segment))
                copy = Copy.of(slot.topic, group)
                self._running = MergeJob(copy, self._opened.store_id, self._opened.starts, number, now_ms)
                return self._running
        return None

    def _is_as_planned(self, slot: Slot, group: Group) -> bool:
        if self._catalog.by_id.get(slot.topic.id) is not slot or not slot.visible:
            return False
        blocks = slot.topic.tail.blocks
        at = slot.topic.tail.locate(group.first_seq)
        there = blocks[at : at + len(group.blocks)]
        same = [*map(id, there)] == [*map(id, group.blocks)]
        return same and to_merge(there, self._settings) == [group]

    def done(self, job: MergeJob) -> None:
        """It has run."""
        self._running = None
        self._number = max(self._number, job.number + 1)
        self._damage += job.copy.damage
        if job.copy.segment is not None:
            self.made += 1
            self.joined += len(job.old)
            self.bytes += job.read
            self._waiting.append(job)
            return
        if not job.copy.may_pass:
            self._spoil(job)
        self._let_go(job)

    def failed(self, job: MergeJob, error: OSError) -> list[str]:
        """It has not; what is to be removed of it."""
        self._running = None
        self._number = max(self._number, job.number + 1)
        if isinstance(error, ColdMissingError):
            self._spoil(job)
        self._let_go(job)
        self._ended.append(_Ended(job.number, 0, job.path, []))
        return [] if job.begun is None else [job.begun.data_path, *job.begun.paths()]

    def _spoil(self, job: MergeJob) -> None:
        """Do not try these again: they would only fail again."""
        self._spoiled.update((block.segment, None) for block in job.copy.blocks if block.segment is not None)
        while len(self._spoiled) > SPOILED_MAX:
            self._spoiled.pop(next(iter(self._spoiled)))

    @staticmethod
    def _let_go(job: MergeJob) -> None:
        for block in job.copy.blocks:
            block.sealing = False

    # -- what the checkpoints need -------------------------------------------------------------------------------------

    def take(self) -> list[MergeJob]:
        """A checkpoint begins: these are to stand in the place of the old ones, and its snapshot is to name them."""
        taken, self._waiting = self._waiting, []
        return taken

    def ended(self, job: MergeJob, absent_from: int, gone: bool) -> list[str]:
        """It stands there, and no snapshot from a number on names the old ones; or not (`gone`). What is to go."""
        segment = job.copy.segment
        assert segment is not None, "what was not made does not end so"
        self._ended.append(_Ended(job.number, absent_from, job.path, job.old))
        return [segment.data_path, *segment.paths()] if gone else []

    def release(self, oldest: int, held: Iterable[Collection[str]]) -> list[str]:
        """The older kept snapshot has this number: the works that are over."""
        over = [
            one
            for one in self._ended
            if max(one.number, one.absent_from) <= oldest and not any(path in pin for pin in held for path in one.paths)
        ]
        self._ended = [one for one in self._ended if one not in over]
        return [one.path for one in over]

    # -- what others have left -----------------------------------------------------------------------------------------

    def known(self) -> set[str]:
        """What is in the tier for the sake of what is under way here, and of what is over and not yet removed."""
        known = {one.path for one in self._ended}
        for job in (*self._waiting, *([self._running] if self._running is not None else [])):
            segment = job.copy.segment or job.begun
            known.add(job.path)
            if segment is not None:
                known.update((segment.data_path, *segment.paths()))
        return known

    def found(self, path: str, number: int, work: Work | None) -> list[str]:
        """A work that is nobody's (None: it cannot be read) goes when its name is safe; the data that it concerns."""
        self.undone += 1
        self._number = max(self._number, number + 1)
        self._ended.append(_Ended(number, 0, path, []))
        return [] if work is None else [work.new, *work.old]
