"""Moving segments to the cold tier: which ones, by whom, and when the local copy goes.

    checkpoint done ─► plan ─► MoveJob: copy, sync, read back ─► `take` at the next checkpoint: it is cold
         ─► its snapshot says so ─► the other kept one does, too ─► the local copy goes

No snapshot says `cold` before the copy has been read back, and the local copy stays as long as a kept snapshot does
not: after any cut at least one copy can be read, and the local one wins (docs/adr/0016). Jobs run in a thread of their
own, because the tier may hang: nothing else ever waits for one.

What nobody names any more is removed from the tier when neither kept snapshot does, unless an export pins it. A crash
in between leaves a file behind; so the tier is looked through once, as soon as both kept snapshots are this process's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from engine.checkpoint.merge import MergeJob
from engine.core.catalog import Catalog
from engine.core.merging import Merges
from engine.formats.manifest import BadMeta, decode_meta
from engine.formats.work import WORK_BYTES_MAX, WORK_DIR, Work, parse_work_name
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.segment.damaged import DamagedSegment
from engine.segment.segment import TOPICS_DIR, Segment, parse_segment_path
from engine.segment.tiers import TMP, ColdMissingError, ColdTier, TieredFs, copy_to
from engine.store.recovery import OpenedStore
from engine.topic.block import Block
from engine.topic.damaged import DamagedFrames

SWEPT_MAX: Final = 1024
"""Names in the tier that are looked at in one go."""
WORKS_MAX: Final = 1024
"""Works in the tier that are looked at; the next process finds the rest."""
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

    op: Final = "put"

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

    op: Final = "delete"

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def run(self, fs: Fs) -> None:
        tiered = _tier_of(fs)
        for path in self.paths:
            tiered.tier.delete(path)


class SweepJob:
    """List works, and then files in the tier that come after a path, in the order of their paths. Raises `OSError`.

    found       files of segments
    works       path → number and content of works; None for one that does not check
    after       changes: behind which path the next one goes on
    finished    whether there are no more
    """

    op: Final = "list"

    def __init__(self, after: str) -> None:
        self.after = after
        self.found: list[str] = []
        self.works: dict[str, tuple[int, Work | None]] = {}
        self.finished = False

    def run(self, fs: Fs) -> None:
        tier = _tier_of(fs).tier
        if not self.after:
            self.works = works_in(tier)
        begun = self.after.rpartition("/")[0]
        for name in sorted(tier.list(TOPICS_DIR)):
            directory = f"{TOPICS_DIR}/{name}"
            if directory < begun:
                continue
            paths = sorted(f"{directory}/{file}" for file in tier.list(directory))
            if any(parse_segment_path(path.removesuffix(TMP)) is None for path in paths):
                continue  # somebody has put something there that is not ours to judge
            self.found += [path for path in paths if path > self.after]
            if len(self.found) > SWEPT_MAX:
                del self.found[SWEPT_MAX:]
                self.after = self.found[-1]
                return
        self.finished = True


def works_in(tier: ColdTier) -> dict[str, tuple[int, Work | None]]:
    """The works in a tier: number and content by their paths; None for one that does not check. Raises `ColdError`."""
    works: dict[str, tuple[int, Work | None]] = {}
    for name in sorted(tier.list(WORK_DIR))[:WORKS_MAX]:
        parsed, path = parse_work_name(name), f"{WORK_DIR}/{name}"
        if parsed is None:
            continue
        work = None
        try:
            if not name.endswith(TMP):
                work = decode_meta(tier.get_range(path, 0, WORK_BYTES_MAX), Work)
        except BadMeta:
            pass
        except ColdMissingError:
            continue  # its owner has removed it meanwhile
        works[path] = parsed[2], work
    return works


MoverJob = MoveJob | MergeJob | DropJob | SweepJob


class Mover:
    """What moves, of one store; owned by the loop."""

    def __init__(
        self,
        catalog: Catalog,
        settings: EngineSettings,
        opened: OpenedStore,
        damage: list[DamagedSegment | DamagedFrames],
    ) -> None:
        """`damage` gets what its jobs meet when they read."""
        self.problem: str | None = None
        """Why the tier does not take what it is given; None when it does."""
        self.moved = 0
        """Segments that this process has moved."""
        self.requests = {"put": 0, "delete": 0, "list": 0}
        """Jobs that are done, whatever came of them, by what they ask of the tier."""
        self.failed = {"put": 0, "delete": 0, "list": 0}
        """How many of them failed."""
        self.swept = 0
        """Files in the tier that nobody knew, which a crash had left there…"""
        self.orphans: list[str] = []
        """…the last of them, and works that nobody ended."""
        self.merges = Merges(catalog, settings, opened, damage)
        self._catalog = catalog
        self._settings = settings
        self._planned: list[Segment] = []
        self._waiting: list[Segment] = []
        self._drops: list[tuple[int, list[str]]] = []
        self._dropping: list[str] = []
        self._held: dict[str, Collection[str]] = {}
        """By export: files of its pin that lie in the tier."""
        self._oldest = 0
        self._sweep: str | None = None
        """Behind which path the tier is to be looked through; None when it is not."""
        self._swept = False
        self._running: MoverJob | None = None
        self._retry_ms = 0
        self._pause_ms = PAUSE_MS_MIN
        self._used = False
        """Whether something is in the tier, as far as is known."""

    @property
    def waits(self) -> bool:
        """Whether something was moved or joined that no snapshot says yet."""
        return bool(self._waiting) or self.merges.waits

    @property
    def failures(self) -> int:
        """How often the tier has failed."""
        return sum(self.failed.values())

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def plan(self, number: int) -> None:
        """Look for what is to be moved or joined; cheap, once after each checkpoint, which has this number."""
        if not self._settings.cold_tier:
            return
        self.merges.plan(number)
        busy = {*map(id, self._waiting)}
        if isinstance(self._running, MoveJob):
            busy.add(id(self._running.segment))
        self._planned = []
        for slot in self._catalog.by_id.values():
            blocks = slot.topic.tail.blocks
            if any(block.segment is not None and block.segment.cold for block in blocks):
                self._used = True
                self.merges.plan_for(slot)
            self._planned += [one for one in to_move(blocks, self._settings) if id(one) not in busy]
            if len(self._planned) >= PLANNED_MAX:
                break
        self._planned.reverse()

    def job(self, now_ms: int) -> MoverJob | None:
        """A job for the mover's thread, one at a time."""
        if self._running is not None or now_ms < self._retry_ms:
            return None
        if self._dropping:
            self._running = DropJob(list(self._dropping))
            return self._running
        while self._planned:
            segment = self._planned.pop()
            if self._is_current(segment) and not segment.cold:
                self._running = MoveJob(segment, may_begin=not self._used)
                return self._running
        self._running = self.merges.job(now_ms)
        if self._running is None and self._sweep is not None and self._used:
            self._running = SweepJob(self._sweep)
        return self._running

    def done(self, job: MoverJob, error: OSError | None, now_ms: int) -> None:
        """The outcome of a job."""
        assert job is self._running, "a job that is not in flight"
        self._running = None
        self.requests[job.op] += 1
        if error is not None:
            self.problem = str(error)
            self.failed[job.op] += 1
            self._retry_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
            if isinstance(job, MoveJob):
                self._planned.append(job.segment)
            elif isinstance(job, MergeJob):
                self._dropping += self.merges.failed(job, error)
            return
        self.problem = None
        self._pause_ms = PAUSE_MS_MIN
        if isinstance(job, DropJob):
            self._dropping = self._dropping[len(job.paths) :]
        elif isinstance(job, MergeJob):
            self.merges.done(job)
        elif isinstance(job, SweepJob):
            self._swept_some(job)
        else:
            self._used = True
            self.moved += 1
            self._waiting.append(job.segment)

    def _swept_some(self, job: SweepJob) -> None:
        """Remove what is nobody's of what was found."""
        found, known = list(job.found), self.merges.known()
        left = [path for path in job.works if path not in known]
        for path in left:
            found += self.merges.found(path, *job.works[path])
        orphans = self._orphans(dict.fromkeys(found))
        self.swept += len(orphans)
        self._dropping += orphans
        self.orphans = [*self.orphans, *orphans, *left][-SWEPT_MAX:]
        self._dropping += self.merges.release(self._oldest, self._held.values())
        self._sweep = None if job.finished else job.after

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

    def hold(self, export_id: str, paths: Collection[str]) -> None:
        """There is a pin of these files of the tier: they stay."""
        self._held[export_id] = paths

    def let_go(self, export_ids: Collection[str] | None) -> None:
        """These pins are gone; all, with None."""
        for export_id in list(self._held) if export_ids is None else export_ids:
            self._held.pop(export_id, None)
        self.release(self._oldest)

    def drop(self, absent_from: int, segment: Segment) -> None:
        """No topic has this cold segment any more, and no snapshot from a number on names it."""
        self._used = True
        self._drops.append((absent_from, [segment.data_path, *segment.paths()]))

    def release(self, oldest: int) -> None:
        """The older kept snapshot has this number: what it does not name goes."""
        self._oldest = oldest
        kept = []
        for number, paths in self._drops:
            if number > oldest or any(path in held for held in self._held.values() for path in paths):
                kept.append((number, paths))
            else:
                self._dropping += paths
        self._drops = kept
        self._dropping += self.merges.release(oldest, self._held.values())

    def switched(self, job: MergeJob, absent_from: int | None) -> None:
        """What a merge has made stands in its place, and no snapshot from a number on names what was there; None: it
        could not."""
        self._dropping += self.merges.ended(job, absent_from or 0, absent_from is None)

    # -- what a crash has left -----------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Both kept snapshots are this process's: it knows every file that one of them names, so that what else is in
        the tier is what a crash left between the drop of a segment and the removal of its file. Once is enough."""
        if not self._swept:
            self._swept, self._sweep = True, ""

    def _orphans(self, paths: Iterable[str]) -> list[str]:
        """Those that no topic has, no snapshot can name, and no pin holds."""
        known = {path for _, dropped in self._drops for path in dropped}
        known |= self.merges.known()
        known.update(self._dropping, *self._held.values(), *(one.paths() for one in self._waiting))
        return [path for path in paths if path not in known and self._is_nobodys(path)]

    def _is_nobodys(self, path: str) -> bool:
        parsed = parse_segment_path(path.removesuffix(TMP))
        if parsed is None:
            return False
        topic_id, first_seq, number = parsed
        slot = self._catalog.by_id.get(topic_id)
        block = None if slot is None else slot.topic.tail.block_of(first_seq)
        segment = None if block is None else block.segment
        return path.endswith(TMP) or segment is None or (segment.first_seq, segment.number) != (first_seq, number)
