"""Trees, and disks made from them, that the tests of recovery share."""

from __future__ import annotations

import random

from engine.limits import EngineSettings
from engine.wal.chain import DATA_START, log_path, parse_log_name
from tests.sim.disk import FakeDisk
from tests.sim.images import power_cuts
from tests.sim.media import Tree, tree_hash
from tests.wal.hand import Hand, settings

MANIFEST = "meta/MANIFEST"
FIRST = log_path(0, 0, 1)


def numbers(count: int, start: int = 0) -> list[bytes | str]:
    return [str(number).encode() for number in range(start, start + count)]


def changed(tree: Tree, path: str, content: bytes | None, *, boot: str = "boot-1") -> FakeDisk:
    """A disk with another content of one file, or without it."""
    copy = dict(tree)
    if content is None:
        del copy[path]
    else:
        copy[path] = content
    return FakeDisk.of_tree(copy, boot=boot)


def file_in(tree: Tree, path: str) -> bytes:
    content = tree[path]
    assert content is not None
    return content


def logs_in(disk: FakeDisk, shard: int = 0) -> list[tuple[int, int]]:
    return sorted(parsed for name in disk.list(f"wal/shard-{shard:02d}") if (parsed := parse_log_name(name)))


SMALL = settings(file_kib=16, fill_kib=8, reserve_kib=2)


def three_batches(*, synced: bool = False) -> tuple[Tree, list[int]]:
    disk = FakeDisk()
    hand = Hand(disk)
    places = [hand.append(1, number, number, sync=synced) for number in range(3)]
    assert None not in places
    return disk.killed().cached_tree(), [place for place in places if place is not None]


def flipped(tree: Tree, at: int) -> bytes:
    log = bytearray(file_in(tree, FIRST))
    log[DATA_START + at] ^= 1
    return bytes(log)


def several_files() -> tuple[Tree, list[str]]:
    disk = FakeDisk()
    hand = Hand(disk, settings(file_kib=16, fill_kib=8, reserve_kib=2))
    for number in range(30):
        hand.append(1, number, "x" * 1500, sync=True)
    assert hand.stop()
    tree = disk.cached_tree()
    return tree, sorted(path for path in tree if path.endswith(".log"))


def images_of_start(disk: FakeDisk, config: EngineSettings, rng: random.Random) -> list[FakeDisk]:
    """Every disk that a power failure or a kill can leave at any step of a start, without repeats."""
    seen: set[bytes] = set()
    images: list[FakeDisk] = []

    def crash(now: FakeDisk, _what: str) -> None:
        now.on_step = None
        candidates = [now.powered_off(cut, boot="boot-3") for cut in power_cuts(now, rng, sample=4)]
        candidates.append(now.killed())
        for image in candidates:
            digest = tree_hash(image.cached_tree()) + image.boot.encode()
            if digest not in seen:
                seen.add(digest)
                images.append(image)
        now.on_step = crash

    disk.on_step = crash
    Hand(disk, config)
    disk.on_step = None
    return images
