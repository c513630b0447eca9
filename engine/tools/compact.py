"""Tidying up the cold tier of a store that nobody has open: joining what is small, and removing what is nobody's.

It is what the daemon does by itself, in one go: the store is opened as a start opens it, checkpoints are made, and the
jobs of the mover are run in between until there are no more. Everything that can be cut off there can be cut off here.
What would be done is told without writing anything, from what a start would find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from engine.checkpoint.reclaim import to_merge
from engine.clock import Clock
from engine.core.core import Core
from engine.core.inspection import Inspection
from engine.core.jobs import outcome
from engine.core.tending import tend
from engine.errors import StoreIOError
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.segment.tiers import ColdTier, TieredFs
from engine.tools.cold import ColdAndHot
from engine.tools.cold_side import leftovers

ROUNDS_MAX: Final = 100_000
"""Checkpoints; each takes up to 64 MiB further."""
LAST_CHECKPOINTS: Final = 3
"""Until both kept snapshots know nothing of what was joined, and the tier has been looked through."""
NO_MOVES: Final = 1 << 40
"""Segments that stay: this moves none."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """Some neighbours that become one."""

    topic: str
    first: int
    last: int
    segments: int
    bytes: int
    """About so many, of the new one."""


class Tidied(msgspec.Struct, kw_only=True):
    """What was done, or would be."""

    dry_run: bool = False
    joined: list[Joined] = []
    """With `dry_run`, what would be."""
    made: int = 0
    merged: int = 0
    """Segments that were joined to make those."""
    read_bytes: int = 0
    removed: list[str] = []
    """Files of the tier that nobody had, and works; with `dry_run`, what would be removed of what is there now."""
    requests: dict[str, int] = {}
    """What was asked of a bucket."""


def plan(fs: Fs, clock: Clock, settings: EngineSettings) -> tuple[Tidied, int]:
    """What would be joined; and how many shards the log has. Raises the `StoreError`s of a start."""
    found = Inspection(fs, clock, settings)
    try:
        snapshot = found.store.snapshot
        joined = [
            Joined(
                topic=slot.name,
                first=group.first_seq,
                last=group.last_seq,
                segments=len(group.blocks),
                bytes=group.size,
            )
            for slot in found.catalog.by_id.values()
            for group in to_merge(slot.topic.tail.blocks, settings)
        ]
        return Tidied(dry_run=True, joined=joined), settings.wal_shards if snapshot is None else snapshot.shards
    finally:
        found.close()


def would_sweep(fs: ColdAndHot) -> list[str]:
    """What would be removed of the tier. Raises `ColdError`."""
    found = leftovers(fs, fs.store_id)
    return [] if found is None else [*found.strays, *found.works]


class Tidying:
    """One store, open for as long as this takes."""

    def __init__(
        self,
        fs: Fs,
        open_tier: Callable[[bytes], ColdTier],
        clock: Clock,
        settings: EngineSettings,
        heard: Callable[[int], None],
        pid: int,
    ) -> None:
        """`open_tier` gets the store's id; `settings` say what is small; `heard` hears how many were joined so far.

        Raises the `StoreError`s of a start.
        """
        alone = msgspec.structs.replace(settings, cold_tier=True, hot_retain_segments=NO_MOVES, hot_retain_bytes=0)
        self._heard = heard
        self._removed: list[str] = []
        self._core = Core.open(fs, clock, alone, pid=pid)
        self._tiered = TieredFs(fs, open_tier(self._core.store.store_id))

    def run(self) -> Tidied:
        """Do it. Raises `ColdError`, `StoreIOError`, and whatever `heard` raises; what was done by then, is done."""
        mover = self._core.keeper.mover
        try:
            for _ in range(ROUNDS_MAX):
                self._round()
                if not mover.waits:
                    break
            for _ in range(LAST_CHECKPOINTS):
                self._round()
        finally:
            self._core.close()
        merges, requests = mover.merges, self._tiered.tier.requests
        return Tidied(
            made=merges.made,
            merged=merges.joined,
            read_bytes=merges.bytes,
            removed=self._removed,
            requests={} if requests is None else dict(requests.made),
        )

    def _round(self) -> None:
        """A checkpoint, and everything that it gives the mover to do."""
        core, mover = self._core, self._core.keeper.mover
        ticket = core.checkpoint()
        core.turn()
        while not ticket.done:
            tend(core, self._tiered.fs)
            core.turn()
        tend(core, self._tiered.fs)
        if ticket.error is not None:
            raise StoreIOError(str(ticket.error))
        known = set(mover.orphans)
        while (job := mover.job(core.now())) is not None:
            error = outcome(job, self._tiered)
            mover.done(job, error, core.now())
            if error is not None:
                raise error
            self._heard(mover.merges.joined)
        self._removed += [path for path in mover.orphans if path not in known]
