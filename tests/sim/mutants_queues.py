"""Planted bugs of queues on the core's side: what is logged, when it is answered, and what a start makes of it.

Each is one patch, and a play of `queues` must notice it. The bugs of the rules
themselves are in `tests/queue/test_model_bites.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from engine.core import Core, host, queues, replay, requeue
from engine.core.commit import Commit
from engine.core.host import Host
from engine.core.leaving import StagedCopies, StagedMove, StagedTake
from engine.core.queues import Queues
from engine.formats.control import DeleteBody
from engine.queue import events
from engine.queue.events import Acked, DeadLettered, Leased
from tests.sim.mutants import Mutant, Patch, Plant


def _add_without_sync(patch: Patch, kind: type[StagedTake]) -> None:
    add = Commit.add

    def planted(self: Commit, change: Any, end_lsn: int, *, sync: bool) -> None:
        add(self, change, end_lsn, sync=sync and type(change) is not kind)

    patch.set(Commit, "add", planted)


def _acks_unsynced(patch: Patch) -> None:
    _add_without_sync(patch, StagedTake)


def _moves_unsynced(patch: Patch) -> None:
    _add_without_sync(patch, StagedMove)


def _acks_unlogged(patch: Patch) -> None:
    def planted(**body: Any) -> DeleteBody:
        return DeleteBody(**{**body, "ranges": []} if body.get("acked") else body)

    patch.set(queues, "DeleteBody", planted)


def _acks_counted_as_deletes(patch: Patch) -> None:
    def planted(**body: Any) -> DeleteBody:
        return DeleteBody(**{name: value for name, value in body.items() if name != "acked"})

    patch.set(queues, "DeleteBody", planted)


def _leases_outlive_a_restart(patch: Patch) -> None:
    patch.set(Host, "restarted", lambda self, now_ms, config: self.at(now_ms))


def _durable_leases_unlogged(patch: Patch) -> None:
    is_logged = events.is_logged
    patch.set(queues, "is_logged", lambda event, durable: is_logged(event, durable) and type(event) is not Leased)


def _durable_leases_end_at_a_restart(patch: Patch) -> None:
    restarted = Host.restarted

    def planted(self: Host, now_ms: int, config: Any) -> None:
        restarted(self, now_ms, msgspec.structs.replace(config, leases_durable=False))

    patch.set(Host, "restarted", planted)


def _lease_numbers_begin_again(patch: Patch) -> None:
    patch.set(Queues, "begin", lambda self, start: None)


def _snapshots_forget_the_queue(patch: Patch) -> None:
    restore = Host.restore
    patch.set(Host, "restore", lambda self, image: restore(self, None))


def _replay_leaves_moved_jobs(patch: Patch) -> None:
    take = Host.take

    def planted(self: Host, event: Acked | DeadLettered, ranges: list[tuple[int, int]]) -> None:
        if not (isinstance(event, DeadLettered) and not any(move.deliveries for move in event.moves)):
            take(self, event, ranges)

    patch.set(Host, "take", planted)


def _replay_forgets_copies(patch: Patch) -> None:
    parts = host.dead_letter_parts

    def planted(body: bytes) -> Any:
        head, copies = parts(body)
        return msgspec.structs.replace(head, target=head.target + 1_000_000), copies

    patch.set(replay, "dead_letter_parts", planted)


def _moves_delete_without_a_copy(patch: Patch) -> None:
    patch.set(StagedCopies, "apply", lambda self, catalog, now_ms: None)


def _requeues_delete_at_once(patch: Patch) -> None:
    follow = requeue._follow

    def planted(ticket: Any, on_done: Any) -> None:
        if isinstance(on_done, partial):
            on_done(ticket)
        else:
            follow(ticket, on_done)

    patch.set(requeue, "_follow", planted)


def _requeues_wait_for_no_sync(patch: Patch) -> None:
    append = Core.append

    def planted(self: Core, topic: str, batch: Any, **how: Any) -> Any:
        return append(self, topic, batch, **{**how, "ack_fsync": False})

    patch.set(Core, "append", planted)


def _syncs_begin_after_answers(patch: Patch) -> None:
    def planted(self: Commit, now_ms: int) -> Any:
        if self.wal.has_staged:
            self.write_groups(now_ms)
        return self._begin_sync(now_ms)

    patch.set(Commit, "sync_job", planted)


def _mutant(name: str, plant: Plant, play: str = "queue-fsync", shards: int = 1) -> Mutant:
    return Mutant(f"queue-{name.replace(' ', '-')}", plant, (f"{play}@{shards}",))


QUEUES = [
    _mutant("acks are answered before their sync", _acks_unsynced),
    _mutant("moves show before their sync", _moves_unsynced),
    _mutant("acks are not logged", _acks_unlogged, "queue-disk"),
    _mutant("acks are logged as deletes", _acks_counted_as_deletes),
    _mutant("leases outlive a restart", _leases_outlive_a_restart),
    _mutant("durable leases are not logged", _durable_leases_unlogged, "queue-fsync-leases"),
    _mutant("durable leases end at a restart", _durable_leases_end_at_a_restart, "queue-fsync-leases"),
    _mutant("lease numbers begin again", _lease_numbers_begin_again),
    _mutant("snapshots forget the queue", _snapshots_forget_the_queue),
    _mutant("replay leaves moved jobs where they were", _replay_leaves_moved_jobs),
    _mutant("replay forgets the copies of moved jobs", _replay_forgets_copies),
    _mutant("moves delete without a copy", _moves_delete_without_a_copy),
    _mutant("requeues delete before the copy is written", _requeues_delete_at_once, "requeue-fsync", 2),
    _mutant("requeues delete before a sync of the copy", _requeues_wait_for_no_sync, "requeue-disk", 2),
    _mutant("syncs begin after what they cover is answered", _syncs_begin_after_answers, "requeue-disk"),
]
