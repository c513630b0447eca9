"""Gaps: merging, order, and what is asked of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.topic.gaps import Gap, Gaps, combined
from engine.types import Reason

REASONS = st.sampled_from([Reason.CRASH, Reason.CORRUPTION, Reason.SOURCE_TRIM])


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9), REASONS), max_size=12))
def test_every_seq_keeps_the_first_reason_that_it_was_given(added: list[tuple[int, int, Reason]]) -> None:
    gaps, model = Gaps(), dict[int, Reason]()
    for first, more, reason in added:
        gaps.add(first, first + more, reason)
        for seq in range(first, first + more + 1):
            model.setdefault(seq, reason)
    listed = list(gaps)
    assert {seq: gap.reason for gap in listed for seq in range(gap.first, gap.last + 1)} == model
    for left, right in pairwise(listed):
        assert left.last < right.first
        assert left.last + 1 < right.first or left.reason is not right.reason, "touching gaps of one reason are one"
    for seq in range(1, 65):
        holding = gaps.holding(seq)
        assert (holding.reason if holding else None) == model.get(seq)
        following = min((other for other in model if other >= seq), default=None)
        at = gaps.at_or_after(seq)
        assert (at is None) == (following is None)
        if at is not None and following is not None:
            assert at.first <= following <= at.last
    assert gaps.between(10, 20) == [gap for gap in listed if gap.first <= 20 and gap.last >= 10]
    outside = [seq for first, last in gaps.outside(10, 20) for seq in range(first, last + 1)]
    assert outside == [seq for seq in range(10, 21) if seq not in model]


def test_the_first_gap_leaves_when_everything_before_a_seq_is_gone() -> None:
    gaps = Gaps()
    gaps.add(3, 4, Reason.CRASH)
    assert gaps.before(4) is None
    assert gaps.before(5) == Gap(3, 4, Reason.CRASH)
    assert gaps.pop_first() == Gap(3, 4, Reason.CRASH)
    assert not gaps


def test_one_reason_stays_and_several_are_mixed() -> None:
    assert combined({Reason.CAP}) is Reason.CAP
    assert combined({Reason.CAP, Reason.TTL}) is Reason.MIXED
