"""The deadlines of connections, looked at now and then by the coarse timer of the daemon.

A look at all of a thousand connections takes 1.5 ms, for which whoever writes would wait twice a second. So a few are
looked at, then others are served, then the next few.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topics_daemon.exchange import Link

AT_ONCE: Final = 64
"""Connections that are looked at before others are served: a tenth of a millisecond."""


class Deadlines:
    """Those of some connections, which come and go meanwhile."""

    __slots__ = ("_connections", "_left", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: set[Link]) -> None:
        self._loop = loop
        self._connections = connections
        self._left: list[Link] = []
        """Who is still to be looked at this time."""

    def look(self) -> None:
        """Begin to look at all there are, unless the last time is not over yet."""
        if not self._left:
            self._left = list(self._connections)
            self._go_on()

    def _go_on(self) -> None:
        now = self._loop.time()
        some = self._left[-AT_ONCE:]
        del self._left[-AT_ONCE:]
        if self._left:
            self._loop.call_soon(self._go_on)
        for connection in some:
            if connection in self._connections:
                connection.check(now)
