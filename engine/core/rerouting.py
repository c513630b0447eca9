"""Routers at a start: their frames and images back to routers, and Forward frames back to copies.

A Forward concerns its source, whose records it copies, and a dest for each landing, which stand at positions of their
own in a snapshot. Whether a dest has the copies already is told by its head, and by its router's cursor, which is of
the same moment. The source is as it was when the frame was written, for its frames are applied in their order; what it
lacks was lost to damage since, and is a gap in the dest. Of an ephemeral dest only the cursor is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.catalog import Catalog
from engine.core.damage import lose
from engine.core.forwarded import apply_copies
from engine.core.jobs import outcome
from engine.core.slot import Slot
from engine.errors import StoreIOError
from engine.formats.append import decode_append_body
from engine.formats.forward import Group, decode_forward, decode_router_drop, decode_router_put
from engine.fragment import Rendered
from engine.fs import Fs
from engine.routers.copies import Missing, Record, carried, copies, cut, gather, missed
from engine.routers.hops import HOPS_KEPT_MAX
from engine.routers.router import Router, spec_of
from engine.store.recovery import Frame
from engine.topic.history import NotCached
from engine.types import Durability, Reason

READS_MAX = 100_000
"""Reads of one frame's records; more is a bug."""


class Rerouting:
    """Routers while the log is replayed."""

    def __init__(self, catalog: Catalog, fs: Fs, reason_of: Callable[[int, int], Reason]) -> None:
        self._catalog = catalog
        self._fs = fs
        self._reason_of = reason_of

    def put(self, slot: Slot, frame: Frame) -> None:
        """A router is made, or has another definition."""
        body = decode_router_put(frame.body)
        known = self._catalog.routers.by_number.get(body.number)
        if known is not None:
            known.spec = known.next_spec = spec_of(body)
            return
        self._catalog.last_id = max(self._catalog.last_id, body.number)
        self._catalog.routers.add(Router.of(body, slot.topic.id))

    def drop(self, frame: Frame) -> None:
        """A router is gone."""
        router = self._catalog.routers.by_number.get(decode_router_drop(frame.body).number)
        if router is not None:
            self._catalog.routers.remove(router)

    def leave(self, slot: Slot) -> None:
        """A topic is gone, and its routers with it."""
        for router in self._catalog.routers.of_topic(slot.topic.id):
            self._catalog.routers.remove(router)

    def forward(self, frame: Frame) -> None:
        """Copies of one pass, for the dests that do not have them."""
        groups, rest = decode_forward(frame.body, frame.ts)
        rendered = decode_append_body(frame.flags, frame.count, rest).rendered if frame.count else None
        source = self._catalog.by_id.get(frame.topic_id)
        for group in groups:
            records: list[Record | Missing] | None = None
            for number, first, floor in group.landings:
                router = self._catalog.routers.by_number.get(number)
                slot = None if router is None else self._catalog.by_id.get(router.dest)
                if router is None or slot is None or group.to <= router.cursor:
                    continue
                total = group.lost + sum(last - start + 1 for start, last, _ in group.ranges)
                if slot.config.durability is Durability.EPHEMERAL or (total and first <= slot.topic.head):
                    router.cursor = group.to
                    router.forwarded += total - group.lost
                    continue
                if records is None:
                    records = self._records(source, router.cursor, group, rendered)
                self._land(slot, router, group.to, first, floor, records, total, frame)

    def _land(
        self,
        slot: Slot,
        router: Router,
        to: int,
        first: int,
        floor: int,
        records: list[Record | Missing],
        total: int,
        frame: Frame,
    ) -> None:
        topic, spec = slot.topic, router.spec
        if total and first > topic.head + 1:
            topic.apply_gap(topic.head + 1, first - 1, self._reason_of(topic.id, frame.shard), frame.ts)
        made = copies(cut(records, spec.preserve_node, spec.preserve_tag), first, floor)
        apply_copies(slot, router, made.items, to, frame.ts)
        if total:
            slot.quiet = False
            slot.reserved = 0

    def _records(
        self, source: Slot | None, cursor: int, group: Group, rendered: Rendered | None
    ) -> list[Record | Missing]:
        """What a group copies behind `cursor`, with the losses in front of it."""
        known = None if source is None else source.hops
        hops = 0 if known is None else known.among(cursor + 1, cursor + group.lost, HOPS_KEPT_MAX)[1]
        found: list[Record | Missing] = [*missed(group.lost, hops)]
        if rendered is not None:
            return found + carried(rendered, group.ranges)
        topic = None if source is None else source.topic
        for _ in range(READS_MAX):
            try:
                return found + gather(topic, group.ranges)
            except NotCached as missing:
                job = missing.job
            error = outcome(job, self._fs)
            if error is not None:
                raise StoreIOError(f"records that a router copies cannot be read: {error}")
            self._catalog.cache.history.put(job, _still)
            if job.damage and topic is not None:
                for damaged in job.damage:
                    lose(topic, damaged)
        raise RuntimeError("a Forward does not get on, whatever is read for it")


def _still(_segment: object) -> bool:
    return True
