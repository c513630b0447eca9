"""Planted bugs of topics that move, each with the play of `moves` in which it has to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine.core.handover as handover_module
import engine.core.replay as replay_module
import engine.move.arrive as arrive_module
import engine.move.export as export_module
import engine.move.steps as steps_module
from engine.checkpoint.jobs import Copy
from engine.core.beginning import Beginning
from engine.core.core import Core
from engine.core.handover import Handover
from engine.core.replay import Replay
from engine.core.staged import note_move
from engine.core.ticket import Ticket
from engine.formats.moving import MOVE_FORMAT, MoveState, Taken
from engine.move.place import DirectoryPlace
from tests.sim.mutants import Mutant, Patch, Plant

MOVES: list[Mutant] = []


def _mutant(play: str, shards: int = 1) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        where = f"move-{play}@{shards}"
        MOVES.append(Mutant("move-" + plant.__name__.lstrip("_").replace("_", "-"), plant, (where,)))
        return plant

    return add


@_mutant("fsync")
def _offered_in_memory_alone(patch: Patch) -> None:
    """OFFER is put, and the log does not say that the topic is not here any more."""

    def offer(self: Handover, name: str, token: str) -> Ticket[Any]:
        slot, ticket = self._slot(name), Ticket[Any]()
        move = slot.moved
        assert move is not None
        note_move(slot, type(move)(**{**_fields(move), "state": MoveState.OFFERED}))
        ticket.complete(slot.moved)
        return ticket

    patch.set(Handover, "offer", offer)


@_mutant("fsync")
def _offered_before_it_is_on_disk(patch: Patch) -> None:
    """The frame is in the log, and nobody has waited for the sync."""
    old = Handover._log

    def log(self: Handover, name: str, token: str, states: Any, state: MoveState, url: str | None = None) -> Any:
        ticket = old(self, name, token, states, state, url)
        early = Ticket[Any]()
        move = self._slot(name).moved
        assert move is not None
        early.complete(type(move)(**{**_fields(move), "state": state}))
        del ticket
        return early

    patch.set(Handover, "_log", log)


def _fields(move: Any) -> dict[str, Any]:
    return {name: getattr(move, name) for name in move.__struct_fields__}


@_mutant("race")
def _taken_is_replaced(patch: Patch) -> None:
    """TAKEN is a file like any other: the last one who writes it has the topic, and the first one, too."""

    def put_once(self: DirectoryPlace, name: str, content: bytes, mine: str) -> bytes:
        self.put(name, [content])
        return content

    patch.set(DirectoryPlace, "put_once", put_once)


@_mutant("race")
def _taken_is_not_read(patch: Patch) -> None:
    """Who has tried to make TAKEN believes that it is theirs."""

    def take(place: Any, topic: str, token: str, store_id: bytes, now_ms: int, url: str | None = None) -> Taken:
        export_module.take(place, topic, token, store_id, now_ms, url)
        return Taken(format=MOVE_FORMAT, token=token, by=store_id.hex(), ts=now_ms, url=url)

    patch.set(steps_module, "take", take)


@_mutant("busy")
def _a_seal_that_lets_writes_in(patch: Patch) -> None:
    old = Core._check_writable
    patch.set(Core, "_check_writable", lambda self, shard, slot=None: old(self, shard))


@_mutant("busy")
def _writes_on_their_way_are_not_waited_for(patch: Patch) -> None:
    def settle(self: Handover, name: str) -> Ticket[Any]:
        ticket = Ticket[Any]()
        ticket.complete(True)
        return ticket

    patch.set(Handover, "settle", settle)
    # The checkpoint would wait for the sync of what it takes down anyway, but not for what is pending.
    patch.set(Core, "checkpoint", _checkpoint_that_is_there)


def _checkpoint_that_is_there(self: Core) -> Ticket[Any]:
    ticket = Ticket[Any]()
    ticket.complete(True)
    return ticket


@_mutant("given-up")
def _a_seal_that_is_not_undone(patch: Patch) -> None:
    patch.set(Handover, "unseal", lambda self, name, token: None)


@_mutant("given-up")
def _damage_in_the_place_is_left_out(patch: Patch) -> None:
    """A record that does not check is not there, and nobody is told."""
    patch.set(arrive_module, "Copy", type("Blind", (Copy,), {"why": None}))


@_mutant("fsync")
def _a_start_removes_what_the_log_names(patch: Patch) -> None:
    """The segments of a topic that came are in no snapshot yet."""
    old = Replay._attach

    def attach(self: Replay, frame: Any) -> None:
        old(self, frame)
        self.attached_files.clear()

    patch.set(Replay, "_attach", attach)


@_mutant("disk")
def _seqs_jump_where_the_topic_is_not_any_more(patch: Patch) -> None:
    """After a power failure the old owner puts a gap behind the head of what another one has."""
    old = Replay._lost

    def lost(self: Replay, slot: Any) -> Any:
        moved, slot.moved = slot.moved, None
        try:
            return old(self, slot)
        finally:
            slot.moved = moved

    patch.set(Replay, "_lost", lost)


@_mutant("fsync")
def _deletions_of_what_came_are_in_no_snapshot(patch: Patch) -> None:
    old = handover_module.attached

    def attached(*args: Any, **more: Any) -> Any:
        slot, files = old(*args, **more)
        for block in slot.topic.tail.blocks:
            if block.segment is not None:
                block.segment.deletes_dirty = False
        return slot, files

    patch.set(handover_module, "attached", attached)
    patch.set(replay_module, "attached", attached)


@_mutant("back")
def _what_was_taken_is_forgotten(patch: Patch) -> None:
    """A topic that was attached and dropped comes back by a second attach."""
    old = Beginning.restore

    def restore(self: Beginning, catalog: Any, begin: Any) -> None:
        old(self, catalog, begin)
        catalog.attached.clear()

    patch.set(Beginning, "restore", restore)


@_mutant("fsync")
def _cursors_stay_behind(patch: Patch) -> None:
    patch.set(arrive_module, "note_places", lambda image, slot, roster: None)


@_mutant("cancel")
def _kept_in_memory_alone(patch: Patch) -> None:
    """A topic that was taken back is away again after a start."""

    def keep(self: Handover, name: str, token: str) -> Ticket[Any]:
        slot, ticket = self._slot(name), Ticket[Any]()
        slot.moved = None
        ticket.complete(True)
        return ticket

    patch.set(Handover, "keep", keep)


@_mutant("back", shards=3)
def _a_stub_outlives_what_came(patch: Patch) -> None:
    """Where its end lay in a shard that was not synced yet, a start finds both: the older one has the name."""
    patch.set(Beginning, "pass_over", lambda self, topic_id, name, older: True)


@_mutant("fsync")
def _offers_are_not_counted_by_a_start(patch: Patch) -> None:
    """Only the second reader sees how often a topic was offered, until it is offered under an old token."""

    def note(slot: Any, move: Any) -> None:
        moves = slot.moves
        note_move(slot, move)
        slot.moves = moves

    patch.set(replay_module, "note_move", note)


@_mutant("queue")
def _segments_that_came_are_named_as_those_of_a_checkpoint(patch: Patch) -> None:
    """Nothing else tells their names from those that checkpoint 1 gives."""
    patch.set(arrive_module, "ATTACHED_NUMBER", 1)
