"""Opening watch sessions and their streams (http-api.md §7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from engine.errors import Code, Refused, TopicsError
from engine.limits import Limits
from engine.names import check_topic_name
from engine.types import PageRequest, TopicState
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_names, decode
from topics_daemon.head import Head, takes_events
from topics_daemon.routes.asked import (
    MatchIn,
    check_topics,
    check_topics_count,
    flag,
    heartbeat_of,
    in_range,
    match_of,
    nodes_of,
    page_bytes,
    page_limit,
)
from topics_daemon.sessions import Place
from topics_daemon.sse import OPENED
from topics_daemon.streams import Stream

if TYPE_CHECKING:
    from topics_daemon.auth import Caller
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

BATCH_BYTES_DEFAULT: Final = 262_144


class PlaceIn(msgspec.Struct):
    """Where to begin in one topic."""

    from_seq: int | None = None
    tail: bool = False
    from_ts: int | None = None
    epoch: int | None = None


class StrictPlaceIn(PlaceIn, forbid_unknown_fields=True):
    """The same, failing at what is unknown."""


class WatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v0/watch`."""

    topics: dict[str, StrictPlaceIn | None]
    node: str | list[str] | None = None
    match: MatchIn = None
    limit: int | None = None
    max_batch_bytes: int | None = None
    heartbeat_ms: int | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"


class LenientWatchIn(WatchIn):
    """The same, where a topic's part may hold unknown fields."""

    topics: dict[str, PlaceIn | None]  # type: ignore[assignment]  # widens the element, which only the decoder sees


_WATCH: Final = msgspec.json.Decoder(WatchIn)
_LENIENT: Final = msgspec.json.Decoder(LenientWatchIn)
_QUERY: Final = frozenset({"lenient"})


def open_session(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`POST /v0/watch[?lenient=true]`."""
    warnings: list[str] = []
    check_names(head.query, _QUERY, warnings)
    lenient = flag(head.query, "lenient", False)
    maximum: int = daemon.config["max_watch_topics"]
    check_topics(body, maximum)
    read = decode(_WATCH, body, daemon.limits, warnings, lenient=_LENIENT, part_fields=PlaceIn.__struct_fields__)
    check_topics_count(len(read.topics), maximum)
    shape = read_shape(read, daemon.limits)
    daemon.drain(*filter(head.caller.allows, read.topics))
    places, shown = read_places(daemon, head.caller, read.topics, lenient, warnings)
    session = daemon.sessions.add(head.caller, places, shape, heartbeat_of(read.heartbeat_ms))
    answer: dict[str, Any] = {
        "wid": session.wid,
        "stream_url": f"/v0/watch/{session.wid}",
        "session_ttl_ms": daemon.sessions.ttl_ms,
        "topics": shown,
    }
    return json_answer(head, 200, answer, warnings, started_ns)


def read_shape(read: WatchIn, limits: Limits) -> PageRequest:
    """The options of every page, checked and clamped."""
    return PageRequest(
        limit=page_limit(read.limit, limits),
        max_bytes=page_bytes(read.max_batch_bytes, BATCH_BYTES_DEFAULT, limits),
        nodes=nodes_of(read.node, limits),
        match=match_of(read.match, limits),
        include_tags=read.include_tags,
        include_meta=read.include_meta,
        include_data=read.include_data,
        strong=read.consistency == "strong",
    )


def read_places(
    daemon: Daemon, caller: Caller, topics: Mapping[str, PlaceIn | None], lenient: bool, warnings: list[str]
) -> tuple[dict[str, Place], dict[str, dict[str, int]]]:
    """Where a reader begins in each topic, and how that is shown; raises what its caller or its names deserve.

    A topic that does not exist is refused; `lenient` leaves it out, and says so.
    """
    for name, part in topics.items():
        caller.check(check_topic_name(name, "topics"))
        _check_place(part or PlaceIn())
    daemon.reading()
    places: dict[str, Place] = {}
    shown: dict[str, dict[str, int]] = {}
    for name, part in topics.items():
        try:
            state = daemon.engine.state(name)
        except TopicsError as error:
            if not lenient or error.code is not Code.TOPIC_NOT_FOUND:
                raise
            warnings.append(f"topic {name} does not exist")
            continue
        name = state.topic  # the name that the topic itself has, once for all who follow it
        place = places[name] = _place(name, part or PlaceIn(), state)
        shown[name] = {
            "from_seq": place.cursor,
            "head_seq": state.head_seq,
            "earliest_seq": state.earliest_seq,
            "epoch": state.epoch,
        }
    return places, shown


def _check_place(part: PlaceIn) -> None:
    for name in ("from_seq", "from_ts", "epoch"):
        in_range(getattr(part, name), name, 0)


def _place(name: str, part: PlaceIn, state: TopicState) -> Place:
    """Where a session begins in a topic: `tail` (only what is new) wins."""
    cursor, from_ts = part.from_seq or 0, part.from_ts
    epoch = state.epoch if part.epoch is None else part.epoch
    if part.tail:
        cursor, from_ts, epoch = state.head_seq, None, state.epoch
    return Place(name, cursor, epoch, state.head_seq, from_ts)


def open_stream(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`GET /v0/watch/:wid`: from here on the connection is a stream."""
    session = daemon.sessions.find(head.param)
    session.check_caller(head.caller)
    if not takes_events(head):
        raise Refused(Code.NOT_ACCEPTABLE, "this is a stream: Accept must allow text/event-stream")
    if session.stream is None:  # A takeover needs no room.
        daemon.pump.check_room(session.caller)
    if head.last_event_id:
        session.rewind(head.last_event_id)
    daemon.pump.open(session, Stream(daemon.pump, session, connection))
    head.tally.add(OPENED, started_ns)
