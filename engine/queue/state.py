"""The state of a queue, and how each event changes it: the *apply* of `decide → log → apply`.

What may happen is decided in `machine.py`; nothing here refuses anything. Events come from decisions and, at a start,
from the log, where claims may be missing that were never logged: so an event takes a job in whatever state it is, and
leaves it as the event says. What is gone from the topic stays gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
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
from engine.queue.run import Run
from engine.queue.snapshot import KnownJob, LeaseInfo, QueueCounters, QueueSnapshot
from engine.queue.timers import Timers
from engine.queue.trail import Delivery, End, extended
from engine.ranges import runs_of
from engine.types import U64_MAX

Q = TypeVar("Q", bound="State")


class State:
    """The state of one queue. Its attributes are for reading; `apply` and `stage` change them."""

    __slots__ = (
        "_headless",
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
        self._known: dict[int, Job | Run] = {}
        """Jobs by seq. A `Run` stands under each of its seqs; `_job` is how to look at one of them by itself."""
        self._headless: dict[int, Run] = {}
        """Runs whose first job has left, though others have not, by `due`."""
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

    @property
    def is_known(self) -> bool:
        """Whether more is known of some job than that it was written: a lease, a delay, deliveries."""
        return bool(self._known)

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
            if (job := self._seen(seq)) is not None
        ]

    # -- the changes -----------------------------------------------------------------------------------------------

    def stage(self, event: Acked | DeadLettered) -> None:
        """The frame of an event is staged that takes jobs away: until it is applied they are nobody's.

        For requeues, which delete a job that was perhaps never delivered, a `DeadLettered` does as well: see `leave`.
        """
        self.leave(event.seqs if isinstance(event, Acked) else [move.seq for move in event.moves])

    def leave(self, seqs: Sequence[int]) -> None:
        """These jobs are about to be removed: until they are, they are nobody's."""
        if not all(map(self._known.__contains__, seqs)):
            for seq in seqs:
                if seq not in self._known:
                    # A job that only the cursor knows is given a name, so that the cursor may pass it.
                    self._name(seq)
        self._leaving.update(seqs)

    def is_leaving(self, seq: int) -> bool:
        """Whether it is about to be removed."""
        return seq in self._leaving

    def apply(self, event: Event) -> None:
        """Let the event happen. `Acked` and `DeadLettered` come before the topic's own change, the rest after it."""
        kind = type(event)
        if kind not in _TIMELESS and (at := event.at) > self.now_ms:  # type: ignore[union-attr]  # all others have one
            self.pass_time(at)
        _APPLY[kind](self, event)

    def pass_time(self, now: int) -> None:
        """Leases whose deadline has come have expired at it, delays that have ended make jobs ready."""
        if now <= self.now_ms:
            return
        self.now_ms = now
        while (due := self._timers.pop_due(now)) is not None:
            at, first = ms_of(due), seq_of(due)
            job = self._known.get(first)
            if type(job) is Job and job.due == due and job.phase is not Phase.READY:
                self._over(first, job, at)
            run = job if isinstance(job, Run) and job.due == due else self._headless.get(due)
            if run is not None:
                self._run_over(run, at)

    def _over(self, seq: int, job: Job, at: int) -> None:
        """The time has come at which a lease or a delay is over."""
        if job.phase is Phase.LEASED:
            self._remember(job, Delivery(job.deliveries, job.node, job.claimed_ms, at, End.EXPIRED))
        self._leave_state(seq, job)
        self._ready.add(seq, job, at)

    def _run_over(self, run: Run, at: int) -> None:
        """The same for all leases of a run that are left: many may end at once, 0.5 µs each."""
        known = self._known
        seqs = [seq for seq in run.seqs if known.get(seq) is run]
        trail = extended(None, Delivery(1, run.node, run.claimed_ms, at, End.EXPIRED))
        jobs = [Job(0, 1, Phase.LEFT, run.shift + seq, run.node, run.claimed_ms, 0, trail) for seq in seqs]
        known.update(zip(seqs, jobs, strict=True))
        self._let_go(run.conn, seqs)
        self._shrink(run, seqs)
        self._ready.add_delivered_once(seqs, jobs, at)

    def _time_passed(self, _event: TimePassed) -> None:
        """All of it has happened in `pass_time`."""

    def _restarted(self, event: Restarted) -> None:
        if event.leases_durable:
            return
        for seq in self._known:
            job = self._job(seq)
            if job is not None and job.phase is Phase.LEASED:
                self._remember(job, Delivery(job.deliveries, job.node, job.claimed_ms, event.at, End.RESTARTED))
                self._leave_state(seq, job)
                self._ready.add(seq, job, event.at)

    def _leased(self, event: Leased) -> None:
        node = intern(event.node)  # Leases of one worker share one string, whoever parsed it how often.
        jobs = event.jobs
        if event.fresh:
            due = [self._lease_run(event, jobs[0][0], jobs[-1][0], event.lease_id, node)]
        else:
            seqs = [seq for seq, _ in jobs]
            first_time = [deliveries for _, deliveries in jobs].count(1) == len(seqs)
            runs = runs_of(seqs) if first_time and self._known.keys().isdisjoint(seqs) else []
            for first, last in runs:
                if not self._jobs.all_live(first, last):
                    runs = []
            due = self._lease_runs(event, runs, node) if runs else self._lease_each(event, node)
        self._timers.push(due, self.in_flight + self.delayed)
        self._repeat = event.repeat
        if event.passed > self._ready.cursor:
            self._ready.cursor = event.passed

    def _lease_runs(self, event: Leased, runs: list[tuple[int, int]], node: str) -> list[int]:
        """Lease jobs that were never delivered before; returns the keys of what is to be waited for."""
        lease_id, keys = event.lease_id, []
        for first, last in runs:
            keys.append(self._lease_run(event, first, last, lease_id, node))
            lease_id += last - first + 1
        return keys

    def _lease_run(self, event: Leased, first: int, last: int, lease_id: int, node: str) -> int:
        """The same for those that lie in a row."""
        due, count, conn = event.deadline << 64 | first, last - first + 1, event.conn
        run = Run(due, last, lease_id - first, node, event.at, conn, count)
        if count == 1:
            self._known[first] = run
        else:
            self._known.update(dict.fromkeys(run.seqs, run))
        if conn:
            self._hold(conn, run.seqs)
        else:
            self.in_flight += count
        return due

    def _lease_each(self, event: Leased, node: str) -> list[int]:
        """The same for any jobs, one by one; those that are gone are passed over."""
        keys = []
        for lease_id, (seq, deliveries) in enumerate(event.jobs, event.lease_id):
            job = self._job(seq)
            if job is not None:
                self._leave_state(seq, job)
            elif not self._jobs.is_live(seq):
                continue
            due, trail = key(event.deadline, seq), None if job is None else job.trail
            self._known[seq] = Job(due, deliveries, Phase.LEASED, lease_id, node, event.at, event.conn, trail)
            self._hold(event.conn, (seq,))
            keys.append(due)
        return keys

    def _hold(self, conn: int, seqs: Sequence[int]) -> None:
        """These jobs are leased, perhaps to a connection."""
        self.in_flight += len(seqs)
        if conn:
            self._held.setdefault(conn, set()).update(seqs)

    def _extended(self, event: Extended) -> None:
        for seq, lease_id in event.jobs:
            job = self._job(seq)
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
            job = self._job(seq)
            if job is not None and job.phase is Phase.LEASED and job.lease_id == lease_id:
                self._leave_state(seq, job)
                self._remember(job, Delivery(job.deliveries, job.node, job.claimed_ms, event.at, End.RELEASED))
                self._ready.add(seq, job, event.at)

    def _undelivered(self, event: Undelivered) -> None:
        for seq, deliveries in event.jobs:
            job = self._name(seq) if deliveries else self._job(seq)
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
            job = self._job(seq)
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
        self._forget_all(seqs)
        self._leaving.difference_update(seqs)
        self.live -= event.count
        if event.why is Why.DELETED:
            self.deleted += event.count
        elif event.why is Why.EVICTED:
            self.evicted += event.count
        else:
            self.lost += event.count

    # -- how a job changes -----------------------------------------------------------------------------------------

    def _seen(self, seq: int) -> Job | None:
        """The known job `seq`, to look at only."""
        job = self._known.get(seq)
        return job.job(seq) if isinstance(job, Run) else job

    def _job(self, seq: int) -> Job | None:
        """The known job `seq`, by itself from now on: it leaves its run, if it is in one."""
        job = self._known.get(seq)
        if not isinstance(job, Run):
            return job
        alone = self._leave_run(seq, job)
        self._timers.push((alone.due,), self.in_flight + self.delayed)
        return alone

    def _leave_run(self, seq: int, run: Run) -> Job:
        """A job stands by itself from now on; its deadline is the caller's to wait for."""
        job = self._known[seq] = run.job(seq)
        self._shrink(run, (seq,))
        return job

    def _shrink(self, run: Run, seqs: Sequence[int]) -> None:
        """Jobs are not in their run any more."""
        run.left -= len(seqs)
        if not run.left:
            self._headless.pop(run.due, None)
        elif seq_of(run.due) in seqs:
            self._headless[run.due] = run

    def _name(self, seq: int) -> Job | None:
        """The known job `seq`, made known if it is live (its claim was never logged); None when it is gone."""
        job = self._job(seq)
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
            self._let_go(job.conn, (seq,))
            job.conn = 0

    def _let_go(self, conn: int, seqs: Sequence[int]) -> None:
        """The leases of these jobs are over."""
        self.in_flight -= len(seqs)
        if conn:
            held = self._held[conn]
            held.difference_update(seqs)
            self.freed.add(conn)
            if not held:
                del self._held[conn]

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
        job = self._known.get(due & U64_MAX)
        return (job is not None and job.due == due and job.phase is not Phase.READY) or due in self._headless

    @staticmethod
    def _remember(job: Job, delivery: Delivery) -> None:
        job.trail = extended(job.trail, delivery)

    def _forget(self, seq: int) -> bool:
        """The record is gone, and what was known of it; False when nothing was."""
        job = self._known.pop(seq, None)
        if job is None:
            return False
        if isinstance(job, Run):
            self._let_go(job.conn, (seq,))
            self._shrink(job, (seq,))
        else:
            self._leave_state(seq, job)
        return True

    def _forget_all(self, seqs: list[int]) -> None:
        """The same for many known jobs, of which most are ready, or in runs: 0.3 µs each."""
        known, ready, runs = self._known, list[Job](), dict[int, tuple[Run, list[int]]]()
        for seq in seqs:
            job = known.pop(seq)
            if isinstance(job, Run):
                runs.setdefault(id(job), (job, []))[1].append(seq)
            elif job.phase is Phase.READY:
                job.phase = Phase.LEFT
                ready.append(job)
            else:
                self._leave_state(seq, job)
        for run, part in runs.values():
            self._let_go(run.conn, part)
            self._shrink(run, part)
        self._ready.all_left(ready)

    def _run_of(self, seqs: Sequence[int]) -> Run | None:
        """The run that holds all of these; None when none does, or a seq is there twice."""
        run, count = self._known.get(seqs[0]), len(seqs)
        if type(run) is not Run:
            return None
        if count > 1 and (len(set(seqs)) < count or list(map(self._known.get, seqs)).count(run) < count):
            return None
        return run

    def _gone(self, seqs: Sequence[int]) -> int:
        """Jobs leave; returns how many of them had not left before."""
        count = len(seqs)
        run = self._known.get(seqs[0]) if count == 1 else self._run_of(seqs) if seqs else None
        if type(run) is Run:
            if count == 1:
                del self._known[seqs[0]]
            else:
                deque(map(self._known.pop, seqs), 0)
            if run.conn:
                self._let_go(run.conn, seqs)
            else:
                self.in_flight -= count
            if run.left > 1 or self._headless:
                self._shrink(run, seqs)
        else:
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
                for seq in self._known
                if (job := self._seen(seq)) is not None
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


_TIMELESS: Final = frozenset((Appended, Removed))
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
