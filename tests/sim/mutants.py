"""Planted bugs: each is a small change to the engine that the gate must notice.

A mutant patches engine code in this process while it is applied. It names the scenarios in which it should show first;
what they do not catch, all scenarios, the faults and the bit flips are tried on before it counts as missed. Bugs that
were really found and mended join the list (house style, 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import engine.core.core as core_module
import engine.core.ephemeral as ephemeral_module
import engine.core.replay as replay_module
import engine.store.execute as execute_module
import engine.store.recovery as recovery_module
import engine.store.verdicts as verdicts_module
import engine.store.walk as walk_module
import engine.wal.prepare as prepare_module
import engine.wal.wal as wal_module
from engine.core.commit import Commit
from engine.core.core import Core
from engine.core.ephemeral import Ephemeral
from engine.core.replay import Replay
from engine.core.staged import StagedDelete
from engine.formats.frame import FRAME_LEN_MIN, HEADER_LEN, align_block, parse_header
from engine.store.execute import Execution
from engine.store.recovery import OpenedStore
from engine.topic.state import Topic
from engine.topic.tags import resolve_delete
from engine.types import Reason
from engine.wal.chain import TMP_SUFFIX, shard_dir
from engine.wal.shard import GroupWrite, Shard, SyncJob
from engine.wal.wal import Wal

Plant = Callable[["Patch"], None]


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace `owner.name`; returns what was there."""
        old = owner.__dict__[name]
        self._undo.append((owner, name, old))
        setattr(owner, name, value)
        return old

    def undo(self) -> None:
        """Everything is as it was."""
        for owner, name, old in reversed(self._undo):
            setattr(owner, name, old)
        self._undo.clear()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug."""

    name: str
    plant: Plant
    where: tuple[str, ...]
    """Where to look first: scenarios, with `@lag` at one lag of their syncs, with `~fault` with that fault; plays, with
    `@shards`; `flips`, `flips@<end of the store>`, `faults:<call>` and `faults:<call>@<scenario>` are those sweeps.
    What shows at none of these is hunted everywhere."""


@contextmanager
def patched() -> Iterator[Patch]:
    """A patch for a while."""
    patch = Patch()
    try:
        yield patch
    finally:
        patch.undo()


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The engine with this bug."""
    with patched() as patch:
        mutant.plant(patch)
        yield


MUTANTS: list[Mutant] = []


def planting(into: list[Mutant], prefix: str = "") -> Callable[..., Callable[[Plant], Plant]]:
    """What puts planted bugs into a list, by the names of their functions: called with where they should show first."""

    def mutant(*where: str) -> Callable[[Plant], Plant]:
        def add(plant: Plant) -> Plant:
            into.append(Mutant(prefix + plant.__name__.lstrip("_").replace("_", "-"), plant, where))
            return plant

        return add

    return mutant


_mutant = planting(MUTANTS)


# -- syncs and acks ---------------------------------------------------------------------------------------------------


@_mutant("single-fsync")
def _sync_skipped(patch: Patch) -> None:
    patch.set(SyncJob, "run", lambda self, fs: None)


@_mutant("rotation-unsynced")
def _retired_files_not_synced(patch: Patch) -> None:
    def run(self: SyncJob, fs: Any) -> None:
        fs.fdatasync(self._current.handle)

    patch.set(SyncJob, "run", run)


@_mutant("single-fsync")
def _acked_before_the_sync(patch: Patch) -> None:
    old = patch.set(Commit, "add", None)
    patch.set(Commit, "add", lambda self, change, end, *, sync: old(self, change, end, sync=False))


@_mutant("single-disk")
def _acked_when_only_queued(patch: Patch) -> None:
    """A group is written one turn late, and acked at once."""
    waiting: list[Any] = []
    old = patch.set(GroupWrite, "run", None)

    def run(self: GroupWrite, fs: Any) -> None:
        if waiting:
            old(waiting.pop(), fs)
        waiting.append(self)

    patch.set(GroupWrite, "run", run)


@_mutant("single-fsync", "interleaved")
def _no_fresh_block_after_a_sync(patch: Patch) -> None:
    patch.set(wal_module, "align_block", lambda lsn: (lsn + 7) & ~7)


@_mutant("interleaved@6", "interleaved", "single-fsync", "rotation")
def _durable_lsn_runs_ahead(patch: Patch) -> None:
    old = patch.set(wal_module, "_packed", None)

    def packed(staged: Any, seed: int, tick: int, shards: int, durable_lsn: int) -> Any:
        return old(staged, seed, tick, shards, staged[-1][9] & ~4095)

    patch.set(wal_module, "_packed", packed)


@_mutant("single-disk@0~fdatasync@5=failed-sync", "faults:fdatasync")
def _failed_sync_taken_for_success(patch: Patch) -> None:
    old = patch.set(Wal, "sync_done", None)
    patch.set(Wal, "sync_done", lambda self, job, error: old(self, job, None))
    done = patch.set(Commit, "sync_done", None)
    patch.set(Commit, "sync_done", lambda self, job, error, now: done(self, job, None, now))


@_mutant("single-disk@0~fdatasync@5=failed-sync", "faults:fdatasync")
def _failed_sync_retried(patch: Patch) -> None:
    """The second attempt succeeds without the data."""
    old = patch.set(SyncJob, "run", None)

    def run(self: SyncJob, fs: Any) -> None:
        try:
            old(self, fs)
        except OSError:
            old(self, fs)

    patch.set(SyncJob, "run", run)


@_mutant("single-disk@0~pwritev@5=EIO", "faults:pwritev")
def _failed_write_taken_for_success(patch: Patch) -> None:
    old = patch.set(GroupWrite, "run", None)

    def run(self: GroupWrite, fs: Any) -> None:
        try:
            old(self, fs)
        except OSError:
            pass

    patch.set(GroupWrite, "run", run)


@_mutant("interleaved@0~pwritev@26=short", "faults:pwritev@interleaved", "faults:pwritev")
def _short_write_not_completed(patch: Patch) -> None:
    def run(self: GroupWrite, fs: Any) -> None:
        for file, lsn, buffers in self.writes:
            fs.pwritev(file.handle, buffers, file.log.offset(lsn))

    patch.set(GroupWrite, "run", run)


# -- files ------------------------------------------------------------------------------------------------------------


@_mutant("rotation", "oversize")
def _renamed_before_it_is_synced(patch: Patch) -> None:
    def finish(fs: Any, log: Any, handle: int) -> None:
        fs.rename(log.path + TMP_SUFFIX, log.path)
        fs.fdatasync(handle)
        fs.fsync_dir(shard_dir(log.shard))

    patch.set(prepare_module, "finish_log_file", finish)


@_mutant("rotation", "rotation-unsynced", "oversize")
def _directory_of_a_new_file_not_synced(patch: Patch) -> None:
    def finish(fs: Any, log: Any, handle: int) -> None:
        fs.fdatasync(handle)
        fs.rename(log.path + TMP_SUFFIX, log.path)

    patch.set(prepare_module, "finish_log_file", finish)


@_mutant("flips@killed", "flips")
def _manifest_does_not_name_the_newest_file(patch: Patch) -> None:
    patch.set(prepare_module, "replace_file", lambda fs, path, content: None)


class _NoLogSync:
    """A file system whose new log files are never synced."""

    def __init__(self, below: Any) -> None:
        self._below = below
        self._new: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def open(self, path: str, mode: Any) -> int:
        handle: int = self._below.open(path, mode)
        if path.endswith(".log.tmp"):
            self._new.add(handle)
        return handle

    def fdatasync(self, handle: int) -> None:
        if handle not in self._new:
            self._below.fdatasync(handle)


@_mutant("killed-again", "kill-then-power", "rotation-unsynced")
def _copy_not_synced(patch: Patch) -> None:
    old = patch.set(Execution, "_begin_run", None)

    def begin(self: Execution, walk: Any, found: Any) -> Any:
        below = self._fs
        self._fs = _NoLogSync(below)
        try:
            return old(self, walk, found)
        finally:
            self._fs = below

    patch.set(Execution, "_begin_run", begin)


@_mutant("kill-then-power", "killed-again", "rotation-unsynced")
def _nothing_is_copied(patch: Patch) -> None:
    """A new run begins behind what was found, although that may only be in the page cache."""
    old = patch.set(Execution, "_begin_run", None)

    def begin(self: Execution, walk: Any, found: Any) -> Any:
        walk.durable_lsn = max(walk.durable_lsn, align_block(walk.end_lsn))
        return old(self, walk, found)

    patch.set(Execution, "_begin_run", begin)


@_mutant("killed-again", "power-failures", "kill-then-power", "single-disk")
def _recovery_appends_to_what_it_found(patch: Patch) -> None:
    patch.set(Execution, "_begin_run", lambda self, walk, found: self._reopen(walk, found))


@_mutant("rotation", "killed-again", "oversize")
def _recovery_removes_too_much(patch: Patch) -> None:
    """Older files of the chain go, although they own what is in them."""
    old = patch.set(Execution, "_clean_up", None)
    patch.set(Execution, "_clean_up", lambda self, chains: old(self, [chain[-1:] for chain in chains]))


@_mutant("full-disk")
def _nothing_reserved_for_deletes(patch: Patch) -> None:
    old = patch.set(Wal, "room", None)
    patch.set(Wal, "room", lambda self, shard, body_len, control=False: old(self, shard, body_len, False))


# -- recovery ---------------------------------------------------------------------------------------------------------


@_mutant("single-disk", "interleaved")
def _no_crash_gap(patch: Patch) -> None:
    old = patch.set(Replay, "_lost", None)

    def lost(self: Replay, slot: Any) -> tuple[int, int]:
        self.opened.power_loss = False
        first_last: tuple[int, int] = old(self, slot)
        return first_last

    patch.set(Replay, "_lost", lost)


@_mutant("single-disk", "power-failures")
def _crash_gap_not_synced_before_going_live(patch: Patch) -> None:
    patch.set(Core, "_settle_start", lambda self: None)


@_mutant("single-disk", "first-start")
def _lock_never_says_running(patch: Patch) -> None:
    patch.set(OpenedStore, "go_live", lambda self: None)


@_mutant("power-failures", "single-disk", "interleaved")
def _live_before_the_gaps(patch: Patch) -> None:
    old = patch.set(OpenedStore, "execute", None)

    def execute(self: OpenedStore, named: Any = ()) -> None:
        old(self, named)
        self.go_live()

    patch.set(OpenedStore, "execute", execute)


@_mutant("quiet-and-wake")
def _quiet_topic_not_woken(patch: Patch) -> None:
    old = patch.set(Commit, "add", None)

    def add(self: Commit, change: Any, end: int, *, sync: bool) -> None:
        change.slot.wake_lsn = 0
        old(self, change, end, sync=sync)

    patch.set(Commit, "add", add)


@_mutant("quiet-and-wake", "delete-all-quiet")
def _quiet_marks_not_replayed(patch: Patch) -> None:
    patch.set(Replay, "_mark", lambda self, frame: None)


@_mutant("ages", "quiet-and-wake")
def _quiet_forever_in_replay(patch: Patch) -> None:
    """An append does not end the quiet that a mark began."""
    old = patch.set(Replay, "_append", None)

    def append(self: Replay, frame: Any) -> None:
        slot = self._slot(frame)
        quiet = slot.quiet
        old(self, frame)
        slot.quiet = quiet

    patch.set(Replay, "_append", append)


@_mutant("two-shards", "two-shards-rotating")
def _incomplete_tick_kept(patch: Patch) -> None:
    patch.set(OpenedStore, "_drops", lambda self, last_tick: False)


@_mutant("batch-disk", "interleaved", "flips")
def _body_check_ignored(patch: Patch) -> None:
    def body_of(buffer: bytes, start: int, header: Any, seed: int) -> bytes:
        return bytes(buffer[start + 80 : start + 80 + header.body_len])

    patch.set(walk_module, "body_of", body_of)


@_mutant("flips@killed busy", "flips")
def _every_bad_end_is_torn(patch: Patch) -> None:
    patch.set(walk_module, "misses_bytes", lambda *_: True)


@_mutant("single-disk", "interleaved")
def _no_end_is_torn(patch: Patch) -> None:
    patch.set(walk_module, "misses_bytes", lambda *_: False)


@_mutant("flips@killed+power", "flips")
def _proof_of_durability_ignored(patch: Patch) -> None:
    old = patch.set(verdicts_module, "judge", None)
    patch.set(verdicts_module, "judge", lambda evidence: old(evidence._replace(proven=False)))


@_mutant("flips@stopped", "interleaved", "flips")
def _cut_wherever_it_does_not_check(patch: Patch) -> None:
    torn = next(row for row in verdicts_module.VERDICTS if row.letter == "B")
    old = patch.set(verdicts_module, "judge", None)

    def judge(evidence: Any) -> Any:
        row = old(evidence)
        return torn if row.verdict is verdicts_module.Verdict.DAMAGE else row

    patch.set(verdicts_module, "judge", judge)


@_mutant("rotation-unsynced@6", "two-shards@4", "rotation-unsynced")
def _holes_of_whole_blocks_passed_over(patch: Patch) -> None:
    """The link to the frame before is not looked at."""
    frames = patch.set(walk_module.ShardWalk, "_resume", None)

    def resume(self: Any, index: int) -> Any:
        place = frames(self, index)
        if place is not None:
            return place
        lsn = align_block(self._at)
        while lsn + FRAME_LEN_MIN <= self.pieces[index].end_lsn:
            header = parse_header(self._seed, self._bytes(index, lsn, HEADER_LEN), 0, lsn)
            if header is not None and lsn > self._at:
                self._at, self.last_lsn = lsn, lsn - header.back
                return index
            lsn += 4096
        return None

    patch.set(walk_module.ShardWalk, "_resume", resume)


# -- replay and topics ------------------------------------------------------------------------------------------------


@_mutant("retries")
def _idempotency_keys_not_replayed(patch: Patch) -> None:
    old = patch.set(replay_module, "decode_append_body", None)

    def decode(flags: int, count: int, body: bytes) -> Any:
        append = old(flags, count, body)
        append.key = None
        return append

    patch.set(replay_module, "decode_append_body", decode)


@_mutant("deletes")
def _deletes_not_replayed(patch: Patch) -> None:
    patch.set(Replay, "_delete", lambda self, frame: None)


@_mutant("deletes", "delete-all-quiet")
def _delete_acked_but_not_logged(patch: Patch) -> None:
    def delete(self: Core, ticket: Any, name: str, selector: Any) -> bool:
        slot = self.catalog.reader(name)
        ranges = resolve_delete(slot.topic, selector, self.now())
        self.commit.add_free(StagedDelete(slot, ticket, ranges, self.now()))
        return True

    patch.set(Core, "_delete", delete)


@_mutant("configs", "caps")
def _configuration_not_replayed(patch: Patch) -> None:
    patch.set(Replay, "_config", lambda self, frame: None)


@_mutant("recreated")
def _drops_not_replayed(patch: Patch) -> None:
    patch.set(Replay, "_drop", lambda self, frame: None)


@_mutant("recreated", "configs")
def _definitions_acked_before_the_sync(patch: Patch) -> None:
    """Create, Config and Drop are acked as their topic's class, not when they are on disk."""
    old = patch.set(Commit, "add", None)

    def add(self: Commit, change: Any, end: int, *, sync: bool) -> None:
        lazy = type(change).__name__ in ("StagedCreate", "StagedConfig", "StagedDrop")
        old(self, change, end, sync=sync and not lazy)

    patch.set(Commit, "add", add)


@_mutant("caps")
def _caps_off_by_one(patch: Patch) -> None:
    def evict(self: Topic) -> None:
        records = self.count - self.config.cap_records - 1 if self.config.cap_records else 0
        if records > 0:
            self._lose_below(self._beyond(records, 0), Reason.CAP)

    patch.set(Topic, "_evict_over_caps", evict)


@_mutant("ages")
def _ages_not_applied_in_replay(patch: Patch) -> None:
    patch.set(Topic, "_expire_records", lambda self, now: None)


@_mutant("ephemeral")
def _ephemeral_seqs_not_logged_ahead(patch: Patch) -> None:
    def stage(self: Ephemeral, slot: Any, change: Any, count: int) -> bool:
        self._commit.add_free(change, 0)
        return True

    patch.set(Ephemeral, "stage", stage)


@_mutant("ephemeral")
def _ephemeral_seqs_acked_before_their_block_is_synced(patch: Patch) -> None:
    old = patch.set(Commit, "add_free", None)
    patch.set(Commit, "add_free", lambda self, change, sync_lsn=0: old(self, change, 0))


@_mutant("single-memory", "power-failures")
def _window_of_nothing(patch: Patch) -> None:
    patch.set(replay_module, "SYNC_WINDOW", 1)


@_mutant("retries", "single-disk")
def _seq_reused_after_recovery(patch: Patch) -> None:
    """The newest record is forgotten, and its seq given to the next."""
    old = patch.set(OpenedStore, "frames", None)

    def frames(self: OpenedStore, progress: Any = None) -> Iterator[Any]:
        items = list(old(self, progress))
        yield from items[:-1] if items and items[-1].__class__.__name__ == "Frame" and items[-1].type == 1 else items

    patch.set(OpenedStore, "frames", frames)


# -- what was found by the simulator and by attacks, and mended -------------------------------------------------------


@_mutant("rotation-unsynced")
def _end_of_a_header_taken_for_damage(patch: Patch) -> None:
    """A header whose sector is missing, and behind it the body's first sector, which begins a block but no frame."""
    patch.set(walk_module, "resembles_header", lambda *_: True)


@_mutant("killed-again", "stop-start-stop", "rotation")
def _start_of_a_run_proves_the_block_before(patch: Patch) -> None:
    """Zeros between the last frame of a run and the block on which the next run begins, taken for a lost frame."""
    old = patch.set(walk_module.ShardWalk, "_unreadable", None)

    def unreadable(self: Any, index: int) -> Any:
        evidence, ahead, spot = old(self, index)
        return evidence._replace(proven=evidence.proven or spot < self._run_lsn), ahead, spot

    patch.set(walk_module.ShardWalk, "_unreadable", unreadable)


@_mutant("flips@stopped", "flips")
def _damaged_writes_evict_nothing(patch: Patch) -> None:
    """What a write had evicted comes back when its own records are lost to damage."""
    old = patch.set(Topic, "apply_gap", None)

    def apply_gap(self: Topic, first: int, last: int, reason: Any, ts: int, **_: Any) -> None:
        old(self, first, last, reason, ts)

    patch.set(Topic, "apply_gap", apply_gap)


@_mutant("sync-window@6", "sync-window")
def _acks_run_ahead_of_the_window(patch: Patch) -> None:
    patch.set(core_module, "SYNC_WINDOW", 1 << 40)


@_mutant("ephemeral-turns", "ephemeral-blocks")
def _turn_from_ephemeral_not_logged(patch: Patch) -> None:
    """Seqs that were given while a topic was ephemeral are not told to the log when it turns to another class."""
    patch.set(Ephemeral, "turns", lambda self, slot, config: True)


@_mutant("ephemeral-blocks@6", "ephemeral-blocks")
def _reserved_before_it_is_synced(patch: Patch) -> None:
    """A second block is reserved while the first one's frame is not on the disk, and the first counts as safe."""
    old = patch.set(Ephemeral, "stage", None)

    def stage(self: Ephemeral, slot: Any, change: Any, count: int) -> bool:
        if slot.tip + count + ephemeral_module.__dict__["SEQ_BLOCK"] // 2 > slot.reserved:
            slot.reserve_lsn = 0
        staged: bool = old(self, slot, change, count)
        return staged

    patch.set(Ephemeral, "stage", stage)


def used_modules() -> tuple[Any, ...]:
    """What is patched here (so that a renamed module shows as an import error, not as a mutant that does nothing)."""
    return (
        core_module,
        execute_module,
        recovery_module,
        verdicts_module,
        walk_module,
        prepare_module,
        wal_module,
        Shard,
    )
