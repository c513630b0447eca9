"""The bounds that clients, operators and files can meet: name, unit, default and reason (house style, 11).

`Limits` are those of requests, `EngineSettings` the sizes and intervals of the store; most of both are configuration
(`topics_daemon/config.py` says which). The constants at the end are part of a promise or a format and never
configuration. What bounds one mechanism, and nobody outside of it meets by a number, stands at the head of its file.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that a request can meet. 0 turns a resource cap (`topics`, `total_bytes`) off."""

    topics: int = 100_000
    """Topics that may exist: each costs memory for good."""
    routers: int = 10_000
    """Routers that may exist: each costs memory for good."""
    total_bytes: int = 0
    """Live bytes over all topics; 0: no bound."""
    batch_records: int = 10_000
    """Records in one write: one frame must be rendered without stalling the loop."""
    record_bytes: int = MIB
    """`data` + `meta` of one record: a page and an SSE frame must be able to hold one."""
    body_bytes: int = 64 * MIB
    """A request body, after inflation."""
    command_bytes: int = MIB
    """A request body that holds no records, after inflation: it is decoded in one go, 7 ms at worst."""
    meta_bytes: int = 16 * KIB
    """`meta` of one record."""
    meta_keys: int = 64
    """Members of one `meta` object."""
    tag_bytes: int = 256
    """`tag` of one record: filters compare it record by record."""
    node_bytes: int = 128
    """`node` of one record."""
    idempotency_key_bytes: int = 256
    """One idempotency key: all that are live are in memory and in every snapshot."""
    page_records: int = 1000
    """Records in one page (`limit` is clamped to it)."""
    page_bytes: int = 8 * MIB
    """Bytes in one page (`max_bytes` is clamped to it)."""
    nesting: int = 128
    """Depth of JSON: what parses it recurses."""
    delete_seqs: int = 1000
    """Seqs listed in one delete."""
    list_page: int = 1000
    """Topics in one list page."""
    claim: int = 1000
    """Jobs that one claim gives, or a work stream holds (`max` is clamped to it)."""
    idempotency_keys: int = 1_000_000
    """Live idempotency keys over all topics."""


class OnCorruption(StrEnum):
    """What recovery does about proven damage (storage.md §7)."""

    ISOLATE = "isolate"
    REFUSE = "refuse"
    SALVAGE = "salvage"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and intervals of the store (operations.md, "Configuration")."""

    wal_shards: int = 1
    """Shards of the log: each is synced by itself, so more of them pay with more disks."""
    wal_file_bytes: int = 64 * MIB
    """Size of one WAL file, header block included; a multiple of 4096."""
    wal_small_bytes: int = 8 * MIB
    """Size of the first WAL file, and of the one that a checkpoint goes on in when little is written; those that follow
    grow from there. At most `wal_file_bytes`; a multiple of 4096."""
    wal_fill_bytes: int = 4 * MIB
    """How much of a WAL file is zero-filled in one background step."""
    wal_reserve_bytes: int = MIB
    """Allocated WAL space that appends leave to deletes, acks, gaps and marks when the disk is full."""
    disk_reserve_bytes: int = 64 * MIB
    """Free space that allocation of WAL files leaves alone (at most an eighth of the file system): recovery needs
    room to copy."""
    sync_interval_ms: int = 10
    """Longest time between background syncs under load."""
    quiet_ms: int = 1000
    """Silence after which a topic is marked quiet."""
    checkpoint_bytes: int = 256 * MIB
    """Log written since the last checkpoint after which the next one begins."""
    checkpoint_ms: int = 300_000
    """Longest time between checkpoints while anything is written."""
    segment_max_events: int = 10_000
    """Records after which a stretch of a topic's history is sealed."""
    segment_max_bytes: int = 64 * MIB
    """Bytes after which it is sealed."""
    segment_age_ms: int = 3_600_000
    """Age of its newest record at which it is sealed although it is smaller (but not tiny); 0: never."""
    segment_handles: int = 64
    """Files of segments that stay open for readers (the daemon: 256). To open one costs a tenth of a page of 1000."""
    stop_checkpoint_bytes: int = 8 * MIB
    """A stop in good order makes a checkpoint if more log than this would have to be read at the next start, or if
    deliveries of jobs were counted in memory only."""
    cold_tier: bool = False
    """Whether there is a cold tier that old segments are moved to."""
    hot_retain_segments: int = 4
    """Segments of a topic that stay on the local disk…"""
    hot_retain_bytes: int = 0
    """…and how many bytes of them, 0: no bound; the stricter of the two wins."""
    cold_merge_min: int = 8
    """So many small neighbours in the cold tier are joined into one; 0: none ever."""
    cache_bytes: int = 64 * MIB
    """Bound of the hot tails of all topics together."""
    on_corruption: OnCorruption = OnCorruption.ISOLATE
    """What a start does about damage."""
    any_file_system: bool = False
    """Start on a file system of the network, or of a type that is not known (faults.md F59)."""

    @property
    def wal_first_bytes(self) -> int:
        """Size of a WAL file when little is written."""
        return min(self.wal_small_bytes, self.wal_file_bytes)


PAGE_RECORDS_DEFAULT: Final = 256
"""Records in a page whose request names no `limit`."""
PAGE_BYTES_DEFAULT: Final = MIB
"""Bytes in a page whose request names no `max_bytes`."""
SCAN_FACTOR: Final = 100
"""One page examines at most this many slots for each record it may give."""
WAIT_MS_MAX: Final = 30_000
"""How long one request waits for news (`wait_ms` is clamped to it): what lies between may cut off longer silence."""
SYNC_WINDOW: Final = 262_144
"""No ack runs further ahead of a topic's synced head than this many seqs; what a power failure skips."""
SEQ_BLOCK: Final = 65_536
"""Seqs that an ephemeral topic logs ahead."""
FLOOR_REASONS_MAX: Final = 64
"""Ranges of reasons kept below the eviction floor; older ones merge into `mixed`."""
GAPS_MAX: Final = 1024
"""Ranges of known damage that a topic tells; the nearest ones are told as one beyond that."""
EXPORT_TTL_MS: Final = 3_600_000
"""How long an export stays pinned unless its owner says otherwise, or renews it."""
EXPORT_TTL_MS_MAX: Final = 7 * 86_400_000
"""A pin keeps the space of everything that it links."""
EXPORTS_MAX: Final = 256
"""Pins at a time."""
COLUMN_BYTES: Final = 12
"""Bytes that a frame holds for each record beside its fragment, at most."""
ROOM_SLACK: Final = 2048
"""Bytes of log space that a command which creates a topic asks for beyond its own frame."""
ROOM_BYTES_MIN: Final = 4096
"""A batch that begins with a larger record is rendered only when there is room for it in the log: rendered again when
there is some, 60 MiB held the loop for 50 ms more. It costs a look at the lengths of all."""
CURSORS_PER_TOPIC_MAX: Final = 1000
"""Cursors that one topic keeps: each is in every snapshot, and readers that leave never take theirs away."""
LEASE_MS_MIN: Final = 100
"""The shortest lease (`lease_ms` is clamped to it): a job must reach its worker before it runs out."""
LEASE_MS_MAX: Final = 86_400_000
"""The longest lease: a job whose worker is gone is free again within a day."""
CLAIM_JITTER_MS_MAX: Final = 5000
"""How long claims are gathered to be served together (`claim_jitter_ms` is clamped to it)."""
PRIORITY_MAX: Final = 1000
"""`priority` is clamped to what lies between its negative and this."""
MAX_HOPS: Final = 16
"""Routers that a record passes through on its way around a cycle."""
MAX_SHARDS: Final = 8
"""Shards that a log can have: every snapshot names a cut of each."""
