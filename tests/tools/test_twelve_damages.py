"""The twelve damages of an operator's night: what a start does, what `fsck` says, what `recover` saves.

For each: undamaged topics are served by the recovered store exactly as they were, nothing that was deleted comes back,
and readers meet tombstones exactly where records are gone. The table is the one of docs/how-to/damage-and-recovery.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from engine.core import Inspection
from engine.errors import StoreDamaged
from engine.segment.tiers import TieredFs, no_tier
from engine.tools.finding import Finding, FindingId
from engine.tools.fsck import Fsck
from engine.tools.log_file import LogScan
from engine.tools.recover import Recovery, Report
from engine.wal.chain import DATA_START
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.view import TopicView, look
from tests.store.made import SNAP1, SNAP2
from tests.store.test_damaged_snapshots import Made
from tests.tools.stores import damage, flip, put

BEFORE = frozenset({3, 4})
"""Deleted before the newest snapshot: known although the log behind it is gone."""


class Damage(NamedTuple):
    """One row."""

    name: str
    make: Callable[[Made], Tree]
    starts: str
    """`start`: as if nothing were; `isolate`: with a gap; `refuse`."""
    finds: FindingId
    loses: bool
    """Whether `recover` loses a record."""
    deleted: frozenset[int] = frozenset({1, 3, 4, 70})
    """Of topic a, what is known to be deleted from what is left."""


def _logs(made: Made) -> list[str]:
    return sorted(path for path in made.tree if path.endswith(".log"))


def _needed(made: Made) -> list[str]:
    """Log files that a start from the newest snapshot reads, with a frame in them, oldest first."""
    return [path for path in _logs(made) if _frames(made, path, made.cuts[2])]


def _frames(made: Made, path: str, from_lsn: int = 0) -> list[int]:
    """Offsets of the writes in a log file."""
    scan = LogScan(StillDisk(made.tree, "boot-1"), path)
    return [one.offset for one in scan.items() if one.header.records and one.header.lsn >= from_lsn]


def _content(made: Made, path: str) -> bytes:
    content = made.tree[path]
    assert content is not None
    return content


def _files(made: Made, ending: str, number: int = 2) -> list[str]:
    return sorted(path for path in made.tree if path.endswith(ending) and f"-{number:010d}" in path)


def _flip_log(made: Made) -> Tree:
    """A bit in the payload of a write behind the newest snapshot, which a sync had covered."""
    path = _needed(made)[-1]
    return flip(made.tree, path, _frames(made, path, made.cuts[2])[0] + 90)


def _flip_old_log(made: Made) -> Tree:
    path = next(path for path in _logs(made) if path not in _needed(made))
    return flip(made.tree, path, DATA_START + 200)


def _no_newest(made: Made) -> Tree:
    return put(made.tree, _logs(made)[-1], None)


def _no_needed(made: Made) -> Tree:
    return put(made.tree, _needed(made)[-1], None)


def _cut_log(made: Made) -> Tree:
    path = _needed(made)[-1]
    return put(made.tree, path, _content(made, path)[: _frames(made, path, made.cuts[2])[-1] + 8])


def _zero_data(made: Made) -> Tree:
    path = next(path for path in _files(made, ".data") if len(_content(made, path)) > 3 * 4096)
    content = bytearray(_content(made, path))
    content[4096:8192] = bytes(4096)
    return put(made.tree, path, bytes(content))


def _flip_data(made: Made) -> Tree:
    path = next(path for path in _files(made, ".data") if b"yyyy" in _content(made, path))
    return flip(made.tree, path, _content(made, path).index(b"yyyy"))


def _drop(ending: str) -> Callable[[Made], Tree]:
    def make(made: Made) -> Tree:
        tree = made.tree
        for number in (1, 2):
            for path in _files(made, ending, number):
                tree = put(tree, path, None)
        return tree

    return make


def _cut_data(made: Made) -> Tree:
    tree = made.tree
    for number in (1, 2):
        for path in _files(made, ".data", number):
            if path.startswith("topics/"):
                tree = put(tree, path, _content(made, path)[:200])
    return tree


def _bad(ending: str) -> Callable[[Made], Tree]:
    def make(made: Made) -> Tree:
        tree = made.tree
        for number in (1, 2):
            for path in _files(made, ending, number):
                tree = flip(tree, path, 100 if ending == ".idx" else 70)
        return tree

    return make


TABLE = [
    Damage("a bit in an old log file", _flip_old_log, "start", FindingId.WAL_UNNEEDED, False),
    Damage("a bit in the newest durable writes", _flip_log, "isolate", FindingId.WAL_FRAME, True),
    Damage("the newest log file missing", _no_newest, "refuse", FindingId.REFUSED, True, BEFORE),
    Damage("a needed log file missing", _no_needed, "refuse", FindingId.REFUSED, True, BEFORE),
    Damage("a needed log file cut", _cut_log, "refuse", FindingId.REFUSED, True, BEFORE),
    Damage("segments missing", _drop(".data"), "isolate", FindingId.SEGMENT_MISSING, True),
    Damage("segments cut", _cut_data, "start", FindingId.SEGMENT_DATA, True),
    Damage("a bit in segment data", _flip_data, "start", FindingId.SEGMENT_DATA, True),
    Damage("bad indexes", _bad(".idx"), "start", FindingId.SEGMENT_INDEX, False),
    Damage("bad deleted rows", _bad(".del"), "isolate", FindingId.SEGMENT_DELETES, True),
    Damage("the newest snapshot bad", lambda m: flip(m.tree, SNAP2, 200), "start", FindingId.SNAPSHOT, False),
    Damage("4 KiB zeroed", _zero_data, "start", FindingId.SEGMENT_DATA, True),
]


def seen(made: Made, tree: Tree) -> dict[str, TopicView]:
    inspection = Inspection(StillDisk(tree, "boot-2"), made.clock, made.settings)
    topics = dict(look(inspection).topics)
    inspection.close()
    return topics


def _tiered(tree: Tree) -> TieredFs:
    """The way that tools see a store: what is not here might be in a cold tier, and this one has none."""
    return TieredFs(StillDisk(tree, "boot-1"), no_tier("nobody said where it is"))


def recovered(made: Made, tree: Tree) -> tuple[Report, Tree]:
    recovery = Recovery(_tiered(tree), made.clock, lambda _: None, lambda *_: None, made.settings)
    recovery.read()
    disk = FakeDisk(boot="boot-2")
    return recovery.write(disk), disk.cached_tree()


def checked(made: Made, tree: Tree) -> tuple[list[Finding], str]:
    found: list[Finding] = []
    tool = Fsck(_tiered(tree), made.clock, found.append, lambda *_: None, made.settings)
    return found, tool.run().verdict


@pytest.fixture(scope="module")
def made() -> Made:
    return Made(own_files=True, trimmed=True)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_what_a_start_does_what_fsck_says_what_recover_saves(row: Damage, made: Made) -> None:
    tree = row.make(made)
    found, verdict = checked(made, tree)
    assert verdict == row.starts
    assert row.finds in {one.id for one in found}
    try:
        Inspection(StillDisk(tree, "boot-1"), made.clock, made.settings).close()
        assert verdict != "refuse"
    except StoreDamaged:
        assert verdict == "refuse"

    report, saved = recovered(made, tree)
    assert report.complete is not row.loses
    views = seen(made, saved)
    lost: dict[str, set[int]] = {name: set() for name in made.whole}
    for one in report.lost:
        lost.setdefault(one.topic, set()).update(range(one.first, min(one.last, one.first + 1000) + 1))
    for name, whole in made.whole.items():
        if name not in views:
            assert row.loses, f"{name} is gone"
            continue
        view = views[name]
        kept = set(view.records)
        assert not kept & (row.deleted if name == "a" else set()), "what was deleted is back"
        gone = set(whole.records) - kept
        assert gone <= lost[name], f"{name}: records are gone and nobody says so"
        assert not kept & lost[name], f"{name}: records are said to be lost and are there"
        for seq in kept & set(whole.records):
            assert view.records[seq] == whole.records[seq]
        if not lost[name]:
            assert kept == set(whole.records)
    problems, verdict = checked(made, saved)
    assert damage(problems) == []
    assert verdict == "start"


def test_with_both_snapshots_bad_the_log_alone_is_enough_when_it_reaches_back() -> None:
    made = Made(own_files=True)
    tree = flip(flip(made.tree, SNAP1, 200), SNAP2, 200)
    report, saved = recovered(made, tree)
    assert report.complete
    assert seen(made, saved) == made.whole


@pytest.mark.parametrize("refused", [_no_newest, _cut_log], ids=["newest log file missing", "log file cut"])
def test_fsck_of_a_store_that_a_start_refuses_names_what_else_is_wrong(
    refused: Callable[[Made], Tree], made: Made
) -> None:
    tree = refused(made)
    gone = [path for path in _files(made, ".data") if path.startswith("topics/")]
    for path in gone[:1]:
        tree = put(tree, path, None)
    bad = next(path for path in _files(made, ".data") if path not in gone[:1] and b"yyyy" in _content(made, path))
    tree = flip(tree, bad, _content(made, bad).index(b"yyyy"))
    found, verdict = checked(made, tree)
    assert verdict == "refuse"
    files = {one.file for one in damage(found)}
    assert {gone[0], bad} <= files
    assert not [one.topic for one in found if one.topic is not None and one.topic.startswith("#")]
