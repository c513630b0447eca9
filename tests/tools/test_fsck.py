"""`Fsck`: the daemon's verdict, then everything that it would not read; nothing is written."""

from __future__ import annotations

import random

import pytest

from engine.core import Core
from engine.errors import StoreDamaged, StoreMissing
from engine.tools.finding import FindingId, Severity
from engine.tools.log_file import LogScan
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.sim.world import TINY
from tests.tools.stores import check, damage, flip, hurt, log_of, put, stopped, stores


def starts(tree: Tree) -> bool:
    """Whether a start takes the store."""
    try:
        Core.open(FakeDisk.of_tree(tree, boot="boot-1"), ManualClock(), TINY)
    except StoreDamaged:
        return False
    return True


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_whole_store_has_no_problems(how: str) -> None:
    found, summary = check(dict(stores())[how])
    assert damage(found) == []
    assert (summary.verdict, summary.topics, summary.damage) == ("start", 3, 0)
    assert summary.records == 2 + 2 + 12


def test_an_isolated_write_is_named_as_readers_will_miss_it() -> None:
    tree = stopped()
    path = log_of(tree)
    frame = next(frame for frame in LogScan(StillDisk(tree, "boot-1"), path).items() if frame.header.records == 3)
    found, summary = check(flip(tree, path, frame.offset + 100))
    assert [(one.id, one.file, one.offset, one.topic, one.seqs) for one in damage(found)] == [
        (FindingId.WAL_FRAME, path, frame.offset, "orders", (1, 3))
    ]
    assert summary.verdict == "isolate"


def test_after_a_refusal_all_of_the_damage_is_listed() -> None:
    tree = stopped()
    path = log_of(tree)
    frames = list(LogScan(StillDisk(tree, "boot-1"), path).items())
    create = next(frame for frame in frames if not frame.header.records)
    write = next(frame for frame in frames if frame.header.records and frame.offset > create.offset)
    hit = flip(flip(tree, path, create.offset + 20), path, write.offset + 100)
    assert not starts(hit)
    found, summary = check(hit)
    assert summary.verdict == "refuse"
    assert [one.id for one in damage(found)] == [FindingId.REFUSED, FindingId.WAL_BYTES, FindingId.WAL_FRAME]
    assert found[0].file == path
    assert found[0].offset is not None


@pytest.mark.parametrize("path", ["STORE", "meta/MANIFEST"])
def test_a_bad_small_file_is_named(path: str) -> None:
    found, summary = check(flip(stopped(), path, 3))
    assert summary.verdict == "refuse"
    assert found[0].file == path


def test_a_missing_log_file_is_named() -> None:
    tree = stopped()
    path = max(path for path in tree if path.endswith(".log"))
    found, summary = check(put(tree, path, None))
    assert summary.verdict == "refuse"
    assert found[0].file == path or path in found[0].what


def test_where_no_store_is_that_is_said() -> None:
    with pytest.raises(StoreMissing):
        check({"": None})


def test_what_a_crash_left_is_a_note() -> None:
    tree = stopped()
    tree["meta/MANIFEST.tmp"] = b"half"
    found, summary = check(tree)
    assert [(one.severity, one.id) for one in found] == [(Severity.NOTE, FindingId.STRAY)]
    assert (summary.damage, summary.notes) == (0, 1)


def test_any_bytes_give_the_verdict_of_a_start() -> None:
    """A slice of what the gate runs in full: never a traceback, never a write, and the same verdict as a start."""
    rng = random.Random(20)
    tree = stopped()
    paths = [path for path in sorted(tree) if tree[path]]
    for _ in range(120):
        path = rng.choice(paths)
        hit = put(tree, path, hurt(tree[path] or b"", rng))
        found, summary = check(hit)
        assert (summary.verdict == "refuse") == (not starts(hit)), path
        if summary.verdict != "start":
            assert damage(found), path
