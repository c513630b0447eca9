"""Watch sessions: what a reader follows, with which options, and how far it has got (http-api.md §7).

A session outlives its streams: a reader that comes back goes on where the session stands, or earlier when it says so
with `Last-Event-ID`, never later. One without a stream is forgotten after its time to live.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from engine.errors import Code, Refused
from engine.types import PageRequest
from topics_daemon.sse import JSON_ID_TOPICS_MAX, pack_position, unpack_position

if TYPE_CHECKING:
    from topics_daemon.auth import Caller
    from topics_daemon.daemon import Daemon
    from topics_daemon.streams import Stream

WID: Final = re.compile(r"wid_[A-Za-z0-9_-]{22}", re.ASCII)
SHAPES_MAX: Final = 1024
"""Distinct options of sessions that are remembered, so that sessions with the same ones share pages."""
NODES_MAX: Final = 1_000_000
"""Names of nodes that all sessions together leave out: 250 MB where all are as long as they may be."""
COLLECT_EVERY_S: Final = 5.0
"""How often expired sessions are looked for, at most."""


class Place:
    """Where a session stands in one topic."""

    __slots__ = ("cursor", "epoch", "from_ts", "gone", "head", "name")

    def __init__(self, name: str, cursor: int, epoch: int, head: int, from_ts: int | None) -> None:
        self.name = name
        self.cursor = cursor
        self.epoch = epoch
        self.head = head
        """The head as it was last seen: what a `topic-deleted` event says."""
        self.from_ts = from_ts
        """Where the first page starts, until it was read."""
        self.gone = False
        """Whether the topic was deleted, which ends it for this session."""


class Session:
    """One reader's subscription."""

    __slots__ = (
        "alone",
        "caller",
        "heartbeat_s",
        "idle_since",
        "places",
        "shape",
        "shape_id",
        "stream",
        "whole",
        "wid",
    )

    def __init__(
        self,
        wid: str,
        caller: Caller,
        places: dict[str, Place],
        shape: PageRequest,
        shape_id: int,
        heartbeat_s: float,
        now: float,
    ) -> None:
        self.wid = wid
        self.caller = caller
        """Who made it: nobody else may open its stream."""
        self.places = places
        self.alone = len(places) == 1
        """Whether it follows one topic only, as most do."""
        self.shape_id = shape_id
        """The same number for the same shape: cheaper to compare and hash."""
        self.shape = shape
        """The options of every page; cursor, epoch and from_ts come from the place."""
        self.whole = shape.whole
        self.heartbeat_s = heartbeat_s
        self.stream: Stream | None = None
        self.idle_since = now
        """When its last stream ended."""

    def check_caller(self, caller: Caller) -> None:
        """Raise why `caller` may not open the stream: the id alone is no credential."""
        refusal = caller.refusal(self.places)
        if refusal is not None:
            raise refusal.anew()
        if caller is not self.caller:
            raise Refused(Code.FORBIDDEN, "this watch session was opened with another key")

    def position(self) -> bytes:
        """The id for where it stands now."""
        if len(self.places) > JSON_ID_TOPICS_MAX:
            return pack_position({name: place.cursor for name, place in self.places.items()})
        return pack_position({name: place.cursor for name, place in self.places.items() if not place.gone})

    def position_at(self, seq: int) -> bytes:
        """The id for where it stands once it has come to `seq` of its only topic."""
        return pack_position(dict.fromkeys(self.places, seq))

    def rewind(self, last_event_id: str) -> None:
        """Go back to where a reader says that it was; never forward.

        What is no id of this session changes nothing: a browser sends what it has, and cannot do anything about a
        refusal, while the session's own cursors lose nothing.
        """
        for name, seq in unpack_position(last_event_id, list(self.places)).items():
            place = self.places.get(name)
            if place is not None and seq < place.cursor:
                place.cursor = seq


class Sessions:
    """All sessions of the daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._by_wid: dict[str, Session] = {}
        self._shapes: dict[PageRequest, int] = {}
        self._next_shape_id = 0
        self._next_collect_s = 0.0
        self._nodes = 0
        self.subscribed = 0
        """Topics that all WebSockets together follow: each costs more than a place of a session."""
        self.ttl_ms: int = daemon.config["watch_session_ttl_ms"]

    def __len__(self) -> int:
        return len(self._by_wid)

    def add(self, caller: Caller, places: dict[str, Place], shape: PageRequest, heartbeat_s: float) -> Session:
        """Make a session; raises the 429 of the cap."""
        if self._lack(caller, shape) is not None:
            self.collect(self._daemon.loop.time(), at_once=True)
            if (lack := self._lack(caller, shape)) is not None:
                limit, maximum = lack
                raise Refused(
                    Code.THROTTLED,
                    "too many watch sessions; close some, or wait for idle ones to expire",
                    {"limit": limit, "max": maximum},
                )
        self._nodes += len(shape.nodes)
        caller.sessions += 1
        wid = "wid_" + secrets.token_urlsafe(16)
        now = self._daemon.loop.time()
        session = self._by_wid[wid] = Session(wid, caller, places, shape, self.shape_id(shape), heartbeat_s, now)
        return session

    def _lack(self, caller: Caller, shape: PageRequest) -> tuple[str, int] | None:
        """The bound that one more session would break."""
        own_max: int = self._daemon.config["max_watch_sessions_per_key"]
        if own_max and caller.keyed and caller.sessions >= own_max:
            return "max_watch_sessions_per_key", own_max
        maximum: int = self._daemon.config["max_watch_sessions"]
        if maximum and len(self._by_wid) >= maximum:
            return "max_watch_sessions", maximum
        return ("watch_nodes", NODES_MAX) if self._nodes + len(shape.nodes) > NODES_MAX else None

    def shape_id(self, shape: PageRequest) -> int:
        """The same number for the same options: who asks for the same pages shares them."""
        if len(self._shapes) >= SHAPES_MAX:
            # Forgetting them only means that sessions made before and after do not share pages any more.
            self._shapes.clear()
        self._next_shape_id += 1
        return self._shapes.setdefault(shape, self._next_shape_id)

    def find(self, wid: str) -> Session:
        """The session of an id, or the 404."""
        session = self._by_wid.get(wid) if WID.fullmatch(wid) is not None else None
        if session is None:
            raise Refused(Code.NOT_FOUND, "this watch session does not exist (any more); open a new one")
        return session

    def collect(self, now: float, *, at_once: bool = False) -> None:
        """Forget sessions that have been without a stream for too long."""
        if not self._by_wid or (now < self._next_collect_s and not at_once):
            return
        ttl_s = self.ttl_ms / 1000
        self._next_collect_s = now + min(COLLECT_EVERY_S, ttl_s / 4)
        expired = [
            wid for wid, session in self._by_wid.items() if session.stream is None and now - session.idle_since > ttl_s
        ]
        for wid in expired:
            session = self._by_wid.pop(wid)
            session.caller.sessions -= 1
            self._nodes -= len(session.shape.nodes)
