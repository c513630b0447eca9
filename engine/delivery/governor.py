"""How hard the daemon is pressed, and what it does about it: latency and eagerness give way, never correctness.

Every `OBSERVE_S` it is told what was seen since the last time. Each sign is a share of 1: `x / (x + knee)`, so that a
sign at its knee is 0.5, and nothing is ever quite 1. The greatest of them, smoothed, is the pressure. The ladder:

    > 0.2  records of a topic are gathered into larger frames: delivery waits, up to 20 ms
    > 0.4  the window of a group commit widens, 0.5 to 10 ms
    > 0.8  for a second: routers fall one band, negative priorities are not pushed, new writes are told to come back
           after the time that what is in flight takes at the rate at which it is answered; until pressure is below 0.6

Of all signs one is nobody's but who sends more than is taken up: the wait of requests behind others on their own
connection. While no other sign is at the top, only writes are refused that have waited long themselves, and of these
one in eight: that tells whoever heeds it, and refusals take little of the time of who does not. So who does not press
is served, and nearly as much is done as can be.

Pure: time and figures are given.
"""

from __future__ import annotations

from typing import Final

import msgspec

OBSERVE_S: Final = 0.1
"""How often it is told."""
DELAY_KNEE_S: Final = 0.005
"""Wait of a topic for its turn."""
WAIT_KNEE_S: Final = 0.1
"""Wait of a request that has been sent behind others on its connection until it is taken up."""
LAG_KNEE_S: Final = 0.02
"""Lateness of a timer: how long one round of the loop takes."""
DEPTH_KNEE: Final = 5000
"""Topics that wait for their turn."""
QUEUE_KNEE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the log that are not synced yet."""
BEHIND_KNEE: Final = 0.05
"""How much more log than twice what makes a checkpoint due is covered by none, in units of that."""
SMOOTHING: Final = 0.25
"""Share of the newest observation."""
GATHER_AT: Final = 0.2
GATHER_S_MAX: Final = 0.020
WIDEN_AT: Final = 0.4
WIDEN_S_MIN: Final = 0.0005
WIDEN_S_MAX: Final = 0.010
REFUSE_AT: Final = 0.8
REFUSE_AFTER_S: Final = 1.0
"""How long pressure must stay above it."""
RELENT_AT: Final = 0.6
LATE_S: Final = WAIT_KNEE_S * RELENT_AT / (1 - RELENT_AT)
"""A wait that alone is pressure of `RELENT_AT`."""
LATE_SHARE: Final = 8
"""Of writes that have waited longer one in so many is refused…"""
LATE_RUN: Final = 17
"""…so many in a row: few, so that many connections are told, and a prime, so that no pattern of a client meets it."""
RETRY_S_MIN: Final = 0.2
RETRY_S_MAX: Final = 30.0


class Observed(msgspec.Struct, frozen=True):
    """What was seen since the last time."""

    depth: int = 0
    """Topics that wait for their turn."""
    delay_s: float = 0.0
    """The longest wait of one that had its turn."""
    wait_s: float = 0.0
    """The longest wait of a request, in what its connection had sent, until it was taken up."""
    lag_s: float = 0.0
    """How late the timer of this observation was."""
    queue_bytes: int = 0
    """Bytes of the log that are not synced yet."""
    behind: float = 0.0
    """How far writes have run ahead of checkpoints (`Keeper.behind`)."""
    in_flight: int = 0
    """Requests that wait for their answers."""
    answered: int = 0
    """Requests that were answered."""
    busy: float = 1.0
    """Share of the time that the loop itself was at work, 0 to 1."""


def _share(value: float, knee: float) -> float:
    return value / (value + knee)


def signs(seen: Observed) -> dict[str, float]:
    """Each sign of pressure by its name, 0 to 1.

    Times count as far as the loop was at work meanwhile: an idle daemon that others keep waiting is not pressed.
    """
    return {
        "depth": _share(seen.depth, DEPTH_KNEE),
        "delay": _share(seen.delay_s * seen.busy, DELAY_KNEE_S),
        "wait": _share(seen.wait_s * seen.busy, WAIT_KNEE_S),
        "lag": _share(seen.lag_s * seen.busy, LAG_KNEE_S),
        "queue": _share(seen.queue_bytes, QUEUE_KNEE_BYTES),
        "log": _share(max(seen.behind - 1.0, 0.0), BEHIND_KNEE),
    }


class _Step:
    """A pressure, and whether it has come to the top of the ladder and not left it again."""

    __slots__ = ("_above_s", "reached", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.reached = False
        self._above_s: float | None = None
        """Since when it is above the top."""

    def observe(self, sign: float, now_s: float) -> None:
        """Take the greatest sign."""
        self.value += (sign - self.value) * SMOOTHING
        if self.value <= REFUSE_AT:
            self._above_s = None
        elif self._above_s is None:
            self._above_s = now_s
        if self._above_s is not None and now_s - self._above_s >= REFUSE_AFTER_S:
            self.reached = True
        elif self.value < RELENT_AT:
            self.reached = False


class Governor:
    """Pressure over time."""

    __slots__ = ("_common", "_late", "_observed_s", "_rate", "_whole", "pressure", "refusing", "seen")

    def __init__(self) -> None:
        self.pressure = 0.0
        """0 … 1."""
        self.refusing = False
        """Whether the top of the ladder is reached, and not left again."""
        self._whole = _Step()
        self._common = _Step()
        """The same without the wait of requests behind others on their connection."""
        self._late = 0
        """Writes that had waited long."""
        self._observed_s: float | None = None
        self._rate = 0.0
        """Requests answered a second."""
        self.seen = Observed()
        """What it was told last."""

    def observe(self, seen: Observed, now_s: float) -> None:
        """Take what was seen."""
        took_s = OBSERVE_S if self._observed_s is None else max(now_s - self._observed_s, 1e-3)
        self._observed_s = now_s
        self._rate += (seen.answered / took_s - self._rate) * SMOOTHING
        self.seen = seen
        found = signs(seen)
        self._whole.observe(max(found.values()), now_s)
        del found["wait"]
        self._common.observe(max(found.values()), now_s)
        self.pressure, self.refusing = self._whole.value, self._whole.reached

    def refuses(self, wait_s: float) -> bool:
        """Whether a new write is refused that has waited so long behind others on its connection."""
        if not self.refusing or self._common.reached or wait_s <= LATE_S:
            return self.refusing and self._common.reached
        self._late += 1
        return self._late // LATE_RUN % LATE_SHARE == 0

    @property
    def gather_s(self) -> float:
        """How long delivery waits for more records."""
        return _ramp(self.pressure, GATHER_AT) * GATHER_S_MAX

    @property
    def window_s(self) -> float:
        """How long a group commit waits for more writes; 0 while nothing presses."""
        if self.pressure <= WIDEN_AT:
            return 0.0
        return WIDEN_S_MIN + _ramp(self.pressure, WIDEN_AT) * (WIDEN_S_MAX - WIDEN_S_MIN)

    @property
    def routers_yield(self) -> bool:
        """Whether routers fall one band."""
        return self.refusing

    @property
    def retry_s(self) -> float:
        """When who is refused may come back: the time that what is in flight takes at the rate of the last moments."""
        if self._rate <= 0.0:
            return RETRY_S_MAX if self.seen.in_flight else RETRY_S_MIN
        return min(max(self.seen.in_flight / self._rate, RETRY_S_MIN), RETRY_S_MAX)


def _ramp(pressure: float, start: float) -> float:
    """0 up to `start`, 1 at `REFUSE_AT` and beyond."""
    return min(max((pressure - start) / (REFUSE_AT - start), 0.0), 1.0)
