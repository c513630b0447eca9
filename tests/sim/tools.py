"""Plays of the tools: backup, restore, recover, each killed and cut off at every change of the directory that it makes.

What is half made must say so: a backup without its manifest is none, a store without STORE is none. What was answered
is there whole, also after a power failure, with every loss told and what was bad kept beside it. A target that lies
about what was written, a file that nobody listed and a byte that is not what it was are noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, cast

from xxhash import xxh3_128_hexdigest

from engine.checkpoint.pin import PinJob, export_dir
from engine.core import Core, Inspection
from engine.core.reads import until_read
from engine.errors import Refused, StoreDamaged, StoreMissing
from engine.formats.frame import FrameType
from engine.formats.manifest import STORE_PATH
from engine.fs import Fs
from engine.store.init import LOST_DIR
from engine.tools.backup import back_up, verify
from engine.tools.log_file import LogScan
from engine.tools.recover import Recovery, Report, put_report
from engine.tools.unreadable import BLOCK
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.flips import HISTORY, quiet_world
from tests.sim.media import Tree
from tests.sim.pins import PIN, Topics, same
from tests.sim.plays import Crashes, Play
from tests.sim.routers import settle
from tests.sim.still import BadDisk, StillDisk
from tests.sim.view import look


@dataclass
class Told:
    """What whoever ran the tool knows."""

    done: bool = False
    """It said that it is done."""

    def copy(self) -> Told:
        return replace(self)


class LyingDisk:
    """A target that takes every write, and has another bit in the one of a number."""

    def __init__(self, below: Fs, lies_at: int) -> None:
        self._below = below
        self._left = lies_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        data = bytearray(b"".join(buffers))
        if self._left == 0:
            data[len(data) // 2] ^= 4
        self._left -= 1
        return self._below.pwritev(handle, (bytes(data),), offset)


@cache
def _store() -> Tree:
    """A store with snapshots, segments, tails and deletes, of which the last are in the log alone."""
    world = quiet_world(stop=True, settings=HISTORY).start()
    world.delete("plain", seqs=(12,))
    world.delete("capped", seqs=(5,))
    world.append("synced", 1)
    return world.settle().stop().disk.cached_tree()


def _still(tree: Tree) -> Fs:
    """A file system that nobody writes to."""
    return cast(Fs, StillDisk(tree, "boot-1"))


def _seen(fs: Fs) -> Topics:
    """What clients of a store would see, once what is damaged was met."""
    inspection = Inspection(fs, ManualClock(), HISTORY)
    look(inspection)
    topics = dict(look(inspection).topics)
    inspection.close()
    return topics


def _whys(fs: Fs) -> dict[tuple[str, int], object]:
    """Why each record is gone that once was there."""
    inspection = Inspection(fs, ManualClock(), HISTORY)
    found: dict[tuple[str, int], object] = {}
    for name, topic in look(inspection).topics.items():
        for seq in range(1, topic.head + 1):
            try:
                until_read(inspection, partial(inspection.record, name, seq), _nobody)
            except Refused as refused:
                found[name, seq] = (refused.detail or {}).get("why")
    inspection.close()
    return found


def _nameless(fs: Fs) -> dict[str, str]:
    """What topics are called whose names are lost → their names."""
    inspection = Inspection(fs, ManualClock(), HISTORY)
    found = {f"salvaged-{slot.topic.id:x}": name for name, slot in inspection.catalog.visible.items()}
    inspection.close()
    return found


def _files(disk: FakeDisk) -> list[str]:
    return [path for path, content in disk.cached_tree().items() if content is not None]


def _nobody(*_: object) -> None:
    """Progress that nobody looks at."""


# -- backup -----------------------------------------------------------------------------------------------------------


@cache
def _pin() -> Tree:
    """A pin, as files."""
    disk = FakeDisk.of_tree(_store(), boot="boot-1")
    core = Core.open(disk, ManualClock(), HISTORY)
    job = PinJob(PIN, core.store.store_id, 1, None, None)
    job.number = core.store.last_number
    job.run(disk)
    base = f"{export_dir(PIN)}/"
    return {path.removeprefix(base): content for path, content in disk.cached_tree().items() if path.startswith(base)}


def _backup(shards: int, crashes: Crashes[Told]) -> None:
    source, told, target = _still(_pin()), Told(), FakeDisk()
    wanted = _seen(source)
    crashes.watch(target, lambda: told)
    back_up(source, crashes.wrap(target), _nobody)
    told.done = True
    crashes.moment(target, "answer")
    target.on_step = None
    _refusals(target)
    _needs_its_snapshot(_pin())
    for number in range(4):
        try:
            back_up(source, cast(Fs, LyingDisk(FakeDisk(), number)), _nobody)
        except StoreDamaged:
            continue
        raise AssertionError(f"write {number} went wrong, and the backup was called whole")

    def check(image: FakeDisk, told: Told, power: bool) -> None:
        wrong = _unverified(image)
        assert wrong is None or not told.done, f"a backup that was answered is not whole: {wrong}"
        if wrong is None:
            same(wanted, _seen(_still(image.cached_tree())), "backup")

    crashes.check(check)


def _refusals(backup: FakeDisk) -> None:
    """What the manifest does not vouch for does not pass for a backup."""
    whole = backup.cached_tree()
    for path in _files(backup):
        content = whole[path] or b""
        others: list[Tree] = [{name: other for name, other in whole.items() if name != path}]
        others += [{**whole, path: content[:-1]}, {**whole, path: content + b"\0"}]
        for at in {0, len(content) // 2, len(content) - 1} if content else ():
            flipped = bytearray(content)
            flipped[at] ^= 1
            others.append({**whole, path: bytes(flipped)})
        for tree in others:
            _refused(tree, path)
    _refused({**whole, "topics/0000000000000009": None, "topics/0000000000000009/x.data": b"x"}, "a file of nobody")


def _refused(tree: Tree, why: str) -> None:
    wrong = _unverified(FakeDisk.of_tree(tree, boot="boot-1"))
    assert wrong is not None, f"{why}: not what was backed up, and it passes"


def _unverified(backup: FakeDisk) -> StoreDamaged | None:
    """Why a directory is no whole backup."""
    try:
        verify(backup, _files(backup), _nobody)
    except StoreDamaged as error:
        return error
    return None


# -- new stores -------------------------------------------------------------------------------------------------------


def _recovered(source: Tree | Fs, target: Fs) -> Report:
    """Read a store and write a new one, as `recover` and `restore` do."""
    fs = _still(source) if isinstance(source, dict) else source
    recovery = Recovery(fs, ManualClock(), _nobody, _nobody, HISTORY)
    recovery.read()
    report = recovery.write(target)
    put_report(target, report, "text")
    return report


def _rebuilds(
    make: Callable[[], Tree | Fs], check_report: Callable[[Report], None], whole: Callable[[], Tree] = _store
) -> Callable[[int, Crashes[Told]], None]:
    """The play of one store's way into a new one; `whole` is that store before it was damaged."""

    def run(shards: int, crashes: Crashes[Told]) -> None:
        source, told, target = make(), Told(), FakeDisk()
        crashes.watch(target, lambda: told)
        report = _recovered(source, crashes.wrap(target))
        told.done = True
        crashes.moment(target, "answer")
        target.on_step = None
        check_report(report)
        _needs_its_snapshot(target.cached_tree())
        _outlives_either_snapshot(target.cached_tree())
        wanted = _seen(_still(target.cached_tree()))
        before = _still(whole())
        _losses_only(_seen(before), wanted, report, _nameless(before))
        if report.complete:
            same(_seen(before), wanted, "new store")
            assert _whys(before) == _whys(_still(target.cached_tree())), "why records are gone is another reason"

        def check(image: FakeDisk, told: Told, power: bool) -> None:
            if not image.exists(STORE_PATH):
                assert not told.done, "a store that was answered is not there"
                _not_started(image)
                try:
                    Inspection(_still(image.cached_tree()), ManualClock(), HISTORY)
                except (StoreMissing, StoreDamaged):
                    return
                raise AssertionError("a store that is not whole can be opened")
            same(wanted, _seen(_still(image.cached_tree())), "new store")
            core = Core.open(image, ManualClock(), HISTORY)
            same(wanted, dict(look(core).topics), "started")
            if told.done:
                _kept(image, report)

        crashes.check(check)

    return run


def _not_started(image: FakeDisk) -> None:
    """A start takes nothing that was begun for room for a new store, not even directories without a file."""
    begun = image.list("")
    try:
        Core.open(image.killed(), ManualClock(), HISTORY)
    except StoreDamaged:
        return
    assert not begun, f"a new store was made over {begun}"


def _needs_its_snapshot(tree: Tree) -> None:
    """A store made with a snapshot is not an empty one when that cannot be read; what is lost of it is said."""
    (path,) = [path for path in _files(FakeDisk.of_tree(tree, boot="boot-1")) if path.endswith(".snap")]
    before = _still(tree)
    whole, names = _seen(before), _nameless(before)
    without = {name: content for name, content in tree.items() if name != path}
    length = len(tree[path] or b"")
    for damaged in (without, *(_flipped(tree, path, at) for at in (20, 100, length // 2, length - 1))):
        _not_started(FakeDisk.of_tree(damaged, boot="boot-1"))
        target = FakeDisk()
        report = _recovered(damaged, target)
        _losses_only(whole, _seen(_still(target.cached_tree())), report, names, may_miss=report.untold)


def _outlives_either_snapshot(tree: Tree) -> None:
    """Once it was started a new store has two of them, and needs one."""
    disk, clock = FakeDisk.of_tree(tree, boot="boot-1"), ManualClock()
    core = Core.open(disk, clock, HISTORY)
    settle(core, disk, clock)
    core.close()
    there = disk.cached_tree()
    wanted = _seen(_still(there))
    paths = [path for path in _files(disk) if path.endswith(".snap")]
    assert len(paths) == 2, "a store that was started has one snapshot"
    for path in paths:
        for at in (20, 100, len(there[path] or b"") // 2):
            same(wanted, _seen(_still(_flipped(there, path, at))), f"{path} is damaged")


def _losses_only(
    before: Topics, after: Topics, report: Report, nameless: Mapping[str, str], *, may_miss: bool = False
) -> None:
    """What the new store has is what the old one had, but for the losses that the report names; nothing comes back.

    `nameless`: as topics whose names are lost are called → their names; `may_miss`: some may be gone without a trace.
    """
    heads = {name: topic.head for name, topic in before.items()}
    heads |= {name: before[to].head for name, to in nameless.items()}
    lost = {(one.topic, seq) for one in report.lost for seq in range(one.first, min(one.last, heads[one.topic]) + 1)}
    ends = {one.topic: one.last for one in report.lost if one.perhaps}
    assert len(after) == len(before) or (may_miss and len(after) < len(before)), (
        f"topics {sorted(before)}, then {sorted(after)}"
    )
    for name, there in after.items():
        topic = before[nameless.get(name, name)]
        assert there.problem is None, there.problem
        if name in before:
            assert (there.head, there.config) == (max(topic.head, ends.get(name, 0)), topic.config), name
        assert not there.records.keys() - topic.records.keys(), f"{name}: what was deleted is back"
        gone = topic.records.keys() - there.records.keys()
        assert {(name, seq) for seq in gone} <= lost, f"{name}: {sorted(gone)} are gone, and nobody says so"
        for seq, record in there.records.items():
            assert record == topic.records[seq], f"{name}: seq {seq} is another record"
        told = {seq for first, last in there.damage for seq in range(first, last + 1)}
        assert gone <= told, f"{name}: {sorted(gone - told)} are gone without a tombstone"


def _kept(image: FakeDisk, report: Report) -> None:
    """What was bad lies beside the new store."""
    tree = image.cached_tree()
    for one in report.kept:
        content = tree.get(f"{LOST_DIR}/{one.file}")
        assert content is not None, f"{one.file} is not kept"
        assert xxh3_128_hexdigest(content) == one.xxh3_128, f"{one.file} is not what it was"
    assert tree.get(f"{LOST_DIR}/report.json"), "the report is not there"


def _flipped(tree: Tree, path: str, at: int) -> Tree:
    content = bytearray(tree[path] or b"")
    content[at] ^= 4
    return {**tree, path: bytes(content)}


def _damaged() -> Tree:
    """A record of a segment is bad, and a delete in the log cannot be read."""
    tree = _store()
    data = min(path for path in tree if path.startswith("topics/") and path.endswith(".data"))
    tree = _flipped(tree, data, 100)
    deletes = [
        (path, one.offset)
        for path in sorted(path for path in tree if path.endswith(".log"))
        for one in LogScan(_still(tree), path).items()
        if one.header.type == FrameType.DELETE
    ]
    return _flipped(tree, deletes[-1][0], deletes[-1][1] + 85)


def _cut() -> Tree:
    """The data of the first segment is cut short in its middle."""
    tree = _store()
    data = min(path for path in tree if path.startswith("topics/") and path.endswith(".data"))
    content = tree[data] or b""
    return {**tree, data: content[: 3 * len(content) // 4]}


def _without_snapshots() -> Tree:
    """Neither snapshot checks, and the log was trimmed behind them."""
    tree = _store()
    for path in [path for path in tree if path.endswith(".snap")]:
        tree = _flipped(tree, path, 4 * len(tree[path] or b"") // 5)
    return tree


def _first_and_cut() -> Tree:
    """The only snapshot does not check, and the log, which reaches back to the beginning, is cut short."""
    tree = _young()
    (snapshot,) = [path for path in tree if path.endswith(".snap")]
    tree = _flipped(tree, snapshot, 4 * len(tree[snapshot] or b"") // 5)
    log = max(path for path in tree if path.endswith(".log"))
    return {**tree, log: (tree[log] or b"")[:-100]}


def _young() -> Tree:
    """A store of which one checkpoint was made."""
    world = quiet_world(stop=True).start()
    world.checkpoint()
    world.append("synced", 1)
    return world.settle().stop().disk.cached_tree()


def _killed() -> Tree:
    """A store of which the last write is in the log alone, and begins a block; its process was killed."""
    world = quiet_world(stop=True, settings=HISTORY).start()
    world.append("synced", 1)
    world.settle()
    world.append("synced", 1)
    return world.settle().kill().disk.cached_tree()


def _refusing() -> Fs:
    """The disk refuses the data of a segment and the last block of the log that has something in it."""
    tree = _killed()
    data = min(path for path in tree if path.startswith("topics/") and path.endswith(".data"))
    log = max(path for path in tree if path.endswith(".log") and any((tree[path] or b"")[BLOCK:]))
    last = (len((tree[log] or b"").rstrip(b"\0")) - 1) // BLOCK * BLOCK
    return cast(Fs, BadDisk(tree, "boot-1", {data: (100, 101), log: (last, last + 1)}))


def _complete(report: Report) -> None:
    assert report.complete, f"a store that is well comes out with losses: {report.lost}"
    assert not report.kept


def _with_doubts(report: Report) -> None:
    assert report.lost, "nothing is lost of a damaged store"
    assert report.doubtful, "what a lost delete may have taken is there again"
    assert any(one.file.startswith("doubtful") for one in report.kept), "doubtful records are not kept"
    assert any(one.source.endswith(".data") for one in report.kept), "bad bytes of a segment are not kept"
    assert any(one.source.endswith(".log") for one in report.kept), "bad bytes of the log are not kept"


def _with_unread(report: Report) -> None:
    assert len(report.unread) == 2, "what was refused is not told"
    assert any(one.perhaps for one in report.lost), "a block that is refused is taken for the end of the log"


def _before_the_cut(report: Report) -> None:
    """A running store shows the same losses, and both keep what lies before the cut."""
    assert report.lost, "nothing is lost of a segment that was cut short"
    disk = FakeDisk.of_tree(_cut(), boot="boot-1")
    core = Core.open(disk, ManualClock(), HISTORY)
    look(core)
    running, whole = dict(look(core).topics), _seen(_still(_store()))
    _losses_only(whole, running, report, {})
    (name,) = {one.topic for one in report.lost}
    kept, gone = running[name].records.keys(), whole[name].records.keys() - running[name].records.keys()
    assert min(kept) < min(gone), "what lies before the cut is gone, too"


def _told_of(report: Report) -> None:
    assert report.untold, "nobody says that topics may be missing"
    assert report.lost, "nothing is lost without snapshots"
    assert sum(one.source.endswith(".snap") for one in report.kept) == 2, "bad snapshots are not kept"


def _perhaps_more(report: Report) -> None:
    assert report.lost, "what may have been behind the cut is not told"
    assert all(one.perhaps for one in report.lost), "what is in the log is lost"
    assert sum(one.source.endswith(".snap") for one in report.kept) == 1, "the bad snapshot is not kept"


PLAYS = (
    Play("tool-backup", _backup, takes_wrap=True),
    Play("tool-restore", _rebuilds(_pin, _complete, _pin), takes_wrap=True),
    Play("tool-recover", _rebuilds(_store, _complete), takes_wrap=True),
    Play("tool-recover-damaged", _rebuilds(_damaged, _with_doubts), takes_wrap=True),
    Play("tool-recover-cut", _rebuilds(_cut, _before_the_cut), takes_wrap=True),
    Play("tool-recover-refused", _rebuilds(_refusing, _with_unread, _killed), takes_wrap=True),
    Play("tool-recover-no-snapshot", _rebuilds(_without_snapshots, _told_of), takes_wrap=True),
    Play("tool-recover-first", _rebuilds(_first_and_cut, _perhaps_more, _young), takes_wrap=True),
)
