"""Read your own writes through routers: a request that shows a dest waits until what its sources have acked is in it.

What is waited for is as of when it began, source by source down the chain; a router that is blocked is not waited for.
The passes that it needs are made at once, for one slice, so most requests never wait at all. Whoever asks waits for
`PATIENCE_MS` at most, and then gets what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from engine.core.ticket import Ticket
from engine.routers.graph import ancestors
from engine.segment.segment import Segment
from engine.topic.history import NotCached, ReadJob

if TYPE_CHECKING:
    from engine.core.core import Core

PATIENCE_MS: Final = 100
LEVELS_MAX: Final = 64
"""Routers one behind the other that are waited for."""


class Chain:
    """One dest and what is copied into it, from the furthest source on."""

    __slots__ = ("_at", "_core", "_levels", "_target")

    def __init__(self, core: Core, dest: int) -> None:
        self._core = core
        found = [dest, *ancestors(dest, core.catalog.routers.source_of)][: LEVELS_MAX + 1]
        self._levels = [(source, into) for into, source in pairwise(found)][::-1]
        self._at = 0
        self._target: int | None = None

    @property
    def levels(self) -> list[tuple[int, int]]:
        """What is left: from which source into which dest."""
        return self._levels[self._at :]

    def has_caught_up(self, *, tried: bool = True) -> bool:
        """Whether all is there that was waited for; of what is blocked, once it was `tried`, what is on its way."""
        catalog = self._core.catalog
        while self._at < len(self._levels):
            source, dest = self._levels[self._at]
            slot = catalog.by_id.get(source)
            if slot is not None:
                target = self._target = slot.topic.head if self._target is None else self._target
                for router in catalog.routers.of_dest(dest):
                    wanted = min(router.tip, target) if tried and router.blocked else target
                    if router.active and router.cursor < wanted:
                        return False
            self._at += 1
            self._target = None
        return True


class CatchUp(ReadJob):
    """What a request waits for whose answer would lack copies: its ticket, not a read."""

    __slots__ = ("chains", "ticket", "tried")

    def __init__(self, chains: list[Chain], tried: bool) -> None:
        self.chains = chains
        self.tried = tried
        """Whether passes were made since: before that it is not known what is blocked."""
        self.ticket: Ticket[bool] = Ticket()
        self.asked: list[tuple[Segment, int, int]] = []


class Behind(NotCached):
    """A request shows what is not there yet: wait for the ticket of its job, for a while, and ask again."""

    job: CatchUp


class Catching:
    """Who waits for copies."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.waiting: list[CatchUp] = []

    def check(self, names: Iterable[str]) -> None:
        """Raise `Behind` where these topics lack what their sources have acked; one slice is made at once."""
        core = self._core
        routers = core.catalog.routers
        if not len(routers):
            return
        visible = core.catalog.visible
        topics = {slot.topic.id for name in names if (slot := visible.get(name)) is not None}
        chains = [Chain(core, topic) for topic in topics if routers.source_of(topic) is not None]
        chains = [chain for chain in chains if not chain.has_caught_up(tried=False)]
        if not chains:
            return
        tried = not core.forwarding.halted
        core.forwarding.hurry([level for chain in chains for level in chain.levels])
        chains = [chain for chain in chains if not chain.has_caught_up(tried=tried)]
        if chains:
            job = CatchUp(chains, tried)
            self.waiting.append(job)
            raise Behind(job)

    def look(self) -> None:
        """Copies may have arrived: tell who waited for them."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        for job in waiting:
            if job.ticket.done:
                continue
            job.tried = job.tried or self._were_tried(job)
            if all(chain.has_caught_up(tried=job.tried) for chain in job.chains):
                job.ticket.complete(True)
            else:
                self.waiting.append(job)

    def _were_tried(self, job: CatchUp) -> bool:
        """Whether the sources that a job waits for have had their passes since these were halted."""
        core = self._core
        slots = [core.catalog.by_id.get(source) for chain in job.chains for source, _ in chain.levels]
        in_line = [slot for slot in slots if slot is not None and slot.outlets is not None and slot.outlets.queued]
        return not (core.forwarding.halted or in_line)
