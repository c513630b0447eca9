"""Checkpoints in the daemon: the engine's slices on the loop, in between requests, and its jobs in a thread.

A slice takes a quarter of a millisecond, and the loop has four times as long for others before the next one. A thread
that computes holds the interpreter's lock for at most `SWITCH_S` while the loop wants it (the interpreter's own default
is five milliseconds, which a client would see): a lone write wants it four times, after each of its system calls. While
somebody sends in bulk it is `BULK_SWITCH_S`, because the loop gives the lock up as often, too.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, Final

from engine.core import Core
from engine.core.keeper import Phase
from engine.fs import Fs
from topics_daemon.memory import give_back
from topics_daemon.worker import Worker

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

BREATH_S: Final = 0.001
"""Pause between two slices."""
SWITCH_S: Final = 0.00002
"""The kernel adds up to 50 µs to it (its timer slack)."""
BULK_SWITCH_S: Final = 0.0001
"""An ingest beside which segments are written goes a fifth faster with it (five pairs of five, 217,000 records/s
against 176,000), and a lone write beside that ingest waits no longer."""
QUIET: Final = 0.1
"""Share of its time that the loop works at most while memory is given back, which holds it for some milliseconds; a
daemon that has more to do will soon want that memory again."""

HOLDING: Final = frozenset({Phase.TAKE, Phase.SEAL, Phase.SYNC, Phase.WRITE, Phase.SWITCH})
"""Phases in which everything that was taken down is held: of ten thousand topics some hundred thousand objects."""
NO_COLLECTING_S_MAX: Final = 30.0
"""How long garbage may be left alone for that: a disk that hangs must not let it pile up."""


class Keeping:
    """Who drives the checkpoints of one daemon."""

    def __init__(self, daemon: Daemon, core: Core, fs: Fs) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._is_bulk = False
        self._daemon = daemon
        self._core = core
        self._worker = Worker("keeper", daemon.loop, fs, self._done, daemon.job_bug)
        self._planned = False
        self._stopped = False
        self._number = 0
        self._failures = 0
        self._lets_lie_since_s: float | None = None
        self._has_freed = False
        """Whether a checkpoint has let go of memory that the system has not got back."""

    def look(self) -> None:
        """Something may have become due, or what was waited for may have come."""
        keeper = self._core.keeper
        self._let_garbage_lie()
        if self._daemon.shares.bulk is not self._is_bulk:
            self._is_bulk = self._daemon.shares.bulk
            sys.setswitchinterval(BULK_SWITCH_S if self._is_bulk else SWITCH_S)
        if self._has_freed and self._daemon.pressure.busy < QUIET:
            self._has_freed = False
            self._daemon.loop.run_in_executor(None, give_back)
        if not self._planned and (keeper.active or keeper.has_aside or keeper.is_due(self._core.commit.now_ms)):
            self._plan()

    @property
    def name(self) -> str:
        """What its thread is called."""
        return self._worker.name

    def stop(self, timeout_s: float) -> bool:
        """End the thread; what it has done is taken back first. False when it hangs in a disk."""
        self._stopped = True
        self._core.keeper.stop_soon()
        self._let_garbage_lie()
        return self._worker.stop(timeout_s)

    def _plan(self) -> None:
        self._planned = True
        self._daemon.loop.call_later(BREATH_S, self._slice)

    def _slice(self) -> None:
        self._planned = False
        if self._stopped:
            return
        core = self._core
        try:
            again = core.keep_step()
            if (job := core.keep_job()) is not None:
                self._worker.submit(job)
        except Exception as error:  # noqa: BLE001  # whatever it is, the process must end
            self._daemon.bug(error)
            return
        self._let_garbage_lie()
        self._tell()
        if again:
            self._plan()
        elif core.keeper.active:
            self._daemon.wake_for_log()

    def _done(self, job: Any, error: OSError | None) -> None:
        core = self._core
        try:
            core.keep_done(job, error)
        except Exception as bug:  # noqa: BLE001  # whatever it is, the process must end
            self._daemon.bug(bug)
            return
        self._tell()
        if not self._planned and not self._stopped:
            self._plan()
        self._daemon.wake()

    def _let_garbage_lie(self) -> None:
        """Look for no garbage among what a checkpoint holds: there is none, and each look would be a pause for all, of
        2 to 5 ms twenty times in a checkpoint of ten thousand topics, and of a tenth of a second once in a while."""
        now_s, since_s = self._daemon.loop.time(), self._lets_lie_since_s
        if self._stopped or self._core.keeper.phase not in HOLDING:
            self._lets_lie_since_s = None
            gc.enable()
        elif since_s is None:
            self._lets_lie_since_s = now_s
            gc.disable()
        elif now_s - since_s > NO_COLLECTING_S_MAX:
            gc.enable()

    def _tell(self) -> None:
        """Say in the log what has become of a checkpoint."""
        keeper, log = self._core.keeper, self._daemon.log
        if keeper.failures != self._failures:
            self._failures = keeper.failures
            log.warning("checkpoint failed", why=keeper.problem)
        done = keeper.last
        if done is not None and done.number != self._number:
            self._number = done.number
            self._has_freed = True
            log.info("checkpoint", number=done.number, topics=done.topics, segments=done.segments, took_ms=done.took_ms)
