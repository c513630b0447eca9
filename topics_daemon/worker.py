"""Threads that run jobs which may block on a disk, and hand them back to the loop.

A worker is one kind of job with one thread, which runs one job after the other, or with several, among which jobs have
no order. Both ways go through an eventfd (a semaphore towards the threads: one token a job): the hand-over takes 12 µs
there and back, against 26 with `call_soon_threadsafe` and 64 with an executor (measured). A job touches nothing that
the loop's thread owns; its outcome is an `OSError` or None. Any other exception is a bug, and goes to `on_bug` with its
job: after one in a sync nothing may be promised any more and the process ends, one in a read costs that read.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from engine.fs import Fs


class Job(Protocol):
    """What a worker runs."""

    def run(self, fs: Fs) -> Any: ...


class Worker:
    """Threads for one kind of job."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        fs: Fs,
        on_done: Callable[[Any, OSError | None], None],
        on_bug: Callable[[Any, BaseException], None],
        threads: int = 1,
    ) -> None:
        self.name = name
        self._loop = loop
        self._fs = fs
        self._on_done = on_done
        self._on_bug = on_bug
        self._todo: deque[Job | None] = deque()
        self._stopped = False
        self._done: deque[tuple[Job, BaseException | None]] = deque()
        self._go = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._back = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        loop.add_reader(self._back, self._take_back)
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Run `job` after those before it have begun."""
        assert not self._stopped, f"a job for the {self.name}, which has ended"
        self._todo.append(job)
        os.eventfd_write(self._go, 1)

    def withdraw(self, job: Job) -> bool:
        """Forget a job that has not begun; False when it has."""
        try:
            self._todo.remove(job)
        except ValueError:
            return False
        return True

    def stop(self, timeout_s: float) -> bool:
        """End the threads once they have done what there is; False when one hangs (in a disk, say)."""
        until = time.monotonic() + timeout_s
        self._stopped = True
        self._todo.extend([None] * len(self._threads))
        os.eventfd_write(self._go, len(self._threads))
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.001))
        self._loop.remove_reader(self._back)
        if any(thread.is_alive() for thread in self._threads):
            return False
        self._take_back()
        os.close(self._go)
        os.close(self._back)
        return True

    def _work(self) -> None:
        # When the loop wakes it, it does not take the processor from the loop for a whole slice of the kernel's, 3 ms.
        # A sandbox may forbid even that: then the loop waits a little now and then, and all else goes on. A policy that
        # the process was started with stays: who is idle (`chrt -i`) would be woken before others by this one.
        with suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        while True:
            os.eventfd_read(self._go)
            try:
                job = self._todo.popleft()
            except IndexError:
                # What this token stood for was withdrawn.
                continue
            if job is None:
                return
            error: BaseException | None = None
            try:
                job.run(self._fs)
            except BaseException as failure:  # noqa: BLE001  # an outcome, or a bug that is carried to the loop's thread
                error = failure
            self._done.append((job, error))
            os.eventfd_write(self._back, 1)

    def _take_back(self) -> None:
        try:
            os.eventfd_read(self._back)
        except BlockingIOError:
            pass
        while self._done:
            job, error = self._done.popleft()
            if error is None or isinstance(error, OSError):
                self._on_done(job, error)
            else:
                self._on_bug(job, error)
