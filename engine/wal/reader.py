"""Reading log files: piecewise for recovery, and single frames for cold reads. Everything is checked after reading.

Nothing here decides what a bad frame means; that is `engine.store.verdicts`.
"""

from __future__ import annotations

from typing import Final

from engine.errors import StoreDamaged
from engine.formats.frame import CHECK_LEN, HEADER_LEN, FrameHeader, body_check, frame_len, parse_header
from engine.fs import REFUSED, Fs, OpenMode
from engine.wal.chain import LogFile

WINDOW: Final = 1 << 20
"""How much of a file is read at once; a longer frame is read whole."""
PIECE: Final = 32 * 1024
"""What a cold read asks for: its frame, and its neighbours."""
HANDLES_MAX: Final = 4
"""Log files that cold reads keep open."""
_KEEP_MAX: Final = 1 << 20
"""A frame longer than this is not kept in memory after it was read."""


class Window:
    """A file read piecewise, forward, with one window of it in memory."""

    __slots__ = ("_base", "_data", "_fs", "_handle", "file")

    def __init__(self, fs: Fs, file: LogFile) -> None:
        self.file = file
        self._fs = fs
        self._handle = fs.open(file.path, OpenMode.READ)
        self._data = b""
        self._base = 0

    def close(self) -> None:
        """Give the handle back."""
        self._fs.close(self._handle)

    def at(self, lsn: int, length: int) -> tuple[bytes, int]:
        """A buffer and an offset in it where the `length` bytes at `lsn` begin; fewer follow at the end of the file."""
        offset = self.file.offset(lsn)
        start = offset - self._base
        if start < 0 or start + length > len(self._data):
            self._data = self._fs.pread(self._handle, max(WINDOW, length), offset)
            self._base, start = offset, 0
        return self._data, start


def body_of(buffer: bytes, start: int, header: FrameHeader, seed: int) -> bytes | None:
    """The body of the frame whose header is at `start`, or None when it is cut or fails its check."""
    body_start = start + HEADER_LEN
    body_end = body_start + header.body_len
    end = start + frame_len(header.body_len)
    body = buffer[body_start:body_end]
    if buffer[end - CHECK_LEN : end] != body_check(body, seed):
        return None
    return body


class FrameReader:
    """Single frames out of log files, for cold reads: a few open files, and the last piece that was read.

    The frames of one block of a topic lie close together, so most reads find theirs in that piece. It may be older
    than the frame (read before this part of the file was written): what does not check in it is read again.
    """

    __slots__ = ("_base", "_data", "_fs", "_handles", "_path", "_seed")

    def __init__(self, fs: Fs, seed: int) -> None:
        self._fs = fs
        self._seed = seed
        self._handles: dict[str, int] = {}
        """By path, the one used longest ago first."""
        self._path = ""
        self._base = 0
        self._data = b""

    def read(self, file: LogFile, lsn: int) -> tuple[FrameHeader, bytes]:
        """The frame at `lsn`, checked. Raises `StoreDamaged` when it does not check, `OSError` when it cannot be
        read."""
        path, offset = file.path, file.offset(lsn)
        if path == self._path and self._base <= offset < self._base + len(self._data):
            found = self._parsed(offset, lsn)
            if found is not None:
                return found
        self._path, self._base = path, offset
        try:
            self._data = self._pread(path, PIECE, offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            # A bad sector behind the frame is no reason to do without it.
            self._data = self._pread(path, HEADER_LEN, offset)
        header = parse_header(self._seed, self._data, 0, lsn)
        if header is not None:
            total = frame_len(header.body_len)
            if total > len(self._data):
                self._data += self._pread(path, total - len(self._data), offset + len(self._data))
            found = self._parsed(offset, lsn)
            if total > _KEEP_MAX:
                self._data = b""
            if found is not None:
                return found
        self._data = b""
        raise StoreDamaged(f"{path}: the frame at offset {offset} does not check any more")

    def close(self) -> None:
        """Give all handles back."""
        while self._handles:
            self._fs.close(self._handles.popitem()[1])
        self._data = b""

    def _parsed(self, offset: int, lsn: int) -> tuple[FrameHeader, bytes] | None:
        """The frame out of the piece that is held."""
        start = offset - self._base
        header = parse_header(self._seed, self._data, start, lsn)
        if header is None:
            return None
        body = body_of(self._data, start, header, self._seed)
        return None if body is None else (header, body)

    def _pread(self, path: str, length: int, offset: int) -> bytes:
        handle = self._handles.pop(path, None)
        if handle is None:
            while len(self._handles) >= HANDLES_MAX:
                self._fs.close(self._handles.pop(next(iter(self._handles))))
            handle = self._fs.open(path, OpenMode.READ)
        self._handles[path] = handle
        return self._fs.pread(handle, length, offset)
