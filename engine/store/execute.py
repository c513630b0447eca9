"""The writing half of recovery: what the scan found to be true is made durable, and the log made ready for writes.

After a stop in good order the newest file is simply opened again. After any other, nothing is ever appended to the
files that were found; of each shard, in this order, each step synced before the next:

    1  what was cut off the end is copied to quarantine/
    2  valid frames from the last proven `durable_lsn` on are copied into the first file of a new run
    3  MANIFEST names the new files
    4  files that own nothing any more are removed, others end where the new run begins, temporary files go; snapshots
       that do not check go to quarantine/, and files of checkpoints that no snapshot names are removed

A crash after any of these leaves a directory that recovers to the same state: before 2 is renamed nothing has changed;
after it the new run holds what the old files held. Step 4 needs no sync of its own: what comes back owns nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import pairwise
from typing import Final

from xxhash import xxh3_64

from engine.errors import StoreIOError
from engine.formats.frame import align_block
from engine.formats.manifest import MANIFEST_PATH, Manifest, ShardEntry, encode_meta
from engine.fs import Fs, OpenMode, create, remedy, replace_file, write_whole
from engine.limits import EngineSettings
from engine.store.init import QUARANTINE_DIR, Identity, add_shard, entry_of
from engine.store.leftovers import Leftovers, set_aside, worth_a_look
from engine.store.scan import Directory, ShardFiles
from engine.store.snapshots import Start
from engine.store.walk import ShardWalk
from engine.wal.chain import DATA_START, TMP_SUFFIX, LogFile, Piece, owners
from engine.wal.prepare import OpenFile, abandon_log_file, begin_log_file, finish_log_file, zero_fill
from engine.wal.shard import Shard
from engine.wal.wal import Wal

_COPY: Final = 1 << 20


class Execution:
    """One run of the steps above; `report` gets a line for what an operator may want to know."""

    def __init__(
        self,
        fs: Fs,
        identity: Identity,
        directory: Directory,
        start: Start,
        settings: EngineSettings,
        now_ms: int,
        report: list[str],
        named: Collection[str] = (),
    ) -> None:
        self._named = named
        self._start = start
        self.number = start.number
        """The greatest number of a checkpoint that there is a file of."""
        self._fs = fs
        self._identity = identity
        self._directory = directory
        self._settings = settings
        self._now_ms = now_ms
        self._report = report

    def run(self, walks: list[ShardWalk], fresh_runs: bool, floors: tuple[int, int] = (1, 1)) -> Wal:
        """The log, ready for writes. `fresh_runs`: the last stop was not in good order. `floors`: the least order and
        tick of the next frame.

        Raises `StoreIOError` at the first error of the disk; nothing half-done counts at the next start.
        """
        try:
            for walk in walks:
                self._set_aside(walk)
            shards, entries = [], []
            for walk, found in zip(walks, self._directory.shards, strict=True):
                new_run = fresh_runs or walk.cut is not None or walk.holes > 0
                shard, entry = self._begin_run(walk, found) if new_run else self._reopen(walk, found)
                shards.append(shard)
                entries.append(entry)
            for index in range(len(shards), self._settings.wal_shards):
                log = add_shard(self._fs, index, self._identity.store_id, self._settings, self._now_ms)
                shards.append(self._opened(index, [log], log, 0, 0))
                entries.append(entry_of(log, 0, 0))
            manifest = Manifest(store_id=self._identity.store.store_id, shards=entries)
            if manifest != self._identity.manifest:
                replace_file(self._fs, MANIFEST_PATH, encode_meta(manifest))
        except OSError as error:
            said = f"recovery could not be finished: {error}; nothing counts as done: {remedy(error)}, then start again"
            raise StoreIOError(said) from error
        self._clean_up([shard.files for shard in shards])
        set_aside(self._fs, self._start, self._attempt)
        self._remove_leftovers(fresh_runs)
        wal = Wal(self._identity.store_id, self._settings, shards, entries, self._settings.wal_shards)
        wal.order = max(floors[0], *(1 + walk.order for walk in walks))
        wal.tick = max(floors[1], *(1 + walk.tick for walk in walks))
        return wal

    # --- step 1 ---------------------------------------------------------------------------------------------------

    def _set_aside(self, walk: ShardWalk) -> None:
        """Copy what was cut off to a file of its own, whole or not at all."""
        if walk.cut is None:
            return
        cut = walk.cut
        path = f"{QUARANTINE_DIR}/shard-{walk.shard:02d}-{cut.first_lsn:020d}-{walk.pieces[-1].file.run}.bytes"
        temporary = path + TMP_SUFFIX
        if not self._fs.exists(QUARANTINE_DIR):
            self._fs.mkdir(QUARANTINE_DIR)
            self._fs.fsync_dir("")
        if self._fs.exists(temporary):
            self._fs.unlink(temporary)
        handle = create(self._fs, temporary)
        try:
            offset = 0
            for chunk in _stream(self._fs, walk.pieces, cut.first_lsn, cut.end_lsn):
                write_whole(self._fs, handle, (chunk,), offset)
                offset += len(chunk)
            self._fs.fdatasync(handle)
        finally:
            self._fs.close(handle)
        self._fs.rename(temporary, path)
        self._fs.fsync_dir(QUARANTINE_DIR)
        self._report.append(
            f"{cut.path}: the log of shard {walk.shard} was cut at offset {cut.offset} (row {cut.row.letter}: "
            f"{cut.row.why}); {cut.end_lsn - cut.first_lsn} bytes were set aside in {path}"
        )

    # --- step 2 ---------------------------------------------------------------------------------------------------

    def _begin_run(self, walk: ShardWalk, found: ShardFiles) -> tuple[Shard, ShardEntry]:
        """The first file of the next run, with a copy of all frames that may not be on disk yet."""
        every = [*found.chain, *found.superseded, *found.leftovers]
        run = 1 + max(found.entry.run, *(log.run for log in every))
        first, end = walk.durable_lsn, walk.end_lsn
        tip = max(first, align_block(end))
        reserve = self._settings.wal_reserve_bytes
        least = DATA_START + tip - first + align_block(min(reserve, self._settings.wal_first_bytes))
        log = LogFile(walk.shard, first, run, max(self._settings.wal_first_bytes, least))
        handle, log = self._begin_file(log, least)
        filled = min(tip + align_block(self._settings.wal_fill_bytes), log.end_lsn)
        try:
            source = xxh3_64()
            lsn = first
            for chunk in _stream(self._fs, walk.pieces, first, end):
                source.update(chunk)
                write_whole(self._fs, handle, (chunk,), log.offset(lsn))
                lsn += len(chunk)
            zero_fill(self._fs, handle, log.offset(lsn), filled - lsn)
            self._fs.fdatasync(handle)
            _check_copy(self._fs, handle, log.offset(first), lsn - first, source.digest())
            finish_log_file(self._fs, log, handle)
        except BaseException:
            abandon_log_file(self._fs, log, handle)
            raise
        if end > first:
            self._report.append(f"shard {walk.shard}: {end - first} bytes of log were copied into {log.path}")
        chain, _ = owners([*found.chain, log])
        shard = Shard(walk.shard, chain, OpenFile(log, handle, filled), tip, end)
        shard.last_lsn = shard.durable_last = walk.last_lsn
        return shard, entry_of(log, found.entry.start_lsn, end)

    def _begin_file(self, log: LogFile, least: int) -> tuple[int, LogFile]:
        """A file of the usual size, or, on a full disk, of the least size that recovery can do with."""
        try:
            return begin_log_file(self._fs, log, self._identity.store_id, self._now_ms), log
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or log.size <= least:
                raise
        log = log._replace(size=least)
        return begin_log_file(self._fs, log, self._identity.store_id, self._now_ms), log

    # --- or, after a stop in good order ---------------------------------------------------------------------------

    def _reopen(self, walk: ShardWalk, found: ShardFiles) -> tuple[Shard, ShardEntry]:
        """The file that the log ended in, and the prepared one behind it, if there is one."""
        tip = max(walk.durable_lsn, align_block(walk.end_lsn))
        index = max(i for i, log in enumerate(found.chain) if log.first_lsn <= tip)
        current = found.chain[index]
        shard = self._opened(walk.shard, list(found.chain), current, tip, walk.end_lsn)
        shard.last_lsn = shard.durable_last = walk.last_lsn
        if index + 1 < len(found.chain):
            log = found.chain[index + 1]
            shard.next = OpenFile(log, self._fs.open(log.path, OpenMode.WRITE), log.first_lsn)
        newest = found.chain[-1]
        return shard, entry_of(newest, found.entry.start_lsn, max(walk.end_lsn, found.entry.end_lsn))

    def _opened(self, index: int, chain: list[LogFile], current: LogFile, tip: int, end: int) -> Shard:
        handle = self._fs.open(current.path, OpenMode.WRITE)
        filled = min(tip + align_block(self._settings.wal_fill_bytes), current.end_lsn)
        zero_fill(self._fs, handle, current.offset(tip), filled - tip)
        return Shard(index, chain, OpenFile(current, handle, filled), tip, end)

    # --- step 4 ---------------------------------------------------------------------------------------------------

    def _clean_up(self, chains: list[list[LogFile]]) -> None:
        """Give space back. What fails here is said, and tried again at the next start."""
        for found, chain in zip(self._directory.shards, chains, strict=False):
            kept = {log.path for log in chain}
            for log in (*found.chain, *found.superseded, *found.leftovers):
                if log.path not in kept:
                    self._remove(log.path)
            for before, after in pairwise(chain):
                if after.run > before.run and before.end_lsn > after.first_lsn:
                    self._attempt(before.path, partial(self._end, before.path, before.offset(after.first_lsn)))
        for path in self._directory.strays:
            self._remove(path)

    def _remove_leftovers(self, whatever_it_costs: bool) -> None:
        """Remove what a checkpoint that was under way has left, or the last process could not or did not remove."""
        try:
            if self._identity.fresh or not (whatever_it_costs or worth_a_look(self._fs)):
                return
            leftovers = Leftovers(self._fs, self._identity.store_id, self._start, self._named)
        except OSError as error:
            self._report.append(f"leftovers of checkpoints could not be looked for: {error}")
            return
        self.number = leftovers.number
        if leftovers.why_not is not None:
            self._report.append(f"leftovers of checkpoints stay: {leftovers.why_not}")
        for path in leftovers.paths:
            self._remove(path)

    def _remove(self, path: str) -> None:
        self._attempt(path, partial(self._fs.unlink, path))

    def _end(self, path: str, length: int) -> None:
        """End a file at `length`."""
        handle = self._fs.open(path, OpenMode.WRITE)
        try:
            self._fs.truncate(handle, length)
        finally:
            self._fs.close(handle)

    def _attempt(self, path: str, do: Callable[[], None]) -> None:
        try:
            do()
        except OSError as error:
            self._report.append(f"{path} could not be tidied up: {error}")


def _stream(fs: Fs, parts: list[Piece], lsn: int, end_lsn: int) -> Iterator[bytes]:
    """The bytes of a stretch of a shard's stream, from the files that own them."""
    for part in parts:
        if part.end_lsn <= lsn or lsn >= end_lsn:
            continue
        while lsn < part.file.first_lsn:
            # A salvage goes on behind a missing file: its place is zeros.
            chunk = bytes(min(_COPY, part.file.first_lsn - lsn))
            yield chunk
            lsn += len(chunk)
        handle = fs.open(part.file.path, OpenMode.READ)
        try:
            while lsn < min(part.end_lsn, end_lsn):
                length = min(_COPY, part.end_lsn - lsn, end_lsn - lsn)
                chunk = fs.pread(handle, length, part.file.offset(lsn))
                if not chunk:
                    raise OSError(errno.EIO, f"{part.file.path} ends at offset {part.file.offset(lsn)}")
                yield chunk
                lsn += len(chunk)
        finally:
            fs.close(handle)


def _check_copy(fs: Fs, handle: int, offset: int, length: int, digest: bytes) -> None:
    """Read back what was copied."""
    copied = xxh3_64()
    while length > 0:
        chunk = fs.pread(handle, min(_COPY, length), offset)
        if not chunk:
            break
        copied.update(chunk)
        offset += len(chunk)
        length -= len(chunk)
    if copied.digest() != digest:
        raise OSError(errno.EIO, "what was copied into the new log file does not read back")
