"""What follows the header of a `.tags` file: a filter, and every tag with the rows that have it (FORMATS.md, "Tags").

    filter:  u32 length | the filter (`TagSet.packed`) | u64 XXH3-64 of both
    table:   u32 tags | u32 rows | u32 text_len
             u32 × tags   where each tag's text ends
             u32 × tags   where each tag's rows end
             u32 × rows   row numbers, tag by tag, ascending
             text_len bytes: the tags as JSON strings, quotes included, in ascending order of their bytes
             u64 XXH3-64 of the table

The filter stands first and has a check of its own, so that passing over a segment reads no more than it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from engine.formats.segment import CHECK_LEN, BadSegment, pack_check, parse_check
from engine.fragment import TAG_FIXED
from engine.tagset import Needle, TagSet

_LEN: Final = Struct("<I")
_TABLE: Final = Struct("<III")
FILTER_LEN_MAX: Final = 1 << 23


def pack_tags(rows_of: dict[bytes, list[int]]) -> tuple[bytes, TagSet]:
    """The bytes for tag parts (`,"$tag":"t"`) with the ascending rows of each, and the set of them."""
    parts = sorted(rows_of)
    tag_set = TagSet(set(parts))
    filter_ = tag_set.packed()
    head = _LEN.pack(len(filter_)) + filter_
    text = [part[TAG_FIXED:] for part in parts]
    text_ends, row_ends, rows = array("I"), array("I"), array("I")
    end = 0
    for part, text_part in zip(parts, text, strict=True):
        rows.extend(rows_of[part])
        end += len(text_part)
        text_ends.append(end)
        row_ends.append(len(rows))
    body = b"".join(
        (_TABLE.pack(len(parts), len(rows), end), text_ends.tobytes(), row_ends.tobytes(), rows.tobytes(), *text)
    )
    return head + pack_check(head) + body + pack_check(body), tag_set


def parse_filter_len(data: bytes) -> int:
    """How many bytes of the file, from the end of its header, `parse_filter` needs. Raises `BadSegment`."""
    if len(data) < _LEN.size:
        raise BadSegment("it ends inside its filter")
    length: int = _LEN.unpack_from(data)[0]
    if length > FILTER_LEN_MAX:
        raise BadSegment("its filter cannot be that long")
    return _LEN.size + length + CHECK_LEN


def parse_filter(data: bytes) -> TagSet:
    """The filter at the beginning of what follows the header. Raises `BadSegment`."""
    total = parse_filter_len(data)
    end = total - CHECK_LEN
    if len(data) < total or parse_check(data, end) != xxh3_64_intdigest(data[:end]):
        raise BadSegment("its filter fails its check")
    return TagSet.unpacked(data[_LEN.size : end])


class TagTable:
    """The table, checked: which rows have a tag."""

    __slots__ = ("_row_ends", "_rows", "_text", "_text_ends")

    def __init__(self, data: bytes) -> None:
        """Of what follows the header. Raises `BadSegment`."""
        start, end = parse_filter_len(data), len(data) - CHECK_LEN
        if end < start + _TABLE.size or parse_check(data, end) != xxh3_64_intdigest(data[start:end]):
            raise BadSegment("its check does not match its content")
        tags, rows, text_len = _TABLE.unpack_from(data, start)
        at = start + _TABLE.size
        if at + 4 * (2 * tags + rows) + text_len != end:
            raise BadSegment("its length does not fit")
        self._text_ends = array("I", data[at : at + 4 * tags])
        self._row_ends = array("I", data[at + 4 * tags : at + 8 * tags])
        self._rows = array("I", data[at + 8 * tags : at + 8 * tags + 4 * rows])
        self._text = data[end - text_len : end]

    def _tag(self, index: int) -> bytes:
        ends = self._text_ends
        return self._text[ends[index - 1] if index else 0 : ends[index]]

    def rows(self, needle: Needle) -> array[int]:
        """The rows whose tag passes, ascending."""
        wanted = needle.part[TAG_FIXED:]
        tags = range(len(self._text_ends))
        first = bisect_left(tags, wanted, key=self._tag)
        stop = first
        if needle.exact:
            stop += first < len(tags) and self._tag(first) == wanted
        else:
            stop = bisect_left(tags, True, first, key=lambda index: not self._tag(index).startswith(wanted))
        if first == stop:
            return array("I")
        found = self._rows[self._row_ends[first - 1] if first else 0 : self._row_ends[stop - 1]]
        return found if stop == first + 1 else array("I", sorted(found))
