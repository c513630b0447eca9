"""Planted bugs of writes that share a frame (ADR 0050): where it ends, what is in it, and whether it still may grow.

As in `mutants.py`, each names the scenarios in which it should show first.
"""

from __future__ import annotations

from typing import Any

from engine.core.commit import Commit
from engine.formats.append import SharedBody
from engine.wal.wal import Wal
from tests.sim.mutants import Mutant, Patch, Plant

JOINED: list[Mutant] = []


def _mutant(plant: Plant) -> Plant:
    name = plant.__name__.lstrip("_").replace("_", "-")
    JOINED.append(Mutant(f"joined-{name}", plant, ("joined-disk", "joined-fsync")))
    return plant


@_mutant
def _tip_stays(patch: Patch) -> None:
    """What comes behind a frame that has grown is written over its end."""
    old = patch.set(Wal, "lengthen", None)

    def lengthen(self: Wal, shard: int, body: SharedBody, body_len: int) -> int:
        state = self.shards[shard]
        tip, end = state.tip_lsn, state.last_end
        grown: int = old(self, shard, body, body_len)
        state.tip_lsn, state.last_end = tip, end
        return grown

    patch.set(Wal, "lengthen", lengthen)


@_mutant
def _room_not_asked(patch: Patch) -> None:
    """A frame grows beyond what is allocated."""
    old = patch.set(Wal, "lengthen", None)

    def lengthen(self: Wal, shard: int, body: SharedBody, body_len: int) -> int:
        state = self.shards[shard]
        limit, state.append_limit = state.append_limit, 1 << 62
        grown: int = old(self, shard, body, body_len)
        state.append_limit = limit
        return grown

    patch.set(Wal, "lengthen", lengthen)


@_mutant
def _written_as_it_began(patch: Patch) -> None:
    """The log gets the first write alone, and what joined it is only in memory."""
    old = patch.set(SharedBody, "close", None)

    def close(self: SharedBody) -> bytes:
        written: bytes = old(self)
        return written[: -len(self._fragments[-1])] + b" " * len(self._fragments[-1])

    patch.set(SharedBody, "close", close)


@_mutant
def _joined_past_others(patch: Patch) -> None:
    """A write joins a frame of its topic though another topic's stands behind it."""
    old = patch.set(Commit, "join", None)

    def join(self: Commit, slot: Any, *rest: Any) -> bool:
        book = self.books[slot.shard]
        for change in reversed(slot.pending or ()):
            if getattr(change, "shared", None) is not None or getattr(change, "key", b"") is None:
                change.lsn = self.wal.shards[slot.shard].last_lsn
                book.open = change
                break
        joined: bool = old(self, slot, *rest)
        return joined

    patch.set(Commit, "join", join)
