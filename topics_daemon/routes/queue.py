"""Queues on the wire (queues.md): claim, ack, nack, extend, requeue, leases.

A claim is answered when it has jobs or has waited for long enough. A client that goes away before gets none; where its
answer was not written any more its leases end at once, and the deliveries do not count.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from engine.commands import DeleteSelector
from engine.core import Ticket
from engine.core.claims import ClaimAnswer, SettleAnswer, Waiter
from engine.core.requeue import RequeueAnswer, plan_requeue
from engine.core.requeue import requeue as begin_requeue
from engine.errors import TopicsError, invalid
from engine.limits import WAIT_MS_MAX
from engine.names import check_topic_name
from engine.queue.commands import CLAIM_BYTES, Ack, Claim, Extend, Nack, check_seqs
from engine.queue.job import lease_text, parse_leases
from engine.topic.history import NotCached
from engine.types import U64_MAX
from topics_daemon.answers import json_answer, list_answer, ok_head, respond, warnings_tail
from topics_daemon.auth import forbidden_name
from topics_daemon.claimed import claimed_entries, claimed_run
from topics_daemon.decode import check_holder, check_names, decode, decode_flat, remember
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.keys import Scope
from topics_daemon.presence import Ending, ending_of
from topics_daemon.readers import Asking
from topics_daemon.routes.asked import MatchIn, in_range, match_of, number
from topics_daemon.routes.diff import LongPoll, may_wait
from topics_daemon.routes.write import DISK_TIMES
from topics_daemon.work import WORKER

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

T = TypeVar("T")

LEASES_DEFAULT: Final = 100
LEASES_MAX: Final = 1000


class ClaimIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a claim."""

    node: str
    max: int = 1
    lease_ms: int | None = None
    wait_ms: int | None = None
    match: MatchIn = None
    max_bytes: int | None = None


class SettleIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of an ack."""

    node: str
    seqs: list[int]
    lease_ids: list[str] | None = None


class NackIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a nack."""

    node: str
    seqs: list[int]
    lease_ids: list[str] | None = None
    delay_ms: int | None = None
    delay: Literal["backoff"] | None = None
    reason: str | None = None
    dead_letter: bool = False
    delivered: bool = True


class ExtendIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of an extend."""

    node: str
    seqs: list[int]
    lease_ids: list[str] | None = None
    lease_ms: int | None = None


class RequeueIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a requeue."""

    seqs: list[int] | None = None
    match: MatchIn = None
    all: bool = False
    to: str | None = None


_CLAIM: Final = msgspec.json.Decoder(ClaimIn)
_SETTLE: Final = msgspec.json.Decoder(SettleIn)
_NACK: Final = msgspec.json.Decoder(NackIn)
_EXTEND: Final = msgspec.json.Decoder(ExtendIn)
_REQUEUE: Final = msgspec.json.Decoder(RequeueIn)


# -- claims ----------------------------------------------------------------------------------------------------------


class ClaimExchange(LongPoll):
    """A claim that waits for jobs, or for their records to be read."""

    __slots__ = ("_asking", "_daemon", "_given", "_name", "_waiter", "_warnings")

    def __init__(
        self,
        daemon: Daemon,
        connection: Requester,
        head: Head,
        waiter: Waiter,
        warnings: list[str],
        started_ns: int,
    ) -> None:
        super().__init__(connection, head, started_ns, counted=False)
        self._daemon = daemon
        self._name = head.name
        self._waiter = waiter
        self._warnings = warnings
        self._asking: Asking | None = None
        self._given: ClaimAnswer | None = None
        daemon.pump.await_topics(self, (self._name,))
        daemon.follow(waiter.ticket, self.told)

    def poke(self) -> None:
        """The engine serves those who wait; there is nothing to look at."""

    def expire(self) -> None:
        """Wait no longer: give what there is, which is nothing."""
        waiter = self._waiter
        if waiter.leased is None and not waiter.ticket.done:
            self._daemon.engine.queues.forget(waiter)
            waiter.ticket.complete(ClaimAnswer(None, max(waiter.host.queue.ready, 0)))

    def gone(self) -> None:
        self._stop()
        self._daemon.engine.queues.undeliver(self._waiter)
        self._daemon.wake()

    def refusal(self) -> TopicsError | None:
        """Why its caller may not wait any longer, now that the keys are others."""
        assert self.head is not None
        caller = self.head.caller
        return caller.lacks(WORKER) or (None if caller.allows(self._name) else forbidden_name())

    def fail(self, error: TopicsError) -> None:
        self._stop()
        self._daemon.engine.queues.undeliver(self._waiter)
        super().fail(error)

    def answered(self, ticket: Ticket[ClaimAnswer]) -> None:
        """There are jobs, or the time to wait is over."""
        if self.answer is not None:
            return
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        self._given = ticket.value()
        self.again()

    def again(self) -> None:
        """Render the jobs."""
        assert self._given is not None
        assert self.head is not None
        if self._asking is not None:
            self._asking.refresh()
        try:
            answer = _claimed(self._daemon, self.head, self._given, self._warnings, self.started_ns)
        except NotCached as lack:
            self._asking = self._asking or Asking(self._daemon.readers)
            self._asking.wait(lack.job, self)
            return
        except TopicsError as error:
            self.fail(error)
            return
        self._stop()
        _look_out(self._daemon, self.connection, self._waiter)
        self.finish(answer)

    def _stop(self) -> None:
        self._daemon.pump.forget(self, (self._name,))
        if self._asking is not None:
            self._asking.done()


def _look_out(daemon: Daemon, connection: Requester, waiter: Waiter) -> None:
    """A claim is being answered: its leases end where the answer reaches nobody."""
    descriptor = connection.descriptor()
    ending = ending_of(descriptor)
    if ending is Ending.GONE:
        daemon.engine.queues.undeliver(waiter)
    elif ending is Ending.HALF:

        def refused() -> None:
            daemon.engine.queues.undeliver(waiter)
            daemon.wake()

        daemon.refusals.watch(descriptor, refused)


def _claimed(daemon: Daemon, head: Head, given: ClaimAnswer, warnings: list[str], started_ns: int) -> bytes:
    """The answer of a claim. Raises `NotCached`."""
    leased, claimed, count = given.leased, b"", 0
    if leased is not None:
        daemon.reading()
        queues = daemon.engine.queues
        run = queues.run(head.name, leased) if len(leased.jobs) > 1 else None
        if run is not None and (text := claimed_run(*run, leased)) is not None:
            claimed, count = text, len(leased.jobs)
        else:
            entries = claimed_entries(queues.records(head.name, leased), leased)
            claimed, count = b",".join(entries), len(entries)
    body = b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d%b,"performance":{"server_total_ms":%.3f}}' % (
        head.name_bytes,
        claimed,
        count,
        given.ready,
        warnings_tail(warnings) if warnings else b"",
        (time.perf_counter_ns() - started_ns) / 1e6,
    )
    return ok_head(len(body)) + body if head.plain else respond(head, 200, body)


def _read_claim(daemon: Daemon, head: Head, body: bytes, warnings: list[str]) -> tuple[Claim, int]:
    """What a claim asks for, and how long it waits. Short bodies without anything odd are remembered: a worker says
    the same each time."""
    check_names(head.query, frozenset(), warnings)
    read = decode(_CLAIM, body, daemon.limits, warnings)
    wait_ms = 0 if read.wait_ms is None else min(in_range(read.wait_ms, "wait_ms", 0), WAIT_MS_MAX)
    if read.lease_ms is not None:
        in_range(read.lease_ms, "lease_ms", 0)
    max_bytes = CLAIM_BYTES
    if read.max_bytes is not None:
        max_bytes = min(max(in_range(read.max_bytes, "max_bytes", CLAIM_BYTES), 1), CLAIM_BYTES)
    wanted = Claim(
        node=check_holder(read.node, daemon.limits),
        max=min(read.max, daemon.limits.claim),
        lease_ms=read.lease_ms,
        match=match_of(read.match, daemon.limits),
        max_bytes=max_bytes,
    )
    if not warnings:
        remember(daemon.claim_memo, body, (wanted, wait_ms))
    return wanted, wait_ms


def claim(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes | None:
    """`POST /v0/topics/:q/claim`. What is there to be had at once is the answer; who waits is an exchange."""
    warnings: list[str] = []
    known = None if head.query else daemon.claim_memo.get(body)
    wanted, wait_ms = known or _read_claim(daemon, head, body, warnings)
    daemon.drain(head.name)
    queues = daemon.engine.queues
    waiter = None
    given = queues.claim_at_once(head.name, wanted)
    if given is None:
        waiter = queues.claim(head.name, wanted, wait_ms if wait_ms and may_wait(daemon, connection) else 0)
        if queues.waited_for or daemon.engine.wal.has_staged:
            daemon.wake()  # for those who wait until a lease is over, or for moves to the dead letters
        given = waiter.ticket.result
    daemon.touch(head.name)
    if given is not None and ending_of(connection.descriptor()) is Ending.NONE:
        try:
            return _claimed(daemon, head, given, warnings, started_ns)
        except (NotCached, TopicsError):
            pass  # The exchange asks again: it can wait, and gives the leases back where they are of no use.
    if waiter is None:
        assert given is not None, "there is one of the two"
        waiter = queues.hold(head.name, wanted, given)
    ClaimExchange(daemon, connection, head, waiter, warnings, started_ns)
    return None


# -- the ends of leases ----------------------------------------------------------------------------------------------


class SettleExchange(Exchange):
    """An ack, a nack or an extend on its way to the log."""

    __slots__ = ("done", "warnings")

    done: bytes
    warnings: list[str]

    def answered(self, ticket: Ticket[SettleAnswer]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        given, head, skipped = ticket.result, self.head, b""
        assert head is not None
        assert given is not None, "a ticket completes with a result or an error"
        if given.skipped:
            encode = msgspec.json.encode
            details = [{"seq": seq, "detail": why} for seq, why in given.skipped]
            skipped = b'%b],"skipped_detail":%b' % (encode([seq for seq, _ in given.skipped])[1:-1], encode(details))
        if self.done == b"extended":
            also = b'"deadlines":%b' % msgspec.json.encode({str(seq): given.deadline for seq in given.seqs})
        else:
            also = b'"ready":%d,"in_flight":%d' % (given.ready, given.in_flight)
        body = b'{"%b":%d,"skipped":[%b,%b%b,"performance":{"server_total_ms":%.3f,%b}}' % (
            self.done,
            len(given.seqs),
            skipped or b"]",
            also,
            warnings_tail(self.warnings) if self.warnings else b"",
            (time.perf_counter_ns() - self.started_ns) / 1e6,
            DISK_TIMES.shown(ticket.write_ns, ticket.sync_ns),
        )
        self.finish(ok_head(len(body)) + body if head.plain else respond(head, 200, body))


def _read(daemon: Daemon, head: Head, decoder: msgspec.json.Decoder[T], body: bytes, warnings: list[str]) -> T:
    """The body of a request about jobs, whose seqs are seqs."""
    if head.query:
        check_names(head.query, frozenset(), warnings)
    read = decode_flat(decoder, body, daemon.limits, warnings)
    seqs = read.seqs or ()  # type: ignore[attr-defined]  # all of these bodies have it
    if seqs and not 0 <= min(seqs) <= max(seqs) <= U64_MAX:
        raise invalid(f"seqs must be between 0 and {U64_MAX}", "seqs")
    return read


def _leases(texts: list[str] | None) -> list[int] | None:
    return None if texts is None else parse_leases(texts)


def _follow(
    daemon: Daemon,
    connection: Requester,
    head: Head,
    ticket: Ticket[SettleAnswer],
    done: bytes,
    warnings: list[str],
    started_ns: int,
) -> None:
    exchange = SettleExchange(connection, head, started_ns)
    exchange.done, exchange.warnings = done, warnings
    daemon.follow(ticket, exchange.told)


def ack(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:q/ack`."""
    warnings: list[str] = []
    read = _read(daemon, head, _SETTLE, body, warnings)
    leases = None if read.lease_ids is None else parse_leases(read.lease_ids)
    ticket = daemon.engine.queues.ack(head.name, Ack(read.node, read.seqs, leases))
    exchange = SettleExchange(connection, head, started_ns)
    exchange.done, exchange.warnings = b"acked", warnings
    daemon.follow(ticket, exchange.told)


def nack(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:q/nack`."""
    warnings: list[str] = []
    read = _read(daemon, head, _NACK, body, warnings)
    if read.delay is not None and read.delay_ms is not None:
        raise invalid("delay and delay_ms both say when; give one of them", "delay")
    command = Nack(
        node=read.node,
        seqs=read.seqs,
        lease_ids=_leases(read.lease_ids),
        delay_ms=None if read.delay is not None else read.delay_ms or 0,
        reason=read.reason,
        dead_letter=read.dead_letter,
        delivered=read.delivered,
    )
    ticket = daemon.engine.queues.nack(head.name, command)
    _follow(daemon, connection, head, ticket, b"nacked", warnings, started_ns)


def extend(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:q/extend`."""
    warnings: list[str] = []
    read = _read(daemon, head, _EXTEND, body, warnings)
    in_range(read.lease_ms, "lease_ms", 0)
    command = Extend(node=read.node, seqs=read.seqs, lease_ids=_leases(read.lease_ids), lease_ms=read.lease_ms)
    ticket = daemon.engine.queues.extend(head.name, command)
    _follow(daemon, connection, head, ticket, b"extended", warnings, started_ns)


# -- dead letters, and looking ---------------------------------------------------------------------------------------


class RequeueExchange(Exchange):
    """A requeue on its way."""

    __slots__ = ("warnings",)

    warnings: list[str]

    def answered(self, ticket: Ticket[RequeueAnswer]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        answer: dict[str, Any] = ticket.value()._asdict()
        self.finish(json_answer(self.head, 200, answer, self.warnings, self.started_ns))


def requeue(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:q/requeue`."""
    warnings: list[str] = []
    read = _read(daemon, head, _REQUEUE, body, warnings)
    if (read.seqs is not None) + (read.match is not None) + read.all != 1:
        raise invalid("a requeue needs one of seqs, match, all")
    if read.seqs is not None:
        check_seqs(read.seqs)
    if read.to is not None:
        head.caller.check(check_topic_name(read.to, "to"))
    selector = DeleteSelector(
        match=match_of(read.match, daemon.limits),
        seqs=None if read.seqs is None else tuple(read.seqs),
    )
    plan = plan_requeue(daemon.engine, head.name, selector, read.to)
    for name in plan.groups:
        head.caller.check(name)
    ticket = begin_requeue(daemon.engine, plan)
    exchange = RequeueExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.follow(ticket, exchange.told)


_LEASES_QUERY: Final = frozenset({"limit", "cursor"})


def leases(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/topics/:q/leases?limit&cursor`."""
    warnings: list[str] = []
    query = head.query
    check_names(query, _LEASES_QUERY, warnings)
    limit = number(query["limit"], "limit") if "limit" in query else 0
    limit = min(limit or LEASES_DEFAULT, LEASES_MAX)
    after = number(query["cursor"], "cursor") if "cursor" in query else 0
    found = daemon.engine.queues.leases(head.name, after, limit + 1)
    shows = head.caller.lacks(Scope.WRITE) is None
    rows = []
    for lease in found[:limit]:
        row: dict[str, Any] = {"seq": lease.seq, "node": lease.node}
        if shows:
            row["lease_id"] = lease_text(lease.lease_id)
        row["deadline"], row["deliveries"] = lease.deadline, lease.deliveries
        rows.append(row)
    following = str(rows[-1]["seq"]) if len(found) > limit else None
    return list_answer(head, {"leases": rows}, following, warnings, started_ns)
