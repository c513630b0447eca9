"""Planted bugs of checkpoints: what is taken down, what is synced before what, what is let go of and when.

As in `mutants.py`, each names the scenarios in which it should show first. `ALL` has those of the cold tier too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine.checkpoint.jobs as jobs_module
import engine.core.images as images_module
import engine.core.keeper as keeper_module
import engine.core.sealing as sealing_module
import engine.segment.write as write_module
import engine.topic.image as image_module
from engine.checkpoint.jobs import SnapshotJob
from engine.clock import EpochClock
from engine.core.beginning import Beginning
from engine.core.keeper import Keeper
from engine.core.replay import Replay
from engine.core.sealing import Sealing
from engine.formats.manifest import MANIFEST_PATH
from engine.fs import OpenMode, replace_file
from engine.segment.segment import TOPICS_DIR
from engine.segment.write import write_deletes
from engine.topic.refusals import Refusals
from engine.topic.tail import Tail
from engine.wal.prepare import Shorten, Trim
from engine.wal.shard import Shard
from engine.wal.wal import Wal
from tests.sim.mutants import MUTANTS, Mutant, Patch, planting
from tests.sim.mutants_cold import COLD
from tests.sim.mutants_merge import MERGE

HISTORY: list[Mutant] = []


_mutant = planting(HISTORY)


# -- what is let go of, and when --------------------------------------------------------------------------------------


@_mutant("history-trim", "history-meanwhile")
def _log_trimmed_to_the_newer_snapshot(patch: Patch) -> None:
    """One bad snapshot would cost records."""
    old = patch.set(Keeper, "_trim", None)

    def trim(self: Keeper, stuck: Any) -> None:
        kept, self._kept = self._kept, [self._kept[1], self._kept[1]]
        old(self, stuck)
        self._kept = kept

    patch.set(Keeper, "_trim", trim)


@_mutant("history-trim", "history-between", "history-islands")
def _log_trimmed_to_its_end(patch: Patch) -> None:
    old = patch.set(Wal, "keep_from", None)

    def keep_from(self: Wal, starts: dict[int, int]) -> None:
        old(self, {shard: self.shards[shard].tip_lsn for shard in starts})

    patch.set(Wal, "keep_from", keep_from)


@_mutant("history-trim")
def _log_removed_before_the_manifest_says_so(patch: Patch) -> None:
    def run(self: Trim, fs: Any) -> None:
        for log in self.logs:
            fs.unlink(log.path)

    patch.set(Trim, "run", run)


@_mutant("history-drops", "history-deletes", "history-seal", "history-rewrites")
def _files_removed_that_the_older_snapshot_names(patch: Patch) -> None:
    old = patch.set(Keeper, "_remove_superfluous", None)

    def tidy(self: Keeper) -> None:
        kept, self._kept = self._kept, [(1 << 40, [])] * 2
        old(self)
        self._kept = kept

    patch.set(Keeper, "_remove_superfluous", tidy)


@_mutant("history-cold-between@4")
def _what_went_meanwhile_was_never_taken_down(patch: Patch) -> None:
    old = patch.set(Keeper, "_let_go", None)
    patch.set(Keeper, "_let_go", lambda self, _: old(self, self._number))


@_mutant("history-settles", "history-resumes")
def _log_file_made_shorter_before_the_manifest_says_so(patch: Patch) -> None:
    """A file that is shorter than it is known to be was cut short."""

    def run(self: Shorten, fs: Any) -> None:
        handle = fs.open(self.log.path, OpenMode.WRITE)
        fs.truncate(handle, self.log.size)
        fs.close(handle)
        replace_file(fs, MANIFEST_PATH, self._manifest)

    patch.set(Shorten, "run", run)


@_mutant("history-resumes", "history-settles")
def _log_goes_on_where_its_file_was_made_shorter(patch: Patch) -> None:
    """The file behind it begins there."""
    old = patch.set(Wal, "_shorten", None)

    def shorten(self: Wal, shard: Any, following: Any) -> Any:
        log, filled = following.log, following.filled_lsn
        chore = old(self, shard, following)
        following.filled_lsn = max(filled, log.end_lsn)
        shard.set_limit()
        return chore

    patch.set(Wal, "_shorten", shorten)


@_mutant("history-tails@4", "history-settles", "history-resumes")
def _log_cut_in_a_file_whose_beginning_is_not_synced(patch: Patch) -> None:
    """What the file before it holds may be gone, and the snapshot does not have it."""
    patch.set(Shard, "cut_lsn", property(lambda self: self.tip_lsn))


@_mutant("history-unsynced")
def _log_not_synced_before_the_snapshot(patch: Patch) -> None:
    """The snapshot holds what a power failure may still take from the log."""
    old = patch.set(Keeper, "_is_synced", None)

    def synced(self: Keeper) -> bool:
        self._needed = dict.fromkeys(self._needed, 0)
        waits: bool = old(self)
        return waits

    patch.set(Keeper, "_is_synced", synced)


@_mutant("history-seal@0~fdatasync@14=failed-sync", "faults:fdatasync@history-seal", "faults:fdatasync@history-deletes")
def _failed_checkpoint_counts(patch: Patch) -> None:
    old = patch.set(Keeper, "job_done", None)
    patch.set(Keeper, "job_done", lambda self, job, error, now: old(self, job, None, now))


@_mutant("history-seal@0~fsync_dir@5=EIO", "faults:fsync_dir@history-seal", "history-unfinished")
def _directory_that_is_there_taken_for_durable(patch: Patch) -> None:
    """A directory that a failed or killed attempt left is not synced by the next one (found by faults)."""

    def make(fs: Any, directory: str, durable: set[str]) -> None:
        for path, parent in ((TOPICS_DIR, ""), (directory, TOPICS_DIR)):
            if not fs.exists(path):
                fs.mkdir(path)
                fs.fsync_dir(parent)

    patch.set(write_module, "_make_directories", make)


@_mutant("history-refused")
def _what_the_disk_refuses_is_told_at_once(patch: Patch) -> None:
    """A fault that passes costs records for good."""
    patch.set(Refusals, "refused", lambda self, place, seqs, now_ms: (False, True))


@_mutant("history-refused")
def _what_was_read_since_still_counts_as_refused(patch: Patch) -> None:
    """Two faults of half a minute are taken for one of a minute."""
    patch.set(Refusals, "was_read", lambda self, place, first, last: None)


# -- what a snapshot says ---------------------------------------------------------------------------------------------


def _without(patch: Patch, change: Callable[[Any], None]) -> None:
    """Every image lacks something."""
    old = patch.set(images_module, "dump", None)

    def dump(*arguments: Any) -> Any:
        image = old(*arguments)
        change(image)
        return image

    patch.set(images_module, "dump", dump)


@_mutant("history-between", "history-retries")
def _snapshot_without_keys(patch: Patch) -> None:
    _without(patch, lambda image: image.keys.clear())


@_mutant("history-gaps", "history-islands", "history-lives")
def _snapshot_without_gaps(patch: Patch) -> None:
    _without(patch, lambda image: image.gaps.clear())


@_mutant("history-caps", "history-ages", "history-between")
def _snapshot_without_floors(patch: Patch) -> None:
    _without(patch, lambda image: setattr(image, "floor", None))


@_mutant("history-tails", "history-pending")
def _snapshot_without_deletes(patch: Patch) -> None:
    patch.set(image_module, "outside", lambda ranges, spans: [])


@_mutant("history-deletes", "history-rewrites")
def _deletes_of_segments_not_written(patch: Patch) -> None:
    patch.set(images_module, "_deletes", lambda *_: [])


@_mutant("history-deletes", "history-rewrites")
def _deletes_one_version_old(patch: Patch) -> None:
    def write(self: SnapshotJob, fs: Any, segment: Any, entry: Any, rows: Any) -> None:
        version = entry.deletes + 1
        digest = write_deletes(fs, self._store_id, self.globals.created_ms, segment, version, rows)
        if not entry.deletes:
            entry.deletes, entry.digest = version, digest

    patch.set(SnapshotJob, "_write_deletes", write)


@_mutant("history-rewrites", "history-deletes", "history-meanwhile", "history-between")
def _dead_when_sealed_forgotten(patch: Patch) -> None:
    """Rows of a segment that have no record, of which no .del file says that they were deleted."""
    old = patch.set(Keeper, "_replace", None)

    def replace(self: Keeper, copy: Any, segment: Any) -> bool:
        replaced: bool = old(self, copy, segment)
        segment.deletes_dirty = False
        return replaced

    patch.set(Keeper, "_replace", replace)


@_mutant("history-slices")
def _deletes_during_the_switch_forgotten(patch: Patch) -> None:
    """A piece counts what its blocks held when they were taken down, whatever was deleted since."""
    old = patch.set(Tail, "replace", None)

    def replace(self: Tail, first: int, count: int, block: Any) -> None:
        old(self, first, count, block)
        if block.segment.in_tails:
            block.live = block.segment.present

    patch.set(Tail, "replace", replace)


@_mutant("history-full")
def _deletes_forgotten_by_a_failed_checkpoint(patch: Patch) -> None:
    old = patch.set(Keeper, "_fail", None)

    def fail(self: Keeper, error: Any, now: int) -> None:
        self._taken.clear()
        old(self, error, now)

    patch.set(Keeper, "_fail", fail)


@_mutant("history-islands")
def _nothing_taken_down_before_a_segment(patch: Patch) -> None:
    """What lies before a hole is in no snapshot when what comes after it is sealed (found in review)."""
    old = patch.set(keeper_module, "capture", None)

    def capture(slot: Any, tip_lsn: int, routers: Any, groups: Any) -> Any:
        found = old(slot, tip_lsn, routers, groups)
        return found if found is None or not groups else found._replace(loose=[], live=[])

    patch.set(keeper_module, "capture", capture)


@_mutant("history-ephemeral")
def _ephemeral_seqs_in_a_snapshot(patch: Patch) -> None:
    patch.set(images_module, "_as_logged", lambda image, *_: image)


@_mutant("history-ephemeral", "history-islands")
def _reservations_not_in_a_snapshot(patch: Patch) -> None:
    old = patch.set(keeper_module, "capture", None)

    def capture(*arguments: Any) -> Any:
        found = old(*arguments)
        if found is not None:
            found.image.reserved = 0
        return found

    patch.set(keeper_module, "capture", capture)


@_mutant("history-lives", "history-islands", "history-gaps", "history-seal")
def _quiet_in_every_snapshot(patch: Patch) -> None:
    """No crash gap behind what a snapshot holds."""
    old = patch.set(keeper_module, "capture", None)

    def capture(*arguments: Any) -> Any:
        found = old(*arguments)
        if found is not None:
            found.image.quiet = True
        return found

    patch.set(keeper_module, "capture", capture)


def _other_globals(patch: Patch, **values: Any) -> None:
    old = patch.set(keeper_module, "Globals", None)

    def globals_(**arguments: Any) -> Any:
        return old(**{**arguments, **values})

    patch.set(keeper_module, "Globals", globals_)


@_mutant("history-flood", "recreated-by-another")
def _id_given_twice(patch: Patch) -> None:
    old = patch.set(Replay, "finish", None)

    def finish(self: Replay, *rest: Any) -> None:
        old(self, *rest)
        self.catalog.last_id = max((slot.topic.id for slot in self.catalog.by_id.values()), default=0)

    patch.set(Replay, "finish", finish)


@_mutant("recreated-by-another")
def _epochs_by_the_wall_clock(patch: Patch) -> None:
    patch.set(EpochClock, "next", lambda self, last: self._clock.wall_ms() * 1000)


@_mutant("history-flood", "history-drops")
def _id_not_in_a_snapshot(patch: Patch) -> None:
    _other_globals(patch, epoch=0)


@_mutant("history-meanwhile@4", "history-between", "history-meanwhile")
def _dropped_topics_not_listed(patch: Patch) -> None:
    _other_globals(patch, dropped=[])


# -- what is sealed ---------------------------------------------------------------------------------------------------


@_mutant("history-flood")
def _what_comes_meanwhile_sealed_as_well(patch: Patch) -> None:
    """A checkpoint that takes what is written while it runs never ends where that is more than it seals."""
    seen: list[tuple[Any, Any]] = []
    old_next = patch.set(Sealing, "next", None)
    old_add = patch.set(Sealing, "add", None)

    def take(self: Any) -> Any:
        for slot, found in seen:
            old_add(self, slot, found, self.plan(slot, 0))
        return old_next(self)

    def add(self: Any, slot: Any, found: Any, groups: Any) -> None:
        seen.append((slot, found))
        old_add(self, slot, found, groups)

    patch.set(Sealing, "next", take)
    patch.set(Sealing, "add", add)


@_mutant("history-flood")
def _file_without_a_place_removed(patch: Patch) -> None:
    """The snapshot names a segment whose records were evicted before it was written."""

    def switch(self: Keeper, copies: Any) -> None:
        for copy in self._switch(copies):
            self._files.drop(0, copy.segment.paths() if copy.segment is not None else [])

    patch.set(Keeper, "_switch_sealed", switch)


@_mutant("history-flood", "history-deletes", "history-between")
def _dead_when_taken_down_forgotten(patch: Patch) -> None:
    """Rows that a segment never had, of which neither image nor .del file says that they were deleted."""
    patch.set(sealing_module, "deleted_rows", lambda *_: [])


@_mutant("history-flood", "history-between")
def _deleted_while_sealed_forgotten(patch: Patch) -> None:
    """Rows that were deleted after their topic was taken down, and before the snapshot was there."""
    old = patch.set(Keeper, "_go_over", None)

    def go_over(self: Keeper, found: Any, slot: Any) -> None:
        old(self, found, slot)
        for segment, _, _ in found.deletes:
            segment.deletes_dirty = False

    patch.set(Keeper, "_go_over", go_over)


# -- where a snapshot stands in the log -------------------------------------------------------------------------------


@_mutant("history-pending", "history-meanwhile")
def _from_lsn_too_high(patch: Patch) -> None:
    """What was decided and not applied when a topic was taken down is in neither snapshot nor replay."""
    patch.set(images_module, "from_lsn", lambda slot, tip: tip)


@_mutant("history-seal", "history-meanwhile", "history-between")
def _from_lsn_too_low(patch: Patch) -> None:
    """What is in the snapshot is applied once more."""
    patch.set(images_module, "from_lsn", lambda slot, tip: 0)


@_mutant("history-between", "history-meanwhile")
def _cut_at_the_tip(patch: Patch) -> None:
    old = patch.set(keeper_module, "cut_of", None)

    def cut_of(shard: Any) -> Any:
        cut = old(shard)
        cut.lsn = shard.tip_lsn
        return cut

    patch.set(keeper_module, "cut_of", cut_of)


@_mutant("history-meanwhile", "history-between", "history-lives")
def _every_frame_behind_the_cut_replayed(patch: Patch) -> None:
    patch.set(Beginning, "covers", lambda self, item: False)


@_mutant("history-pending", "history-meanwhile")
def _positions_of_topics_one_frame_ahead(patch: Patch) -> None:
    old = patch.set(Beginning, "has_told", None)
    patch.set(Beginning, "has_told", lambda self, topic_id, shard, lsn: old(self, topic_id, shard, lsn - 8))


ALL: tuple[Mutant, ...] = (*MUTANTS, *HISTORY, *COLD, *MERGE)
"""Every planted bug."""


def used_modules() -> tuple[Any, ...]:
    """What is patched here, as in `mutants.used_modules`."""
    return (jobs_module, images_module, keeper_module, sealing_module, write_module, image_module)
