"""Stores whose old records lie in a cold tier: checked, saved, pinned and backed up through it, and with it gone."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from engine.checkpoint.pin import Below, PinJob, UnpinJob, export_dir
from engine.core.mover import DropJob, Mover
from engine.errors import StoreIOError
from engine.fs import Fs, OpenMode
from engine.segment.segment import Segment
from engine.segment.tiers import ColdTier, LocalSegmentStore, SegmentStore, TieredFs, no_tier
from engine.tools.backup import back_up, verify
from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.fsck import Fsck, Summary
from engine.tools.recover import Recovery
from tests.core.test_mover import COLD, Place, begun, drive, segments
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.view import look
from tests.sim.world import World
from tests.tools.stores import flip, put
from tests.tools.test_recover import seen

PIN = "00112233445566aa"


def _disk(tree: Tree) -> StillDisk:
    return StillDisk(tree, "boot-1")


class Cold(NamedTuple):
    """A stopped store of 24 records, 16 of which lie in the tier alone."""

    world: World
    tree: Tree
    tier: Tree
    first: Segment

    def whole(self, *, tree: Tree | None = None, tier: Tree | None = None, hangs: bool = False) -> TieredFs:
        """Both together, only read."""
        disk = _disk(self.tier if tier is None else tier)

        def open_store(may_begin: bool) -> SegmentStore:
            if hangs:
                raise TimeoutError("too slow")
            return LocalSegmentStore(disk, self.world.core.store.store_id, may_begin=False)

        return TieredFs(_disk(self.tree if tree is None else tree), ColdTier(open_store))


def moved() -> tuple[Place, World]:
    """A running store whose two older segments lie in the tier alone."""
    place = Place()
    world = begun(place)
    drive(world)
    for _ in range(2):
        world.append("t")
        world.checkpoint()
    assert [one.cold for one in segments(world)] == [True, True, False]
    return place, world


@pytest.fixture
def cold() -> Cold:
    place, world = moved()
    return Cold(world, world.disk.killed().cached_tree(), place.disk.cached_tree(), segments(world)[0])


def checked(cold: Cold, fs: Fs) -> tuple[list[Finding], Summary]:
    found: list[Finding] = []
    tool = Fsck(fs, cold.world.clock, found.append, lambda *_: None, COLD)
    summary = tool.run()
    return [one for one in found if one.severity is not Severity.NOTE], summary


def saved(cold: Cold, fs: Fs) -> tuple[Recovery, Tree]:
    recovery = Recovery(fs, cold.world.clock, lambda _: None, lambda *_: None, COLD)
    recovery.read()
    disk = FakeDisk(boot="boot-1")
    recovery.write(disk)
    return recovery, disk.cached_tree()


def test_a_healthy_store_is_read_to_its_last_byte_and_saved_whole(cold: Cold) -> None:
    found, summary = checked(cold, cold.whole())
    assert (found, summary.skipped) == ([], [])
    assert summary.segment_bytes > 2 * cold.first.data_len
    recovery, tree = saved(cold, cold.whole())
    assert recovery.report.complete
    assert seen(tree)["t"].records == look(cold.world.core).topics["t"].records
    assert not any("cold" in note for note in recovery.report.notes)


def test_F68_a_file_that_the_tier_lacks_is_named_and_becomes_a_gap(cold: Cold) -> None:
    tier = put(cold.tier, cold.first.data_path, None)
    found, summary = checked(cold, cold.whole(tier=tier))
    assert [(one.id, one.file, one.topic, one.seqs) for one in found] == [
        (FindingId.COLD, cold.first.data_path, "t", (1, 8))
    ]
    assert "1 of" in summary.skipped[0]
    recovery, tree = saved(cold, cold.whole(tier=tier))
    assert [(one.first, one.last) for one in recovery.report.lost] == [(1, 8)]
    assert min(seen(tree)["t"].records) == 9


def test_F68_a_tier_that_does_not_answer_is_named_and_nothing_is_taken_for_lost(cold: Cold) -> None:
    for fs in (cold.whole(hangs=True), TieredFs(_disk(cold.tree), no_tier("nobody said where it is"))):
        found, _ = checked(cold, fs)
        assert {one.id for one in found} == {FindingId.COLD}
        assert found[0].file == cold.first.data_path
        with pytest.raises(StoreIOError, match="seg-"):
            saved(cold, fs)
    recovery, tree = saved(cold, TieredFs(_disk(cold.tree), no_tier("it is given up", given_up=True)))
    assert recovery.report.lost[0].first == 1
    assert recovery.report.lost[-1].last == 16
    assert min(seen(tree)["t"].records) == 17


def test_F68_a_tier_that_lies_is_found_out(cold: Cold) -> None:
    tier = flip(cold.tier, cold.first.data_path, cold.first.data_offset + 5)
    found, _ = checked(cold, cold.whole(tier=tier))
    assert [(one.id, one.file, one.seqs) for one in found] == [(FindingId.SEGMENT_DATA, cold.first.data_path, (1, 1))]
    recovery, tree = saved(cold, cold.whole(tier=tier))
    assert [(one.first, one.last) for one in recovery.report.lost] == [(1, 1)]
    assert min(seen(tree)["t"].records) == 2


def pinned(world: World) -> PinJob:
    job = PinJob(PIN, world.core.store.store_id, 1, None, None, "/cold")
    world.wait(world.core.keeper.aside(job))
    return job


def test_a_pin_lists_what_is_cold_and_a_backup_of_it_is_whole() -> None:
    place, world = moved()
    opened = place.opened
    manifest = pinned(world).manifest
    assert place.opened == opened, "a pin waits for the tier"
    assert manifest is not None
    files = [file.path for file in manifest.files if file.cold]
    assert (files, manifest.cold) == ([one.data_path for one in segments(world)[:2]], "/cold")
    target = FakeDisk()
    tier = ColdTier(lambda _: LocalSegmentStore(place.disk, world.core.store.store_id, may_begin=False))
    source = TieredFs(Below(world.disk, export_dir(PIN)), tier)
    complete = back_up(source, target, lambda _: None)
    assert complete.cold is None
    assert not any(file.cold for file in complete.files)
    verify(target, [path for path, content in target.cached_tree().items() if content is not None], lambda _: None)
    recovery = Recovery(target, world.clock, lambda _: None, lambda *_: None, COLD)
    assert recovery.read().complete
    new = FakeDisk(boot="boot-1")
    recovery.write(new)
    assert seen(new.cached_tree())["t"].records == look(world.core).topics["t"].records


def test_what_a_pin_lists_stays_in_the_tier_until_the_pin_is_gone() -> None:
    place, world = moved()
    paths = [one.data_path for one in segments(world)[:2]]
    pinned(world)
    world.drop("t")
    for _ in range(4):
        world.append("other")
        world.checkpoint()
    drive(world)
    assert set(paths) <= place.disk.cached_tree().keys()
    world.wait(world.core.keeper.aside(UnpinJob([PIN])))
    drive(world)
    assert not [path for path in place.disk.cached_tree() if path.startswith("topics/") and "." in path]


def test_what_is_moved_after_a_pin_is_whole_below_the_pin() -> None:
    """A reader of the pin needs no tier for what was here when the pin was made."""
    place = Place()
    world = begun(place)
    before = look(world.core).topics["t"].records
    paths = [one.data_path for one in segments(world)]
    manifest = pinned(world).manifest
    drive(world)
    for _ in range(2):
        world.append("t")
        world.checkpoint()
    assert manifest is not None
    assert not any(file.cold for file in manifest.files)
    assert not world.disk.exists(paths[0]), "it was moved"
    assert all(world.disk.exists(f"{export_dir(PIN)}/{path}") for path in paths)
    target = FakeDisk()
    back_up(TieredFs(Below(world.disk, export_dir(PIN)), no_tier("it is away")), target, lambda _: None)
    recovery = Recovery(target, world.clock, lambda _: None, lambda *_: None, COLD)
    assert recovery.read().complete
    new = FakeDisk(boot="boot-1")
    recovery.write(new)
    assert seen(new.cached_tree())["t"].records == before


def orphaned() -> tuple[Place, World]:
    """A store whose process was killed after nobody named cold files any more, and before they were removed."""
    place, world = moved()
    for _ in range(3):
        world.append("kept", 8, tag="blue")
        world.checkpoint()
    world.drop("t")
    for _ in range(4):
        world.append("other")
        world.checkpoint()
    job = world.core.keeper.mover.job(world.core.now())
    assert isinstance(job, DropJob)
    world.kill().start()
    return place, world


def swept(world: World) -> None:
    for _ in range(3):
        world.append("other")
        world.checkpoint()
        drive(world)


def test_what_a_crash_has_left_in_the_tier_is_swept_and_nothing_else() -> None:
    place, world = orphaned()
    left = {path for path in place.disk.cached_tree() if path.startswith("topics/") and "." in path}
    place.disk.mkdir("topics/notes")
    handle = place.disk.open("topics/notes/mine.txt", OpenMode.CREATE)
    place.disk.close(handle)
    swept(world)
    there = {path for path in place.disk.cached_tree() if path.startswith("topics/")}
    assert left
    assert not there & left
    assert "topics/notes/mine.txt" in there
    assert world.core.keeper.mover.swept == len(left)
    assert {one.data_path for one in segments(world) if one.cold} <= there
    world.check()


def test_a_sweep_that_takes_everything_for_nobodys_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mover, "_is_nobodys", lambda self, path: "seg-" in path)
    place, world = orphaned()
    swept(world)
    cold = {one.data_path for one in segments(world) if one.cold}
    assert cold
    assert not cold <= place.disk.cached_tree().keys()
