"""Planted bugs of engine time across a restart (ADR 0060).

As in `mutants.py`, each names the scenarios in which it should show first.
"""

from __future__ import annotations

from typing import Any

from engine.clock import Clock, EngineTime
from engine.store.recovery import OpenedStore
from tests.sim.mutants import Mutant, Patch, planting

TIME: list[Mutant] = []


_mutant = planting(TIME)


@_mutant("started-under-another-clock")
def _start_takes_the_wall_clock(patch: Patch) -> None:
    """Who started after a step of the wall clock adopted it at once, and what was young expired (found by hand)."""
    old = patch.set(EngineTime, "__init__", None)
    patch.set(EngineTime, "__init__", lambda self, clock, last, offset=None: old(self, clock, last))


@_mutant("started-behind-its-clock")
def _start_follows_a_wall_clock_back(patch: Patch) -> None:
    """Who started after the wall clock was set back began there, and what had expired came back (found by histories
    that were drawn)."""
    old = patch.set(EngineTime, "__init__", None)

    def begin(self: EngineTime, clock: Clock, last: int, offset: int | None = None) -> None:
        if offset is not None:
            offset = min(offset, clock.wall_ms() - clock.boot_ns() // 1_000_000)
        old(self, clock, last, offset)

    patch.set(EngineTime, "__init__", begin)


@_mutant("started-behind-its-clock")
def _lock_says_the_time_of_before_the_log(patch: Patch) -> None:
    """LOCK said engine time as it was before the log was read: less than it is where the wall clock is behind (found by
    reading)."""
    old = patch.set(OpenedStore, "go_live", None)

    def go_live(self: Any) -> None:
        time, self.time = self.time, EngineTime(self._clock, 0, self._identity.offset_ms)
        old(self)
        self.time = time

    patch.set(OpenedStore, "go_live", go_live)
