"""Administration: checkpoints, and what the store consists of (http-api.md §12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from engine.core import Ticket
from engine.types import CheckpointDone
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_names
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class CheckpointExchange(Exchange):
    """A checkpoint that somebody waits for."""

    __slots__ = ("warnings",)

    warnings: list[str]

    def answered(self, ticket: Ticket[CheckpointDone]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        assert self.head is not None
        answer = msgspec.to_builtins(ticket.value())
        self.finish(json_answer(self.head, 200, answer, self.warnings, self.started_ns))


def checkpoint(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/admin/checkpoint`: one that holds everything up to now; answered when it is durable."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    ticket = daemon.engine.checkpoint()
    exchange = CheckpointExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.follow(ticket, exchange.answered)
    daemon.look_at_checkpoints()


def store(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/admin/store`: shards, log, history, damage, and the last checkpoint."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    core = daemon.engine
    answer: dict[str, Any] = {
        "store_id": core.store.store_id.hex(),
        "shards": [
            {
                "shard": shard.index,
                "files": len(shard.files),
                "bytes": sum(log.size for log in shard.files),
                "tip_lsn": shard.tip_lsn,
                "durable_lsn": shard.durable_lsn,
                "read_only": None if shard.failed is None else str(shard.failed),
            }
            for shard in core.wal.shards
        ],
        "records_live": core.catalog.records_live,
        "bytes_live": core.catalog.bytes_live,
        "checkpoint": {
            "phase": core.keeper.phase.value,
            "last": None if core.keeper.last is None else msgspec.to_builtins(core.keeper.last),
            "uncovered_bytes": core.keeper.uncovered_bytes,
            "problem": core.keeper.problem,
        },
    }
    return json_answer(head, 200, answer, warnings, started_ns)
