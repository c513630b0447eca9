"""What waits for others to share it: a turn of the engine while the daemon is pressed, and the sync after a sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

GROUP_MAX: Final = 64
"""With so many a turn costs each of them next to nothing. Waiting on would only hold back those who pipeline: all that
a key could get done in the length of the window would be what it may have in flight."""


class Window:
    """Opened by the first who asks for a turn, closed by time or by the last who fits in."""

    __slots__ = ("_asked", "_loop", "_timer", "_turn", "is_open", "length_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], None]) -> None:
        self._loop = loop
        self._turn = turn
        self._timer: asyncio.TimerHandle | None = None
        self._asked = 0
        self.is_open = False
        """Whether a turn waits for more to join it."""
        self.length_s = 0.0
        """0 while nothing presses: a turn follows at once."""

    def open(self) -> None:
        """Somebody asks for a turn: it comes after the window's length."""
        self._asked, self.is_open = 1, True
        self._timer = self._loop.call_later(self.length_s, self._close)

    def join(self) -> None:
        """Another asks for it."""
        self._asked += 1
        if self._asked >= GROUP_MAX and self._timer is not None:
            self._timer.cancel()
            self.is_open = False
            self._loop.call_soon(self._turn)

    def _close(self) -> None:
        self.is_open = False
        self._turn()


class Return:
    """Between two syncs: one look at the sockets, for those whom the first has answered.

    They are the next to write, as a rule. If the second sync began at once, they would wait for it and for one of their
    own: all who write would fall into two halves, each waiting for the sync of the other.
    """

    __slots__ = ("_loop", "_on_end", "is_open")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self.is_open = False

    def open(self) -> None:
        """A sync has ended, and others wait for the next one."""
        if not self.is_open:
            self.is_open = True
            # What is to be called soon is called before the sockets are looked at; what it asks for, after that.
            self._loop.call_soon(self._loop.call_soon, self._close)

    def _close(self) -> None:
        self.is_open = False
        self._on_end()
