"""Time that moves when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

START_WALL_MS = 1_750_000_000_000


class ManualClock:
    """Both clocks of `engine.clock.Clock`, moved by hand. `wall_step` moves only the wall clock."""

    def __init__(self, wall_ms: int = START_WALL_MS, boot_ns: int = 1_000_000_000) -> None:
        self._wall_ns = wall_ms * 1_000_000
        self._boot_ns = boot_ns
        self._reading_ns = 0

    def wall_ms(self) -> int:
        return self._wall_ns // 1_000_000

    def boot_ns(self) -> int:
        now = self._boot_ns
        self.tick(self._reading_ns / 1_000_000)
        return now

    @contextmanager
    def working(self, ns: int) -> Iterator[None]:
        """Meanwhile work takes time: so many nanoseconds go by after each look at the clock."""
        before, self._reading_ns = self._reading_ns, ns
        try:
            yield
        finally:
            self._reading_ns = before

    def tick(self, ms: float) -> None:
        """Let `ms` milliseconds pass."""
        self._wall_ns += int(ms * 1_000_000)
        self._boot_ns += int(ms * 1_000_000)

    def wall_step(self, ms: int) -> None:
        """Set the wall clock forward (or back) by `ms`, as an administrator would."""
        self._wall_ns += ms * 1_000_000

    def reboot(self, off_ms: int = 5_000) -> ManualClock:
        """The clock of the machine after it was off for a while: the wall went on, boot time starts anew."""
        return ManualClock(self.wall_ms() + off_ms, 1_000_000_000)

    def restart(self, off_ms: int = 100) -> ManualClock:
        """The clock that the next process of the same boot finds."""
        return ManualClock(self.wall_ms() + off_ms, self._boot_ns + off_ms * 1_000_000)
