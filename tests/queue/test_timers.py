"""Timers give keys back in order, only those that hold, and never before their time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.queue.job import key, ms_of
from engine.queue.timers import Timers


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.booleans())), st.integers(0, 60))
def test_what_is_due_comes_in_order_and_what_does_not_hold_never(pushes: list[tuple[int, int, bool]], now: int) -> None:
    holding: set[int] = set()
    timers = Timers(holding.__contains__)
    for ms, seq, keep in pushes:
        holding.add(key(ms, seq))
        timers.push([key(ms, seq)], len(holding))
        if not keep:
            holding.discard(key(ms, seq))
    due = sorted(one for one in holding if ms_of(one) <= now)
    got = []
    while (one := timers.pop_due(now)) is not None:
        got.append(one)
        holding.discard(one)
    assert got == due
    assert timers.next_ms() == (ms_of(min(holding)) if holding else None)


def test_dead_entries_do_not_pile_up() -> None:
    holding: set[int] = set()
    timers = Timers(holding.__contains__)
    sizes = []
    for ms in range(10_000):
        holding.clear()
        holding.add(key(ms, 1))
        timers.push([key(ms, 1)], 1)
        sizes.append(len(timers))
    assert max(sizes) < 100
    assert sum(sizes) > 10_000 * 20, "nor is all of it gone through for each that comes"
    assert timers.pop_due(10_000) == key(9_999, 1)
