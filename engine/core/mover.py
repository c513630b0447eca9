"""Moving segments to the cold tier: which ones, by whom, and when the local copy goes.

    checkpoint done ─► plan ─► MoveJob: copy, sync, read back ─► `take` at the next checkpoint: it is cold
         ─► its snapshot says so ─► the other kept one does, too ─► the local copy goes

No snapshot says `cold` before the copy has been read back, and the local copy stays as long as a kept snapshot does
not: after any cut at least one copy can be read, and the local one wins (docs/adr/0016). Jobs run in a thread of their
own, because the tier may hang: nothing else ever waits for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.core.catalog import Catalog
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.segment.segment import Segment
from engine.segment.tiers import TieredFs, copy_to
from engine.topic.block import Block

PLANNED_MAX: Final = 1024
"""Segments that are planned at once; the next plan finds the rest."""
PAUSE_MS_MIN: Final = 1_000
PAUSE_MS_MAX: Final = 300_000
"""Pause after the tier has failed, doubled each time."""


def to_move(blocks: Sequence[Block], settings: EngineSettings) -> Iterator[Segment]:
    """The segments of a topic that are older than those that stay: by number or by bytes, the stricter wins."""
    kept = kept_bytes = 0
    found = []
    for block in reversed(blocks):
        segment = block.segment
        if segment is None or segment.in_tails:
            continue
        kept, kept_bytes = kept + 1, kept_bytes + segment.data_len
        beyond = kept > settings.hot_retain_segments
        beyond = beyond or bool(settings.hot_retain_bytes and kept_bytes > settings.hot_retain_bytes)
        if beyond and not (segment.cold or segment.worn or segment.bad or block.sealing):
            found.append(segment)
    yield from reversed(found)


def _tier_of(fs: Fs) -> TieredFs:
    assert isinstance(fs, TieredFs), "jobs of the mover are run with the tier at hand"
    return fs


class MoveJob:
    """Copy a segment to the tier, and read it back. Raises `OSError`."""

    def __init__(self, segment: Segment, *, may_begin: bool) -> None:
        self.segment = segment
        self.paths = segment.paths()
        self._may_begin = may_begin

    def run(self, fs: Fs) -> None:
        tiered = _tier_of(fs)
        for path in self.paths:
            copy_to(tiered.tier, tiered.fs, path, may_begin=self._may_begin)


class DropJob:
    """Remove files from the tier. Raises `OSError`."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def run(self, fs: Fs) -> None:
        tiered = _tier_of(fs)
        for path in self.paths:
            tiered.tier.delete(path)


MoverJob = MoveJob | DropJob


class Mover:
    """What moves, of one store; owned by the loop."""

    def __init__(self, catalog: Catalog, settings: EngineSettings) -> None:
        self.problem: str | None = None
        """Why the tier does not take what it is given; None when it does."""
        self.failures = 0
        self.moved = 0
        """Segments that this process has moved."""
        self._catalog = catalog
        self._settings = settings
        self._planned: list[Segment] = []
        self._waiting: list[Segment] = []
        self._drops: list[tuple[int, list[str]]] = []
        self._dropping: list[str] = []
        self._running: MoverJob | None = None
        self._retry_ms = 0
        self._pause_ms = PAUSE_MS_MIN
        self._used = False
        """Whether something is in the tier, as far as is known."""

    @property
    def waits(self) -> bool:
        """Whether something was moved that no snapshot says yet."""
        return bool(self._waiting)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """Look for what is to be moved; cheap, once after each checkpoint."""
        if not self._settings.cold_tier:
            return
        busy = {*map(id, self._waiting)}
        if isinstance(self._running, MoveJob):
            busy.add(id(self._running.segment))
        self._planned = []
        for slot in self._catalog.by_id.values():
            blocks = slot.topic.tail.blocks
            self._used = self._used or any(block.segment is not None and block.segment.cold for block in blocks)
            self._planned += [one for one in to_move(blocks, self._settings) if id(one) not in busy]
            if len(self._planned) >= PLANNED_MAX:
                break
        self._planned.reverse()

    def job(self, now_ms: int) -> MoverJob | None:
        """A job for the mover's thread, one at a time."""
        if self._running is not None or now_ms < self._retry_ms:
            return None
        if self._dropping:
            self._running = DropJob(self._dropping)
            return self._running
        while self._planned:
            segment = self._planned.pop()
            if self._is_current(segment) and not segment.cold:
                self._running = MoveJob(segment, may_begin=not self._used)
                return self._running
        return None

    def done(self, job: MoverJob, error: OSError | None, now_ms: int) -> None:
        """The outcome of a job."""
        assert job is self._running, "a job that is not in flight"
        self._running = None
        if error is not None:
            self.problem = str(error)
            self.failures += 1
            self._retry_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
            if isinstance(job, MoveJob):
                self._planned.append(job.segment)
            return
        self.problem = None
        self._pause_ms = PAUSE_MS_MIN
        if isinstance(job, DropJob):
            self._dropping = self._dropping[len(job.paths) :]
        else:
            self._used = True
            self.moved += 1
            self._waiting.append(job.segment)

    def _is_current(self, segment: Segment) -> bool:
        slot = self._catalog.by_id.get(segment.topic_id)
        block = None if slot is None else slot.topic.tail.block_of(segment.first_seq)
        return block is not None and block.segment is segment

    # -- what the checkpoints need -------------------------------------------------------------------------------------

    def take(self) -> list[Segment]:
        """A checkpoint begins: what was moved is cold from here on, and its snapshot is to say so."""
        taken, self._waiting = self._waiting, []
        current = [segment for segment in taken if self._is_current(segment)]
        self._dropping += [path for one in taken if one not in current for path in one.paths()]
        for segment in current:
            segment.cold = True
            self._catalog.cache.forget(segment)
        return current

    def drop(self, absent_from: int, segment: Segment) -> None:
        """No topic has this cold segment any more, and no snapshot from a number on names it."""
        self._drops.append((absent_from, [segment.data_path, *segment.paths()]))

    def release(self, oldest: int) -> None:
        """The older kept snapshot has this number: what it does not name goes."""
        self._dropping += [path for number, paths in self._drops if number <= oldest for path in paths]
        self._drops = [entry for entry in self._drops if entry[0] > oldest]
