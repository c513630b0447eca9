"""A directory on a disk that refuses some of it, read as far as that goes: what is left of a file is worth saving, too.

    a block that is refused      reads as bytes that pass no check (zeros would say that nothing was written)
    a file that does not open    is there, and empty
    a directory                  is there, and empty: which files it had nobody knows

So the checks that know damage say what each of them costs, as they do for bytes that are not what was written. What was
refused once is not asked for again: a bad sector takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from engine.fs import REFUSED, Fs, OpenMode
from engine.tools.readonly import View
from engine.topic.rangeset import RangeSet

BLOCK: Final = 4096
"""What the kernel reads at once, and so the least that a bad sector takes with it."""
_FILL: Final = b"\xff" * BLOCK
_EMPTY: Final = 1 << 39
"""Handles from here on are of files that do not open."""


class Unread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the disk refuses: a stretch of a file, or all of a file or a directory."""

    path: str
    offset: int = 0
    length: int = -1
    """-1: it does not open."""
    why: str


class Readable(View):
    """`Fs` over another one, with what that refuses made up."""

    def __init__(self, fs: Fs) -> None:
        super().__init__(fs)
        self._paths: dict[int, str] = {}
        self._bad: dict[str, RangeSet] = {}
        """By path: blocks that are refused."""
        self._whys: dict[str, str] = {}
        """By path: what the disk said last."""
        self._closed: dict[str, str] = {}
        """Files and directories that do not open, and why."""
        self.misses_names = False
        """A directory cannot be listed: what was in it is not known."""

    def unread(self) -> Iterator[Unread]:
        """All that was refused until now, by path."""
        for path in sorted({*self._bad, *self._closed}):
            if path in self._closed:
                yield Unread(path=path, why=self._closed[path])
            for first, last in self._bad.get(path, ()):
                length = (last + 1 - first) * BLOCK
                yield Unread(path=path, offset=first * BLOCK, length=length, why=self._whys[path])

    def open(self, path: str, mode: OpenMode) -> int:
        if path not in self._closed:
            try:
                handle = self._fs.open(path, mode)
            except OSError as error:
                self._close(path, error)
            else:
                self._paths[handle] = path
                return handle
        return _EMPTY

    def close(self, handle: int) -> None:
        if handle != _EMPTY:
            del self._paths[handle]
            self._fs.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        if handle == _EMPTY:
            return b""
        bad = self._bad.get(self._paths[handle])
        if bad is None or not bad.between(offset // BLOCK, (offset + length - 1) // BLOCK):
            try:
                return self._fs.pread(handle, length, offset)
            except OSError as error:
                if error.errno not in REFUSED:
                    raise
        end = min(offset + length, self._fs.size(handle))
        return b"".join(self._blocks(handle, offset, end))

    def _blocks(self, handle: int, at: int, end: int) -> Iterator[bytes]:
        """Bytes of a file, block by block."""
        path = self._paths[handle]
        bad = self._bad.setdefault(path, RangeSet())
        while at < end:
            block = at // BLOCK
            stop = min((block + 1) * BLOCK, end)
            if block not in bad:
                try:
                    yield self._fs.pread(handle, stop - at, at)
                except OSError as error:
                    self._whys[path] = _why(error)
                    bad.add(block, block)
            if block in bad:
                yield _FILL[: stop - at]
            at = stop

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes:
        return self.pread(handle, length, offset)

    def size(self, handle: int) -> int:
        return 0 if handle == _EMPTY else self._fs.size(handle)

    def list(self, path: str) -> list[str]:
        if path not in self._closed:
            try:
                return self._fs.list(path)
            except OSError as error:
                self._close(path, error)
        self.misses_names = True
        return []

    def exists(self, path: str) -> bool:
        try:
            return path in self._closed or self._fs.exists(path)
        except OSError as error:
            self._close(path, error)
            return True

    def _close(self, path: str, error: OSError) -> None:
        self._closed[path] = _why(error)


def _why(error: OSError) -> str:
    """What is said of bytes that are refused. Raises any other error again."""
    if error.errno not in REFUSED:
        raise error
    return error.strerror or str(error)
