"""The 64 bytes that every file of the store begins with (FORMATS.md, "File header").

     0  8s   magic        "topics\\r\\n": a transfer that mends line ends breaks it
     8  u16  version      of the formats
    10  u16  kind         what the file is (`FileKind`)
    12  u32  run          of the recovery that began a log file; number or version of any other
    16  16s  store_id
    32  u64  id           shard or topic
    40  u64  first        lsn, seq or number
    48  u64  created_ms   wall clock
    56  u64  check        XXH3-64 of bytes 0..56

A file of another store, kind or place is never read as ours. To change a format: raise `FORMAT_VERSION`, keep reading
the older one, add a golden file of it to tests/golden/, say it in FORMATS.md and CHANGELOG.md.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from engine.version import DISK_FORMAT

FORMAT_VERSION: Final = DISK_FORMAT
FILE_HEADER_LEN: Final = 64
MAGIC: Final = b"topics\r\n"

_CHECKED: Final = Struct("<8sHHI16sQQQ")
_CHECK: Final = Struct("<Q")
assert _CHECKED.size + _CHECK.size == FILE_HEADER_LEN


class FileKind(IntEnum):
    """What a file of the store is. Numbers are for ever."""

    WAL = 1
    SEGMENT_DATA = 2
    SEGMENT_INDEX = 3
    SEGMENT_TAGS = 4
    SEGMENT_DELETES = 5
    TAILS = 6
    SNAPSHOT = 7


class FileHeader(NamedTuple):
    """The fields of a file header."""

    version: int
    kind: int
    run: int
    store_id: bytes
    id: int
    first: int
    created_ms: int


def pack_file_header(header: FileHeader) -> bytes:
    """The 64 bytes, their check included."""
    checked = _CHECKED.pack(MAGIC, *header)
    return checked + _CHECK.pack(xxh3_64_intdigest(checked))


def parse_file_header(data: bytes) -> FileHeader | None:
    """The header at the beginning of `data`, or None when it is cut, lacks the magic or fails its check.

    The version is not judged here: a newer one is told apart from damage by whoever opens the file.
    """
    if len(data) < FILE_HEADER_LEN:
        return None
    checked = data[: _CHECKED.size]
    magic, *fields = _CHECKED.unpack(checked)
    if magic != MAGIC or _CHECK.unpack_from(data, _CHECKED.size)[0] != xxh3_64_intdigest(checked):
        return None
    return FileHeader(*fields)
