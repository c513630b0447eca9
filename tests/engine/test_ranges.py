"""Numbers in a row, said by their ends."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.ranges import ranges_of, runs_of

SEQS = st.lists(st.integers(0, 40), max_size=30)


@given(SEQS)
def test_runs_have_all_seqs_in_their_order_and_as_few_breaks_as_can_be(seqs: list[int]) -> None:
    runs = runs_of(seqs)
    assert [seq for first, last in runs for seq in range(first, last + 1)] == seqs
    assert all(first != before + 1 for (_, before), (first, _) in pairwise(runs))


@given(SEQS)
def test_ranges_ascend_and_do_not_touch(seqs: list[int]) -> None:
    ranges = ranges_of(set(seqs))
    assert [seq for first, last in ranges for seq in range(first, last + 1)] == sorted(set(seqs))
    assert all(first > before + 1 for (_, before), (first, _) in pairwise(ranges))
