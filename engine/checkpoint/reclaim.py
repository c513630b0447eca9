"""Which segments are written again: those that are mostly dead, worn, or many and tiny (storage.md §5).

A segment in which nothing is live is no block's any more and its files just go. What is left of others is copied, as
bytes, into a new segment, which takes the place of the old ones like that of blocks in memory; their files stay until
neither kept snapshot names them. So every step may be cut off and done again: before the switch the new files are
leftovers, after it the old ones are.

Those in the cold tier are joined by themselves, and off the road (engine/core/merging.py): a checkpoint must not wait
for it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.checkpoint.plan import HOLE_MAX, Group, has_own_files
from engine.limits import MIB, EngineSettings
from engine.topic.block import Block

DEAD_SHARE: Final = 4
"""Mostly dead: of the records that it was made with one in this many is live, or fewer."""
SMALL_SHARE: Final = 4
"""Small: its live records are at most this part of a full segment; such a neighbour is taken along."""
TINY_MIN: Final = 8
"""So many small neighbours are joined although none is mostly dead."""
ROWS_FACTOR: Final = 4
"""A rewritten segment has rows for the seqs of so many full ones at most: each that died keeps its row."""
REWRITE_BYTES: Final = 64 * MIB
"""What one checkpoint copies at most for the sake of tidiness (and one segment more); the next one goes on."""


def is_mostly_dead(block: Block) -> bool:
    """Whether a sealed block is worth writing again for the room that its dead take."""
    segment = block.segment
    return segment is not None and block.live * DEAD_SHARE <= segment.present


def _may_move(block: Block) -> bool:
    segment = block.segment
    return segment is not None and has_own_files(block) and not segment.cold and not block.sealing and block.live > 0


def to_rewrite(blocks: Sequence[Block], settings: EngineSettings) -> list[Group]:
    """The groups of a topic's sealed blocks that are each to become one new segment."""
    return [Group(group) for run in _candidates(blocks, settings) for group in _cut(run, settings) if _pays(group)]


def to_merge(blocks: Sequence[Block], settings: EngineSettings) -> list[Group]:
    """The groups of a topic's blocks in the cold tier that are each to become one object: small neighbours, so many
    that it pays to read them again."""
    if not settings.cold_merge_min:
        return []
    runs = _runs(blocks, lambda block: _may_merge(block) and _is_small(block, settings))
    groups = [group for run in runs for group in _cut(run, settings)]
    return [Group(group) for group in groups if len(group) >= max(settings.cold_merge_min, 2)]


def _may_merge(block: Block) -> bool:
    segment = block.segment
    return segment is not None and segment.cold and not (block.sealing or segment.bad) and block.live > 0


def _candidates(blocks: Sequence[Block], settings: EngineSettings) -> Iterator[list[Block]]:
    """Neighbours that may be joined: mostly dead, worn, or small."""
    return _runs(
        blocks,
        lambda block: _may_move(block) and (is_mostly_dead(block) or _is_worn(block) or _is_small(block, settings)),
    )


def _runs(blocks: Sequence[Block], takes_part: Callable[[Block], bool]) -> Iterator[list[Block]]:
    """Neighbours of which each takes part, with no hole of many seqs between them."""
    run: list[Block] = []
    for block in blocks:
        takes = takes_part(block)
        if run and (not takes or block.first_seq - run[-1].last_seq > HOLE_MAX):
            yield run
            run = []
        if takes:
            run.append(block)
    if run:
        yield run


def _cut(run: list[Block], settings: EngineSettings) -> Iterator[list[Block]]:
    """A run in groups of which none gets larger than a segment may be."""
    group: list[Block] = []
    live = size = 0
    for block in run:
        live, size = live + block.live, size + block.live_bytes
        rows = block.last_seq - (group[0] if group else block).first_seq + 1
        if group and (
            live > settings.segment_max_events
            or size > settings.segment_max_bytes
            or rows > ROWS_FACTOR * settings.segment_max_events
        ):
            yield group
            group, live, size = [], block.live, block.live_bytes
        group.append(block)
    if group:
        yield group


def _pays(group: list[Block]) -> bool:
    return len(group) >= TINY_MIN or any(is_mostly_dead(block) or _is_worn(block) for block in group)


def _is_worn(block: Block) -> bool:
    return block.segment is not None and block.segment.worn


def _is_small(block: Block, settings: EngineSettings) -> bool:
    return (
        block.live * SMALL_SHARE <= settings.segment_max_events
        and block.live_bytes * SMALL_SHARE <= settings.segment_max_bytes
    )
