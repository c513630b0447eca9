"""The three small JSON files that say what a directory is: STORE, LOCK and meta/MANIFEST (FORMATS.md).

Each is one line of JSON, a line feed, the XXH3-64 of that JSON as 16 hex digits, a line feed: readable with `cat`, and
one flipped bit is noticed. They are replaced whole (engine.fs.replace_file), never edited.

    STORE          written last when a store is made, never again: if it is there, everything is there
    LOCK           whose turn it is: which boot of which machine runs the store, or that it was stopped in good order
    meta/MANIFEST  of each shard the newest log file, so that a vanished one is noticed, and where the log ended
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from xxhash import xxh3_64_hexdigest

STORE_PATH: Final = "STORE"
LOCK_PATH: Final = "LOCK"
MANIFEST_PATH: Final = "meta/MANIFEST"

_T = TypeVar("_T")


class BadMeta(ValueError):
    """A small file that fails its check or does not hold what it should."""


class StoreInfo(msgspec.Struct, frozen=True, kw_only=True):
    """STORE."""

    store_id: str
    """32 hex digits, chosen at random."""
    format: int
    """The format version of the directory."""
    created_ms: int


class LockState(StrEnum):
    """What LOCK says of the process that wrote it."""

    RUNNING = "running"
    STOPPED = "stopped"


class LockInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """LOCK."""

    boot_id: str
    """The kernel's boot id; empty when it could not be read, which counts as another boot."""
    state: LockState
    pid: int
    started_ms: int
    starts: int = 0
    """A number that rises with every start; 0 before the first."""
    offset_ms: int | None = None
    """Engine time less CLOCK_BOOTTIME, in the boot of this id; None where nobody knows."""


class ShardEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What MANIFEST knows of one shard."""

    shard: int
    start_lsn: int
    """Where the kept log begins."""
    first_lsn: int
    """Of the newest file."""
    run: int
    """Of the newest file."""
    size: int
    """Of the newest file, in bytes; it never shrinks while it is the newest."""
    end_lsn: int
    """The log was on disk up to here (the end of a frame, not aligned) when this was written."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """meta/MANIFEST."""

    store_id: str
    shards: list[ShardEntry]

    def entry(self, shard: int) -> ShardEntry | None:
        """What is known of a shard."""
        return next((entry for entry in self.shards if entry.shard == shard), None)


def encode_meta(value: msgspec.Struct) -> bytes:
    """The bytes of one of the three files."""
    line = msgspec.json.encode(value)
    return b"%b\n%b\n" % (line, xxh3_64_hexdigest(line).encode())


def decode_meta(data: bytes, type_: type[_T]) -> _T:
    """The opposite. Raises `BadMeta`."""
    line, _, check = data.partition(b"\n")
    if check != xxh3_64_hexdigest(line).encode() + b"\n":
        raise BadMeta("its check does not match its content")
    try:
        return msgspec.json.decode(line, type=type_)
    except msgspec.DecodeError as error:
        raise BadMeta(str(error)) from error
