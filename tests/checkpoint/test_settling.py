"""A store that comes to rest lets go of its large log files by itself."""

from __future__ import annotations

import msgspec

from tests.sim.scenarios_history import GROWING
from tests.sim.world import World

EVERY_MS = 10_000


def test_the_second_checkpoint_after_a_load_is_made_although_nothing_was_written_and_no_third() -> None:
    world = World(settings=msgspec.structs.replace(GROWING, checkpoint_ms=EVERY_MS)).start()
    world.put("t", durability="disk")
    for _ in range(14):
        world.append("t", 4, size=1000)
    world.settle()
    wal = world.core.wal
    assert max(log.size for log in wal.shards[0].files) == 64 * 1024
    numbers = []
    for _ in range(5):
        world.step(EVERY_MS)
        world.settle()
        last = world.core.keeper.last
        numbers.append(0 if last is None else last.number)
    assert numbers[-3:] == [2, 2, 2], "at rest there is nothing to take down"
    assert wal.shards[0].files[0].size == 16 * 1024
    world.check()
    world.kill().start()
    world.check()


def test_a_stop_lets_go_of_them_too() -> None:
    settings = msgspec.structs.replace(GROWING, stop_checkpoint_bytes=0)
    world = World(settings=settings).start()
    world.put("t", durability="disk")
    for _ in range(14):
        world.append("t", 4, size=1000)
    world.stop().start()
    world.append("t", 1)
    world.stop().start()
    assert world.core.wal.shards[0].files[0].size == 16 * 1024
    world.check()
