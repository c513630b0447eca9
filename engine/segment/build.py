"""Building segments: from stretches of records to the bytes of their files. Nothing here does I/O.

What lives in memory or comes out of older files is given as `Run`s: fragments as they are, and arrays. Fragments are
never rendered again, and hardly ever copied: the data of a segment is the list of the buffers that it was given.

This runs in a thread beside the loop, so it goes in stretches: C code that works through many records at once holds the
interpreter's lock all that time, unless it is ours (`scan.checks`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from xxhash import xxh3_64, xxh3_64_intdigest

from engine import scan
from engine.formats.segment import (
    DATA_LEN_MAX,
    FLAG_METAS,
    FLAG_NODES,
    FLAG_TAGS,
    ROW_LEN,
    SUM_ROWS,
    Columns,
    SegmentInfo,
    minus,
    pack_info,
    pack_row,
    pack_rows,
)
from engine.formats.tagtable import pack_tags
from engine.fragment import PREFIX_FIXED, digits
from engine.tagset import TagSet

STRETCH: Final = 1024
"""Records that are worked through without giving up the interpreter's lock…"""
STRETCH_BYTES: Final = 1 << 20
"""…unless they are long: then so many that they have about this many bytes."""
FEW: Final = 16
"""So many rows are put together one by one; for more, columns are the faster way."""
assert FEW <= SUM_ROWS, "few rows have one sum"

Buffer: TypeAlias = bytes | bytearray | memoryview
Lens: TypeAlias = "array[int]"


class Run:
    """A stretch of records with consecutive seqs, all of which go into the segment.

    data        the fragments, joined with ","
    strides     length of each fragment plus one, as in `engine.fragment.Rendered`
    ts          their `$ts`: one for all, or an array
    …_lens      lengths of the parts as drawn in `engine.fragment`; None where no record has one
    """

    __slots__ = ("data", "first_seq", "meta_lens", "node_lens", "strides", "tag_lens", "ts")

    def __init__(
        self,
        first_seq: int,
        data: Buffer,
        strides: Lens,
        ts: int | array[int],
        node_lens: Lens | None = None,
        meta_lens: Lens | None = None,
        tag_lens: Lens | None = None,
    ) -> None:
        self.first_seq = first_seq
        self.data = data
        self.strides = strides
        self.ts = ts
        self.node_lens = node_lens
        self.meta_lens = meta_lens
        self.tag_lens = tag_lens

    @property
    def count(self) -> int:
        return len(self.strides)


@dataclass(frozen=True, slots=True)
class Built:
    """A segment's bytes, all but the headers of its files."""

    info: SegmentInfo
    index: bytes
    """Info, rows and sums."""
    data: list[Buffer]
    """The fragments, to be written one after the other."""
    data_check: int
    """XXH3-64 of them."""
    tags: bytes | None
    """What follows the header of `.tags`; None when no record has a tag."""
    tag_set: TagSet | None


def times_of(data: Buffer, strides: Lens, first_seq: int, first_ts: int, last_ts: int) -> array[int]:
    """The `$ts` of each fragment, for records that do not all have the same one."""
    if digits(first_ts) != digits(last_ts):
        return array("Q", [_time(data, start, first_seq + at) for at, start in enumerate(_starts(strides))])
    flat, width = bytes(data), digits(first_ts)
    tss = array("Q")
    at = 0
    for first, count in _equally_long(first_seq, len(strides)):
        begin = PREFIX_FIXED - 1 + digits(first)
        starts = accumulate(strides[at : at + count], initial=begin + sum(strides[:at]))
        tss.extend([int(flat[start : start + width]) for _, start in zip(range(count), starts, strict=False)])
        at += count
    return tss


def _starts(strides: Lens) -> Iterator[int]:
    return accumulate(strides[:-1], initial=0)


def _equally_long(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Stretches of consecutive numbers that have equally many digits."""
    while count:
        taken = min(count, 10 ** digits(first) - first)
        yield first, taken
        first, count = first + taken, count - taken


def _time(data: Buffer, start: int, seq: int) -> int:
    begin = start + PREFIX_FIXED - 1 + digits(seq)
    piece = bytes(data[begin : begin + 20])
    return int(piece[: piece.index(b",")])


def build(topic_id: int, first_seq: int, count: int, runs: Sequence[Run]) -> Built:
    """The segment for the seqs `first_seq … first_seq + count - 1` that holds `runs`, which ascend and have records.

    Seqs between them become rows without a record. Raises `ValueError` when the data is longer than offsets can tell.
    """
    if sum([len(run.data) for run in runs]) + len(runs) > DATA_LEN_MAX:
        raise ValueError("a segment holds at most 4 GiB")
    if count <= FEW and sum(run.count for run in runs) == count and all(run.tag_lens is None for run in runs):
        return _build_few(topic_id, first_seq, runs)
    return _build_many(topic_id, first_seq, count, runs)


def _build_few(topic_id: int, first_seq: int, runs: Sequence[Run]) -> Built:
    """The same for a few rows that all have a record, and no tag: what most pieces of tails files are."""
    rows, data = bytearray(), list[Buffer]()
    offset = flags = last_ts = check = 0
    for run in runs:
        if data:
            data.append(b",")
        data.append(run.data)
        nodes, metas, ts = run.node_lens, run.meta_lens, run.ts
        flags |= (FLAG_NODES if nodes is not None else 0) | (FLAG_METAS if metas is not None else 0)
        view, start = memoryview(run.data), 0
        for at, stride in enumerate(run.strides):
            check = xxh3_64_intdigest(view[start : start + stride - 1])
            last_ts = ts if isinstance(ts, int) else ts[at]
            meta, node = 0 if metas is None else metas[at], 0 if nodes is None else nodes[at]
            rows += pack_row(offset, stride - 1, last_ts, meta, node, 0, check & 0xFFFF_FFFF, 0)
            start += stride
            offset += stride
    if len(data) > 1 or runs[0].count > 1:
        whole = xxh3_64()
        for buffer in data:
            whole.update(buffer)
        check = whole.intdigest()
    sums = array("Q", (xxh3_64_intdigest(rows), check)).tobytes()
    first_ts = runs[0].ts if isinstance(runs[0].ts, int) else runs[0].ts[0]
    count = len(rows) // ROW_LEN
    sums_check = xxh3_64_intdigest(sums)
    info = SegmentInfo(topic_id, first_seq, count, count, offset - 1, flags, first_ts, last_ts, sums_check)
    return Built(info, b"".join((pack_info(info), rows, sums)), data, check, None, None)


def _build_many(topic_id: int, first_seq: int, count: int, runs: Sequence[Run]) -> Built:
    """Any segment, by columns."""
    columns, strides = _columns(first_seq, count, runs)
    present = sum(run.count for run in runs)
    data: list[Buffer] = []
    for run in runs:
        if data:
            data.append(b",")
        data.append(run.data)
    total = sum(map(len, data))
    flags = (
        (FLAG_NODES if columns.node_lens is not None else 0)
        | (FLAG_METAS if columns.meta_lens is not None else 0)
        | (FLAG_TAGS if columns.tag_lens is not None else 0)
    )
    rows = pack_rows(columns).tobytes()
    bounds = columns.offsets
    bounds.append(total + 1 if total else 0)
    sums, data_check = _sums(rows, bounds, data)
    info = SegmentInfo(
        topic_id,
        first_seq,
        count,
        present,
        total,
        flags,
        columns.tss[0],
        columns.tss[-1],
        xxh3_64_intdigest(sums),
    )
    tags, tag_set = pack_tags(_rows_by_tag(first_seq, runs)) if flags & FLAG_TAGS else (None, None)
    assert sum(strides) == bounds[-1], "strides add up to the data"
    return Built(info, b"".join((pack_info(info), rows, sums)), data, data_check, tags, tag_set)


class _Growing:
    """Columns that are put together run by run."""

    def __init__(self) -> None:
        self.strides, self.lengths, self.tss, self.checks = array("I"), array("I"), array("Q"), array("I")
        self.parts: list[Lens | None] = [None, None, None]

    def hole(self, count: int, ts: int) -> None:
        """Rows without a record."""
        zeros = bytes(4 * count)
        for column in (self.strides, self.lengths, self.checks, *self.parts):
            if column is not None:
                column.frombytes(zeros)
        self.tss.extend(array("Q", (self.tss[-1] if self.tss else ts,)) * count)

    def run(self, run: Run) -> None:
        """The rows of a run."""
        have, count = len(self.strides), run.count
        self.strides.extend(run.strides)
        self.lengths.extend(minus(run.strides, 1))
        self.tss.extend(array("Q", (run.ts,)) * count if isinstance(run.ts, int) else run.ts)
        for at, lens in enumerate((run.node_lens, run.meta_lens, run.tag_lens)):
            part = self.parts[at]
            if lens is not None:
                if part is None:
                    part = self.parts[at] = array("I", bytes(4 * have))
                part.extend(lens)
            elif part is not None:
                part.frombytes(bytes(4 * count))
        checks = scan.checks(run.data, run.strides)
        if checks is not None:
            self.checks.frombytes(checks)
            return
        for hashes in _hashes(run):
            self.checks.frombytes(memoryview(hashes).cast("B").cast("I")[0::2].tobytes())


def _columns(first_seq: int, count: int, runs: Sequence[Run]) -> tuple[Columns, Lens]:
    """The columns of all rows, and the strides with 0 where there is no record."""
    growing = _Growing()
    next_seq, ts = first_seq, 0
    for run in runs:
        assert run.first_seq >= next_seq, "runs ascend"
        assert run.count, "a run has records"
        ts = run.ts if isinstance(run.ts, int) else run.ts[0]
        if run.first_seq > next_seq:
            growing.hole(run.first_seq - next_seq, ts)
        growing.run(run)
        next_seq = run.first_seq + run.count
    assert next_seq <= first_seq + count, "runs end where the segment does"
    if next_seq < first_seq + count:
        growing.hole(first_seq + count - next_seq, ts)
    offsets = array("I", accumulate(growing.strides, initial=0))
    offsets.pop()
    nodes, metas, tags = growing.parts
    columns = Columns(offsets, growing.lengths, growing.tss, nodes, metas, tags, growing.checks)
    return columns, growing.strides


def _hashes(run: Run) -> Iterator[array[int]]:
    """XXH3-64 of each fragment, a stretch of them at a time."""
    begin = 0
    stretch = min(STRETCH, STRETCH_BYTES * run.count // len(run.data) + 1)
    for at in range(0, run.count, stretch):
        strides = run.strides[at : at + stretch]
        length = sum(strides)
        if type(run.data) is bytes:
            flat, start = run.data, begin
        else:
            flat, start = bytes(memoryview(run.data)[begin : begin + length]), 0
        bounds = accumulate(strides, initial=start)
        yield array("Q", [xxh3_64_intdigest(flat[at : upto - 1]) for at, upto in pairwise(bounds)])
        begin += length


def _sums(rows: bytes, bounds: Lens, data: Iterable[Buffer]) -> tuple[bytes, int]:
    """The sums, and the XXH3-64 of all data."""
    whole = xxh3_64()
    cursor = _Cursor(data)
    sums = array("Q")
    view = memoryview(rows)
    last = len(bounds) - 1
    end = 0
    for at in range(0, last, SUM_ROWS):
        upto = min(at + SUM_ROWS, last)
        start, stop = bounds[at], bounds[upto]
        sums.append(xxh3_64_intdigest(view[at * ROW_LEN : upto * ROW_LEN]))
        if stop == start:
            sums.append(xxh3_64_intdigest(b""))
            continue
        if start > end:
            for part in cursor.take(start - end):
                whole.update(part)
        end = stop - 1
        parts = cursor.take(end - start)
        for part in parts:
            whole.update(part)
        if len(parts) == 1:
            sums.append(xxh3_64_intdigest(parts[0]))
        else:
            group = xxh3_64()
            for part in parts:
                group.update(part)
            sums.append(group.intdigest())
    return sums.tobytes(), whole.intdigest()


class _Cursor:
    """A walk over buffers as if they were one."""

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = iter(buffers)
        self._rest = memoryview(b"")

    def take(self, length: int) -> list[memoryview]:
        """The next `length` bytes, as slices of the buffers."""
        parts = []
        while length:
            rest = self._rest
            if not rest:
                rest = memoryview(next(self._buffers)).cast("B")
            part = rest[:length]
            self._rest = rest[length:]
            length -= len(part)
            if part:
                parts.append(part)
        return parts


def _rows_by_tag(first_seq: int, runs: Sequence[Run]) -> dict[bytes, list[int]]:
    """The tag parts that occur, each with its rows."""
    rows_of: dict[bytes, list[int]] = {}
    for run in runs:
        if run.tag_lens is None:
            continue
        flat = bytes(run.data)
        ends = accumulate(run.strides)
        for row, (end, size) in enumerate(zip(ends, run.tag_lens, strict=True), run.first_seq - first_seq):
            if size:
                # A fragment ends in `}`, and its comma is counted.
                part = flat[end - 2 - size : end - 2]
                rows = rows_of.get(part)
                if rows is None:
                    rows_of[part] = [row]
                else:
                    rows.append(row)
    return rows_of
