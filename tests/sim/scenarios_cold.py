"""Situations with a cold tier: segments move there, are deleted and dropped, and the tier is not always well.

The tier is a directory of the same disk (`cold.py`), so every crash is one of both. Segments of four records, of which
one stays; each ends with all that is left of it in one place, and nothing beside it.
"""

from __future__ import annotations

import msgspec

from engine.errors import Unavailable
from engine.types import Match
from tests.sim.cold import COLD_DIR, make_bucket
from tests.sim.media import Cut
from tests.sim.moods import Mood
from tests.sim.oracle import Crash
from tests.sim.scenarios_history import SMALL
from tests.sim.world import World

COLD = msgspec.structs.replace(SMALL, segment_max_events=4, cold_tier=True, hot_retain_segments=1)


def _begin(world: World, segments: int = 2, mood: Mood = Mood.WELL) -> None:
    """Some segments, all but one of which are to move."""
    world.tier.mood = mood
    world.put("t", durability="disk")
    for _ in range(segments):
        world.append("t", 2, tag="red")
        world.append("t", 2, tag="blue")
        world.checkpoint()


def _until_moved(world: World, count: int) -> None:
    """Let the mover work until this process has moved so many."""
    for _ in range(60):
        if world.tolerant or world.core.keeper.mover.moved >= count:
            return
        world.step()
    raise AssertionError(f"only {world.core.keeper.mover.moved} segments were moved")


def _data(world: World, prefix: str) -> set[str]:
    """The segments' data below a directory."""
    paths = (path.removeprefix(prefix) for path in world.disk.cached_tree() if path.startswith(f"{prefix}topics/"))
    return {path for path in paths if path.endswith(".data")}


def _settle_tier(world: World, *, cold: int) -> None:
    """After two more checkpoints and a start, so many segments are in the tier, and none of them here too."""
    for _ in range(3):
        world.append("t", 1)
        world.checkpoint()
    world.settle()
    for _ in range(4 * world.lag):
        world.step()  # what leaves the tier does so in jobs of the mover
    world.kill().start()
    here, there = _data(world, ""), _data(world, f"{COLD_DIR}/")
    assert len(there) == cold, f"in the tier there are {sorted(there)}"
    assert not here & there, f"in both places there are {sorted(here & there)}"


def move(world: World) -> None:
    """Copied, told by one snapshot, told by both, gone from here; and read from there."""
    _begin(world, 3)
    _until_moved(world, 2)
    world.check()
    world.append("t", 1)
    world.checkpoint()
    world.check()
    world.append("t", 1)
    world.checkpoint()
    world.check()
    world.kill().start()
    world.check()


def dies(world: World) -> None:
    """Processes that end between the steps of a move, and others that go on."""
    world.sliced = False  # how much the power failure takes is counted on
    _begin(world)
    world.kill().start()
    world.checkpoint()
    _until_moved(world, 1)
    world.kill().start()  # nobody knows that it was moved
    world.append("t", 4)
    world.checkpoint()
    _until_moved(world, 2)
    world.append("t", 1)
    world.checkpoint()
    world.power_off(Cut(0)).start()
    world.check()
    _settle_tier(world, cold=2)
    world.stop().start()
    world.check()


def deletes(world: World) -> None:
    """Records that lie in the tier are deleted, by seq, tag and bound; what is wholly dead leaves it."""
    _begin(world, 3)
    _until_moved(world, 2)
    world.append("t", 1)
    world.checkpoint()
    world.delete("t", seqs=(2,))
    world.append("t", 1)
    world.checkpoint()
    world.delete("t", match=Match("Eq", "red"))
    world.checkpoint()
    world.kill().start()
    world.delete("t", before_seq=5)
    world.check()
    world.checkpoint()
    world.append("t", 1)
    world.checkpoint()
    _settle_tier(world, cold=2)
    world.check()


def drops(world: World) -> None:
    """A topic with data in the tier is dropped, and so is one that is on its way there."""
    _begin(world, 3)
    _until_moved(world, 2)
    world.append("t", 1)
    world.checkpoint()
    world.drop("t")
    for _ in range(2):
        world.append("t", 4)
        world.checkpoint()
    _until_moved(world, 3)
    world.drop("t")
    world.append("t", 1)
    world.checkpoint()
    _settle_tier(world, cold=0)
    world.check()


def leaves(world: World) -> None:
    """More comes to be superfluous in the tier while what is so already is being removed."""
    for name in ("t", "u"):
        for _ in range(2):
            world.append(name, 4)
            world.checkpoint()
    _until_moved(world, 2)
    for _ in range(2):
        world.append("v", 1)
        world.checkpoint()
    moved = _data(world, f"{COLD_DIR}/")
    assert len(moved) == 2
    world.hangs = True
    for name in ("t", "u"):
        world.drop(name)
        for _ in range(3):
            world.append("v", 1)
            world.checkpoint()
        world.hangs = False
        for _ in range(world.lag // 2):
            world.step()
        world.hangs = name == "t"  # what is done is not known to be
    for _ in range(4 * world.lag + 8):
        world.step()
    assert not moved & _data(world, f"{COLD_DIR}/"), "what nobody has any more stays in the tier"
    world.kill().start()
    world.check()


def caps(world: World) -> None:
    """The front of a capped topic is in the tier when it goes."""
    world.put("t", durability="disk", cap_records=10)
    for _ in range(3):
        world.append("t", 4)
        world.checkpoint()
    _until_moved(world, 1)
    for _ in range(3):
        world.append("t", 4)
        world.checkpoint()
        world.check()
    world.settle()
    world.kill().start()
    world.check()


def between(world: World) -> None:
    """What clients do in between the calls of a move."""
    _begin(world, 3)
    world.append("gone", 8)
    world.between = [
        *(lambda: world.append("t", 1, wait=False), world.step),
        *(lambda: world.delete("t", seqs=(2, 3), wait=False), world.step, world.step),
        *(world.core.checkpoint, world.step, world.step, world.step),
        *(lambda: world.delete("t", match=Match("Eq", "blue"), wait=False), world.step),
        *(lambda: world.drop("gone", wait=False), world.step, world.step),
        *(world.core.checkpoint, world.step, world.step, world.step),
    ]
    world.checkpoint()
    for _ in range(20):
        world.step()
    world.settle()
    world.check()
    world.kill().start()
    world.check()


def gone(world: World) -> None:
    """The tier is not mounted while segments should move: writes, checkpoints and starts go on without it."""
    _begin(world, mood=Mood.GONE)
    for _ in range(4):
        world.step()
    assert world.core.keeper.mover.failures, "nobody noticed that the tier is not there"
    world.append("t", 4)
    world.checkpoint()
    world.check()
    world.tier.mood = Mood.WELL
    world.clock.tick(400_000)
    _until_moved(world, 2)
    assert world.core.keeper.mover.problem is None, "the problem outlives its reason"
    _settle_tier(world, cold=2)
    world.tier.mood = Mood.GONE
    world.append("t", 2)
    world.delete("t", seqs=(1,))
    world.checkpoint()
    world.kill()
    world.start()
    world.check()


def hangs(world: World) -> None:
    """A move that never ends: everything else goes on, and the next process begins anew."""
    world.hangs = True
    _begin(world)
    world.append("t", 4)
    world.checkpoint()
    world.delete("t", seqs=(2,))
    world.append("t", 1)
    world.checkpoint()
    world.stop().start()
    world.hangs = True
    world.append("t", 1)
    world.checkpoint()
    assert not world.core.keeper.mover.moved
    world.hangs = False
    world.clock.tick(400_000)
    _until_moved(world, 1)
    world.checkpoint()
    world.check()


def lies(world: World) -> None:
    """The tier writes other bytes than it was given: nothing is cold before it has been read back."""
    _begin(world)
    _until_moved(world, 1)
    world.tier.mood = Mood.LYING
    world.append("t", 4)
    world.checkpoint()
    for _ in range(12):
        world.step()
    mover = world.core.keeper.mover
    assert mover.problem is not None, "nobody noticed that the tier lies"
    assert mover.moved == 1
    for _ in range(2):
        world.append("t", 1)
        world.checkpoint()
        world.check()
    world.tier.mood = Mood.WELL
    world.clock.tick(400_000)
    _until_moved(world, 2)
    for _ in range(2):
        world.append("t", 1)
        world.checkpoint()
        world.check()
    world.kill().start()
    world.check()


# -- a bucket in place of a directory ---------------------------------------------------------------------------------


def bucket(world: World) -> None:
    """Moved to a bucket, and its front deleted there, and then all of it, through processes that end in between."""
    make_bucket(world.disk)
    _begin(world, 3)
    _until_moved(world, 2)
    world.append("t", 1)
    world.checkpoint()
    world.kill().start()
    world.check()
    world.delete("t", seqs=(2,))
    world.delete("t", before_seq=5)
    for _ in range(2):
        world.append("t", 1)
        world.checkpoint()
    world.kill().start()
    world.check()
    world.drop("t")
    for _ in range(2):
        world.append("t", 1)
        world.checkpoint()
    _settle_tier(world, cold=0)
    world.check()


def _unread(world: World) -> None:
    """Another process, which has read nothing yet."""
    for _ in range(3):
        world.append("t", 1)
        world.checkpoint()
    world.settle()
    world.stop()
    world.crash = Crash.NONE
    world.start()


def flickers(world: World) -> None:
    """Requests are refused, answers come too late, cut short, or hurt: each is made again, and no record is lost."""
    make_bucket(world.disk)
    world.tier.refusals, world.tier.lost_answers, world.tier.cuts = 2, 2, 2
    _begin(world, 3)
    _until_moved(world, 2)
    _unread(world)
    world.tier.refusals, world.tier.cuts = 1, 3
    world.check()
    _unread(world)
    world.tier.garbles = 1
    world.check()
    _unread(world)
    world.check()


def _cannot_read(world: World) -> None:
    """What lies in the tier cannot be had, and is not lost."""
    try:
        world.check()
    except Unavailable:
        return
    raise AssertionError("what is not there was read")


def vanishes(world: World) -> None:
    """Objects are not found for a while, and credentials expire: nothing is lost by it, and nothing waits for it."""
    make_bucket(world.disk)
    _begin(world, 3, Mood.VANISHED)
    for _ in range(8):
        world.step()
    assert world.tolerant or not world.core.keeper.mover.moved, "what cannot be read back counts as moved"
    world.tier.mood = Mood.WELL
    world.clock.tick(400_000)
    _until_moved(world, 2)
    for mood in (Mood.EXPIRED, Mood.VANISHED):
        _unread(world)
        world.tier.mood = mood
        world.append("t", 4)
        world.delete("t", seqs=(2,))
        world.checkpoint()
        _cannot_read(world)
        world.tier.mood = Mood.WELL
        world.check()
    world.kill().start()
    world.check()


def stale(world: World) -> None:
    """Listings lag behind while the tier is swept: what is there and in use stays."""
    make_bucket(world.disk)
    _begin(world, 3)
    _until_moved(world, 2)
    for _ in range(2):
        world.append("t", 1)
        world.checkpoint()
    world.kill().start()
    world.tier.mood = Mood.STALE
    for _ in range(3):
        world.append("t", 4)
        world.checkpoint()
    for _ in range(4 * world.lag + 8):
        world.step()
    _unread(world)
    world.check()


SCRIPTS = (
    ("move", move),
    ("dies", dies),
    ("deletes", deletes),
    ("drops", drops),
    ("leaves", leaves),
    ("caps", caps),
    ("between", between),
    ("gone", gone),
    ("hangs", hangs),
    ("lies", lies),
    ("bucket", bucket),
    ("flickers", flickers),
    ("vanishes", vanishes),
    ("stale", stale),
)
"""The name of each, and what it does."""
