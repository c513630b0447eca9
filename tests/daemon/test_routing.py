"""When the daemon copies for routers: at once, and under pressure behind what other topics have to deliver.

Engine and ready set are the real ones; the governor says what the test wants, and the loop's time is the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from engine.delivery import Ready
from engine.routers.router import RouterSpec
from tests.core.hand import Hand
from topics_daemon.routing import YIELD_S, YIELD_S_MAX, Routing


class Loop:
    """Callbacks by the time that they are due."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.plans: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.plans.append((self.now_s, callback))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.plans.append((self.now_s + delay_s, callback))

    def run(self, until_s: float) -> None:
        """Everything that is due by then."""
        while due := [plan for plan in self.plans if plan[0] <= until_s]:
            plan = min(due, key=lambda one: one[0])
            self.plans.remove(plan)
            self.now_s = max(self.now_s, plan[0])
            plan[1]()
        self.now_s = until_s


class Stand:
    """A router from `a` to `b` in a core, and a daemon around it that is as pressed as a test says."""

    def __init__(self) -> None:
        self.hand = Hand()
        self.core = self.hand.core
        self.hand.create("a")
        self.hand.create("b")
        self.hand.take(self.core.routers.put("r", "a", "b", RouterSpec(start="earliest")))
        self.loop = Loop()
        self.ready: Ready[str] = Ready()
        self.governor = SimpleNamespace(routers_yield=False)
        self.bugs: list[Exception] = []
        daemon = SimpleNamespace(
            core=self.core,
            loop=self.loop,
            governor=self.governor,
            pump=SimpleNamespace(ready=self.ready),
            serving=True,
            turn_due=False,
            bug=self.bugs.append,
            moved=self._moved,
        )
        self.daemon = daemon
        self.routing = Routing(cast(Any, daemon), self.core)

    def _moved(self) -> None:
        self.core.turn()
        self.routing.look()

    def write(self, value: int) -> None:
        """A record for the router to copy."""
        self.hand.write("a", value)
        self.routing.look()

    @property
    def copied(self) -> list[int]:
        """What is in the dest."""
        self.hand.settle()
        return self.hand.read("b")


def test_routers_copy_at_once_while_nothing_presses_and_when_nobody_else_waits() -> None:
    stand = Stand()
    stand.ready.add("watched", 0, 0.0)
    stand.write(1)
    stand.loop.run(0.0)
    assert stand.copied == [1]
    stand.governor.routers_yield = True
    stand.ready.discard("watched")
    stand.write(2)
    stand.loop.run(0.0)
    assert stand.copied == [1, 2], "pressed, but there is nobody to let go first"
    assert stand.bugs == []


def test_under_pressure_they_wait_behind_other_deliveries() -> None:
    stand = Stand()
    stand.governor.routers_yield = True
    stand.ready.add("watched", 0, 0.0)
    stand.write(1)
    stand.loop.run(5.0)
    assert stand.copied == []
    assert stand.ready.take(5.0) == "watched"
    stand.loop.run(5.0 + 2 * YIELD_S)
    assert stand.copied == [1], "the others have had their turns"
    stand.ready.add("watched", 0, 6.0)
    stand.write(2)
    stand.loop.run(6.0)
    assert stand.copied == [1]
    stand.governor.routers_yield = False
    stand.loop.run(6.0 + 2 * YIELD_S)
    assert stand.copied == [1, 2], "the pressure is over"
    assert stand.bugs == []


def test_they_are_never_starved() -> None:
    stand = Stand()
    stand.governor.routers_yield = True
    stand.ready.add("watched", 0, 0.0)
    for round_ in range(1, 4):
        stand.write(round_)
        stand.loop.run(stand.loop.now_s + YIELD_S_MAX - 4 * YIELD_S)
        assert stand.copied == list(range(1, round_))
        stand.loop.run(stand.loop.now_s + 8 * YIELD_S)
        assert stand.copied == list(range(1, round_ + 1)), f"it waits for {YIELD_S_MAX} s at most"
    assert stand.bugs == []


def test_a_slice_lets_one_turn_of_requests_pass_and_no_more() -> None:
    stand = Stand()
    stand.daemon.turn_due = True
    stand.write(1)
    first = stand.loop.plans.pop()
    first[1]()
    assert stand.copied == [], "requests that were read meanwhile have their turn"
    assert len(stand.loop.plans) == 1
    stand.loop.run(0.0)
    assert stand.copied == [1], "though more of them are there already"
    assert stand.bugs == []


def test_a_stopped_daemon_copies_nothing_and_plans_nothing() -> None:
    stand = Stand()
    stand.governor.routers_yield = True
    stand.ready.add("watched", 0, 0.0)
    stand.write(1)
    stand.loop.run(1.0)
    stand.daemon.serving = False
    stand.loop.run(2.0)
    assert stand.loop.plans == []
    assert stand.copied == []
