"""Planted bugs of queues on the core's side: what is logged, when it is answered, and what a start makes of it.

Each is one patch, and the scenario of `test_queues` must notice it (`test_queues_bite`). The bugs of the rules
themselves are in `tests/queue/test_model_bites.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from engine.core import host, queues, replay
from engine.core.commit import Commit
from engine.core.host import Host
from engine.core.leaving import StagedCopies, StagedMove, StagedTake
from engine.core.queues import Queues
from engine.formats.control import DeleteBody
from engine.queue import events
from engine.queue.events import Acked, DeadLettered, Leased
from engine.types import Durability


class Planted(NamedTuple):
    """A planted bug, and the variant of the scenario that shows it."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    durability: Durability = Durability.FSYNC
    durable_leases: bool = False


def _add_without_sync(patch: pytest.MonkeyPatch, kind: type[StagedTake]) -> None:
    add = Commit.add

    def planted(self: Commit, change: Any, end_lsn: int, *, sync: bool) -> None:
        add(self, change, end_lsn, sync=sync and type(change) is not kind)

    patch.setattr(Commit, "add", planted)


def _acks_unsynced(patch: pytest.MonkeyPatch) -> None:
    _add_without_sync(patch, StagedTake)


def _moves_unsynced(patch: pytest.MonkeyPatch) -> None:
    _add_without_sync(patch, StagedMove)


def _acks_unlogged(patch: pytest.MonkeyPatch) -> None:
    def planted(**body: Any) -> DeleteBody:
        return DeleteBody(**{**body, "ranges": []} if body.get("acked") else body)

    patch.setattr(queues, "DeleteBody", planted)


def _acks_counted_as_deletes(patch: pytest.MonkeyPatch) -> None:
    def planted(**body: Any) -> DeleteBody:
        return DeleteBody(**{name: value for name, value in body.items() if name != "acked"})

    patch.setattr(queues, "DeleteBody", planted)


def _leases_outlive_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "restarted", lambda self, now_ms, config: self.at(now_ms))


def _durable_leases_unlogged(patch: pytest.MonkeyPatch) -> None:
    is_logged = events.is_logged
    patch.setattr(queues, "is_logged", lambda event, durable: is_logged(event, durable) and type(event) is not Leased)


def _durable_leases_end_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    restarted = Host.restarted

    def planted(self: Host, now_ms: int, config: Any) -> None:
        restarted(self, now_ms, msgspec.structs.replace(config, leases_durable=False))

    patch.setattr(Host, "restarted", planted)


def _lease_numbers_begin_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queues, "begin", lambda self, start: None)


def _snapshots_forget_the_queue(patch: pytest.MonkeyPatch) -> None:
    restore = Host.restore
    patch.setattr(Host, "restore", lambda self, image: restore(self, None))


def _replay_leaves_moved_jobs(patch: pytest.MonkeyPatch) -> None:
    take = Host.take

    def planted(self: Host, event: Acked | DeadLettered, ranges: list[tuple[int, int]]) -> None:
        if not (isinstance(event, DeadLettered) and not any(move.deliveries for move in event.moves)):
            take(self, event, ranges)

    patch.setattr(Host, "take", planted)


def _replay_forgets_copies(patch: pytest.MonkeyPatch) -> None:
    parts = host.dead_letter_parts

    def planted(body: bytes) -> Any:
        head, copies = parts(body)
        return msgspec.structs.replace(head, target=head.target + 1_000_000), copies

    patch.setattr(replay, "dead_letter_parts", planted)


def _moves_delete_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedCopies, "apply", lambda self, catalog, now_ms: None)


PLANTED = (
    Planted("acks are answered before their sync", _acks_unsynced),
    Planted("moves show before their sync", _moves_unsynced),
    Planted("acks are not logged", _acks_unlogged, Durability.DISK),
    Planted("acks are logged as deletes", _acks_counted_as_deletes),
    Planted("leases outlive a restart", _leases_outlive_a_restart),
    Planted("durable leases are not logged", _durable_leases_unlogged, durable_leases=True),
    Planted("durable leases end at a restart", _durable_leases_end_at_a_restart, durable_leases=True),
    Planted("lease numbers begin again", _lease_numbers_begin_again),
    Planted("snapshots forget the queue", _snapshots_forget_the_queue),
    Planted("replay leaves moved jobs where they were", _replay_leaves_moved_jobs),
    Planted("replay forgets the copies of moved jobs", _replay_forgets_copies),
    Planted("moves delete without a copy", _moves_delete_without_a_copy),
)
