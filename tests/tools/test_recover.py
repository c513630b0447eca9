"""Saving what can be proven good: a whole store comes out as it was, a damaged one with gaps exactly where it must."""

from __future__ import annotations

import msgspec
import pytest

from engine.core import Core, Inspection
from engine.formats.frame import FrameType
from engine.limits import EngineSettings
from engine.tools.finding import Finding
from engine.tools.log_file import LogScan
from engine.tools.recover import Recovery, Report, put_report
from engine.types import ConfigChanges
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.view import TopicView, look
from tests.sim.world import TINY, World
from tests.store.made import SNAP1, SNAP2, Made
from tests.tools.stores import check, damage, flip, log_of, put, stopped, stores


class Saved:
    """One recovery of a tree, and the store that it made."""

    def __init__(
        self, tree: Tree, *, settings: EngineSettings = TINY, keep_doubtful: bool = False, topics: tuple[str, ...] = ()
    ) -> None:
        self.clock = ManualClock()
        self.found: list[Finding] = []
        self.settings = settings
        recovery = Recovery(
            StillDisk(tree, "boot-1"),
            self.clock,
            self.found.append,
            lambda *_: None,
            settings,
            topics=frozenset(topics),
            keep_doubtful=keep_doubtful,
        )
        recovery.read()
        disk = FakeDisk(boot="boot-1")
        self.report: Report = recovery.write(disk)
        put_report(disk, self.report, "text")
        self.tree = disk.cached_tree()

    def topics(self) -> dict[str, TopicView]:
        """What clients of the new store see, after a start of it."""
        return seen(self.tree, self.settings)

    def lost(self) -> list[tuple[str, int, int]]:
        return [(one.topic, one.first, one.last) for one in self.report.lost]


def seen(tree: Tree, settings: EngineSettings = TINY) -> dict[str, TopicView]:
    inspection = Inspection(StillDisk(tree, "boot-1"), ManualClock(), settings)
    topics = dict(look(inspection).topics)
    inspection.close()
    return topics


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_whole_store_comes_out_as_it_was(how: str) -> None:
    tree = dict(stores())[how]
    saved = Saved(tree)
    assert saved.topics() == seen(tree)
    assert saved.report.complete
    assert saved.report.kept == []
    found, summary = check(saved.tree)
    assert found == []
    assert summary.verdict == "start"


@pytest.mark.parametrize("own_files", [False, True])
def test_a_store_with_checkpoints_comes_out_as_it_was(own_files: bool) -> None:
    made = Made(own_files=own_files)
    saved = Saved(made.tree, settings=made.settings)
    assert saved.topics() == seen(made.tree, made.settings)
    assert saved.report.complete
    assert check(saved.tree)[0] == []


def test_a_new_store_starts_and_takes_writes() -> None:
    saved = Saved(stopped())
    disk = FakeDisk.of_tree(saved.tree, boot="boot-1")
    core = Core.open(disk, saved.clock, TINY)
    assert core.state("orders").head_seq == 3
    core.close()


def test_a_new_store_goes_on_with_the_time_of_the_old_one() -> None:
    world = World().start()
    world.append("t", 1, config=ConfigChanges(ttl_ms=60_000))
    world.settle().step(60_001)
    assert world.core.state("t").count == 0
    world.clock.wall_step(-3_600_000)
    clock = world.kill().clock
    recovery = Recovery(StillDisk(world.disk.cached_tree(), "boot-1"), clock, lambda _: None, lambda *_: None, TINY)
    recovery.read()
    disk = FakeDisk(boot="boot-1")
    recovery.write(disk)
    assert Core.open(disk, clock.restart(), TINY).state("t").count == 0, "what had expired came back"


def test_records_of_a_damaged_write_are_a_gap_and_their_bytes_are_kept() -> None:
    tree = stopped()
    path = log_of(tree)
    frame = next(one for one in LogScan(StillDisk(tree, "boot-1"), path).items() if one.header.records == 3)
    hit = flip(tree, path, frame.offset + 100)
    saved = Saved(hit)
    assert saved.lost() == [("orders", 1, 3)]
    kept = saved.report.kept
    assert [(one.source, one.offset, one.length) for one in kept] == [(path, frame.offset, frame.length)]
    assert saved.tree[f"lost/{kept[0].file}"] == (hit[path] or b"")[frame.offset : frame.offset + frame.length]
    whole, left = seen(tree), saved.topics()
    assert {name: view for name, view in left.items() if name != "orders"} == {
        name: view for name, view in whole.items() if name != "orders"
    }
    assert damage(check(saved.tree)[0]) == []


def test_what_a_lost_delete_may_have_taken_does_not_come_back() -> None:
    tree = stopped()
    path = next(
        path
        for path in sorted(tree)
        if path.endswith(".log")
        and any(one.header.type == FrameType.DELETE for one in LogScan(StillDisk(tree, "boot-1"), path).items())
    )
    frame = next(one for one in LogScan(StillDisk(tree, "boot-1"), path).items() if one.header.type == FrameType.DELETE)
    hit = flip(tree, path, frame.offset + 85)
    saved = Saved(hit)
    assert [(one.topic, one.first, one.last) for one in saved.report.doubtful] == [("orders", 1, 3)]
    assert ("orders", 1) in {(topic, first) for topic, first, _ in saved.lost()}
    lines = (saved.tree["lost/doubtful-1.ndjson"] or b"").splitlines()
    assert [msgspec.json.decode(line)["$seq"] for line in lines] == [1, 2, 3]
    assert Saved(hit, keep_doubtful=True).report.doubtful == []


@pytest.mark.parametrize("path", ["STORE", "meta/MANIFEST", "LOCK"])
def test_a_bad_small_file_costs_no_record(path: str) -> None:
    tree = stopped()
    saved = Saved(flip(tree, path, 5))
    whole = seen(tree)
    left = saved.topics()
    for name in whole:
        assert left[name].records == whole[name].records


def test_bad_snapshots_cost_no_record_while_the_log_is_there() -> None:
    made = Made()
    hit = flip(flip(made.tree, SNAP1, 200), SNAP2, 200)
    saved = Saved(hit, settings=made.settings)
    assert saved.topics() == seen(made.tree, made.settings)
    assert {one.source for one in saved.report.kept} == {SNAP1, SNAP2}


def test_a_bad_record_in_a_segment_is_a_gap_of_one() -> None:
    made = Made(own_files=True)
    path = next(path for path, content in sorted(made.tree.items()) if "2.data" in path and b"xxxx" in (content or b""))
    hit = flip(made.tree, path, (made.tree[path] or b"").rindex(b"xxxx"))
    saved = Saved(hit, settings=made.settings)
    assert len(saved.lost()) == 1
    topic, first, last = saved.lost()[0]
    assert (topic, last - first) == ("a", 0)
    assert damage(check(saved.tree)[0]) == []


def test_only_the_topics_that_are_asked_for_are_saved() -> None:
    saved = Saved(stopped(), topics=("orders",))
    assert list(saved.topics()) == ["orders"]
    assert sorted(saved.report.left_out) == ["large", "payments"]


def test_a_missing_segment_is_a_gap_when_nothing_else_has_its_records() -> None:
    made = Made(own_files=True)
    paths = [path for path in made.tree if path.endswith(".data") and path.startswith("topics/")]
    hit = put(made.tree, max(paths), None)
    saved = Saved(hit, settings=made.settings)
    assert saved.report.complete, "the log behind the older snapshot still has them"
