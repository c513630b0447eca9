"""Export pins (http-api.md §12): make, renew, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from engine.errors import TopicsError, invalid
from engine.names import check_topic_name, is_topic_name
from topics_daemon.answers import json_answer, list_answer
from topics_daemon.auth import forbidden_name
from topics_daemon.decode import check_names, decode
from topics_daemon.exchange import Exchange
from topics_daemon.exports import Export
from topics_daemon.head import Head
from topics_daemon.routes.asked import list_cursor, page_size, read_list_cursor

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class ExportIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body: what to pin, or which pin to renew."""

    topics: list[str] | None = None
    prefix: str | None = None
    ttl_ms: int | None = None
    id: str | None = None


_EXPORT: Final = msgspec.json.Decoder(ExportIn)


class ExportExchange(Exchange):
    """A pin that is being made."""

    __slots__ = ("warnings",)

    takes_long = True
    warnings: list[str]

    def answered(self, export: Export | TopicsError) -> None:
        """Give the answer."""
        if isinstance(export, TopicsError):
            self.fail(export)
            return
        self.finish(json_answer(self.head, 201, msgspec.to_builtins(export), self.warnings, self.started_ns))


def pin(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes | None:
    """`POST /v0/admin/exports`: pin topics; with an `id`, renew that pin."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    asked = decode(_EXPORT, body or b"{}", daemon.limits, warnings)
    if asked.ttl_ms is not None and asked.ttl_ms < 0:
        raise invalid("ttl_ms must not be negative", "ttl_ms")
    if asked.id is not None:
        if head.caller.prefixes:
            raise forbidden_name()
        renewed = msgspec.to_builtins(daemon.exports.renew(asked.id, asked.ttl_ms))
        return json_answer(head, 200, renewed, warnings, started_ns)
    names = None
    if asked.topics is not None:
        if asked.prefix is not None:
            raise invalid("topics and prefix both say what to pin", "prefix")
        names = frozenset(check_topic_name(name, "topics") for name in asked.topics)
        for name in names:
            head.caller.check(name)
        for name in names:
            daemon.engine.catalog.reader(name)
    elif head.caller.prefixes and not (asked.prefix and head.caller.allows(asked.prefix)):
        raise forbidden_name()
    daemon.exports.check_room()
    exchange = ExportExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.exports.create(names, asked.prefix, asked.ttl_ms, exchange.told)
    return None


_LIST_QUERY: Final = frozenset({"page_size", "cursor"})


def list_pins(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/admin/exports?page_size&cursor`, by id."""
    warnings: list[str] = []
    check_names(head.query, _LIST_QUERY, warnings)
    size = page_size(head.query, daemon.limits)
    after = read_list_cursor(head.query["cursor"], is_topic_name) if "cursor" in head.query else ""
    found = sorted((pin for pin in daemon.exports.listed() if pin.id > after), key=lambda pin: pin.id)
    following = list_cursor(found[size - 1].id) if len(found) > size else None
    return list_answer(head, {"exports": msgspec.to_builtins(found[:size])}, following, warnings, started_ns)


def unpin(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`DELETE /v0/admin/exports/:id`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    deleted = daemon.exports.delete(head.param)
    return json_answer(head, 200, {"id": head.param, "deleted": deleted}, warnings, started_ns)
