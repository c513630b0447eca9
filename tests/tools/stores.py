"""Stores that the tests of the tools look at: small, with something of everything in them, stopped or killed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from engine.commands import DeleteSelector
from engine.limits import KIB
from engine.tools.finding import Finding, Severity
from engine.tools.fsck import Fsck, Summary
from engine.tools.log_file import LogScan
from tests.core.hand import SMALL, Hand
from tests.sim.clock import ManualClock
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.world import TINY, World
from tests.store.checkpoint import checkpoint


def stores() -> Iterator[tuple[str, Tree]]:
    """Whole stores, by how they ended."""
    for how in ("stop", "kill"):
        world = World().start()
        world.append("orders", 3, tag="red", key="k")
        world.append("payments", 2)
        world.delete("orders", seqs=(2,))
        for _ in range(4):
            world.append("large", 3, size=1500)
        yield how, {"stop": world.stop, "kill": world.kill}[how]().disk.cached_tree()


def stopped() -> Tree:
    return dict(stores())["stop"]


def log_of(tree: Tree) -> str:
    """The first log file."""
    return min(path for path in tree if path.endswith(".log"))


def put(tree: Tree, path: str, content: bytes | None) -> Tree:
    """The same with another content of one file, or without it."""
    copy = dict(tree)
    if content is None:
        del copy[path]
    else:
        copy[path] = content
    return copy


def flip(tree: Tree, path: str, at: int, bit: int = 1) -> Tree:
    content = bytearray(tree[path] or b"")
    content[at] ^= bit
    return put(tree, path, bytes(content))


def hurt(content: bytes, rng: random.Random) -> bytes:
    """Flips, cuts, zeroed stretches, foreign bytes: one of them, at random."""
    data = bytearray(content)
    at = rng.randrange(len(data)) if data else 0
    match rng.randrange(5):
        case 0 if data:
            data[at] ^= 1 << rng.randrange(8)
        case 1:
            del data[at:]
        case 2:
            data[at : at + 512] = bytes(min(512, len(data) - at))
        case 3:
            data[at : at + 64] = rng.randbytes(min(64, len(data) - at))
        case _:
            del data[at : at + rng.randrange(1, 9)]
    return bytes(data)


def check(tree: Tree, *, quick: bool = False) -> tuple[list[Finding], Summary]:
    """`Fsck` over a tree, on a disk that refuses every write."""
    found: list[Finding] = []
    tool = Fsck(StillDisk(tree, "boot-1"), ManualClock(), found.append, lambda *_: None, TINY, quick=quick)
    return found, tool.run()


def damage(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is Severity.DAMAGE]


def scan(tree: Tree, path: str) -> LogScan:
    """A log file read to its end."""
    one = LogScan(StillDisk(tree, "boot-1"), path)
    for _ in one.items():
        pass
    return one


SNAP1, SNAP2 = "meta/snapshot-0000000001.snap", "meta/snapshot-0000000002.snap"


class Made:
    """A store with two checkpoints, and log behind each."""

    def __init__(self, *, own_files: bool = False) -> None:
        hand = Hand(settings=msgspec.structs.replace(SMALL, wal_file_bytes=16 * KIB, wal_reserve_bytes=2 * KIB))
        self.settings = hand.settings
        self.store_id = hand.core.store.store_id
        hand.create("a")
        hand.create("b", cap_records=4)
        for number in range(30):
            hand.write("a", "x" * 900, number)
            hand.write("b", number)
        hand.take(hand.core.delete("a", DeleteSelector(seqs=(3, 4))))
        hand.pass_ms(50)
        hand.settle()
        checkpoint(hand.core, hand.disk, 1, own_files=own_files, sync=hand.sync)
        for number in range(30, 50):
            hand.write("a", "y" * 900, number)
            hand.write("b", number)
        hand.write("c", 1)
        hand.pass_ms(50)
        hand.settle()
        checkpoint(hand.core, hand.disk, 2, own_files=own_files, sync=hand.sync)
        hand.write("a", "last")
        hand.take(hand.core.delete("a", DeleteSelector(seqs=(1, 70))))
        self.clock = hand.clock
        self.tree: Tree = hand.disk.killed().cached_tree()


def check_with(made: Made, tree: Tree) -> tuple[list[Finding], Summary]:
    """`Fsck` of a changed tree of a made store."""
    found: list[Finding] = []
    tool = Fsck(StillDisk(tree, "boot-1"), made.clock, found.append, lambda *_: None, made.settings)
    return found, tool.run()
