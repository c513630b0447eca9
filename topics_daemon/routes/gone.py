"""The answer to taking away what a path names: a cursor, a router."""

from __future__ import annotations

from typing import Any

from engine.core import Ticket
from topics_daemon.answers import json_answer
from topics_daemon.exchange import Exchange


class GoneExchange(Exchange):
    """What the path names (a cursor, a router) goes; the answer is whether it was there."""

    __slots__ = ("member", "warnings")

    member: str
    """What the answer calls it."""
    warnings: list[str]

    def answered(self, ticket: Ticket[bool]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        assert self.head is not None
        answer: dict[str, Any] = {self.member: self.head.param, "deleted": ticket.value()}
        answer["performance"] = {"wal_append_ms": ticket.write_ns / 1e6, "fsync_ms": ticket.sync_ns / 1e6}
        self.finish(json_answer(self.head, 200, answer, self.warnings, self.started_ns))
