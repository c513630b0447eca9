"""Dead letters go back into queues: a write there, and a delete here once that is as durable as its class,
and on the disk where it lies in another shard.

A crash between the two leaves the job in both places: delivery is at least once, and nothing is lost.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from engine.commands import Batch, DeleteSelector
from engine.core.moves import Columns, columns_of
from engine.core.ticket import Ticket
from engine.errors import TopicsError
from engine.limits import MIB
from engine.queue.dead_letter import origin_of, requeued_meta
from engine.topic.tags import resolve_delete
from engine.types import AppendResult, DeleteResult

if TYPE_CHECKING:
    from engine.core.core import Core

REQUEUE_MAX: Final = 1000
"""Jobs in one requeue…"""
REQUEUE_BYTES: Final = 8 * MIB
"""…and what they hold, if there is more than one; the rest is left for the next."""


class Plan(NamedTuple):
    """What a requeue would do."""

    name: str
    groups: dict[str, list[tuple[int, Columns]]]
    """Queue → the jobs that go there."""
    skipped: list[int]
    """Jobs that nobody says a queue of, or that are on their way already; of `seqs` also those that are no jobs."""
    left: int
    """How many more are meant."""


class RequeueAnswer(NamedTuple):
    """What a requeue has done."""

    requeued: int
    skipped: list[int]
    left: int


def plan_requeue(core: Core, name: str, selector: DeleteSelector, to: str | None) -> Plan:
    """Which jobs go where. Raises `NotCached`."""
    slot, host = core.queues.find(name)
    topic = slot.topic
    ranges = resolve_delete(topic, selector, core.now())
    plan, size, count, left = Plan(name, {}, [], 0), 0, 0, 0
    for first, last in ranges:
        for start, stop in topic.live_runs(max(first, topic.earliest_seq), last):
            for seq in range(start, stop + 1):
                if count >= REQUEUE_MAX or size >= REQUEUE_BYTES:
                    left += stop - seq + 1
                    break
                if host.queue.is_leaving(seq):
                    plan.skipped.append(seq)
                    continue
                record = columns_of(topic, seq)
                target = to if to is not None else _origin(record.meta)
                count += 1
                size += len(record.data) + len(record.meta or b"")
                if target is None or target == name:
                    plan.skipped.append(seq)
                else:
                    plan.groups.setdefault(target, []).append((seq, record))
    skipped = plan.skipped if selector.seqs is None else _missed(selector.seqs, ranges, plan.skipped)
    return plan._replace(skipped=skipped, left=left)


def _missed(seqs: tuple[int, ...], ranges: list[tuple[int, int]], stay: list[int]) -> list[int]:
    """Those of the seqs that nothing is done to, in the order in which they were asked for."""
    there = {seq for first, last in ranges for seq in range(first, last + 1)} - set(stay)
    return [seq for seq in dict.fromkeys(seqs) if seq not in there]


def _origin(meta: bytes | None) -> str | None:
    try:
        return origin_of(meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _meta(meta: bytes | None) -> bytes | None:
    try:
        return requeued_meta(meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return meta


class _Requeue:
    """One requeue on its way."""

    def __init__(self, core: Core, plan: Plan) -> None:
        self.ticket: Ticket[RequeueAnswer] = Ticket()
        self._core = core
        self._plan = plan
        self._open = len(plan.groups)
        self._count = 0
        self._error: TopicsError | None = None

    def begin(self) -> None:
        core, plan = self._core, self._plan
        slot, host = core.queues.find(plan.name)
        for target, jobs in plan.groups.items():
            batch = Batch(
                [record.data for _, record in jobs],
                tags=_column([record.tag for _, record in jobs]),
                nodes=_column([record.node for _, record in jobs]),
                metas=_column([_meta(record.meta) for _, record in jobs]),
            )
            seqs = [seq for seq, _ in jobs]
            aim = core.catalog.visible.get(target)
            # The delete may reach the disk of its own shard before what another one only has written: the copy first.
            synced = aim is not None and aim.shard != slot.shard
            try:
                ticket = core.append(target, batch, create=False, ack_fsync=synced)
            except TopicsError as error:
                self._over(error)
                continue
            host.queue.leave(seqs)
            _follow(ticket, partial(self._written, seqs))
        if not plan.groups:
            self.ticket.complete(RequeueAnswer(0, plan.skipped, plan.left))

    def _written(self, seqs: list[int], ticket: Ticket[AppendResult]) -> None:
        if ticket.error is not None:
            self._over(ticket.error)
            return
        try:
            deleted = self._core.delete(self._plan.name, DeleteSelector(seqs=tuple(seqs)))
        except TopicsError as error:
            self._over(error)
            return
        _follow(deleted, self._deleted)

    def _deleted(self, ticket: Ticket[DeleteResult]) -> None:
        if ticket.error is None:
            self._count += ticket.value().deleted
        self._over(ticket.error)

    def _over(self, error: TopicsError | None) -> None:
        self._open -= 1
        self._error = self._error or error
        if self._open:
            return
        if self._error is not None and not self._count:
            self.ticket.fail(self._error)
        else:
            self.ticket.complete(RequeueAnswer(self._count, self._plan.skipped, self._plan.left))


def requeue(core: Core, plan: Plan) -> Ticket[RequeueAnswer]:
    """Do what was planned. It fails where nothing could be done; what could not, of several queues, stays."""
    work = _Requeue(core, plan)
    work.begin()
    return work.ticket


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None


def _follow(ticket: Ticket[Any], on_done: Any) -> None:
    if ticket.done:
        on_done(ticket)
    else:
        ticket.on_done = on_done
