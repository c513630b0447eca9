"""All disks that a crash can leave behind at one moment.

`power_cuts` enumerates what a power failure may have let through of a disk's pending changes: none, all, every prefix
in time; the last write of a prefix torn at each sector and page; each sector, page or write missing alone or arrived
alone; sizes without data and data without size; subsets of directory changes, without and with the data they name. All
of it where it is small, a seeded sample of free subsets where the product is larger than the bound.

`kill_points` enumerates what SIGKILL leaves: everything that the process wrote, or a prefix of the write it was in.

A caller prunes by `tree_hash`; what cannot be told apart is one state.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from tests.sim.disk import FakeDisk
from tests.sim.media import ALL, PAGE, SECTOR, Change, Cut, Dir, File, content_after, sectors_of

SECTORS_IN_PAGE = PAGE // SECTOR
SUBSETS_MAX_ENTRIES = 5
"""Directory changes whose every subset is tried; beyond that singles and prefixes."""
TORN_MAX_SECTORS = 24
"""Sectors of one write at whose every boundary it is torn; beyond that its first and last ones and page bounds."""


def touched(file: File) -> dict[int, list[int]]:
    """The sectors that pending writes really change, with the steps of their versions."""
    versions: dict[int, list[int]] = {}
    last: dict[int, bytes] = {}
    for change in file.pending:
        for sector in sectors_of(change):
            before = last.get(sector)
            if before is None:
                start = sector * SECTOR
                before = bytes(file.durable[start : start + SECTOR]).ljust(SECTOR, b"\0")
            after = _sector_with(before, sector, change)
            if after != before:
                versions.setdefault(sector, []).append(change.step)
            last[sector] = after
    return versions


def _sector_with(before: bytes, sector: int, change: Change) -> bytes:
    start = sector * SECTOR
    assert change.data is not None
    low, high = max(change.offset, start), min(change.offset + len(change.data), start + SECTOR)
    return before[: low - start] + change.data[low - change.offset : high - change.offset] + before[high - start :]


class Pending:
    """What is pending on a disk, in the shape that enumeration wants."""

    def __init__(self, disk: FakeDisk, sectors: Callable[[File], dict[int, list[int]]]) -> None:
        nodes = {node.number: node for node in all_nodes(disk)}
        self.files = [node for node in nodes.values() if isinstance(node, File) and node.pending]
        self.sectors = [
            (file.number, sector, steps) for file in self.files for sector, steps in sorted(sectors(file).items())
        ]
        self.sizes = [
            file.number for file in self.files if any(change.size_after != len(file.durable) for change in file.pending)
        ]
        self.entries = sorted(
            {entry.step for node in nodes.values() if isinstance(node, Dir) for entry in node.pending}
        )
        steps = {step for _, _, versions in self.sectors for step in versions}
        steps |= {change.step for file in self.files for change in file.pending if change.data is None}
        self.steps = sorted(steps | set(self.entries))


def all_nodes(disk: FakeDisk) -> Iterator[File | Dir]:
    """Nodes that any crash may bring to light: those that reads see, and those that only the disk still names."""
    seen: set[int] = set()
    todo: list[File | Dir] = [disk.root]
    while todo:
        node = todo.pop()
        if node.number in seen and node is not disk.root:
            continue
        seen.add(node.number)
        yield node
        if isinstance(node, Dir):
            todo += node.cache.values()
            todo += node.durable.values()
            todo += [entry.node for entry in node.pending if entry.node is not None]


def power_cuts(
    disk: FakeDisk,
    rng: random.Random,
    sample: int = 24,
    sectors: Callable[[File], dict[int, list[int]]] = touched,
) -> Iterator[Cut]:
    """Legal cuts of the pending changes, the most telling first; `sample` free subsets at the end.

    `sectors` may be a `touched` that remembers.
    """
    pending = Pending(disk, sectors)
    yield Cut(0)
    if not pending.steps:
        return
    yield Cut(ALL)
    for step in pending.steps:
        yield Cut(step)
    yield from _entry_cuts(pending)
    yield from _size_cuts(pending)
    yield from _torn_cuts(pending)
    yield from _hole_cuts(pending)
    yield from _write_cuts(pending)
    yield from _free_cuts(pending, rng, sample)


def _entry_cuts(pending: Pending) -> Iterator[Cut]:
    entries = pending.entries
    if not entries:
        return
    chosen: list[tuple[int, ...]] = []
    if len(entries) <= SUBSETS_MAX_ENTRIES:
        for size in range(len(entries) + 1):
            chosen += itertools.combinations(entries, size)
    else:
        chosen += [tuple(entries[:size]) for size in range(len(entries) + 1)]
        chosen += [(entry,) for entry in entries]
        chosen += [tuple(other for other in entries if other != entry) for entry in entries]
    for subset in chosen:
        yield Cut(0, entries=frozenset(subset))
        yield Cut(ALL, entries=frozenset(subset))


def _size_cuts(pending: Pending) -> Iterator[Cut]:
    everything = frozenset(pending.entries)
    for number in pending.sizes:
        yield Cut(0, sizes=((number, ALL),), entries=everything)
        yield Cut(ALL, sizes=((number, 0),), entries=everything)
    if len(pending.sizes) > 1:
        yield Cut(0, sizes=tuple((number, ALL) for number in pending.sizes), entries=everything)


def _by_write(pending: Pending) -> dict[tuple[int, int], list[int]]:
    """(step, file) → the sectors that this write changed."""
    writes: dict[tuple[int, int], list[int]] = {}
    for number, sector, steps in pending.sectors:
        for step in steps:
            writes.setdefault((step, number), []).append(sector)
    return writes


def _torn_cuts(pending: Pending) -> Iterator[Cut]:
    """Each write as the last one that was under way: only its head arrived, or only its tail, at every boundary."""
    for (step, number), sectors in sorted(_by_write(pending).items()):
        bounds = list(range(1, len(sectors)))
        if len(sectors) > TORN_MAX_SECTORS:
            pages = [at for at in bounds if sectors[at] % SECTORS_IN_PAGE == 0]
            bounds = sorted({1, 2, 3, len(sectors) - 3, len(sectors) - 2, len(sectors) - 1, *pages})
        for at in bounds:
            yield Cut(step, tuple((number, sector, step - 1) for sector in sectors[at:]))
            yield Cut(step, tuple((number, sector, step - 1) for sector in sectors[:at]))


def _hole_cuts(pending: Pending) -> Iterator[Cut]:
    """One sector or page missing from all, as it was before any or before its last write; or arrived alone."""
    everything = frozenset(pending.entries)
    pages: dict[tuple[int, int], list[int]] = {}
    for number, sector, steps in pending.sectors:
        pages.setdefault((number, sector // SECTORS_IN_PAGE), []).append(sector)
        yield Cut(ALL, ((number, sector, 0),))
        for step in steps[1:]:
            yield Cut(ALL, ((number, sector, step - 1),))
        yield Cut(0, ((number, sector, ALL),), sizes=((number, ALL),), entries=everything)
    for (number, _), sectors in sorted(pages.items()):
        yield Cut(ALL, tuple((number, sector, 0) for sector in sectors))
        yield Cut(0, tuple((number, sector, ALL) for sector in sectors), sizes=((number, ALL),), entries=everything)


def _write_cuts(pending: Pending) -> Iterator[Cut]:
    """One write missing from all (where nothing later covers it), or one write alone."""
    everything = frozenset(pending.entries)
    for (step, number), sectors in sorted(_by_write(pending).items()):
        yield Cut(ALL, tuple((number, sector, step - 1) for sector in sectors))
        yield Cut(0, tuple((number, sector, step) for sector in sectors), ((number, ALL),), everything)


def _free_cuts(pending: Pending, rng: random.Random, sample: int) -> Iterator[Cut]:
    """Free subsets of sector versions: all of them if they are few, else a sample with different densities."""
    product = 1
    for _, _, steps in pending.sectors:
        product *= len(steps) + 1
        if product > 4 * sample:
            break
    if product <= sample:
        for picked in itertools.product(*[[0, *steps] for _, _, steps in pending.sectors]):
            caps = tuple(
                (number, sector, cap) for (number, sector, _), cap in zip(pending.sectors, picked, strict=True)
            )
            yield Cut(ALL, caps)
        return
    for _ in range(sample):
        density = rng.choice((0.1, 0.3, 0.5, 0.7, 0.9))
        caps = tuple(
            (number, sector, rng.choice([0, *steps[:-1]]))
            for number, sector, steps in pending.sectors
            if rng.random() < density
        )
        entries = None
        if pending.entries and rng.random() < 0.5:
            entries = frozenset(step for step in pending.entries if rng.random() < 0.7)
        yield Cut(ALL, caps, entries=entries)


def kill_points(disk: FakeDisk) -> Iterator[int | None]:
    """What `FakeDisk.killed` takes: None (all that was written), and prefixes of a write that was the last step.

    The kernel copies page by page and looks for a fatal signal between two of them; prefixes at every sector are more
    than that, prefixes inside a sector do not happen.
    """
    yield None
    if disk.last_write is None:
        return
    _, offset, before, data, _ = disk.last_write
    if before == data:
        return
    yield 0
    bounds = list(range(-(-(offset + 1) // SECTOR) * SECTOR - offset, len(data), SECTOR))
    if len(bounds) > TORN_MAX_SECTORS:
        bounds = sorted({*bounds[:4], *(at for at in bounds if (offset + at) % PAGE == 0), *bounds[-4:]})
    yield from bounds


def describe(disk: FakeDisk, cut: Cut) -> str:
    """What a cut leaves of each file, for a person who looks at a failure."""
    lines = [cut.token()]
    for path, node in disk.nodes():
        if isinstance(node, File) and node.pending:
            there = content_after(node, cut.upto, {s: c for f, s, c in cut.sectors if f == node.number})
            differ = [
                at // SECTOR
                for at in range(0, max(len(there), len(node.cache)), SECTOR)
                if there[at : at + SECTOR] != node.cache[at : at + SECTOR]
            ]
            lines.append(f"  {path} (f{node.number}): {len(node.pending)} pending, differs in sectors {differ[:40]}")
    return "\n".join(lines)
