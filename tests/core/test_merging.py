"""Small segments of the cold tier are joined; the crashes in the middle are `tests/sim/scenarios_merge.py`'s."""

from __future__ import annotations

import msgspec
import pytest

from engine.checkpoint.merge import NUMBERS_MAX, MergeJob
from engine.checkpoint.pin import PinJob
from engine.checkpoint.reclaim import to_merge
from engine.core.jobs import outcome
from engine.core.mover import works_in
from engine.errors import Unavailable
from engine.formats.header import pack_file_header, parse_file_header
from engine.formats.work import WorkState, parse_work_name, work_path
from engine.fs import Fs, OpenMode, read_file, write_new
from engine.limits import EngineSettings
from engine.segment.tiers import TieredFs
from engine.tools.compact import Tidying, plan
from engine.tools.finding import FindingId
from engine.tools.fsck import Fsck, Summary
from tests.sim.cold import COLD_DIR, make_bucket
from tests.sim.scenarios_merge import EARLY, JOINING
from tests.sim.world import World


def begun(segments: int = 4, *, bucket: bool = False) -> World:
    """Small segments, all but one of which are in the tier, and a process that joins them after its next checkpoint."""
    world = World(settings=EARLY)
    world.disk.mkdir(COLD_DIR)
    world.disk.fsync_dir("")
    if bucket:
        make_bucket(world.disk)
    world.start()
    world.put("t", durability="disk")
    for _ in range(segments):
        world.append("t", 4, tag="red")
        world.checkpoint()
    while world.core.keeper.mover.moved < segments - 1:
        world.step()
    steps(world, 2)
    world.settle()
    world.stop()
    world.settings = JOINING
    world.start()
    return world


def steps(world: World, checkpoints: int) -> None:
    for _ in range(checkpoints):
        world.append("t", 1)
        world.checkpoint()
        for _ in range(12):
            world.step()


def tiered(world: World) -> TieredFs:
    fs = world.tier.over(world.disk)
    assert isinstance(fs, TieredFs)
    return fs


def data_there(world: World) -> list[str]:
    paths = [path.removeprefix(f"{COLD_DIR}/") for path in world.disk.cached_tree()]
    return sorted(path for path in paths if path.startswith("topics/") and path.endswith(".data"))


def cold_data(world: World) -> list[str]:
    blocks = world.core.catalog.visible["t"].topic.tail.blocks
    return [block.segment.data_path for block in blocks if block.segment is not None and block.segment.cold]


def checked(world: World) -> tuple[list[tuple[FindingId, str]], Summary]:
    """What fsck says of it as it would be after a kill."""
    found: list[tuple[FindingId, str]] = []
    fs = world.tier.over(world.disk.killed())
    tool = Fsck(fs, world.clock, lambda one: found.append((one.id, one.file)), lambda *_: None, JOINING)
    return found, tool.run()


@pytest.mark.parametrize("bucket", [False, True])
def test_small_neighbours_become_one_and_the_old_ones_go_when_no_snapshot_names_them(bucket: bool) -> None:
    world = begun(bucket=bucket)
    old = cold_data(world)
    steps(world, 1)
    merges = world.core.keeper.mover.merges
    assert (merges.made, merges.joined) == (1, 3)
    assert cold_data(world) == old, "it counts before a checkpoint has taken it"
    work = next(iter(works_in(tiered(world).tier).values()))[1]
    assert work is not None
    assert (work.state, work.old, work.first, work.last) == (WorkState.COPIED, old, 1, 12)
    steps(world, 1)
    (new,) = cold_data(world)
    assert new == work.new
    assert {*old, new} <= set(data_there(world))
    steps(world, 3)
    assert [path for path in data_there(world) if path in (*old, new)] == [new]
    assert not works_in(tiered(world).tier)
    world.check()
    world.kill().start()
    world.check()


def test_a_pin_keeps_the_old_ones_and_their_work_until_it_is_gone() -> None:
    world = begun()
    old = cold_data(world)
    job = PinJob("00000000000000aa", world.core.store.store_id, 1, None, None, "/cold")
    ticket = world.core.keeper.aside(job)
    world.wait(ticket)
    assert sorted(job.cold) == old
    steps(world, 6)
    assert len(cold_data(world)) == 1
    assert set(old) <= set(data_there(world))
    assert works_in(tiered(world).tier)
    world.core.keeper.mover.let_go(["00000000000000aa"])
    steps(world, 1)
    assert not set(old) & set(data_there(world))
    assert not works_in(tiered(world).tier)


def test_fsck_counts_and_names_what_is_half_done_missing_wrong_and_nobodys() -> None:
    world = begun()
    found, summary = checked(world)
    assert not found
    assert summary.cold is not None
    assert (summary.cold.segments, summary.cold.orphans, summary.cold.works) == (3, 0, 0)
    steps(world, 1)
    found, summary = checked(world)
    assert [kind for kind, _ in found if kind is FindingId.WORK]
    assert summary.cold is not None
    assert (summary.cold.works, summary.damage) == (1, 0)
    assert summary.cold.orphans == 3, "the data of the new one, its index and its tags"
    lost, hurt, _ = cold_data(world)
    world.disk.on_step = None  # who watches the order of things would object
    world.disk.unlink(f"{COLD_DIR}/{lost}")
    handle = world.disk.open(f"{COLD_DIR}/{hurt}", OpenMode.WRITE)
    world.disk.pwritev(handle, [b"!"], 80)
    world.disk.close(handle)
    found, summary = checked(world)
    assert (FindingId.COLD, lost) in found
    assert (FindingId.SEGMENT_DATA, hurt) in found
    assert summary.cold is not None
    assert (summary.cold.missing, summary.cold.wrong) == (1, 1)


def test_what_cannot_be_read_is_not_joined_and_not_tried_again_and_again() -> None:
    world = begun()
    first, second, _ = cold_data(world)
    world.disk.unlink(f"{COLD_DIR}/{second}")
    steps(world, 4)
    mover = world.core.keeper.mover
    assert mover.merges.made == 0
    assert mover.failures == 1
    assert first in data_there(world)
    with pytest.raises(Unavailable):
        world.kill().start()


def test_a_file_of_another_store_is_not_joined_and_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun()
    path = f"{COLD_DIR}/{cold_data(world)[1]}"
    header = parse_file_header(read_file(world.disk, path))
    assert header is not None
    world.disk.unlink(path)
    write_new(world.disk, path, [pack_file_header(header._replace(store_id=bytes(16)))])
    tried: list[MergeJob] = []
    run = MergeJob.run

    def counted(job: MergeJob, fs: Fs) -> None:
        tried.append(job)
        run(job, fs)

    monkeypatch.setattr(MergeJob, "run", counted)
    steps(world, 4)
    assert world.core.keeper.mover.merges.made == 0
    assert [job.copy.damage for job in tried] == [[]], "it is none of ours to judge, once"
    assert world.core.damage.records == 0
    assert not any(block.sealing for block in world.core.catalog.visible["t"].topic.tail.blocks), "they are let go of"


def test_a_name_that_somebody_has_is_passed_over_and_not_for_ever() -> None:
    world = begun()
    world.hangs = True
    steps(world, 1)
    job = world.core.keeper.mover._running
    assert isinstance(job, MergeJob)
    tier, number = tiered(world).tier, job.number
    for taken in range(number, number + NUMBERS_MAX):
        tier.make(work_path(job.copy.topic.id, 1, taken), b"somebody's")
    assert "are there already" in str(outcome(job, tiered(world)))
    assert job.number == number + NUMBERS_MAX
    assert job.begun is None


def test_a_tool_joins_and_sweeps_a_stopped_store() -> None:
    world = begun()
    world.stop()
    settings = msgspec.structs.replace(JOINING, cold_tier=False)
    planned, shards = plan(world.tier.over(world.disk.killed()), world.clock, settings)
    assert [(one.topic, one.first, one.last, one.segments) for one in planned.joined] == [("t", 1, 12, 3)]
    assert (planned.dry_run, shards) == (True, 1)
    tier = tiered(world).tier
    tier.put("topics/0000000000000001/seg-00000000000000000901-0000000099.data", [b"stray"])
    tier.make(work_path(1, 901, 2), b"damaged")
    heard: list[int] = []
    report = Tidying(world.disk, lambda store_id: tier, world.clock, settings, heard.append, 1).run()
    assert (report.made, report.merged, heard[-1]) == (1, 3, 3)
    assert report.removed == ["topics/0000000000000001/seg-00000000000000000901-0000000099.data", work_path(1, 901, 2)]
    assert len([path for path in data_there(world) if path.startswith("topics/0000000000000001/seg-")]) <= 3
    assert not works_in(tier)
    world.disk = world.disk.killed()
    world.start()
    world.check()


def test_names_of_works_are_told_apart_from_others() -> None:
    path = work_path(3, 7, 12)
    assert parse_work_name(path.removeprefix("work/")) == (3, 7, 12)
    assert parse_work_name(path.removeprefix("work/") + ".0123456789abcdef.tmp") == (3, 7, 12)
    assert parse_work_name("notes.json") is None


def test_nothing_is_joined_where_that_is_switched_off() -> None:
    world = begun()
    blocks = world.core.catalog.visible["t"].topic.tail.blocks
    assert len(to_merge(blocks, JOINING)) == 1
    assert not to_merge(blocks, msgspec.structs.replace(JOINING, cold_merge_min=0))
    assert not to_merge(blocks, msgspec.structs.replace(JOINING, cold_merge_min=4))
    assert not to_merge(blocks, EngineSettings())
