"""How many pipelined requests a connection may have in flight, and how long those behind them have waited."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_daemon.pipelining import PENDING_MAX, STEP_S, STEPS_MAX, Backlog, may_pipeline


def fill(connections: int, inflight_max: int) -> list[int]:
    """Everybody pipelines as much as they may, one after the other; how many each has in flight."""
    caller: Any = SimpleNamespace(inflight=0)
    exchange = SimpleNamespace(head=SimpleNamespace(caller=caller), last=False)
    pending: list[deque[Any]] = [deque() for _ in range(connections)]
    for one in pending:
        while may_pipeline(one, inflight_max) and caller.inflight < inflight_max:
            one.append(cast(Any, exchange))
            caller.inflight += 1
    return [len(one) for one in pending]


@pytest.mark.parametrize("connections", [1, 2, 40, 128, 400])
def test_everybody_has_one_and_half_of_the_room_is_left_for_who_waits_for_nobody(connections: int) -> None:
    taken = fill(connections, 1000)
    assert min(taken) >= 1, "nobody is refused"
    assert max(taken) <= PENDING_MAX
    assert sum(taken) <= max(500, 500 + connections)
    assert taken[0] > 50, "one alone gets on as before"


@pytest.mark.parametrize("inflight_max", [1, 2, 7, 16])
def test_with_little_room_they_go_one_by_one(inflight_max: int) -> None:
    assert fill(1, inflight_max) == [1]


def test_who_waits_for_nobody_always_may() -> None:
    assert may_pipeline(deque(), 1)
    refused: deque[Any] = deque([SimpleNamespace(head=None, last=False)])
    assert may_pipeline(refused, 1000), "an answer to what could not be read is no one's"


def test_what_is_taken_up_has_waited_since_its_last_byte_came() -> None:
    backlog = Backlog()
    backlog.heard(100, 10.0)
    backlog.heard(50, 11.0)
    backlog.heard(1000, 12.0)
    assert backlog.waited_s(1150, 12.5) == 2.5
    assert backlog.waited_s(1051, 12.5) == 2.5
    assert backlog.waited_s(1050, 12.5) == 2.5, "the last byte of the first"
    assert backlog.waited_s(1049, 12.5) == 1.5
    assert backlog.waited_s(1, 12.5) == 0.5
    assert backlog.taken(1, 13.0) == 1.0
    assert backlog.taken(1, 99.0) == 0.0, "nothing more was taken up"
    backlog.heard(10, 99.0)
    assert backlog.taken(0, 99.5) == 0.5, "a body that comes slowly has waited since it was whole"
    assert backlog.waited_s(0, 200.0) == 0.0, "whoever comes now has found nothing before it"


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 0.2)), min_size=1, max_size=300), st.data())
def test_no_wait_is_overstated_by_more_than_a_step_and_little_is_remembered(
    steps: list[tuple[int, float]], data: st.DataObject
) -> None:
    backlog, now, came = Backlog(), 0.0, []
    for size, pause_s in steps:
        now += pause_s
        backlog.heard(size, now)
        came += [(size, now)]
    assert len(backlog._came) <= STEPS_MAX
    total = sum(size for size, _ in came)
    left = data.draw(st.integers(0, total - 1))
    ends = accumulate(size for size, _ in came)
    came_s = next(came_s for end, (_, came_s) in zip(ends, came, strict=True) if end >= total - left)
    assert -1e-9 <= backlog.waited_s(left, now) <= now - came_s + STEP_S
    if len(came) < STEPS_MAX:
        assert backlog.waited_s(left, now) >= now - came_s
