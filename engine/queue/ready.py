"""Ready jobs, in the orders that the rules choose between: three lines of known jobs, and everything beyond the cursor.

    once      one delivery so far, by the time they became ready
    often     two or more deliveries, by the time they became ready
    returned  known but never delivered (a delivery that did not happen was taken back), by seq
    beyond    never delivered and not known: what is live in the topic beyond `cursor`, by seq; no memory at all

The cursor only rises. A job that comes back from beyond it is known from then on, and goes to `returned`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from heapq import merge
from typing import Final

from engine.queue.job import Job, Phase, key, ms_of, seq_of
from engine.queue.jobs import Jobs
from engine.queue.line import Line, Places
from engine.queue.run import Run
from engine.types import Match

_OFTEN: Final = 2


class Ready:
    """The ready jobs of one queue. `known` is the queue's own dictionary, which this only reads."""

    __slots__ = ("_jobs", "_known", "_lines", "_places", "cursor", "waiting")

    def __init__(self, jobs: Jobs, known: dict[int, Job | Run]) -> None:
        self._jobs = jobs
        self._known = known
        self._lines = tuple(Line(partial(self._holds, rank), self._passes) for rank in range(_OFTEN + 1))
        self._places = Places()
        self.cursor = 0
        """Every live seq up to this one is known."""
        self.waiting = 0
        """Known jobs that are ready. While there are none, a claim gets what was never delivered, by seq."""

    def add(self, seq: int, job: Job, ms: int) -> None:
        """A known job is ready since `ms`."""
        self.waiting += 1
        job.phase = Phase.READY
        job.due = key(ms, seq) if job.deliveries else seq
        self._lines[min(job.deliveries, _OFTEN)].add(job.due)

    def add_delivered_once(self, seqs: list[int], jobs: list[Job], ms: int) -> None:
        """The same for jobs that all had one delivery; `seqs` ascend."""
        self.waiting += len(jobs)
        base = key(ms, 0)
        keys = [base | seq for seq in seqs]
        for job, due in zip(jobs, keys, strict=True):
            job.phase = Phase.READY
            job.due = due
        self._lines[1].add_all(keys)

    def left(self, job: Job) -> None:
        """A job is not ready any more; its phase says so already, its deliveries are those it was ready with."""
        self.waiting -= 1
        self._lines[min(job.deliveries, _OFTEN)].drop()

    def all_left(self, jobs: list[Job]) -> None:
        """The same for many."""
        self.waiting -= len(jobs)
        for rank, count in Counter([min(job.deliveries, _OFTEN) for job in jobs]).items():
            self._lines[rank].drop(count)

    def once(self, match: Match | None) -> Iterator[int]:
        """Keys of jobs with one delivery that pass the filter, in order. Nothing may change while it is walked."""
        return self._lines[1].walk(match)

    def often(self, match: Match | None) -> Iterator[int]:
        """The same for jobs with more deliveries."""
        return self._lines[_OFTEN].walk(match)

    def fresh(self, match: Match | None) -> Iterator[int]:
        """Seqs of never-delivered jobs that pass the filter, ascending."""
        returned = self._lines[0]
        if returned.first() is None:
            return self._beyond(match)
        return merge(returned.walk(match), self._beyond(match))

    def fresh_beyond(self, seq: int) -> Iterator[int] | None:
        """Seqs of never-delivered jobs beyond `seq`, ascending; None when some never-delivered job is known."""
        return None if self._lines[0].first() is not None else self._beyond(None, seq)

    def next_beyond(self) -> int | None:
        """The first never-delivered job that is not known."""
        jobs, known = self._jobs, self._known
        seq = jobs.next_live(self.cursor + 1, None)
        while seq in known:
            seq = jobs.next_live(seq + 1, None)
        return seq if seq <= jobs.head() else None

    def oldest_ms(self) -> int | None:
        """Since when the job that has been ready longest is ready; None when none is."""
        times = [ms_of(first) for line in self._lines[1:] if (first := line.first()) is not None]
        fresh = next(self.fresh(None), None)
        if fresh is not None:
            times.append(self._jobs.ts(fresh))
        return min(times, default=None)

    def _beyond(self, match: Match | None, after: int = 0) -> Iterator[int]:
        jobs, known = self._jobs, self._known
        head = jobs.head()
        seq, found = max(self.cursor, self._places.after(match), after), False
        while (seq := jobs.next_live(seq + 1, match)) <= head:
            if seq in known:
                continue
            if not found:
                found = True
                self._places.note(match, seq - 1)
            yield seq
        if not found:
            self._places.note(match, head)

    def _holds(self, rank: int, key: int) -> bool:
        job = self._known.get(seq_of(key))
        return (
            type(job) is Job
            and job.phase is Phase.READY
            and job.due == key
            and (job.deliveries == rank or (rank == _OFTEN and job.deliveries > _OFTEN))
        )

    def _passes(self, key: int, match: Match) -> bool:
        return self._jobs.passes(seq_of(key), match)
