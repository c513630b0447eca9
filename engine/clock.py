"""The seam to time, and the engine's own time on top of it.

Nothing else in the engine asks what time it is. `Clock` is the seam (the real one here, a manual one in tests);
`EngineTime` turns it into the milliseconds that records, leases and ages live by: it starts at max(last logged, wall),
then advances with CLOCK_BOOTTIME, so that suspension counts. A step of the wall clock is adopted only forward, and
only once it has been steady for `STEADY_MS`: a step back revives nothing, a bogus step forward expires nothing, also
where the process is started anew in between. Only what happens while the machine is off is the wall clock's to say.
`EpochClock` is the counter behind the epochs of topics, which moves with time so that nobody can count by it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Protocol

STEADY_MS: Final = 120_000
"""How long a forward step of the wall clock must last before engine time follows it."""

LOOK_MS: Final = 10
"""How long the wall clock is not looked at again, while no step of it has been seen."""

STEP_TOLERANCE_MS: Final = 50
"""Drift between the two clocks below which nobody speaks of a step."""

EPOCH_START_MAX: Final = 1 << 52
"""Where epochs begin at most, however late the clock believes it is: they stay below 2^53 (http-api.md §3)."""


class Clock(Protocol):
    """The two clocks that the engine needs."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as the machine believes now; may step."""
        ...

    def boot_ns(self) -> int:
        """Nanoseconds since boot, suspension included; never steps."""
        ...


class OsClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    boot_ns = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))


class EngineTime:
    """Milliseconds that never fall (queues.md, "State and rules")."""

    __slots__ = ("_boot_ms", "_clock", "_look_ms", "_offset_ms", "_step_seen_boot_ms", "_step_wall_offset_ms", "now_ms")

    def __init__(self, clock: Clock, last_logged_ms: int, offset_ms: int | None = None) -> None:
        """`offset_ms`: that of an earlier process of the same boot, or None."""
        self._clock = clock
        boot_ms = clock.boot_ns() // 1_000_000
        self._boot_ms = -1
        """Of the last look at the clocks."""
        self.now_ms = max(last_logged_ms, clock.wall_ms() if offset_ms is None else boot_ms + offset_ms)
        self._offset_ms = self.now_ms - boot_ms
        self._step_seen_boot_ms: int | None = None
        self._step_wall_offset_ms = 0
        self._look_ms = 0

    @property
    def offset_ms(self) -> int:
        """How far it is ahead of the time since boot."""
        return self._offset_ms

    def advance(self) -> int:
        """Read the clocks once, and return engine time in milliseconds."""
        boot_ms = self._clock.boot_ns() // 1_000_000
        if boot_ms == self._boot_ms:
            return self.now_ms  # a busy daemon asks several times in a millisecond
        self._boot_ms = boot_ms
        if boot_ms >= self._look_ms:
            self._look(boot_ms)
        now_ms = boot_ms + self._offset_ms
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        return self.now_ms

    def _look(self, boot_ms: int) -> None:
        """See whether the wall clock has made a step, and adopt one that has been steady."""
        wall_offset_ms = self._clock.wall_ms() - boot_ms
        if wall_offset_ms <= self._offset_ms + STEP_TOLERANCE_MS:
            self._step_seen_boot_ms = None
        elif self._step_seen_boot_ms is None or abs(wall_offset_ms - self._step_wall_offset_ms) > STEP_TOLERANCE_MS:
            self._step_seen_boot_ms = boot_ms
            self._step_wall_offset_ms = wall_offset_ms
        elif boot_ms - self._step_seen_boot_ms >= STEADY_MS:
            self._offset_ms = wall_offset_ms
            self._step_seen_boot_ms = None
        if self._step_seen_boot_ms is None:
            self._look_ms = boot_ms + LOOK_MS


class EpochClock:
    """Gives each topic an epoch that is above all before it, and says nothing of how many these are.

    An epoch is the microsecond of its Create, counted on from engine time at the start: all that two of them tell is
    how much time lies between, which whoever made both knows. One that is above now already (a topic from a store
    whose clock was ahead) sets the counter forward.
    """

    __slots__ = ("_clock", "_offset_us")

    def __init__(self, clock: Clock, now_ms: int) -> None:
        self._clock = clock
        self._offset_us = min(now_ms * 1000, EPOCH_START_MAX) - clock.boot_ns() // 1000

    def next(self, last: int) -> int:
        """An epoch for now. `last` is the highest one that was ever given out."""
        epoch = self._clock.boot_ns() // 1000 + self._offset_us
        if epoch <= last:
            self._offset_us += last + 1 - epoch
            return last + 1
        return epoch
