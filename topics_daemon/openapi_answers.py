"""The shapes of what routes answer, for the OpenAPI document; the answers themselves are formatted by their routes.

What a route shows of a type of the engine has that type's own fields (`fields_of`); only what has a form of its own on
the wire is written down here. Nothing is on the way of a request. That the daemon answers so is tested with requests
made from the document. What is sometimes absent is UNSET here.
"""

from __future__ import annotations

from typing import Any, Final, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from engine.core.cursors import CursorState
from engine.core.requeue import RequeueAnswer
from engine.core.routers import RouterState
from engine.routers.router import RouterSpec
from engine.types import (
    AppendResult,
    CheckpointDone,
    DeleteResult,
    Durability,
    Tombstone,
    TopicConfig,
    TopicDropped,
    TopicPut,
    TopicState,
)
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


def fields_of(kind: type, **otherwise: Any) -> dict[str, Any]:
    """The fields of a type of ours, and what each holds; `otherwise`: those that the wire shows in another form."""
    return get_type_hints(kind) | otherwise


def shape(name: str, about: str, fields: dict[str, Any], *, whole: bool = True) -> Any:
    """A type with these fields, UNSET where it may be absent; a `whole` answer also has what every answer may hold."""
    declared = [
        (field, kind, UNSET) if UnsetType in getattr(kind, "__args__", ()) else (field, kind)
        for field, kind in fields.items()
    ]
    bases = (Answer,) if whole else ()
    return msgspec.defstruct(name, declared, bases=bases, kw_only=True, namespace={"__doc__": about})


def page(name: str, about: str, member: str, row: Any, **more: Any) -> Any:
    """A page of a list, and where the next one begins."""
    return shape(name, about, more | {member: list[row], "next_cursor": str | UnsetType})


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


class Damage(msgspec.Struct, rename={"first": "from", "last": "to"}):
    """Seqs that are known to be lost to damage."""

    first: int
    last: int


_STATE: Final = fields_of(
    TopicState, damage=list[Damage] | UnsetType, queue=dict[str, Any] | UnsetType, moved=dict[str, str] | UnsetType
)
_LISTED: Final = ("topic", "type", "head_seq", "earliest_seq", "count", "bytes", "effective_priority")
TopicRow = shape(
    "TopicRow",
    "A topic in a list.",
    {name: _STATE[name] for name in _LISTED} | {"durable": bool, "durability": Durability},
    whole=False,
)

Topics = page("Topics", "A page of topics.", "topics", TopicRow)


Topic = shape("Topic", "The state of a topic.", _STATE)

Put = shape("Put", "A topic was created, changed, or was so already.", fields_of(TopicPut))

Dropped = shape("Dropped", "A topic is gone.", fields_of(TopicDropped))


class Outcome(msgspec.Struct, kw_only=True):
    """What one topic of several got."""

    error: Fault | UnsetType = UNSET
    first_seq: int | UnsetType = UNSET
    last_seq: int | UnsetType = UNSET
    seqs: list[int] | UnsetType = UNSET
    head_seq: int | UnsetType = UNSET


Written = shape("Written", "Records were appended.", fields_of(AppendResult) | {"seqs": list[int] | UnsetType})


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


Deleted = shape("Deleted", "Records were deleted for good.", fields_of(DeleteResult))


class Job(Record, kw_only=True):
    """A record with its lease."""

    lease_id: str
    deadline: int
    deliveries: int


class Claimed(Answer, kw_only=True):
    """Jobs, each a record with its lease."""

    topic: str
    claimed: list[Job]
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


Requeued = shape("Requeued", "Dead letters went back.", fields_of(RequeueAnswer))


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


CursorRow = shape("CursorRow", "A reader's place.", fields_of(CursorState), whole=False)

Cursor = shape("Cursor", "A reader's place, by itself.", fields_of(CursorState) | {"created": bool | UnsetType})

Cursors = page("Cursors", "A page of cursors.", "cursors", CursorRow, topic=str)

CursorDropped = shape("CursorDropped", "A cursor is gone.", {"name": str, "deleted": bool})

_SPEC: Final = fields_of(RouterSpec, filter=list[str] | None)
_ROUTER: Final = {
    name: kind
    for member, found in fields_of(RouterState).items()
    for name, kind in (_SPEC.items() if member == "spec" else ((member, found),))
}
RouterRow = shape("RouterRow", "A router, and how far it is.", _ROUTER, whole=False)

Router = shape("Router", "A router by itself.", _ROUTER)

RouterMade = shape(
    "RouterMade",
    "A router was made or changed.",
    {"router": str, "created": bool, "source": str, "dest": str} | _SPEC,
)

Routers = page("Routers", "A page of routers.", "routers", RouterRow)

RouterDropped = shape("RouterDropped", "A router is gone.", {"router": str, "deleted": bool})


class Session(Answer, kw_only=True):
    """A watch session."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, dict[str, int]]


Exports = page("Exports", "The pins there are.", "exports", Export)

Exported = shape("Exported", "A pin that was made or renewed.", fields_of(Export))


class Detached(Answer, kw_only=True):
    """Where a topic is: `here`, `leaving`, `offered`, or `taken` by another daemon."""

    topic: str
    state: str
    last_seq: int
    epoch: int
    to: str | UnsetType = UNSET
    """The daemon that has it or is to have it, where that is known; else the place."""
    place: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    """Of the offer, as `attach` takes it."""


class Attached(Answer, kw_only=True):
    """A topic that is here now; `created` is false if it was before."""

    topic: str
    created: bool
    epoch: int
    head_seq: int
    config: TopicConfig


class Unpinned(Answer, kw_only=True):
    """A pin that was let go of."""

    id: str
    deleted: bool


Checkpointed = shape("Checkpointed", "A checkpoint that is durable.", fields_of(CheckpointDone))


class Store(Answer, kw_only=True):
    """What the store consists of."""

    store_id: str
    files: int
    bytes: int
    tiers: dict[str, dict[str, int]]
    """`hot`, `tails` and `cold`: files, segments and bytes of each."""
    damage: list[dict[str, Any]]
    """Topics with ranges known lost to corruption, by name."""
    shards: list[dict[str, Any]]
    records_live: int
    bytes_live: int
    checkpoint: dict[str, Any]
