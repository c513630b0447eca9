"""What each route is for, takes and answers: the words and types that the OpenAPI document and the pages are made of.

A route of `routes.table.ROUTES` has its row here, and a test compares the two. Bodies are the very types that routes
decode with; what every route may answer (400, 401, …) is not repeated here but follows from the route (`openapi`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from topics_daemon import decode, decode_many, openapi_answers, write_in
from topics_daemon.routes import asked, cursors, delete, diff, exports, moves, queue, routers, watch


class Param(msgspec.Struct, frozen=True):
    """A query parameter."""

    name: str
    schema: dict[str, Any]
    about: str
    required: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    about: str
    """What it is for, as the reference pages say it too."""
    takes: type[msgspec.Struct] | None = None
    """The type of its JSON body."""
    example: Any = None
    """A body that is accepted."""
    query: tuple[Param, ...] = ()
    gives: dict[int, type[msgspec.Struct] | str]
    """What it answers when all is well: a type as JSON, or a media type."""
    lines: bool = False
    """Whether it answers in NDJSON where Accept says so."""
    refuses: tuple[int, ...] = ()
    """Statuses of refusals that are its own."""
    param: str = ""
    """What the variable at the end of its path is, beside the topic."""


_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_EVENTS: Final = "text/event-stream"

_PAGED: Final = (
    Param("page_size", {**_COUNT, "maximum": 1000, "default": 100}, "how many at most; 0 is the default"),
    Param("cursor", _TEXT, "the `next_cursor` of the page before"),
)
_PREFIX: Final = Param("prefix", _TEXT, "only names that begin so")
_LINES_QUERY: Final = (
    Param("tag", _TEXT, "for lines and NDJSON: the tag of each record"),
    Param("node", _TEXT, "for lines and NDJSON: the node of each record"),
    Param("meta", _TEXT, "for lines and NDJSON: a JSON object, the meta of each record"),
)
_WRITE_QUERY: Final = (
    Param("return_seqs", {**_FLAG, "default": True}, "whether the answer lists the seqs"),
    *_LINES_QUERY,
    Param("idempotency_key", _TEXT, "for lines and NDJSON: as the body's member"),
    Param("create", _FLAG, "for lines and NDJSON: as the body's member"),
)
_SETTLE: Final = {"node": "worker-1", "seqs": [1]}
_RECORDS: Final = {"records": [{"data": {"n": 1}, "tag": "a"}]}

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("GET", "/healthz"): Operation(about="as `/v0/health`", gives={200: openapi_answers.Health}),
    ("GET", "/readyz"): Operation(about="as `/v0/ready`", gives={200: openapi_answers.Ready}),
    ("GET", "/v0/health"): Operation(
        about="the process is there, whatever the disk does; also `/healthz`", gives={200: openapi_answers.Health}
    ),
    ("GET", "/v0/ready"): Operation(
        about="recovered, not stopping, its log not failed (a full disk passes: 200); else 503; also `/readyz`",
        gives={200: openapi_answers.Ready},
    ),
    ("GET", "/v0/metrics"): Operation(
        about="metrics as text for Prometheus; as JSON with `Accept: application/json`",
        gives={200: "text/plain"},
    ),
    ("GET", "/v0/openapi.json"): Operation(
        about="this interface, as an OpenAPI 3.1 document made from the types that bodies are decoded with",
        gives={200: "application/json"},
    ),
    ("POST", "/v0/admin/checkpoint"): Operation(
        about="make a checkpoint of everything up to now; answered when it is durable",
        gives={200: openapi_answers.Checkpointed},
        refuses=(507,),
    ),
    ("GET", "/v0/admin/store"): Operation(
        about="files, bytes, tiers, damage, shards, the last checkpoint", gives={200: openapi_answers.Store}
    ),
    ("POST", "/v0/admin/exports"): Operation(
        about=(
            "pin a consistent set of files with a manifest: `topics`, or `prefix`, or all; `ttl_ms` (1 h); "
            "with an `id` alone, renew that pin"
        ),
        takes=exports.ExportIn,
        example={"prefix": "tenant42:", "ttl_ms": 60_000},
        gives={200: openapi_answers.Exported, 201: openapi_answers.Exported},
        refuses=(404, 507),
    ),
    ("GET", "/v0/admin/exports"): Operation(
        about="the pins by id: where their files are, and until when; `page_size` (100, at most 1000), `cursor`",
        query=_PAGED,
        gives={200: openapi_answers.Exports},
        lines=True,
    ),
    ("DELETE", "/v0/admin/exports/:param"): Operation(
        about="let go of a pin", gives={200: openapi_answers.Unpinned}, param="id"
    ),
    ("POST", "/v0/admin/attach"): Operation(
        about=(
            "take a topic over that another daemon has detached: from which `place`, and `url`, where this daemon is "
            "for those who still ask the other one; answered when the topic is here"
        ),
        takes=moves.AttachIn,
        example={"topic": "events", "place": "/srv/shared", "url": "http://new:4000"},
        gives={200: openapi_answers.Attached, 201: openapi_answers.Attached},
        refuses=(404, 409, 503, 507),
    ),
    ("GET", "/v0/routers"): Operation(
        about="routers by name; `prefix`, `source`, `dest`, `page_size` (100, at most 1000), `cursor`",
        query=(
            _PREFIX,
            Param("source", _TEXT, "only those out of this topic"),
            Param("dest", _TEXT, "only those into this topic"),
            *_PAGED,
        ),
        gives={200: openapi_answers.Routers},
        lines=True,
    ),
    ("GET", "/v0/routers/:param"): Operation(
        about="a router and how far it is: `cursor`, `lag`, `forwarded_total`, `blocked`",
        gives={200: openapi_answers.Router},
        refuses=(404,),
        param="router",
    ),
    ("PUT", "/v0/routers/:param"): Operation(
        about=(
            "copy a topic into another from now on (201: it is new): `source`, `dest`, `filter`, `start`, "
            "`preserve_node`, `preserve_tag`, `create_dest`, `allow_cycle`"
        ),
        takes=routers.RouterIn,
        example={"source": "orders", "dest": "audit"},
        gives={200: openapi_answers.RouterMade, 201: openapi_answers.RouterMade},
        refuses=(404, 409, 507),
        param="router",
    ),
    ("DELETE", "/v0/routers/:param"): Operation(
        about="stop copying; what was copied stays",
        gives={200: openapi_answers.RouterDropped},
        refuses=(507,),
        param="router",
    ),
    ("GET", "/v0/topics"): Operation(
        about="topics by name; `prefix`, `page_size` (100, at most 1000), `cursor`; in NDJSON too, as all lists",
        query=(_PREFIX, *_PAGED),
        gives={200: openapi_answers.Topics},
        lines=True,
    ),
    ("GET", "/v0/topics/:topic"): Operation(
        about="its state; `touch=false` leaves its recency alone",
        query=(Param("touch", {**_FLAG, "default": True}, "whether this counts as a read"),),
        gives={200: openapi_answers.Topic},
    ),
    ("PUT", "/v0/topics/:topic"): Operation(
        about="create it (201), or change the fields given (200)",
        takes=decode.StrictChanges,
        example={"durability": "fsync", "cap_records": 1_000_000},
        gives={200: openapi_answers.Put, 201: openapi_answers.Put},
        refuses=(409, 507),
    ),
    ("DELETE", "/v0/topics/:topic"): Operation(
        about="drop it with everything in it; `if_empty=true`",
        query=(Param("if_empty", {**_FLAG, "default": False}, "whether live records keep it (409)"),),
        gives={200: openapi_answers.Dropped},
        refuses=(409,),
    ),
    ("POST", "/v0/topics/:topic"): Operation(
        about=(
            "write: `records` of `{data, tag?, node?, meta?}`, or a value a line, or a text a line; "
            '`idempotency_key`, `create`, `config`, `ack: "fsync"`; `return_seqs=false`'
        ),
        takes=write_in.StrictWriteIn,
        example=_RECORDS,
        query=_WRITE_QUERY,
        gives={200: openapi_answers.Written, 201: openapi_answers.Written},
        refuses=(409, 422, 507),
    ),
    ("POST", "/v0/topics/:topic/diff"): Operation(
        about=(
            "read a page after `from_seq`; `limit`, `max_bytes`, `node`, `match`, `from_ts`, `to_seq`, `epoch`, "
            "`include_tags`, `include_meta`, `include_data`, `wait_ms`; NDJSON with `Accept: application/x-ndjson`"
        ),
        takes=asked.StrictReadIn,
        example={"from_seq": 0, "limit": 100},
        gives={200: openapi_answers.Page},
        lines=True,
        refuses=(409,),
    ),
    ("POST", "/v0/topics/:topic/delete"): Operation(
        about="delete records for good: `before_seq`, `match`, `seqs`, ANDed",
        takes=delete.DeleteIn,
        example={"match": ["tag", "Glob", "user:42:*"]},
        gives={200: openapi_answers.Deleted},
        refuses=(409, 507),
    ),
    ("POST", "/v0/topics/:topic/detach"): Operation(
        about=(
            "seal a topic, export it to the place `to` (a directory or s3://bucket/prefix), and let another daemon "
            "take it; `url`: which one, if that is known"
        ),
        takes=moves.DetachIn,
        example={"to": "/srv/shared", "url": "http://new:4000"},
        gives={200: openapi_answers.Detached},
        refuses=(409, 503),
    ),
    ("DELETE", "/v0/topics/:topic/detach"): Operation(
        about="take a detached topic back, unless another daemon has it",
        gives={200: openapi_answers.Detached},
        refuses=(409, 503),
    ),
    ("POST", "/v0/topics/:topic/claim"): Operation(
        about=(
            "jobs of a queue, leased: `node`, `max` (1), `lease_ms`, `wait_ms` (0, at most 30,000), `match`, "
            "`max_bytes`"
        ),
        takes=queue.ClaimIn,
        example={"node": "worker-1", "max": 10, "lease_ms": 30_000},
        gives={200: openapi_answers.Claimed},
        refuses=(409, 507),
    ),
    ("POST", "/v0/topics/:topic/ack"): Operation(
        about="jobs are done, and gone for good: `node`, `seqs`, `lease_ids`",
        takes=queue.SettleIn,
        example=_SETTLE,
        gives={200: openapi_answers.Settled},
        refuses=(409, 507),
    ),
    ("POST", "/v0/topics/:topic/nack"): Operation(
        about=(
            'jobs are given back: as ack, and `delay_ms` or `delay:"backoff"`, `reason`, `dead_letter`, `delivered`'
        ),
        takes=queue.NackIn,
        example={**_SETTLE, "delay": "backoff", "reason": "upstream is down"},
        gives={200: openapi_answers.Settled},
        refuses=(409, 422, 507),
    ),
    ("POST", "/v0/topics/:topic/extend"): Operation(
        about="leases hold longer: as ack, and `lease_ms`",
        takes=queue.ExtendIn,
        example={**_SETTLE, "lease_ms": 60_000},
        gives={200: openapi_answers.Settled},
        refuses=(409, 507),
    ),
    ("POST", "/v0/topics/:topic/requeue"): Operation(
        about="dead letters go back where they came from, or to `to`: one of `seqs`, `match`, `all`; 1000 a request",
        takes=queue.RequeueIn,
        example={"all": True},
        gives={200: openapi_answers.Requeued},
        refuses=(409, 422, 507),
    ),
    ("GET", "/v0/topics/:topic/leases"): Operation(
        about="live leases; `limit` (100, at most 1000), `cursor`",
        query=(
            Param("limit", {**_COUNT, "maximum": 1000, "default": 100}, "how many at most; 0 is the default"),
            Param("cursor", _TEXT, "the `next_cursor` of the page before"),
        ),
        gives={200: openapi_answers.Leases},
        lines=True,
        refuses=(409,),
    ),
    ("GET", "/v0/topics/:topic/work"): Operation(
        about="jobs as a stream of `job` events, at most `max` (1) leased at a time; `node`, `lease_ms`, `match`",
        query=(
            Param("node", _TEXT, "who works", required=True),
            Param("max", {**_COUNT, "default": 1}, "how many jobs may be leased to this connection at a time"),
            Param("lease_ms", _COUNT, "how long a lease holds"),
            Param("match", _TEXT, "a tag, or a beginning and `*`"),
            Param("heartbeat_ms", _COUNT, "after which silence a comment shows life"),
        ),
        gives={200: _EVENTS},
        refuses=(406, 409),
    ),
    ("DELETE", "/v0/topics/:topic/work"): Operation(
        about="no further jobs for the streams of `node`; each ends when what it holds is settled",
        query=(Param("node", _TEXT, "who works", required=True),),
        gives={200: openapi_answers.Drained},
        refuses=(409,),
    ),
    ("GET", "/v0/topics/:topic/cursors"): Operation(
        about="cursors of a topic by name; `prefix`, `page_size` (100, at most 1000), `cursor`",
        query=(_PREFIX, *_PAGED),
        gives={200: openapi_answers.Cursors},
        lines=True,
    ),
    ("GET", "/v0/topics/:topic/cursors/:param"): Operation(
        about="a reader's place: `seq`, `epoch`, `lag`, `updated_ts`",
        gives={200: openapi_answers.Cursor},
        param="name",
    ),
    ("PUT", "/v0/topics/:topic/cursors/:param"): Operation(
        about=(
            "set it to `seq` (201: it is new); `if_seq`: only where it stands there (0: nowhere yet), `epoch`, else 409"
        ),
        takes=cursors.CursorIn,
        example={"seq": 7},
        gives={200: openapi_answers.Cursor, 201: openapi_answers.Cursor},
        refuses=(409, 507),
        param="name",
    ),
    ("DELETE", "/v0/topics/:topic/cursors/:param"): Operation(
        about="take it away", gives={200: openapi_answers.CursorDropped}, refuses=(507,), param="name"
    ),
    ("POST", "/v0/topics/:topic/records"): Operation(
        about=(
            "with `stream=true`: write a body of any length, a value or a text a line, as many batches; answered by "
            "a line for each as it commits, then one with `done` or `error`"
        ),
        query=(
            Param("stream", _FLAG, "must be true", required=True),
            *_LINES_QUERY,
            Param("create", _FLAG, "whether the topic may be made"),
            Param(
                "ack",
                {"type": "string", "enum": ["fsync"]},
                "answer each batch when it is on the disk, whatever the topic's class",
            ),
        ),
        gives={200: "application/x-ndjson", 201: "application/x-ndjson"},
        refuses=(404, 409, 422, 507),
    ),
    ("GET", "/v0/topics/:topic/records/:param"): Operation(
        about="one record by seq, or 404 with why it is gone",
        gives={200: openapi_answers.Record},
        refuses=(409,),
        param="seq",
    ),
    ("POST", "/v0/write"): Operation(
        about="write several topics at once, each whole or not at all: 200, 207 or the common error",
        takes=decode_many.ManyIn,
        example={"topics": {"a": _RECORDS, "b": _RECORDS}},
        gives={200: openapi_answers.WrittenMany, 207: openapi_answers.WrittenMany},
        refuses=(404, 409, 422, 507),
    ),
    ("POST", "/v0/diff"): Operation(
        about="read several topics at once; `min_bytes`, `max_bytes`, `max_wait_ms`",
        takes=diff.ManyDiffIn,
        example={"topics": {"a": {"from_seq": 7}, "b": {}}},
        gives={200: openapi_answers.Pages},
    ),
    ("POST", "/v0/watch"): Operation(
        about="a watch session on up to 256 topics; gives its `stream_url`; `lenient=true`",
        takes=watch.WatchIn,
        example={"topics": {"a": {"tail": True}}},
        query=(Param("lenient", {**_FLAG, "default": False}, "whether topics that do not exist are left out"),),
        gives={200: openapi_answers.Session},
        refuses=(404,),
    ),
    ("GET", "/v0/ws"): Operation(
        about=(
            "a WebSocket: `subscribe unsubscribe publish claim ack nack extend ping`, each with a `request_id` if "
            "wanted; every command is judged by its own scope, and the key may come as `?token=`"
        ),
        gives={101: "text/plain"},
    ),
    ("GET", "/v0/watch/:param"): Operation(
        about="its stream of server-sent events; resumes with `Last-Event-ID`",
        gives={200: _EVENTS},
        refuses=(406,),
        param="wid",
    ),
}
