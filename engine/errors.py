"""Every error that topics can raise: one tree, one table, one place for its text.

    TopicsError                 has code, status, message, detail, retryable
    ├── Refused                 4xx: the request cannot be done; nothing was changed
    ├── Unavailable             5xx: cannot be done now; `detail.outcome` is "unknown" where it may have happened
    └── StoreError              the store cannot be opened; `exit_code` says what the process exits with
        ├── StoreLocked         73: another process owns the directory
        ├── StoreDamaged        76: damage that must not be passed over (names file, offset, topics, next step)
        │   ├── StoreForeign    76: a file of another store, kind, place or newer format
        │   └── StoreOutlived   76: LOCK and MANIFEST are older than the log
        ├── StoreMissing        66: there is no store, and the caller only wants to look
        └── StoreIOError        74: the disk did not answer

`Code` is the stable vocabulary of the wire (http-api.md §1); `STATUS` maps each code to its HTTP status, and is
what the documentation and the OpenAPI document are tested against; `WHEN` says of each what it means.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Self


class Code(StrEnum):
    """The stable error codes of the wire."""

    INVALID_REQUEST = "invalid_request"
    BATCH_TOO_LARGE = "batch_too_large"
    RECORD_TOO_LARGE = "record_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    TOPIC_NOT_FOUND = "topic_not_found"
    ROUTER_NOT_FOUND = "router_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    LENGTH_REQUIRED = "length_required"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    URI_TOO_LONG = "uri_too_long"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    HEADERS_TOO_LARGE = "headers_too_large"
    CURSOR_CONFLICT = "cursor_conflict"
    TOPIC_MOVED = "topic_moved"
    TOPIC_EXISTS_INCOMPATIBLE = "topic_exists_incompatible"
    TOPIC_NOT_EMPTY = "topic_not_empty"
    ROUTER_CYCLE = "router_cycle"
    NOT_A_QUEUE = "not_a_queue"
    TOPIC_DAMAGED = "topic_damaged"
    MISDIRECTED = "misdirected"
    TOPIC_FULL = "topic_full"
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    NOT_READY = "not_ready"
    TOPIC_MOVING = "topic_moving"
    SHUTTING_DOWN = "shutting_down"
    COLD_UNAVAILABLE = "cold_unavailable"
    READ_ONLY = "read_only"
    DISK_FULL = "disk_full"


STATUS: Final[dict[Code, int]] = {
    Code.INVALID_REQUEST: 400,
    Code.BATCH_TOO_LARGE: 400,
    Code.RECORD_TOO_LARGE: 400,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.TOPIC_NOT_FOUND: 404,
    Code.ROUTER_NOT_FOUND: 404,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.NOT_ACCEPTABLE: 406,
    Code.CURSOR_CONFLICT: 409,
    Code.TOPIC_MOVED: 409,
    Code.TOPIC_EXISTS_INCOMPATIBLE: 409,
    Code.TOPIC_NOT_EMPTY: 409,
    Code.ROUTER_CYCLE: 409,
    Code.NOT_A_QUEUE: 409,
    Code.TOPIC_DAMAGED: 409,
    Code.LENGTH_REQUIRED: 411,
    Code.PAYLOAD_TOO_LARGE: 413,
    Code.URI_TOO_LONG: 414,
    Code.UNSUPPORTED_MEDIA_TYPE: 415,
    Code.MISDIRECTED: 421,
    Code.TOPIC_FULL: 422,
    Code.IDEMPOTENCY_MISMATCH: 422,
    Code.THROTTLED: 429,
    Code.HEADERS_TOO_LARGE: 431,
    Code.INTERNAL: 500,
    Code.NOT_READY: 503,
    Code.TOPIC_MOVING: 503,
    Code.SHUTTING_DOWN: 503,
    Code.COLD_UNAVAILABLE: 503,
    Code.READ_ONLY: 503,
    Code.DISK_FULL: 507,
}

WHEN: Final[dict[Code, str]] = {
    Code.INVALID_REQUEST: "bad JSON, type, range or name; `detail.field` says where",
    Code.BATCH_TOO_LARGE: "more records in one write than `max_batch_records`",
    Code.RECORD_TOO_LARGE: "a record over its limits, or one that the topic's caps can never hold",
    Code.UNAUTHORIZED: "no key, or one that is not known",
    Code.FORBIDDEN: "the key lacks the scope or the prefix; or the request came from another site's page",
    Code.TOPIC_NOT_FOUND: "no such topic; `detail.topic`",
    Code.ROUTER_NOT_FOUND: "no such router; `detail.router`",
    Code.NOT_FOUND: "no such path, watch session or record; for a record `detail.why` says what became of it",
    Code.METHOD_NOT_ALLOWED: "the path is there, the method is not; `Allow` lists what is",
    Code.NOT_ACCEPTABLE: "`Accept` rules out what the route gives",
    Code.CURSOR_CONFLICT: "a cursor was not where `if_seq` said",
    Code.TOPIC_MOVED: "the topic lives elsewhere; `detail.to`",
    Code.TOPIC_MOVING: "the topic is being sealed for another daemon, or attached here; wait",
    Code.TOPIC_EXISTS_INCOMPATIBLE: "it exists with what cannot be changed, such as another `type`",
    Code.TOPIC_NOT_EMPTY: "`if_empty` was asked for, and there are live records",
    Code.ROUTER_CYCLE: "the router would close a circle; `detail.cycle`",
    Code.NOT_A_QUEUE: "a queue's operation on a log",
    Code.TOPIC_DAMAGED: "the topic is damaged where the operation would have to be sure",
    Code.LENGTH_REQUIRED: "a body without a length",
    Code.PAYLOAD_TOO_LARGE: "a body over `max_body_bytes`, or a MiB where it has no records, counted after inflation",
    Code.URI_TOO_LONG: "a request line over `max_url_bytes`",
    Code.UNSUPPORTED_MEDIA_TYPE: "a body of a type that the route does not take, or of none",
    Code.MISDIRECTED: "the `Host` is not one of `allowed_hosts`",
    Code.TOPIC_FULL: "`discard` is `reject`, and a cap is reached",
    Code.IDEMPOTENCY_MISMATCH: "the key was used for other records",
    Code.THROTTLED: "a resource cap or pressure; `Retry-After`, and `detail.limit` and `detail.max` for a cap",
    Code.HEADERS_TOO_LARGE: "a head over `max_header_bytes` or `max_headers`",
    Code.INTERNAL: "a bug; it is logged with the id in `detail.id`",
    Code.NOT_READY: "recovery still runs; `detail.replay_progress`",
    Code.SHUTTING_DOWN: "the daemon is stopping",
    Code.COLD_UNAVAILABLE: "the record lies in the cold tier, which does not answer",
    Code.READ_ONLY: "the log's disk failed: reads go on, writes wait for a restart; an unknown outcome says so",
    Code.DISK_FULL: "no room; reads, deletes and acks go on, and writing resumes by itself",
}
"""When each is met, for the documentation and `topics errors`; names are in backticks."""

RETRYABLE: Final = frozenset(
    {
        Code.THROTTLED,
        Code.NOT_READY,
        Code.TOPIC_MOVING,
        Code.SHUTTING_DOWN,
        Code.COLD_UNAVAILABLE,
        Code.READ_ONLY,
        Code.DISK_FULL,
    }
)


class TopicsError(Exception):
    """A refusal or failure with a stable code.

    `message` says what to do; `detail` is the structured part of the wire's error body, or None.
    """

    def __init__(self, code: Code, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code."""
        return STATUS[self.code]

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without a change."""
        return self.code in RETRYABLE

    def anew(self) -> Self:
        """The same without a traceback, to be kept where this one was raised, or raised where this one is kept, in a
        local variable too: who keeps an error that was raised keeps all that the stack held, and each time it is raised
        there is more of it. A frame and an error that know each other wait for a search for garbage."""
        return type(self)(self.code, self.message, self.detail)


class Refused(TopicsError):
    """The request cannot be done as it stands; nothing was changed and no seq was used."""


class Unavailable(TopicsError):
    """The request cannot be done now.

    With `detail["outcome"] == "unknown"` it may turn out to have been done after a restart; an idempotency key
    settles it. Otherwise nothing was changed.
    """


class StoreError(Exception):
    """The store cannot be opened. `exit_code` is what a process that meets it exits with (operations.md)."""

    exit_code: int = 74


class StoreLocked(StoreError):
    """Another process owns the data directory."""

    exit_code = 73


class StoreDamaged(StoreError):
    """Damage that must not be passed over: recovery refuses to start and changes nothing."""

    exit_code = 76


class DamagedRecords(StoreDamaged):
    """Records that fail their checks or cannot be read."""

    def __init__(self, topic: str, first: int, last: int, path: str) -> None:
        seqs = f"seq {first}" if first == last else f"seqs {first}-{last}"
        super().__init__(f"topic {topic!r}, {seqs}: damaged in {path}")
        self.topic, self.first, self.last, self.path = topic, first, last, path


class StoreMissing(StoreError):
    """Somebody wants to look at a store, and there is none; a start would make one."""

    exit_code = 66


class StoreForeign(StoreDamaged):
    """A file that belongs to another store, kind or place, or to a newer format."""


class StoreOutlived(StoreDamaged):
    """The log goes on behind the place where LOCK and MANIFEST say that it was stopped: they are older."""


class StoreIOError(StoreError):
    """The disk refused to answer while the store was opened; never taken for an empty store."""

    exit_code = 74


def invalid(message: str, field: str | None = None) -> Refused:
    """A 400 `invalid_request` whose `detail.field` names the field at fault."""
    return Refused(Code.INVALID_REQUEST, message, {"field": field} if field is not None else None)


def topic_not_found(name: str) -> Refused:
    """The 404 that names the topic."""
    return Refused(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist; create it, or write to it", {"topic": name})


def cold_unavailable() -> Unavailable:
    """The 503 of what needs the cold tier, which does not answer in time."""
    return Unavailable(Code.COLD_UNAVAILABLE, "the cold tier does not answer in time; try again")


def log_failed(why: object) -> Unavailable:
    """The 503 of what needs a log that takes no writes any more."""
    return Unavailable(Code.READ_ONLY, f"the write-ahead log failed ({why}); restart the daemon")


def outcome_unknown(why: str) -> Unavailable:
    """The 503 of a write that may or may not be there after a restart."""
    return Unavailable(
        Code.READ_ONLY,
        f"{why}; whether this write is kept shows after a restart (retry with the same idempotency key)",
        {"outcome": "unknown"},
    )
