"""Which segments one checkpoint writes: chosen as its topics are taken down, written job by job, named by its snapshot.

    a topic is taken down ─► groups of its blocks that are full, or mostly dead ─► jobs, `SEAL_BYTES` each ─► snapshot

Nothing that is written later is among them, so a checkpoint ends however fast others write meanwhile. A segment holds
what was live when its topic was taken down; what is deleted until it takes the place of its blocks is in the log, and
in a .del file of the next checkpoint.

Owned by the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from engine.checkpoint.jobs import Copy, Piece
from engine.checkpoint.plan import Group, has_own_files, to_seal
from engine.checkpoint.reclaim import REWRITE_BYTES, to_rewrite
from engine.core.images import Captured
from engine.core.slot import Slot
from engine.limits import EngineSettings
from engine.topic.rangeset import RangeSet

SEAL_BYTES: Final = 8 * 1024 * 1024
"""Bytes that one job seals at most (and one segment more)."""


class Sealing:
    """The segments of one checkpoint."""

    def __init__(self, settings: EngineSettings) -> None:
        self.pieces: list[Piece] = []
        self._settings = settings
        self._at = 0
        self._rewritten = 0
        """Bytes that are copied from segments to segments."""

    def plan(self, slot: Slot, now_ms: int) -> list[Group]:
        """The groups of a topic's blocks that are each to become a segment."""
        blocks = slot.topic.tail.blocks
        groups: list[Group] = []
        if blocks and not has_own_files(blocks[-1]):
            groups = to_seal(blocks, self._settings, now_ms, everything=slot.moved is not None)
        if self._rewritten < REWRITE_BYTES:
            rewritten = to_rewrite(blocks, self._settings)
            self._rewritten += sum(group.size for group in rewritten)
            groups += rewritten
        return groups

    def add(self, slot: Slot, found: Captured, groups: Sequence[Group]) -> None:
        """A topic is taken down; its blocks in the groups keep their bounds until the checkpoint is over."""
        for group in groups:
            blocks = group.blocks
            live, size = sum(block.live for block in blocks), sum(block.live_bytes for block in blocks)
            replaces = [block.segment for block in blocks if block.segment is not None]
            rows = deleted_rows(slot.topic.deleted, group.first_seq, group.last_seq)
            self.pieces.append(Piece(found, Copy.of(slot.topic, group), live, size, replaces, rows))

    def next(self) -> list[Copy]:
        """What the next job writes; nothing when all is written."""
        copies: list[Copy] = []
        size = 0
        while self._at < len(self.pieces) and size < SEAL_BYTES:
            piece = self.pieces[self._at]
            self._at += 1
            size += piece.size
            copies.append(piece.copy)
        return copies

    @property
    def progress(self) -> float:
        """How much of them was given out, 0 … 1."""
        return self._at / len(self.pieces) if self.pieces else 0.0

    def forget(self, dropped: Collection[int]) -> None:
        """These topics, by the identities of their objects, are in no snapshot any more."""
        self.pieces = [piece for piece in self.pieces if id(piece.copy.topic) not in dropped]


def deleted_rows(deleted: RangeSet, first_seq: int, last_seq: int) -> list[tuple[int, int]]:
    """The rows of a segment from one seq to another that were deleted, as a .del file says it."""
    return [(first - first_seq, last - first_seq) for first, last in deleted.between(first_seq, last_seq)]
