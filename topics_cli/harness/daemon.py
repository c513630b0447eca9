"""The daemon of a run: one that the harness starts, kills and starts again, or one that was there before.

A daemon of ours has its data in the run directory and listens on a socket of its own; what it says is kept beside the
results. Faults are done when they are due, between two looks at the load.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from topics_cli.client import Client
from topics_cli.commands.serve import end, spawn, wait_until_ready
from topics_cli.exits import Failure
from topics_cli.harness.scenario import KILL, Fault, Scenario
from topics_cli.session import Session
from topics_cli.where import Where

LOG: Final = "daemon.log"
DATA: Final = "daemon-data"
CLOSED_S_MAX: Final = 60.0


class Daemon:
    """A daemon under load."""

    def __init__(self, session: Session, scenario: Scenario, run: Path) -> None:
        self._session = session
        self._scenario = scenario
        self._run = run
        self._place = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._faults = sorted(scenario.faults, key=lambda fault: fault.at_s)
        self._again_at: float | None = None
        self.restarts = 0
        self.client: Client = session.client if not scenario.daemon.start else self._started()

    @property
    def pid(self) -> int | None:
        """The process, where it is ours and runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def faults(self, elapsed_s: float) -> list[str]:
        """Do what is due; what was done, for people."""
        done = []
        if self._again_at is not None and elapsed_s >= self._again_at:
            self._again_at = None
            self.restarts += 1
            self._spawn()
            done.append("started again")
        if self._again_at is None and self._faults and elapsed_s >= self._faults[0].at_s:
            done.append(self._do(self._faults.pop(0), elapsed_s))
        return done

    def heal(self) -> list[str]:
        """The load is over: whatever is down comes up again, and what was not due by now is not done."""
        self._faults.clear()
        return self.faults(float("inf")) if self._again_at is not None else []

    def wait(self) -> None:
        """Until it takes requests."""
        if self._process is not None:
            wait_until_ready(self._session, self._process, self._socket, str(self._run / LOG))

    def close(self, *, keep: bool) -> None:
        """End a daemon of ours; its data go unless they are to be kept."""
        if self._process is not None:
            end(self._process)
            self._process = None
        if self._place:
            shutil.rmtree(self._place, ignore_errors=True)
        if not keep:
            shutil.rmtree(self._run / DATA, ignore_errors=True)

    def _do(self, fault: Fault, elapsed_s: float) -> str:
        assert self._process is not None
        begun = time.monotonic()
        self._process.send_signal(signal.SIGKILL if fault.kind == KILL else signal.SIGTERM)
        try:
            self._process.wait(CLOSED_S_MAX)
        except subprocess.TimeoutExpired as error:
            raise Failure("the daemon did not stop when it was told to", "bench_failed", "") from error
        self._again_at = elapsed_s + time.monotonic() - begun + fault.down_s
        return "killed" if fault.kind == KILL else "stopped"

    @property
    def _socket(self) -> str:
        return os.path.join(self._place, "topics.sock")

    def _started(self) -> Client:
        self._place = tempfile.mkdtemp(prefix="topics-")
        self._spawn()
        try:
            self.wait()
        except BaseException:
            self.close(keep=False)
            raise
        session = self._session
        return Client(Where("a daemon of the run", path=self._socket), "", None, session.stop, session.talk)

    def _spawn(self) -> None:
        ours = self._scenario.daemon
        port = "none" if ours.port is None else str(ours.port)
        words = [*ours.options, "--socket", self._socket, "--data-dir", str(self._run / DATA), "--port", port]
        self._process = spawn(words, str(self._run / LOG))
