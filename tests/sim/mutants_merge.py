"""Planted bugs of joining in the cold tier: whose a name is, when the new segment counts, and when the old ones go.

As in `mutants_history.py`, each names the scenarios in which it should show first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine.checkpoint.merge as merge_module
import engine.core.mover as mover_module
from engine.checkpoint.merge import MergeJob
from engine.core.keeper import Keeper
from engine.core.merging import Merges
from engine.core.mover import Mover
from engine.fs import OpenMode, read_file, write_whole
from engine.segment.tiers import ColdTier
from tests.sim.mutants import Mutant, Patch, Plant

MERGE: list[Mutant] = []


def _mutant(*where: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        name = plant.__name__.lstrip("_").replace("_", "-")
        MERGE.append(Mutant(f"merge-{name}", plant, tuple(f"history-merge-{place}" for place in where)))
        return plant

    return add


# -- whose a name is --------------------------------------------------------------------------------------------------


@_mutant("late", "later")
def _work_is_put_over_another_ones(patch: Patch) -> None:
    """And nobody looks whether the segment is there."""
    patch.set(ColdTier, "make", lambda self, name, content: self.put(name, [content]))
    patch.set(ColdTier, "exists", lambda self, name: False)


@_mutant("late", "later")
def _name_is_taken_without_asking(patch: Patch) -> None:
    """The next one under that number, whatever was there before."""
    patch.set(MergeJob, "_claim", lambda self, tier: None)


@_mutant("later")
def _segment_in_use_is_put_anew(patch: Patch) -> None:
    """Its work is gone, so the name looks free."""
    patch.set(ColdTier, "exists", lambda self, name: False)


# -- when the new one counts ------------------------------------------------------------------------------------------


@_mutant("lies")
def _new_one_not_read_back(patch: Patch) -> None:
    patch.set(merge_module, "put_to", lambda tier, path, pieces: tier.put(path, pieces))
    patch.set(merge_module, "copy_to", lambda tier, fs, path, may_begin: tier.put(path, [read_file(fs, path)]))


@_mutant("lies")
def _failed_join_counts(patch: Patch) -> None:
    def run(self: Any, fs: Any) -> None:
        try:
            old(self, fs)
        except OSError:
            self.copy.segment = self.begun

    old = patch.set(MergeJob, "run", None)
    patch.set(MergeJob, "run", run)


@_mutant("directory", "dies")
def _index_not_synced(patch: Patch) -> None:
    """The new one counts, and its index is not on the disk."""

    def write_files(fs: Any, segment: Any, files: Any, durable: Any) -> None:
        for path, content in files.items():
            handle = fs.open(path, OpenMode.CREATE)
            write_whole(fs, handle, [bytes(part) for part in content], 0)
            fs.close(handle)

    patch.set(merge_module, "write_files", write_files)


@_mutant("deletes", "between")
def _deleted_meanwhile_comes_back(patch: Patch) -> None:
    """What was deleted while it was copied has a row, and no file says that it is deleted."""

    def replace(self: Any, copy: Any, segment: Any) -> bool:
        done = bool(old(self, copy, segment))
        if segment.cold:
            segment.deletes_dirty = False
        return done

    old = patch.set(Keeper, "_replace", None)
    patch.set(Keeper, "_replace", replace)


@_mutant("directory", "bucket")
def _join_waits_for_the_tier_in_a_checkpoint(patch: Patch) -> None:
    """The checkpoint that takes it reads it once more."""

    def take(self: Any) -> Any:
        found = old(self)
        for job in found:
            job.look()
        return found

    def run(self: Any, fs: Any) -> None:
        self.look = lambda: fs.tier.size(self.old[0])
        older(self, fs)

    old, older = patch.set(Merges, "take", None), patch.set(MergeJob, "run", None)
    patch.set(Merges, "take", take)
    patch.set(MergeJob, "run", run)


# -- when the old ones go ---------------------------------------------------------------------------------------------


@_mutant("directory", "bucket")
def _old_ones_go_when_they_are_copied(patch: Patch) -> None:
    def run(self: Any, fs: Any) -> None:
        old(self, fs)
        for path in self.old if self.copy.segment is not None else ():
            fs.tier.delete(path)

    old = patch.set(MergeJob, "run", None)
    patch.set(MergeJob, "run", run)


@_mutant("directory", "bucket")
def _old_ones_go_before_the_older_snapshot(patch: Patch) -> None:
    old = patch.set(Mover, "drop", None)
    patch.set(Mover, "drop", lambda self, absent_from, segment: old(self, 0, segment))


@_mutant("directory", "bucket")
def _old_ones_stay(patch: Patch) -> None:
    patch.set(Mover, "drop", lambda self, absent_from, segment: None)


@_mutant("dies", "late", "stale")
def _half_done_work_stays(patch: Patch) -> None:
    patch.set(mover_module, "works_in", lambda tier: {})


@_mutant("late", "twice", "dies")
def _sweep_takes_what_a_work_calls_old(patch: Patch) -> None:
    """Without asking what the snapshots say."""
    old = patch.set(Mover, "_is_nobodys", None)

    def is_nobodys(self: Any, path: str) -> bool:
        return bool(old(self, path)) or path.endswith(".data")

    patch.set(Mover, "_is_nobodys", is_nobodys)


@_mutant("slow")
def _sweep_undoes_what_is_under_way(patch: Patch) -> None:
    """Its own, too."""
    patch.set(Merges, "known", lambda self: set())


@_mutant("deletes", "directory")
def _join_leaves_a_record_out(patch: Patch) -> None:
    old = patch.set(MergeJob, "_build", None)

    def build(self: Any, fs: Any) -> Any:
        self.copy.sources = self.copy.sources[1:]
        return old(self, fs)

    patch.set(MergeJob, "_build", build)
