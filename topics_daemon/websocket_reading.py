"""What a WebSocket follows: subscriptions, and the messages that they are told in (http-api.md §8).

A subscription is a stream of the pump like any other: places, pages shared with whoever stands at the same place,
positions instead of frames. Only what it says is put differently: `op` says what an SSE event's name does, and there
are no ids, for a socket that comes back subscribes anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from engine.errors import TopicsError, invalid
from topics_daemon.answers import error_shown
from topics_daemon.routes.watch import LenientWatchIn, PlaceIn, WatchIn
from topics_daemon.streams import Stream
from topics_daemon.websocket_frames import said, text_frame

if TYPE_CHECKING:
    from topics_daemon.pump import Frame, Frames, Pump
    from topics_daemon.sessions import Place, Session
    from topics_daemon.websocket import Socket


class SubscribeIn(WatchIn, kw_only=True, forbid_unknown_fields=True):
    """A `subscribe`, once `named_places` has put its topics into one form."""

    lenient: bool = False


class LenientSubscribeIn(LenientWatchIn, kw_only=True):
    """The same, where a topic's part may hold unknown fields."""

    lenient: bool = False


class UnsubscribeIn(msgspec.Struct, forbid_unknown_fields=True):
    """An `unsubscribe`."""

    topic: str | None = None
    topics: list[str] | None = None


SUBSCRIBE: Final = msgspec.json.Decoder(SubscribeIn)
LENIENT_SUBSCRIBE: Final = msgspec.json.Decoder(LenientSubscribeIn)
UNSUBSCRIBE: Final = msgspec.json.Decoder(UnsubscribeIn)

_PLACES: Final = msgspec.json.Decoder(dict[str, dict[str, Raw] | None])
_NAMES: Final = msgspec.json.Decoder(list[str])


def named_places(members: dict[str, Raw]) -> str | None:
    """Make `topics` of a `subscribe` an object like that of a watch; returns the topic where only one was named.

    `topic` names one, `topics` several: in a list, or in an object with a place for each. `from_seq`, `tail`,
    `from_ts` and `epoch` beside them say where to begin in those that say nothing else.
    """
    common = {name: members.pop(name) for name in PlaceIn.__struct_fields__ if name in members}
    one, several = members.pop("topic", None), members.get("topics")
    try:
        if (one is None) == (several is None):
            raise invalid("a subscribe needs one of topic, topics", "topic")
        alone = msgspec.json.decode(one, type=str) if one is not None else None
        if alone is not None:
            places: dict[str, dict[str, Raw]] = {alone: common}
        elif bytes(several or b"").startswith(b"["):
            places = dict.fromkeys(_NAMES.decode(several or b""), common)
        else:
            places = {name: {**common, **(place or {})} for name, place in _PLACES.decode(several or b"").items()}
        if not places:
            raise invalid("topics must name at least one topic", "topics")
        members["topics"] = Raw(msgspec.json.encode(places))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise invalid("topic is a name, topics a list of names or an object with a place for each", "topics") from error
    return alone


class Subscription(Stream):
    """What one `subscribe` follows."""

    __slots__ = ("_socket",)

    def __init__(self, pump: Pump, session: Session, socket: Socket) -> None:
        super().__init__(pump, session, socket.connection)
        self._socket = socket
        self.shape_id = -session.shape_id  # it is not told what an event stream is
        self.outlet = socket

    def open(self) -> None:
        """Begin: the `subscribed` was written already."""
        self.ready.update(dict.fromkeys(self.session.places))

    def pause(self) -> None:
        """The socket counts what waits."""
        self.paused = True
        self.steady = None

    def resume(self) -> None:
        self.paused = False
        if self.ready:
            self._pump.enqueue(self)

    def end(self, code: int, error: str) -> None:
        """What ends a subscription ends its socket."""
        self._socket.end(code, error)

    def stop(self) -> None:
        """Follow nothing any more."""
        self.ended = True
        self.steady = None
        for place in self.session.places.values():
            self.leave(place)

    def leave(self, place: Place) -> None:
        """Follow one topic no longer."""
        if not place.gone:
            super().leave(place)
            self._socket.commands.left(place.name, self)

    def serve(self, frames: Frames, name: str) -> None:
        """Send what one topic has, unless its records wait for the answer to the command that caused them."""
        if self._socket.commands.holds_back(name):
            del self.ready[name]
        else:
            super().serve(frames, name)

    # -- what it says ------------------------------------------------------------------------------------------------

    def _records(self, frame: Frame) -> bytes:
        if frame.message is None:
            assert frame.payload is not None
            frame.message = text_frame(b'{"op":"record",%b' % frame.payload[1:])
        return frame.message

    def _takes_all(self, name: str) -> bool:
        return not self._socket.commands.holds_back(name) and super()._takes_all(name)

    def event(self, frame: Frame) -> bytes:
        return self._records(frame)

    def said(self, name: bytes, shown: dict[str, object]) -> bytes:
        return text_frame(said(name.replace(b"-", b"_"), b"", shown))

    def _error(self, error: TopicsError) -> dict[str, object]:
        return error_shown(error)

    def tell(self, parts: list[bytes]) -> None:
        if parts:
            self._socket.send_frames(b"".join(parts), len(parts))
