"""Queues, as the machine's host: claims and those who wait for jobs, what ends a lease, and what of it is logged.

    claim ─► waits? ─► dealt ─► (Lease frame) ─► answered          the same for `nack` and `extend`
                 ▲ poked: records appeared, jobs came back, a lease ran out, a window of claims ended
    ack ─► Delete frame, marked ─► applied to queue and topic ─► answered
    moves to the dead letters: engine.core.moves

Events of leases are applied as soon as their frames are staged; answers wait for the frame as the class asks. Those who
wait are served in order, wherever the engine gets to: after a turn, after a sync, and as time passes (`due_ms`).

Lease numbers begin at the number of the start, which LOCK has durably before anything is answered, times 2^32: no
lease of an earlier start is ever given again, though most leases are never logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.core.claims import ClaimAnswer, Held, SettleAnswer, Waiter
from engine.core.host import Host
from engine.core.leaving import StagedAnswer, StagedTake
from engine.core.moves import MOVE_BYTES, Plan, being_made, plan_moves, stage_move
from engine.core.queue_reads import QueueReads
from engine.core.refusals import shutting_down
from engine.core.slot import Slot
from engine.core.standing import NEVER, Standing, Taker
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, TopicsError
from engine.formats.control import DeleteBody, encode_control_body
from engine.formats.frame import DELETE, FrameType
from engine.limits import MIB
from engine.queue.cohort import Cohort
from engine.queue.commands import Ack, Claim, Extend, Nack, Settled
from engine.queue.events import (
    Acked,
    DeadLettered,
    Extended,
    Leased,
    LeaseEvent,
    MoveRefused,
    encode_lease_body,
    is_logged,
)
from engine.queue.snapshot import LeaseInfo
from engine.ranges import ranges_of
from engine.topic.history import NotCached
from engine.types import EPHEMERAL, FSYNC, Durability

if TYPE_CHECKING:
    from engine.core.core import Core

HOLD_MS: Final = 10_000
"""How much longer a claim may be held for moves that have to come first."""
NACK_BYTES_MAX: Final = 256 * MIB
"""What one nack may move to the dead letters."""


class Queues(QueueReads):
    """All queues of one running store."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._next_lease = 1
        self._last_conn = 0
        self._poked: set[Host] = set()
        self.waiting: dict[Host, Slot] = {}
        """Queues on which somebody waits, or a claim stands."""
        self._due: int | None = None
        self._stale = False
        self.closing = False

    def begin(self, start: int) -> None:
        """Give leases the numbers of this start."""
        self._next_lease = (start << 32) + 1

    # -- claims ----------------------------------------------------------------------------------------------------

    def claim(self, name: str, claim: Claim, wait_ms: int) -> Waiter:
        """Ask for jobs; the waiter's ticket has the answer, perhaps at once."""
        slot, host = self._writable(name)
        now = self._core.now()
        waiter = Waiter(slot, host, claim, now + (0 if self.closing else wait_ms))
        if host.waiters is None and not slot.config.claim_jitter_ms:
            # Nobody is before it: mostly there is a job, and it never becomes one of those who wait.
            host.as_of(now)
            host.blocked = False
            leased = self._deal_fresh(slot, host, claim, now)
            if leased is not None:
                return self._served(waiter, leased)
            self._deal_in_turn(slot, host, [waiter], now)
            if waiter.leased is None and not waiter.ticket.done:
                self._join(waiter, now)
                self._answer_late(host, now)
                self._rest(host)
        elif self._join(waiter, now):
            self._serve(host, slot, now)
        return waiter

    def claim_at_once(self, name: str, claim: Claim) -> ClaimAnswer | None:
        """What `claim` gives to nearly everybody, where nothing has to be waited for or read; None where it is to be
        asked. Nobody has to be waked by it. Who cannot be given it after all takes a waiter (`hold`)."""
        slot, host = self._writable(name)
        if host.waiters is not None or slot.config.claim_jitter_ms:
            return None
        now = self._core.now()
        queue = host.as_of(now)
        host.blocked = False
        leased = self._deal_fresh(slot, host, claim, now)
        return None if leased is None else ClaimAnswer(leased, queue.live - queue.in_flight - queue.delayed)

    def hold(self, name: str, claim: Claim, given: ClaimAnswer) -> Waiter:
        """The waiter that stands for what was given at once."""
        assert given.leased is not None, "there are jobs"
        slot, host = self.find(name)
        return self._served(Waiter(slot, host, claim, 0), given.leased)

    @staticmethod
    def _served(waiter: Waiter, leased: Leased) -> Waiter:
        waiter.leased = leased
        waiter.ticket.complete(ClaimAnswer(leased, max(waiter.host.queue.ready, 0)))
        return waiter

    def _deal_fresh(self, slot: Slot, host: Host, claim: Claim, now: int) -> Leased | None:
        """Deal what nearly every claim gets, where that needs no frame and no read: as `_deal` would, but at once."""
        config = slot.config
        if config.leases_durable:
            return None
        queue = host.queue
        try:
            leased = queue.claim_fresh(claim, config, now, self._next_lease)
        except NotCached:
            return None
        if leased is not None:
            self._next_lease += len(leased.jobs)
            queue.apply(leased)
            host.uncovered = True
        return leased

    @property
    def uncovered(self) -> bool:
        """Whether the next start would know less of some job: deliveries were counted in memory only."""
        hosts = (slot.host for slot in self._core.catalog.by_id.values() if slot.host is not None)
        return any(host.uncovered and host.queue.is_known for host in hosts)

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for jobs, so that what happens to leases may matter to a turn."""
        return bool(self.waiting)

    def _join(self, waiter: Waiter, now: int) -> bool:
        """Be among those who wait; False when a window has to end first."""
        host, slot = waiter.host, waiter.slot
        waiters = self._watch(host, slot)
        if slot.config.claim_jitter_ms and host.queue.ready > 0:
            host.cohort = host.cohort or Cohort()
            host.cohort.join(waiter, now, slot.config.claim_jitter_ms)
            return False
        waiters.append(waiter)
        return True

    def _watch(self, host: Host, slot: Slot) -> deque[Waiter]:
        """Hear of what happens to a queue; returns those who wait there."""
        if host.waiters is None:
            host.waiters = deque()
            host.poked = self._poked
            self.waiting[host] = slot
        self._stale = True
        return host.waiters

    def forget(self, waiter: Waiter) -> None:
        """Whoever claimed has gone away, and gets no job."""
        host = waiter.host
        if host.waiters is not None and waiter in host.waiters:
            host.waiters.remove(waiter)
        if host.cohort is not None:
            host.cohort.leave(waiter)
        self._rest(host)

    def undeliver(self, waiter: Waiter) -> None:
        """The answer was never written: its leases end, and their deliveries do not count."""
        self.forget(waiter)
        if waiter.leased is not None:
            self.take_back(waiter.slot, waiter.host, waiter.leased)

    def take_back(self, slot: Slot, host: Host, leased: Leased) -> None:
        """End those of these leases that still hold; their deliveries do not count."""
        if slot.dropped:
            return
        event = host.queue.undeliver(leased, self._now(host))
        if event is not None:
            self._happen_anyway(slot, host, event)

    # -- claims that stand -----------------------------------------------------------------------------------------

    def stand(self, name: str, claim: Claim, taker: Taker) -> Standing:
        """Claim for as long as somebody is there, never more than `claim.max` jobs at a time, from the next turn on.

        Raises what a claim raises.
        """
        slot, host = self._writable(name)
        if self.closing:
            raise shutting_down()
        self._last_conn += 1
        standing = Standing(self, slot, host, msgspec.structs.replace(claim, conn=self._last_conn), taker)
        self._watch(host, slot)
        host.standing = host.standing or {}
        host.standing[self._last_conn] = standing
        self.freed(standing)
        return standing

    def drain(self, name: str, node: str) -> int:
        """Let those of a queue's standing claims that are `node`'s take nothing more; returns how many there are."""
        _, host = self.find(name)
        found = [one for one in (host.standing or {}).values() if one.claim.node == node]
        for standing in found:
            standing.drain()
        return len(found)

    def freed(self, standing: Standing) -> None:
        """It may take more jobs: see to it when its queue is served next."""
        standing.host.queue.freed.add(standing.claim.conn)
        standing.host.poke()

    def leave(self, standing: Standing) -> None:
        """A connection has ended, and with it the leases that are bound to it."""
        slot, host, conn = standing.slot, standing.host, standing.claim.conn
        if host.standing is not None:
            host.standing.pop(conn, None)
        if not slot.dropped:
            event = host.queue.release(conn, self._now(host))
            if event is not None:
                self._happen_anyway(slot, host, event)
        host.queue.freed.discard(conn)
        if standing.waiter is not None:
            self.forget(standing.waiter)
        self._rest(host)

    def _ask(self, host: Host, now: int) -> None:
        """Claim for those who stand here and have got room."""
        freed = host.queue.freed
        while freed:
            standing = (host.standing or {}).get(freed.pop())
            if standing is None:
                continue
            claim = standing.wanted
            if claim is None:
                standing.look()
                continue
            waiter = standing.waiter
            if waiter is not None and waiter.leased is None and not waiter.ticket.done:
                waiter.claim = claim
                continue
            waiter = standing.waiter = Waiter(standing.slot, host, claim, NEVER)
            waiter.ticket.on_done = standing.answered
            leased = None
            if not host.waiters and not standing.slot.config.claim_jitter_ms:
                leased = self._deal_fresh(standing.slot, host, claim, now)
            if leased is None:
                self._join(waiter, now)
            else:
                self._served(waiter, leased)

    # -- serving those who wait ------------------------------------------------------------------------------------

    def serve(self, now: int) -> None:
        """Deal to those who wait, where something has changed or a time has come."""
        if not self.waiting:
            self._poked.clear()
            return
        due = self.due_ms
        if due is not None and due <= now:
            for host in self.waiting:
                own = self._due_of(host)
                if own is not None and own <= now:
                    self._poked.add(host)
        if not self._poked:
            return
        hosts = list(self._poked)
        self._poked.clear()
        self._stale = True
        for host in hosts:
            slot = self.waiting.get(host)
            if slot is not None:
                self._serve(host, slot, now)

    @property
    def due_ms(self) -> int | None:
        """When to serve next though nothing happens; None for never."""
        if self._stale:
            self._stale = False
            times = [due for host in self.waiting if (due := self._due_of(host)) is not None]
            self._due = min(times, default=None)
        return self._due

    @staticmethod
    def _due_of(host: Host) -> int | None:
        held = HOLD_MS if host.moving or host.blocked else 0
        times = [waiter.until_ms + held for waiter in host.waiters or () if waiter.until_ms < NEVER]
        if (host.waiters or host.standing) and (wake := host.queue.next_wake_ms()) is not None:
            times.append(wake)
        if host.cohort is not None and host.cohort.due_ms is not None:
            times.append(host.cohort.due_ms)
        return min(times, default=None)

    def _serve(self, host: Host, slot: Slot, now: int) -> None:
        self._stale = True
        waiters = host.waiters
        assert waiters is not None, "somebody waits"
        error = self._why_not(slot)
        if error is not None:
            for waiter in [*waiters, *(host.cohort.take(1 << 63) if host.cohort else ())]:
                waiter.ticket.fail(error)
            waiters.clear()
            for standing in list((host.standing or {}).values()):
                standing.refuse(error)
            self._rest(host)
            return
        host.as_of(now)
        host.blocked = False
        self._ask(host, now)
        if host.waiters is None:
            return  # The last one has left.
        if host.cohort is not None:
            waiters.extend(host.cohort.take(now))
        together = bool(slot.config.claim_jitter_ms)
        for group in [list(waiters)] if together else [[waiter] for waiter in list(waiters)]:
            if host.queue.ready <= 0 or host.blocked:
                break
            self._deal_in_turn(slot, host, group[: host.queue.ready], now)
        self._answer_late(host, now)
        self._rest(host)

    def _deal_in_turn(self, slot: Slot, host: Host, group: list[Waiter], now: int) -> None:
        """Deal to claims that are served together, if there is anything; who cannot be served is told why."""
        if host.queue.ready <= 0:
            return
        try:
            self._deal(slot, host, group, now)
        except TopicsError as failure:
            for waiter in group:
                if waiter.leased is None:
                    waiter.ticket.fail(failure)

    def _answer_late(self, host: Host, now: int) -> None:
        """Take out who is served, and who has waited long enough for nothing."""
        waiters = host.waiters
        if waiters is None:
            return  # The last one has left over what it was given.
        held = HOLD_MS if host.moving or host.blocked else 0
        over = [one for one in waiters if one.leased is None and now >= one.until_ms + held]
        kept = [one for one in waiters if one.leased is None and not one.ticket.done and now < one.until_ms + held]
        host.waiters = deque(kept)
        for waiter in over:
            waiter.ticket.complete(ClaimAnswer(None, max(host.queue.ready, 0)))

    def _rest(self, host: Host) -> None:
        """Nobody waits any more, perhaps."""
        self._stale = True
        if not host.waiters and not host.cohort and not host.standing:
            host.waiters = None
            host.cohort = None
            host.poked = None
            self.waiting.pop(host, None)
            self._poked.discard(host)

    def _deal(self, slot: Slot, host: Host, group: list[Waiter], now: int) -> None:
        """Decide about claims that are served together, and let it happen."""
        queue, claims = host.queue, [waiter.claim for waiter in group]
        claimed = self._read(lambda: queue.claim(claims, slot.config, now, self._next_lease))
        moved, plan = claimed.moved, None
        if moved is not None:
            plan = self._read(partial(plan_moves, self._core, slot, moved, MOVE_BYTES, whole=False))
            if plan is None and being_made(self._core, slot):
                # Who is answered now would find the jobs that this claim moves still here, and nothing to move them.
                host.blocked = True
                self._poked.add(host)
                return
        self._next_lease = claimed.next_lease_id
        held = Held() if isinstance(plan, Plan) else None
        for waiter, leased in zip(group, claimed.leased, strict=True):
            if leased is None:
                continue
            waiter.leased = leased
            answer = partial(self._claimed, host, leased)
            if not self._happen(slot, host, leased, held.ticket(waiter) if held else waiter.ticket, answer):
                waiter.leased = None
                break
        else:
            if moved is None or self._move(slot, host, moved, plan, held.moves() if held else None, None):
                return
        host.blocked = True
        self._poked.add(host)
        if held:
            held.over()

    @staticmethod
    def _claimed(host: Host, leased: Leased) -> ClaimAnswer:
        return ClaimAnswer(leased, max(host.queue.ready, 0))

    # -- events ----------------------------------------------------------------------------------------------------

    def _now(self, host: Host) -> int:
        now = self._core.now()
        host.as_of(now)
        self._stale = self._stale or host.waiters is not None
        return now

    def _happen(
        self,
        slot: Slot,
        host: Host,
        event: LeaseEvent,
        ticket: Ticket[Any] | None,
        answer: Callable[[], Any] | None,
    ) -> bool:
        """Log an event if that is due, and apply it; False when the log has no room for it now."""
        core = self._core
        if slot.config.durability is Durability.EPHEMERAL or not is_logged(event, slot.config.leases_durable):
            host.queue.apply(event)
            host.uncovered = True
            if ticket is not None and answer is not None:
                ticket.complete(answer())
            return True
        body = encode_lease_body(event)
        if not core._room(slot.shard, len(body), control=not isinstance(event, Leased)):
            return False
        end = core.wal.stage(slot.shard, FrameType.LEASE, 0, 0, slot.topic.id, 0, core.now(), body)
        host.queue.apply(event)
        core.commit.add(StagedAnswer(slot, ticket, answer), end, sync=slot.config.durability is Durability.FSYNC)
        return True

    def _happen_anyway(self, slot: Slot, host: Host, event: LeaseEvent) -> None:
        """The same for what happens whether or not it can be logged; the next start may have forgotten it then."""
        try:
            if not self._happen(slot, host, event, None, None):
                host.queue.apply(event)
        except TopicsError:
            host.queue.apply(event)
        host.poke()

    def _move(
        self,
        slot: Slot,
        host: Host,
        moved: DeadLettered,
        plan: Plan | str | None,
        ticket: Ticket[Any] | None,
        answer: Callable[[], Any] | None,
    ) -> bool:
        """Move jobs to the dead letters, or say why they stay; False when it is too early for either."""
        if plan is None:
            return False
        if isinstance(plan, Plan):
            return stage_move(self._core, slot, plan, ticket, answer)
        done = ticket is None
        refused, *nacked = host.queue.refuse_moves(moved, plan, self._core.now())
        for event in nacked:
            assert not isinstance(event, MoveRefused), "there is one"
            done = self._happen(slot, host, event, ticket, answer)  # type: ignore[arg-type]  # it is a Nacked
        if nacked and not done:
            return False
        host.queue.apply(refused)
        return True

    # -- the ends of leases ----------------------------------------------------------------------------------------

    def ack(self, name: str, command: Ack) -> Ticket[SettleAnswer]:
        """Jobs are done: they are deleted."""
        return self._command(name, self._ack, command)

    def nack(self, name: str, command: Nack) -> Ticket[SettleAnswer]:
        """Jobs are given back, or go to the dead letters."""
        return self._command(name, self._nack, command)

    def extend(self, name: str, command: Extend) -> Ticket[SettleAnswer]:
        """Leases hold longer."""
        return self._command(name, self._extend, command)

    def _command(self, name: str, act: Callable[[Ticket[Any], str, Any], bool], command: Any) -> Ticket[SettleAnswer]:
        core = self._core
        ticket: Ticket[SettleAnswer] = Ticket()
        if core.parking.entries and core.parking.blocks(name):
            self.find(name)
        elif act(ticket, name, command):
            return ticket
        core._park(name, ticket, partial(act, ticket, name, command))
        return ticket

    def _begin(self, name: str) -> tuple[Slot, Host, int]:
        slot, host = self._writable(name)
        now = self._core.now()
        host.as_of(now)
        if host.waiters is not None:
            self._stale = True
        return slot, host, now

    @staticmethod
    def _settled(host: Host, settled: Settled, deadline: int = 0) -> SettleAnswer:
        queue = host.queue
        ready = queue.live - queue.in_flight - queue.delayed
        return SettleAnswer(settled.seqs, settled.skipped, max(ready, 0), queue.in_flight, deadline)

    def _nothing(self, slot: Slot, settled: Settled, ticket: Ticket[Any], answer: Callable[[], SettleAnswer]) -> bool:
        """No seq counted: that is the answer, once what it speaks of is so."""
        if settled.waits:
            self._core.commit.add_free(StagedAnswer(slot, ticket, answer))
        else:
            ticket.complete(answer())
        return True

    def _ack(self, ticket: Ticket[SettleAnswer], name: str, command: Ack) -> bool:
        core = self._core
        slot, host, now = self._begin(name)
        settled = host.queue.ack(command, now)
        answer = partial(self._settled, host, settled)
        event = settled.event
        if not isinstance(event, Acked):
            return self._nothing(slot, settled, ticket, answer)
        into = core.commit.open_for(slot, StagedTake, now)
        if into is not None and into.join(core.commit, ticket, event, answer):
            host.queue.stage(event)
            return True
        seqs = event.seqs
        ranges = [(seqs[0], seqs[0])] if len(seqs) == 1 else ranges_of(seqs)
        logged = ranges
        if slot.config.durability is EPHEMERAL:
            logged = [(first, min(last, slot.logged)) for first, last in ranges if first <= slot.logged]
        change = StagedTake(slot, ticket, event, ranges, answer)
        if not logged:
            host.queue.stage(event)
            core.commit.add_free(change)
            return True
        body = encode_control_body(DeleteBody(ranges=logged, acked=True))
        if not core.wal.room(slot.shard, len(body), True) and not core._room(slot.shard, len(body), control=True):
            return False
        end = core.wal.stage(slot.shard, DELETE, 0, 0, slot.topic.id, 0, now, body)
        host.queue.stage(event)
        core.commit.add(change, end, sync=slot.config.durability is FSYNC)
        if logged is ranges:
            core.commit.books[slot.shard].open = change
        core._time_is_fresh = True  # for the rest of the group, as after a write
        return True

    def _nack(self, ticket: Ticket[SettleAnswer], name: str, command: Nack) -> bool:
        slot, host, now = self._begin(name)
        settled = host.queue.nack(command, slot.config, now)
        answer = partial(self._settled, host, settled)
        if settled.moved is not None:
            moved = settled.moved
            plan = self._read(partial(plan_moves, self._core, slot, moved, NACK_BYTES_MAX, whole=True))
            if isinstance(plan, Plan) and len(plan.moved.moves) < len(moved.moves):
                raise Refused(Code.BATCH_TOO_LARGE, "these jobs are too large to be moved together; nack fewer")
            return self._move(slot, host, moved, plan, ticket, answer)
        if settled.event is None:
            return self._nothing(slot, settled, ticket, answer)
        assert not isinstance(settled.event, Acked), "a nack deletes nothing"
        if not self._happen(slot, host, settled.event, ticket, answer):
            return False
        host.poke()
        return True

    def _extend(self, ticket: Ticket[SettleAnswer], name: str, command: Extend) -> bool:
        slot, host, now = self._begin(name)
        settled = host.queue.extend(command, slot.config, now)
        event = settled.event
        if not isinstance(event, Extended):
            return self._nothing(slot, settled, ticket, partial(self._settled, host, settled))
        return self._happen(slot, host, event, ticket, partial(self._settled, host, settled, event.deadline))

    # -- what there is ---------------------------------------------------------------------------------------------

    def leases(self, name: str, after: int, limit: int) -> list[LeaseInfo]:
        """Live leases by seq, behind `after`."""
        _, host = self.find(name)
        return host.queue.leases(self._now(host), after, limit)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut(self) -> None:
        """The store is being closed: nobody waits any longer."""
        self.closing = True
        for host in list(self.waiting):
            for waiter in [*(host.waiters or ()), *(host.cohort.take(1 << 63) if host.cohort else ())]:
                if waiter.leased is None:
                    waiter.ticket.fail(shutting_down())
            for standing in list((host.standing or {}).values()):
                standing.refuse(shutting_down())
            host.waiters = host.standing = None
            self._rest(host)
