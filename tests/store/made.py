"""A store of the simulated disk for tests that damage it: three topics, two checkpoints, and log behind each."""

from __future__ import annotations

import msgspec

from engine.commands import DeleteSelector
from engine.limits import KIB
from tests.core.hand import SMALL, Hand
from tests.sim.media import Tree
from tests.store.checkpoint import checkpoint

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
