"""Routers in the daemon: the engine's passes in between requests, and the reads that they need, off the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import Core
from engine.core.slot import Slot
from engine.errors import TopicsError
from topics_daemon.readers import Asking

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon


class _Lack:
    """A source whose records have to be read before they can be copied."""

    def __init__(self, routing: Routing, slot: Slot) -> None:
        self._routing = routing
        self._slot = slot
        self.asking: Asking | None = None

    def again(self) -> None:
        """They are there: copy them before others drive them out of memory."""
        assert self.asking is not None
        self.asking.refresh()
        self._routing.read(self._slot, None)
        self.asking.done()

    def fail(self, error: TopicsError) -> None:
        """They cannot be had."""
        self._routing.read(self._slot, error)


class Routing:
    """Who drives the routers of one daemon."""

    def __init__(self, daemon: Daemon, core: Core) -> None:
        self._daemon = daemon
        self._core = core
        self._due = False
        self._lacks: dict[Slot, _Lack] = {}

    def look(self) -> None:
        """After the engine has moved: plan a slice if there is something to copy."""
        self._core.catching.look()
        if not self._due and self._core.forwarding.ready:
            self._due = True
            self._daemon.loop.call_soon(self._slice)

    def read(self, slot: Slot, error: TopicsError | None) -> None:
        """What a source lacked is there, or cannot be had."""
        self._lacks.pop(slot, None)
        self._core.forwarding.again(slot, error)
        self._slice()

    def _slice(self) -> None:
        self._due = False
        daemon, core = self._daemon, self._core
        if daemon.core is not core or not daemon.serving:
            return
        try:
            core.route()
            for slot, job in core.forwarding.lacking.items():
                if slot not in self._lacks:
                    lack = self._lacks[slot] = _Lack(self, slot)
                    lack.asking = Asking(daemon.readers, lack)
                    lack.asking.wait(job)
            daemon.moved()
        except Exception as error:  # noqa: BLE001  # whatever it is, the process must end
            daemon.bug(error)
