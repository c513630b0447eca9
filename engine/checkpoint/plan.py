"""What a checkpoint does with the blocks of one topic: which are sealed into segments, which go into the tails file.

    [segments …] [pieces of tails files …] [blocks whose records are in the log alone …]
                 └──────────── full, or old enough: a segment ────────┘└── the rest: a new piece

Pure. A block is never split, so a segment has up to `segment_max_events` seqs and those of one block more. Nothing is
joined over a hole of many seqs (a row of the index stands for each), nor over records that are in memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from engine.limits import EngineSettings
from engine.topic.block import NOT_LOGGED, Block

HOLE_MAX: Final = 4096
"""Missing seqs in a row that a segment may have rows for."""
SEAL_BYTES_MIN: Final = 64 * 1024
"""What is only old is sealed from this size on: smaller tails of idle topics stay in tails files, which are shared."""
PIECES_MAX: Final = 8
"""Pieces of one topic; then they are written again as one."""
_FIXED: Final = 48
"""Bytes that a fragment has beyond what it counts for, about."""


class Group(NamedTuple):
    """Neighbouring blocks that become one segment or piece."""

    blocks: list[Block]

    @property
    def first_seq(self) -> int:
        return self.blocks[0].first_seq

    @property
    def last_seq(self) -> int:
        return self.blocks[-1].last_seq

    @property
    def size(self) -> int:
        """About how many bytes it will have."""
        return sum(map(_size, self.blocks))


def _size(block: Block) -> int:
    return block.live_bytes + _FIXED * block.live


def has_own_files(block: Block) -> bool:
    """Whether the block is a segment already."""
    return block.segment is not None and not block.segment.in_tails


def _is_in_memory_alone(block: Block) -> bool:
    return block.segment is None and block.shard == NOT_LOGGED


def stretches(blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks that are in no segment, nor on their way into one, as runs that may be joined."""
    found: list[list[Block]] = []
    current: list[Block] = []
    for block in blocks:
        if has_own_files(block) or block.sealing or _is_in_memory_alone(block):
            current = []
            continue
        if not current or block.first_seq - current[-1].last_seq > HOLE_MAX:
            current = []
            found.append(current)
        current.append(block)
    return found


def to_seal(blocks: Sequence[Block], settings: EngineSettings, now_ms: int, *, everything: bool = False) -> list[Group]:
    """The groups of a topic's blocks that are to become segments; `everything`: nothing is left over."""
    groups: list[Group] = []
    runs = stretches(blocks)
    for run in runs:
        is_closed = run[-1] is not blocks[-1]
        for group in _cut(run, settings.segment_max_events, settings.segment_max_bytes):
            last = group[-1]
            full = everything or last.last_seq - group[0].first_seq + 1 >= settings.segment_max_events
            if not full:
                size = sum(map(_size, group))
                old = is_closed or (settings.segment_age_ms and now_ms - last.last_ts >= settings.segment_age_ms)
                full = size >= settings.segment_max_bytes or bool(old and size >= SEAL_BYTES_MIN)
            if full:
                groups.append(Group(group))
    return groups


def _cut(run: list[Block], events: int, size_max: int) -> list[list[Block]]:
    """A run in groups that are full, and what is left of it."""
    groups: list[list[Block]] = []
    group: list[Block] = []
    size = 0
    for block in run:
        group.append(block)
        size += _size(block)
        if block.last_seq - group[0].first_seq + 1 >= events or size >= size_max:
            groups.append(group)
            group, size = [], 0
    if group:
        groups.append(group)
    return groups


def to_tails(blocks: Sequence[Block], settings: EngineSettings, is_worn: Callable[[int], bool]) -> list[Group]:
    """The groups that go into the new tails file: what is in the log alone; and pieces where there are too many of
    them, or where most of their file is superfluous (`is_worn(number)`). What is on its way into a segment is not."""
    free = [block for block in blocks if not block.sealing]
    pieces = [block for block in free if block.segment is not None and block.segment.in_tails]
    again = any(block.segment is not None and is_worn(block.segment.number) for block in pieces)
    again = again or len(pieces) >= PIECES_MAX
    if not again:
        loose = [block for block in free if block.segment is None and not _is_in_memory_alone(block)]
        if len(loose) <= 1:
            return [Group(loose)] if loose else []  # of ten thousand topics nearly all
    groups: list[Group] = []
    for run in stretches(blocks):
        loose = run if again else [block for block in run if block.segment is None]
        for part in stretches(loose):
            groups += map(Group, _cut(part, settings.segment_max_events, settings.segment_max_bytes))
    return groups
