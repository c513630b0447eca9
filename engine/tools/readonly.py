"""A directory that is looked at and never touched: every call that would change something is refused.

The tools give this to code that a start uses for writing too (opening a store, replay), so that a mistake in the tools
is an error, and never a changed byte in a store that somebody wants to save.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Never

from engine.fs import Fs, OpenMode, OsFs, Space


class NoWrites:
    """The calls of `Fs` that change something, refused."""

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        refuse("a file")

    def fdatasync(self, handle: int) -> None:
        refuse("a file")

    def fsync_dir(self, path: str) -> None:
        refuse(path)

    def rename(self, source: str, target: str) -> None:
        refuse(source)

    def link(self, source: str, target: str) -> None:
        refuse(source)

    def unlink(self, path: str) -> None:
        refuse(path)

    def rmdir(self, path: str) -> None:
        refuse(path)

    def mkdir(self, path: str) -> None:
        refuse(path)

    def allocate(self, handle: int, offset: int, length: int) -> None:
        refuse("a file")

    def truncate(self, handle: int, length: int) -> None:
        refuse("a file")


class View(NoWrites):
    """What is the same for all that is `Fs` over another one and only reads: it takes no lock, nobody replaces it."""

    def __init__(self, fs: Fs) -> None:
        self._fs = fs

    def lock(self) -> bool:
        return True

    def same_root(self) -> bool:
        return True

    def kind(self) -> str:
        return self._fs.kind()

    def space(self) -> Space:
        return self._fs.space()

    def boot_id(self) -> str:
        return self._fs.boot_id()


class ReadOnlyFs(NoWrites, OsFs):  # type: ignore[misc]  # what NoWrites refuses need not be a method of OsFs
    """`Fs` on a real directory that only reads. It takes no lock: the caller knows that nobody is writing."""

    def open(self, path: str, mode: OpenMode) -> int:
        if mode is not OpenMode.READ:
            refuse(path)
        return super().open(path, mode)

    def lock(self) -> bool:
        return True


def refuse(path: str) -> Never:
    """Say that nothing is written here."""
    raise OSError(errno.EROFS, "this directory is only looked at", path)
