"""The shapes of what routes answer, for the OpenAPI document; the answers themselves are formatted by their routes.

Nothing here is on the way of a request. That the daemon answers so is tested with requests made from the document.
What is sometimes absent is UNSET here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from engine.types import Tombstone, TopicConfig, TopicType
from topics_daemon.exports import Export


class Performance(msgspec.Struct):
    """Where the time of an answer went."""

    server_total_ms: float | UnsetType = UNSET
    wal_append_ms: float | UnsetType = UNSET
    fsync_ms: float | UnsetType = UNSET
    records_scanned: int | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET
    cold_reads: int | UnsetType = UNSET


class Answer(msgspec.Struct, kw_only=True):
    """What every JSON answer may hold."""

    warnings: list[str] | UnsetType = UNSET
    performance: Performance


class Fault(msgspec.Struct):
    """What is wrong, and what to do about it."""

    code: str
    message: str
    detail: dict[str, Any] | UnsetType = UNSET


class Error(msgspec.Struct):
    """The body of every answer from 400 up."""

    error: Fault
    performance: Performance | UnsetType = UNSET


class Health(Answer, kw_only=True):
    """The process serves."""

    status: str
    version: str
    uptime_ms: int


class Ready(Answer, kw_only=True):
    """A request would succeed."""

    status: str
    wal_replay_complete: bool
    topics: int


class TopicRow(msgspec.Struct):
    """A topic in a list."""

    topic: str
    type: TopicType
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    durability: str
    effective_priority: int


class Topics(Answer, kw_only=True):
    """A page of topics."""

    topics: list[TopicRow]
    next_cursor: str | UnsetType = UNSET


class Damage(msgspec.Struct, rename={"first": "from", "last": "to"}):
    """Seqs that are known to be lost to damage."""

    first: int
    last: int


class Topic(Answer, kw_only=True):
    """The state of a topic."""

    topic: str
    type: TopicType
    epoch: int
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: dict[str, Any] | UnsetType = UNSET
    damage: list[Damage] | UnsetType = UNSET


class Put(Answer, kw_only=True):
    """A topic was created, changed, or was so already."""

    topic: str
    created: bool
    config: TopicConfig
    epoch: int


class Dropped(Answer, kw_only=True):
    """A topic is gone."""

    topic: str
    deleted: bool
    routers_removed: list[str]


class Outcome(msgspec.Struct, kw_only=True):
    """What one topic of several got."""

    error: Fault | UnsetType = UNSET
    first_seq: int | UnsetType = UNSET
    last_seq: int | UnsetType = UNSET
    seqs: list[int] | UnsetType = UNSET
    head_seq: int | UnsetType = UNSET


class Written(Answer, kw_only=True):
    """Records were appended."""

    topic: str
    first_seq: int
    last_seq: int
    seqs: list[int] | UnsetType = UNSET
    head_seq: int
    count: int
    created: bool
    deduped: bool
    epoch: int


class WrittenMany(Answer, kw_only=True):
    """What became of writes to several topics."""

    topics: dict[str, Outcome]
    ok: int
    failed: int
    error: Fault | UnsetType = UNSET


class Record(msgspec.Struct, kw_only=True, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}):
    """A record."""

    seq: int
    ts: int
    node: str | UnsetType = UNSET
    data: Any = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    tag: str | UnsetType = UNSET


class Page(Answer, kw_only=True):
    """A page of records, in order, and where the next one begins."""

    topic: str
    epoch: int
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int


class PagePart(msgspec.Struct, kw_only=True):
    """The page of one topic of several, or why there is none."""

    error: Fault | UnsetType = UNSET
    records: list[Record] | UnsetType = UNSET
    next_from_seq: int | UnsetType = UNSET
    tombstone: Tombstone | None | UnsetType = UNSET


class Pages(Answer, kw_only=True):
    """Pages of several topics."""

    topics: dict[str, PagePart]


class Deleted(Answer, kw_only=True):
    """Records were deleted for good."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class Claimed(Answer, kw_only=True):
    """Jobs, each a record with its lease."""

    topic: str
    claimed: list[Record]
    count: int
    ready: int


class Skipped(msgspec.Struct):
    """A job that was not touched, and why."""

    seq: int
    detail: str


class Settled(Answer, kw_only=True):
    """Leases were ended or prolonged."""

    acked: int | UnsetType = UNSET
    nacked: int | UnsetType = UNSET
    extended: int | UnsetType = UNSET
    skipped: list[int]
    skipped_detail: list[Skipped] | UnsetType = UNSET
    deadlines: dict[str, int] | UnsetType = UNSET
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET


class Requeued(Answer, kw_only=True):
    """Dead letters went back."""

    requeued: int
    skipped: list[int]
    left: int


class LeaseRow(msgspec.Struct, kw_only=True):
    """A live lease; `lease_id` is shown to those who may write."""

    seq: int
    node: str
    lease_id: str | UnsetType = UNSET
    deadline: int
    deliveries: int


class Leases(Answer, kw_only=True):
    """A page of live leases."""

    leases: list[LeaseRow]
    next_cursor: str | UnsetType = UNSET


class Drained(Answer, kw_only=True):
    """How many streams get no further jobs."""

    topic: str
    streams: int


class CursorRow(msgspec.Struct):
    """A reader's place."""

    name: str
    seq: int
    epoch: int
    lag: int
    updated_ts: int


class Cursor(Answer, kw_only=True):
    """A reader's place, by itself."""

    name: str
    seq: int
    epoch: int
    lag: int
    updated_ts: int
    created: bool | UnsetType = UNSET


class Cursors(Answer, kw_only=True):
    """A page of cursors."""

    topic: str
    cursors: list[CursorRow]
    next_cursor: str | UnsetType = UNSET


class CursorDropped(Answer, kw_only=True):
    """A cursor is gone."""

    name: str
    deleted: bool


class RouterRow(msgspec.Struct, kw_only=True):
    """A router, and how far it is."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str
    forwarded_total: int
    cursor: int
    lag: int
    blocked: str | None


class Router(Answer, kw_only=True):
    """A router by itself."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str
    forwarded_total: int
    cursor: int
    lag: int
    blocked: str | None


class RouterMade(Answer, kw_only=True):
    """A router was made or changed."""

    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str


class Routers(Answer, kw_only=True):
    """A page of routers."""

    routers: list[RouterRow]
    next_cursor: str | UnsetType = UNSET


class RouterDropped(Answer, kw_only=True):
    """A router is gone."""

    router: str
    deleted: bool


class Session(Answer, kw_only=True):
    """A watch session."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, dict[str, int]]


class Exports(Answer, kw_only=True):
    """The pins there are."""

    exports: list[Export]
    next_cursor: str | UnsetType = UNSET


class Exported(Answer, kw_only=True):
    """A pin that was made or renewed."""

    id: str
    path: str
    created_ms: int
    expires_ms: int
    checkpoint: int
    topics: int
    files: int
    bytes: int


class Unpinned(Answer, kw_only=True):
    """A pin that was let go of."""

    id: str
    deleted: bool


class Checkpointed(Answer, kw_only=True):
    """A checkpoint that is durable."""

    number: int
    topics: int
    segments: int
    bytes: int
    took_ms: int
    ts: int


class Store(Answer, kw_only=True):
    """What the store consists of."""

    store_id: str
    shards: list[dict[str, Any]]
    records_live: int
    bytes_live: int
    checkpoint: dict[str, Any]
