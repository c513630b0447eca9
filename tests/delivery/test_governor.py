"""Pressure follows its signs, smoothly; the ladder goes up late and comes down later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery.governor import (
    BEHIND_KNEE,
    DELAY_KNEE_S,
    GATHER_S_MAX,
    LATE_RUN,
    LATE_S,
    LATE_SHARE,
    OBSERVE_S,
    RETRY_S_MAX,
    RETRY_S_MIN,
    WAIT_KNEE_S,
    WIDEN_S_MAX,
    Governor,
    Observed,
    signs,
)

CALM = Observed()
HARD = Observed(delay_s=10.0, lag_s=5.0, depth=100_000, queue_bytes=1 << 30, in_flight=500, answered=10)


class Clock:
    """A governor that is told something every tenth of a second."""

    def __init__(self) -> None:
        self.governor = Governor()
        self.now = 0.0

    def refuses(self) -> bool:
        return self.governor.refusing

    def see(self, seen: Observed, seconds: float) -> None:
        for _ in range(round(seconds / OBSERVE_S)):
            self.now += OBSERVE_S
            self.governor.observe(seen, self.now)


@given(
    st.builds(
        Observed,
        depth=st.integers(0, 10**7),
        delay_s=st.floats(0, 1e5),
        lag_s=st.floats(0, 1e5),
        queue_bytes=st.integers(0, 2**50),
        in_flight=st.integers(0, 10**6),
        answered=st.integers(0, 10**6),
    )
)
def test_whatever_is_seen_everything_stays_within_its_bounds(seen: Observed) -> None:
    clock = Clock()
    clock.see(seen, 3.0)
    governor = clock.governor
    assert 0.0 <= governor.pressure <= 1.0
    assert 0.0 <= governor.gather_s <= GATHER_S_MAX
    assert 0.0 <= governor.window_s <= WIDEN_S_MAX
    assert RETRY_S_MIN <= governor.retry_s <= RETRY_S_MAX


def test_a_sign_at_its_knee_is_a_half() -> None:
    assert signs(Observed(delay_s=DELAY_KNEE_S))["delay"] == 0.5
    assert signs(Observed(wait_s=WAIT_KNEE_S))["wait"] == 0.5
    assert signs(Observed(behind=1.0 + BEHIND_KNEE))["log"] == pytest.approx(0.5)


def test_a_log_that_bulk_is_slowed_for_presses_nobody_else_and_one_that_grows_on_is_refused() -> None:
    clock = Clock()
    clock.see(Observed(behind=1.0), 10.0)
    assert clock.governor.pressure == 0.0
    clock.see(Observed(behind=1.3), 4.0)
    assert clock.refuses()
    clock.see(Observed(behind=1.0), 4.0)
    assert not clock.refuses()


def test_an_idle_daemon_that_others_keep_waiting_is_not_pressed() -> None:
    clock = Clock()
    clock.see(Observed(delay_s=0.1, wait_s=2.0, lag_s=0.3, busy=0.01), 10.0)
    assert clock.governor.pressure < 0.2
    clock.see(Observed(delay_s=0.1, lag_s=0.3, busy=0.9), 10.0)
    assert clock.refuses()


def test_nothing_happens_while_nothing_presses() -> None:
    clock = Clock()
    clock.see(CALM, 60.0)
    governor = clock.governor
    assert (governor.pressure, governor.gather_s, governor.window_s, governor.refusing) == (0.0, 0.0, 0.0, False)
    assert not governor.routers_yield


@pytest.mark.parametrize(
    ("delay_s", "gathers", "widens"), [(0.001, False, False), (0.0025, True, False), (0.006, True, True)]
)
def test_the_lower_steps_of_the_ladder(delay_s: float, gathers: bool, widens: bool) -> None:
    clock = Clock()
    clock.see(Observed(delay_s=delay_s), 10.0)
    assert (clock.governor.gather_s > 0, clock.governor.window_s > 0) == (gathers, widens)
    assert not clock.refuses()


def test_a_moment_of_pressure_refuses_nobody() -> None:
    clock = Clock()
    clock.see(HARD, 0.5)
    clock.see(CALM, 1.0)
    assert not clock.refuses()


def test_a_second_at_the_top_refuses_until_pressure_is_well_below() -> None:
    clock = Clock()
    clock.see(HARD, 2.5)
    assert clock.refuses()
    assert clock.governor.routers_yield
    # 0.7 is below the top and above where it relents.
    clock.see(Observed(delay_s=DELAY_KNEE_S * 7 / 3), 10.0)
    assert 0.6 < clock.governor.pressure < 0.8
    assert clock.refuses()
    clock.see(CALM, 1.0)
    assert not clock.refuses()
    clock.see(Observed(delay_s=DELAY_KNEE_S * 7 / 3), 10.0)
    assert not clock.refuses(), "0.7 alone is not enough to begin it"


LONG = Observed(wait_s=10.0)


def test_while_only_waits_press_who_has_not_waited_is_served_and_of_the_others_most() -> None:
    clock = Clock()
    clock.see(LONG, 0.5)
    assert not clock.governor.refuses(10.0)
    clock.see(LONG, 2.5)
    governor = clock.governor
    assert governor.refusing
    assert signs(Observed(wait_s=LATE_S))["wait"] == pytest.approx(0.6), "where pressure relents"
    assert not any(governor.refuses(wait_s) for wait_s in (0.0, LATE_S) for _ in range(1000))
    refused = [governor.refuses(10.0) for _ in range(200 * LATE_RUN)]
    assert sum(refused) == pytest.approx(len(refused) / LATE_SHARE, abs=LATE_RUN)
    for several in (2, 3, 4, 16, 64, 128):
        ours = refused[::several]
        assert any(ours), f"one in {several} is refused as well"
        assert not all(ours), f"one in {several} is served as well"


def test_when_more_than_waits_presses_nobody_is_served_until_that_relents() -> None:
    clock = Clock()
    clock.see(LONG, 3.0)
    clock.see(Observed(wait_s=10.0, lag_s=10.0), 0.9)
    assert not clock.governor.refuses(0.0)
    clock.see(Observed(wait_s=10.0, lag_s=10.0), 2.0)
    assert all(clock.governor.refuses(wait_s) for wait_s in (0.0, 10.0) for _ in range(3 * LATE_RUN))
    clock.see(LONG, 1.0)
    assert clock.governor.refusing
    assert not clock.governor.refuses(0.0)
    clock.see(CALM, 1.0)
    assert not any(clock.governor.refuses(10.0) for _ in range(2 * LATE_RUN))


def test_who_is_refused_may_come_back_when_what_is_in_flight_is_done() -> None:
    clock = Clock()
    clock.see(Observed(in_flight=1000, answered=50), 20.0)
    assert clock.governor.retry_s == pytest.approx(2.0, rel=0.01)
    clock.see(Observed(in_flight=1000, answered=0), 20.0)
    assert clock.governor.retry_s == RETRY_S_MAX
    clock.see(Observed(in_flight=0, answered=1000), 20.0)
    assert clock.governor.retry_s == RETRY_S_MIN
