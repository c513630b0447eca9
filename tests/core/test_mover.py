"""Segments move to the cold tier; whatever becomes of it, nothing but a read of what lies there notices."""

from __future__ import annotations

from itertools import product
from typing import cast

import msgspec
import pytest

from engine.core.mover import DropJob, MoveJob, to_move
from engine.errors import Code, Unavailable
from engine.fs import Fs, OpenMode, write_whole
from engine.limits import EngineSettings
from engine.segment.segment import Segment
from engine.segment.tiers import ColdError, ColdTier, LocalSegmentStore, SegmentStore, TieredFs
from engine.topic.block import Block
from tests.sim.disk import FakeDisk
from tests.sim.media import Cut
from tests.sim.oracle import Crash
from tests.sim.scenarios_history import SMALL
from tests.sim.view import look
from tests.sim.world import World

COLD = msgspec.structs.replace(SMALL, cold_tier=True, hot_retain_segments=1)


class Place:
    """A cold directory: how often it was opened and read, and whether it answers."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.opened = 0
        self.broken = False

    def wrap(self, fs: Fs) -> TieredFs:
        return TieredFs(fs, ColdTier(self.open))

    def open(self, may_begin: bool) -> SegmentStore:
        self.opened += 1
        if self.broken:
            raise ColdError("it hangs")
        return LocalSegmentStore(cast(Fs, Answering(self)), self.world_id, may_begin=may_begin)

    world_id = b""


class Answering:
    """The directory, as long as it answers."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __getattr__(self, name: str) -> object:
        if self._place.broken:
            raise ColdError("it hangs")
        return getattr(self._place.disk, name)


def drive(world: World) -> None:
    """Run the mover's jobs, as its thread does."""
    mover = world.core.keeper.mover
    for _ in range(100):
        job = mover.job(world.core.now())
        if job is None:
            return
        error = None
        try:
            job.run(world.core.fs)
        except OSError as failure:
            error = failure
        mover.done(job, error, world.core.now())


def begun(place: Place) -> World:
    """A store with three segments, two of which are beyond what stays."""
    world = World(settings=COLD, wrap=place.wrap).start()
    place.world_id = world.core.store.store_id
    # Records in the tier are not on the disk that the monitor watches.
    setattr(world.monitor, "_unlinked", lambda disk, path: None)  # noqa: B010  # mypy has no other way
    world.put("t", durability="disk")
    for _ in range(3):
        world.append("t", 4, tag="red")
        world.append("t", 4)
        world.checkpoint()
    return world


def unlooked(world: World) -> None:
    """Start without reading everything."""
    world.crash = Crash.NONE
    world.start()


def segments(world: World) -> list[Segment]:
    return [
        block.segment
        for slot in world.core.catalog.by_id.values()
        for block in slot.topic.tail.blocks
        if block.segment is not None and not block.segment.in_tails
    ]


def local_data(world: World) -> set[str]:
    return {path for path in world.disk.cached_tree() if path.endswith(".data") and path.startswith("topics/")}


def test_old_segments_move_and_their_local_data_goes_when_both_snapshots_say_so() -> None:
    place = Place()
    world = begun(place)
    assert place.opened == 0
    drive(world)
    assert [one.cold for one in segments(world)] == [False, False, False]
    world.append("t")
    world.checkpoint()
    assert [one.cold for one in segments(world)] == [True, True, False]
    assert len(local_data(world)) == 3
    world.append("t")
    world.checkpoint()
    assert local_data(world) == {segments(world)[2].data_path}
    world.check()
    world.kill()
    world.start()
    world.check()
    assert [one.cold for one in segments(world)] == [True, True, False]


def test_F68_nothing_but_a_read_of_what_is_cold_opens_the_tier() -> None:
    place = Place()
    world = begun(place)
    drive(world)
    for _ in range(3):
        world.append("t")
        world.checkpoint()
    world.check()
    place.broken = True
    before = place.opened
    world.kill()
    unlooked(world)
    world.append("t", 4)
    world.delete("t", seqs=(1, 2))
    world.delete("t", before_seq=5)
    world.checkpoint()
    world.append("t", 3)
    world.checkpoint()
    world.settle()
    world.stop()
    unlooked(world)
    assert place.opened == before
    with pytest.raises(Unavailable) as raised:
        world.check()
    assert raised.value.code is Code.COLD_UNAVAILABLE
    assert place.opened > before
    place.broken = False
    world.check()


def test_F68_a_tier_that_takes_nothing_costs_nothing() -> None:
    place = Place()
    place.broken = True
    world = begun(place)
    mover = world.core.keeper.mover
    drive(world)
    assert "hangs" in str(mover.problem)
    assert mover.failures == 1
    assert len(local_data(world)) == 3
    world.append("t")
    world.checkpoint()
    world.check()
    place.broken = False
    world.clock.tick(400_000)
    world.step()
    drive(world)
    assert (mover.problem, mover.moved) == (None, 2)


def test_F68_wrong_bytes_in_the_tier_are_a_gap_of_the_records_that_they_hit() -> None:
    place = Place()
    world = begun(place)
    drive(world)
    for _ in range(2):
        world.append("t")
        world.checkpoint()
    first = segments(world)[0]
    handle = place.disk.open(first.data_path, OpenMode.WRITE)
    write_whole(place.disk, handle, (b"#",), first.data_offset + 30)
    page = look(world.core)
    assert page is not None
    world.settle()
    gaps = [(gap.first, gap.last) for slot in world.core.catalog.by_id.values() for gap in slot.topic.gaps]
    assert (1, 1) in gaps or world.core.state("t").earliest_seq == 2


def test_what_is_dropped_leaves_the_tier() -> None:
    place = Place()
    world = begun(place)
    drive(world)
    for _ in range(2):
        world.append("t")
        world.checkpoint()
    assert any(path.endswith(".data") for path in place.disk.cached_tree())
    world.drop("t")
    world.append("other")
    for _ in range(4):
        world.append("other")
        world.checkpoint()
    drive(world)
    assert not [path for path in place.disk.cached_tree() if path.startswith("topics/") and "." in path]


@pytest.mark.slow
def test_F64_after_every_cut_one_copy_can_be_read() -> None:
    place = Place()
    world = begun(place)
    images = []

    def stepped(disk: FakeDisk, what: str) -> None:
        locals_ = (disk.killed(), disk.powered_off(Cut(upto=-1), boot=disk.boot))
        colds = (place.disk.killed(), place.disk.powered_off(Cut(upto=-1)))
        images.extend([(what, *pair) for pair in product(locals_, colds)])

    watched = world.disk.on_step
    assert watched is not None

    def both(disk: FakeDisk, what: str) -> None:
        watched(disk, what)
        stepped(disk, what)

    world.disk.on_step = both
    place.disk.on_step = lambda disk, what: stepped(world.disk, what)
    drive(world)
    for _ in range(2):
        world.append("t")
        world.settle()
        world.checkpoint()
    world.disk.on_step, place.disk.on_step = watched, None
    assert len(images) > 100
    for what, local, cold in images[::3]:
        after = Place()
        after.world_id, after.disk = place.world_id, cold
        again = World(local, settings=COLD, wrap=after.wrap)
        core = again.start().core
        assert core.state("t").count >= 24, what
        look(core)
        assert not [gap for slot in core.catalog.by_id.values() for gap in slot.topic.gaps], what


def test_the_stricter_of_the_two_bounds_wins() -> None:
    def block(number: int, *, cold: bool = False, offset: int = 0, worn: bool = False) -> Block:
        segment = Segment(1, number * 10, 10, 10, number, offset, 1000, 1, 1, 0)
        segment.cold, segment.worn = cold, worn
        return Block.sealed(segment, 10, 100, None)

    def planned(blocks: list[Block], segments: int, size: int) -> list[int]:
        settings = msgspec.structs.replace(
            EngineSettings(), cold_tier=True, hot_retain_segments=segments, hot_retain_bytes=size
        )
        return [segment.number for segment in to_move(blocks, settings)]

    five = [block(number) for number in range(1, 6)]
    assert planned(five, 4, 0) == [1]
    assert planned(five, 0, 0) == [1, 2, 3, 4, 5]
    assert planned(five, 4, 2000) == [1, 2, 3]
    assert planned(five, 1, 4000) == [1, 2, 3, 4]
    assert planned([*five, block(6, offset=64)], 5, 0) == []
    assert planned([block(1, cold=True), block(2, worn=True), block(3), block(4)], 1, 0) == [3]


def test_jobs_say_what_they_do() -> None:
    segment = Segment(1, 10, 10, 10, 2, 0, 1000, 1, 1, 4)
    assert MoveJob(segment, may_begin=False).paths == [segment.data_path, segment.idx_path, segment.tags_path]
    assert DropJob(["a"]).paths == ["a"]
