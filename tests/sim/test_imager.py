"""The cheap way to an image gives the same disks as the plain one."""

from __future__ import annotations

import random

import pytest

from engine.fs import Fs, OpenMode
from tests.sim.imager import Imager
from tests.sim.images import kill_points, power_cuts
from tests.sim.runner import BY_NAME
from tests.sim.scenarios import world_for
from tests.sim.still import StillDisk
from tests.sim.world import World


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-start", "rotation", "two-shards", "kill-then-power", "history-pinned"])
def test_images_are_what_the_disk_says(name: str) -> None:
    rng = random.Random(7)
    imager = Imager()
    keys: dict[bytes, object] = {}

    def probe(world: World, what: str) -> None:
        imager.look(world.disk)
        if len(keys) > 100 and rng.random() < 0.95:
            return
        for cut in power_cuts(world.disk, rng, 6, lambda file: imager.of(file).touched):
            if rng.random() < 0.1:
                image = imager.power(cut)
                assert image.tree == world.disk.tree_after(cut)
                assert keys.setdefault(image.key, image.tree) == image.tree, "two disks with one key"
        for wrote in kill_points(world.disk) if what.startswith("write") else [None]:
            image = imager.kill(wrote)
            assert image.tree == world.disk.killed(wrote).cached_tree()
            assert keys.setdefault(image.key, image.tree) == image.tree

    world = world_for(BY_NAME[name], 4)
    world.probe = probe
    world.start()
    BY_NAME[name].run(world)
    trees = {str(sorted(tree.items())) for tree in keys.values() if isinstance(tree, dict)}
    assert len(trees) > 20


def test_a_still_disk_reads_and_refuses_to_change() -> None:
    still: Fs = StillDisk({"d": None, "d/f": b"abc", "g": b""}, "boot-1")
    handle = still.open("d/f", OpenMode.READ)
    assert still.pread(handle, 9, 1) == b"bc"
    assert still.size(handle) == 3
    assert still.list("") == ["d", "g"]
    assert still.list("d") == ["f"]
    assert still.exists("d/f")
    assert not still.exists("d/x")
    for refused in (
        lambda: still.open("d/f", OpenMode.WRITE),
        lambda: still.pwritev(handle, [b"x"], 0),
        lambda: still.unlink("g"),
        lambda: still.fsync_dir(""),
    ):
        with pytest.raises(OSError, match="Read-only"):
            refused()
