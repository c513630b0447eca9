"""Stores that the tests of the tools look at: small, with something of everything in them, stopped or killed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from engine.tools.finding import Finding, Severity
from engine.tools.fsck import Fsck, Summary
from engine.tools.log_file import LogScan
from tests.sim.clock import ManualClock
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.world import TINY, World
from tests.store.made import Made


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


def check_with(made: Made, tree: Tree) -> tuple[list[Finding], Summary]:
    """`Fsck` of a changed tree of a made store."""
    found: list[Finding] = []
    tool = Fsck(StillDisk(tree, "boot-1"), made.clock, found.append, lambda *_: None, made.settings)
    return found, tool.run()
