"""The model notices mistakes: each of these, planted in the machine, makes a random history disagree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from engine.queue import machine, ready, state
from engine.queue.commands import Ack, Skip
from engine.queue.events import Event, Extended, Leased, Nacked, Released, Restarted, Undelivered, is_logged
from engine.queue.job import Job, Phase, ms_of
from engine.queue.line import Places
from engine.queue.machine import Queue
from engine.queue.ready import Ready
from engine.queue.run import Run
from engine.queue.state import State
from engine.queue.timers import Timers
from tests.queue import stateful
from tests.queue.test_model import run

pytestmark = pytest.mark.slow

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Planted:
    """A mistake, and how it is made."""

    name: str
    plant: Patch
    seed: int = 1
    """One with which it shows early: others show it, too, after up to a hundred times as many histories."""


def _expires_late(patch: pytest.MonkeyPatch) -> None:
    real = Timers.pop_due
    patch.setattr(Timers, "pop_due", lambda self, now: real(self, now - 1))


def _skips_less(skip: Skip) -> Patch:
    def plant(patch: pytest.MonkeyPatch) -> None:
        real = Queue._skip

        def lenient(self: Queue, seq: int, node: str, lease_id: int | None) -> Skip | None:
            found = real(self, seq, node, lease_id)
            return None if found is skip else found

        patch.setattr(Queue, "_skip", lenient)

    return plant


def _forgets_whose_turn_it_is(patch: pytest.MonkeyPatch) -> None:
    real = State._leased

    def apply(self: State, event: Leased) -> None:
        real(self, event)
        self._repeat = False

    patch.setitem(state._APPLY, Leased, apply)


def _staged_jobs_can_be_claimed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "stage", lambda self, event: None)


def _removed_leases_still_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "_forget", lambda self, seq: self._known.pop(seq, None) is not None)


def _a_restart_keeps_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(state._APPLY, Restarted, lambda self, event: None)


def _not_logged(kind: type) -> Patch:
    def plant(patch: pytest.MonkeyPatch) -> None:
        real = is_logged
        patch.setattr(
            stateful, "is_logged", lambda event, durable: not isinstance(event, kind) and real(event, durable)
        )

    return plant


def _the_cursor_is_logged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stateful, "logged", lambda event: event)


def _filters_never_look_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Places, "came", lambda self, key: None)


def _filtered_claims_move_the_cursor(patch: pytest.MonkeyPatch) -> None:
    real = State._leased

    def apply(self: State, event: Leased) -> None:
        real(self, event)
        self._ready.cursor = max(self._ready.cursor, *(seq for seq, _ in event.jobs))

    patch.setitem(state._APPLY, Leased, apply)


def _what_comes_back_is_ordered_by_seq(patch: pytest.MonkeyPatch) -> None:
    real = ready.Ready.add
    patch.setattr(ready.Ready, "add", lambda self, seq, job, ms: real(self, seq, job, 0))


def _a_connection_takes_the_leases_of_all(patch: pytest.MonkeyPatch) -> None:
    def release(self: Queue, conn: int, now: int) -> Event | None:
        seqs = [seq for seq, job in self._known.items() if job.phase is Phase.LEASED]
        jobs = tuple((seq, job.lease_id) for seq in seqs if (job := self._job(seq)) is not None)
        return Released(now, jobs) if jobs else None

    patch.setattr(Queue, "release", release)


def _the_first_claimer_takes_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "heappush", lambda heap, turn: heap.insert(0, (0.0, turn[1])))


def _acks_of_a_run_look_at_no_leases(patch: pytest.MonkeyPatch) -> None:
    def lenient(self: Queue, command: Ack) -> bool:
        run = self._run_of(command.seqs)
        return run is not None and run.node == command.node and self._leaving.isdisjoint(command.seqs)

    patch.setattr(Queue, "_is_held_as_claimed", lenient)


def _runs_without_their_first_job_never_expire(patch: pytest.MonkeyPatch) -> None:
    real = State._shrink

    def shrink(self: State, run: Run, seqs: Sequence[int]) -> None:
        real(self, run, seqs)
        self._headless.clear()

    patch.setattr(State, "_shrink", shrink)


def _leases_that_end_together_leave_no_trail(patch: pytest.MonkeyPatch) -> None:
    real = State._run_over

    def over(self: State, run: Run, at: int) -> None:
        seqs = [seq for seq in run.seqs if self._known.get(seq) is run]
        real(self, run, at)
        for seq in seqs:
            self._name(seq).trail = None  # type: ignore[union-attr]  # it is there

    patch.setattr(State, "_run_over", over)


def _leases_that_end_together_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    real = Ready.add_delivered_once

    def add(self: Ready, seqs: list[int], jobs: list[Job], ms: int) -> None:
        real(self, seqs, jobs, ms)
        self.waiting -= len(jobs)

    patch.setattr(Ready, "add_delivered_once", add)


def _an_extend_revives_any_lease(patch: pytest.MonkeyPatch) -> None:
    def apply(self: State, event: Extended) -> None:
        for seq, _ in event.jobs:
            job = self._job(seq)
            if job is not None and job.phase is Phase.LEASED:
                self._wait_until(seq, job, ms_of(job.due) + 50)

    patch.setitem(state._APPLY, Extended, apply)


PLANTED = [
    Planted("a lease holds one millisecond too long", _expires_late),
    Planted("an ack of another holder counts", _skips_less(Skip.OTHER_HOLDER)),
    Planted("an ack with an old lease id counts", _skips_less(Skip.STALE_LEASE)),
    Planted("an ack of a run of jobs looks at no lease ids", _acks_of_a_run_look_at_no_leases),
    Planted("a run of leases whose first one has ended never expires", _runs_without_their_first_job_never_expire, 2),
    Planted("leases of a run that end together leave no trail", _leases_that_end_together_leave_no_trail),
    Planted("leases of a run that end together are passed over", _leases_that_end_together_are_passed_over),
    Planted("the turn of third deliveries does not persist", _forgets_whose_turn_it_is),
    Planted("a job whose ack is staged is given out again", _staged_jobs_can_be_claimed, 2),
    Planted("the lease of an evicted job still counts as in flight", _removed_leases_still_count),
    Planted("a restart keeps leases that were only in memory", _a_restart_keeps_leases),
    Planted("nacks are not logged", _not_logged(Nacked)),
    Planted("un-deliveries are not logged, so that a count is too high", _not_logged(Undelivered), 4),
    Planted("durable leases are not logged", _not_logged(Leased)),
    Planted("the log moves the cursor past jobs that nobody knows", _the_cursor_is_logged),
    Planted("a filter does not look at what came back behind its place", _filters_never_look_back, 4),
    Planted("a claim with a filter moves the cursor", _filtered_claims_move_the_cursor),
    Planted("what comes back is ordered by seq", _what_comes_back_is_ordered_by_seq),
    Planted("a connection that ends takes the leases of others", _a_connection_takes_the_leases_of_all),
    Planted("the first claimer of a cohort takes everything", _the_first_claimer_takes_everything),
    Planted("an extend is not what was asked for", _an_extend_revives_any_lease),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_model_notices_that(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        run(500, 30, seeded=planted.seed)
