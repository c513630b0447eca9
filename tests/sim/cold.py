"""The cold tier of a simulated store: the directory `cold/` of the same disk, so that each crash is one of both. With
the mark of `make_bucket` in it the directory is a bucket's.

`Tier` is the way there for one process. It can be told to be gone (an unmounted directory), to hang, or to lie about
what was written; and it is closed while the engine does what must never wait for it, so that a start, a turn or a
checkpoint that goes there is an error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from engine.formats.manifest import STORE_PATH, StoreInfo, decode_meta
from engine.fs import Fs, OpenMode, read_file
from engine.segment.objects import ObjectSegmentStore
from engine.segment.tiers import ColdTier, LocalSegmentStore, SegmentStore, TieredFs
from tests.sim.bucket import Bucket
from tests.sim.media import Tree
from tests.sim.moods import Mood, Moody

COLD_DIR = "cold"
_PREFIX = f"{COLD_DIR}/"
_BUCKET = f"{COLD_DIR}/.bucket"


def make_bucket(fs: Fs) -> None:
    """The tier of this disk is a bucket from now on."""
    fs.mkdir(_BUCKET)
    fs.fsync_dir(COLD_DIR)


class Tier(Moody):
    """One process's way to the tier."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = ""

    @contextmanager
    def closed(self, why: str) -> Iterator[None]:
        """Nothing may go there meanwhile."""
        before, self._closed = self._closed, why
        try:
            yield
        finally:
            self._closed = before

    def check(self) -> None:
        """Raise when the tier is touched by what must not wait for it."""
        assert not self._closed, f"the cold tier is touched by {self._closed}"

    def over(self, fs: Fs) -> Fs:
        """The file system of a store with the tier behind it."""

        def opened(may_begin: bool) -> SegmentStore:
            self.check()
            store_id = bytes.fromhex(decode_meta(read_file(fs, STORE_PATH), StoreInfo).store_id)
            below = cast(Fs, _Below(fs, self))
            if fs.exists(_BUCKET):
                return ObjectSegmentStore(Bucket(below, self), store_id, may_begin=may_begin)
            return LocalSegmentStore(below, store_id, may_begin=may_begin)

        return cast(Fs, TieredFs(fs, ColdTier(opened)))


class _Below:
    """`Fs` of the directory."""

    def __init__(self, fs: Fs, tier: Tier) -> None:
        self._fs = fs
        self._tier = tier

    def __getattr__(self, name: str) -> object:
        self._tier.check()
        return getattr(self._fs, name)

    def _path(self, path: str) -> str:
        self._tier.check()
        if self._tier.mood is Mood.GONE:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _PREFIX + path

    def open(self, path: str, mode: OpenMode) -> int:
        return self._fs.open(self._path(path), mode)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        data = b"".join(buffers)
        if self._tier.mood is Mood.LYING:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return self._fs.pwritev(handle, (data,), offset)

    def fsync_dir(self, path: str) -> None:
        self._fs.fsync_dir(self._path(path) if path else COLD_DIR)

    def rename(self, source: str, target: str) -> None:
        self._fs.rename(self._path(source), self._path(target))

    def link(self, source: str, target: str) -> None:
        self._fs.link(self._path(source), self._path(target))

    def unlink(self, path: str) -> None:
        self._fs.unlink(self._path(path))

    def mkdir(self, path: str) -> None:
        self._fs.mkdir(self._path(path))

    def list(self, path: str) -> list[str]:
        self._tier.check()
        if self._tier.mood is Mood.GONE:
            return []
        return self._fs.list(self._path(path) if path else COLD_DIR)

    def exists(self, path: str) -> bool:
        return self._tier.mood is not Mood.GONE and self._fs.exists(self._path(path))


def cold_tree(tree: Tree) -> Tree:
    """What lies in the tier, by the names that it has there."""
    return {path[len(_PREFIX) :]: content for path, content in tree.items() if path.startswith(_PREFIX)}
