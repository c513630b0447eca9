"""A topic's blocks, oldest first, and the way from a seq to its block.

Small writes are joined to the newest block while it is open; a larger one is a block of its own. Blocks ascend and
never overlap; between two there may be a gap, or records that were deleted block by block. A block in which nothing
is live leaves the tail at once. The oldest blocks may be sealed: their records lie in segments (`history`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING, Final

from engine.errors import StoreDamaged
from engine.fragment import Rendered, ts_of
from engine.fs import REFUSED
from engine.topic.block import BLOCK_RECORDS, BLOCK_WEIGHT, DERIVED, NOT_LOGGED, OPEN_BYTES, OPEN_RECORDS, Block
from engine.topic.cache import Cache
from engine.topic.damaged import DamagedFrames
from engine.topic.history import NotCached, Part, ReadJob

if TYPE_CHECKING:
    from engine.topic.state import Topic

FRAMES_PEEKED: Final = 32
"""Up to this many records of a cold block are looked at frame by frame; for more the block is read back."""


def _last_ts(block: Block) -> int:
    return block.last_ts


def _is_unread(error: StoreDamaged | OSError) -> bool:
    """Whether the disk refused a frame that is damaged. Raises an error that says nothing about the frame."""
    if isinstance(error, OSError) and error.errno not in REFUSED:
        raise error
    return isinstance(error, OSError)


def _are_one(left: Block, right: Block) -> bool:
    """Whether two neighbours can be one cold block."""
    return (
        left.data is None
        and right.data is None
        and left.lsns is not None
        and right.lsns is not None
        and not (left.sealing or right.sealing)
        and left.shard == right.shard
        and left.first_seq + left.count == right.first_seq
        and left.count + right.count <= BLOCK_RECORDS
        and left.live_bytes + right.live_bytes <= BLOCK_WEIGHT
    )


class Tail:
    """The blocks of one topic."""

    __slots__ = ("_firsts", "blocks", "cache", "topic_id")

    def __init__(self, cache: Cache, topic_id: int) -> None:
        self.cache = cache
        self.topic_id = topic_id
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
                    if shard < 0:
                        cache.grow_kept(shard, more)
                    return
                block.close()
        block = Block(first_seq, rendered, ts, shard, lsn, size)
        blocks.append(block)
        self._firsts.append(first_seq)
        if shard == NOT_LOGGED:
            self.cache.hold_volatile(block, topic)
        elif shard == DERIVED:
            self.cache.hold_derived(block)
        else:
            self.cache.hold(block, self)

    def adopt(self, blocks: list[Block]) -> None:
        """Take the blocks of a topic that is put back; none of them holds memory yet."""
        self.blocks = blocks
        self._firsts = array("Q", [block.first_seq for block in blocks])
        self.cache.history.learn_later(blocks)

    def locate(self, seq: int) -> int:
        """The index of the block that holds `seq`, else of the first one after it (`len(blocks)` when none is)."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0:
            return 0
        block = self.blocks[index]
        return index if seq < block.first_seq + block.count else index + 1

    def block_of(self, seq: int) -> Block | None:
        """The block that holds `seq`, or None."""
        index = bisect_right(self._firsts, seq) - 1
        if index < 0:
            return None
        block = self.blocks[index]
        return block if seq < block.first_seq + block.count else None

    def first_since(self, ts: int) -> int:
        """The index of the first block that has a record with `$ts ≥ ts`."""
        return bisect_left(self.blocks, ts, key=_last_ts)

    def hot(self, block: Block) -> Block:
        """The block, with its payload read back from the log if it was cold. Raises `NotCached` where some of it is
        damaged: its job says so, and when that is told the rest is read."""
        try:
            return self._hot(block)
        except DamagedFrames as damage:
            raise NotCached(ReadJob.of_damage(damage)) from damage

    def _hot(self, block: Block) -> Block:
        if block.data is not None:
            return block
        assert block.segment is None, "a sealed block is never hot as a whole"
        found: list[Rendered] = []
        lost: list[tuple[int, int, int]] = []
        why, unread = "", False
        ts = block.first_ts
        for lsn, first, count in block.frames():
            try:
                rendered = self.cache.frame(block.shard, lsn, first, count, ts)
            except (StoreDamaged, OSError) as error:
                unread = _is_unread(error) or unread
                why = str(error)
                lost.append((lsn, first, count))
                continue
            found.append(rendered)
            self.cache.refusals.was_read(self.topic_id, first, first + count - 1)
            if self.cache.bad:
                ts = ts_of(rendered.fragments, len(rendered.fragments) + 1 - rendered.strides[-1])
        if lost:
            raise self._damaged(block.shard, lost, why, unread)
        block.warm(found)
        self.cache.hold_again(block, self)
        return block

    def _damaged(self, shard: int, frames: list[tuple[int, int, int]], why: str, unread: bool) -> DamagedFrames:
        ranges = [(first, first + count - 1) for _, first, count in frames]
        return DamagedFrames(self.topic_id, ranges, why, tuple((shard, lsn) for lsn, _, _ in frames), unread=unread)

    def at(self, block: Block, index: int) -> tuple[Block, int]:
        """A hot block and the index in it of record `index` of `block`: of a cold one only the frame is read back that
        holds the record, unless that is a large one, which had better stay. Raises `NotCached`."""
        if block.data is not None:
            return block, index
        if block.segment is not None:
            return self.cache.history.part(block, index)
        try:
            return self._at(block, index)
        except DamagedFrames as damage:
            raise NotCached(ReadJob.of_damage(damage)) from damage

    def _at(self, block: Block, index: int) -> tuple[Block, int]:
        """The same for a block of the log. Raises `DamagedFrames`."""
        if block.data is not None:
            return block, index
        lsn, first, count = block.frame_of(index)
        if count > OPEN_RECORDS:
            return self._hot(block), index
        ts = block.first_ts
        if first and (block.shard, lsn) in self.cache.bad:
            ts = self.ts_at(block, first - 1)
        first_seq = block.first_seq + first
        try:
            part = self.cache.peek(block.shard, lsn, first_seq, count, ts)
        except (StoreDamaged, OSError) as error:
            raise self._damaged(block.shard, [(lsn, first_seq, count)], str(error), _is_unread(error)) from error
        self.cache.refusals.was_read(self.topic_id, first_seq, first_seq + count - 1)
        return part, index - first

    def size(self, block: Block, start: int, stop: int) -> int:
        """What records `start … stop - 1` of a block count for; where a frame cannot be read, their share of what all
        live ones do."""
        if block.data is not None:
            return block.size(start, stop)
        if block.segment is not None:
            return self.cache.history.size(block, start, stop)
        if stop - start > FRAMES_PEEKED:
            try:
                return self._hot(block).size(start, stop)
            except (StoreDamaged, OSError):
                pass  # some frame of it: they are looked at one by one
        total = 0
        while start < stop:
            try:
                part, offset = self._at(block, start)
            except (StoreDamaged, OSError):
                _, first, count = block.frame_of(start)
                taken = min(stop, first + count) - start
                total += block.live_bytes * taken // max(block.live, 1)
            else:
                taken = min(stop - start, part.count - offset)
                total += part.size(offset, offset + taken)
            start += taken
        return min(total, block.live_bytes)

    def ts_at(self, block: Block, index: int) -> int:
        """The `$ts` of a record of a block; where a frame is damaged, which is told then, one that is not too early."""
        if block.first_ts == block.last_ts:
            return block.first_ts
        if block.segment is not None:
            return self.cache.history.ts_at(block, index)
        try:
            part, offset = self._at(block, index)
        except DamagedFrames as damage:
            self.cache.history.damaged.append(damage)
            return block.last_ts
        return part.ts_at(offset)

    def offset_since(self, block: Block, ts: int, low: int = 0) -> int:
        """The index of the first record from `low` on with `$ts ≥ ts`, or `count`; cheap when it is near `low`."""
        if ts <= block.first_ts:
            return low
        if ts > block.last_ts:
            return block.count
        high, step = low, 1
        while high < block.count and self.ts_at(block, high) < ts:
            low, high, step = high + 1, high + step, step * 2
        key = partial(self.ts_at, block)
        return bisect_left(range(block.count), ts, low, min(high, block.count), key=key)

    def timed_until(self, seq: int) -> int:
        """The last seq up to `seq` whose time is known: what a segment never held has lost its time."""
        index = self.locate(seq)
        while 0 <= index < len(self.blocks):
            block = self.blocks[index]
            if block.segment is None or seq > block.last_seq or seq < block.first_seq:
                break
            row = self.cache.history.last_held(block, seq - block.first_seq)
            if row >= 0:
                return block.first_seq + row
            seq, index = block.first_seq - 1, index - 1
        return seq

    def join_cold(self, block: Block) -> None:
        """Join a block that has just become cold to its neighbours, as far as they are cold and small too: what is
        written to many topics in turn, with little memory, would otherwise be a block a record."""
        index = self.locate(block.first_seq)
        if index + 1 < len(self.blocks) and _are_one(block, self.blocks[index + 1]):
            self._join(index)
        if index > 0 and _are_one(self.blocks[index - 1], block):
            self._join(index - 1)

    def _join(self, index: int) -> None:
        self.blocks[index].absorb(self.blocks[index + 1])
        del self.blocks[index + 1]
        del self._firsts[index + 1]

    def bare(self, block: Block, start: int, stop: int) -> tuple[bytes | bytearray, array[int], int]:
        """`Block.bare`, with what the block keeps of it accounted for."""
        before = block.bare_bytes
        found = block.bare(start, stop)
        if block.bare_bytes != before:
            more = block.bare_bytes - before
            if isinstance(block, Part):
                self.cache.history.grow(block, more)
            else:
                self.cache.grow(block, more)
        return found

    def replace(self, first_index: int, count: int, block: Block) -> None:
        """A sealed block takes the place of blocks that it holds the records of, and counts what they count now: what
        was deleted or lost while it was made stays so. The counts of the topic are not touched."""
        segment, stop = block.segment, first_index + count
        replaced = self.blocks[first_index:stop]
        assert segment is not None, "closed history is replaced by segments"
        assert replaced, "a segment in which nothing is live is nobody's block"
        assert block.first_seq <= replaced[0].first_seq, "a segment holds all of what it replaces"
        assert replaced[-1].last_seq <= block.last_seq, "a segment holds all of what it replaces"
        block.live = sum(old.live for old in replaced)
        block.live_bytes = sum(old.live_bytes for old in replaced)
        if block.known_tags is not None:
            self.cache.history.know_tags(block, block.known_tags)
        for old in replaced:
            place = self.topic_id if old.segment is None else old.segment
            self.cache.refusals.was_read(place, old.first_seq, old.last_seq)
            if old.segment is None:
                self.cache.remove(old)
            else:
                self.cache.history.forget(old.segment)
        self.blocks[first_index:stop] = [block]
        self._firsts[first_index:stop] = array("Q", (block.first_seq,))

    def drop(self, first_index: int, stop: int) -> None:
        """Take blocks `first_index … stop - 1` away."""
        for block in self.blocks[first_index:stop]:
            self.cache.remove(block)
        del self.blocks[first_index:stop]
        del self._firsts[first_index:stop]
