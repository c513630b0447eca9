"""A topic that moves to another store: the frame that says so, and the two small files in the place between.

    PLACE/moves/<topic>/<token>/    manifest.json, STORE, meta/…, topics/…   an export of that one topic: a store
                                    OFFER    the topic as it was sealed: whoever has read it may take it
                                    TAKEN    made once, never changed: whose the topic is from then on

OFFER is put when everything else is there and durable, and when the log of the store that offers can no longer take a
write for the topic. TAKEN is made by a conditional put (a hard link in a directory) by whoever is first: the store that
attaches the topic, or the one that offered it and takes it back. Both are like STORE: a line of JSON and its check.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from engine.formats.export import ExportGap
from engine.types import TopicConfig

MOVE_FORMAT: Final = 1
MOVES_DIR: Final = "moves"
OFFER_NAME: Final = "OFFER"
TAKEN_NAME: Final = "TAKEN"
MARKER_BYTES_MAX: Final = 1 << 30


class MoveState(StrEnum):
    """How far a topic is on its way to another store."""

    LEAVING = "leaving"
    """Sealed and being exported. In memory alone: a restart undoes it."""
    OFFERED = "offered"
    """Another store may take it, and this one writes nothing more to it unless it takes it back."""
    TAKEN = "taken"
    """Another store has it."""
    STAYS = "stays"
    """It was taken back."""


class MoveBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a Move frame, and what an image says of a topic that is not here."""

    state: MoveState
    to: str
    """The place that it was offered in."""
    token: str
    generation: int
    """The how-manieth offer of this topic it is."""
    url: str | None = None
    """The daemon that has it, or is to have it."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """OFFER: a sealed topic. The export beside it is what is read; the two have to agree."""

    format: int
    token: str
    topic: str
    epoch: int
    from_store: str
    from_topic: str
    created_ms: int
    last_seq: int
    """The last one that was given out: the store that takes it goes on behind it."""
    earliest_seq: int
    count: int
    bytes: int
    config: TopicConfig
    deleted: list[tuple[int, int]]
    gaps: list[ExportGap]
    losses: list[ExportGap]
    cursors: list[tuple[str, int, int]]
    queue: dict[str, int] | None
    """Of a queue: how many jobs it holds, and how many were acked, dead-lettered, deleted, evicted and lost."""
    manifest: str
    """XXH3-128 of manifest.json, which vouches for every other file."""
    url: str | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """TAKEN: whose the topic is."""

    format: int
    token: str
    by: str
    """The store's id."""
    ts: int
    """Wall clock of who took it."""
    url: str | None = None
    """Where its daemon is, if it said so."""


def move_dir(topic: str, token: str) -> str:
    """Where an offer lies below its place."""
    return f"{MOVES_DIR}/{topic}/{token}"


def token_of(store_id: bytes, topic_id: int, generation: int) -> str:
    """The name of an offer, which no other one has: an attempt that was cut short is made again under it."""
    return f"{store_id[:8].hex()}-{topic_id:x}-{generation}"


def queue_counts(queue: Any) -> dict[str, int] | None:
    """What OFFER says of a queue's image."""
    if queue is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(queue)
    return {name: told[name] for name in ("live", "acked", "dead_lettered", "deleted", "evicted", "lost")}
