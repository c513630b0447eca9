"""The situations in which the store is crashed at every step.

A scenario is a function that drives a `World`. Each is run once for each lag of its syncs (prompt, and with groups
written while a sync is under way). The other kind, all short sequences of small operations, is in `sequences.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from engine.errors import Refused, Unavailable
from engine.limits import EngineSettings, Limits
from engine.types import ConfigChanges, Match
from tests.sim import scenarios_cold as cold
from tests.sim import scenarios_history as history
from tests.sim import scenarios_merge as merge
from tests.sim.clock import ManualClock
from tests.sim.cold import COLD_DIR
from tests.sim.disk import FakeDisk
from tests.sim.media import Cut
from tests.sim.oracle import Oracle
from tests.sim.pins import pinned
from tests.sim.world import TINY, World, unprobed

Script = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One situation: settings, what is done before anybody looks, and what is done under observation."""

    name: str
    run: Script
    settings: EngineSettings = TINY
    lags: tuple[int, ...] = (0, 4)
    fresh: bool = False
    """Start on an empty disk, so that making the store is observed too."""
    capacity: int = 1 << 40
    limits: Limits = field(default_factory=Limits)
    window: int = 0
    """Seqs of a sync window (and four times those of a block of ephemeral ones) that a few writes fill; 0: as it is."""


@functools.cache
def _base(settings: EngineSettings) -> FakeDisk:
    """A store that was just made, whose process was killed: what most scenarios start from."""
    world = World(settings=settings)
    if settings.cold_tier:
        world.disk.mkdir(COLD_DIR)
        world.disk.fsync_dir("")
    world.start()
    world.settle()
    return world.kill().disk


def world_for(scenario: Scenario, lag: int) -> World:
    """The world that a scenario begins in, with a running process."""
    if scenario.fresh:
        disk = FakeDisk(capacity=scenario.capacity)
    else:
        disk = _base(scenario.settings).killed()
        disk.capacity = scenario.capacity
    return World(
        disk, settings=scenario.settings, clock=ManualClock(), oracle=Oracle(), lag=lag, limits=scenario.limits
    )


# -- what is done -----------------------------------------------------------------------------------------------------


def _first_start(world: World) -> None:
    world.append("a")
    world.append("a", ack_fsync=True)


def _one_by_one(durability: str) -> Script:
    def run(world: World) -> None:
        world.put("t", durability=durability)
        for _ in range(4):
            world.append("t")
        world.append("t", ack_fsync=True)
        world.append("t", node="n1", tag="red")
        world.check()

    return run


def _batches(durability: str) -> Script:
    def run(world: World) -> None:
        world.append("t", 7, config=changes(durability=durability), node="n", tag="x", meta=b'{"k":1}')
        world.append("t", 40, size=60)
        world.append("t", 3, size=1200)
        world.append("t", 1, ack_fsync=True)
        world.check()

    return run


def _interleaved(world: World) -> None:
    """Several topics of all classes, several writes in one group, answers not waited for."""
    for name, durability in (("d", "disk"), ("f", "fsync"), ("m", "memory")):
        world.put(name, durability=durability)
    for round_ in range(4):
        for name in ("d", "f", "m"):
            world.append(name, 1 + round_ % 2, wait=False)
        world.step()
    world.append("f", 2)
    world.append("d", 2, size=700)
    world.settle()
    world.check()


def _joined(durability: str) -> Script:
    """Writes of one turn that share frames, up to the end of a log file and over it; others come between."""

    def run(world: World) -> None:
        world.put("t", durability=durability)
        world.put("u")
        for turn in range(6):
            for write in range(5):
                world.append("t", 1 + write % 2, size=40 + 30 * turn, wait=False)
            world.append("u", wait=False)
            world.append("t", wait=False)
            world.append("t", wait=False, tag="own")
            world.append("t", wait=False, key=f"k{turn}")
            for _ in range(3):
                world.append("t", size=700, wait=False)
            world.step()
        world.settle()
        world.append("t", wait=False)
        world.append("t", wait=False)
        world.delete("t", before_seq=9, wait=False)
        world.append("t")
        world.check()

    return run


def _rotation(world: World) -> None:
    world.put("t", durability="disk")
    world.put("f", durability="fsync")
    for _ in range(7):
        world.append("t", 4, size=700)
        world.append("f", 1, size=300)
    world.check()


def _rotation_unsynced(world: World) -> None:
    """Many groups over several files before any sync ends."""
    world.put("t", durability="memory")
    for _ in range(12):
        world.append("t", 2, size=900, wait=False)
        world.step(0.01)
    world.append("t", ack_fsync=True)
    world.check()


def _oversize(world: World) -> None:
    """A frame that is larger than a log file, between small ones."""
    world.put("t", durability="fsync")
    world.append("t")
    world.append("t", 20, size=1500)
    world.append("t")
    world.append("t", 1, size=30_000)
    world.append("t")
    world.check()


def _deletes(world: World) -> None:
    world.append("t", 4, tag="red")
    world.append("t", 4, tag="blue")
    world.delete("t", seqs=(2, 3))
    world.delete("t", match=Match("Eq", "blue"))
    world.append("t", 2, tag="blue")
    world.delete("t", before_seq=2)
    world.put("f", durability="fsync")
    world.append("f", 3, tag="a")
    world.delete("f", match=Match("Glob", "a"))
    world.append("f")
    world.check()


def _delete_all_quiet(world: World) -> None:
    world.append("t", 5)
    world.settle()
    world.delete("t", before_seq=100)
    world.settle()
    world.append("t")
    world.check()


def _caps(world: World) -> None:
    world.append("t", 3, config=changes(cap_records=4))
    world.append("t", 3)
    world.append("t", 9)
    world.delete("t", seqs=(13,))
    world.append("t", 1)
    world.put("t", cap_records=2)
    world.append("b", 2, size=100, config=changes(cap_bytes=400, durability="fsync"))
    world.append("b", 3, size=100)
    world.check()


def _ages(world: World) -> None:
    world.append("t", 2, config=changes(ttl_ms=5000))
    world.step(3000)
    world.append("t", 2)
    world.step(3000)
    world.append("t", 1)
    world.check()
    world.step(100_000)
    world.append("t", 1)
    world.put("t", ttl_ms=0)
    world.append("t", 1)
    world.check()


def _rejects(world: World) -> None:
    world.append("t", 3, config=changes(cap_records=4, discard="reject"))
    try:
        world.append("t", 2)
    except Refused:
        pass
    else:
        raise AssertionError("a full topic took a write")
    world.delete("t", seqs=(1,))
    world.append("t", 2)
    world.check()


def _retries(world: World) -> None:
    first = world.append("t", 2, key="k1")
    world.append("t", 2, key="k1", records=first)
    second = world.append("t", 1, key="k2", ack_fsync=True)
    world.append("t", 1)
    world.kill().start()
    world.append("t", 2, key="k1", records=first)
    world.append("t", 1, key="k2", records=second)
    third = world.append("f", 2, key="k1", config=changes(durability="fsync"))
    world.append("f", 2, key="k1", records=third)
    world.check()


def _configs(world: World) -> None:
    world.append("t")
    world.put("t", durability="fsync")
    world.append("t")
    world.put("t", durability="memory", cap_records=10)
    world.append("t")
    world.put("t", priority=5)
    world.check()


def _recreated(world: World) -> None:
    world.append("t", 3)
    world.drop("t")
    world.append("t", 1)
    world.append("u", 1, config=changes(durability="fsync"))
    world.drop("u")
    world.drop("t")
    world.put("t", durability="fsync")
    world.append("t", 2)
    world.check()


def _recreated_by_another_process(world: World) -> None:
    """The newest topic is dropped, and the next process, whose clock is behind, makes it again: its epoch is above."""
    world.append("t", 1)
    for end in (world.kill, world.stop, world.lose_nothing):
        world.append("u", 2)
        world.drop("u")
        end()
        world.clock.wall_step(-3_600_000)
        world.start()
        world.append("u", 1)
        world.drop("u")
    world.append("u", 1)
    world.check()


def _started_under_another_clock(world: World) -> None:
    """The wall clock is days ahead, and the process is started anew before anybody can know whether that is so."""
    world.append("t", 2, config=changes(ttl_ms=60_000))
    world.append("u", 1, config=changes(ttl_ms=60_000, durability="fsync"))
    world.clock.wall_step(2 * 86_400_000)
    for end in (world.kill, world.stop, world.kill):
        end().start()
        world.append("t", 1)
        state = world.core.state("t")
        assert state.count == state.head_seq, "a clock that was set forward expires what is young"
        world.check()
    world.step(60_000)
    world.append("t", 1)
    world.check()


def _started_behind_its_clock(world: World) -> None:
    """The wall clock is set back, and the process is started anew: what has expired stays so. Once the machine was off
    in between, and engine time begins at what was logged last."""
    world.append("t", 2, config=changes(ttl_ms=60_000))
    world.clock.wall_step(-3_600_000)
    world.stop().power_off().start()
    # Nobody looks at power failures from here on: in another boot the wall clock counts (ADR 0060).
    world.probe = unprobed
    for end in (world.kill, world.stop, world.kill):
        world.step(60_001)
        assert world.core.state("t").count == 0
        world.clock.wall_step(-3_600_000)
        end().start()
        assert world.core.state("t").count == 0, "a clock that was set back revives what has expired"
        world.check()
        world.append("t", 2)


def _quiet_and_wake(world: World) -> None:
    world.append("t", 2)
    world.append("u", 1, config=changes(durability="memory"))
    world.settle()
    world.append("t", wait=False)
    world.append("u", wait=False)
    world.step()
    world.append("t", 2)
    world.settle()
    world.check()
    world.power_off().start()
    world.check()
    world.append("t")


def _ephemeral(world: World) -> None:
    world.put("e", durability="ephemeral")
    world.append("e", 3)
    world.append("d", 1)
    world.append("e", 2)
    world.kill().start()
    world.append("e", 1)
    world.settle()
    world.append("e", 2)
    world.stop().start()
    world.append("e", 1)


def _ephemeral_turns(world: World) -> None:
    """Classes change while records of both kinds are there, and while syncs are under way."""
    world.append("t", 3)
    world.put("t", durability="ephemeral")
    world.append("t", 2)
    world.delete("t", seqs=(2,))
    world.put("t", durability="disk")
    world.append("t", 1)
    world.put("t", durability="ephemeral", wait=False)
    world.append("t", 2)
    world.put("t", durability="disk", wait=False)
    world.append("t", 1)
    world.kill().start()
    world.put("t", durability="ephemeral")
    world.append("t", 1)
    world.put("t", durability="fsync")
    world.append("t", 1)
    world.stop().start()
    world.check()


def _ephemeral_blocks(world: World) -> None:
    """More ephemeral records than are logged ahead at once, before a sync has ended."""
    world.put("t", durability="ephemeral")
    world.append("t", 1)
    for count in (6, 2, 5, 2, 7):
        world.append("t", count, wait=False)
        world.step(0.01)
    world.append("t", 1)
    world.put("t", durability="disk")
    world.append("t", 1, wait=False)
    world.step(0.01)
    world.append("t", 40)
    world.power_off().start()
    world.append("t", 1)
    world.check()


def _sync_window(world: World) -> None:
    """More records than may be acked ahead of the disk: writes wait, and no seq is given twice."""
    world.put("t", durability="memory")
    world.put("d", durability="disk")
    for _ in range(5):
        world.append("t", 25, wait=False)
        world.append("d", 20, wait=False)
        world.step(0.01)
    world.append("t", 1)
    world.append("d", 1)
    world.power_off().start()
    world.append("t", 60)
    world.append("d", 1)
    world.check()


def _clean_stop(world: World) -> None:
    world.append("t", 2)
    world.append("f", 2, config=changes(durability="fsync"))
    world.stop().start()
    world.check()
    world.append("t", 1)
    world.append("f", 1)
    world.stop().start()
    world.append("t", 1)
    world.check()


def _stop_start_stop(world: World) -> None:
    world.append("t", 2)
    for _ in range(3):
        world.stop().start()
    world.append("t", 2, size=3000)
    world.stop().start()
    world.check()


def _killed_again_and_again(world: World) -> None:
    for _ in range(4):
        world.append("t", 2, size=300)
        world.append("f", 1, config=changes(durability="fsync"))
        world.kill().start()
    world.check()


def _power_failures(world: World) -> None:
    for turn in range(3):
        world.append("t", 2, size=300)
        world.append("f", 1, config=changes(durability="fsync"))
        world.append("t", 1)
        world.power_off(Cut(0) if turn % 2 == 0 else None)
        world.start()
    world.check()


def _kill_then_power(world: World) -> None:
    """What a killed process left in the page cache was never on the disk when the power fails."""
    world.append("t", 3, size=200)
    world.append("f", 1, config=changes(durability="fsync"))
    world.append("t", 3, size=200)
    world.kill().start()
    world.append("t", 1)
    world.append("f", 1)
    world.power_off().start()
    world.check()


def _full_disk(world: World) -> None:
    """The disk fills up, deletes still work, space comes back, writing goes on."""
    world.append("t", 3, size=500)
    refused = 0
    for _ in range(60):
        try:
            world.append("t", 8, size=2900, wait=False)
            world.step(3)
        except Unavailable:
            refused += 1
            if refused > 3:
                break
    world.step(20_000)
    assert refused, "the disk was never full"
    for _ in range(200):
        try:
            world.append("t", wait=False)
            world.step(3)
        except Unavailable:
            break
    else:
        raise AssertionError("small writes took all that was left")
    world.delete("t", seqs=(1, 2))
    world.disk.free(1 << 20)
    world.step(2000)
    world.settle()
    world.append("t", 4, size=900)
    world.check()


def _two_shards(world: World) -> None:
    names = [f"t{index}" for index in range(4)]
    for index, name in enumerate(names):
        world.put(name, durability="fsync" if index % 2 else "disk")
    world.settle()
    for _ in range(2):
        for name in names:
            world.append(name, 1, size=200, wait=False)
        world.step()
    for name in names:
        world.append(name, 1)
    world.drop("t0")
    world.append("t0", 1)
    world.check()


def _two_shards_rotating(world: World) -> None:
    names = [f"t{index}" for index in range(4)]
    for _ in range(6):
        for name in names:
            world.append(name, 1, size=900, wait=False)
        world.step()
    world.settle()
    world.kill().start()
    world.append("t0", 1, ack_fsync=True)
    world.check()


def changes(**changes: object) -> ConfigChanges:
    return msgspec.convert(changes, ConfigChanges)


ROOMY = msgspec.structs.replace(
    TINY,
    wal_file_bytes=64 * 1024,
    wal_reserve_bytes=12 * 1024,
    wal_fill_bytes=8 * 1024,
    disk_reserve_bytes=128 * 1024,
)
"""Log files in which the reserve is worth several blocks, as it is at full size."""
TWO = msgspec.structs.replace(TINY, wal_shards=2)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("first-start", _first_start, fresh=True),
    Scenario("first-start-two-shards", _first_start, TWO, fresh=True, lags=(0,)),
    Scenario("single-memory", _one_by_one("memory")),
    Scenario("single-disk", _one_by_one("disk")),
    Scenario("single-fsync", _one_by_one("fsync")),
    Scenario("batch-disk", _batches("disk")),
    Scenario("batch-fsync", _batches("fsync")),
    Scenario("interleaved", _interleaved, lags=(0, 2, 4, 6)),
    Scenario("joined-disk", _joined("disk")),
    Scenario("joined-fsync", _joined("fsync")),
    Scenario("rotation", _rotation),
    Scenario("rotation-unsynced", _rotation_unsynced, lags=(0, 6)),
    Scenario("oversize", _oversize),
    Scenario("deletes", _deletes),
    Scenario("delete-all-quiet", _delete_all_quiet),
    Scenario("caps", _caps),
    Scenario("ages", _ages, lags=(0,)),
    Scenario("rejects", _rejects, lags=(0,)),
    Scenario("retries", _retries),
    Scenario("configs", _configs),
    Scenario("recreated", _recreated),
    Scenario("recreated-by-another", _recreated_by_another_process),
    Scenario("started-under-another-clock", _started_under_another_clock),
    Scenario("started-behind-its-clock", _started_behind_its_clock),
    Scenario("quiet-and-wake", _quiet_and_wake),
    Scenario("ephemeral", _ephemeral),
    Scenario("ephemeral-turns", _ephemeral_turns),
    Scenario("ephemeral-blocks", _ephemeral_blocks, lags=(0, 6), window=64),
    Scenario("sync-window", _sync_window, lags=(0, 6), window=64),
    Scenario("clean-stop", _clean_stop),
    Scenario("stop-start-stop", _stop_start_stop, lags=(0,)),
    Scenario("killed-again", _killed_again_and_again),
    Scenario("power-failures", _power_failures),
    Scenario("kill-then-power", _kill_then_power),
    Scenario("full-disk", _full_disk, ROOMY, capacity=1024 * 1024, lags=(0,)),
    Scenario("two-shards", _two_shards, TWO),
    Scenario("two-shards-rotating", _two_shards_rotating, TWO),
    *(
        Scenario(f"history-{name}", run, settings)
        for name, run, settings in (
            ("seal", history.seal, history.SMALL),
            ("tails", history.tails, history.SMALL),
            ("pending", history.pending, history.SMALL),
            ("trim", history.trim, history.SMALL),
            ("settles", history.settles, history.GROWING),
            ("resumes", history.resumes, history.GROWING),
            ("meanwhile", history.meanwhile, history.SMALL),
            ("deletes", history.deletes, history.SMALL),
            ("caps", history.caps, history.SMALL),
            ("ages", history.ages, history.SMALL),
            ("retries", history.retries, history.SMALL),
            ("ephemeral", history.ephemeral, history.SMALL),
            ("gaps", history.gaps, history.SMALL),
            ("lives", history.lives, history.SMALL),
            ("stops", history.stops, history.STOPPING),
            ("shards", history.shards, history.TWO_SMALL),
            ("drops", history.drops, history.SMALL),
            ("rewrites", history.rewrites, history.SMALL),
            ("islands", history.islands, history.SMALL),
            ("between", history.between, history.SMALL),
            ("slices", history.slices, history.SMALL),
            ("unsynced", history.unsynced, history.UNHURRIED),
            ("flood", history.flood, history.SMALL),
            ("full", history.full, history.SMALL),
            ("resharded", history.resharded, history.SMALL),
            ("unfinished", history.unfinished, history.SMALL),
            ("refused", history.refused, history.SMALL),
            ("pinned", pinned, history.SMALL),
        )
    ),
    *(Scenario(f"history-cold-{name}", run, cold.COLD) for name, run in cold.SCRIPTS),
    *(Scenario(f"history-merge-{name}", run, merge.EARLY, lags=lags) for name, run, lags in merge.SCRIPTS),
)
