"""A queue as a list of jobs, with every rule of queues.md done the slow and obvious way.

It shares nothing with the machine but the answers that the two are compared by. A second one that is told only of what
is logged is what a restart makes of the first.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from engine.types import Match

Ended = tuple[int, str, int, int, str, str | None]
"""(number, node, claimed, ended, how, reason) of one delivery."""


@dataclass
class ModelJob:
    """One job. `since`: when it became ready; `until`: deadline, or end of its delay."""

    seq: int
    tag: str | None
    state: str = "ready"
    deliveries: int = 0
    since: int = 0
    until: int = 0
    node: str = ""
    lease: int = 0
    claimed: int = 0
    conn: int = 0
    leaving: bool = False
    trail: list[Ended] = field(default_factory=list)

    def end(self, at: int, how: str, reason: str | None = None) -> None:
        """The delivery is over."""
        ended = (self.deliveries, self.node, self.claimed, at, how, reason)
        if ended not in self.trail:
            self.trail = [*self.trail, ended][-8:]


class Model:
    """The jobs of one queue and their counters."""

    def __init__(self) -> None:
        self.jobs: dict[int, ModelJob] = {}
        self.head = 0
        self.repeat = False
        self.gone = dict.fromkeys(("acked", "dead_lettered", "deleted", "evicted", "lost"), 0)

    def write(self, count: int, tag: str | None) -> None:
        for _ in range(count):
            self.head += 1
            self.jobs[self.head] = ModelJob(self.head, tag)

    def remove(self, first: int, last: int, why: str) -> None:
        for seq in [seq for seq in self.jobs if first <= seq <= last]:
            del self.jobs[seq]
            self.gone[why] += 1

    def pass_time(self, now: int) -> None:
        for job in self.jobs.values():
            if job.state == "leased" and now >= job.until:
                job.end(job.until, "expired")
                job.state, job.since, job.conn = "ready", job.until, 0
            elif job.state == "delayed" and now >= job.until:
                job.state, job.since = "ready", job.until

    def pick(self, match: Match | None) -> ModelJob | None:
        """Whose turn it is (rule 1)."""
        ready = [
            job
            for job in self.jobs.values()
            if job.state == "ready" and not job.leaving and (match is None or match.accepts(job.tag))
        ]
        fresh = sorted((job for job in ready if job.deliveries == 0), key=lambda job: job.seq)
        back = sorted((job for job in ready if job.deliveries > 0), key=lambda job: (job.since, job.seq))
        if not back:
            return fresh[0] if fresh else None
        if back[0].deliveries >= 2 and self.repeat and fresh:
            second = [job for job in back if job.deliveries == 1]
            return second[0] if second else fresh[0]
        return back[0]

    def deal(self, asked: list[tuple[int, Match | None]], exhausted: int) -> tuple[list[list[int]], list[int]]:
        """What each claim gets, and what is moved; nothing changes but whose turn it is."""
        given: list[list[int]] = [[] for _ in asked]
        moved: list[int] = []
        hungry = set(range(len(asked)))
        held: list[ModelJob] = []
        while hungry:
            claimer = min(hungry, key=lambda index: (len(given[index]) / asked[index][0], index))
            job = self.pick(asked[claimer][1])
            if job is None:
                hungry.discard(claimer)
                continue
            job.state = "held"
            held.append(job)
            if 0 < exhausted <= job.deliveries:
                moved.append(job.seq)
                continue
            self.repeat = job.deliveries >= 2
            given[claimer].append(job.seq)
            if len(given[claimer]) == asked[claimer][0]:
                hungry.discard(claimer)
        for job in held:
            job.state = "ready"
        return given, moved

    def lease(self, seq: int, deliveries: int, node: str, lease: int, now: int, until: int, conn: int) -> None:
        self.pass_time(now)
        job = self.jobs[seq]
        job.state, job.node, job.lease, job.claimed, job.until, job.conn = "leased", node, lease, now, until, conn
        job.deliveries = deliveries

    def extend(self, seq: int, lease: int, until: int, now: int) -> None:
        self.pass_time(now)
        job = self.jobs[seq]
        if job.state == "leased" and job.lease == lease:
            job.until = until

    def nack(self, was: ModelJob, ready_at: int, reason: str | None, now: int) -> None:
        """`was`: the job as its holder had it."""
        self.pass_time(now)
        job = self.jobs[was.seq]
        job.deliveries = was.deliveries
        job.node, job.claimed = was.node, was.claimed
        job.end(now, "nacked", reason)
        self.back(job, ready_at, now)

    def release(self, seq: int, lease: int, now: int) -> None:
        self.pass_time(now)
        job = self.jobs[seq]
        if job.state == "leased" and job.lease == lease:
            job.end(now, "released")
            self.back(job, now, now)

    def undeliver(self, seq: int, deliveries: int, now: int) -> None:
        self.pass_time(now)
        self.jobs[seq].deliveries = deliveries
        self.back(self.jobs[seq], now, now)

    def skip(self, seq: int, node: str, lease: int | None) -> str | None:
        """Why a seq does not count (rule 4)."""
        job = self.jobs.get(seq)
        if job is None or job.leaving:
            return "gone" if 1 <= seq <= self.head else "not_leased"
        if job.state != "leased":
            expired = bool(job.trail) and job.trail[-1][4] == "expired" and job.trail[-1][1] == node
            return "expired" if expired else "not_leased"
        if job.node != node:
            return "other_holder"
        return "stale_lease" if lease is not None and lease != job.lease else None

    def back(self, job: ModelJob, ready_at: int, now: int) -> None:
        """A job is to be ready at a time."""
        job.conn = 0
        if ready_at <= now:
            job.state, job.since = "ready", now
        else:
            job.state, job.until = "delayed", ready_at

    def restarted(self, now: int, durable: bool) -> Model:
        """The queue of a new process that has been told what this one was told."""
        new = copy.deepcopy(self)
        new.pass_time(now)
        for job in new.jobs.values():
            job.conn = 0
            job.leaving = False
            if job.state == "leased" and not durable:
                job.end(now, "restarted")
                job.state, job.since = "ready", now
        return new

    def count(self, state: str) -> int:
        return sum(job.state == state for job in self.jobs.values())
