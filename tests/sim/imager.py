"""Crash images, made cheaply: what two images share is made and hashed once.

`FakeDisk.tree_after` says what an image is; an `Imager` gives the same trees (a test compares them) for the many cuts
of one moment, and of the moments after it. It keeps, for each file and as long as its pending changes are the same, the
content after each number of them, the versions of each sector, and the hash of each content that it has made. An
image's key is the hash of its paths and of their contents' hashes.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from xxhash import xxh3_128_digest

from tests.sim.disk import FakeDisk
from tests.sim.images import all_nodes, touched
from tests.sim.media import ALL, SECTOR, Cut, Dir, File, Tree, apply_change, entries_after, walk
from tests.sim.oracle import Crash

Made = tuple[bytes, bytes]
"""A content and its hash."""


def _made(content: bytes) -> Made:
    return content, xxh3_128_digest(content)


class FileImages:
    """What crashes can make of one file, as long as its pending changes are the same."""

    def __init__(self, file: File) -> None:
        self.stamp = file.stamp
        self._file = file
        self._steps = [change.step for change in file.pending]
        self._after = [bytearray(file.durable)]
        self._sectors: dict[tuple[int, int], bytes] = {}
        self._known: dict[object, Made] = {}
        self._touched: dict[int, list[int]] | None = None

    @property
    def touched(self) -> dict[int, list[int]]:
        """Sectors that pending changes really change (images.touched)."""
        if self._touched is None:
            self._touched = touched(self._file)
        return self._touched

    def cached(self) -> Made:
        """What reads see."""
        made = self._known.get("cache")
        if made is None:
            made = self._known["cache"] = _made(bytes(self._file.cache))
        return made

    def after(self, upto: int, holes: list[tuple[int, int]] | None = None, size_upto: int | None = None) -> Made:
        """media.content_after, and its hash."""
        steps = self._steps
        count = len(steps) if upto == ALL else bisect_right(steps, upto)
        sized = count if size_upto is None else bisect_right(steps, size_upto)
        caps = tuple([(sector, bisect_right(steps, cap)) for sector, cap in holes]) if holes else ()
        key = (count, sized, caps)
        made = self._known.get(key)
        if made is None:
            made = self._known[key] = _made(self._content(count, sized, caps))
        return made

    def _content(self, count: int, sized: int, caps: tuple[tuple[int, int], ...]) -> bytes:
        pending = self._file.pending
        size = pending[sized - 1].size_after if sized else len(self._file.durable)
        content = self._prefix(count)
        if caps:
            content = bytearray(content)
            for sector, number in caps:
                start = sector * SECTOR
                if len(content) < start + SECTOR:
                    content.extend(bytes(start + SECTOR - len(content)))
                content[start : start + SECTOR] = self._sector(sector, number)
        return bytes(content[:size]) if len(content) >= size else bytes(content).ljust(size, b"\0")

    def _prefix(self, count: int) -> bytearray:
        """The content after the first `count` changes, whatever its size is then."""
        while len(self._after) <= count:
            content = bytearray(self._after[-1])
            apply_change(content, self._file.pending[len(self._after) - 1], 0, ALL)
            self._after.append(content)
        return self._after[count]

    def _sector(self, sector: int, count: int) -> bytes:
        version = self._sectors.get((sector, count))
        if version is None:
            start = sector * SECTOR
            made = bytearray(self._file.durable[start : start + SECTOR].ljust(SECTOR, b"\0"))
            for change in self._file.pending[:count]:
                apply_change(made, change, start, start + SECTOR)
            version = self._sectors[sector, count] = bytes(made)
        return version


class _Names(NamedTuple):
    """The paths that some choice of directory changes leaves."""

    paths: list[str]
    files: list[FileImages | None]
    """What each path leads to; None: a directory."""
    dirty: list[int]
    """Which of them have pending changes."""
    contents: list[bytes | None]
    pieces: list[bytes]
    """What each path contributes to the key."""


class Image:
    """One disk that a crash leaves."""

    __slots__ = ("_contents", "_paths", "cut", "key", "wrote")

    def __init__(
        self, key: bytes, paths: list[str], contents: list[bytes | None], cut: Cut | None, wrote: int | None
    ) -> None:
        self.key = key
        """Equal for disks that cannot be told apart."""
        self.cut = cut
        """The power failure's cut; None after SIGKILL."""
        self.wrote = wrote
        """After SIGKILL: how far the last write got (None: it was done)."""
        self._paths = paths
        self._contents = contents

    @property
    def crash(self) -> Crash:
        """What the crash was."""
        return Crash.KILL if self.cut is None else Crash.POWER

    @property
    def tree(self) -> Tree:
        """Paths and contents."""
        return dict(zip(self._paths, self._contents, strict=True))

    @property
    def token(self) -> str:
        """The image as one word."""
        if self.cut is not None:
            return self.cut.token()
        return "k" if self.wrote is None else f"k{self.wrote}"


class Imager:
    """The images of a disk's moments, one after the other."""

    def __init__(self) -> None:
        self._files: dict[int, FileImages] = {}
        self.disk = FakeDisk()
        self._names: dict[frozenset[int] | None, _Names] = {}
        self._live: _Names | None = None

    def look(self, disk: FakeDisk) -> None:
        """A new moment."""
        self.disk = disk
        self._names.clear()
        self._live = None

    def of(self, file: File) -> FileImages:
        """What is known of a file."""
        known = self._files.get(file.number)
        if known is None or known.stamp != file.stamp:
            known = self._files[file.number] = FileImages(file)
        return known

    def power(self, cut: Cut) -> Image:
        """What a power failure leaves that let `cut` through."""
        names = self._names_after(cut)
        pieces, contents = names.pieces.copy(), names.contents.copy()
        holes: dict[int, list[tuple[int, int]]] = {}
        for number, sector, cap in cut.sectors:
            holes.setdefault(number, []).append((sector, cap))
        sizes = dict(cut.sizes)
        for index in names.dirty:
            images = names.files[index]
            assert images is not None
            number = images._file.number
            contents[index], digest = images.after(cut.upto, holes.get(number), sizes.get(number))
            pieces[index] += digest
        return Image(xxh3_128_digest(b"".join(pieces)) + b"p", names.paths, contents, cut, None)

    def kill(self, wrote: int | None = None) -> Image:
        """What SIGKILL leaves, in the middle of the last write if `wrote` is given."""
        if self._live is None:
            self._live = self._names_of(self.disk.root, None)
        names = self._live
        pieces, contents = names.pieces.copy(), names.contents.copy()
        cut = None if wrote is None else self.disk.last_write
        for index in names.dirty:
            images = names.files[index]
            assert images is not None
            contents[index], digest = images.cached()
            if cut is not None and wrote is not None and cut[0] is images._file:
                contents[index], digest = _made(cut_short(images._file, cut, wrote))
            pieces[index] += digest
        key = xxh3_128_digest(b"".join(pieces)) + b"k" + self.disk.boot.encode()
        return Image(key, names.paths, contents, None, wrote)

    def _names_after(self, cut: Cut) -> _Names:
        root, arrived = self.disk.root, cut.entries
        if arrived is None:
            arrived = frozenset(step for step in self._entry_steps() if step <= cut.upto)
        names = self._names.get(arrived)
        if names is None:
            names = self._names[arrived] = self._names_of(root, Cut(cut.upto, entries=arrived))
        return names

    def _entry_steps(self) -> list[int]:
        known = self._names.get(None)
        if known is None:
            nodes = all_nodes(self.disk)
            steps = [entry.step for node in nodes if isinstance(node, Dir) for entry in node.pending]
            known = self._names[None] = _Names([], [], sorted(set(steps)), [], [])
        return known.dirty

    def _names_of(self, root: Dir, cut: Cut | None) -> _Names:
        names = _Names([], [], [], [], [])
        entries = (lambda node: node.cache) if cut is None else (lambda node: entries_after(node, cut))
        for path, node in walk(root, "", entries):
            names.paths.append(path)
            piece = f"\0{path}\0".encode()
            images = None
            content: bytes | None = None
            if isinstance(node, File):
                images = self.of(node)
                if cut is None or node.pending:
                    names.dirty.append(len(names.files))
                else:
                    content, digest = images.after(0)
                    piece += digest
            names.files.append(images)
            names.contents.append(content)
            names.pieces.append(piece)
        return names


def cut_short(file: File, last_write: tuple[File, int, bytes, bytes, int], wrote: int) -> bytes:
    """What reads see of a file whose last write was cut after `wrote` bytes (FakeDisk.killed)."""
    _, offset, before, data, size_before = last_write
    content = bytearray(file.cache)
    content[offset + wrote : offset + len(data)] = before[wrote:]
    del content[max(size_before, offset + wrote) :]
    return bytes(content)
