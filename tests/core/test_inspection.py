"""A store looked at without being started: the same answers, and not a byte written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.core import Core, Inspection
from engine.errors import StoreDamaged, StoreMissing
from engine.limits import SYNC_WINDOW
from tests.sim.disk import FakeDisk
from tests.sim.media import Cut, Tree
from tests.sim.still import StillDisk
from tests.sim.view import look
from tests.sim.world import TINY, World


def _ends() -> Iterator[tuple[str, World]]:
    """Stores that ended in every way, with something of everything in them."""
    for how in ("stop", "kill", "power"):
        world = World().start()
        world.append("t", 3, tag="red", key="k")
        world.append("f", 2)
        world.delete("t", seqs=(2,))
        world.put("e", durability="ephemeral")
        world.append("e", 2)
        world.append("gone")
        world.drop("gone")
        for _ in range(3):
            world.append("large", 3, size=1500)
        yield how, {"stop": world.stop, "kill": world.kill, "power": world.lose_nothing}[how]()


def test_an_inspection_shows_what_a_start_shows_and_writes_nothing() -> None:
    for how, world in _ends():
        tree = world.disk.cached_tree()
        inspection = Inspection(StillDisk(tree, world.disk.boot), world.clock, TINY)
        before = look(inspection)
        started = look(Core.open(world.disk, world.clock, TINY))
        assert before.topics == started.topics, how
        assert inspection.store.clean == (how == "stop")
        assert inspection.store.power_loss == (how == "power")
        assert inspection.cuts == []
        inspection.close()


def test_a_crash_gap_is_shown_before_anything_has_logged_it() -> None:
    world = World().start()
    world.append("t")
    world.append("t", ack_fsync=True)
    world.append("t")
    world.power_off(Cut(0))
    inspection = Inspection(StillDisk(world.disk.cached_tree(), world.disk.boot), world.clock, TINY)
    assert inspection.state("t").head_seq == 2 + SYNC_WINDOW
    assert inspection.state("t").count == 2


def test_an_inspection_names_the_bytes_that_a_start_would_set_aside() -> None:
    world = World().start()
    world.append("t", ack_fsync=True)
    world.append("t", 4, size=600)
    tree = _torn(world.kill().disk)
    disk = FakeDisk.of_tree(tree, boot="boot-9")
    (cut,) = Inspection(StillDisk(tree, "boot-9"), world.clock, TINY).cuts
    core = Core.open(disk, world.clock, TINY)
    assert any(f"offset {cut.offset}" in line and cut.path in line for line in core.store.report)


def _torn(disk: FakeDisk) -> Tree:
    """The disk without the last sectors of its log."""
    tree = disk.cached_tree()
    path = max(name for name in tree if name.endswith(".log") and any((tree[name] or b"")[4096:]))
    content = tree[path] or b""
    used = len(content.rstrip(b"\0"))
    return {**tree, path: content[: used - 1200] + bytes(len(content) - used + 1200)}


def test_an_inspection_makes_no_store_and_passes_over_no_damage() -> None:
    with pytest.raises(StoreMissing):
        Inspection(StillDisk({}, "boot-1"), World().clock, TINY)
    world = World().start()
    world.append("t")
    tree = world.stop().disk.cached_tree()
    del tree["meta/MANIFEST"]
    with pytest.raises(StoreDamaged):
        Inspection(StillDisk(tree, "boot-1"), world.clock, TINY)
