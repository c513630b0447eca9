"""Deleting records for good (http-api.md §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.commands import DeleteSelector
from engine.core import Ticket
from engine.errors import invalid
from engine.types import U64_MAX, DeleteResult
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_names, decode
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.routes.asked import match_of

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class DeleteIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a delete."""

    before_seq: int | None = None
    match: Any = None
    seqs: list[int] | None = None


_DELETE: Final = msgspec.json.Decoder(DeleteIn)


class DeleteExchange(Exchange):
    """A delete on its way to the log."""

    __slots__ = ("warnings",)

    warnings: list[str]

    def answered(self, ticket: Ticket[DeleteResult]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        answer = msgspec.structs.asdict(ticket.value())
        answer["performance"] = {"wal_append_ms": ticket.write_ns / 1e6, "fsync_ms": ticket.sync_ns / 1e6}
        self.finish(json_answer(self.head, 200, answer, self.warnings, self.started_ns))


def delete_records(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:t/delete`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    read = decode(_DELETE, body, daemon.limits, warnings)
    if read.before_seq is None and read.match is None and read.seqs is None:
        raise invalid("a delete needs at least one of before_seq, match, seqs")
    if read.before_seq is not None and not 0 <= read.before_seq <= U64_MAX:
        raise invalid(f"before_seq must be between 0 and {U64_MAX}", "before_seq")
    if read.seqs is not None:
        if len(read.seqs) > daemon.limits.delete_seqs:
            raise invalid(f"seqs may list {daemon.limits.delete_seqs} seqs; split the delete", "seqs")
        if not all(0 <= seq <= U64_MAX for seq in read.seqs):
            raise invalid(f"seqs must be between 0 and {U64_MAX}", "seqs")
    selector = DeleteSelector(
        before_seq=read.before_seq,
        match=match_of(read.match, daemon.limits),
        seqs=None if read.seqs is None else tuple(read.seqs),
    )
    ticket = daemon.engine.delete(head.name, selector)
    exchange = DeleteExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.follow(ticket, exchange.answered)
