"""How hard the daemon is pressed: what is seen of it is shown to the governor again and again (`engine.delivery`), and
what that decides is passed on to those who give way.

Whoever lets requests wait says how long (`waited`), and whoever takes a write asks whether it is refused (`refusal`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.delivery import Observed
from engine.delivery.governor import OBSERVE_S
from engine.errors import Code, Unavailable
from topics_daemon.answers import Repeated
from topics_daemon.routes.write import note_pacing

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.window import Window


class Pressure:
    """What was seen since the last look, and the timer for the next one."""

    __slots__ = (
        "_answered", "_daemon", "_looked_s", "_refusal", "_timer", "_waited_s_max", "_window", "_worked_s", "busy",
    )  # fmt: skip

    def __init__(self, daemon: Daemon, window: Window) -> None:
        """`window` is widened and narrowed as the governor says."""
        self._daemon = daemon
        self._window = window
        self.busy = 0.0
        """Share of the time that the loop has worked, between the last two looks."""
        self._answered = 0
        self._waited_s_max = 0.0
        self._refusal: Repeated | None = None
        """The 429 of now, made when it is first needed."""
        self._worked_s = time.thread_time()
        self._looked_s = daemon.loop.time()
        self._timer = daemon.loop.call_later(OBSERVE_S, self._look)

    def waited(self, wait_s: float) -> None:
        """A request waited so long in what its connection had sent until it was taken up."""
        self._waited_s_max = max(self._waited_s_max, wait_s)

    def refusal(self, wait_s: float) -> Repeated | None:
        """The 429 of a write that has waited so long behind others on its connection, if it is refused."""
        governor = self._daemon.governor
        if not governor.refuses(wait_s):
            return None
        if self._refusal is None:
            wait_ms = int(governor.retry_s * 1000)  # as long as pressure is not looked at again
            said = "more is asked of this daemon than it can do; try again later, or send disable_backpressure"
            self._refusal = Repeated(Unavailable(Code.THROTTLED, said, {"retry_after_ms": wait_ms}))
        return self._refusal

    def _look(self) -> None:
        """Look at the pressure, and take what follows from it."""
        daemon = self._daemon
        now, core, ready, governor = daemon.loop.time(), daemon.core, daemon.pump.ready, daemon.governor
        answered, worked_s = daemon.metrics.answered(), time.thread_time()
        self.busy = min(1.0, (worked_s - self._worked_s) / max(now - self._looked_s, 1e-3))
        behind = core.keeper.behind if core is not None else 0.0
        daemon.shares.slow_down(behind)
        governor.observe(
            Observed(
                depth=len(ready),
                delay_s=ready.waited_s_max,
                wait_s=self._waited_s_max,
                lag_s=max(0.0, now - self._looked_s - OBSERVE_S),
                queue_bytes=core.wal.unsynced_bytes if core is not None else 0,
                behind=behind,
                in_flight=daemon.gate.inflight,
                answered=answered - self._answered,
                busy=self.busy,
            ),
            now,
        )
        self._answered, self._worked_s, self._looked_s, ready.waited_s_max = answered, worked_s, now, 0.0
        self._waited_s_max, self._refusal = 0.0, None
        was, self._window.length_s = self._window.length_s, governor.window_s
        if was or self._window.length_s:
            note_pacing(self._window.length_s)
        daemon.pump.press(governor)
        self._timer = daemon.loop.call_later(OBSERVE_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()
