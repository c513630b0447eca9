"""A `.data` or a tails file that was cut short: what lies before the cut is read and saved, and a gap begins there."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pytest

from engine.core.reads import until_read
from engine.errors import StoreDamaged
from engine.limits import OnCorruption
from engine.tools.finding import FindingId
from engine.types import PageRequest, Reason
from tests.core.hand import Hand, records
from tests.core.test_damage import answer
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.store.made import SNAP1, SNAP2
from tests.store.test_damaged_snapshots import Made
from tests.tools.stores import damage, put
from tests.tools.test_twelve_damages import checked, recovered, seen

pytestmark = pytest.mark.slow

CUT = 37
"""Of topic a, the first seq that is gone; seq 36 is whole."""


class Cut(NamedTuple):
    made: Made
    tree: Tree
    own_files: bool
    lost: set[int]
    """What topic a is going to lose; 70 was deleted after the snapshots, and may be counted where a whole piece is."""


@pytest.fixture(scope="module", params=[True, False], ids=["segments", "tails"])
def cut(request: pytest.FixtureRequest) -> Cut:
    """The files of both checkpoints that hold seq 37 of topic a end in the middle of it."""
    made = Made(own_files=request.param, trimmed=True)
    tree, lost = made.tree, set[int]()
    text = b'{"$seq":37,'
    for path in [path for path in tree if path.endswith(".data")]:
        content = tree[path]
        assert content is not None
        at = content.find(text)
        if at >= 0 and b'"xxxx' in content[at : at + 200]:
            tree = put(tree, path, content[: at + 500])
            behind = content[at:]
            whole = made.whole["a"].records
            lost |= {seq for seq in whole if b'{"$seq":%d,' % seq in behind and seq >= CUT}
    assert lost
    assert min(lost) == CUT
    return Cut(made, tree, request.param, lost)


def read(hand: Hand, name: str) -> tuple[list[int], list[tuple[int, int, Reason]]]:
    """Every record of a topic, and the tombstones between, as a reader gets them."""
    found: list[int] = []
    gaps: list[tuple[int, int, Reason]] = []
    place = 0
    for _ in range(300):
        ask = partial(hand.core.page, name, PageRequest(from_seq=place, limit=1000))
        page = until_read(hand.core, ask, partial(answer, hand))
        found += [record["$seq"] for record in records(page)]
        if page.tombstone is not None:
            gaps.append((page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason))
        if page.next_from_seq == place or page.next_from_seq > page.head_seq:
            return found, gaps
        place = page.next_from_seq
    raise AssertionError("a read never ends")


def test_readers_get_what_lies_before_the_cut_and_meet_a_gap_there_also_after_a_restart(cut: Cut) -> None:
    made = cut.made
    hand = Hand(FakeDisk.of_tree(cut.tree, boot="boot-1"), clock=made.clock.restart(), settings=made.settings)
    for _ in range(2):
        found, gaps = read(hand, "a")
        assert found == sorted(set(made.whole["a"].records) - cut.lost)
        corrupt = [gap for gap in gaps if gap[2] is Reason.CORRUPTION]
        assert corrupt[0][0] == CUT
        assert {seq for low, high, _ in corrupt for seq in range(low, high + 1)} >= cut.lost
        state = hand.core.state("a")
        assert state.count == len(found)
        known = {seq for low, high in state.damage or () for seq in range(low, high + 1)}
        assert (min(known), known - {70}) == (CUT, cut.lost)
        hand = hand.reopen()


def test_fsck_names_exactly_the_seqs_behind_the_cut(cut: Cut) -> None:
    found, verdict = checked(cut.made, cut.tree)
    # Pieces behind the cut of a tails file are missing whole.
    assert verdict == ("start" if cut.own_files else "isolate")
    named = {
        seq
        for one in found
        if one.id in (FindingId.SEGMENT_DATA, FindingId.SEGMENT_MISSING) and one.topic == "a" and one.seqs is not None
        for seq in range(one.seqs[0], one.seqs[1] + 1)
    }
    assert min(named) == CUT
    assert named & set(cut.made.whole["a"].records) == cut.lost


def test_recover_saves_what_lies_before_the_cut(cut: Cut) -> None:
    made = cut.made
    report, saved = recovered(made, cut.tree)
    lost = {seq for one in report.lost if one.topic == "a" for seq in range(one.first, one.last + 1)}
    assert (min(lost), lost - {70}) == (CUT, cut.lost)
    whole, view = made.whole["a"].records, seen(made, saved)["a"]
    assert view.records == {seq: record for seq, record in whole.items() if seq not in cut.lost}
    problems, verdict = checked(made, saved)
    assert damage(problems) == []
    assert verdict == "start"


def test_with_refuse_it_does_not_start(cut: Cut) -> None:
    with pytest.raises(StoreDamaged, match="cut short"):
        cut.made.start({}, OnCorruption.REFUSE, FakeDisk.of_tree(cut.tree, boot="boot-1"))


def test_without_its_index_the_whole_segment_is_lost() -> None:
    """Nothing says then where its records lie, and which of them were dead."""
    made = Made(own_files=True, trimmed=True)
    tree = made.tree
    for path in [path for path in tree if path.startswith("topics/0000000000000001/")]:
        content = tree[path]
        assert content is not None
        if path.endswith(".data"):
            tree = put(tree, path, content[:3000])
        elif path.endswith(".idx"):
            tree = put(tree, path, None)
    found, verdict = checked(made, tree)
    assert verdict == "isolate"
    assert FindingId.SEGMENT_MISSING in {one.id for one in found}


def test_while_another_snapshot_has_the_records_a_cut_costs_nothing() -> None:
    made = Made(own_files=False, trimmed=True)
    path = "meta/tails-0000000002.data"
    content = made.tree[path]
    assert content is not None
    assert made.see({path: content[: len(content) // 2]}) == made.whole
    assert {SNAP1, SNAP2} <= set(made.tree)
