"""Administration: checkpoints, and what the store consists of (http-api.md §12)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.core import Ticket
from engine.types import CheckpointDone
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_names
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.stepping import Stepping

if TYPE_CHECKING:
    from engine.core import Core
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


DAMAGE_MAX: Final = 1000
"""Topics with damage that are shown."""
STEP_BLOCKS: Final = 256
"""Topics, and blocks of them, that are looked at before others may come first: up to 1 µs each."""


class CheckpointExchange(Exchange):
    """A checkpoint that somebody waits for."""

    __slots__ = ("warnings",)

    takes_long = True
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
    daemon.follow(ticket, exchange.told)
    daemon.look_at_checkpoints()


class StoreExchange(Stepping):
    """A look at the store on its way: at each of a hundred thousand topics it takes ninety milliseconds."""

    __slots__ = ()

    def __init__(self, daemon: Daemon, connection: Requester, head: Head, started_ns: int, warnings: list[str]) -> None:
        super().__init__(connection, head, started_ns, self._run(daemon.engine, warnings))

    def _run(self, core: Core, warnings: list[str]) -> Iterator[None]:
        tiers = yield from _tiers(core)
        self.finish(json_answer(self.head, 200, _shown(core, tiers), warnings, self.started_ns))


def store(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`GET /v0/admin/store`: files, bytes, tiers, damage, shards, and the last checkpoint."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    StoreExchange(daemon, connection, head, started_ns, warnings).go_on()


def _shown(core: Core, tiers: dict[str, dict[str, int]]) -> dict[str, Any]:
    """What the answer says."""
    return {
        "store_id": core.store.store_id.hex(),
        "files": sum(len(shard.files) for shard in core.wal.shards) + sum(tier["files"] for tier in tiers.values()),
        "bytes": core.wal.bytes_allocated + sum(tier["bytes"] for tier in tiers.values()),
        "tiers": tiers,
        "damage": [
            {"topic": slot.name, "ranges": slot.topic.damage()}
            for slot in islice(sorted(core.catalog.census.damaged, key=attrgetter("name")), DAMAGE_MAX)
        ],
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


def _tiers(core: Core) -> Generator[None, None, dict[str, dict[str, int]]]:
    """What of the history lies where: segments with files of their own, and pieces of the tails that topics share.
    Others may come first at each `yield`.

    Of a cold segment the data is in the cold tier, and what finds its way around in it is here, and counted as hot.
    """
    hot, cold, tails = ({"files": 0, "segments": 0, "bytes": 0} for _ in range(3))
    shared = set()
    looked_at = 0
    for slot in list(core.catalog.visible.values()):
        if looked_at >= STEP_BLOCKS:
            looked_at = 0
            yield
        looked_at += 1 + len(slot.topic.tail.blocks)
        for block in slot.topic.tail.blocks:
            segment = block.segment
            if segment is None:
                continue
            if segment.in_tails:
                shared.add(segment.data_path)
                tails["segments"] += 1
                tails["bytes"] += segment.data_len
                continue
            where = cold if segment.cold else hot
            where["segments"] += 1
            where["bytes"] += segment.data_size
            hot["files"] += len(segment.paths())
            hot["bytes"] += segment.idx_size
            cold["files"] += segment.cold
    tails["files"] = len(shared)
    return {"hot": hot, "tails": tails, "cold": cold}
