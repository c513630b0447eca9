"""The state of a queue, and how each event changes it: the *apply* of `decide → log → apply`.

What may happen is decided in `machine.py`; nothing here refuses anything. Events come from decisions and, at a start,
from the log, where claims may be missing that were never logged: so an event takes a job in whatever state it is, and
leaves it as the event says. What is gone from the topic stays gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from sys import intern
from typing import Any, Final, TypeVar

from engine.queue.events import (
    Acked,
    Appended,
    DeadLettered,
    Event,
    Extended,
    Leased,
    MoveRefused,
    Nacked,
    Released,
    Removed,
    Restarted,
    TimePassed,
    Undelivered,
    Why,
)
from engine.queue.job import Job, Phase, key, ms_of, seq_of
from engine.queue.jobs import Jobs
from engine.queue.ready import Ready
from engine.queue.snapshot import KnownJob, LeaseInfo, QueueCounters, QueueSnapshot
from engine.queue.timers import Timers
from engine.queue.trail import Delivery, End, extended

Q = TypeVar("Q", bound="State")


class State:
    """The state of one queue. Its attributes are for reading; `apply` and `stage` change them."""

    __slots__ = (
        "_held",
        "_jobs",
        "_known",
        "_leaving",
        "_ready",
        "_repeat",
        "_timers",
        "acked",
        "dead_letter_problem",
        "dead_lettered",
        "delayed",
        "deleted",
        "evicted",
        "freed",
        "in_flight",
        "live",
        "lost",
        "now_ms",
    )

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._known: dict[int, Job] = {}
        self._ready = Ready(jobs, self._known)
        self._timers = Timers(self._is_due)
        self._leaving: set[int] = set()
        self._held: dict[int, set[int]] = {}
        """Seqs leased to each connection."""
        self.freed: set[int] = set()
        """Connections that hold fewer jobs than they did; whoever serves them takes them out."""
        self._repeat = False
        """Whether the last place went to a third or later delivery."""
        self.now_ms = 0
        self.live = self.in_flight = self.delayed = 0
        self.acked = self.dead_lettered = self.deleted = self.evicted = self.lost = 0
        self.dead_letter_problem: str | None = None

    # -- what there is ---------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Jobs that a claim could get."""
        return self.live - self.in_flight - self.delayed

    @property
    def written(self) -> int:
        """Jobs that ever were."""
        return self.live + self.acked + self.dead_lettered + self.deleted + self.evicted + self.lost

    def counters(self, now: int) -> QueueCounters:
        """The counters, at `now`."""
        self.apply(TimePassed(now))
        oldest = self._ready.oldest_ms()
        return QueueCounters(
            ready=self.ready,
            in_flight=self.in_flight,
            delayed=self.delayed,
            written=self.written,
            acked=self.acked,
            dead_lettered=self.dead_lettered,
            deleted=self.deleted,
            evicted=self.evicted,
            lost=self.lost,
            oldest_ready_ms=None if oldest is None else max(now - oldest, 0),
            dead_letter_problem=self.dead_letter_problem,
        )

    def next_wake_ms(self) -> int | None:
        """When the nearest lease expires or delay ends: somebody who waits should look again then."""
        return self._timers.next_ms()

    def held_by(self, conn: int) -> int:
        """How many leases a connection holds."""
        return len(self._held.get(conn, ()))

    def leases(self, now: int, after: int, limit: int) -> list[LeaseInfo]:
        """Live leases by seq, from the first one behind `after`; takes a look at every known job."""
        self.apply(TimePassed(now))
        leased = (seq for seq, job in self._known.items() if job.phase is Phase.LEASED and seq > after)
        return [
            LeaseInfo(seq, job.node, job.lease_id, ms_of(job.due), job.deliveries)
            for seq in nsmallest(limit, leased)
            for job in (self._known[seq],)
        ]

    # -- the changes -----------------------------------------------------------------------------------------------

    def stage(self, event: Acked | DeadLettered) -> None:
        """The frame of an event is staged that takes jobs away: until it is applied they are nobody's.

        For requeues, which delete a job that was perhaps never delivered, a `DeadLettered` does as well: see `leave`.
        """
        seqs = event.seqs if isinstance(event, Acked) else (move.seq for move in event.moves)
        self.leave(seqs)

    def leave(self, seqs: Iterable[int]) -> None:
        """These jobs are about to be removed: until they are, they are nobody's."""
        for seq in seqs:
            if seq not in self._known and self._jobs.is_live(seq):
                # A job that only the cursor knows is given a name, so that the cursor may pass it.
                job = self._known[seq] = Job(0, 0)
                self._ready.add(seq, job, 0)
            self._leaving.add(seq)

    def is_leaving(self, seq: int) -> bool:
        """Whether it is about to be removed."""
        return seq in self._leaving

    def apply(self, event: Event) -> None:
        """Let the event happen. `Acked` and `DeadLettered` come before the topic's own change, the rest after it."""
        if not isinstance(event, Appended | Removed):
            self._pass_time(event.at)
        _APPLY[type(event)](self, event)

    def _pass_time(self, now: int) -> None:
        """Leases whose deadline has come have expired at it, delays that have ended make jobs ready."""
        if now <= self.now_ms:
            return
        self.now_ms = now
        while (due := self._timers.pop_due(now)) is not None:
            seq, at = seq_of(due), ms_of(due)
            job = self._known[seq]
            if job.phase is Phase.LEASED:
                self._remember(job, Delivery(job.deliveries, job.node, job.claimed_ms, at, End.EXPIRED))
            self._leave_state(seq, job)
            self._ready.add(seq, job, at)

    def _time_passed(self, _event: TimePassed) -> None:
        """All of it has happened in `_pass_time`."""

    def _restarted(self, event: Restarted) -> None:
        if event.leases_durable:
            return
        for seq, job in self._known.items():
            if job.phase is Phase.LEASED:
                self._remember(job, Delivery(job.deliveries, job.node, job.claimed_ms, event.at, End.RESTARTED))
                self._leave_state(seq, job)
                self._ready.add(seq, job, event.at)

    def _leased(self, event: Leased) -> None:
        at, deadline, conn = event.at, event.deadline, event.conn
        node = intern(event.node)  # Leases of one worker share one string, whoever parsed it how often.
        known, leased = self._known, []
        live = self._are_live([seq for seq, _ in event.jobs])
        for lease_id, (seq, deliveries) in enumerate(event.jobs, event.lease_id):
            job = known.get(seq)
            if job is not None:
                self._leave_state(seq, job)
            elif not live and not self._jobs.is_live(seq):
                continue
            due = key(deadline, seq)
            known[seq] = Job(
                due, deliveries, Phase.LEASED, lease_id, node, at, conn, None if job is None else job.trail
            )
            leased.append(due)
        self.in_flight += len(leased)
        self._timers.push(leased, self.in_flight + self.delayed)
        if conn and leased:
            self._held.setdefault(conn, set()).update(map(seq_of, leased))
        self._repeat = event.repeat
        self._ready.cursor = max(self._ready.cursor, event.passed)

    def _extended(self, event: Extended) -> None:
        for seq, lease_id in event.jobs:
            job = self._known.get(seq)
            if job is not None and job.phase is Phase.LEASED and job.lease_id == lease_id:
                self._wait_until(seq, job, event.deadline)

    def _nacked_applied(self, event: Nacked) -> None:
        for nacked in event.jobs:
            seq = nacked.seq
            job = self._name(seq)
            if job is None:
                continue
            self._leave_state(seq, job)
            job.deliveries = nacked.deliveries
            self._remember(
                job, Delivery(nacked.deliveries, event.node, nacked.claimed, event.at, End.NACKED, event.reason)
            )
            self._ready_at(seq, job, nacked.ready_at, event.at)

    def _released(self, event: Released) -> None:
        for seq, lease_id in event.jobs:
            job = self._known.get(seq)
            if job is not None and job.phase is Phase.LEASED and job.lease_id == lease_id:
                self._leave_state(seq, job)
                self._remember(job, Delivery(job.deliveries, job.node, job.claimed_ms, event.at, End.RELEASED))
                self._ready.add(seq, job, event.at)

    def _undelivered(self, event: Undelivered) -> None:
        for seq, deliveries in event.jobs:
            job = self._name(seq) if deliveries else self._known.get(seq)
            if job is not None:
                self._leave_state(seq, job)
                job.deliveries = deliveries
                self._ready.add(seq, job, event.at)

    def _acked(self, event: Acked) -> None:
        self.acked += self._gone(event.seqs)

    def _dead_lettered(self, event: DeadLettered) -> None:
        self.dead_letter_problem = None
        self.dead_lettered += self._gone([move.seq for move in event.moves])

    def _move_refused(self, event: MoveRefused) -> None:
        self.dead_letter_problem = event.problem
        for seq, ready_at in event.jobs:
            job = self._known.get(seq)
            if job is not None:
                self._leave_state(seq, job)
                self._ready_at(seq, job, ready_at, event.at)

    def _appended(self, event: Appended) -> None:
        self.live += event.count

    def _removed(self, event: Removed) -> None:
        """Costs O(known jobs) at most, and less where the range is narrower: nothing for a job that is only counted."""
        first, last, known = event.first, event.last, self._known
        if last - first < len(known):
            seqs = [seq for seq in range(first, last + 1) if seq in known]
        else:
            seqs = [seq for seq in known if first <= seq <= last]
        for seq in seqs:
            self._forget(seq)
        self._leaving.difference_update(seqs)
        self.live -= event.count
        if event.why is Why.DELETED:
            self.deleted += event.count
        elif event.why is Why.EVICTED:
            self.evicted += event.count
        else:
            self.lost += event.count

    def _are_live(self, seqs: Sequence[int]) -> bool:
        """Whether all of several seqs are live, as one look can tell; False says nothing about any of them."""
        return len(seqs) > 1 and self._jobs.all_live(min(seqs), max(seqs))

    # -- how a job changes -----------------------------------------------------------------------------------------

    def _name(self, seq: int) -> Job | None:
        """The known job `seq`, made known if it is live (its claim was never logged); None when it is gone."""
        job = self._known.get(seq)
        if job is None and self._jobs.is_live(seq):
            job = self._known[seq] = Job(0, 0)
            self._ready.add(seq, job, 0)
        return job

    def _leave_state(self, seq: int, job: Job) -> None:
        """The job is neither ready, leased nor delayed any more; the caller says at once what it is instead."""
        phase, job.phase = job.phase, Phase.LEFT
        if phase is Phase.READY:
            self._ready.left(job)
        elif phase is Phase.DELAYED:
            self.delayed -= 1
        elif phase is Phase.LEASED:
            self.in_flight -= 1
            if job.conn:
                held = self._held[job.conn]
                held.discard(seq)
                self.freed.add(job.conn)
                if not held:
                    del self._held[job.conn]
                job.conn = 0

    def _ready_at(self, seq: int, job: Job, ms: int, now: int) -> None:
        """The job is ready at a time, which may be now."""
        if ms <= now:
            self._ready.add(seq, job, now)
        else:
            job.phase = Phase.DELAYED
            self.delayed += 1
            self._wait_until(seq, job, ms)

    def _wait_until(self, seq: int, job: Job, ms: int) -> None:
        job.due = key(ms, seq)
        self._timers.push((job.due,), self.in_flight + self.delayed)

    def _is_due(self, due: int) -> bool:
        job = self._known.get(seq_of(due))
        return job is not None and job.due == due and job.phase is not Phase.READY

    @staticmethod
    def _remember(job: Job, delivery: Delivery) -> None:
        job.trail = extended(job.trail, delivery)

    def _forget(self, seq: int) -> bool:
        """The record is gone, and what was known of it; False when nothing was."""
        job = self._known.pop(seq, None)
        if job is None:
            return False
        self._leave_state(seq, job)
        return True

    def _gone(self, seqs: Sequence[int]) -> int:
        """Jobs leave; returns how many of them had not left before."""
        count = sum(self._forget(seq) or self._jobs.is_live(seq) for seq in seqs)
        self._leaving.difference_update(seqs)
        self.live -= count
        return count

    # -- snapshots -------------------------------------------------------------------------------------------------

    def snapshot(self) -> QueueSnapshot:
        """What a checkpoint holds; the topic's own snapshot is of the same moment."""
        return QueueSnapshot(
            at=self.now_ms,
            live=self.live,
            acked=self.acked,
            dead_lettered=self.dead_lettered,
            deleted=self.deleted,
            evicted=self.evicted,
            lost=self.lost,
            cursor=self._ready.cursor,
            repeat=self._repeat,
            jobs=[
                KnownJob(
                    seq,
                    job.deliveries,
                    job.phase,
                    ms_of(job.due),
                    job.lease_id,
                    job.node,
                    job.claimed_ms,
                    job.trail,
                )
                for seq, job in self._known.items()
            ],
        )

    @classmethod
    def restore(cls: type[Q], jobs: Jobs, snapshot: QueueSnapshot) -> Q:
        """The queue of a snapshot. The log from there on is applied next, then `Restarted`."""
        queue = cls(jobs)
        queue.now_ms = snapshot.at
        queue.live = snapshot.live
        queue.acked, queue.dead_lettered = snapshot.acked, snapshot.dead_lettered
        queue.deleted, queue.evicted, queue.lost = snapshot.deleted, snapshot.evicted, snapshot.lost
        queue._ready.cursor = snapshot.cursor
        queue._repeat = snapshot.repeat
        for known in sorted(snapshot.jobs, key=lambda known: (known.due_ms, known.seq)):
            job = Job(0, known.deliveries, Phase(known.phase), known.lease_id, known.node, known.claimed_ms)
            job.trail = known.trail
            queue._known[known.seq] = job
            if job.phase is Phase.READY:
                queue._ready.add(known.seq, job, known.due_ms)
                continue
            queue.in_flight += job.phase is Phase.LEASED
            queue.delayed += job.phase is Phase.DELAYED
            queue._wait_until(known.seq, job, known.due_ms)
        return queue


_APPLY: Final[dict[type, Callable[[State, Any], None]]] = {
    TimePassed: State._time_passed,
    Restarted: State._restarted,
    Leased: State._leased,
    Extended: State._extended,
    Nacked: State._nacked_applied,
    Released: State._released,
    Undelivered: State._undelivered,
    Acked: State._acked,
    DeadLettered: State._dead_lettered,
    MoveRefused: State._move_refused,
    Appended: State._appended,
    Removed: State._removed,
}
