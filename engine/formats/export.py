"""exports/<id>/manifest.json: what a pinned set of files holds, for programs that read it without the daemon.

One line of JSON, a line feed, its XXH3-64 as 16 hex digits, a line feed, as STORE has it. It is written last: a set
without a manifest is not one. Members that a reader does not know are passed over, new ones are optional.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from engine.types import Durability, Reason, TopicType

EXPORTS_DIR: Final = "exports"
MANIFEST_NAME: Final = "manifest.json"
EXPORT_FORMAT: Final = 1

_ID: Final = re.compile(r"[0-9a-f]{16}\Z")
_FILE: Final = re.compile(
    r"(?:STORE|LOCK|meta/MANIFEST|meta/snapshot-\d{10}\.snap|meta/tails-\d{10}\.data"
    r"|wal/shard-\d{2}/wal-\d{20}-\d+\.log|topics/[0-9a-f]{16}/seg-\d{20}-\d{10}\.(?:data|idx|tags|\d+\.del))\Z"
)


def is_export_id(text: str) -> bool:
    """Whether a text is the id of an export."""
    return _ID.match(text) is not None


def is_member(path: str) -> bool:
    """Whether a path may be in an export: the names of a store's files, and nothing else."""
    return _FILE.match(path) is not None


class ExportFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the set."""

    path: str
    bytes: int
    xxh3_128: str | None = None
    """Of the whole file, in hex; null where only the checks inside vouch for it (large files that a pin links)."""
    cold: bool = False
    """It is not among the pin's files: it lies below `ExportManifest.cold`, and stays there as long as the pin."""


class ExportPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a topic's records: a segment, or a piece of a tails file."""

    data: str
    """Path of the file with the fragments…"""
    data_offset: int
    """…where they begin in it…"""
    data_bytes: int
    """…and how many bytes they have, commas between included. An XXH3-64 of them follows."""
    index: str
    index_offset: int
    """Where the SegmentInfo begins; rows and sums follow it."""
    first_seq: int
    last_seq: int
    records: int
    """Rows that have a record, deleted ones included."""
    live: int
    first_ts: int
    last_ts: int
    flags: int
    check: str
    """The check of the SegmentInfo, in hex: through its sums it vouches for every row and every byte of data."""


class ExportGap(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """Seqs that were lost, and why."""

    first: int
    last: int
    reason: Reason


class ExportTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as of the pin."""

    name: str
    id: str
    epoch: int
    type: TopicType
    durability: Durability
    ttl_ms: int
    """Records may be older than this as of the pin, and are then not live for a reader any more."""
    head_seq: int
    earliest_seq: int
    """Records below are not live, whatever the pieces hold."""
    floor_seq: int
    """Everything below was lost or deleted; the seq just below was lost."""
    count: int
    bytes: int
    deleted: list[tuple[int, int]]
    """Inclusive ranges from `earliest_seq` on that were deleted; the pieces may still hold them."""
    gaps: list[ExportGap]
    pieces: list[ExportPiece]
    losses: list[ExportGap] = []
    """What was lost in front of `floor_seq`, ascending and without holes from seq 1 on."""


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole set."""

    format: int
    id: str
    store_id: str
    created_ms: int
    ts: int
    """Engine time as of the pin."""
    checkpoint: int
    topics: list[ExportTopic]
    files: list[ExportFile]
    cold: str | None = None
    """Directory of the cold tier, where the `cold` files are; null when there are none."""
