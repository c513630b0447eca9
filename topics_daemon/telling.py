"""What the daemon's log says of the store while it runs, each thing once: damage that reads have met, files that stay,
log that finds no space and when it has some again, and a log that takes nothing any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.wal.prepare import SPACE_ERRNOS

if TYPE_CHECKING:
    from engine.core import Core
    from topics_daemon.log import Log
    from topics_daemon.metrics import Metrics


class Telling:
    """What was said already."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics
        self._is_full = False
        self._is_read_only = False

    def unprepared(self, error: OSError) -> None:
        """Space for the log could not be made ready; for want of space that is tried again each second."""
        if error.errno in SPACE_ERRNOS and self._is_full:
            return
        self._is_full = error.errno in SPACE_ERRNOS
        self._log.warning("log space could not be prepared", error=error)

    def look(self, core: Core) -> None:
        """Say what is new."""
        said, core.damage.said = core.damage.said, []
        for line in said:
            self._log.error("damage", said=line)
        self._leftovers(core)
        if self._is_full and all(shard.full is None for shard in core.wal.shards):
            self._is_full = False
            self._log.info("log space is there again")
        if core.read_only is not None and not self._is_read_only:
            self._is_read_only = True
            self._log.error("read only", why=core.read_only, means="no writes until a restart; reads go on")

    def _leftovers(self, core: Core) -> None:
        """Which files could not be removed: their space comes back with the next start (faults.md F50)."""
        if left := core.keeper.left + core.wal.left:
            core.keeper.left, core.wal.left = [], []
            self._metrics.files_left += len(left)
            for line in left:
                self._log.error("file left behind", said=line)
