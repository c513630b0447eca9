"""Topics that move to another daemon, or from one (docs/adr/0044): detach, take back, attach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.errors import TopicsError, invalid
from engine.names import check_topic_name
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_names, decode
from topics_daemon.exchange import Exchange
from topics_daemon.handovers import attached, shown
from topics_daemon.head import Head
from topics_objects.place import check_place

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

URL_BYTES_MAX: Final = 2048
PLACE_BYTES_MAX: Final = 4096


class DetachIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body: through which place, and which daemon is to have it, if that is known."""

    to: str
    url: str | None = None


class AttachIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body: what, from which place, and where this daemon is for those who still ask the other one."""

    topic: str
    place: str
    token: str | None = None
    url: str | None = None


_DETACH: Final = msgspec.json.Decoder(DetachIn)
_ATTACH: Final = msgspec.json.Decoder(AttachIn)


class MoveExchange(Exchange):
    """A command that takes as long as it takes."""

    __slots__ = ("warnings",)

    takes_long = True
    warnings: list[str]

    def _give(self, status: int, answer: dict[str, Any]) -> None:
        self.finish(json_answer(self.head, status, answer, self.warnings, self.started_ns))


class DetachExchange(MoveExchange):
    """A topic on its way out, or back."""

    __slots__ = ()

    def answered(self, found: Any) -> None:
        """Answer a detach."""
        if isinstance(found, TopicsError):
            raise found
        assert self.head is not None
        topic = self.connection.daemon.engine.catalog.reader(self.head.name).topic
        self._give(200, shown(self.head.name, found, topic.head, topic.epoch))


class AttachExchange(MoveExchange):
    """A topic on its way in."""

    __slots__ = ()

    def answered(self, found: Any) -> None:
        """Answer an attach. Raises the 404 of a topic that was dropped in the same moment."""
        if isinstance(found, TopicsError):
            raise found
        assert self.head is not None
        answer = attached(found, self.connection.daemon.engine)
        self._give(201 if found.created else 200, {**answer, "config": self.head.caller.shown(found.config)})


def detach(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:t/detach`: answered when another daemon may take the topic."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    asked = decode(_DETACH, body, daemon.limits, warnings)
    _check_place(asked.to, "to")
    _check_url(asked.url)
    daemon.engine.catalog.reader(head.name)
    exchange = DetachExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.handovers.detach(head.name, asked.to, asked.url, exchange.told)


def cancel(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`DELETE /v0/topics/:t/detach`: take the topic back, if nobody has it yet."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    daemon.engine.catalog.reader(head.name)
    exchange = DetachExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.handovers.cancel(head.name, exchange.told)


def attach(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/admin/attach`: answered when this daemon has the topic."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    asked = decode(_ATTACH, body, daemon.limits, warnings)
    check_topic_name(asked.topic, "topic")
    head.caller.check(asked.topic)
    _check_place(asked.place, "place")
    _check_url(asked.url)
    if asked.token is not None and not _is_token(asked.token):
        raise invalid("token is not one that a detach answers", "token")
    exchange = AttachExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.handovers.attach(asked.topic, asked.place, asked.token, asked.url, exchange.told)


def _is_token(token: str) -> bool:
    return 0 < len(token) <= 64 and all(letter in "0123456789abcdef-" for letter in token)


def _check_place(place: str, field: str) -> None:
    wrong = f"is longer than {PLACE_BYTES_MAX}" if len(place) > PLACE_BYTES_MAX else check_place(place)
    if wrong is not None or "\0" in place:
        raise invalid(f"{field} {wrong or 'holds a NUL'}", field)


def _check_url(url: str | None) -> None:
    if url is not None and (len(url) > URL_BYTES_MAX or not url.startswith(("http://", "https://", "unix:"))):
        raise invalid("url must be like http://host:4000 or unix:/run/topics/topics.sock", "url")
