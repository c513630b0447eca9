"""Mending index rows from the data they describe, as far as what comes out can be proven.

Fragments say themselves which seq they are and where their parts lie, so rows can be made again by reading them. What
is made is believed for one of four reasons: the sum over the 64 rows matches, or the sum over their data, or the check
over all data of the segment, or (record by record) the check in the damaged row itself. What none of them vouches for
stays bad: it cannot be told any more whether there was a record.
"""

from __future__ import annotations

import re
from array import array
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from engine.formats.segment import FLAG_METAS, FLAG_NODES, FLAG_TAGS, ROW_LEN, SUM_ROWS, Columns, RowView, pack_rows
from engine.fragment import META_FIXED, NODE_FIXED, TAG_FIXED
from engine.ranges import Ranges, ranges_of

LOW: Final = 0xFFFF_FFFF
_U64: Final = 0xFFFF_FFFF_FFFF_FFFF
_U16: Final = 0xFFFF
_HEAD: Final = re.compile(rb'\{"\$seq":([0-9]{1,20}),"\$ts":([0-9]{1,20}),')
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},]', re.DOTALL)
_NODE, _DATA, _META, _TAG = b'"$node":', b'"data":', b',"meta":', b',"$tag":'


class Parsed(NamedTuple):
    """A fragment, as it describes itself."""

    seq: int
    ts: int
    end: int
    node_len: int
    meta_len: int
    tag_len: int


def parse_fragment(data: bytes, start: int) -> Parsed | None:
    """The fragment at `start`, or None when there is none that is whole."""
    head = _HEAD.match(data, start)
    if head is None:
        return None
    at, node_len, meta_len, tag_len = head.end(), 0, 0, 0
    if data.startswith(_NODE, at):
        text = _STRING.match(data, at + len(_NODE))
        if text is None or not data.startswith(b",", text.end()):
            return None
        node_len = text.end() - text.start() + NODE_FIXED
        at += node_len
    if not data.startswith(_DATA, at):
        return None
    at = _value_end(data, at + len(_DATA))
    if at >= 0 and data.startswith(_META, at):
        end = _value_end(data, at + META_FIXED)
        meta_len, at = end - at, end
    if at >= 0 and data.startswith(_TAG, at):
        end = _value_end(data, at + TAG_FIXED)
        tag_len, at = end - at, end
    if at < 0 or not data.startswith(b"}", at):
        return None
    seq, ts = int(head[1]), int(head[2])
    if max(seq, ts) > _U64 or max(node_len, tag_len) > _U16:
        return None  # no row can say so: a damaged record only looks like one
    return Parsed(seq, ts, at + 1, node_len, meta_len, tag_len)


def _value_end(data: bytes, start: int) -> int:
    """Where the comma or brace is that ends the JSON value at `start`, or -1."""
    depth = 0
    for token in _TOKEN.finditer(data, start):
        mark = data[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            if not depth:
                return token.start() if mark == ord("}") else -1
            depth -= 1
        elif mark == ord(",") and not depth:
            return token.start()
    return -1


class _Rows:
    """The rows of one segment while they are mended, as plain lists."""

    def __init__(self, rows: bytes, flags: int) -> None:
        view = RowView(rows, FLAG_NODES | FLAG_METAS | FLAG_TAGS)
        self.flags = flags
        self.offsets, self.lengths, self.checks = view.bounds(), view.lengths(), view.checks()
        self.offsets.pop()
        tss = view.tss(0, view.count)
        self.tss = array("Q", [tss]) * view.count if isinstance(tss, int) else tss
        nodes, metas, tags = view.parts(0, view.count)
        assert nodes is not None, "all parts were asked for"
        assert metas is not None, "all parts were asked for"
        assert tags is not None, "all parts were asked for"
        self.node_lens, self.meta_lens, self.tag_lens = nodes, metas, tags

    def packed(self) -> bytes:
        columns = Columns(
            self.offsets, self.lengths, self.tss, self.node_lens, self.meta_lens, self.tag_lens, self.checks
        )
        return pack_rows(columns).tobytes()

    def stop_of(self, row: int) -> int:
        """Where the fragment after this row begins, or would."""
        length = self.lengths[row]
        return self.offsets[row] + (length + 1 if length else 0)


def mend_rows(
    rows: bytes, sums: bytes, data: bytes, first_seq: int, flags: int, *, data_proven: bool
) -> tuple[bytes, Ranges]:
    """All rows of a segment with those made again that do not check, and the ranges of rows that stay bad.

    `rows`, `sums` and `data` are what is there, zeros where nothing is; `data_proven` says that all of `data` checks.
    Bad rows come out as rows without a record.
    """
    count = len(rows) // ROW_LEN
    known = array("Q", sums)
    groups = range(0, count, SUM_ROWS)
    good = [
        xxh3_64_intdigest(rows[at * ROW_LEN : min(at + SUM_ROWS, count) * ROW_LEN]) == known[2 * at // SUM_ROWS]
        for at in groups
    ]
    mended = _Rows(rows, flags)
    bad: list[int] = []
    group = 0
    while group < len(good):
        if good[group]:
            group += 1
            continue
        upto = group
        while upto < len(good) and not good[upto]:
            upto += 1
        bad += _mend_stretch(mended, known, data, first_seq, (group, upto), data_proven=data_proven)
        group = upto
    return mended.packed(), ranges_of(bad)


def _mend_stretch(
    rows: _Rows, sums: array[int], data: bytes, first_seq: int, groups: tuple[int, int], *, data_proven: bool
) -> list[int]:
    """Make the rows of some groups again; returns those that stay bad."""
    count = len(rows.offsets)
    first, stop = groups[0] * SUM_ROWS, min(groups[1] * SUM_ROWS, count)
    begin = rows.stop_of(first - 1) if first else 0
    end = rows.offsets[stop] if stop < count else len(data) + 1
    said = rows.checks[first:stop]
    found, whole = _fragments(data, (begin, end), first_seq + first, first_seq + stop)
    _fill(rows, found, (first, stop), first_seq, data, end)
    packed = memoryview(rows.packed())
    bad = []
    for group in range(*groups):
        at, upto = group * SUM_ROWS, min((group + 1) * SUM_ROWS, count)
        start, data_end = rows.offsets[at], rows.stop_of(upto - 1) - 1
        proven = (
            (data_proven and whole)
            or xxh3_64_intdigest(packed[at * ROW_LEN : upto * ROW_LEN]) == sums[2 * group]
            or (data_end > start and xxh3_64_intdigest(data[start:data_end]) == sums[2 * group + 1])
        )
        if not proven:
            bad += [row for row in range(at, upto) if not rows.lengths[row] or rows.checks[row] != said[row - first]]
    for from_row, to_row in ranges_of(bad):
        # The bytes between two good neighbours are the first one's, so that bounds stay without holes.
        behind = rows.offsets[to_row + 1] if to_row + 1 < count else len(data) + 1
        rows.offsets[from_row] = rows.stop_of(from_row - 1) if from_row else 0
        for row in range(from_row, to_row + 1):
            rows.lengths[row] = rows.node_lens[row] = rows.meta_lens[row] = rows.tag_lens[row] = rows.checks[row] = 0
            if row > from_row:
                rows.offsets[row] = behind
    return bad


def _fragments(
    data: bytes, data_range: tuple[int, int], first_seq: int, stop_seq: int
) -> tuple[list[tuple[int, Parsed]], bool]:
    """The fragments between two offsets, with their starts, as far as they are whole and their seqs ascend in a range.

    What is damaged is passed over: the next one begins where a fragment's first bytes stand, and parses. Also whether
    nothing was passed over.
    """
    found, whole = [], True
    (at, end), seq = data_range, first_seq
    while at < end:
        parsed = parse_fragment(data, at)
        if parsed is None or not seq <= parsed.seq < stop_seq or parsed.end >= end:
            whole = False
            head = _HEAD.search(data, at + 1, end)
            if head is None:
                break
            at = head.start()
            continue
        found.append((at, parsed))
        at, seq = parsed.end + 1, parsed.seq + 1
    return found, whole


def _fill(
    rows: _Rows,
    found: list[tuple[int, Parsed]],
    row_range: tuple[int, int],
    first_seq: int,
    data: bytes,
    offset: int,
) -> None:
    """Put what was found into the rows of a range, nothing into the others; what follows begins at `offset`."""
    first, stop = row_range
    by_row = {parsed.seq - first_seq: (start, parsed) for start, parsed in found}
    none = Parsed(0, 0, 0, 0, 0, 0)
    for row in range(stop - 1, first - 1, -1):
        start, parsed = by_row.get(row, (offset, none))
        offset = rows.offsets[row] = start
        rows.lengths[row] = length = parsed.end - start if parsed is not none else 0
        rows.node_lens[row] = parsed.node_len
        rows.meta_lens[row] = parsed.meta_len
        rows.tag_lens[row] = parsed.tag_len
        rows.checks[row] = xxh3_64_intdigest(data[start : start + length]) & LOW if length else 0
    if first:
        ts = rows.tss[first - 1]
    elif found:
        ts = found[0][1].ts
    else:
        ts = rows.tss[stop] if stop < len(rows.tss) else 0
    for row in range(first, stop):
        if row in by_row:
            ts = by_row[row][1].ts
        rows.tss[row] = ts
