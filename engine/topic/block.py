"""A block: a run of records of one topic, as the bytes that readers get and a few arrays.

    data     fragments joined with ","            bounds   array of count + 1: record i starts at bounds[i],
             bytes, or a bytearray while open               and ends before bounds[i + 1] - 1 (the comma)
    node_lens, meta_lens, tag_lens                lengths of those parts, None where no record has one

A block is *open* while small writes are still joined to it, then *closed*. A closed block of a logged topic may be
*cold*: its payload is dropped, and only what is needed without it is kept: where its frames are in the log, the counts,
exact live bytes, and which tags occur. Seqs in a block are contiguous. Which of its records are still live is the
topic's business; a block only counts them (`live`, `live_bytes`). No object a record, whatever the block holds.

What a record counts for (`size`) is its `data`, `meta`, `node` and `tag`, the last two as the JSON strings that they
are rendered as, without the quotes; it follows from the lengths by arithmetic (`engine.fragment`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice
from typing import Final, TypeAlias

from engine.errors import StoreDamaged
from engine.fragment import META_FIXED, NODE_FIXED, PREFIX_FIXED, TAG_FIXED, Rendered, digits
from engine.segment.segment import Segment
from engine.tagset import TagSet

BLOCK_RECORDS: Final = 256
"""Records that small writes are joined up to: what a default page reads in one slice."""
BLOCK_WEIGHT: Final = 64 * 1024
"""Bytes held that small writes are joined up to."""
OPEN_RECORDS: Final = 64
"""A write of more records than this is a closed block of its own: its bytes are kept as they are, not copied."""
OPEN_BYTES: Final = 8 * 1024
"""As `OPEN_RECORDS`, in bytes."""
NOT_LOGGED: Final = -1
"""The shard of blocks that are in no log."""
DERIVED: Final = -2
"""The shard of blocks of copies: the log has where they come from, and not them, so they stay until they are sealed."""
BARE_RECORDS: Final = 64
"""A read of this many tagged records without their tags makes the block keep what it cut."""
WEIGHT_FIXED: Final = 700
"""What a hot block holds beside its bytes, about."""

_COUNTED_FIXED: Final = PREFIX_FIXED + len(b'"data":') + len(b"},")
"""Bytes of a fragment and its comma that count for nothing, without the digits of its seq and ts."""
_PARTS_FIXED: Final = (NODE_FIXED + 2, META_FIXED, TAG_FIXED + 2)
_TS_AT: Final = len(b',"$ts":')
_JOIN: Final = b","

Bytes: TypeAlias = bytes | bytearray
Lens: TypeAlias = "array[int]"


def digits_total(first: int, last: int) -> int:
    """How many digits the numbers `first … last` have together."""
    width = digits(first)
    if width == digits(last):
        return width * (last - first + 1)
    total = 0
    while first <= last:
        width = digits(first)
        upto = min(last, 10**width - 1)
        total += width * (upto - first + 1)
        first = upto + 1
    return total


def _parts_total(lens: Lens | None, fixed: int) -> int:
    """What the fixed text of the parts in a column takes."""
    return 0 if lens is None else fixed * (len(lens) - lens.count(0))


def counted_bytes(rendered: Rendered, first_seq: int, ts: int) -> int:
    """What the records of a batch count for together."""
    count = len(rendered.strides)
    if count == 1:
        total = len(rendered.fragments) + 1 - _COUNTED_FIXED - len(str(first_seq)) - len(str(ts))
    else:
        total = len(rendered.fragments) + 1 - count * (_COUNTED_FIXED + digits(ts))
        total -= digits_total(first_seq, first_seq + count - 1)
    if rendered.node_lens is not None:
        total -= _parts_total(rendered.node_lens, NODE_FIXED + 2)
    if rendered.meta_lens is not None:
        total -= _parts_total(rendered.meta_lens, META_FIXED)
    if rendered.tag_lens is not None:
        total -= _parts_total(rendered.tag_lens, TAG_FIXED + 2)
    return total


_NO_PARTS: Final = (None, None, None)


def counted_between(
    first_seq: int, bounds: Lens, lens: tuple[Lens | None, Lens | None, Lens | None], start: int, stop: int
) -> int:
    """What records `start … stop - 1` of a run that begins with `first_seq` count for, plus the digits of their times;
    `lens` are the lengths of their node, meta and tag parts."""
    count, first = stop - start, first_seq + start
    total = bounds[stop] - bounds[start] - count * _COUNTED_FIXED
    total -= len(str(first)) if count == 1 else digits_total(first, first + count - 1)
    if lens == _NO_PARTS:
        return total
    for column, fixed in zip(lens, _PARTS_FIXED, strict=True):
        if column is not None:
            total -= _parts_total(column[start:stop], fixed)
    return total


def counted_at_most(body_len: int, count: int, first_seq: int, ts: int) -> int:
    """An upper bound of what the records of an Append frame count for, from what its header says.

    Every record has four bytes in the body for its length, and the fixed text of a fragment; exact when the batch had
    no idempotency key and its records nothing but data.
    """
    fixed = count * (_COUNTED_FIXED + digits(ts) + 4) + digits_total(first_seq, first_seq + count - 1)
    return max(body_len + 1 - fixed, 0)


def _extended(own: Lens | None, own_count: int, more: Lens | None, more_count: int) -> Lens | None:
    """A column that grows, where either side may lack it."""
    if more is None:
        if own is not None:
            own.frombytes(bytes(own.itemsize * more_count))
        return own
    if own is None:
        own = array("I", bytes(4 * own_count))
    own.extend(more)
    return own


class Block:
    """One run of records.

    live, live_bytes   how many of its records are live, and what they count for
    shard, lsns        where the frames are that it was made from; `NOT_LOGGED` and none for ephemeral topics
    counts             how many records each frame has; None when all have equally many
    segment            where its records lie when it is sealed: it then has no `lsns`, and no payload of its own
    sealing            whether it is being copied into a segment: it must keep its bounds
    tagged             whether a record of it has ever had a tag
    known_tags         what `tags` has found out, kept from when the block is closed
    touched            read or written since `Cache` last looked
    weight             bytes that it holds while hot, as `Cache` counts them
    """

    __slots__ = (
        "_bare",
        "_bounds",
        "_strides",
        "count",
        "counts",
        "data",
        "first_seq",
        "first_ts",
        "known_tags",
        "last_ts",
        "live",
        "live_bytes",
        "lsns",
        "meta_lens",
        "node_lens",
        "open",
        "sealing",
        "segment",
        "shard",
        "tag_lens",
        "tagged",
        "touched",
        "weight",
    )

    def __init__(self, first_seq: int, rendered: Rendered, ts: int, shard: int, lsn: int, size: int) -> None:
        count = len(rendered.strides)
        fragments = rendered.fragments
        self.first_seq = first_seq
        self.count = count
        self.first_ts = ts
        self.last_ts = ts
        self.live = count
        self.live_bytes = size
        self.shard = shard
        self.lsns: array[int] | None = None if shard < 0 else array("Q", (lsn,))
        self.counts: Lens | None = None
        self.segment: Segment | None = None
        self.sealing = False
        self.touched = True
        self.open = count <= OPEN_RECORDS and len(fragments) <= OPEN_BYTES
        self.weight = WEIGHT_FIXED + len(fragments) + 4 * count
        self._bounds: Lens | None = None
        self._strides: Lens | None = rendered.strides
        self._bare: tuple[bytes, Lens] | None = None
        self.known_tags: TagSet | None = None
        self.node_lens = rendered.node_lens
        self.meta_lens = rendered.meta_lens
        self.tag_lens = rendered.tag_lens
        self.tagged = rendered.tag_lens is not None
        self.data: Bytes | None = fragments
        if self.open:
            self.data = bytearray(fragments)
            self._bounds = array("I", accumulate(rendered.strides, initial=0)) if count > 1 else array("I", (0, 0))
            if count == 1:
                self._bounds[1] = rendered.strides[0]
            self._strides = None
            # Columns of a batch may be shared with the log's buffers; an open block writes to its own.
            self.node_lens = _copied(rendered.node_lens)
            self.meta_lens = _copied(rendered.meta_lens)
            self.tag_lens = _copied(rendered.tag_lens)

    @classmethod
    def sealed(cls, segment: Segment, live: int, live_bytes: int, known_tags: TagSet | None) -> Block:
        """The records of a segment, of which so many are live and count for so much."""
        block = cls.__new__(cls)
        block.first_seq = segment.first_seq
        block.count = segment.count
        block.first_ts, block.last_ts = segment.first_ts, segment.last_ts
        block.live, block.live_bytes = live, live_bytes
        block.shard, block.lsns, block.counts = NOT_LOGGED, None, None
        block.segment = segment
        block.touched = block.open = block.sealing = False
        block.weight = 0
        block.data = block._bounds = block._strides = block._bare = None
        block.node_lens = block.meta_lens = block.tag_lens = None
        block.tagged = segment.has_tag
        block.known_tags = known_tags
        return block

    # -- growing ---------------------------------------------------------------------------------------------------

    def extend(self, rendered: Rendered, ts: int, lsn: int, size: int) -> None:
        """Join a small write that follows the block's last record; `Tail` sees to the bounds."""
        data, bounds, count = self.data, self._bounds, len(rendered.strides)
        assert type(data) is bytearray, "only an open block grows"
        assert bounds is not None, "an open block has bounds"
        data += _JOIN
        data += rendered.fragments
        if count == 1:
            bounds.append(bounds[-1] + rendered.strides[0])
        else:
            bounds.extend(islice(accumulate(rendered.strides, initial=bounds[-1]), 1, None))
        if rendered.size < 0 or self.node_lens is not None or self.meta_lens is not None or self.tag_lens is not None:
            self._extend_columns(rendered, count)
        lsns = self.lsns
        if lsns is not None:
            if self.counts is not None or count * len(lsns) != self.count:
                self.counts = self._frame_counts()
                self.counts.append(count)
            lsns.append(lsn)
        self.count += count
        self.live += count
        self.live_bytes += size
        self.last_ts = ts
        self.touched = True

    def _extend_columns(self, rendered: Rendered, count: int) -> None:
        if self.node_lens is not None or rendered.node_lens is not None:
            self.node_lens = _extended(self.node_lens, self.count, rendered.node_lens, count)
        if self.meta_lens is not None or rendered.meta_lens is not None:
            self.meta_lens = _extended(self.meta_lens, self.count, rendered.meta_lens, count)
        if self.tag_lens is not None or rendered.tag_lens is not None:
            self.tag_lens = _extended(self.tag_lens, self.count, rendered.tag_lens, count)
            self.tagged = True

    def close(self) -> None:
        """No write is joined any more."""
        self.open = False
        if type(self.data) is bytearray:
            self.data = bytes(self.data)

    # -- cold and hot ----------------------------------------------------------------------------------------------

    def cool(self) -> None:
        """Drop the payload; what is needed without it stays."""
        self.close()
        self.tags()
        self.clear()

    def clear(self) -> None:
        """Drop the payload."""
        self.open = False
        self.data = self._bounds = self._strides = self._bare = None
        self.node_lens = self.meta_lens = self.tag_lens = None
        self.weight = 0

    def absorb(self, other: Block) -> None:
        """Join the cold block that follows; both are cold and in one shard, and the other one is nobody's from then."""
        assert self.lsns is not None, "a cold block is in the log"
        assert other.lsns is not None, "a cold block is in the log"
        if self.counts is not None or other.counts is not None or self._even() != other._even():
            self.counts = self._frame_counts()
            self.counts.extend(other._frame_counts())
        self.lsns.extend(other.lsns)
        tags, others = self.known_tags, other.known_tags
        self.known_tags = tags.union(others) if tags is not None and others is not None else tags or others
        self.tagged = self.tagged or other.tagged
        self.count += other.count
        self.live += other.live
        self.live_bytes += other.live_bytes
        self.last_ts = other.last_ts

    def frame_of(self, index: int) -> tuple[int, int, int]:
        """Where a record of a logged block is: its frame's lsn, the index of the first record there, and its count."""
        assert self.lsns is not None, "the block is in the log"
        if self.counts is None:
            each = self._even()
            return self.lsns[index // each], index - index % each, each
        first = 0
        for lsn, count in zip(self.lsns, self.counts, strict=True):
            if index < first + count:
                return lsn, first, count
            first += count
        raise IndexError(index)

    def frames(self) -> Iterator[tuple[int, int, int]]:
        """The frames of a logged block: lsn, first seq, count."""
        first = self.first_seq
        for lsn, count in zip(self.lsns or (), self._frame_counts(), strict=True):
            yield lsn, first, count
            first += count

    def _even(self) -> int:
        """How many records each frame has when all have equally many."""
        return self.count // len(self.lsns or (0,))

    def _frame_counts(self) -> Lens:
        return self.counts if self.counts is not None else array("I", [self._even()]) * len(self.lsns or (0,))

    def warm(self, frames: Iterable[Rendered]) -> None:
        """Take the payload back from the frames at `lsns`, in order."""
        parts = list(frames)
        strides = array("I", chain.from_iterable(part.strides for part in parts))
        if len(strides) != self.count:
            raise StoreDamaged(
                f"the log gives {len(strides)} records where seqs from {self.first_seq} on are {self.count}"
            )
        self.data = _JOIN.join([part.fragments for part in parts])
        self._strides, self._bounds = strides, None
        self.node_lens = self.meta_lens = self.tag_lens = None
        done = 0
        for part in parts:
            count = len(part.strides)
            if self.node_lens is not None or part.node_lens is not None:
                self.node_lens = _extended(self.node_lens, done, part.node_lens, count)
            if self.meta_lens is not None or part.meta_lens is not None:
                self.meta_lens = _extended(self.meta_lens, done, part.meta_lens, count)
            if self.tag_lens is not None or part.tag_lens is not None:
                self.tag_lens = _extended(self.tag_lens, done, part.tag_lens, count)
            done += count
        self.weight = WEIGHT_FIXED + len(self.data) + 4 * self.count

    # -- a hot block's records -------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    def whole(self) -> tuple[Bytes, Lens]:
        """The fragments and their bounds."""
        data = self.data
        assert data is not None, "the payload of a cold block was asked for"
        bounds = self._bounds
        if bounds is None:
            assert self._strides is not None, "a hot block has strides or bounds"
            bounds = self._bounds = array("I", accumulate(self._strides, initial=0))
            self._strides = None
        return data, bounds

    def placed(self) -> tuple[Bytes, Lens, int]:
        """As `whole`, with where the bytes begin for those who count so: record i starts at bounds[i] less that."""
        return *self.whole(), 0

    def bare(self, start: int, stop: int) -> tuple[Bytes, Lens, int]:
        """Fragments without their tags for records `start … stop - 1`: bytes, bounds, and the index of their first.

        A longer read makes the block keep all of it, because the next reader asks for the same; the bytes that it then
        holds beyond its weight are the caller's to account for (`bare_bytes`).
        """
        tag_lens = self.tag_lens
        if tag_lens is None:
            return *self.whole(), 0
        if self._bare is not None:
            return *self._bare, 0
        keep = self._keeps_bare(start, stop)
        if keep:
            start, stop = 0, self.count
        data, bounds = self.whole()
        lens = tag_lens[start:stop]
        starts, ends = bounds[start:stop], bounds[start + 1 : stop + 1]
        # A fragment ends in `}` and a comma follows: what is cut lies just before the two.
        data = b"},".join([data[a : b - 2 - tag] for a, b, tag in zip(starts, ends, lens, strict=True)]) + b"}"
        cut = array("I", accumulate((b - a - tag for a, b, tag in zip(starts, ends, lens, strict=True)), initial=0))
        if keep:
            self._bare = (data, cut)
        return data, cut, start

    def _keeps_bare(self, start: int, stop: int) -> bool:
        """Whether a read of records `start … stop - 1` makes the block keep what it cut."""
        return not self.open and (stop - start >= BARE_RECORDS or stop - start == self.count)

    @property
    def bare_bytes(self) -> int:
        """What the kept fragments without tags hold."""
        return 0 if self._bare is None else len(self._bare[0]) + 4 * self.count

    def fragment(self, index: int) -> bytes:
        """One record, whole."""
        data, bounds = self.whole()
        return bytes(data[bounds[index] : bounds[index + 1] - 1])

    def ts_at(self, index: int) -> int:
        """The `$ts` of a record; needs no payload where all of the block have one."""
        if self.first_ts == self.last_ts:
            return self.first_ts
        data, bounds = self.whole()
        begin = data.index(_JOIN, bounds[index]) + _TS_AT
        return int(data[begin : data.index(_JOIN, begin)])

    def size(self, start: int, stop: int) -> int:
        """What records `start … stop - 1` count for."""
        count = stop - start
        if count <= 0:
            return 0
        width = len(str(self.first_ts))
        if self.first_ts == self.last_ts or width == len(str(self.last_ts)):
            times = count * width
        else:
            times = sum(digits(self.ts_at(index)) for index in range(start, stop))
        bounds = self.whole()[1]
        if count == 1 and self.node_lens is None and self.meta_lens is None and self.tag_lens is None:
            return bounds[stop] - bounds[start] - _COUNTED_FIXED - len(str(self.first_seq + start)) - times
        lens = (self.node_lens, self.meta_lens, self.tag_lens)
        return counted_between(self.first_seq, bounds, lens, start, stop) - times

    def node_part(self, index: int) -> bytes:
        """The bytes `"$node":"n",` of a record, empty when it has none."""
        if self.node_lens is None or not (length := self.node_lens[index]):
            return b""
        data, bounds = self.whole()
        begin = bounds[index] + PREFIX_FIXED + digits(self.first_seq + index)
        begin += digits(self.ts_at(index))
        return bytes(data[begin : begin + length])

    def tag_part(self, index: int) -> bytes:
        """The bytes `,"$tag":"t"` of a record, empty when it has none."""
        if self.tag_lens is None or not (length := self.tag_lens[index]):
            return b""
        data, bounds = self.whole()
        end = bounds[index + 1] - 2
        return bytes(data[end - length : end])

    def tags(self) -> TagSet | None:
        """Which tags occur, dead records' included; None when no record ever had one."""
        if not self.tagged:
            return None
        tags = self.known_tags
        if tags is None and self.data is not None:
            growing, bounds = self.whole()
            data, lens = bytes(growing), self.tag_lens
            assert lens is not None, "a tagged hot block has the lengths of its tags"
            tags = TagSet({data[end - 2 - size : end - 2] for end, size in zip(bounds[1:], lens, strict=True) if size})
            if not self.open:
                self.known_tags = tags
        return tags


def _copied(lens: Lens | None) -> Lens | None:
    return None if lens is None else lens[:]
