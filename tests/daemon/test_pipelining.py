"""How many pipelined requests a connection may have in flight, and how long those behind them have waited."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from topics_daemon.pipelining import PENDING_MAX, Backlog, may_pipeline


def fill(connections: int, inflight_max: int) -> list[int]:
    """Everybody pipelines as much as they may, one after the other; how many each has in flight."""
    caller: Any = SimpleNamespace(inflight=0)
    exchange = SimpleNamespace(head=SimpleNamespace(caller=caller))
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
    refused: deque[Any] = deque([SimpleNamespace(head=None)])
    assert may_pipeline(refused, 1000), "an answer to what could not be read is no one's"


def test_a_wait_is_that_of_the_first_bytes_that_came_behind_others() -> None:
    backlog, now = Backlog(), [10.0]
    clock = lambda: now[0]  # noqa: E731  # the test's own clock
    backlog.heard(100, clock, waits=False)
    assert backlog.left(0, clock) == 0.0
    backlog.heard(50, clock, waits=True)
    now[0] = 11.0
    backlog.heard(1000, clock, waits=True)
    assert backlog.left(1001, clock) == 0.0, "one byte of the first is left"
    now[0] = 12.5
    assert backlog.left(1000, clock) == 2.5
    assert backlog.left(0, clock) == 0.0, "it is told once"
    backlog.heard(10, clock, waits=True)
    now[0] = 13.0
    assert backlog.left(0, clock) == 0.5
