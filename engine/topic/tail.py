"""A topic's blocks, oldest first, and the way from a seq to its block.

Small writes are joined to the newest block while it is open; a larger one is a block of its own. Blocks ascend and
never overlap; between two there may be a gap, or records that were deleted block by block. A block in which nothing
is live leaves the tail at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from engine.fragment import Rendered
from engine.topic.block import BLOCK_RECORDS, BLOCK_WEIGHT, NOT_LOGGED, OPEN_BYTES, OPEN_RECORDS, Block
from engine.topic.cache import Cache

if TYPE_CHECKING:
    from engine.topic.state import Topic


def _last_ts(block: Block) -> int:
    return block.last_ts


class Tail:
    """The blocks of one topic."""

    __slots__ = ("_firsts", "blocks", "cache")

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.blocks: list[Block] = []
        self._firsts: array[int] = array("Q")

    def append(
        self, topic: Topic, first_seq: int, rendered: Rendered, ts: int, location: tuple[int, int] | None, size: int
    ) -> None:
        """Add a batch that starts at `first_seq`, right after the last record or beyond a gap."""
        shard, lsn = location if location is not None else (NOT_LOGGED, 0)
        blocks = self.blocks
        if blocks:
            block = blocks[-1]
            if block.open:
                count = len(rendered.strides)
                length = len(rendered.fragments)
                if (
                    count <= OPEN_RECORDS
                    and length <= OPEN_BYTES
                    and block.count + count <= BLOCK_RECORDS
                    and block.weight + length <= BLOCK_WEIGHT
                    and block.shard == shard
                    and block.first_seq + block.count == first_seq
                ):
                    block.extend(rendered, ts, lsn, size)
                    more = length + 4 * count
                    block.weight += more
                    cache = self.cache
                    cache.bytes_held += more
                    if location is None:
                        cache.volatile_held += more
                    return
                block.close()
        block = Block(first_seq, rendered, ts, shard, lsn, size)
        blocks.append(block)
        self._firsts.append(first_seq)
        if shard == NOT_LOGGED:
            self.cache.hold_volatile(block, topic)
        else:
            self.cache.hold(block)

    def locate(self, seq: int) -> int:
        """The index of the block that holds `seq`, else of the first one after it (`len(blocks)` when none is)."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0:
            return 0
        block = self.blocks[index]
        return index if seq < block.first_seq + block.count else index + 1

    def block_of(self, seq: int) -> Block | None:
        """The block that holds `seq`, or None."""
        index = self.locate(seq)
        if index == len(self.blocks) or self.blocks[index].first_seq > seq:
            return None
        return self.blocks[index]

    def first_since(self, ts: int) -> int:
        """The index of the first block that has a record with `$ts ≥ ts`."""
        return bisect_left(self.blocks, ts, key=_last_ts)

    def hot(self, block: Block) -> Block:
        """The block, with its payload read back from the log if it was cold."""
        if block.data is None:
            load, shard = self.cache.load, block.shard
            block.warm(load(shard, lsn) for lsn in block.lsns or ())
            self.cache.hold(block)
        return block

    def bare(self, block: Block, start: int, stop: int) -> tuple[bytes | bytearray, array[int], int]:
        """`Block.bare`, with what the block keeps of it accounted for."""
        before = block.bare_bytes
        found = block.bare(start, stop)
        if block.bare_bytes != before:
            self.cache.grow(block, block.bare_bytes - before)
        return found

    def drop_front(self, count: int) -> None:
        """Take the oldest `count` blocks away."""
        for block in self.blocks[:count]:
            self.cache.remove(block)
        del self.blocks[:count]
        del self._firsts[:count]

    def drop_at(self, index: int) -> None:
        """Take one block away."""
        self.cache.remove(self.blocks[index])
        del self.blocks[index]
        del self._firsts[index]
