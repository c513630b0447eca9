"""A store looked at without being started: the reading half of `Core.open`, and nothing of its writing half.

    Core.open      open_store → replay │ execute → gaps logged and synced → LOCK: running
    Inspection     open_store → replay │ the same gaps shown

Up to the bar the two are one code, so an inspection gives the verdict that a start would give (or raises what it would
raise), what a start would set aside, and the topics as their readers would find them. It writes nothing: a file system
that refuses every write will do.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.clock import Clock
from engine.core.reads import Reads
from engine.core.replay import Replay
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.store.recovery import OpenedStore, open_store
from engine.store.walk import Cut


class Inspection(Reads):
    """What a start would find. It has the answers of `Reads`; the root stays locked as long as `fs` is open."""

    def __init__(
        self,
        fs: Fs,
        clock: Clock,
        settings: EngineSettings | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Read the store under the root of `fs`; `progress` hears 0 … 1.

        Raises the `StoreError`s of a start, and `StoreMissing` where a start would make a new store.
        """
        settings = settings if settings is not None else EngineSettings()
        self.store: OpenedStore = open_store(fs, clock, settings, make=False)
        replay = Replay(self.store, settings)
        replay.run(progress)
        super().__init__(replay.catalog, fs)
        self._time = self.store.engine_time(replay.last_ts)
        replay.conclude(self.now())

    @property
    def cuts(self) -> list[Cut]:
        """Bytes behind the end of the log that a start would set aside."""
        return self.store.cuts

    def now(self) -> int:
        return self._time.advance()

    def close(self) -> None:
        """Give file handles back; nothing can be read any more."""
        self.catalog.cache.history.close()
        self.store.close()
