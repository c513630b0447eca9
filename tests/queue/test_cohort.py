"""A window opens with the first claim, and ends for all of them together."""

from __future__ import annotations

from engine.queue.cohort import Cohort


def test_the_first_claim_opens_the_window_and_all_are_served_when_it_ends() -> None:
    cohort: Cohort[str] = Cohort()
    assert (cohort.due_ms, cohort.take(5)) == (None, [])
    cohort.join("a", 100, 250)
    cohort.join("b", 300, 250)
    assert cohort.due_ms == 350
    assert cohort.take(349) == []
    assert len(cohort) == 2
    assert cohort.take(350) == ["a", "b"]
    assert len(cohort) == 0


def test_who_goes_away_is_not_served() -> None:
    cohort: Cohort[str] = Cohort()
    cohort.join("a", 0, 10)
    cohort.join("b", 0, 10)
    cohort.leave("a")
    cohort.leave("a")
    assert cohort.take(10) == ["b"]


def test_the_next_window_is_a_new_one() -> None:
    cohort: Cohort[str] = Cohort()
    cohort.join("a", 0, 10)
    cohort.take(10)
    cohort.join("b", 15, 10)
    assert cohort.due_ms == 25
