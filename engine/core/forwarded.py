"""What routers change: copies that will be readable, and routers that will be there, changed or gone.

A Forward frame lies in the log of the source and is applied in each dest by itself, in the order of what is pending
there, when the dest's class has its condition. The router's cursor moves with it. Where source and dest live on one
shard that condition is the same as for a write. Else the frame is synced before its copies show, whatever the class:
the dest's own log knows nothing of it, so nobody may have seen what the source's may lose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.core.catalog import Catalog
from engine.core.slot import Slot
from engine.core.staged import Staged, StagedElsewhere
from engine.core.ticket import Ticket
from engine.routers.copies import Copies, Item, Run
from engine.routers.hops import Hops
from engine.routers.router import Router, RouterSpec
from engine.topic.block import DERIVED
from engine.types import Durability


class RouterPut(NamedTuple):
    """The answer to a PUT of a router: all of it, for its topics may be gone before it is given."""

    router: str
    source: str
    dest: str
    spec: RouterSpec
    created: bool


def apply_copies(slot: Slot, router: Router, items: list[Item], to: int, ts: int, *, logged: bool = True) -> None:
    """Copies and gaps appear in a dest, and its router moves on; the same live and at replay. What goes into an
    ephemeral topic is not `logged`."""
    topic, host = slot.topic, slot.host
    location = (DERIVED, 0) if logged else None
    if items and slot.hops is None:
        slot.hops = Hops()
    for item in items:
        first = topic.head + 1
        count = len(item.rendered.strides) if isinstance(item, Run) else item.seqs
        assert slot.hops is not None, "there are items"
        slot.hops.add(first, first + count - 1, item.hops)
        if isinstance(item, Run):
            topic.apply_append(first, item.rendered, item.ts, location)
            router.forwarded += count
            if host is not None:
                host.appended(count)
            continue
        if host is not None:
            host.age(ts)
        topic.apply_gap(first, first + count - 1, item.reason, ts)
        if host is not None:
            host.lost(first, first + count - 1)
    router.cursor = to


class StagedForward(StagedElsewhere):
    """One pass of one router, on its way into the dest."""

    __slots__ = ("_applied", "_logged", "_to", "_ts", "copies", "router")

    def __init__(
        self, slot: Slot, router: Router, shard: int, copies: Copies, to: int, ts: int, applied: Callable[[], None]
    ) -> None:
        """`shard` is the source's; `applied` is told in the end."""
        self.slot = slot
        self.ticket = None
        self.end_lsn = self.sync_lsn = self.ack_lsn = self.lsn = 0
        self.shard = shard
        self._logged = slot.config.durability is not Durability.EPHEMERAL
        self.router = router
        self.copies = copies
        self._to = to
        self._ts = ts
        self._applied = applied

    def apply(self, catalog: Catalog, now_ms: int) -> None:
        slot, topic = self.slot, self.slot.topic
        before, records, size = topic.head, topic.count, topic.bytes
        copies = self.copies
        apply_copies(slot, self.router, copies.items, self._to, self._ts, logged=self._logged)
        catalog.records_live += topic.count - records
        catalog.bytes_live += topic.bytes - size
        catalog.census.forwarded += copies.records
        slot.staged_records -= copies.records
        slot.staged_bytes -= copies.size
        catalog.bytes_staged -= copies.size
        if self.shard != slot.shard and self._logged:
            # They are on disk, though no sync of the dest's own shard ever says so.
            last = topic.head
            slot.syncing = last if slot.syncing == before else slot.syncing
            slot.synced = last if slot.synced == before else slot.synced
        if slot.outlets is not None:
            slot.outlets.note()
        self._applied()


class StagedRouter(Staged):
    """A router that will be there, or have another definition."""

    __slots__ = ("_put", "_router")

    def __init__(self, slot: Slot, ticket: Ticket[RouterPut], router: Router, put: RouterPut) -> None:
        super().__init__(slot, ticket)
        self._router = router
        self._put = put

    def apply(self, catalog: Catalog, now_ms: int) -> RouterPut:
        router = self._router
        router.spec = self._put.spec
        router.active = True
        source = catalog.by_id.get(router.source)
        if source is not None and source.outlets is not None:
            source.outlets.note()
        return self._put


class StagedRouterDrop(Staged):
    """A router that is gone."""

    __slots__ = ("_router",)

    def __init__(self, slot: Slot, ticket: Ticket[bool], router: Router) -> None:
        super().__init__(slot, ticket)
        self._router = router

    def apply(self, catalog: Catalog, now_ms: int) -> bool:
        catalog.routers.left(self._router)
        return True
