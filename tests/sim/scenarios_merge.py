"""Situations in which small segments of the cold tier are joined: in a directory and in a bucket, with everything that
may happen in the middle.

Segments of four records come from processes that seal early; another one, whose segments are larger, joins them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from unittest import mock

import msgspec

from engine.checkpoint.merge import MergeJob
from engine.core.jobs import outcome
from engine.formats.work import WORK_DIR
from engine.segment.tiers import TieredFs
from engine.types import Match
from tests.sim.cold import COLD_DIR, make_bucket
from tests.sim.media import Cut
from tests.sim.moods import Mood
from tests.sim.oracle import Crash
from tests.sim.scenarios_cold import COLD
from tests.sim.world import World

EARLY = msgspec.structs.replace(COLD, cold_merge_min=0)
JOINING = msgspec.structs.replace(COLD, segment_max_events=16, cold_merge_min=3)


def _steps(world: World, until: Callable[[], bool], why: str) -> None:
    """Let the mover work."""
    for _ in range(80):
        if world.tolerant or until():
            return
        world.step()
    raise AssertionError(why)


def _begin(world: World, segments: int = 4, *, bucket: bool = False) -> None:
    """Small segments, all but one of which are in the tier, and a process that is to join them. No crash before that is
    looked at: those are `scenarios_cold`'s."""
    world.watched = False
    if bucket:
        make_bucket(world.disk)
    world.kill()
    world.settings = EARLY
    world.start()
    world.put("t", durability="disk")
    for at in range(segments):
        world.append("t", 2, tag="red")
        world.append("t", 2, tag="blue" if at % 2 else None, node="n")
        world.checkpoint()
    mover = world.core.keeper.mover
    _steps(world, lambda: mover.moved >= segments - 1, "the segments do not move")
    _checkpoints(world, 2)
    world.settle()
    world.kill()
    world.settings = JOINING
    world.start()
    world.watched = True


def _checkpoints(world: World, count: int) -> None:
    for _ in range(count):
        world.append("t", 1)
        world.checkpoint()


def _join(world: World, made: int = 1) -> None:
    """A checkpoint, after which the mover joins what it finds."""
    _checkpoints(world, 1)
    _steps(world, lambda: world.core.keeper.mover.merges.made >= made, "nothing is joined")


def _there(world: World, kind: str, prefix: str = f"{COLD_DIR}/") -> list[str]:
    """Files of one kind in the tier."""
    paths = (path.removeprefix(prefix) for path in world.disk.cached_tree() if path.startswith(prefix))
    return sorted(path for path in paths if path.startswith(("topics/", f"{WORK_DIR}/")) and path.endswith(kind))


def _settled(world: World, *, data: int) -> None:
    """After some checkpoints of one process there is so much data in the tier, and neither works nor anything else."""
    for round_ in range(5):
        world.watched = round_ in (1, 2)
        _checkpoints(world, 1)
        for _ in range(4 * world.lag + 8):
            world.step()
    world.watched = True
    there = _there(world, ".data")
    assert world.tolerant or len(there) == data, f"in the tier there are {there}"
    left = [*_there(world, ".json"), *_there(world, ".tmp")]
    assert world.tolerant or not left, f"what is left of works is {left}"
    stems = {path.removesuffix(".data") for path in there}
    others = {path.rpartition(".")[0] for path in (*_there(world, ".idx"), *_there(world, ".tags"))}
    assert world.tolerant or others <= stems, f"nothing has {sorted(others - stems)}"
    world.check()


def _joined(world: World) -> None:
    _begin(world)
    _join(world)
    assert world.tolerant or len(_there(world, ".data")) == 4, "the new one is not beside the old ones"
    world.check()
    _checkpoints(world, 1)
    world.check()
    _checkpoints(world, 1)
    world.check()
    _settled(world, data=1)
    world.kill().start()
    world.check()


def directory(world: World) -> None:
    """Joined, told by one snapshot, told by both, and then the old ones go and their work."""
    _joined(world)


def bucket(world: World) -> None:
    """The same in a bucket."""
    make_bucket(world.disk)
    _joined(world)


def dies(world: World) -> None:
    """Processes that end between the steps, and others that undo what is half done, or go on."""
    world.sliced = False  # how much the power failure takes is counted on
    _begin(world)
    _join(world)
    world.kill().start()  # no snapshot says so: it is all done again
    world.check()
    _join(world)
    _checkpoints(world, 1)
    world.power_off(Cut(0)).start()
    world.check()
    _settled(world, data=1)
    world.stop().start()
    world.check()


def deletes(world: World) -> None:
    """Records are deleted while they are joined, and after that; what was deleted stays so, and tags find the rest."""
    _begin(world)
    _checkpoints(world, 1)
    world.delete("t", seqs=(2,))
    _steps(world, lambda: world.core.keeper.mover.merges.made >= 1, "nothing is joined")
    world.delete("t", seqs=(5, 6))
    world.check()
    _checkpoints(world, 1)
    world.delete("t", match=Match("Eq", "blue"))
    world.check()
    world.kill().start()
    world.check()
    _checkpoints(world, 2)
    world.delete("t", match=Match("Eq", "red"))
    world.check()
    world.kill().start()
    _settled(world, data=1)


def drops(world: World) -> None:
    """The front goes while it is joined, and then the topic: nothing of either is left."""
    _begin(world, 5)
    _checkpoints(world, 1)
    world.delete("t", before_seq=10)
    _steps(world, lambda: world.core.keeper.mover.merges.made >= 1, "nothing is joined")
    world.check()
    _checkpoints(world, 1)
    world.drop("t")
    _settled(world, data=0)
    world.kill().start()
    world.check()


def dropped(world: World) -> None:
    """The topic goes between the join and the checkpoint that would take it."""
    _begin(world)
    _join(world)
    world.drop("t")
    _settled(world, data=0)
    world.kill().start()
    world.check()


def between(world: World) -> None:
    """What clients do in between the calls of a join."""
    _begin(world)
    _checkpoints(world, 1)
    world.between = [
        *(lambda: world.append("t", 1, wait=False), world.step),
        *(lambda: world.delete("t", seqs=(2, 3), wait=False), world.step, world.step),
        *(world.core.checkpoint, world.step, world.step, world.step, world.step),
        *(lambda: world.delete("t", match=Match("Eq", "blue"), wait=False), world.step),
        *(world.core.checkpoint, world.step, world.step, world.step),
    ]
    for _ in range(40):
        world.step()
    world.between = []
    world.settle()
    world.check()
    _settled(world, data=1)
    world.kill().start()
    world.check()


def _caught(world: World) -> MergeJob | None:
    """A join that is about to run, in a process that does not get to it any more."""
    world.hangs = True
    _checkpoints(world, 1)
    for _ in range(40):
        job = world.core.keeper.mover._running
        if isinstance(job, MergeJob):
            return job
        world.hangs = False
        while world._move is not None:
            world.step()
        world.hangs = True
        world.step()
    assert world.tolerant, "nothing is to be joined"
    return None


def _tiered(world: World) -> TieredFs:
    fs = world.tier.over(world.disk)
    assert isinstance(fs, TieredFs)
    return fs


def _another(world: World, job: MergeJob | None) -> None:
    """What a process that is no more does with the tier, all of it, be there what may; what it does to its disk, nobody
    sees."""
    if job is not None:
        outcome(job, TieredFs(world.disk.killed(), _tiered(world).tier))


def _twice(world: World) -> None:
    """Two processes join the same: the second one is about to when the first, which is no more, does it."""
    _begin(world)
    job = _caught(world)
    world.kill().start()
    world.delete("t", seqs=(2,))
    _caught(world)
    _another(world, job)
    world.hangs = False
    _steps(world, lambda: world.core.keeper.mover.merges.made > 0, "the second one does not end")
    world.check()
    _checkpoints(world, 2)
    world.check()
    world.kill().start()
    world.check()
    _settled(world, data=1)


def twice(world: World) -> None:
    """Two processes at once, in a directory."""
    _twice(world)


def rivals(world: World) -> None:
    """Two processes at once, in a bucket."""
    make_bucket(world.disk)
    _twice(world)


def _late(world: World, checkpoints: int) -> None:
    """A process that is no more does what it was about to when another one has joined the same, of which less was left.
    Both call it the same: the first one had come to that number by joins that failed."""
    _begin(world)
    job = _caught(world)
    read = None if job is None else job._build(_tiered(world))
    world.kill().start()
    world.delete("t", seqs=(2,))
    _join(world)
    if job is not None:
        job.number = world.core.keeper.mover.merges._waiting[0].number
    _checkpoints(world, checkpoints)
    for _ in range(4 * world.lag + 8):
        world.step()
    with nullcontext() if job is None else mock.patch.object(job, "_build", return_value=read):
        _another(world, job)
    world.kill().start()
    world.check()
    _settled(world, data=1)


def late(world: World) -> None:
    """The work of the second one is still there."""
    make_bucket(world.disk)
    _late(world, 1)


def later(world: World) -> None:
    """The work of the second one is over and gone."""
    _late(world, 4)


def slow(world: World) -> None:
    """It takes until another checkpoint is over, and then the tier is looked through: what waits to be taken stays."""
    _begin(world)
    world.hangs = True
    _checkpoints(world, 2)
    world.hangs = False
    _steps(world, lambda: world.core.keeper.mover.merges.made >= 1, "nothing is joined")
    for _ in range(4 * world.lag + 8):
        world.step()
    _checkpoints(world, 1)
    world.kill().start()
    world.check()
    _settled(world, data=1)


def _trouble(world: World, mood: Mood) -> None:
    """The tier is not well when something is to be joined; then it is."""
    _begin(world, bucket=mood in (Mood.EXPIRED, Mood.VANISHED))
    world.tier.mood = mood
    _checkpoints(world, 1)
    for _ in range(12):
        world.step()
    assert world.tolerant or not world.core.keeper.mover.merges.made, "what did not go well counts"
    world.delete("t", seqs=(2,))
    _checkpoints(world, 2)
    world.tier.mood = Mood.WELL
    world.check()
    world.kill().start()
    world.check()
    _settled(world, data=1)


def gone(world: World) -> None:
    """The directory is not mounted."""
    _trouble(world, Mood.GONE)


def lies(world: World) -> None:
    """The tier writes other bytes than it was given."""
    _trouble(world, Mood.LYING)


def vanishes(world: World) -> None:
    """Objects are not found for a while."""
    _trouble(world, Mood.VANISHED)


def expires(world: World) -> None:
    """The credentials expire in the middle."""
    _trouble(world, Mood.EXPIRED)


def flickers(world: World) -> None:
    """Requests are refused, answers do not come, or are cut short or hurt."""
    _begin(world, bucket=True)
    world.tier.refusals, world.tier.lost_answers, world.tier.cuts = 2, 3, 2
    _join(world)
    world.check()
    _checkpoints(world, 1)
    world.kill().start()
    world.tier.garbles = 1
    world.check()
    _settled(world, data=1)


def stale(world: World) -> None:
    """Listings lag behind while what is half done is looked for: what is in use stays, and nothing is lost."""
    _begin(world, bucket=True)
    _join(world)
    world.kill().start()
    world.tier.mood = Mood.STALE
    for _ in range(4):
        _checkpoints(world, 1)
        for _ in range(4 * world.lag + 8):
            world.step()
    world.check()
    world.settle()
    world.stop()
    world.crash = Crash.NONE
    world.start()
    world.check()
    _settled(world, data=1)


SCRIPTS = (
    ("directory", directory, (0, 4)),
    ("bucket", bucket, (0,)),
    ("dies", dies, (0, 4)),
    ("deletes", deletes, (4,)),
    ("drops", drops, (4,)),
    ("dropped", dropped, (0,)),
    ("between", between, (0, 4)),
    ("twice", twice, (0,)),
    ("rivals", rivals, (4,)),
    ("late", late, (4,)),
    ("later", later, (0,)),
    ("slow", slow, (0,)),
    ("gone", gone, (0,)),
    ("lies", lies, (4,)),
    ("vanishes", vanishes, (0,)),
    ("expires", expires, (4,)),
    ("flickers", flickers, (0,)),
    ("stale", stale, (4,)),
)
"""The name of each, what it does, and how far syncs lag: what differs little is looked at with one of them."""
