"""`fsck` over checkpoints: snapshots, segments, tails, deleted rows, leftovers."""

from __future__ import annotations

import pytest

from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.fsck import Fsck, Summary
from tests.sim.media import Tree
from tests.sim.still import StillDisk
from tests.store.made import SNAP1, SNAP2, Made
from tests.tools.stores import damage, flip, put


def check(made: Made, tree: Tree, *, quick: bool = False) -> tuple[list[Finding], Summary]:
    disk = StillDisk(tree, "boot-1")
    found: list[Finding] = []
    tool = Fsck(disk, made.clock, found.append, lambda *_: None, made.settings, quick=quick)
    return found, tool.run()


@pytest.fixture(scope="module", params=[False, True], ids=["tails", "segments"])
def made(request: pytest.FixtureRequest) -> Made:
    return Made(own_files=request.param)


def test_a_whole_store_has_no_problems(made: Made) -> None:
    found, summary = check(made, made.tree)
    assert damage(found) == []
    assert summary.segments > 0
    assert summary.segment_bytes > 0
    assert summary.skipped == []


def test_quick_says_what_it_skipped(made: Made) -> None:
    found, summary = check(made, made.tree, quick=True)
    assert damage(found) == []
    assert len(summary.skipped) == 2
    assert summary.segment_bytes == 0


def test_a_bad_snapshot_is_named(made: Made) -> None:
    for path in (SNAP1, SNAP2):
        found, summary = check(made, flip(made.tree, path, 100))
        assert [(one.id, one.file) for one in damage(found)] == [(FindingId.SNAPSHOT, path)]
        assert summary.verdict == "start"


def test_one_flipped_bit_in_a_payload_names_the_record(made: Made) -> None:
    path = next(
        path for path, content in sorted(made.tree.items()) if path.endswith(".data") and b"yyyy" in (content or b"")
    )
    at = (made.tree[path] or b"").index(b"yyyy")
    found, _ = check(made, flip(made.tree, path, at))
    assert [(one.id, one.file, one.topic) for one in damage(found)] == [(FindingId.SEGMENT_DATA, path, "a")]
    seqs = damage(found)[0].seqs
    assert seqs is not None
    assert seqs[0] == seqs[1]


def test_a_missing_data_file_is_named_with_its_topic() -> None:
    made = Made(own_files=True)
    path = max(path for path in made.tree if path.endswith(".data") and path.startswith("topics/"))
    found, summary = check(made, put(made.tree, path, None))
    assert (FindingId.SEGMENT_MISSING, path) in [(one.id, one.file) for one in damage(found)]
    assert summary.verdict in ("isolate", "start")


def test_a_leftover_is_a_note(made: Made) -> None:
    tree = put(made.tree, "meta/tails-0000000009.data", b"half")
    found, _ = check(made, tree)
    strays = [(one.severity, one.id) for one in found if one.file.endswith("0009.data")]
    assert strays == [(Severity.NOTE, FindingId.STRAY)]
    assert damage(found) == []
