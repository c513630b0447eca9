"""A disk that refuses some of a store (EIO): `recover` saves all the rest, and reports what that has cost."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from engine.core import Inspection
from engine.errors import StoreDamaged, StoreIOError
from engine.fs import OpenMode
from engine.limits import KIB
from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.fsck import Fsck
from engine.tools.pinning import pin_stopped
from engine.tools.recover import Recovery, Report
from engine.tools.unreadable import BLOCK, Readable
from engine.types import Durability
from tests.core.hand import SMALL, Hand
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.still import BadDisk
from tests.store.made import SNAP1, SNAP2
from tests.store.test_damaged_snapshots import Made
from tests.tools.test_no_snapshot import recovered_from
from tests.tools.test_twelve_damages import seen

pytestmark = pytest.mark.slow

FOR_EVER = 1 << 40
IN_THE_LOG = {1, 70}
"""Records of topic a whose deletes are in the log alone: where that cannot be read, they may be there again."""


@pytest.fixture(scope="module", params=[True, False], ids=["segments", "tails"])
def made(request: pytest.FixtureRequest) -> Made:
    return Made(own_files=request.param, trimmed=True)


def recovered(
    made: Made, bad: Mapping[str, tuple[int, int]] | None = None, closed: Sequence[str] = ()
) -> tuple[Report, Tree, BadDisk]:
    source = BadDisk(made.tree, "boot-1", bad, closed)
    return *recovered_from(made, source), source


def told(made: Made, report: Report, saved: Tree) -> dict[str, set[int]]:
    """Which records are gone, each of them told; by topic."""
    views = seen(made, saved)
    gone: dict[str, set[int]] = {}
    for number, (name, before) in enumerate(sorted(made.whole.items()), 1):
        called = name if name in views else f"salvaged-{number}"
        if called not in views:
            assert report.untold, f"topic {name} is gone without a word"
            continue
        there = views[called].records
        lost = {seq for one in report.lost if one.topic == called for seq in range(one.first, min(one.last, 999) + 1)}
        gone[name] = before.records.keys() - there.keys()
        assert gone[name] <= lost, f"{name}: {gone[name] - lost} are gone, and nobody says so"
        back = there.keys() - before.records.keys()
        assert not back or (called in report.concerned and back <= IN_THE_LOG), f"{name}: {back} were deleted"
        assert all(before.records[seq] == record for seq, record in there.items() if seq not in back)
    return gone


def places(made: Made) -> list[tuple[str, int]]:
    return [(path, at) for path, content in made.tree.items() if content for at in range(0, len(content), BLOCK)]


def test_whatever_block_is_refused_the_rest_is_saved_and_the_loss_told(made: Made) -> None:
    costs = 0
    for path, at in places(made):
        report, saved, source = recovered(made, {path: (at + 100, at + 101)})
        gone = told(made, report, saved)
        assert {name for name, seqs in gone.items() if seqs} <= {"a", "b", "c"}
        costs += any(gone.values())
        if source.asked:
            [one] = report.unread
            assert (one.path, one.offset, one.length) == (path, at, BLOCK)
            assert "Input/output error" in one.why
        else:
            assert report.unread == []
            assert report.complete
    assert costs > 5


def test_whatever_does_not_open_the_rest_is_saved_and_the_loss_told(made: Made) -> None:
    for path, content in made.tree.items():
        report, saved, _ = recovered(made, closed=[path])
        told(made, report, saved)
        assert report.unread == [] or [(one.path, one.length) for one in report.unread] == [(path, -1)]
        assert report.untold or content is not None or not report.unread, "which files it had nobody knows"


def looked_at(
    made: Made, bad: Mapping[str, tuple[int, int]], closed: Sequence[str] = ()
) -> tuple[str, list[Finding], int]:
    """The verdict of fsck and its findings, and how often the disk refused."""
    disk, found = BadDisk(made.tree, "boot-1", bad, closed), list[Finding]()
    verdict = Fsck(disk, made.clock, found.append, lambda *_: None, made.settings).run().verdict
    return verdict, [one for one in found if one.severity is Severity.DAMAGE], disk.asked


def starts(made: Made, bad: Mapping[str, tuple[int, int]], closed: Sequence[str] = ()) -> str:
    try:
        inspection = Inspection(BadDisk(made.tree, "boot-1", bad, closed), made.clock, made.settings)
    except StoreIOError:
        return "refuse"
    inspection.close()
    return "start"


def test_fsck_names_every_place_that_is_refused_and_says_what_a_start_would_do(made: Made) -> None:
    for path, at in places(made):
        bad = {path: (at + 100, at + 101)}
        verdict, damage, asked = looked_at(made, bad)
        named = [(one.file, one.offset) for one in damage if one.id is FindingId.UNREADABLE and one.offset is not None]
        assert named == ([(path, at)] if asked else [])
        assert verdict == starts(made, bad)
    for path in made.tree:
        verdict, damage, _ = looked_at(made, {}, [path])
        assert verdict == starts(made, {}, [path])
        assert {one.file for one in damage if one.id is FindingId.UNREADABLE} <= {path, ""}


def test_a_bad_sector_of_a_segment_costs_the_records_that_lie_in_it() -> None:
    made = Made(own_files=True, trimmed=True)
    path = "topics/0000000000000001/seg-00000000000000000001-0000000002.data"
    report, saved, source = recovered(made, {path: (8192, 8193)})
    gone = told(made, report, saved)
    content = made.tree[path]
    assert content is not None
    hit = {int(part.split(b",")[0]) for part in content[8192:12288].split(b'"$seq":')[1:]}
    assert hit <= gone["a"] <= {min(hit) - 1, *hit}
    assert gone["b"] == gone["c"] == set()
    assert not report.untold
    assert source.asked < 30, "what was refused is not asked for at every look"


def test_a_bad_sector_behind_the_log_is_no_end_of_it_but_where_zeros_come_first() -> None:
    """Where a write may begin that was synced, nobody knows whether there was one."""
    made = Made(own_files=True, trimmed=True)
    log = max(path for path in made.tree if path.endswith(".log"))
    content = made.tree[log]
    assert content is not None
    assert not any(content[-BLOCK:])
    made.tree[log] = content + bytes(4 * BLOCK)
    report, saved, source = recovered(made, {log: (len(content) - BLOCK, len(content))})
    assert source.asked
    for name, there in seen(made, saved).items():
        assert there.records == made.whole[name].records
    assert {one.topic for one in report.lost if one.perhaps} == {"a", "b", "c"}
    assert all(one.perhaps for one in report.lost)
    report, saved, source = recovered(made, {log: (len(content) + BLOCK, FOR_EVER)})
    assert source.asked
    assert report.complete
    assert seen(made, saved) == made.whole


def test_a_log_file_that_cannot_be_read_from_its_beginning_is_no_end_of_the_one_before() -> None:
    hand = Hand(settings=msgspec.structs.replace(SMALL, wal_file_bytes=16 * KIB, wal_reserve_bytes=2 * KIB))
    hand.create("t", durability=Durability.FSYNC)
    used: list[str] = []
    while len(used) < 2:
        hand.write("t", "x" * 900)
        tree = hand.disk.cached_tree()
        used = [path for path in sorted(tree) if path.endswith(".log") and any((tree[path] or b"")[BLOCK:])]
    head = hand.core.state("t").head_seq
    tree = hand.disk.killed().cached_tree()
    source = BadDisk(tree, "boot-1", {used[-1]: (BLOCK, FOR_EVER)})
    recovery = Recovery(source, hand.clock, lambda _: None, lambda *_: None, hand.settings)
    report = recovery.read()
    assert report.lost
    assert max(one.last for one in report.lost) >= head


def test_a_file_that_is_refused_whole_is_asked_for_block_by_block_once_and_told_in_one_line() -> None:
    blocks = 5_000
    disk = BadDisk({"x": bytes(blocks * BLOCK + 10)}, "boot-1", {"x": (0, FOR_EVER)})
    view = Readable(disk)
    handle = view.open("x", OpenMode.READ)
    for _ in range(2):
        for at in range(0, blocks * BLOCK, 16 * BLOCK):
            assert set(view.pread(handle, 16 * BLOCK, at)) == {255}
    assert view.pread(handle, BLOCK, blocks * BLOCK) == b"\xff" * 10
    assert view.pread(handle, 0, 0) == b""
    [one] = view.unread()
    assert (one.offset, one.length) == (0, (blocks + 1) * BLOCK)
    assert disk.asked <= blocks + blocks / 16 + 3


def test_one_snapshot_that_is_refused_costs_nothing_and_both_cost_what_two_bad_ones_cost(made: Made) -> None:
    report, saved, _ = recovered(made, {SNAP2: (0, FOR_EVER)})
    assert report.complete
    assert seen(made, saved) == made.whole
    report, saved, _ = recovered(made, {SNAP1: (0, FOR_EVER), SNAP2: (0, FOR_EVER)})
    told(made, report, saved)
    assert report.untold
    assert len(seen(made, saved)) >= 1


def test_what_is_exported_of_a_stopped_store_has_to_be_read() -> None:
    made = Made(own_files=True, trimmed=True)
    path = "topics/0000000000000001/seg-00000000000000000001-0000000002.data"
    source = BadDisk(made.tree, "boot-1", {path: (8192, 8193)})
    with pytest.raises(StoreDamaged, match="topic 'a'"):
        pin_stopped(source, FakeDisk(), made.clock, frozenset(), lambda *_: None)


def test_an_error_that_the_disk_has_no_part_in_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = BadDisk({"x": b"abc"}, "boot-1", {"x": (1, 2)})
    view = Readable(disk)
    handle = view.open("x", OpenMode.READ)
    assert view.pread(handle, 9, 0) == b"\xff\xff\xff"
    with pytest.raises(FileNotFoundError):
        view.open("y", OpenMode.READ)

    def no(*_: object) -> bytes:
        raise OSError(errno.EACCES, "not yours")

    monkeypatch.setattr(disk, "pread", no)
    other = view.open("x", OpenMode.READ)
    view._bad.clear()
    with pytest.raises(PermissionError):
        view.pread(other, 1, 0)
