"""RangeSet against a plain set of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.topic.rangeset import RangeSet

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=20)


def both(ranges: list[tuple[int, int]]) -> tuple[RangeSet, set[int]]:
    real, model = RangeSet(), set[int]()
    for first, more in ranges:
        real.add(first, first + more)
        model.update(range(first, first + more + 1))
    return real, model


@given(RANGES, st.none() | st.integers(0, 80))
def test_it_holds_what_was_added_and_not_removed(ranges: list[tuple[int, int]], below: int | None) -> None:
    real, model = both(ranges)
    if below is not None:
        real.remove_below(below)
        model = {seq for seq in model if seq >= below}
    assert [seq for first, last in real for seq in range(first, last + 1)] == sorted(model)
    assert real.count() == len(model)
    assert bool(real) == bool(model)
    for seq in range(85):
        assert (seq in real) == (seq in model)


@given(RANGES)
def test_its_neighbours_are_found(ranges: list[tuple[int, int]]) -> None:
    real, model = both(ranges)
    for seq in range(85):
        assert real.next_not_in(seq) == next(n for n in range(seq, 999) if n not in model)
        assert real.previous_not_in(seq) == next(n for n in range(seq, -2, -1) if n not in model)
        assert real.next_in(seq, 999) == next((n for n in range(seq, 85) if n in model), 999)


@given(RANGES, st.integers(0, 80), st.integers(0, 20))
def test_its_part_between_two_seqs_is_given_as_ranges(ranges: list[tuple[int, int]], first: int, more: int) -> None:
    real, model = both(ranges)
    part = real.between(first, first + more)
    assert [seq for low, high in part for seq in range(low, high + 1)] == sorted(
        model & {*range(first, first + more + 1)}
    )
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(part))
    rest = list(real.outside(first, first + more))
    assert [seq for low, high in rest for seq in range(low, high + 1)] == sorted(
        {*range(first, first + more + 1)} - model
    )
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(rest))


def test_ranges_that_touch_are_one() -> None:
    real, _ = both([(1, 1), (5, 1), (3, 1)])
    assert list(real) == [(1, 6)]
    assert len(real) == 1
