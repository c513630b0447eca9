"""Reading log files: piecewise for recovery, and single frames for cold reads. Everything is checked after reading.

Nothing here decides what a bad frame means; that is `engine.store.verdicts`.
"""

from __future__ import annotations

from typing import Final

from engine.errors import StoreDamaged
from engine.formats.frame import CHECK_LEN, HEADER_LEN, FrameHeader, body_check, frame_len, parse_header
from engine.fs import Fs, OpenMode
from engine.wal.chain import LogFile

WINDOW: Final = 1 << 20
"""How much of a file is read at once; a longer frame is read whole."""
_FIRST_READ: Final = 16 * 1024
"""What a cold read asks for before it knows how long its frame is."""


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


def read_frame(fs: Fs, seed: int, file: LogFile, lsn: int) -> tuple[FrameHeader, bytes]:
    """The frame at `lsn`, checked. Raises `StoreDamaged` when it does not check, `OSError` when it cannot be read."""
    handle = fs.open(file.path, OpenMode.READ)
    try:
        offset = file.offset(lsn)
        data = fs.pread(handle, _FIRST_READ, offset)
        header = parse_header(seed, data, 0, lsn)
        if header is not None:
            total = frame_len(header.body_len)
            if total > len(data):
                data += fs.pread(handle, total - len(data), offset + len(data))
            body = body_of(data, 0, header, seed)
            if body is not None:
                return header, body
    finally:
        fs.close(handle)
    raise StoreDamaged(f"{file.path}: the frame at offset {offset} does not check any more")
