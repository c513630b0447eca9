"""Routers in the daemon: the engine's passes in between requests, and the reads that they need, off the loop.

Under pressure the governor lets routers fall behind: a slice waits while other topics wait for their turns, but never
for longer than `YIELD_S_MAX`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.core import Core
from engine.core.slot import Slot
from engine.errors import TopicsError
from topics_daemon.readers import Asking

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

YIELD_S: Final = 0.005
"""How long a slice that lets others go first waits until it looks again."""
YIELD_S_MAX: Final = 10.0
"""How long it waits in all: as any topic, at most so long."""


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
        self._let_pass = False
        """Whether the slice that is due has let a turn of the engine pass already."""
        self._yields_since_s: float | None = None
        """Since when routers let others go first."""
        self._lacks: dict[Slot, _Lack] = {}

    def look(self) -> None:
        """After the engine has moved: plan a slice if there is something to copy."""
        core = self._core
        if core.catching.waiting:
            core.catching.look()
        if core.forwarding.line and not self._due and core.forwarding.ready:
            self._due = True
            self._daemon.loop.call_soon(self._turn)

    def read(self, slot: Slot, error: TopicsError | None) -> None:
        """What a source lacked is there, or cannot be had: copy it now; what comes next may have to wait."""
        self._lacks.pop(slot, None)
        self._core.forwarding.again(slot, error)
        self._slice(begin=not self._yields())

    def _turn(self) -> None:
        """A slice now, or when others have had their turns."""
        daemon = self._daemon
        if daemon.turn_due and not self._let_pass:
            # What was asked meanwhile is behind this in line: it is answered first, but a slice waits for one turn.
            self._let_pass = True
            daemon.loop.call_soon(self._turn)
            return
        self._let_pass = False
        if daemon.core is self._core and daemon.serving and self._yields():
            daemon.loop.call_later(YIELD_S, self._turn)
            return
        self._due = False
        self._slice(begin=True)

    def _yields(self) -> bool:
        """Whether others go first; what has waited for as long as it may does not, and the time begins anew."""
        now_s = self._daemon.loop.time()
        if self._daemon.governor.routers_yield and self._daemon.pump.ready:
            if self._yields_since_s is None:
                self._yields_since_s = now_s
            if now_s - self._yields_since_s < YIELD_S_MAX:
                return True
        self._yields_since_s = None
        return False

    def _slice(self, *, begin: bool) -> None:
        """Copy for a slice; `begin` reads of what is lacking, or leave that to the next turn."""
        daemon, core = self._daemon, self._core
        if daemon.core is not core or not daemon.serving:
            return
        try:
            core.route()
            lacks = {slot: job for slot, job in core.forwarding.lacking.items() if slot not in self._lacks}
            if lacks and not begin and not self._due:
                self._due = True
                daemon.loop.call_later(YIELD_S, self._turn)
            for slot, job in lacks.items() if begin else ():
                lack = self._lacks[slot] = _Lack(self, slot)
                lack.asking = Asking(daemon.readers)
                lack.asking.wait(job, lack)
            daemon.moved()
        except Exception as error:  # noqa: BLE001  # whatever it is, the process must end
            daemon.bug(error)
