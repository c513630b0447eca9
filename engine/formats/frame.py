"""The frame: the unit of the write-ahead log, as bytes (FORMATS.md, "Frame").

One frame is one event, whole or absent. Its 80-byte header has a check of its own, so that a bad body still tells
whose records were hit; both checks are seeded with the store's id, so that a frame of another store never checks.

     0  u32  check        low 32 bits of XXH3-64 over bytes 4..80, seeded
     4  u32  body_len     without padding
     8  u8   type
     9  u8   flags        of the type; see `append` for Append
    10  u8   tick_shards  how many shards the tick touched
    11  u8   0
    12  u32  count        records of an Append, otherwise 0
    16  u64  lsn          the frame's position in its shard's endless stream
    24  u32  back         lsn minus the lsn of the shard's previous frame; 0 in the first frame of the stream
    28  u32  0
    32  u64  order        store-wide, one more for each frame: the order for merging shards
    40  u64  tick         number of the group write of which the frame is a part
    48  u64  topic_id
    56  u64  first_seq
    64  u64  ts           engine time in ms
    72  u64  durable_lsn  everything of this shard below it was on disk when the frame's group was written
    80  body, then zeros to a multiple of 8, then u64 XXH3-64 of the unpadded body, seeded

Every slice that a frame shares with a 512-byte sector holds a byte that is not zero: the header begins with a length
that is never 0, bodies are JSON, columns of values that are never 0, or text, and the end is a check. Log files are
zero-filled ahead and never recycled, so *an all-zero slice means that bytes are missing* and nothing else does: that
is how a torn write is told from damage (engine/store/verdicts.py). Whoever changes a layout keeps that property, adds
a golden file, and raises `FORMAT_VERSION` in engine/formats/header.py.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from struct import Struct, unpack_from
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

if sys.byteorder != "little":  # Columns go to disk as the arrays' own bytes.
    raise ImportError("topics stores little-endian data and has not been ported to big-endian machines")

HEADER_LEN: Final = 80
CHECK_LEN: Final = 8
HEAD_LEN: Final = HEADER_LEN + 8
"""The header and the least that stands behind it."""
FRAME_ALIGN: Final = 8
BLOCK: Final = 4096
"""What a page cache writes at once: after a sync began, the next frame starts on a fresh block."""
SECTOR: Final = 512
"""The least that a disk writes whole."""
FRAME_LEN_MIN: Final = HEADER_LEN + FRAME_ALIGN + CHECK_LEN
NO_FRAME: Final = -1
"""In the place of the lsn of a frame that there is not."""
BODY_LEN_MAX: Final = 1 << 30
"""No body is longer; bounds what a damaged length can ask for."""

_HEADER: Final = Struct("<IIBBBBIQIIQQQQQQ")
_CHECKED: Final = Struct("<IBBBBIQIIQQQQQQ")
_U32: Final = Struct("<I")
assert _HEADER.size == HEADER_LEN
assert _CHECKED.size == HEADER_LEN - 4

pack_checked: Final = _CHECKED.pack
pack_u32: Final = _U32.pack

_unpack_header: Final = _HEADER.unpack_from
_new_tuple: Final = tuple.__new__
_LSN_AT: Final = 4 + 4 + 4 * 1 + 4
"""Where in a header its own place stands."""
PADDINGS: Final = tuple(bytes(-length % FRAME_ALIGN) for length in range(FRAME_ALIGN))


class FrameType(IntEnum):
    """What happened. Numbers are for ever."""

    APPEND = 1
    CREATE = 2
    CONFIG = 3
    DROP = 4
    DELETE = 5
    GAP = 6
    MARK = 7
    RESERVE = 8
    ROUTER_PUT = 16
    ROUTER_DROP = 17
    CURSOR_PUT = 18
    FORWARD = 19
    LEASE = 20
    DEAD_LETTER = 21
    MOVE = 22
    ATTACH = 23


APPEND: Final = FrameType.APPEND
DELETE: Final = FrameType.DELETE
"""For the path of a write and of an ack, as `engine.types.EPHEMERAL`."""


class FrameHeader(NamedTuple):
    """The fields of a header whose check was good."""

    check: int
    body_len: int
    type: int
    flags: int
    tick_shards: int
    zero: int
    records: int
    """`count` of the byte table (a tuple has a method of that name)."""
    lsn: int
    back: int
    reserved: int
    order: int
    tick: int
    topic_id: int
    first_seq: int
    ts: int
    durable_lsn: int


def seed_of(store_id: bytes) -> int:
    """The seed of every check in a store."""
    return xxh3_64_intdigest(store_id)


def frame_len(body_len: int) -> int:
    """Bytes that a frame with this body takes: header, body, padding, check of the body."""
    return HEADER_LEN + CHECK_LEN + ((body_len + 7) & ~7)


def padding(body_len: int) -> bytes:
    """The zeros between a body and its check."""
    return PADDINGS[body_len & 7]


def align_block(position: int) -> int:
    """The first block boundary at or after a position."""
    return (position + 4095) & ~4095


def back_to(last_lsn: int, lsn: int) -> int:
    """The `back` of a frame at `lsn` whose shard's previous frame is at `last_lsn` (`NO_FRAME`: it is the first)."""
    return lsn - last_lsn if last_lsn >= 0 else 0


def body_check(body: bytes | memoryview, seed: int) -> bytes:
    """The 8 bytes that end a frame."""
    return xxh3_64_intdigest(body, seed).to_bytes(8, "little")


def pack_header(
    seed: int,
    body_len: int,
    type_: int,
    flags: int,
    tick_shards: int,
    count: int,
    lsn: int,
    back: int,
    order: int,
    tick: int,
    topic_id: int,
    first_seq: int,
    ts: int,
    durable_lsn: int,
) -> bytes:
    """The 80 bytes of a header, its check included."""
    checked = pack_checked(
        body_len, type_, flags, tick_shards, 0, count, lsn, back, 0, order, tick, topic_id, first_seq, ts, durable_lsn
    )
    return pack_u32(xxh3_64_intdigest(checked, seed) & 0xFFFFFFFF) + checked


def parse_header(seed: int, buffer: bytes | memoryview, offset: int, lsn: int) -> FrameHeader | None:
    """The header at `offset` of `buffer`, or None when it is cut, fails its check or says another place than `lsn`.

    Nothing in it, its length least of all, is believed before the check.
    """
    end = offset + HEADER_LEN
    if len(buffer) < end:
        return None
    fields = _unpack_header(buffer, offset)
    if fields[7] != lsn or fields[0] != xxh3_64_intdigest(buffer[offset + 4 : end], seed) & 0xFFFFFFFF:
        return None
    if not 0 < fields[1] <= BODY_LEN_MAX:
        return None
    return _new_tuple(FrameHeader, fields)


def places(stream: bytes, lsn: int) -> list[int]:
    """Where frames may begin in a piece of the stream that begins at `lsn` (a multiple of 8): the places that name
    themselves as a header there would. Hardly anything else does, so that little of what is no frame has to be parsed.
    """
    words = (len(stream.rstrip(b"\0")) + FRAME_ALIGN - 1) // FRAME_ALIGN
    words = min(words, len(stream) // FRAME_ALIGN)
    first = lsn - _LSN_AT
    named = zip(range(first, first + words * FRAME_ALIGN, FRAME_ALIGN), unpack_from(f"<{words}Q", stream), strict=True)
    return [place for place, word in named if place == word and place >= lsn]


def resembles_header(head: bytes, lsn: int, back: int) -> bool:
    """Whether a frame may have begun where these 80 bytes stand, though its header does not check.

    Two fields say where a frame belongs, and damage to a few bytes leaves one of them; inside a body neither is found.
    """
    if len(head) < HEADER_LEN:
        return False
    fields = _unpack_header(head, 0)
    return bool(fields[7] == lsn or (fields[8] == back and fields[9] == 0 and fields[5] == 0))


def header_misses_bytes(head: bytes, position: int) -> bool:
    """The same for the beginning of a frame whose length nobody knows: `HEAD_LEN` bytes at `position` (mod 512).

    Behind the header stand the first bytes of a body, which are not all zero.
    """
    split = min(HEADER_LEN, SECTOR - position % SECTOR)
    parts = (head[:split], head[split:HEADER_LEN], head[HEADER_LEN:HEAD_LEN])
    return not all(any(part) for part in parts if part) or len(head) < HEAD_LEN


def misses_bytes(frame: bytes | memoryview, position: int, length: int) -> bool:
    """Whether some sector holds nothing but zeros of a frame that lies at `position` (mod 512) and is `length` long,
    or its check does: a write that ended early, inside a sector.

    `frame` holds what can be read of it; what lies behind the end of a file counts as missing.
    """
    if len(frame) < length or not any(frame[length - CHECK_LEN : length]):
        return True
    start = 0
    while start < length:
        end = min(length, start + SECTOR - (position + start) % SECTOR)
        if not any(frame[start:end]):
            return True
        start = end
    return False
