"""A disk that only reads: the files of one crash image as a file system that refuses every change.

Most images are looked at on it (`engine.core.Inspection`), which shows in passing that reading a store writes nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from engine.fs import OpenMode, Space
from tests.sim.media import Tree


class StillDisk:
    """`engine.fs.Fs` over a tree; EROFS for what would change it."""

    __slots__ = ("_boot", "_contents", "_tree")

    def __init__(self, tree: Tree, boot: str) -> None:
        self._tree = tree
        self._boot = boot
        self._contents: list[bytes] = []

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: OpenMode) -> int:
        content = self._tree.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if mode is not OpenMode.READ:
            self._refuse()
        self._contents.append(content)
        return len(self._contents) - 1

    def close(self, handle: int) -> None:
        pass

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        return self._contents[handle][offset : offset + length]

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes:
        return self.pread(handle, length, offset)

    def size(self, handle: int) -> int:
        return len(self._contents[handle])

    def list(self, path: str) -> list[str]:
        if path and self._tree.get(path, b"") is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        prefix = f"{path}/" if path else ""
        names = [name[len(prefix) :] for name in self._tree if name.startswith(prefix)]
        return sorted(name for name in names if "/" not in name)

    def exists(self, path: str) -> bool:
        return path in self._tree

    def lock(self) -> bool:
        return True

    def same_root(self) -> bool:
        return True

    def space(self) -> Space:
        return Space(0, 0, 0)

    def boot_id(self) -> str:
        return self._boot

    def kind(self) -> str:
        return "ext4"

    # -- writing ------------------------------------------------------------------------------------------------------

    def _refuse(self, *_: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        self._refuse()

    def fdatasync(self, handle: int) -> None:
        self._refuse()

    def fsync_dir(self, path: str) -> None:
        self._refuse()

    def rename(self, source: str, target: str) -> None:
        self._refuse()

    def link(self, source: str, target: str) -> None:
        self._refuse()

    def unlink(self, path: str) -> None:
        self._refuse()

    def rmdir(self, path: str) -> None:
        self._refuse()

    def mkdir(self, path: str) -> None:
        self._refuse()

    def allocate(self, handle: int, offset: int, length: int) -> None:
        self._refuse()

    def truncate(self, handle: int, length: int) -> None:
        self._refuse()


class BadDisk(StillDisk):
    """The same with places that it refuses: stretches of files, and files and directories that do not open."""

    def __init__(
        self, tree: Tree, boot: str, bad: Mapping[str, tuple[int, int]] | None = None, closed: Sequence[str] = ()
    ) -> None:
        """`bad`: by path, the first offset that is refused and the one behind the last."""
        super().__init__(tree, boot)
        self._bad = dict(bad or {})
        self._closed = frozenset(closed)
        self._paths: list[str] = []
        self.asked = 0
        """Reads that were refused."""

    def open(self, path: str, mode: OpenMode) -> int:
        self._check(path)
        handle = super().open(path, mode)
        self._paths.append(path)
        return handle

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        path = self._paths[handle]
        first, end = self._bad.get(path, (0, 0))
        if offset < end and first < offset + length:
            self.asked += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().pread(handle, length, offset)

    def list(self, path: str) -> list[str]:
        self._check(path)
        return super().list(path)

    def exists(self, path: str) -> bool:
        self._check(path)
        return super().exists(path)

    def _check(self, path: str) -> None:
        if path in self._closed:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
