"""Waiting, and being asked to stop while waiting.

Every wait of the command line happens in `Stop.wait`, which also listens to a pipe that the interpreter writes to when
a signal arrives (`set_wakeup_fd`). So a handler only takes a note, nothing is ever torn out of the middle of a write,
and yet no wait outlasts a signal. A second signal ends the process at once.

`_signal` and `select.poll` are used directly, because `signal` imports `enum` and `selectors` imports `socket`'s world:
this module is on the path of the commands that must start fast.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # no stub exists for the C half of `signal`
import os
import select

from topics_cli.exits import Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

POLLIN = select.POLLIN
POLLOUT = select.POLLOUT
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Stop:
    """The signals heard so far, and the one place where the command line waits."""

    __slots__ = ("_wake", "signum")

    def __init__(self) -> None:
        self.signum = 0
        self._wake = -1

    def install(self) -> None:
        """Listen to SIGINT and SIGTERM, unless whoever started us has them ignored (nohup, background jobs)."""
        if self._wake >= 0:
            return
        self._wake, far = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.set_wakeup_fd(far, warn_on_full_buffer=False)
        for signum in (_signal.SIGINT, _signal.SIGTERM):
            if _signal.getsignal(signum) != _signal.SIG_IGN:
                _signal.signal(signum, self._heard)

    def _heard(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum:
            os._exit(128 + signum)
        self.signum = signum

    def check(self) -> None:
        """Raise `Stopped` when a signal was heard."""
        if self.signum:
            raise Stopped(self.signum)

    def wait(self, watch: list[tuple[int, int]], timeout_s: float | None) -> dict[int, int]:
        """Wait until one of `watch` (descriptor, events) is ready, a signal arrives or the time is over.

        Returns what is ready. Signals are for the caller to look at (`signum`, `check`).
        """
        poll = select.poll()
        for handle, events in watch:
            poll.register(handle, events)
        if self._wake >= 0:
            poll.register(self._wake, POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else max(0, int(timeout_s * 1000 + 0.999))))
        if ready.pop(self._wake, 0):
            try:
                os.read(self._wake, 512)
            except BlockingIOError:
                pass
        return ready


def is_gone(events: int) -> bool:
    """Whether the other end of a descriptor hung up or failed."""
    return bool(events & _GONE)
