"""Jobs for whoever takes them for as long as a connection lasts (queues.md, "Work stream"): a claim that stands.

    Queues.stand ─► asks for the room it has ─► dealt ─► Taker.take ─► … a lease of its own ends ─┐
                        ▲                                                                        │
                        └────────────────────────────────────────────────────────────────────────┘
    pause ─► asks for nothing until `resume`        leave ─► what it holds is ready again, at once
    drain ─► asks for nothing any more, and is told when the last of its leases has ended

It asks by claims like anybody's, bound to its connection, so that the turns and windows of claims are its own too.
Which connections have got room is told by the machine (`State.freed`), and looked at when their queue is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from engine.core.host import Host
from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.errors import TopicsError
from engine.queue.commands import Claim
from engine.queue.events import Leased

if TYPE_CHECKING:
    from engine.core.claims import ClaimAnswer, Waiter
    from engine.core.queues import Queues

NEVER: Final = 1 << 62
"""Engine time at which a claim that stands has waited for long enough."""


class Taker(Protocol):
    """Whoever works on the jobs. Called from inside of the engine, where it may read and leave, and nothing else."""

    def take(self, leased: Leased) -> None:
        """Jobs are leased to you, and their leases as durable as the queue promises."""
        ...

    def drained(self) -> None:
        """You wanted nothing more, and hold nothing any more: leave."""
        ...

    def refused(self, error: TopicsError) -> None:
        """Nothing comes any more: leave."""
        ...


class Standing:
    """One claim that stands."""

    __slots__ = ("_drains", "_ended", "_paused", "_queues", "_taker", "claim", "host", "slot", "waiter")

    def __init__(self, queues: Queues, slot: Slot, host: Host, claim: Claim, taker: Taker) -> None:
        self._queues = queues
        self._taker = taker
        self._paused = False
        self._drains = False
        self._ended = False
        self.slot = slot
        self.host = host
        self.claim = claim
        """What it wants; `max` is what it may hold together, `conn` its own number."""
        self.waiter: Waiter | None = None
        """The claim that waits for jobs, or was the last one to get some."""

    @property
    def room(self) -> int:
        """How many more jobs it may hold."""
        return self.claim.max - self.host.queue.held_by(self.claim.conn)

    @property
    def wanted(self) -> Claim | None:
        """What to claim now; None for nothing."""
        room = 0 if self._paused or self._drains or self._ended else self.room
        if room == self.claim.max:
            return self.claim
        return msgspec.structs.replace(self.claim, max=room) if room > 0 else None

    def pause(self) -> None:
        """Take nothing more for now."""
        self._paused = True
        self._forget()

    def _forget(self) -> None:
        if self.waiter is not None:
            self._queues.forget(self.waiter)
            self.waiter = None

    def resume(self) -> None:
        """Take jobs again."""
        if self._paused and not self._ended:
            self._paused = False
            self._queues.freed(self)

    def drain(self) -> None:
        """Take nothing any more, and be told when what it holds is settled."""
        self._drains = True
        self._forget()
        self._queues.freed(self)

    def look(self) -> None:
        """Whether it has been drained."""
        if self._drains and not self._ended and not self.host.queue.held_by(self.claim.conn):
            self._taker.drained()

    def undeliver(self, leased: Leased) -> None:
        """These jobs never reached whoever is connected: their leases end, and the deliveries do not count."""
        self._queues.take_back(self.slot, self.host, leased)

    def leave(self) -> None:
        """The connection has ended, and its leases with it; their deliveries count."""
        if not self._ended:
            self._ended = True
            self._queues.leave(self)

    def answered(self, ticket: Ticket[ClaimAnswer]) -> None:
        """One of its claims has been dealt jobs, or failed."""
        if self._ended:
            return
        if ticket.error is not None:
            self.refuse(ticket.error)
            return
        leased = ticket.value().leased
        assert leased is not None, "a claim that stands is answered with jobs"
        self._taker.take(leased)
        if self.room > 0:
            self._queues.freed(self)

    def refuse(self, error: TopicsError) -> None:
        """The queue is gone, or takes no claims any more."""
        if not self._ended:
            self._taker.refused(error)
