"""A worker's threads: order, several at once, outcomes, jobs that are taken back, the end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from engine.fs import Fs
from topics_daemon.worker import Worker

NO_FS = cast(Fs, None)


class Job:
    """Waits until it may go on, then ends as it is told."""

    def __init__(self, number: int, outcome: BaseException | None = None, gate: threading.Event | None = None) -> None:
        self.number = number
        self.outcome = outcome
        self.gate = gate
        self.ran = threading.Event()

    def run(self, fs: Fs) -> None:
        self.ran.set()
        if self.gate is not None:
            self.gate.wait(5)
        if self.outcome is not None:
            raise self.outcome


class Seen:
    """What came back."""

    def __init__(self) -> None:
        self.done: list[tuple[int, OSError | None]] = []
        self.bugs: list[tuple[int, BaseException]] = []

    def on_done(self, job: Any, error: OSError | None) -> None:
        self.done.append((job.number, error))

    def on_bug(self, job: Any, error: BaseException) -> None:
        self.bugs.append((job.number, error))

    async def until(self, count: int) -> None:
        """Wait until so many jobs are back."""
        for _ in range(500):
            if len(self.done) + len(self.bugs) >= count:
                return
            await asyncio.sleep(0.01)
        raise AssertionError((self.done, self.bugs))


def drive(test: Callable[[Worker, Seen], Awaitable[None]], threads: int = 1) -> Seen:
    """Run `test` with a worker; its threads must end."""

    async def run() -> Seen:
        seen = Seen()
        worker = Worker("test", asyncio.get_running_loop(), NO_FS, seen.on_done, seen.on_bug, threads)
        await test(worker, seen)
        assert worker.stop(5)
        return seen

    return asyncio.run(run())


def test_one_thread_keeps_the_order_and_outcomes_come_with_their_jobs() -> None:
    error = OSError(5, "EIO")

    async def test(worker: Worker, seen: Seen) -> None:
        for number in range(20):
            worker.submit(Job(number, error if number == 7 else None))
        await seen.until(20)

    seen = drive(test)
    assert seen.done == [(number, error if number == 7 else None) for number in range(20)]
    assert not seen.bugs


class Policy(Job):
    """Sees of which policy its thread is."""

    found = -1

    def run(self, fs: Fs) -> None:
        self.found = os.sched_getscheduler(0)


def test_a_thread_that_the_loop_wakes_does_not_take_the_processor_from_it() -> None:
    job = Policy(1)

    async def test(worker: Worker, _seen: Seen) -> None:
        worker.submit(job)

    drive(test)
    assert job.found == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "the loop's own thread is as it was"


def test_a_thread_works_also_where_it_may_not_choose_how_it_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    async def test(worker: Worker, seen: Seen) -> None:
        worker.submit(Job(1))
        await seen.until(1)

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    assert drive(test).done == [(1, None)]


def test_a_policy_that_the_process_was_started_with_stays() -> None:
    job = Policy(1)

    async def test(worker: Worker, _seen: Seen) -> None:
        worker.submit(job)

    def idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        drive(test)

    thread = threading.Thread(target=idle)  # of its own: who may leave that policy again is the system's to say
    thread.start()
    thread.join(20)
    assert job.found == os.SCHED_IDLE


def test_several_threads_run_as_many_jobs_at_once_and_a_slow_one_holds_up_none() -> None:
    async def test(worker: Worker, seen: Seen) -> None:
        gate = threading.Event()
        slow = [Job(number, gate=gate) for number in range(3)]
        for job in slow:
            worker.submit(job)
        for number in range(3, 50):
            worker.submit(Job(number))
        await seen.until(47)
        assert sorted(number for number, _ in seen.done) == list(range(3, 50))
        gate.set()
        await seen.until(50)

    drive(test, threads=4)


def test_a_job_that_has_not_begun_can_be_taken_back_and_one_that_has_cannot() -> None:
    gate = threading.Event()
    running, waiting, last = Job(1, gate=gate), Job(2), Job(3)

    async def test(worker: Worker, seen: Seen) -> None:
        worker.submit(running)
        assert running.ran.wait(5)
        worker.submit(waiting)
        assert worker.withdraw(waiting)
        assert not worker.withdraw(waiting)
        assert not worker.withdraw(running)
        gate.set()
        worker.submit(last)
        await seen.until(2)

    seen = drive(test)
    assert [number for number, _ in seen.done] == [1, 3]
    assert not waiting.ran.is_set()


def test_a_bug_comes_back_as_a_bug_and_the_thread_goes_on() -> None:
    async def test(worker: Worker, seen: Seen) -> None:
        worker.submit(Job(1, KeyError("bug")))
        worker.submit(Job(2))
        await seen.until(2)

    seen = drive(test)
    assert [number for number, _ in seen.bugs] == [1]
    assert seen.done == [(2, None)]


def test_a_stop_does_what_there_is_first_and_does_not_wait_for_what_hangs() -> None:
    async def finish(worker: Worker, seen: Seen) -> None:
        for number in range(100):
            worker.submit(Job(number))

    assert len(drive(finish, threads=3).done) == 100
    gate = threading.Event()

    async def hang() -> None:
        seen = Seen()
        worker = Worker("test", asyncio.get_running_loop(), NO_FS, seen.on_done, seen.on_bug, 2)
        worker.submit(Job(1, gate=gate))
        assert not worker.stop(0.1)
        gate.set()

    asyncio.run(hang())
