"""Processes that make load for us: forked off, so that several cores can make it, and heard through pipes.

What a process is to do is a function of its own ear for signals and of the pipe to us; what it says there are lines of
JSON. One that is refused says why and ends; one that dies of a mistake of ours is a failure as well. They die with us.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.launch import die_with_us
from topics_cli.session import Session
from topics_cli.signals import POLLIN, Stop

Job = Callable[[Stop, int], None]
READ_BYTES = 1 << 16


class Crew:
    """The processes of a run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._members: dict[int, tuple[int, str]] = {}
        self._buffers: dict[int, bytes] = {}
        self.cpu_s = 0.0
        """CPU of those that have ended, in seconds."""
        self.failure: Failure | None = None
        """The last failure of any of them."""

    def start(self, name: str, job: Job) -> None:
        """Fork a process; what it reports comes with its name."""
        handle, far = os.pipe()
        self._session.out.flush()
        pid = os.fork()
        if not pid:
            _work(job, handle, far)
        os.close(far)
        self._members[handle], self._buffers[handle] = (pid, name), b""

    @property
    def is_at_work(self) -> bool:
        """Whether any has not ended."""
        return bool(self._members)

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for."""
        return [(handle, POLLIN) for handle in self._members]

    def names(self) -> set[str]:
        """Those that have not ended."""
        return {name for _, name in self._members.values()}

    def pids(self) -> dict[int, str]:
        """The processes that have not ended, by their number."""
        return dict(self._members.values())

    def take(self, ready: dict[int, int]) -> list[tuple[str, dict[str, Any]]]:
        """What was reported, and by whom."""
        reports: list[tuple[str, dict[str, Any]]] = []
        for handle in [handle for handle in self._members if handle in ready]:
            data = os.read(handle, READ_BYTES)
            *lines, self._buffers[handle] = (self._buffers[handle] + data).split(b"\n")
            for line in lines:
                report = json.loads(line)
                if "failure" in report:
                    self.failure = Failure(*report["failure"])
                else:
                    reports.append((self._members[handle][1], report))
            if not data and self._reap(handle):
                self.failure = self.failure or Failure("a process that made the load failed", "bench_failed", "")
        return reports

    def kill(self) -> None:
        """End those that have not ended."""
        for handle, (pid, _) in list(self._members.items()):
            os.kill(pid, signal.SIGKILL)
            self._reap(handle)

    def _reap(self, handle: int) -> int:
        pid, _ = self._members.pop(handle)
        del self._buffers[handle]
        os.close(handle)
        _, status, used = os.wait4(pid, 0)
        self.cpu_s += used.ru_utime + used.ru_stime
        return status


def _work(job: Job, handle: int, far: int) -> None:
    """The life of a process; does not return."""
    code = exits.FAILED
    try:
        die_with_us()
        os.close(handle)
        stop = Stop()
        stop.install()
        try:
            job(stop, far)
        except Failure as failure:
            words = [failure.what, failure.code, failure.hint, failure.exit_code]
            os.write(far, json.dumps({"failure": words}).encode() + b"\n")
        code = exits.DONE
    except Exception:
        traceback.print_exc()  # A mistake of ours; the parent says that this process failed.
        raise
    finally:
        os._exit(code)
