"""One shard of the log: its tip, the files that it is written to, and what is staged, written and synced.

    durable_lsn ≤ written_lsn ≤ tip_lsn            of the stream
    staged      → GroupWrite → written             one vectored write a tick, on the loop
    written     → SyncJob    → durable             fdatasync in a thread; the tip jumps to a fresh block as it begins

A shard that met an error of the disk is `failed` for good: what a failed write or sync left in the page cache cannot
be known, so nothing more is written, and only a restart, which reads what is there, makes it writable again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from engine.formats.append import SharedBody
from engine.formats.frame import NO_FRAME
from engine.fs import IOV_MAX, Fs, write_whole
from engine.wal.chain import DATA_START, LogFile
from engine.wal.prepare import OpenFile

Staged: TypeAlias = tuple[
    OpenFile, int, int, int, int, int, int, bytes | tuple[bytes, ...] | SharedBody, int, int, int, int
]
"""file, type, flags, count, topic_id, first_seq, ts, body, body_len, lsn, back, order: a plain tuple, one for each
frame of the hot path. A shared body knows count and body_len itself."""

_RESERVE_SHARE: Final = 4
"""The reserve for control frames takes at most this share of a file, so that small files stay usable."""


class GroupWrite(msgspec.Struct, eq=False):
    """Everything that one tick staged on one shard. `run` is called on the loop; an error is fail-stop."""

    shard: int
    tick: int
    end_lsn: int
    writes: list[tuple[OpenFile, int, list[bytes]]]
    """(file, lsn, buffers): one entry, or two where the log goes on in its next file."""

    def run(self, fs: Fs) -> None:
        """Write it whole. Raises `OSError`, after which nothing is known about any of it."""
        for file, lsn, buffers in self.writes:
            log = file.log
            offset = DATA_START + lsn - log.first_lsn
            if len(buffers) > IOV_MAX:
                write_whole(fs, file.handle, buffers, offset)
                continue
            wrote = fs.pwritev(file.handle, buffers, offset)
            if len(buffers) == 1 and wrote == len(buffers[0]):
                continue  # nearly always
            for index, buffer in enumerate(buffers):
                if wrote < len(buffer):
                    rest: list[bytes | memoryview] = [memoryview(buffer)[wrote:], *buffers[index + 1 :]]
                    done = sum(map(len, buffers[:index])) + wrote
                    write_whole(fs, file.handle, rest, offset + done)
                    break
                wrote -= len(buffer)


class SyncJob:
    """One `fdatasync` of everything that a shard has written. `run` is called in a thread."""

    __slots__ = ("_current", "_retired", "end_lsn", "last_lsn", "lsn", "shard")

    def __init__(
        self, shard: int, retired: list[OpenFile], current: OpenFile, lsn: int, end_lsn: int, last_lsn: int
    ) -> None:
        self.shard = shard
        self.lsn = lsn
        """Everything below is durable once the job is done; aligned to a block."""
        self.end_lsn = end_lsn
        """Where the last frame below it ends."""
        self.last_lsn = last_lsn
        """Where that frame begins."""
        self._retired = retired
        self._current = current

    def run(self, fs: Fs) -> None:
        """Raises `OSError` at the first file that does not sync. Files that the log has left behind are closed."""
        for file in self._retired:
            fs.fdatasync(file.handle)
            fs.close(file.handle)
        fs.fdatasync(self._current.handle)


class Shard:
    """See above; mutable, owned by the loop, changed only by `engine.wal.wal`."""

    __slots__ = (
        "anew",
        "append_limit",
        "chore_lsn",
        "current",
        "durable_end",
        "durable_last",
        "durable_lsn",
        "failed",
        "files",
        "full",
        "index",
        "last_end",
        "last_lsn",
        "next",
        "reserve",
        "retired",
        "retry_ms",
        "run",
        "staged",
        "syncing",
        "tip_lsn",
        "want",
        "written_lsn",
    )

    def __init__(self, index: int, files: list[LogFile], current: OpenFile, tip_lsn: int, end_lsn: int) -> None:
        self.index = index
        self.files = files
        """The chain of owners, for reading; the newest last."""
        self.current = current
        self.next: OpenFile | None = None
        self.retired: list[OpenFile] = []
        """Files that the log has left behind since the last sync began."""
        self.run = current.log.run
        self.tip_lsn = tip_lsn
        """Where the next frame goes."""
        self.written_lsn = tip_lsn
        self.durable_lsn = tip_lsn
        """All below is on disk; aligned to a block."""
        self.durable_end = end_lsn
        """Where the last frame below `durable_lsn` ends."""
        self.last_lsn = NO_FRAME
        """The last frame's lsn, for `back`."""
        self.last_end = end_lsn
        """Where it ends."""
        self.durable_last = NO_FRAME
        """The last frame below `durable_lsn`: the first one behind it points back to it."""
        self.staged: list[Staged] = []
        self.syncing = False
        self.failed: OSError | None = None
        self.full: OSError | None = None
        """Why the last preparation found no space; None while it may still succeed."""
        self.retry_ms = 0
        self.want = 0
        """Bytes of the largest frame that found no room."""
        self.reserve = 0
        self.chore_lsn = 0
        """No chore is needed before the tip is beyond this."""
        self.anew = False
        """It is to go on in a small file, which is being seen to."""
        self.append_limit = 0
        """An append that ends at or below this fits; a shortcut for the common case."""

    @property
    def cut_lsn(self) -> int:
        """All that was ever written below is on disk: this is the tip where no frame is behind `durable_lsn`."""
        return self.tip_lsn if self.last_end <= self.durable_lsn else self.durable_lsn

    def set_reserve(self, reserve_bytes: int, file_bytes: int) -> None:
        """Fix how much usable space appends leave to control frames."""
        self.reserve = min(reserve_bytes, (file_bytes - DATA_START) // _RESERVE_SHARE)
        self.set_limit()

    def set_limit(self) -> None:
        """Work `append_limit` out again, after a file or its filled part changed."""
        ahead = self.next.room if self.next is not None else 0
        filled = self.current.filled_lsn
        self.append_limit = min(filled, filled + ahead - self.reserve)

    def fits(self, total: int, spare: int) -> bool:
        """Whether a frame of `total` bytes has room, and `spare` usable bytes are left behind it."""
        end = self.tip_lsn + total
        current = self.current
        ahead = self.next.room if self.next is not None else 0
        if end <= current.filled_lsn:
            return current.filled_lsn - end + ahead >= spare
        if end <= current.log.end_lsn:
            return False
        return ahead - total >= spare

    def maybe_file_at(self, first_lsn: int) -> OpenFile | None:
        """The file that a chore worked on: the log may have gone on into it meanwhile, or past it (then None)."""
        for file in (self.current, self.next):
            if file is not None and file.log.first_lsn == first_lsn:
                return file
        return None

    def rotate(self) -> None:
        """Go on in the prepared file. What is left of the old one stays zeros; a sync gives its handle back."""
        assert self.next is not None, "staged without room"
        self.retired.append(self.current)
        self.current = self.next
        self.next = None
        self.tip_lsn = self.current.log.first_lsn
        self.anew = False
        self.set_limit()
