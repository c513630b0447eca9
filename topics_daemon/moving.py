"""The cold tier in the daemon: segments are moved there by a thread of its own, which may hang in it for ever.

The directory or bucket is opened by the first job that needs it, so a start does not wait for it either. What it
refuses is tried again after a while, and said in the log once each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from engine.core import Core
from engine.segment.tiers import TieredFs
from topics_daemon.worker import Worker

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

STOP_S: Final = 0.05
"""How long a stop waits for a move: one that is cut off is done again."""


class Moving:
    """Who drives the moves of one daemon."""

    def __init__(self, daemon: Daemon, core: Core, fs: TieredFs) -> None:
        self._daemon = daemon
        self._core = core
        self._worker = Worker("mover", daemon.loop, fs, self._done, daemon.job_bug)
        self._stopped = False

    def look(self) -> None:
        """See whether there is something to be moved."""
        if self._stopped:
            return
        job = self._core.keeper.mover.job(self._core.commit.now_ms)
        if job is not None:
            self._worker.submit(job)

    def stop(self) -> None:
        """End the thread; what hangs in the tier is left there."""
        self._stopped = True
        self._worker.stop(STOP_S)

    def _done(self, job: Any, error: OSError | None) -> None:
        if error is not None:
            self._daemon.log.warning("the cold tier does not take what it is given", error=error)
        self._core.keeper.mover.done(job, error, self._core.commit.now_ms)
        self.look()
