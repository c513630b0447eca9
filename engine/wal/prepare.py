"""Chores: the slow work that makes room in the log ahead of the writes, done in a thread.

A log file is made under a temporary name: created, allocated whole, its header and its first stretch of zeros written,
synced, renamed, its directory synced; then MANIFEST names it; only then is it used. The rest is zero-filled in steps
while the log grows into it, so that a sync of the log changes no metadata and a start does not wait for 64 MiB of
zeros. Only the filled part is usable (`OpenFile.filled_lsn`).

A chore's `run` touches nothing that the loop owns: what it needs was copied in, what it made is carried back. It works
through handles of its own, so that an error of the disk is reported to it *and* to the sync of the log, not to
whichever asks first.
"""

from __future__ import annotations

import errno
from typing import Final, Protocol

from engine.formats.frame import align_block
from engine.formats.header import FORMAT_VERSION, FileHeader, FileKind, pack_file_header
from engine.formats.manifest import MANIFEST_PATH
from engine.fs import Fs, OpenMode, create, replace_file, write_whole
from engine.wal.chain import DATA_START, TMP_SUFFIX, LogFile, shard_dir

RETRY_MS: Final = 1000
"""Pause between attempts to get space on a full disk."""
SPACE_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that leave the log whole and may pass by themselves; any other one ends the shard."""
_RESERVE_SHARE: Final = 8
"""The free space that allocation leaves alone is at most this share of the file system."""
_ZEROS: Final = bytes(256 * 1024)
"""Zeros are written in pieces of this size: a longer write would hold the file's lock against the loop's writes."""


class OpenFile:
    """A log file that is written to: mutable, owned by the loop."""

    __slots__ = ("filled_lsn", "handle", "log")

    def __init__(self, log: LogFile, handle: int, filled_lsn: int) -> None:
        self.log = log
        self.handle = handle
        self.filled_lsn = filled_lsn
        """Frames may be written below this; a multiple of 4096 away from the file's first lsn."""

    @property
    def room(self) -> int:
        """Usable bytes if nothing is written yet."""
        return self.filled_lsn - self.log.first_lsn


class Chore(Protocol):
    """Work for a thread. The driver runs it once, and hands it and the error it raised, if any, to `chore_done`."""

    shard: int

    def run(self, fs: Fs) -> None:
        """Do the work; raises `OSError`."""
        ...


def zero_fill(fs: Fs, handle: int, offset: int, length: int) -> None:
    """Write zeros over a range of a file."""
    while length > 0:
        piece = _ZEROS[:length]
        write_whole(fs, handle, (piece,), offset)
        offset += len(piece)
        length -= len(piece)


def file_header(log: LogFile, store_id: bytes, created_ms: int) -> bytes:
    """The header block of a log file."""
    header = FileHeader(FORMAT_VERSION, FileKind.WAL, log.run, store_id, log.shard, log.first_lsn, created_ms)
    return pack_file_header(header).ljust(DATA_START, b"\0")


def begin_log_file(fs: Fs, log: LogFile, store_id: bytes, created_ms: int) -> int:
    """Create a log file under its temporary name, allocated, with its header written; returns its handle."""
    temporary = log.path + TMP_SUFFIX
    if fs.exists(temporary):
        fs.unlink(temporary)
    handle = create(fs, temporary)
    try:
        fs.allocate(handle, 0, log.size)
        write_whole(fs, handle, (file_header(log, store_id, created_ms),), 0)
    except BaseException:
        abandon_log_file(fs, log, handle)
        raise
    return handle


def finish_log_file(fs: Fs, log: LogFile, handle: int) -> None:
    """Make a log file durable with all that was written to it, under its own name."""
    fs.fdatasync(handle)
    fs.rename(log.path + TMP_SUFFIX, log.path)
    fs.fsync_dir(shard_dir(log.shard))


def abandon_log_file(fs: Fs, log: LogFile, handle: int) -> None:
    """Give up a file that was begun. What cannot be removed now is removed at the next start."""
    fs.close(handle)
    try:
        fs.unlink(log.path + TMP_SUFFIX)
    except OSError:
        pass


def _sync_in_use(fs: Fs, handle: int) -> None:
    """Sync a file that may hold frames. Whatever the error, it may have cost them their pages: it is never lack of
    space that passes."""
    try:
        fs.fdatasync(handle)
    except OSError as error:
        raise OSError(errno.EIO, f"a log file could not be synced: {error}") from error


def check_space(fs: Fs, wanted: int, reserve_bytes: int) -> None:
    """Raise ENOSPC unless `wanted` bytes can be taken and the reserve for recovery still be free."""
    space = fs.space()
    reserve = min(reserve_bytes, space.bytes_total // _RESERVE_SHARE)
    if space.bytes_free < wanted + reserve:
        raise OSError(
            errno.ENOSPC,
            f"{space.bytes_free} bytes are free; the next log file takes {wanted} and {reserve} must stay free",
        )


class Prepare:
    """Make the next log file of a shard, and name it in MANIFEST."""

    __slots__ = ("_created_ms", "_fill", "_manifest", "_reserve_bytes", "_store_id", "log", "made", "shard")

    def __init__(
        self, log: LogFile, store_id: bytes, created_ms: int, fill: int, reserve_bytes: int, manifest: bytes
    ) -> None:
        self.shard = log.shard
        self.log = log
        self.made: OpenFile | None = None
        self._store_id = store_id
        self._created_ms = created_ms
        self._fill = min(align_block(fill), log.size - DATA_START)
        self._reserve_bytes = reserve_bytes
        self._manifest = manifest

    def run(self, fs: Fs) -> None:
        """Nothing is used before this has returned; a file left by an attempt that failed late is replaced."""
        check_space(fs, self.log.size, self._reserve_bytes)
        handle = begin_log_file(fs, self.log, self._store_id, self._created_ms)
        try:
            zero_fill(fs, handle, DATA_START, self._fill)
            finish_log_file(fs, self.log, handle)
            replace_file(fs, MANIFEST_PATH, self._manifest)
        except BaseException:
            abandon_log_file(fs, self.log, handle)
            raise
        self.made = OpenFile(self.log, handle, self.log.first_lsn + self._fill)


class Fill:
    """Zero-fill the next step of a log file."""

    __slots__ = ("_length", "_log", "filled_lsn", "first_lsn", "shard")

    def __init__(self, file: OpenFile, length: int) -> None:
        self.shard = file.log.shard
        self.first_lsn = file.log.first_lsn
        self._log = file.log
        self._length = min(align_block(length), file.log.end_lsn - file.filled_lsn)
        self.filled_lsn = file.filled_lsn + self._length

    def run(self, fs: Fs) -> None:
        """The zeros are synced here so that no sync of the log has to carry them."""
        handle = fs.open(self._log.path, OpenMode.WRITE)
        try:
            zero_fill(fs, handle, self._log.offset(self.filled_lsn - self._length), self._length)
            _sync_in_use(fs, handle)
        finally:
            fs.close(handle)


class Extend:
    """Make a prepared, still empty log file long enough for a frame that is larger than a file."""

    __slots__ = ("_manifest", "_reserve_bytes", "log", "longer", "shard")

    def __init__(self, log: LogFile, size: int, reserve_bytes: int, manifest: bytes) -> None:
        self.shard = log.shard
        self.log = log
        self.longer = log._replace(size=size)
        self._reserve_bytes = reserve_bytes
        self._manifest = manifest

    def run(self, fs: Fs) -> None:
        """MANIFEST knows the new size before anything is written there."""
        check_space(fs, self.longer.size - self.log.size, self._reserve_bytes)
        handle = fs.open(self.log.path, OpenMode.WRITE)
        try:
            fs.allocate(handle, self.log.size, self.longer.size - self.log.size)
            _sync_in_use(fs, handle)
        finally:
            fs.close(handle)
        replace_file(fs, MANIFEST_PATH, self._manifest)


class Shorten:
    """Give back what a prepared, still empty log file has beyond a size."""

    __slots__ = ("_manifest", "log", "shard")

    def __init__(self, log: LogFile, manifest: bytes) -> None:
        self.shard = log.shard
        self.log = log
        """As it is going to be; nothing is written behind its end any more."""
        self._manifest = manifest

    def run(self, fs: Fs) -> None:
        """MANIFEST knows the size before the file has it: one that is longer than that is whole, a shorter one is not.
        Whatever fails, the file is at least as long as it has to be."""
        replace_file(fs, MANIFEST_PATH, self._manifest)
        handle = fs.open(self.log.path, OpenMode.WRITE)
        try:
            fs.truncate(handle, self.log.size)
        finally:
            fs.close(handle)


class Trim:
    """Let MANIFEST say where the kept log begins, then remove the files that end before."""

    __slots__ = ("_manifest", "left", "logs", "shard")

    def __init__(self, shard: int, logs: list[LogFile], manifest: bytes) -> None:
        self.shard = shard
        self.logs = logs
        self.left: list[str] = []
        self._manifest = manifest

    def run(self, fs: Fs) -> None:
        """A file that cannot be removed is a leftover, which the next start removes; `left` names it, and why."""
        replace_file(fs, MANIFEST_PATH, self._manifest)
        for log in self.logs:
            try:
                fs.unlink(log.path)
            except OSError as error:
                self.left.append(f"{log.path}: {error.strerror}")
