"""A few records out of groups that hold more than a read should bring into memory.

A sum covers 64 rows, which are 64 MB where records have one. That a group is what was written is found out once a
process, a piece at a time, without holding it; from then on records of it are read alone, each against its own check.
"""

from __future__ import annotations

import errno
from array import array
from itertools import pairwise
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from engine.formats.segment import SUM_ROWS, RowView
from engine.fs import REFUSED, Fs
from engine.segment.segment import Segment

GROUPS_BYTES: Final = 8 << 20
"""Groups that hold no more together are read whole."""
GONE: Final = (errno.ENOENT, *REFUSED)
"""Errors that say that the bytes cannot be had from the disk; all others are the caller's."""
PIECE: Final = 1 << 20
"""Bytes of a group that are looked at together."""
_LOW: Final = 0xFFFF_FFFF
_COMMA: Final = ord(",")


def is_few(offsets: array[int], begin: int, end: int) -> bool:
    """Whether rows `begin … end - 1` are so little of what lies at `offsets` that they had better be read alone."""
    whole = offsets[-1] - offsets[0]
    return whole > GROUPS_BYTES and 2 * (offsets[end] - offsets[begin]) <= whole


def read_few(
    fs: Fs,
    handle: int,
    segment: Segment,
    read: tuple[int, RowView, array[int]],
    wanted: tuple[int, int],
    *,
    nowait: bool,
) -> bytes | bytearray | None:
    """The bytes of some of the rows that were `read`: which row of the segment is their first, the rows, their sums.

    None when `nowait` and it takes time; nothing when something is wrong, so that all of it has to be looked at. Raises
    `OSError`, unless that says that the disk has lost the bytes.
    """
    first, rows, sums = read
    begin, end = wanted
    offsets = rows.bounds()
    if segment.sound is None:
        segment.sound = set()
    try:
        for at in range(begin - begin % SUM_ROWS, end, SUM_ROWS):
            if first + at in segment.sound:
                continue
            if nowait:
                return None
            place, length = segment.data_offset + offsets[at], offsets[min(at + SUM_ROWS, rows.count)] - offsets[at] - 1
            if not _has_digest(fs, handle, place, length, sums[2 * at // SUM_ROWS + 1]):
                return b""
            segment.sound.add(first + at)
        place, length = segment.data_offset + offsets[begin], offsets[end] - offsets[begin] - 1
        data = fs.pread_nowait(handle, length, place) if nowait else fs.pread(handle, length, place)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return b""
    if data is None:
        return None
    if len(data) < length or not _are_whole(data, offsets[begin : end + 1], rows.checks()[begin:end]):
        segment.sound = None
        return b""
    return data


def _has_digest(fs: Fs, handle: int, at: int, length: int, digest: int) -> bool:
    found = xxh3_64()
    while length > 0:
        data = fs.pread(handle, min(length, PIECE), at)
        if not data:
            return False
        found.update(data)
        at += len(data)
        length -= len(data)
    return found.intdigest() == digest


def _are_whole(data: bytes | bytearray, offsets: array[int], checks: array[int]) -> bool:
    """Whether each record of some rows is what was written, with a comma behind all but the last."""
    view, base = memoryview(data), offsets[0]
    for check, (start, stop) in zip(checks, pairwise(offsets), strict=True):
        if stop > start:
            end = stop - 1 - base
            if xxh3_64_intdigest(view[start - base : end]) & _LOW != check:
                return False
            if end < len(view) and view[end] != _COMMA:
                return False
    return True
