"""Saving a store whose shards or log files are missing, in the wrong place, of another store, or newer than LOCK.

What was served before is compared record by record with what the new store serves: what is missing must be in a gap
that readers meet, and in the report.
"""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from engine.core import Core
from engine.errors import StoreDamaged
from engine.formats.frame import FrameType
from engine.routers.router import RouterSpec
from engine.tools.finding import Finding, FindingId
from engine.tools.fsck import Fsck, Summary
from engine.tools.log_file import LogScan
from engine.tools.recover import without_advice
from engine.wal.chain import DATA_START
from tests.core.hand import SMALL, Hand
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.flips import HISTORY
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.world import World
from tests.store.checkpoint import checkpoint
from tests.store.made import SNAP1
from tests.tools.stores import damage, flip, put
from tests.tools.test_recover import Saved, seen

THREE = msgspec.structs.replace(SMALL, wal_shards=3)
NAMES = tuple("abcdef")
SOURCE = "d"
"""Copied to `copies`, which lives on another shard and is written to as well, and to `mirror`."""
META = ("LOCK", "meta/MANIFEST")


class Store:
    """A store of three shards, as it was at a checkpoint that was stopped behind, and as it is."""

    def __init__(self) -> None:
        hand = Hand(settings=THREE)
        for name in NAMES:
            hand.create(name)
        for dest in ("copies", "mirror"):
            hand.take(hand.core.routers.put(f"to-{dest}", SOURCE, dest, RouterSpec(start="earliest")))
        self._write(hand)
        checkpoint(hand.core, hand.disk, 1, sync=hand.sync)
        hand.settle()
        hand.core.close()
        self.older = hand.disk.cached_tree()
        hand = Hand(FakeDisk.of_tree(self.older, boot="boot-1"), clock=hand.clock, settings=THREE)
        self._write(hand)
        self.killed = hand.disk.killed().cached_tree()
        hand.settle()
        hand.core.close()
        self.tree = hand.disk.cached_tree()
        self.ids = {name: slot.topic.id for name, slot in hand.core.catalog.visible.items()}
        self.shards = {name: slot.shard for name, slot in hand.core.catalog.visible.items()}

    @staticmethod
    def _write(hand: Hand) -> None:
        for number in range(5):
            for name in NAMES:
                hand.write(name, f"{name} {number}")
            hand.write("copies", "before the copies")
            hand.settle()
            while hand.core.route():
                hand.settle()
        hand.write("copies", "behind the copies")
        hand.pass_ms(50)
        hand.settle()

    def logs(self, shard: int) -> list[str]:
        """Those that hold something."""
        begin = f"wal/shard-{shard:02d}/"
        return sorted(
            path for path, content in self.tree.items() if path.startswith(begin) and any((content or b"")[DATA_START:])
        )


@cache
def store() -> Store:
    return Store()


@cache
def other() -> Tree:
    """Another store, of the same build, with another id."""
    hand = Hand(FakeDisk(boot="boot-9"), clock=ManualClock(wall_ms=1_000_000), settings=THREE)
    hand.create("foreign")
    hand.write("foreign", "not ours")
    hand.settle()
    return hand.disk.killed().cached_tree()


def without(tree: Tree, *beginnings: str) -> Tree:
    return {path: content for path, content in tree.items() if not path.startswith(beginnings)}


def exchanged(tree: Tree, *pairs: tuple[str, str]) -> Tree:
    """The same with files under each other's names."""
    copy = dict(tree)
    for one, two in pairs:
        copy[one], copy[two] = tree[two], tree[one]
    return copy


def renamed(tree: Tree, one: str, two: str) -> Tree:
    """The same with two directories under each other's names."""

    def name(path: str) -> str:
        for old, new in ((one, two), (two, one)):
            if path == old or path.startswith(f"{old}/"):
                return new + path.removeprefix(old)
        return path

    return {name(path): content for path, content in tree.items()}


def checked(tree: Tree) -> tuple[list[Finding], Summary]:
    found: list[Finding] = []
    return found, Fsck(StillDisk(tree, "boot-1"), ManualClock(), found.append, lambda *_: None, THREE).run()


def saved(tree: Tree, before: Tree | None = None) -> Saved:
    """The store that was saved of a tree that no start takes: every missing record is told."""
    with pytest.raises(StoreDamaged):
        Core.open(FakeDisk.of_tree(tree, boot="boot-1"), ManualClock(), THREE)
    found, summary = checked(tree)
    assert summary.verdict == "refuse"
    assert damage(found)[0].id is FindingId.REFUSED
    made = Saved(tree, settings=THREE)
    left = made.topics()
    report = made.report
    for name, view in seen(store().tree if before is None else before, THREE).items():
        if name not in left:
            assert report.untold, f"{name} is gone, and nothing says so"
            continue
        for seq, record in view.records.items():
            if seq in left[name].records:
                assert left[name].records[seq] == record
            else:
                assert any(low <= seq <= high for low, high in left[name].damage), f"{name}: no gap at {seq}"
                assert any(one.topic == name and one.first <= seq <= one.last for one in report.lost), (
                    f"{name}: {seq} is not in the report"
                )
    assert damage(checked(made.tree)[0]) == []
    core = Core.open(FakeDisk.of_tree(made.tree, boot="boot-1"), made.clock, THREE)
    core.close()
    return made


@pytest.mark.parametrize("shard", range(3))
def test_a_shard_that_is_gone_with_all_its_log_costs_what_it_held_behind_the_snapshot(shard: int) -> None:
    made = saved(without(store().tree, f"wal/shard-{shard:02d}"))
    report, shards = made.report, store().shards
    assert report.untold
    hit = {name for name in NAMES if shards[name] == shard}
    assert hit <= {one.topic for one in report.lost}
    assert f"wal/shard-{shard:02d} is missing with all of its log" in " ".join(report.notes)
    whole, left = seen(store().tree, THREE), made.topics()
    for name in NAMES:
        if name in hit:
            assert left[name].next_seq > whole[name].next_seq + 1000, "no seq may come twice"
            assert set(left[name].records) == set(range(1, 6)), "the snapshot has these"
        else:
            assert left[name].records == whole[name].records
    if shards[SOURCE] == shard:
        assert "copies" in {one.topic for one in report.lost}, "what is copied stands in the log of its source"
    assert hit <= set(report.concerned)


@pytest.mark.parametrize("name", [SOURCE, "copies"])
def test_no_seq_of_a_dest_comes_twice_where_its_log_or_that_of_its_source_is_gone(name: str) -> None:
    """What stands in the other log shows where the dest had got to, but not how far it got behind that."""
    made = saved(without(store().tree, f"wal/shard-{store().shards[name]:02d}"))
    assert made.topics()["copies"].next_seq > seen(store().tree, THREE)["copies"].next_seq + 1000


def test_shards_and_manifest_gone_are_made_out_from_snapshots() -> None:
    made = saved(without(store().tree, "wal/shard-02", "meta/MANIFEST"))
    assert made.report.untold
    assert "wal/shard-02 is missing with all of its log" in " ".join(made.report.notes)


def test_a_dest_is_told_of_what_its_source_lost_in_the_middle_of_the_log() -> None:
    """Copies stand in the log of their source; those behind the lost place show where the dest had got to."""
    path, source = store().logs(store().shards[SOURCE])[-1], store().ids[SOURCE]
    frames = list(LogScan(StillDisk(store().tree, "boot-1"), path).items())
    copied = [one for one in frames if one.header.type == FrameType.FORWARD]
    written = [one for one in frames if one.header.type == FrameType.APPEND and one.header.topic_id == source]
    content = bytearray(store().tree[path] or b"")
    begin, end = written[-2].offset, copied[-2].offset + copied[-2].length
    content[begin:end] = b"\xff" * (end - begin)
    made = saved(put(store().tree, path, bytes(content)))
    lost = {one.topic: (one.first, one.last) for one in made.report.lost if not one.perhaps}
    assert {SOURCE, "mirror"} <= set(lost)


def test_an_empty_shard_is_one_without_log() -> None:
    tree = without(store().tree, "wal/shard-01/")
    tree["wal/shard-01"] = None
    assert "wal/shard-01 has no log file that can be used" in " ".join(saved(tree).report.notes)


def test_shards_under_each_others_names_lose_nothing() -> None:
    made = saved(renamed(store().tree, "wal/shard-00", "wal/shard-02"))
    assert made.report.complete
    assert made.report.kept == []
    assert "in the wrong place: read as that" in " ".join(made.report.notes)


def test_log_files_under_each_others_names_lose_nothing() -> None:
    one, two = store().logs(0)[-1], store().logs(1)[-1]
    made = saved(exchanged(store().tree, (one, two)))
    assert made.report.complete


def test_a_log_file_over_another_one_costs_what_that_one_held() -> None:
    one, two = store().logs(0)[-1], store().logs(1)[-1]
    made = saved(put(store().tree, two, store().tree[one]))
    assert not made.report.complete
    assert f"{two}: {one} is {one}, too; it is left out" in made.report.notes
    assert made.tree[f"lost/left-out_{two.replace('/', '_')}-0.bytes"] == store().tree[one]


def test_a_log_file_of_another_store_is_left_out() -> None:
    path = store().logs(0)[-1]
    foreign = next(content for name, content in sorted(other().items()) if name.endswith(".log"))
    made = saved(put(store().tree, path, foreign))
    assert not made.report.complete
    assert any(note.startswith(f"{path}: it belongs to store ") for note in made.report.notes)
    assert "foreign" not in made.topics()


def test_store_of_another_store_is_outvoted() -> None:
    made = saved(put(store().tree, "STORE", other()["STORE"]))
    assert made.report.complete
    assert "STORE is another store's" in " ".join(made.report.notes)


@pytest.mark.parametrize("older", [("LOCK",), META])
def test_a_lock_that_is_older_than_the_log_loses_nothing(older: tuple[str, ...]) -> None:
    tree = store().killed
    for path in older:
        tree = put(tree, path, store().older[path])
    made = saved(tree, store().killed)
    assert made.report.complete
    assert any("LOCK and MANIFEST are older than the log" in note for note in made.report.notes)


def test_a_lost_store_file_is_what_a_start_says_it_is() -> None:
    tree = without(store().tree, "STORE")
    assert saved(tree).report.complete
    found, _ = checked(tree)
    assert found[0].file == "STORE"
    assert "LOCK says that a store was in use" in found[0].what


def test_a_log_file_cut_in_its_header_holds_nothing() -> None:
    path = store().logs(2)[-1]
    made = saved(put(store().tree, path, (store().tree[path] or b"")[: DATA_START // 2]))
    assert not made.report.complete


def test_a_log_file_that_was_to_be_removed_does_not_stand_for_those_that_are_cut() -> None:
    world = World(settings=HISTORY).start()
    world.append("t", 2)
    first = world.settle().disk.cached_tree()
    for _ in range(3):
        world.append("t", 1)
        world.checkpoint()
    tree = world.kill().disk.cached_tree()
    for path in [path for path in tree if path.endswith(".log")]:
        tree = put(tree, path, (tree[path] or b"")[: DATA_START // 2])
    left = {path: content for path, content in first.items() if path.endswith(".log") and path not in tree}
    assert left, "the log was trimmed"
    made = Saved({**tree, **left}, settings=HISTORY)
    assert sorted(made.topics()["t"].records) == [1, 2, 3, 4, 5]
    assert not made.report.complete


def test_without_manifest_a_log_file_that_ends_inside_a_block_was_cut() -> None:
    path = store().logs(0)[-1]
    content = (store().tree[path] or b"").rstrip(b"\0")
    made = saved(put(put(store().tree, path, content[: len(content) - 300]), "meta/MANIFEST", b"?"))
    assert any(one.perhaps for one in made.report.lost)


def test_without_manifest_a_log_file_that_was_cut_in_its_header_is_missed_all_the_same() -> None:
    world = World(settings=HISTORY).start()
    for _ in range(3):
        world.append("t", 6, size=1500)
    tree = world.kill().disk.cached_tree()
    *_, path = [
        path for path, content in sorted(tree.items()) if path.endswith(".log") and any((content or b"")[DATA_START:])
    ]
    made = Saved({**tree, path: (tree[path] or b"")[: DATA_START // 2], "meta/MANIFEST": b"?"}, settings=HISTORY)
    there = made.topics()["t"].records
    assert 0 < len(there) < 18
    assert any(one.first <= len(there) + 1 and one.last >= 18 for one in made.report.lost)


@pytest.mark.parametrize("shard", range(3))
def test_the_only_snapshot_and_some_of_the_log_may_be_bad_at_once(shard: int) -> None:
    tree = flip(store().tree, SNAP1, 200)
    path = store().logs(shard)[-1]
    made = saved(put(tree, path, (tree[path] or b"")[: 2 * DATA_START]))
    assert any(one.source == SNAP1 for one in made.report.kept)
    assert {name for name in NAMES if store().shards[name] != shard} <= made.topics().keys()


def test_nobody_is_told_to_do_what_they_just_did() -> None:
    tree = without(store().tree, "STORE")
    with pytest.raises(StoreDamaged, match="topics recover") as caught:
        Core.open(FakeDisk.of_tree(tree, boot="boot-1"), ManualClock(), THREE)
    said = without_advice(str(caught.value))
    assert said.startswith("STORE is missing, but LOCK says that a store was in use, or a restore")
    assert "nothing was changed" not in said.lower()
    for path in store().logs(0):
        tree = put(tree, path, None)
    assert not [note for note in saved(tree).report.notes if "topics recover" in note]


def test_nothing_at_all_is_no_store_to_save() -> None:
    with pytest.raises(StoreDamaged, match="nothing that can be saved"):
        Saved({"": None}, settings=THREE)
