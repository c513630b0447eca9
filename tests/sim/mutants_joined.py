"""Planted bugs of writes and acks that share a frame (ADR 0050): its end, what is in it, whether it still may grow.

As in `mutants.py`, each names the scenarios in which it should show first.
"""

from __future__ import annotations

from typing import Any

from engine.core.commit import Commit
from engine.core.leaving import StagedTake
from engine.formats.append import SharedBody
from engine.wal.wal import Wal
from tests.sim.mutants import Mutant, Patch, planting

JOINED: list[Mutant] = []


_mutant = planting(JOINED, "joined-")


WRITES = ("joined-disk", "joined-fsync")


@_mutant(*WRITES)
def _tip_stays(patch: Patch) -> None:
    """What comes behind a frame that has grown is written over its end."""
    old = patch.set(Wal, "lengthen", None)

    def lengthen(self: Wal, shard: int, body: bytes | SharedBody, body_len: int) -> int:
        state = self.shards[shard]
        tip, end = state.tip_lsn, state.last_end
        grown: int = old(self, shard, body, body_len)
        state.tip_lsn, state.last_end = tip, end
        return grown

    patch.set(Wal, "lengthen", lengthen)


@_mutant(*WRITES)
def _room_not_asked(patch: Patch) -> None:
    """A frame grows beyond what is allocated."""
    old = patch.set(Wal, "lengthen", None)

    def lengthen(self: Wal, shard: int, body: bytes | SharedBody, body_len: int) -> int:
        state = self.shards[shard]
        limit, state.append_limit = state.append_limit, 1 << 62
        grown: int = old(self, shard, body, body_len)
        state.append_limit = limit
        return grown

    patch.set(Wal, "lengthen", lengthen)


@_mutant(*WRITES)
def _written_as_it_began(patch: Patch) -> None:
    """The log gets the first write alone, and what joined it is only in memory."""
    old = patch.set(SharedBody, "close", None)

    def close(self: SharedBody) -> bytes:
        written: bytes = old(self)
        return written[: -len(self._fragments[-1])] + b" " * len(self._fragments[-1])

    patch.set(SharedBody, "close", close)


@_mutant(*WRITES)
def _joined_past_others(patch: Patch) -> None:
    """A write joins a frame of its topic though another topic's stands behind it."""

    def open_for(self: Commit, slot: Any, kind: Any, now_ms: int) -> Any:
        change: Any = self.books[slot.shard].open
        if type(change) is not kind or change.slot is not slot or not slot.pending:
            return None
        return change

    patch.set(Commit, "open_for", open_for)


@_mutant("queue-together-disk@1", "queue-together-fsync@1")
def _acks_as_they_began(patch: Patch) -> None:
    """The log gets the first ack alone."""
    old = patch.set(Commit, "grow", None)

    def grow(self: Commit, change: Any, body: Any, body_len: int) -> bool:
        grown: bool = type(change) is StagedTake or old(self, change, body, body_len)
        return grown

    patch.set(Commit, "grow", grow)
