"""Deadlines of connections: all are looked at, but not at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from topics_daemon.deadlines import AT_ONCE, Deadlines


class Link:
    """Counts how often it was looked at, and may take another away with it."""

    def __init__(self, connections: set[Any]) -> None:
        self.connections = connections
        self.checks = 0
        self.takes: Link | None = None

    def check(self, now: float) -> None:
        assert now == 7.0
        self.checks += 1
        self.connections.discard(self.takes)


def deadlines(count: int) -> tuple[Deadlines, set[Any], list[Any]]:
    """Of so many connections; with them, and what the loop is to call soon."""
    soon: list[Any] = []
    connections: set[Any] = set()
    connections |= {Link(connections) for _ in range(count)}
    loop: Any = SimpleNamespace(time=lambda: 7.0, call_soon=soon.append)
    return Deadlines(loop, connections), connections, soon


def test_many_connections_are_looked_at_some_at_a_time_and_each_once() -> None:
    looker, connections, soon = deadlines(3 * AT_ONCE + 1)
    looker.look()
    assert sum(one.checks for one in connections) == AT_ONCE
    looker.look()
    assert len(soon) == 1, "the last look is not over"
    while soon:
        soon.pop()()
    assert {one.checks for one in connections} == {1}
    looker.look()
    assert sum(one.checks for one in connections) == 4 * AT_ONCE + 1, "and the next one begins"


def test_who_is_gone_meanwhile_is_not_looked_at() -> None:
    looker, connections, soon = deadlines(2)
    one, two = connections
    one.takes, two.takes = two, one
    looker.look()
    assert {one.checks, two.checks} == {0, 1}
    assert not soon
