"""The place that a topic is moved through: files that are written once, and one that is made by the first who tries.

Place             a `SegmentStore` that belongs to nobody, with `put_once`
DirectoryPlace    over an `Fs`: a hard link is made or is not
BucketPlace       over `Objects`: a conditional put; a server that has none is noticed, and refused
PlaceFs           the files that a manifest lists below a directory of a place, as an `Fs` that only reads
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from engine.formats.manifest import LOCK_PATH
from engine.fs import Fs, OpenMode, Space, read_file
from engine.segment.objects import Budget, Objects, ObjectSegmentStore, Op, Requests
from engine.segment.tiers import TMP, LocalSegmentStore, SegmentStore

PROBE: Final = ".probe"
_WHOLE: Final = 1 << 30


class Place(SegmentStore, Protocol):
    """A place for offers."""

    def put_once(self, name: str, content: bytes, mine: str) -> bytes:
        """Make a file that is never changed; what it holds, which is what the first who tried has put. Durable when
        this returns. `mine` makes names that no other process uses. Raises `OSError`."""
        ...


class DirectoryPlace(LocalSegmentStore):
    """A directory."""

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self._made: set[str] = set()
        if fs.exists(LOCK_PATH):
            raise OSError(errno.EINVAL, "it is a data directory; name one that no daemon works in")

    def _make(self, directory: str) -> None:
        parts = directory.split("/")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        if any(path in self._made and not self._fs.exists(path) for path in above):
            self._made.clear()  # somebody has tidied up
        super()._make(directory)

    def put_once(self, name: str, content: bytes, mine: str) -> bytes:
        fs, temporary = self._fs, f"{name}.{mine}{TMP}"
        self._write(temporary, (content,))
        try:
            fs.link(temporary, name)
        except FileExistsError:
            pass  # somebody was faster, or an attempt of ours that was cut short
        fs.unlink(temporary)
        fs.fsync_dir(name.rpartition("/")[0])
        return read_file(fs, name)


class BucketPlace(ObjectSegmentStore):
    """A prefix in a bucket."""

    def __init__(self, objects: Objects, pause: Callable[[float], None] = lambda seconds: None) -> None:
        self._objects = objects
        self._requests = Requests()
        self._pause = pause
        self._budget = Budget()
        self._is_probed = False

    def put_once(self, name: str, content: bytes, mine: str) -> bytes:
        self._probe(f"{name}.{mine}{PROBE}")
        self._put_new(name, content)
        return self.get_range(name, 0, _WHOLE)

    def _put_new(self, name: str, content: bytes) -> bool:
        """Whether it was made; an attempt whose answer got lost may have made it."""
        try:
            self._ask(Op.PUT, name, lambda: self._objects.put(name, content, new=True))
        except FileExistsError:
            return False
        return True

    def _probe(self, name: str) -> None:
        """See that the server knows conditional puts: without them two could both be first."""
        if self._is_probed:
            return
        self._put_new(name, b"1")
        made = self._put_new(name, b"2")
        self.delete(name)
        if made:
            raise OSError(errno.EOPNOTSUPP, "the object store takes a conditional put for any put: topics cannot move")
        self._is_probed = True


class PlaceFs:
    """`Fs` of what a manifest lists below `base`. Everything that would change something raises `OSError`."""

    def __init__(self, place: SegmentStore, base: str, files: dict[str, int]) -> None:
        self._place = place
        self._base = base
        self._files = files
        self._open: dict[int, str] = {}
        self._last = 2

    def open(self, path: str, mode: OpenMode) -> int:
        if mode is not OpenMode.READ:
            raise _read_only(path)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "it is not in the manifest", path)
        self._last += 1
        self._open[self._last] = path
        return self._last

    def close(self, handle: int) -> None:
        del self._open[handle]

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        path = self._open[handle]
        length = min(length, self._files[path] - offset)
        return self._place.get_range(f"{self._base}/{path}", offset, length) if length > 0 else b""

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        return None

    def size(self, handle: int) -> int:
        return self._files[self._open[handle]]

    def list(self, path: str) -> list[str]:
        below = f"{path}/" if path else ""
        names = {name[len(below) :].partition("/")[0] for name in self._files if name.startswith(below)}
        if path and not names:
            raise FileNotFoundError(errno.ENOENT, "it is not in the manifest", path)
        return sorted(names)

    def exists(self, path: str) -> bool:
        return path in self._files or any(name.startswith(f"{path}/") for name in self._files)

    def lock(self) -> bool:
        return True

    def same_root(self) -> bool:
        return True

    def space(self) -> Space:
        return Space(0, 0, 0)

    def boot_id(self) -> str:
        return ""

    def kind(self) -> str:
        return ""

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        raise _read_only(self._open[handle])

    def fdatasync(self, handle: int) -> None:
        raise _read_only(self._open[handle])

    def allocate(self, handle: int, offset: int, length: int) -> None:
        raise _read_only(self._open[handle])

    def truncate(self, handle: int, length: int) -> None:
        raise _read_only(self._open[handle])

    def fsync_dir(self, path: str) -> None:
        raise _read_only(path)

    def rename(self, source: str, target: str) -> None:
        raise _read_only(source)

    def link(self, source: str, target: str) -> None:
        raise _read_only(source)

    def unlink(self, path: str) -> None:
        raise _read_only(path)

    def mkdir(self, path: str) -> None:
        raise _read_only(path)

    def rmdir(self, path: str) -> None:
        raise _read_only(path)


def _read_only(path: str) -> OSError:
    return OSError(errno.EROFS, "an export is only read", path)
