"""Faults of checkpoints, segments, retention and pins (faults.md, 44–53): one test a row, by its id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.checkpoint.pin import PinJob, export_dir
from engine.core.jobs import outcome
from engine.limits import EngineSettings
from tests.core import test_damage
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultyProcess
from tests.sim.media import Tree
from tests.sim.probe import Effort, Tally
from tests.sim.runner import BY_NAME, run
from tests.sim.scenarios_history import SMALL, trim
from tests.sim.view import look
from tests.sim.world import World
from tests.store import test_damaged_snapshots
from tests.store.made import SNAP1, SNAP2

pytestmark = pytest.mark.slow

EFFORT = Effort(images_max=12, sample=4, deep_every=200, nested_max=2, nested_total_max=6)


def at_every_moment(scenario: str, share: float = 1.0) -> Tally:
    """Crash a scenario at (a share of) its moments: kills and power failures, each judged by the oracle."""
    tally = Tally()
    run(BY_NAME[scenario], 0, replace(EFFORT, moments_share=share), tally, seed=44)
    assert tally.compared > 100, "hardly anything was looked at"
    return tally


def capped(settings: EngineSettings = SMALL) -> World:
    """Two checkpoints of a capped topic whose first segment is of no use to anybody any more, but named by both."""
    world = World(settings=settings).start()
    world.put("t", durability="disk", cap_records=8)
    for _ in range(2):
        world.append("t", 8)
        world.checkpoint()
    return world


def segments(tree: Tree) -> set[str]:
    """The data files of segments."""
    return {path for path in tree if "/seg-" in path and path.endswith(".data")}


def live_seqs(world: World) -> list[int]:
    """The seqs that a reader gets."""
    return sorted(look(world.core).topics["t"].records)


def test_F44_a_crash_at_each_step_of_a_checkpoint_leaves_one_good_snapshot_and_the_log_after_it() -> None:
    """Write, sync, rename, directory sync, removal: each change of the disk is a moment."""
    tally = at_every_moment("history-seal", 0.5)
    assert tally.kinds["kill"] > 20
    assert tally.kinds["power"] > 20


def test_F45_a_snapshot_gets_its_name_when_its_data_is_on_the_disk() -> None:
    """Prevented by a sync, which the order monitor demands at every rename of this run; and where a disk lies about
    it, the name without its data is a bad snapshot: the older one is used, and without that the start is refused."""
    world = World(settings=SMALL).start()
    trim(world)
    assert world.monitor.events > 50
    made = test_damaged_snapshots.Made(trimmed=True)
    content = made.tree[SNAP2]
    assert content is not None
    for arrived in (b"", bytes(len(content)), content[:512] + bytes(len(content) - 512)):
        core = made.start({SNAP2: arrived})
        assert look(core).topics == made.whole
        assert any("snapshot-0000000001.snap is used instead" in line for line in core.store.report)
        made.refuses({SNAP2: arrived, SNAP1: None}, "no snapshot checks")


def test_F46_what_is_appended_during_a_checkpoint_is_replayed_behind_its_cut() -> None:
    at_every_moment("history-meanwhile", 0.6)


def test_F48_a_flipped_bit_of_a_sealed_record_costs_that_record_and_is_never_passed_over_in_silence() -> None:
    hand = test_damage.sealed()
    test_damage.hurt(hand, b'"n":42,')
    page = test_damage.ask(hand)
    assert test_damage.seqs(page) == list(range(1, 42)), "a page ends before the loss"
    page = test_damage.ask(hand, 41)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (42, 42, "corruption")
    assert test_damage.seqs(page) == list(range(43, 601)), "its neighbours are served"


def test_F49_a_crash_between_the_floor_and_the_removal_repeats_the_removal() -> None:
    """Whatever moment the process dies in: what was evicted stays evicted, and its file goes: with the
    checkpoints of this process or, where that died before it, at a start."""
    world = capped()
    images: list[FakeDisk] = []

    def shoot(disk: FakeDisk, _what: str) -> None:
        disk.on_step = None
        images.append(disk.killed())
        disk.on_step = shoot

    evicted = min(segments(world.disk.cached_tree()))
    world.disk.on_step = shoot
    for _ in range(2):
        world.append("t", 8)
        world.checkpoint()
    world.disk.on_step = None
    assert evicted not in world.disk.cached_tree(), "two snapshots that do not name it are what it takes"
    assert live_seqs(world) == list(range(25, 33))
    seen = set()
    for image in images[:: max(1, len(images) // 40)]:
        seen.add(evicted in image.cached_tree())
        again = World(image, settings=SMALL, clock=world.clock.restart()).start()
        assert min(live_seqs(again)) >= 9, "what was evicted does not come back"
        for _ in range(3):
            again.append("another", 8)
            again.checkpoint()
        last = World(again.disk.killed(), settings=SMALL, clock=again.clock.restart()).start()
        assert evicted not in last.disk.cached_tree()
    assert seen == {True, False}


@pytest.mark.parametrize("path", ["/seg-", ".log"], ids=["segments", "log files"])
def test_F50_what_cannot_be_removed_stays_hidden_is_told_and_is_no_reason_not_to_start(path: str) -> None:
    process = FaultyProcess([Fault(Call.UNLINK, 0, Effect.EACCES, lasting=True, path=path)])
    world = World(settings=SMALL)
    world.wrap = process
    world.start()
    world.put("t", durability="disk", cap_records=8)
    for _ in range(6):
        world.append("t", 8, size=900)
        world.settle()
        world.checkpoint()
    keeper, wal = world.core.keeper, world.core.wal
    assert keeper.problem is None, "the checkpoint is made all the same"
    told = keeper.left + wal.left
    assert told
    assert all(path in line and "ermission" in line for line in told)
    left = {line.partition(": ")[0] for line in told}
    assert left <= set(world.disk.cached_tree()), "the data stays"
    assert live_seqs(world) == list(range(41, 49)), "and is hidden"
    world.kill().start()
    world.check()
    assert not left & set(world.disk.cached_tree()), "a start that may remove it does"


def test_F50_a_start_that_cannot_remove_leftovers_says_so_and_goes_on() -> None:
    made = test_damaged_snapshots.Made(own_files=True, trimmed=True)
    stray = f"topics/{1:016x}/seg-{1:020d}-{9:010d}.idx"
    made.tree[stray] = b"half"
    disk = made.disk()
    process = FaultyProcess([Fault(Call.UNLINK, 0, Effect.EACCES, lasting=True, path="/seg-")])
    core = made.start({}, disk=process(disk))  # type: ignore[arg-type]  # the same disk, with faults in front of it
    assert look(core).topics == made.whole
    assert disk.exists(stray)
    assert any(stray in line and "could not be tidied up" in line for line in core.store.report)


@pytest.mark.parametrize("broken", [SNAP2, "meta/MANIFEST"])
def test_F51_while_a_snapshot_or_the_manifest_cannot_be_read_nothing_is_removed(broken: str) -> None:
    made = test_damaged_snapshots.Made(own_files=True, trimmed=True)
    made.tree["meta/tails-0000000003.data"] = b"half"
    made.tree[f"topics/{1:016x}/seg-{1:020d}-{9:010d}.idx"] = b"half"
    disk = made.disk({broken: made.flipped(broken, 20 if broken == "meta/MANIFEST" else -30)})
    before = disk.cached_tree()
    if broken == SNAP2:
        core = made.start({}, disk=disk)
        assert any("leftovers of checkpoints stay" in line for line in core.store.report)
    else:
        made.refuses({broken: made.flipped(broken, 20)}, "MANIFEST")
    gone = {path for path in before if path not in disk.cached_tree()}
    assert gone <= {SNAP2}, "the bad snapshot itself is moved aside, never deleted"


def test_F52_a_pin_holds_the_files_that_nobody_else_names_any_more() -> None:
    """That they expire, and how many there may be: `tests/daemon/test_exports.py`, `tests/daemon/test_limits.py`."""
    world = capped()
    evicted = max(segments(world.disk.cached_tree()))
    content = world.disk.cached_tree()[evicted]
    job = PinJob("aa", world.core.store.store_id, world.core.commit.now_ms, None, None, None)
    ticket = world.core.keeper.aside(job)
    running = world.core.keep_job()
    assert running is job
    world.core.keep_done(job, outcome(job, world.disk))
    assert ticket.done
    assert ticket.error is None
    for _ in range(4):
        world.append("t", 8)
        world.checkpoint()
    tree = world.disk.cached_tree()
    assert evicted not in tree, "retention goes on"
    assert tree[f"{export_dir('aa')}/{evicted}"] == content, "and the pin has what it promised"


def test_F53_a_deletion_is_forgotten_only_with_the_last_file_that_holds_the_value() -> None:
    """Log trimmed, segments written again, both snapshots in turn: a deleted record never comes back."""
    at_every_moment("history-deletes", 0.3)
    at_every_moment("history-rewrites", 0.2)
