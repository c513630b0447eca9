"""Cursors on the wire (http-api.md §11): places of readers, kept by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.core import Ticket
from engine.core.cursors import CursorPut
from engine.names import check_topic_name, is_topic_name
from engine.types import U64_MAX
from topics_daemon.answers import json_answer, list_answer
from topics_daemon.decode import check_names, decode
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.routes.asked import in_range, list_cursor, page_size, read_list_cursor
from topics_daemon.routes.gone import GoneExchange

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class CursorIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body that sets a cursor."""

    seq: int
    epoch: int | None = None
    if_seq: int | None = None


CURSOR: Final = msgspec.json.Decoder(CursorIn)


class PutCursorExchange(Exchange):
    """A cursor on its way to the log."""

    __slots__ = ("warnings",)

    warnings: list[str]

    def answered(self, ticket: Ticket[CursorPut]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        put = ticket.value()
        answer: dict[str, Any] = {**put.cursor._asdict(), "created": put.created}
        answer["performance"] = {"wal_append_ms": ticket.write_ns / 1e6, "fsync_ms": ticket.sync_ns / 1e6}
        self.finish(json_answer(self.head, 201 if put.created else 200, answer, self.warnings, self.started_ns))


def put_cursor(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`PUT /v0/topics/:t/cursors/:name`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    read = decode(CURSOR, body, daemon.limits, warnings)
    in_range(read.epoch, "epoch", 0)
    ticket = daemon.engine.cursors.put(
        head.name, head.param, in_range(read.seq, "seq", 0, 0, U64_MAX), epoch=read.epoch, if_seq=read.if_seq
    )
    exchange = PutCursorExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.follow(ticket, exchange.told)


def drop_cursor(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`DELETE /v0/topics/:t/cursors/:name`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    ticket = daemon.engine.cursors.drop(head.name, head.param)
    exchange = GoneExchange(connection, head, started_ns)
    exchange.member, exchange.warnings = "name", warnings
    daemon.follow(ticket, exchange.told)


def get_cursor(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/topics/:t/cursors/:name`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    check_topic_name(head.param, "cursor")
    daemon.drain(head.name)
    cursor = daemon.engine.cursors.get(head.name, head.param)
    return json_answer(head, 200, cursor._asdict(), warnings, started_ns)


_LIST_QUERY: Final = frozenset({"prefix", "page_size", "cursor"})


def list_cursors(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/topics/:t/cursors?prefix&page_size&cursor`."""
    warnings: list[str] = []
    query = head.query
    check_names(query, _LIST_QUERY, warnings)
    size = page_size(query, daemon.limits)
    after = read_list_cursor(query["cursor"], is_topic_name) if "cursor" in query else ""
    prefix = query.get("prefix", "")
    daemon.drain(head.name)
    found = [one for one in daemon.engine.cursors.all(head.name) if one.name > after and one.name.startswith(prefix)]
    following = list_cursor(found[size - 1].name) if len(found) > size else None
    shown = {"topic": head.name, "cursors": [one._asdict() for one in found[:size]]}
    return list_answer(head, shown, following, warnings, started_ns)
