"""The rules of a queue, all of them: `decide → log → apply` (queues.md, "State and rules").

     written ──► ready ──claim──► leased ──ack──────────────► gone
                   ▲                │ │ └──extend (new deadline)
                   │  deadline      │ └──nack {delay}──► delayed ──► ready
                   └────────────────┘
     claim of a job with deliveries ≥ max_deliveries and a dead_letter ──► moved to that topic

A decision (`claim`, `ack`, `nack`, `extend`, `release`, `undeliver`) looks at the state and says which events follow;
`apply` (`state.py`) is all that changes state, and takes the same events from the log. There is no I/O, clock or chance
here: the time comes with each call and never falls, the jitter of a backoff is drawn from the lease's number.

Time is part of the state in one way: every decision at `now`, and every event at its own time, first lets time pass
(`TimePassed`). A lease holds until `now ≥ deadline`; what expired became ready at its deadline exactly, whenever that
is noticed. So it makes no difference to the outcome how often somebody looks, and expiry is never logged.

**What is logged** stands in `events.py`. In short: acks (as deletes) and moves to the dead letters always; nacks and
un-deliveries always, so that delays, reasons and counts survive and no count is ever too high; claims, extends and
releases only with `leases_durable`. Without it a crash makes all jobs that were in flight ready at once, and their
delivery counts may be low, never high.

**Two steps for what leaves.** Acks and moves change the topic, which shows a change only when its class allows. Such
an event is `stage`d when its frame is: from then on its jobs are nobody's (no claim, no second ack). It is `apply`ed
when it becomes visible, just before the topic's own change. All other events are applied as soon as they are staged.

**Memory.** Never-delivered jobs are not kept here at all: they are what is live in the topic (`Jobs`) beyond a cursor.
Jobs that one claim got in a row, for the first time, are one object (`run.py`); all others that were delivered are
known by name (`job.py`), in line by the time they became ready (`ready.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush
from itertools import repeat
from operator import sub
from typing import Final

from engine.errors import invalid
from engine.queue.commands import (
    CLAIM_MAX,
    MOVES_MAX,
    Ack,
    Claim,
    Claimed,
    Extend,
    Nack,
    Settled,
    Skip,
    clamped_lease_ms,
)
from engine.queue.events import (
    Acked,
    DeadLettered,
    Event,
    Extended,
    Leased,
    Move,
    MoveRefused,
    Nacked,
    NackedJob,
    Released,
    Undelivered,
)
from engine.queue.job import Job, Phase, seq_of
from engine.queue.ready import Ready
from engine.queue.run import Run
from engine.queue.state import State
from engine.queue.trail import Delivery, End, deliveries_of, extended
from engine.types import U64_MAX, TopicConfig

BACKOFF_FIRST_MS: Final = 1000
BACKOFF_MAX_MS: Final = 900_000
_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
"""2^64 over the golden ratio: its multiples modulo 2^64 spread evenly, so that neighbours do not retry together."""


def backoff_ms(deliveries: int, lease_id: int) -> int:
    """How long a job waits after its delivery number `deliveries`: 1 s × 2^(deliveries − 1), ±20 %, at most 15 min."""
    base = BACKOFF_FIRST_MS << min(max(deliveries, 1) - 1, 11)
    spread = (lease_id * _GOLDEN & U64_MAX) * 401 >> 64
    return min(base * (800 + spread) // 1000, BACKOFF_MAX_MS)


class _Choice:
    """What one decision has chosen so far, for all the claims that it serves."""

    __slots__ = ("leaving", "moves", "repeat", "taken")

    def __init__(self, leaving: set[int], repeat: bool) -> None:
        self.leaving = leaving
        self.taken: set[int] = set()
        self.moves: list[int] = []
        self.repeat = repeat


class _Walk:
    """A walk over one of the orders of ready jobs, which can be asked what comes next."""

    __slots__ = ("_choice", "_head", "_keys")

    def __init__(self, keys: Iterator[int], choice: _Choice) -> None:
        self._keys = keys
        self._choice = choice
        self._head: int | None = -1

    def peek(self) -> int | None:
        """The next key whose job is there to be taken, or None at the end."""
        head, choice = self._head, self._choice
        while head is not None and (head < 0 or (seq := head & U64_MAX) in choice.taken or seq in choice.leaving):
            head = self._head = next(self._keys, None)
        return head


class _Claimant:
    """One claim while it is being served."""

    __slots__ = ("bytes", "claim", "fresh", "jobs", "known_ended", "max", "often", "once", "passed")

    def __init__(self, claim: Claim, ready: Ready, choice: _Choice) -> None:
        self.claim = claim
        self.max = min(claim.max, CLAIM_MAX)
        self.once = _Walk(ready.once(claim.match), choice)
        self.often = _Walk(ready.often(claim.match), choice)
        self.fresh = _Walk(ready.fresh(claim.match), choice)
        self.jobs: list[tuple[int, int]] = []
        self.bytes = 0
        self.passed = 0
        self.known_ended = False
        """Whether both lines of known jobs have come to their ends."""


class _Rank(IntEnum):
    """The three orders of ready jobs."""

    ONCE = 1
    OFTEN = 2
    FRESH = 3


def _in_order(claimant: _Claimant, choice: _Choice) -> tuple[_Rank, int] | None:
    """The job that comes next for a claim (rule 1), with its rank; None when there is none.

    Jobs that are known come first, by the time they became ready. But a job before its third or later delivery takes
    at most every second place while never-delivered jobs wait. When moves are used up, nothing known is looked at.
    """
    if not claimant.known_ended and len(choice.moves) < MOVES_MAX:
        once, often = claimant.once.peek(), claimant.often.peek()
        claimant.known_ended = once is None and often is None
        often_first = often is not None and (once is None or often < once)
        if often is not None and often_first and (not choice.repeat or claimant.fresh.peek() is None):
            return _Rank.OFTEN, seq_of(often)
        if once is not None:
            return _Rank.ONCE, seq_of(once)
    fresh = claimant.fresh.peek()
    return None if fresh is None else (_Rank.FRESH, fresh)


def _move(seq: int, job: Job, trail: list[Delivery]) -> Move:
    return Move(seq, job.deliveries, tuple(trail))


class Queue(State):
    """One queue: its state, and the decisions about it."""

    __slots__ = ()

    # -- claims ----------------------------------------------------------------------------------------------------

    def claim(self, claims: list[Claim], config: TopicConfig, now: int, next_lease_id: int) -> Claimed:
        """Deal ready jobs to claims that are served together, in proportion to what each asked for (rules 1, 3, 5, 6).

        Costs O(jobs given + jobs moved), for a claim with a filter also what it passes over for the first time.
        """
        self.pass_time(now)
        if len(claims) == 1 and (leased := self.claim_fresh(claims[0], config, now, next_lease_id)) is not None:
            return Claimed(leased=[leased], moved=None, next_lease_id=next_lease_id + len(leased.jobs))
        choice = _Choice(self._leaving, self._repeat)
        exhausted = config.max_deliveries if config.dead_letter is not None else 0
        claimants = [_Claimant(claim, self._ready, choice) for claim in claims]
        turns = [(0.0, index) for index in range(len(claimants))]
        while len(turns) > 1:
            _, index = heappop(turns)
            claimant = claimants[index]
            if self._give(claimant, choice, exhausted) and len(claimant.jobs) < claimant.max:
                heappush(turns, (len(claimant.jobs) / claimant.max, index))
        for _, index in turns:  # The last one, which is mostly the only one, gets what is left.
            claimant = claimants[index]
            while not claimant.known_ended and len(claimant.jobs) < claimant.max:
                if not self._give(claimant, choice, exhausted):
                    break
            else:
                self._give_fresh(claimant, choice)
        return self._claimed(claimants, choice, config, now, next_lease_id)

    def claim_fresh(self, claim: Claim, config: TopicConfig, now: int, lease_id: int) -> Leased | None:
        """What nearly every claim gets: a run of never-delivered jobs. None when that is not the whole answer.

        The same as `claim` gives, at a fraction of its cost; time has passed to `now` already.
        """
        if self._ready.waiting or claim.match is not None:
            return None
        first = last = self._ready.next_beyond()
        if first is None or last is None:
            return None
        if claim.max == 1:
            jobs: tuple[tuple[int, int], ...] = ((first, 1),)
        else:
            most = min(claim.max, CLAIM_MAX)
            last, size = self._jobs.run(first, most)
            if size > claim.max_bytes or (last - first + 1 < most and last < self._jobs.head()):
                return None
            seqs = range(first, last + 1)
            if not self._known.keys().isdisjoint(seqs):
                return None
            jobs = tuple(zip(seqs, repeat(1)))
        lease_ms = config.lease_ms if claim.lease_ms is None else clamped_lease_ms(claim.lease_ms, 0)
        return Leased(now, claim.node, now + lease_ms, lease_id, jobs, last, False, claim.conn, True)

    def _give(self, claimant: _Claimant, choice: _Choice, exhausted: int) -> bool:
        """Fill a claim's next place; False when nothing is left for it, or the next job does not fit any more.

        Jobs that have had all their deliveries are moved on the way.
        """
        while (place := _in_order(claimant, choice)) is not None:
            rank, seq = place
            job = self._job(seq)
            deliveries = 0 if job is None else job.deliveries
            if 0 < exhausted <= deliveries:
                choice.taken.add(seq)
                choice.moves.append(seq)
                continue
            size = self._jobs.size(seq)
            if claimant.jobs and claimant.bytes + size > claimant.claim.max_bytes:
                return False
            claimant.bytes += size
            claimant.jobs.append((seq, deliveries + 1))
            choice.taken.add(seq)
            choice.repeat = rank is _Rank.OFTEN
            if rank is _Rank.FRESH and claimant.claim.match is None:
                claimant.passed = seq
            return True
        return False

    def _give_fresh(self, claimant: _Claimant, choice: _Choice) -> None:
        """What `_give` does again and again once only never-delivered jobs are left, in a loop as tight as can be."""
        if claimant.claim.match is None:
            self._give_runs(claimant, choice)
        jobs, fresh, size_of, taken = claimant.jobs, claimant.fresh, self._jobs.size, choice.taken
        max_bytes = claimant.claim.max_bytes
        while len(jobs) < claimant.max and (seq := fresh.peek()) is not None:
            claimant.bytes += size_of(seq)
            if claimant.bytes > max_bytes and jobs:
                return
            jobs.append((seq, 1))
            taken.add(seq)
            choice.repeat = False
            if claimant.claim.match is None:
                claimant.passed = seq

    def _give_runs(self, claimant: _Claimant, choice: _Choice) -> None:
        """The same by runs of seqs, as long as a whole run fits and nothing that is known lies in it."""
        jobs, known, taken = claimant.jobs, self._known.keys(), choice.taken
        while len(jobs) < claimant.max and (first := claimant.fresh.peek()) is not None:
            last, size = self._jobs.run(first, claimant.max - len(jobs))
            seqs, rest = range(first, last + 1), self._ready.fresh_beyond(last)
            fits = claimant.bytes + size <= claimant.claim.max_bytes
            if rest is None or not fits or not known.isdisjoint(seqs) or not taken.isdisjoint(seqs):
                return
            claimant.bytes += size
            jobs.extend(zip(seqs, repeat(1)))
            taken.update(seqs)
            choice.repeat = False
            claimant.passed = last
            claimant.fresh = _Walk(rest, choice)

    def _claimed(
        self, claimants: list[_Claimant], choice: _Choice, config: TopicConfig, now: int, next_lease_id: int
    ) -> Claimed:
        """Make events of what was chosen. What was passed over stands in the last one: by then all of it is leased."""
        last = max((index for index, claimant in enumerate(claimants) if claimant.jobs), default=-1)
        leased: list[Leased | None] = []
        for index, claimant in enumerate(claimants):
            if not claimant.jobs:
                leased.append(None)
                continue
            event = Leased(
                at=now,
                node=claimant.claim.node,
                deadline=now + clamped_lease_ms(claimant.claim.lease_ms, config.lease_ms),
                lease_id=next_lease_id,
                jobs=tuple(claimant.jobs),
                passed=max(claimant.passed for claimant in claimants) if index == last else 0,
                repeat=choice.repeat,
                conn=claimant.claim.conn,
            )
            next_lease_id += len(claimant.jobs)
            leased.append(event)
        moved = None
        if choice.moves:
            moves = [(seq, job) for seq in choice.moves if (job := self._job(seq)) is not None]
            moved = DeadLettered(now, tuple(_move(seq, job, deliveries_of(job.trail)) for seq, job in moves))
        return Claimed(leased=leased, moved=moved, next_lease_id=next_lease_id)

    # -- the end of a lease ----------------------------------------------------------------------------------------

    def ack(self, command: Ack, now: int) -> Settled:
        """The holder is done with jobs: they are to be deleted, which the host logs (rule 4)."""
        if now > self.now_ms:
            self.pass_time(now)
        if self._is_held_as_claimed(command):
            return Settled(Acked(now, tuple(command.seqs)), None, command.seqs, [], False)
        good, skipped, waits = self._sort(command, now, Skip.GONE)
        seqs = [seq for seq, _ in good]
        return Settled(Acked(now, tuple(seqs)) if seqs else None, None, seqs, skipped, waits)

    def nack(self, command: Nack, config: TopicConfig, now: int) -> Settled:
        """The holder gives jobs back: ready after a delay, or moved to the dead letters at once (rule 4).

        Raises the 400 of a `dead_letter` nack on a queue that has no dead letters.
        """
        if command.dead_letter and config.dead_letter is None:
            raise invalid("this queue has no dead_letter topic to move jobs to", "dead_letter")
        good, skipped, waits = self._sort(command, now, Skip.NOT_LEASED)
        seqs = [seq for seq, _ in good]
        if not good:
            return Settled(event=None, moved=None, seqs=seqs, skipped=skipped, waits=waits)
        if not command.delivered:
            undone = Undelivered(now, tuple((seq, job.deliveries - 1) for seq, job in good))
            return Settled(event=undone, moved=None, seqs=seqs, skipped=skipped, waits=waits)
        if command.dead_letter:
            moves = []
            for seq, job in good:
                last = Delivery(job.deliveries, command.node, job.claimed_ms, now, End.NACKED, command.reason)
                moves.append(_move(seq, job, deliveries_of(extended(job.trail, last))))
            moved = DeadLettered(now, tuple(moves))
            return Settled(event=None, moved=moved, seqs=seqs, skipped=skipped, waits=waits)
        event = self._nacked(good, command.node, command.reason, command.delay_ms, now)
        return Settled(event=event, moved=None, seqs=seqs, skipped=skipped, waits=waits)

    def _nacked(
        self, good: list[tuple[int, Job]], node: str, reason: str | None, delay_ms: int | None, now: int
    ) -> Nacked:
        jobs = []
        for seq, job in good:
            delay = backoff_ms(job.deliveries, job.lease_id) if delay_ms is None else delay_ms
            jobs.append(NackedJob(seq, job.deliveries, job.claimed_ms, now + delay))
        return Nacked(now, node, tuple(jobs), reason)

    def extend(self, command: Extend, config: TopicConfig, now: int) -> Settled:
        """The holder needs longer: leases hold until a new deadline, counted from now."""
        good, skipped, waits = self._sort(command, now, None)
        event = None
        if good:
            deadline = now + clamped_lease_ms(command.lease_ms, config.lease_ms)
            event = Extended(now, deadline, tuple((seq, job.lease_id) for seq, job in good))
        return Settled(event=event, moved=None, seqs=[seq for seq, _ in good], skipped=skipped, waits=waits)

    def release(self, conn: int, now: int) -> Released | None:
        """A connection has ended, and its leases with it; their deliveries count."""
        self.pass_time(now)
        seqs = sorted(self._held.get(conn, set()) - self._leaving)
        jobs = tuple((seq, job.lease_id) for seq in seqs if (job := self._job(seq)) is not None)
        return Released(now, jobs) if jobs else None

    def undeliver(self, leased: Leased, now: int) -> Undelivered | None:
        """The answer to a claim was never written: those of its leases that still hold end, and did not happen."""
        self.pass_time(now)
        jobs = []
        for lease_id, (seq, deliveries) in enumerate(leased.jobs, leased.lease_id):
            job = self._job(seq)
            if job is not None and job.phase is Phase.LEASED and job.lease_id == lease_id and seq not in self._leaving:
                jobs.append((seq, deliveries - 1))
        return Undelivered(now, tuple(jobs)) if jobs else None

    def refuse_moves(self, moved: DeadLettered, problem: str, now: int) -> list[Event]:
        """The dead-letter topic takes nothing: the jobs stay, ready again after backoff, and state says why (rule 6).

        The events take the place of `moved`, which has been neither staged nor applied.
        """
        waiting: list[tuple[int, int]] = []
        nacked: list[tuple[int, Job]] = []
        last: Delivery | None = None
        for move in moved.moves:
            job = self._job(move.seq)
            assert job is not None, "what is to be moved is known"
            if job.phase is Phase.LEASED:
                nacked.append((move.seq, job))
                last = move.trail[-1]
            else:
                waiting.append((move.seq, now + backoff_ms(job.deliveries, job.lease_id or move.seq)))
        events: list[Event] = [MoveRefused(now, tuple(waiting), problem)]
        if last is not None:
            events.append(self._nacked(nacked, last.node, last.reason, None, now))
        return events

    def _sort(
        self, command: Ack | Nack | Extend, now: int, again: Skip | None
    ) -> tuple[list[tuple[int, Job]], list[tuple[int, Skip]], bool]:
        """The seqs that count, with their jobs, those that do not, and whether a `gone` speaks of something staged.

        A seq that is listed twice is skipped as `again` the second time, or passed over for None.
        """
        self.pass_time(now)
        good: list[tuple[int, Job]] = []
        skipped: list[tuple[int, Skip]] = []
        seen: set[int] = set()
        node, lease_ids = command.node, command.lease_ids
        for index, seq in enumerate(command.seqs):
            problem = self._skip(seq, node, None if lease_ids is None else lease_ids[index])
            if problem is not None:
                skipped.append((seq, problem))
            elif seq not in seen:
                job = self._job(seq)
                assert job is not None, "what is leased is known"
                seen.add(seq)
                good.append((seq, job))
            elif again is not None:
                skipped.append((seq, again))
        return good, skipped, not self._leaving.isdisjoint(command.seqs)

    def _is_held_as_claimed(self, command: Ack) -> bool:
        """Whether all of these are the holder's, first leases of one run: what `_sort` would say in the end of nearly
        every ack, at a fraction of its cost."""
        seqs, lease_ids = command.seqs, command.lease_ids
        if len(seqs) == 1:
            seq = seqs[0]
            one = self._known.get(seq)
            if type(one) is not Run or one.node != command.node or seq in self._leaving:
                return False
            return (lease_ids is None or lease_ids[0] - seq == one.shift) and self._jobs.all_live(seq, seq)
        run = self._run_of(seqs)
        if run is None or run.node != command.node:
            return False
        if lease_ids is not None and list(map(sub, lease_ids, seqs)).count(run.shift) < len(seqs):
            return False
        return self._leaving.isdisjoint(seqs) and self._jobs.all_live(min(seqs), max(seqs))

    def _skip(self, seq: int, node: str, lease_id: int | None) -> Skip | None:
        """Why this lease is not `node`'s to settle, or None when it is: live, its own, and the current one."""
        if seq in self._leaving or not self._jobs.is_live(seq):
            return Skip.GONE if 0 < seq <= self._jobs.head() else Skip.NOT_LEASED
        job = self._seen(seq)
        if job is None:
            return Skip.NOT_LEASED
        if job.phase is not Phase.LEASED:
            past = deliveries_of(job.trail)
            expired = bool(past) and past[-1].how is End.EXPIRED and past[-1].node == node
            return Skip.EXPIRED if expired else Skip.NOT_LEASED
        if job.node != node:
            return Skip.OTHER_HOLDER
        if lease_id is not None and lease_id != job.lease_id:
            return Skip.STALE_LEASE
        return None
