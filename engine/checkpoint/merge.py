"""Joining small segments of the cold tier: the slow part, in the mover's thread, which may wait for the tier.

    read what is live of the old ones, by ranges ─► put the work: nobody else has the name ─► put the new data, read it
    back ─► write its index here, copy it there ─► put the work again: copied ─► a checkpoint takes it

Only the index and the tags are written here; the data is put into the tier alone. Until a snapshot names the new
segment (engine/core/merging.py) nothing of all that counts, and each step may be cut off: whoever finds the work
undoes it.
"""

from __future__ import annotations

from typing import Final

from engine.checkpoint.jobs import Copy
from engine.checkpoint.sources import Readers
from engine.formats.manifest import encode_meta
from engine.formats.work import WORK_FORMAT, Work, WorkState, work_path
from engine.fs import Fs
from engine.segment.build import Built
from engine.segment.segment import Segment
from engine.segment.tiers import ColdError, ColdTier, TieredFs, copy_to, put_to
from engine.segment.write import files_of, flat_of, remove, segment_of, write_files

NUMBERS_MAX: Final = 8
"""Names that are tried: others are those of works that a process did not live to end."""


class MergeJob:
    """Make one segment of several. Raises `OSError`.

    copy       the blocks; its `segment` is there when all went well, its `damage` when something is not as it was
    old        the data of the segments that are read
    number     of the new one; changes to the one that was free
    begun      the new segment, once its work was put: files of it may be in the tier
    read       bytes of records that were read
    """

    op: Final = "put"

    def __init__(self, copy: Copy, store_id: bytes, start: int, number: int, now_ms: int) -> None:
        """`start`: that of this process, which no other one ever had."""
        self.copy = copy
        self.old = [block.segment.data_path for block in copy.blocks if block.segment is not None]
        self.number = number
        self.begun: Segment | None = None
        self.read = 0
        self._store_id = store_id
        self._start = start
        self._now_ms = now_ms

    @property
    def path(self) -> str:
        """Where its work is noted."""
        return work_path(self.copy.topic.id, self.copy.first_seq, self.number)

    def run(self, fs: Fs) -> None:
        """Raises `OSError`; the records of a tier that is damaged are told in `copy.damage`, and nothing is made."""
        assert isinstance(fs, TieredFs), "jobs of the mover are run with the tier at hand"
        built = self._build(fs)
        if built is not None:
            self.read = built.info.data_len
            self._claim(fs.tier)
            self._make(fs, built)

    def _build(self, fs: Fs) -> Built | None:
        readers = Readers(fs, self._store_id, 0, {})
        try:
            return self.copy.build(readers)
        finally:
            readers.close()

    def _claim(self, tier: ColdTier) -> None:
        """Put the work under a name that is nobody's."""
        for number in range(self.number, self.number + NUMBERS_MAX):
            self.number = number
            try:
                tier.make(self.path, self._work(WorkState.COPYING))
            except FileExistsError:
                continue
            # Whoever had the name before may be through with it: the work is gone then, and the segment in use.
            if not tier.exists(self._new().data_path):
                return
        self.number += 1  # those are others' works
        raise ColdError(f"{self.path} and those before it are there already")

    def _new(self) -> Segment:
        """The new segment, as far as its name goes."""
        return Segment(self.copy.topic.id, self.copy.first_seq, self.copy.count, 0, self.number, 0, 0, 0, 0, 0)

    def _work(self, state: WorkState) -> bytes:
        copy = self.copy
        work = Work(
            format=WORK_FORMAT,
            store_id=self._store_id.hex(),
            start=self._start,
            state=state,
            topic=f"{copy.topic.id:016x}",
            first=copy.first_seq,
            last=copy.last_seq,
            number=self.number,
            old=self.old,
            new=self._new().data_path,
            created_ms=self._now_ms,
        )
        return encode_meta(work)

    def _make(self, fs: TieredFs, built: Built) -> None:
        segment = segment_of(built.info, self.number, 0)
        segment.cold = True
        self.begun = segment
        files = files_of(self._store_id, self._now_ms, segment, built)
        data = files.pop(segment.data_path)
        put_to(fs.tier, segment.data_path, [flat_of(buffer) for buffer in data])
        write_files(fs.fs, segment, files, set())
        try:
            for path in files:
                copy_to(fs.tier, fs.fs, path, may_begin=False)
            fs.tier.put(self.path, [self._work(WorkState.COPIED)])
        except OSError:
            remove(fs.fs, list(files))
            raise
        self.copy.segment, self.copy.tags = segment, built.tag_set
