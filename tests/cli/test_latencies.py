"""Histograms of durations: close to what was measured, and the same however they are added up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_cli.latencies import Latencies

DURATIONS = st.lists(st.integers(1, 10**12) | st.integers(1, 200), min_size=1, max_size=60)


def counted(durations: list[int]) -> Latencies:
    made = Latencies()
    for ns in durations:
        made.add(ns)
    return made


@given(DURATIONS, st.floats(0.01, 1))
def test_a_quantile_is_what_was_measured_or_three_hundredths_more(durations: list[int], part: float) -> None:
    made = counted(durations)
    exact = next(ns for at, ns in enumerate(sorted(durations), 1) if at >= part * len(durations))
    assert exact <= round(made.quantile(part) * 1e6) <= exact * 33 / 32 + 1
    assert made.quantile(1) == max(durations) / 1e6
    assert made.mean == pytest.approx(sum(durations) / len(durations) / 1e6)


@given(DURATIONS, DURATIONS)
def test_two_that_are_added_up_are_one_that_saw_everything(some: list[int], others: list[int]) -> None:
    made, other, whole = counted(some), counted(others), counted(some + others)
    made.merge(other.counts, other.total, other.largest)
    for name in Latencies.__slots__:
        assert getattr(made, name) == getattr(whole, name), name


@given(DURATIONS)
def test_coarse_buckets_hold_each_duration_once_below_its_bound(durations: list[int]) -> None:
    buckets = counted(durations).doubling()
    assert [bound * 1e6 for bound, _ in buckets] == [buckets[0][0] * 1e6 * 2**at for at in range(len(buckets))]
    seen = 0
    for bound, count in buckets:
        seen += count
        assert seen == sum(ns < bound * 1e6 for ns in durations)


def test_without_a_duration_there_is_nothing_to_show() -> None:
    assert (Latencies().quantile(0.5), Latencies().mean, Latencies().doubling()) == (0.0, 0.0, [])
