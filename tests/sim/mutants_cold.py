"""Planted bugs of the cold tier: what counts as moved, what is on its disk, and when a copy may go.

As in `mutants_history.py`, each names the scenarios in which it should show first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import engine.core.mover as mover_module
import engine.segment.tiers as tiers_module
import engine.store.snapshots as snapshots_module
from engine.core.keeper import Keeper
from engine.core.mover import DropJob, MoveJob, Mover
from engine.fs import OpenMode, read_file, write_whole
from engine.segment.objects import ObjectSegmentStore, Op
from engine.segment.reader import SegmentFiles
from engine.segment.tiers import ColdMissingError, ColdTier, LocalSegmentStore
from tests.sim.mutants import Mutant, Patch, planting

COLD: list[Mutant] = []


_mutant = planting(COLD)


# -- what is on the tier's disk ---------------------------------------------------------------------------------------


def _put(patch: Patch, *, sync: bool, aside: bool) -> None:
    def put(self: Any, name: str, pieces: Iterable[bytes]) -> None:
        fs, directory = self._fs, name.rpartition("/")[0]
        self._make(directory)
        temporary = name + ".tmp" if aside else name
        if fs.exists(temporary):
            fs.unlink(temporary)
        handle = fs.open(temporary, OpenMode.CREATE)
        write_whole(fs, handle, (b"".join(pieces),), 0)
        if sync:
            fs.fdatasync(handle)
        fs.close(handle)
        if aside:
            fs.rename(temporary, name)
            fs.fsync_dir(directory)

    patch.set(LocalSegmentStore, "put", put)


@_mutant("history-cold-move")
def _copy_in_the_tier_not_synced(patch: Patch) -> None:
    _put(patch, sync=False, aside=True)


@_mutant("history-cold-move", "history-cold-dies")
def _name_in_the_tier_not_synced(patch: Patch) -> None:
    _put(patch, sync=True, aside=False)


@_mutant("history-cold-move", "history-cold-dies")
def _directories_of_the_tier_not_synced(patch: Patch) -> None:
    def make(self: Any, directory: str) -> None:
        parent = ""
        for part in directory.split("/"):
            path = f"{parent}/{part}" if parent else part
            self._fs.mkdir(path)
            parent = path

    patch.set(LocalSegmentStore, "_make", make)


@_mutant("history-cold-lies")
def _copy_not_read_back(patch: Patch) -> None:
    def copy_to(tier: Any, fs: Any, path: str, *, may_begin: bool) -> None:
        handle = fs.open(path, OpenMode.READ)
        tier.store(may_begin=may_begin).put(path, [fs.pread(handle, fs.size(handle), 0)])
        fs.close(handle)

    patch.set(mover_module, "copy_to", copy_to)


@_mutant("history-cold-lies")
def _only_the_length_read_back(patch: Patch) -> None:
    class Same:
        def update(self, data: bytes) -> None:
            pass

        def intdigest(self) -> int:
            return 0

    patch.set(tiers_module, "xxh3_64", Same)


# -- what counts as moved ---------------------------------------------------------------------------------------------


@_mutant("history-cold-gone", "history-cold-lies")
def _failed_move_counts(patch: Patch) -> None:
    old = patch.set(Mover, "done", None)
    patch.set(Mover, "done", lambda self, job, error, now_ms: old(self, job, None, now_ms))


@_mutant("history-cold-hangs")
def _cold_before_it_is_copied(patch: Patch) -> None:
    def job(self: Any, now_ms: int) -> Any:
        found = old(self, now_ms)
        if isinstance(found, MoveJob):
            found.segment.cold = True
        return found

    old = patch.set(Mover, "job", None)
    patch.set(Mover, "job", job)


@_mutant("history-cold-move", "history-cold-dies")
def _snapshot_does_not_say_cold(patch: Patch) -> None:
    old = patch.set(snapshots_module, "SegmentEntry", None)
    patch.set(snapshots_module, "SegmentEntry", lambda **members: old(**{**members, "cold": False}))


@_mutant("history-cold-dies", "history-cold-move")
def _start_forgets_what_is_cold(patch: Patch) -> None:
    """The local copy is gone, and its absence is taken for damage."""
    old = patch.set(snapshots_module, "segment_of", None)

    def segment_of(image: Any, entry: Any) -> Any:
        segment = old(image, entry)
        segment.cold = False
        return segment

    patch.set(snapshots_module, "segment_of", segment_of)


# -- when a copy may go -----------------------------------------------------------------------------------------------


@_mutant("history-cold-move")
def _local_copy_goes_with_the_newer_snapshot(patch: Patch) -> None:
    """The older one still needs it."""
    old = patch.set(Keeper, "_remove_superfluous", None)

    def tidy(self: Any) -> None:
        self._files._superfluous = [
            (0 if paths[0].endswith(".data") else number, paths) for number, paths in self._files._superfluous
        ]
        old(self)

    patch.set(Keeper, "_remove_superfluous", tidy)


@_mutant("history-cold-move")
def _local_copy_goes_when_it_is_copied(patch: Patch) -> None:
    old = patch.set(MoveJob, "run", None)

    def run(self: Any, fs: Any) -> None:
        old(self, fs)
        fs.unlink(self.segment.data_path)

    patch.set(MoveJob, "run", run)


@_mutant("history-cold-drops", "history-cold-deletes")
def _tier_lets_go_before_the_older_snapshot(patch: Patch) -> None:
    old = patch.set(Mover, "drop", None)
    patch.set(Mover, "drop", lambda self, absent_from, segment: old(self, 0, segment))


@_mutant("history-cold-drops", "history-cold-deletes")
def _nothing_ever_leaves_the_tier(patch: Patch) -> None:
    patch.set(DropJob, "run", lambda self, fs: None)


@_mutant("history-cold-leaves")
def _job_shares_the_list_of_what_is_to_go(patch: Patch) -> None:
    """What comes to be superfluous while it is under way counts as removed by it (found by this scenario)."""
    old = patch.set(Mover, "job", None)

    def job(self: Any, now_ms: int) -> Any:
        found = old(self, now_ms)
        if isinstance(found, DropJob):
            found.paths = self._dropping
        return found

    patch.set(Mover, "job", job)


@_mutant("history-cold-hangs", "history-cold-gone")
def _start_looks_into_the_tier(patch: Patch) -> None:
    old = patch.set(snapshots_module, "_missing", None)

    def missing(fs: Any, store_id: bytes, segment: Any, tails: Any) -> Any:
        if segment.cold:
            fs.tier.store().exists(segment.data_path)
        return old(fs, store_id, segment, tails)

    patch.set(snapshots_module, "_missing", missing)


# -- a bucket ---------------------------------------------------------------------------------------------------------


@_mutant("history-cold-flickers")
def _one_bad_answer_of_the_tier_is_damage(patch: Patch) -> None:
    def chunks(self: Any, segment: Any, start: int, stop: int, *, nowait: bool = False) -> Any:
        return self._chunks(segment, start, stop, nowait=nowait)

    patch.set(SegmentFiles, "chunks", chunks)


@_mutant("history-cold-flickers")
def _short_answer_is_the_end_of_the_object(patch: Patch) -> None:
    def get_range(self: Any, name: str, offset: int, length: int) -> bytes:
        return bytes(self._ask(Op.GET, name, lambda: self._objects.get(name, offset, length)).data)

    patch.set(ObjectSegmentStore, "get_range", get_range)


@_mutant("history-cold-vanishes")
def _object_that_is_not_found_is_damage(patch: Patch) -> None:
    old = patch.set(ColdTier, "get_range", None)

    def get_range(self: Any, name: str, offset: int, length: int) -> bytes:
        try:
            return bytes(old(self, name, offset, length))
        except ColdMissingError:
            return bytes(length)

    patch.set(ColdTier, "get_range", get_range)


@_mutant("history-cold-stale", "history-cold-bucket")
def _what_a_listing_has_is_nobodys(patch: Patch) -> None:
    patch.set(Mover, "_is_nobodys", lambda self, path: path.endswith(".data"))


@_mutant("history-cold-flickers")
def _another_attempt_puts_nothing(patch: Patch) -> None:
    """What the first attempt has taken from the file is gone."""
    old = patch.set(ObjectSegmentStore, "put", None)

    def put(self: Any, name: str, pieces: Iterable[bytes]) -> None:
        once = iter(pieces)

        class Rest:
            def __iter__(self) -> Any:
                yield from once

        old(self, name, Rest())

    patch.set(ObjectSegmentStore, "put", put)
    patch.set(mover_module, "copy_to", lambda tier, fs, path, may_begin: tier.store(may_begin=may_begin).put(
        path, [read_file(fs, path)]
    ))  # fmt: skip
