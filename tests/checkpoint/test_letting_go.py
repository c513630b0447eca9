"""The space of what was deleted comes back as soon as neither kept snapshot names its files, and not before."""

from __future__ import annotations

import msgspec

from engine.limits import EngineSettings
from tests.sim.scenarios_history import SMALL
from tests.sim.world import World

EVERY_MS = 10_000


def deleted(settings: EngineSettings) -> World:
    """A store of which everything was deleted that both kept snapshots name: a segment and a piece."""
    world = World(settings=settings).start()
    world.append("t", 8)
    world.append("u", 3)
    world.checkpoint()
    world.checkpoint()
    assert len(files(world)) == 3
    world.delete("t", before_seq=9)
    world.delete("u", before_seq=4)
    world.settle()
    return world


def files(world: World) -> list[str]:
    """Those that hold records, or are about them."""
    tree = world.disk.cached_tree()
    return [path for path, content in tree.items() if content is not None and path.startswith(("topics", "meta/tails"))]


def test_space_comes_back_with_the_second_checkpoint() -> None:
    world = deleted(SMALL)
    world.checkpoint()
    assert len(files(world)) == 3, "the older snapshot names them"
    world.checkpoint()
    assert files(world) == []
    world.kill().start()
    world.check()


def test_at_rest_that_one_is_made_by_itself() -> None:
    world = deleted(msgspec.structs.replace(SMALL, checkpoint_ms=EVERY_MS))
    for _ in range(3):
        world.step(EVERY_MS)
        world.settle()
    assert files(world) == []
