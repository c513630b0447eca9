"""The bytes of a topic's closed history: index rows, sums, tag tables, deleted rows (FORMATS.md, "Segments").

    .data       file header | fragments, joined with "," | u64 XXH3-64 of them
    .idx        file header | info | rows, one a seq | sums, one for 64 rows
    .tags       file header | filter | u64 XXH3-64 | tags in order, with their rows | u64 XXH3-64
    .<v>.del    file header (run = v) | deleted rows as ranges | u64 XXH3-64
    tails       file header | pieces, each at a multiple of 8: info | rows | sums | fragments | u64 XXH3-64

Info (the row's table is `RowView`'s):

     0  u64  topic_id
     8  u64  first_seq
    16  u32  rows
    20  u32  present
    24  u32  data_len
    28  u32  flags
    32  u64  first_ts
    40  u64  last_ts
    48  u64  sums_check
    56  u64  check

A row without a record (dead before it was sealed) has length 0, the ts of the row before it, and the offset of the
next fragment, or where one would be: so offsets and times ascend, and a run of records is a slice. Columns are cut out
of rows, and put into them, by strided slices: there is no step in Python for each record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from xxhash import xxh3_64_intdigest

INFO_LEN: Final = 64
ROW_LEN: Final = 32
SUM_LEN: Final = 16
SUM_ROWS: Final = 64
"""Rows that one sum covers."""
CHECK_LEN: Final = 8
PIECE_ALIGN: Final = 8
DATA_LEN_MAX: Final = 0xFFFF_FFFE
"""Offsets have 32 bits, and the one behind the last fragment's comma must be one."""

FLAG_NODES: Final = 1
FLAG_METAS: Final = 2
FLAG_TAGS: Final = 4

_INFO: Final = Struct("<QQIIIIQQQ")
_ROW: Final = Struct("<IIQIHHII")
_CHECK: Final = Struct("<Q")
_DELETES: Final = Struct("<II")
pack_row: Final = _ROW.pack
"""One row: offset, length, ts, lengths of meta, node and tag, check, flags."""
assert _INFO.size + _CHECK.size == INFO_LEN
assert _ROW.size == ROW_LEN
assert array("I").itemsize == 4
assert array("H").itemsize == 2
assert array("Q").itemsize == 8


Lens: TypeAlias = "array[int]"


class BadSegment(ValueError):
    """Bytes that fail their check, or do not add up."""


class SegmentInfo(NamedTuple):
    """What a segment or a piece of a tails file holds."""

    topic_id: int
    first_seq: int
    rows: int
    """One for each seq."""
    present: int
    """Rows that have a record."""
    data_len: int
    """Bytes of the fragments with the commas between them."""
    flags: int
    """Which parts occur: `FLAG_NODES`, `FLAG_METAS`, `FLAG_TAGS`."""
    first_ts: int
    last_ts: int
    sums_check: int
    """XXH3-64 of the sums."""


def pack_info(info: SegmentInfo) -> bytes:
    """The 64 bytes, their check included."""
    checked = _INFO.pack(*info)
    return checked + _CHECK.pack(xxh3_64_intdigest(checked))


def parse_info(data: bytes, start: int = 0) -> SegmentInfo | None:
    """The info at `start`, or None when it is cut or fails its check."""
    if len(data) < start + INFO_LEN:
        return None
    checked = data[start : start + _INFO.size]
    if _CHECK.unpack_from(data, start + _INFO.size)[0] != xxh3_64_intdigest(checked):
        return None
    return SegmentInfo(*_INFO.unpack(checked))


def sums_len(count: int) -> int:
    """Bytes of the sums over `count` rows."""
    return -(-count // SUM_ROWS) * SUM_LEN


def index_len(count: int) -> int:
    """Bytes of info, rows and sums."""
    return INFO_LEN + count * ROW_LEN + sums_len(count)


class Columns(NamedTuple):
    """The rows of a segment, one array a field, all equally long; a part that does not occur is None."""

    offsets: array[int]
    lengths: array[int]
    tss: array[int]
    node_lens: array[int] | None
    meta_lens: array[int] | None
    tag_lens: array[int] | None
    checks: array[int]


def pack_rows(columns: Columns) -> array[int]:
    """The rows. All columns are 32 bits wide but for `tss` (64), also those that take 16 in a row."""
    count = len(columns.offsets)
    longs = array("Q", bytes(count * ROW_LEN))
    longs[1::4] = columns.tss
    words = array("I", longs.tobytes())
    words[0::8], words[1::8] = columns.offsets, columns.lengths
    if columns.meta_lens is not None:
        words[4::8] = columns.meta_lens
    nodes, tags = columns.node_lens, columns.tag_lens
    if nodes is not None or tags is not None:
        low = int.from_bytes(nodes or b"", "little")
        high = int.from_bytes(tags or b"", "little") << 16
        words[5::8] = array("I", (low | high).to_bytes(4 * count, "little"))
    words[6::8] = columns.checks
    return words


class RowView:
    """Rows that were read; a column is cut out when it is asked for.

     0  u32  offset      from the beginning of the data
     4  u32  length      without the comma; 0 without a record
     8  u64  ts
    16  u32  meta_len    of the part, as in engine/fragment.py
    20  u16  node_len
    22  u16  tag_len
    24  u32  check       low 32 bits of the XXH3-64 of the fragment
    28  u32  flags       0
    """

    __slots__ = ("_flags", "_words", "count")

    def __init__(self, rows: bytes, flags: int) -> None:
        """`flags` says which parts occur."""
        self.count = len(rows) // ROW_LEN
        self._flags = flags
        self._words = array("I", rows)

    def bounds(self) -> array[int]:
        """The offsets, and where a fragment after the last row would begin."""
        words = self._words
        offsets = words[0::8]
        # Rows that do not check may say anything.
        offsets.append(min(words[-8] + words[-7] + 1, 0xFFFF_FFFF) if words[-7] else words[-8])
        return offsets

    def lengths(self) -> array[int]:
        return self._words[1::8]

    def checks(self) -> array[int]:
        return self._words[6::8]

    def ts_at(self, row: int) -> int:
        """The time of one row."""
        words = self._words
        return words[8 * row + 2] | words[8 * row + 3] << 32

    def tss(self, start: int, stop: int) -> int | array[int]:
        """The times of the rows `start … stop - 1`: one for all, or one each."""
        first = self.ts_at(start)
        if first == self.ts_at(stop - 1):
            return first
        return array("Q", self._words[8 * start : 8 * stop].tobytes())[1::4]

    def parts(self, start: int, stop: int) -> tuple[Lens | None, Lens | None, Lens | None]:
        """Lengths of the node, meta and tag parts of the rows `start … stop - 1`; None for a part that never occurs."""
        flags, words = self._flags, self._words
        nodes = tags = None
        if flags & (FLAG_NODES | FLAG_TAGS):
            size = 4 * (stop - start)
            both = int.from_bytes(words[8 * start + 5 : 8 * stop : 8].tobytes(), "little")
            mask = int.from_bytes(b"\xff\xff\0\0" * (stop - start), "little")
            if flags & FLAG_NODES:
                nodes = array("I", (both & mask).to_bytes(size, "little"))
            if flags & FLAG_TAGS:
                tags = array("I", (both >> 16 & mask).to_bytes(size, "little"))
        return nodes, words[8 * start + 4 : 8 * stop : 8] if flags & FLAG_METAS else None, tags


@lru_cache(maxsize=64)
def _ones(count: int) -> int:
    """The integer whose little-endian bytes are so many 32-bit ones."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def minus(column: array[int], number: int) -> array[int]:
    """Each 32-bit number of a column less `number`, which none is smaller than: one subtraction of long integers."""
    size = 4 * len(column)
    ones = _ones(len(column))
    return array("I", (int.from_bytes(column, "little") - number * ones).to_bytes(size, "little"))


def differences(column: array[int]) -> array[int]:
    """What each 32-bit number of an ascending column adds to the one before: again one subtraction."""
    size = 4 * len(column) - 4
    view = memoryview(column)
    return array(
        "I", (int.from_bytes(view[1:], "little") - int.from_bytes(view[:-1], "little")).to_bytes(size, "little")
    )


def pack_check(data: bytes | bytearray | memoryview) -> bytes:
    """The XXH3-64 that stands behind what it covers."""
    return _CHECK.pack(xxh3_64_intdigest(data))


def parse_check(data: bytes, start: int) -> int:
    """The check at `start`."""
    checked: int = _CHECK.unpack_from(data, start)[0]
    return checked


def pack_deletes(number: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """What follows the header of a `.del` file: the number of its segment, and the deleted rows as inclusive ranges."""
    flat = array("I", [row for pair in ranges for row in pair])
    body = _DELETES.pack(number, len(ranges)) + flat.tobytes()
    return body + pack_check(body)


def parse_deletes(body: bytes) -> tuple[int, list[tuple[int, int]], int]:
    """The opposite: the segment's number, the ranges, and the check as digest. Raises `BadSegment`."""
    end = len(body) - CHECK_LEN
    if end < _DELETES.size or (end - _DELETES.size) % 8:
        raise BadSegment("its length does not fit")
    digest = parse_check(body, end)
    if digest != xxh3_64_intdigest(body[:end]):
        raise BadSegment("its check does not match its content")
    number, count = _DELETES.unpack_from(body)
    if _DELETES.size + 8 * count != end:
        raise BadSegment("its length does not fit")
    flat = array("I", body[_DELETES.size : end])
    return number, list(zip(flat[0::2], flat[1::2], strict=True)), digest
