"""What a disk holds: files and directories with their pending changes, and what a power failure makes of them.

A sector (512 bytes) that several pending writes touched has one version for each of them, and write-back may have
brought any one version to the disk, never a mixture: the kernel writes whole pages, a disk whole sectors. `Cut` says
which versions arrived; `tree_after` builds what is then there. The disk itself, with handles and calls, is `disk`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

import xxhash

SECTOR: Final = 512
PAGE: Final = 4096
ALL: Final = 2**62
"""A step later than any: "everything that was pending arrived"."""

new_stamp: Callable[[], int] = count(1).__next__


@dataclass(slots=True)
class Change:
    """One pending change of a file: bytes written at an offset, or (data None) only a new size."""

    step: int
    offset: int
    data: bytes | None
    size_after: int
    lost: bool = False
    """A sync of it failed: its pages are clean now, and no later sync writes them."""


@dataclass(slots=True)
class File:
    """A file: what reads see, what is on the disk, and the changes between the two."""

    number: int
    cache: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    blocks: int = 0
    """Bytes of space that it holds."""
    names: int = 1
    stamp: int = field(default_factory=new_stamp)
    """Another one whenever content or pending changes are others; copies that are the same share it."""


@dataclass(slots=True)
class Entry:
    """One pending change of a directory: `name` leads to `node` from `step` on (None: to nothing)."""

    step: int
    name: str
    node: File | Dir | None
    needs: int = 0
    """A step of another directory without which this one cannot have happened (a rename across directories)."""


@dataclass(slots=True)
class Dir:
    """A directory: entries that reads see, entries on the disk, and the changes between."""

    number: int
    cache: dict[str, File | Dir] = field(default_factory=dict)
    durable: dict[str, File | Dir] = field(default_factory=dict)
    pending: list[Entry] = field(default_factory=list)


Tree: TypeAlias = dict[str, bytes | None]
"""A disk's content as paths: bytes of a file, None for a directory."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Which pending steps a power failure let through.

    All steps up to `upto`, but: sector `(file, index)` has its newest version of at most step `sectors[...]`, a file's
    size that of step `sizes[file]`, and directory steps are in iff they are in `entries` (None: iff ≤ `upto`).
    """

    upto: int
    sectors: tuple[tuple[int, int, int], ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    entries: frozenset[int] | None = None

    def token(self) -> str:
        """The cut as one word; `parse` reads it back."""
        word = "u" + ("*" if self.upto == ALL else str(self.upto))
        word += "".join(f"!{f}.{s}={'*' if c == ALL else c}" for f, s, c in self.sectors)
        word += "".join(f"#{f}={'*' if c == ALL else c}" for f, c in self.sizes)
        return word + ("" if self.entries is None else "d" + ".".join(map(str, sorted(self.entries))))

    @classmethod
    def parse(cls, token: str) -> Cut:
        """The cut that a token describes."""

        def step(text: str) -> int:
            return ALL if text == "*" else int(text)

        body, has_entries, entries = token[1:].partition("d")
        body, *sizes = body.split("#")
        upto, *sectors = body.split("!")
        return cls(
            step(upto),
            tuple((int(f), int(s), step(c)) for f, s, c in (_split_sector(text) for text in sectors)),
            tuple((int(f), step(c)) for f, c in (text.split("=") for text in sizes)),
            frozenset(int(text) for text in entries.split(".") if text) if has_entries else None,
        )


def _split_sector(text: str) -> tuple[str, str, str]:
    place, _, cap = text.partition("=")
    number, _, sector = place.partition(".")
    return number, sector, cap


def walk(root: Dir, prefix: str, entries: Callable[[Dir], dict[str, File | Dir]]) -> Iterator[tuple[str, File | Dir]]:
    for name, node in sorted(entries(root).items()):
        yield prefix + name, node
        if isinstance(node, Dir):
            yield from walk(node, prefix + name + "/", entries)


def apply_entry(entries: dict[str, File | Dir], entry: Entry) -> None:
    if entry.node is None:
        entries.pop(entry.name, None)
    else:
        entries[entry.name] = entry.node


def entries_after(directory: Dir, cut: Cut) -> dict[str, File | Dir]:
    if not directory.pending:
        return directory.durable

    def arrived(step: int) -> bool:
        return step <= cut.upto if cut.entries is None else step in cut.entries

    entries = dict(directory.durable)
    for entry in directory.pending:
        if arrived(entry.step) and (not entry.needs or arrived(entry.needs)):
            apply_entry(entries, entry)
    return entries


def sectors_of(change: Change) -> range:
    if change.data is None:
        return range(0)
    return range(change.offset // SECTOR, -(-(change.offset + len(change.data)) // SECTOR))


def content_after(file: File, upto: int, holes: dict[int, int], size_upto: int | None = None) -> bytearray:
    """The file's content when steps ≤ `upto` arrived, but for sectors in `holes` (sector → step) and the size."""
    content, size = bytearray(file.durable), len(file.durable)
    for change in file.pending:
        if change.step <= upto:
            apply_change(content, change, 0, ALL)
        if change.step <= (upto if size_upto is None else size_upto):
            size = change.size_after
    for sector, cap in holes.items():
        start = sector * SECTOR
        version = bytearray(file.durable[start : start + SECTOR].ljust(SECTOR, b"\0"))
        for change in file.pending:
            if change.step <= cap:
                apply_change(version, change, start, start + SECTOR)
        if len(content) < start + SECTOR:
            content.extend(bytes(start + SECTOR - len(content)))
        content[start : start + SECTOR] = version
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
    return content


def apply_change(target: bytearray, change: Change, start: int, end: int) -> None:
    """Apply a change to the bytes `start` … of a file that `target` holds; one sector keeps its length."""
    if change.data is None:
        if end == ALL:
            del target[change.offset :]
        else:
            cut = max(change.offset - start, 0)
            if cut < SECTOR:
                target[cut:] = bytes(SECTOR - cut)
        return
    low, high = max(change.offset, start), min(change.offset + len(change.data), end)
    if low >= high:
        return
    if len(target) < low - start:
        target.extend(bytes(low - start - len(target)))
    target[low - start : high - start] = change.data[low - change.offset : high - change.offset]


def keep_lost_pages(file: File, content: bytearray, covered: set[int], last: int) -> None:
    """Undo, in what a sync makes durable, the sectors that only a failed sync ever tried to write."""
    for change in file.pending:
        if change.lost and change.step < last:
            for sector in sectors_of(change):
                if sector not in covered:
                    start = sector * SECTOR
                    old = file.durable[start : start + SECTOR].ljust(min(SECTOR, len(content) - start), b"\0")
                    content[start : start + len(old)] = old


def tree_hash(tree: Tree) -> bytes:
    """A 128-bit hash of a tree; two disks with one hash behave alike."""
    state = xxhash.xxh3_128()
    for path in sorted(tree):
        content = tree[path]
        state.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        if content is not None:
            state.update(content)
    return state.digest()
