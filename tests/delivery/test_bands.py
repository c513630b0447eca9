"""Turns go by priority, weight and age; nobody waits for ten seconds. All of it under a manual clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.delivery.bands import AGE_PER_S, BANDS, OVERDUE_S, TURN_S, WAIT_S_MAX, WEIGHTS, Ready, band_of


@pytest.mark.parametrize(
    ("priority", "band"),
    [(1500, 0), (750, 0), (749, 1), (500, 1), (499, 2), (250, 2), (249, 3), (0, 3), (-1, 4), (-1000, 4)],
)
def test_the_bands(priority: int, band: int) -> None:
    assert band_of(priority) == band


def test_a_key_is_there_once_and_comes_out_once() -> None:
    ready: Ready[str] = Ready()
    ready.add("a", 0, 0.0)
    ready.add("a", 1000, 1.0)
    assert (len(ready), "a" in ready, list(ready)) == (1, True, ["a"])
    assert ready.take(1.0) == "a"
    assert ready.take(1.0) is None
    assert "a" not in ready


def test_inside_of_a_band_it_is_first_in_first_out_but_for_who_had_its_turn() -> None:
    ready: Ready[str] = Ready()
    for name in "abc":
        ready.add(name, 100, 0.0)
    ready.add("again", 100, 0.0, first=True)
    ready.discard("b")
    assert [ready.take(0.0) for _ in range(4)] == ["again", "a", "c", None]


def test_a_round_gives_each_band_its_weight() -> None:
    ready: Ready[tuple[int, int]] = Ready()
    priorities = [*BANDS, -100]
    for band, priority in enumerate(priorities):
        for number in range(200):
            ready.add((band, number), priority, 0.0)
    turns = [0] * len(WEIGHTS)
    for _ in range(10 * sum(WEIGHTS)):
        taken = ready.take(0.0)
        assert taken is not None
        turns[taken[0]] += 1
    assert turns == [10 * weight for weight in WEIGHTS]


def test_waiting_lifts_to_the_next_band_behind_who_is_there() -> None:
    ready: Ready[str] = Ready()
    ready.add("old", 250 - AGE_PER_S, 0.0)
    ready.add("young", 250, 0.5)
    ready.add("low", 0, 0.5)
    # After a second the old one is in the band of the young one, at its end, and before the low one.
    assert [ready.take(1.0) for _ in range(2)] == ["young", "old"]


def test_who_goes_on_waiting_is_lifted_again() -> None:
    ready: Ready[str] = Ready()
    ready.add("old", 0, 0.0)
    ready.add("middle", 250, 5.4)
    ready.add("high", 500, 5.4)
    assert [ready.take(5.5) for _ in range(3)] == ["high", "old", "middle"]


def test_a_thousand_points_is_all_that_waiting_gives() -> None:
    ready: Ready[str] = Ready()
    ready.add("x", -1000, 0.0)
    ready.add("y", -1, 0.0)
    assert ready.take(0.011) == "y", "y has reached 0 after ten milliseconds, x has not"


def test_a_hundred_hot_topics_do_not_starve_one_of_low_priority() -> None:
    ready: Ready[str] = Ready()
    now = 0.0
    for number in range(100):
        ready.add(f"hot{number}", 1000, now)
    ready.add("low", -1000, now)
    turns = 0
    while True:
        taken = ready.take(now)
        assert taken is not None
        if taken == "low":
            break
        now += ready.turn_s
        ready.add(taken, 1000, now)
        turns += 1
    assert now < WAIT_S_MAX
    assert turns <= 20, "a round of turns, not ten seconds"


@settings(max_examples=60)
@given(
    st.lists(st.integers(-1000, 1500), min_size=1, max_size=400),
    st.lists(st.tuples(st.integers(0, 399), st.integers(0, 3)), max_size=300),
    st.sampled_from([1, 10, 100]),
)
def test_whoever_waits_has_its_turn_within_ten_seconds(
    priorities: list[int], arrivals: list[tuple[int, int]], copies: int
) -> None:
    """Everybody is always hot: has something again as soon as it had its turn. Each turn takes as long as it may."""
    ready: Ready[tuple[int, int]] = Ready()
    now, worst = 0.0, 0.0
    since = {}
    for copy in range(copies):
        for number, priority in enumerate(priorities):
            ready.add((number, copy), priority, now)
            since[number, copy] = now
    for number, turns in arrivals * 3:
        for _ in range(turns + len(priorities) * copies // 100 + 1):
            now += ready.turn_s
            taken = ready.take(now)
            assert taken is not None
            worst = max(worst, now - since[taken])
            ready.add(taken, priorities[taken[0]], now)
            since[taken] = now
        if number < len(priorities):
            ready.discard((number, 0))
            ready.add((number, 0), priorities[number], now)
            since[number, 0] = now
    worst = max([worst, *(now - at for at in since.values())])
    assert worst <= WAIT_S_MAX
    assert ready.waited_s_max <= WAIT_S_MAX


@pytest.mark.slow
def test_forty_thousand_that_are_always_hot_all_have_their_turn_in_time() -> None:
    ready: Ready[int] = Ready()
    for key in range(40_000):
        ready.add(key, 1500 if key % 2 else -1000, 0.0)
    now, since = 0.0, [0.0] * 40_000
    worst = 0.0
    assert ready.turn_s < TURN_S
    for _ in range(150_000):
        now += ready.turn_s
        taken = ready.take(now)
        assert taken is not None
        worst = max(worst, now - since[taken])
        ready.add(taken, 1500 if taken % 2 else -1000, now)
        since[taken] = now
    assert now > OVERDUE_S, "long enough to see it"
    assert max(worst, now - min(since)) <= WAIT_S_MAX


def test_a_pause_sets_negative_priorities_aside_and_its_end_brings_them_back() -> None:
    ready: Ready[str] = Ready()
    ready.add("plain", 0, 0.0)
    ready.add("waits", -1, 0.0)
    ready.pause(True, 1.0)
    ready.add("comes", -500, 2.0)
    assert dict(ready.aside) == {"waits": -1, "comes": -500}
    assert "waits" in ready
    assert [ready.take(100.0) for _ in range(2)] == ["plain", None], "however long it lasts"
    ready.discard("comes")
    ready.pause(False, 101.0)
    assert [ready.take(101.0) for _ in range(2)] == ["waits", None]


def test_another_priority_counts_at_once_and_keeps_what_was_waited() -> None:
    ready: Ready[str] = Ready()
    for at, key in enumerate(("first", "raised", "last")):
        ready.add(key, 0, float(at))
    ready.change("raised", 750, 4.0)
    ready.change("unknown", 750, 4.0)
    assert [ready.take(4.0) for _ in range(4)] == ["raised", "first", "last", None]
    ready.add("lowered", 749, 0.0)
    ready.change("lowered", -1000, 1.0)
    ready.add("hot", 1000, 1.0)
    assert ready.take(OVERDUE_S) == "lowered", "it has waited since it came, not since it was changed"


def test_another_priority_brings_what_is_set_aside_back_and_sets_aside_what_waits() -> None:
    ready: Ready[str] = Ready()
    ready.pause(True, 0.0)
    ready.add("raised", -5, 0.0)
    ready.add("lowered", 5, 0.0)
    ready.add("still", -5, 0.0)
    ready.change("raised", 0, 1.0)
    ready.change("lowered", -1, 1.0)
    ready.change("still", -7, 1.0)
    assert dict(ready.aside) == {"lowered": -1, "still": -7}
    assert [ready.take(1.0) for _ in range(2)] == ["raised", None]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "change", "discard", "take", "pause"]), st.integers(0, 5), st.integers(-1000, 1000)
        )
    )
)
def test_whatever_is_done_each_waits_once_in_the_band_that_it_has_reached(steps: list[tuple[str, int, int]]) -> None:
    ready: Ready[int] = Ready()
    there: dict[int, int] = {}
    now = 0.0
    for what, key, priority in steps:
        now += 0.7
        if what == "add":
            ready.add(key, priority, now)
            there.setdefault(key, priority)
        elif what == "change":
            ready.change(key, priority, now)
            if key in there:
                there[key] = priority
        elif what == "discard":
            ready.discard(key)
            there.pop(key, None)
        elif what == "pause":
            ready.pause(priority > 0, now)
        elif (taken := ready.take(now)) is not None:
            del there[taken]
        aside = {key: priority for key, priority in there.items() if ready.paused and priority < 0}
        assert dict(ready.aside) == aside
        assert set(ready) == there.keys() - aside.keys()
    ready.pause(False, now)
    assert sorted(iter(lambda: ready.take(now), None)) == sorted(there)
