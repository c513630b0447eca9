"""The values that cross the engine's boundary: frozen, slotted, and named as the wire names them.

What lives here holds no behaviour but its own rules of validity (the clamps of http-api.md §2). Requests and batches
are in `commands`; how things are stored is in `formats`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from engine.errors import Code, Refused, invalid
from engine.limits import CLAIM_JITTER_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, PRIORITY_MAX
from engine.names import check_topic_name

U64_MAX: Final = 2**64 - 1
U32_MAX: Final = 2**32 - 1
I32_MAX: Final = 2**31 - 1


class TopicType(StrEnum):
    """What a topic is; immutable."""

    LOG = "log"
    QUEUE = "queue"


class Discard(StrEnum):
    """What a full topic does with the next write."""

    OLD = "old"
    REJECT = "reject"


class Durability(StrEnum):
    """When a write is acked, and what it then survives (storage.md §3)."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


EPHEMERAL: Final = Durability.EPHEMERAL
FSYNC: Final = Durability.FSYNC
"""For the paths of writes and acks: a member of an enum costs three times what a global does to reach."""


class Reason(StrEnum):
    """Why records are lost against a reader's will."""

    CAP = "cap"
    TTL = "ttl"
    MIXED = "mixed"
    RECREATED = "recreated"
    SOURCE_TRIM = "source_trim"
    CRASH = "crash"
    CORRUPTION = "corruption"


class WhyGone(StrEnum):
    """Why a single record cannot be read (`detail.why`)."""

    NEVER_WRITTEN = "never_written"
    DELETED = "deleted"
    EVICTED = "evicted"
    EXPIRED = "expired"
    LOST = "lost"


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's configuration: exactly these seventeen fields, in the order in which every answer shows them."""

    type: TopicType = TopicType.LOG
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    durable: bool = False
    durability: Durability = Durability.DISK
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120_000
    dedupe_node: bool = True
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False


class ConfigChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks to set; fields left out keep their value (or take the default of a new topic)."""

    type: TopicType | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET
    cap_records: int | UnsetType = UNSET
    cap_bytes: int | UnsetType = UNSET
    discard: Discard | UnsetType = UNSET
    durable: bool | UnsetType = UNSET
    durability: Durability | UnsetType = UNSET
    priority: int | None | UnsetType = UNSET
    auto_priority: bool | UnsetType = UNSET
    auto_create: bool | UnsetType = UNSET
    idempotency_window_ms: int | UnsetType = UNSET
    dedupe_node: bool | UnsetType = UNSET
    lease_ms: int | UnsetType = UNSET
    claim_jitter_ms: int | UnsetType = UNSET
    max_deliveries: int | UnsetType = UNSET
    dead_letter: str | None | UnsetType = UNSET
    leases_durable: bool | UnsetType = UNSET


_RANGES: Final[dict[str, tuple[int, int]]] = {
    "ttl_ms": (0, U64_MAX),
    "cap_records": (0, U64_MAX),
    "cap_bytes": (0, U64_MAX),
    "priority": (-I32_MAX - 1, I32_MAX),
    "idempotency_window_ms": (0, U64_MAX),
    "lease_ms": (0, U64_MAX),
    "claim_jitter_ms": (0, U64_MAX),
    "max_deliveries": (0, U32_MAX),
}


def configured(topic: str, old: TopicConfig | None, changes: ConfigChanges) -> TopicConfig:
    """The configuration of `topic` after `changes`; `old` is None for a new topic.

    Raises the 400 for values out of range and the 409 for a change of `type`. Out of clamped ranges are clamped.
    """
    given: dict[str, Any] = {
        name: value for name in ConfigChanges.__struct_fields__ if (value := getattr(changes, name)) is not UNSET
    }
    for name, (low, high) in _RANGES.items():
        value = given.get(name)
        if value is not None and not low <= value <= high:
            raise invalid(f"{name} must be between {low} and {high}", name)
    if old is not None and given.get("type", old.type) != old.type:
        raise Refused(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"topic {topic!r} is a {old.type.value}; the type of a topic never changes",
            {"topic": topic, "type": old.type.value},
        )
    if "durability" in given:
        pass
    elif "durable" in given:
        given["durability"] = Durability.FSYNC if given["durable"] else Durability.DISK
    if "durability" in given:
        given["durable"] = given["durability"] is Durability.FSYNC
    if "lease_ms" in given:
        given["lease_ms"] = min(max(given["lease_ms"], LEASE_MS_MIN), LEASE_MS_MAX)
    if "claim_jitter_ms" in given:
        given["claim_jitter_ms"] = min(given["claim_jitter_ms"], CLAIM_JITTER_MS_MAX)
    if given.get("priority") is not None:
        given["priority"] = min(max(given["priority"], -PRIORITY_MAX), PRIORITY_MAX)
    if given.get("dead_letter") is not None:
        check_topic_name(given["dead_letter"], "dead_letter")
        if given["dead_letter"] == topic:
            raise invalid("dead_letter must be another topic", "dead_letter")
    return msgspec.structs.replace(old if old is not None else TopicConfig(), **given)


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """A loss that a reader meets: where, why, how much (http-api.md §5)."""

    gap_from: int
    gap_to: int
    reason: Reason
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class Match(msgspec.Struct, frozen=True):
    """A tag filter: `Eq` of the whole tag, or `Glob` of a prefix and one final star. Untagged records never match."""

    op: Literal["Eq", "Glob"]
    value: str
    """The tag, or the prefix without its star."""

    def accepts(self, tag: str | None) -> bool:
        """Whether a record with this tag passes."""
        if tag is None:
            return False
        return tag == self.value if self.op == "Eq" else tag.startswith(self.value)


def parse_match(value: object, field: str = "match") -> Match:
    """Read a §6 filter: `["tag","Eq","x"]`, `["tag","Glob","x*"]`, `"x"` or `"x*"`; `field` is what it is called."""
    if isinstance(value, str):
        value = ["tag", "Glob" if value.endswith("*") else "Eq", value]
    match value:
        case ["tag", "Eq", str(text)]:
            return Match("Eq", text)
        case ["tag", "Glob", str(text)] if text.endswith("*") and "*" not in text[:-1]:
            return Match("Glob", text[:-1])
    raise invalid(f'{field} must be ["tag","Eq","x"], ["tag","Glob","x*"], "x" or "x*"', field)


class PageRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a reader asks for: one page of one topic (http-api.md §5), already checked and clamped."""

    from_seq: int = 0
    limit: int = 256
    max_bytes: int = 1024 * 1024
    nodes: frozenset[str] = frozenset()
    match: Match | None = None
    from_ts: int | None = None
    to_seq: int | None = None
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    epoch: int | None = None
    lines: bool = False
    """NDJSON: records end in a line feed instead of being joined by commas, raw line breaks in data become spaces."""
    strong: bool = False
    """Only what is synced."""

    @property
    def whole(self) -> bool:
        """Whether it asks for all records up to the head, and for all of each but perhaps its tag."""
        filtered = self.match is not None or self.nodes or self.from_ts is not None or self.to_seq is not None
        return self.include_data and self.include_meta and not (filtered or self.lines or self.strong)


class Page(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One page: rendered bytes and where they end."""

    pieces: list[bytes | memoryview]
    """Joined, they are the records: `a,b,c` (no brackets), or lines that each end in a line feed."""
    count: int
    from_seq: int
    """The cursor that the page was read from."""
    next_from_seq: int
    """The last seq examined."""
    head_seq: int
    earliest_seq: int
    epoch: int
    tombstone: Tombstone | None
    scanned: int
    """Slots examined."""

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """What `GET /v0/topics/:t` shows, but for what only the daemon knows."""

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
    damage: list[tuple[int, int]] | None
    """Ranges known lost to corruption; None when whole."""
    queue: dict[str, Any] | None = None
    """The counters of a queue; None for a log, and in lists."""
    moved: dict[str, str] | None = None
    """Where it is on its way to, or has gone; None for one that is here."""


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The answer to a write."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    epoch: int


class DeleteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a delete."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class TopicPut(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a create or a change."""

    topic: str
    created: bool
    config: TopicConfig
    epoch: int


class CheckpointDone(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is durable."""

    number: int
    topics: int
    """Topics that it holds."""
    segments: int
    """Segments that were sealed for it."""
    bytes: int
    """What it wrote beside segments."""
    took_ms: int
    ts: int
    """When it was done, in engine time."""


class TopicDropped(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a drop."""

    topic: str
    deleted: bool
    routers_removed: list[str]
