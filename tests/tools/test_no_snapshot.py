"""No snapshot checks and the log was trimmed: no start, and `recover` saves what files and the rest of it prove."""

from __future__ import annotations

import json

import pytest

from engine.core import Inspection
from engine.errors import StoreDamaged
from engine.fs import Fs
from engine.limits import OnCorruption
from engine.tools.finding import Finding, FindingId
from engine.tools.fsck import Fsck
from engine.tools.recover import Recovery, Report
from tests.core.hand import Hand
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.store.made import SNAP1, SNAP2
from tests.store.test_damaged_snapshots import Made
from tests.tools.stores import damage, flip, put
from tests.tools.test_twelve_damages import checked, seen

pytestmark = pytest.mark.slow

TOPICS_SECTION, GLOBALS_SECTION = 200, -200


@pytest.fixture(scope="module", params=[True, False], ids=["segments", "tails"])
def made(request: pytest.FixtureRequest) -> Made:
    return Made(own_files=request.param, trimmed=True)


def bad(tree: Tree, at: int) -> Tree:
    """A bit of both snapshots."""
    for path in (SNAP1, SNAP2):
        content = tree[path]
        assert content is not None
        tree = flip(tree, path, at % len(content))
    return tree


def recovered(made: Made, tree: Tree, *, keep_doubtful: bool = False) -> tuple[Report, Tree]:
    return recovered_from(made, StillDisk(tree, "boot-1"), keep_doubtful=keep_doubtful)


def recovered_from(made: Made, source: Fs, *, keep_doubtful: bool = False) -> tuple[Report, Tree]:
    """The report on a disk, and the store that was saved of it, which is whole."""
    recovery = Recovery(source, made.clock, lambda _: None, lambda *_: None, made.settings, keep_doubtful=keep_doubtful)
    recovery.read()
    disk = FakeDisk(boot="boot-2")
    report = recovery.write(disk)
    saved = disk.cached_tree()
    problems, verdict = checked(made, saved)
    assert damage(problems) == []
    assert verdict == "start"
    return report, saved


def lost_of(report: Report, name: str) -> set[int]:
    return {seq for one in report.lost if one.topic == name for seq in range(one.first, min(one.last, 1000) + 1)}


@pytest.mark.parametrize("policy", OnCorruption)
def test_it_never_starts_and_the_refusal_names_both_files_and_what_to_do(policy: OnCorruption, made: Made) -> None:
    tree = bad(made.tree, TOPICS_SECTION)
    with pytest.raises(StoreDamaged, match="topics recover DIR --to NEW") as refused:
        made.start({}, policy, FakeDisk.of_tree(tree, boot="boot-1"))
    assert SNAP1 in str(refused.value)
    assert SNAP2 in str(refused.value)
    assert refused.value.exit_code == 76


def test_fsck_names_both_files_and_what_to_do(made: Made) -> None:
    found, verdict = checked(made, bad(made.tree, TOPICS_SECTION))
    assert verdict == "refuse"
    [one] = [one for one in found if one.id is FindingId.REFUSED]
    assert SNAP1 in one.what
    assert SNAP2 in one.what
    assert "topics recover" in one.next_step


def test_with_the_globals_bad_every_topic_is_as_it_was(made: Made) -> None:
    report, saved = recovered(made, bad(made.tree, GLOBALS_SECTION))
    assert seen(made, saved) == made.whole
    assert report.lost == []
    assert {one.source for one in report.kept} == {SNAP1, SNAP2}


def test_the_older_snapshot_still_has_the_names(made: Made) -> None:
    """The topics of the newest and the globals of the older do not check: together they miss nothing."""
    content = made.tree[SNAP1]
    assert content is not None
    tree = flip(flip(made.tree, SNAP2, TOPICS_SECTION), SNAP1, GLOBALS_SECTION % len(content))
    report, saved = recovered(made, tree)
    assert seen(made, saved) == made.whole
    assert report.lost == []


def test_topics_that_only_files_know_are_lines_and_the_rest_of_the_log_has_the_others(made: Made) -> None:
    report, saved = recovered(made, bad(made.tree, TOPICS_SECTION))
    assert not report.complete
    assert report.untold
    views = seen(made, saved)
    assert set(views) == {"salvaged-1", "salvaged-2", "c"}
    assert views["c"] == made.whole["c"], "its Create is in the log"
    assert not views["salvaged-1"].records, "which of them were deleted nobody knows"
    assert set(made.whole["a"].records) <= lost_of(report, "salvaged-1")
    [lines] = [one for one in report.kept if one.why.startswith("records of topic salvaged-1 ")]
    content = saved[f"lost/{lines.file}"]
    assert content is not None
    kept = {record["$seq"]: record for record in map(json.loads, content.splitlines())}
    assert set(made.whole["a"].records) <= set(kept)
    assert not {1, 70} & set(kept), "deletes that the log has are known"


def test_what_is_doubtful_can_be_kept(made: Made) -> None:
    report, saved = recovered(made, bad(made.tree, TOPICS_SECTION), keep_doubtful=True)
    whole = made.whole["a"].records
    records = seen(made, saved)["salvaged-1"].records
    assert {seq: records[seq] for seq in whole} == whole
    assert set(records) - set(whole) <= {3, 4}, "deleted before the snapshots: only a .del file knows"
    assert not lost_of(report, "salvaged-1")


def test_a_record_that_does_not_check_either_is_a_gap(made: Made) -> None:
    tree = bad(made.tree, TOPICS_SECTION)
    for path in [path for path in tree if path.endswith(".data")]:
        content = tree[path]
        assert content is not None
        while (at := content.find(b'"$seq":7,')) >= 0:
            content = content[:at] + b'"$sEq":7,' + content[at + 9 :]
        tree = put(tree, path, content)
    report, saved = recovered(made, tree, keep_doubtful=True)
    whole = made.whole["a"].records
    records = seen(made, saved)["salvaged-1"].records
    assert set(whole) - set(records) == {7}
    assert lost_of(report, "salvaged-1") == {7}


def test_a_bad_del_file_never_brings_back_what_it_took() -> None:
    made = Made(own_files=True, trimmed=True)
    tree = bad(made.tree, TOPICS_SECTION)
    dels = [path for path in tree if path.endswith(".del")]
    assert dels
    for path in dels:
        tree = flip(tree, path, 70)
    _, saved = recovered(made, tree, keep_doubtful=True)
    records = seen(made, saved)["salvaged-1"].records
    assert not {1, 3, 4, 70} & set(records)
    assert records, "the segments without deletes are there"


def test_without_any_snapshot_file_it_is_the_same(made: Made) -> None:
    tree = put(put(made.tree, SNAP1, None), SNAP2, None)
    with pytest.raises(StoreDamaged, match="topics recover DIR --to NEW"):
        Inspection(StillDisk(tree, "boot-1"), made.clock, made.settings)
    report, saved = recovered(made, tree, keep_doubtful=True)
    assert report.untold
    whole = made.whole["a"].records
    records = seen(made, saved)["salvaged-1"].records
    assert {seq: records[seq] for seq in whole} == whole


def test_a_saved_store_is_no_empty_one_without_its_only_snapshot(made: Made) -> None:
    _, saved = recovered(made, made.tree)
    tree = flip(saved, SNAP1, TOPICS_SECTION)
    with pytest.raises(StoreDamaged, match="topics recover DIR --to NEW"):
        Inspection(StillDisk(tree, "boot-1"), made.clock, made.settings)
    found, verdict = checked(made, tree)
    assert verdict == "refuse"
    assert SNAP1 in "".join(one.what for one in found if one.id is FindingId.REFUSED)
    report, again = recovered(made, tree, keep_doubtful=True)
    assert report.untold
    whole = made.whole["a"].records
    records = seen(made, again)["salvaged-1"].records
    assert {seq: records[seq] for seq in whole} == whole


def test_nothing_is_pieced_together_while_one_snapshot_checks(made: Made) -> None:
    report, saved = recovered(made, flip(made.tree, SNAP2, TOPICS_SECTION))
    assert report.complete
    assert seen(made, saved) == made.whole


def test_a_mark_that_says_that_nothing_is_missing_makes_no_gap(made: Made) -> None:
    disk = FakeDisk.of_tree(made.tree, boot="boot-1")
    hand = Hand(disk, clock=made.clock.restart(), settings=made.settings)
    hand.quieten()
    report, saved = recovered(made, bad(hand.disk.killed().cached_tree(), TOPICS_SECTION), keep_doubtful=True)
    assert report.untold
    found, _ = checked(made, saved)
    said = [one.seqs for one in found if one.id is FindingId.LOST and one.seqs is not None]
    assert not [seqs for seqs in said if seqs[0] > seqs[1]]
    assert seen(made, saved)["salvaged-1"].head == made.whole["a"].head


def test_segments_alone_are_worth_saving() -> None:
    """STORE, LOCK, the log and meta/ are gone: segments say whose they are."""
    made = Made(own_files=True, trimmed=True)
    tree: Tree = {path: content for path, content in made.tree.items() if path.startswith("topics")}
    report, saved = recovered(made, tree, keep_doubtful=True)
    assert report.untold
    views = seen(made, saved)
    for name, topic in (("a", "salvaged-1"), ("b", "salvaged-2")):
        there = views[topic].records
        assert there, name
        for seq, record in there.items():
            assert made.whole[name].records.get(seq, record) == record


@pytest.mark.parametrize(
    ("made", "what"),
    [(True, what) for what in ("snapshots", "tails", "data", "segments")] + [(False, "snapshots"), (False, "tails")],
    indirect=["made"],
)
def test_files_of_checkpoints_under_each_others_names_lose_nothing(what: str, made: Made) -> None:
    """`data`: of two segments; `segments`: all of their files."""
    begins, ends = {"snapshots": ("meta/", ".snap"), "tails": ("meta/tails", ".data")}.get(what, ("topics/", ".data"))
    named = sorted(path for path in made.tree if path.startswith(begins) and path.endswith(ends))
    assert len(named) >= 2
    pairs = [(named[0], named[1])]
    if what == "segments":
        one, two = (path.removesuffix(".data") for path in named[:2])
        pairs += [
            (one + end, two + end) for end in (".idx", ".tags") if one + end in made.tree and two + end in made.tree
        ]
    tree = dict(made.tree)
    for left, right in pairs:
        tree[left], tree[right] = made.tree[right], made.tree[left]
    report, saved = recovered(made, tree)
    assert report.lost == []
    assert seen(made, saved) == made.whole
    assert "in the wrong place: read as that" in " ".join(report.notes)


@pytest.mark.parametrize("path", [SNAP1, SNAP2, "meta/tails-", ".idx", ".data"])
def test_fsck_of_a_disk_that_gives_errors_comes_to_its_end(path: str, made: Made) -> None:
    for tree in (made.tree, put(made.tree, "STORE", None)):
        disk = FaultFs(StillDisk(tree, "boot-1"), [Fault(Call.READ, 0, Effect.EIO, lasting=True, path=path)])
        found: list[Finding] = []
        Fsck(disk, made.clock, found.append, lambda *_: None, made.settings).run()
        assert damage(found) or "STORE" in tree
