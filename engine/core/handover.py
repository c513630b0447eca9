"""Topics that go to another store, and topics that come from one: the loop's part (engine/formats/moving.py has the
files, engine/move the jobs; docs/adr/0044).

    here     seal ─► settle ─► checkpoint, pin, export ─► offer: a Move frame, synced ─► OFFER is put ─► (taken)
               └─ unseal: nothing has happened            └─ TAKEN is made by this store ─► keep: it stays
    there    expect ─► segments are copied ─► TAKEN is made ─► attach: an Attach frame, synced ─► it goes on

A sealed topic takes no changes. Until the Move frame that is so in memory alone, and a restart undoes it; OFFER is not
put before the frame is on the disk, so no store ever writes to a topic that another one may have. From the frame on a
topic becomes writable here again only by a second frame, which is not written before TAKEN says that it is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from engine.core.catalog import Catalog
from engine.core.images import fill
from engine.core.refusals import elsewhere
from engine.core.slot import Slot
from engine.core.staged import StagedAttach, StagedDrop, StagedHandover, StagedUnchanged
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, Unavailable, topic_not_found
from engine.formats.attach import AttachBody, encode_attach_body
from engine.formats.control import DropBody, encode_control_body
from engine.formats.frame import FrameType
from engine.formats.moving import MoveBody, MoveState, token_of
from engine.fs import Fs
from engine.segment.segment import Segment
from engine.store.snapshots import length_of, segment_of
from engine.tagset import TagSet
from engine.topic.block import Block
from engine.types import Durability, Reason, TopicPut

if TYPE_CHECKING:
    from engine.core.core import Core


class Handover:
    """What of one store is on its way to another one, or from it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._expected: set[str] = set()
        """Names of topics that are being copied here."""

    # -- what others ask ---------------------------------------------------------------------------------------------

    def check_new(self, name: str) -> None:
        """Raise for a name that a topic which is on its way here has."""
        if name in self._expected:
            raise Unavailable(
                Code.TOPIC_MOVING, f"topic {name!r} is being attached; try again", {"topic": name, "state": "arriving"}
            )

    def check_drop(self, slot: Slot) -> None:
        """Raise for a topic that must not be dropped now: what is being exported may still be needed here."""
        if slot.moved is not None and slot.moved.state is MoveState.LEAVING:
            raise elsewhere(slot.name, slot.moved)

    def move_of(self, name: str) -> MoveBody | None:
        """Where a topic is on its way to; None: it is here. Raises the 404."""
        return self._slot(name).moved

    # -- from here ---------------------------------------------------------------------------------------------------

    def seal(self, name: str, to: str, url: str | None = None) -> MoveBody:
        """Let a topic take no more changes, because it is to be offered in the place `to`.

        One that is sealed or offered already stays so, if the place is the same. Raises what speaks against it.
        """
        slot = self._slot(name)
        if slot.moved is not None:
            if slot.moved.to != to or slot.moved.state is MoveState.TAKEN:
                raise elsewhere(name, slot.moved)
            return slot.moved
        self._core._check_writable(slot.shard)
        if slot.config.durability is Durability.EPHEMERAL:
            raise _refused(name, "ephemeral", "its records are in memory alone; give it another durability first")
        routers = [router.name for router in self._core.catalog.routers.of_topic(slot.topic.id)]
        if routers:
            raise _refused(name, "routers", f"routers copy it ({', '.join(routers)}); drop them first", routers=routers)
        generation = slot.moves + 1
        token = token_of(self._core.store.store_id, slot.topic.id, generation)
        slot.moved = MoveBody(state=MoveState.LEAVING, to=to, token=token, generation=generation, url=url)
        return slot.moved

    def settle(self, name: str) -> Ticket[TopicPut]:
        """An answer when everything that was decided before the topic was sealed is applied."""
        ticket: Ticket[TopicPut] = Ticket()
        self._core.commit.add_free(StagedUnchanged(self._slot(name), ticket))
        return ticket

    def unseal(self, name: str, token: str) -> None:
        """Undo a seal of which no frame speaks."""
        slot = self._core.catalog.visible.get(name)
        move = None if slot is None else slot.moved
        if slot is not None and move is not None and (move.token, move.state) == (token, MoveState.LEAVING):
            slot.moved = None

    def offer(self, name: str, token: str) -> Ticket[MoveBody]:
        """Say durably that another store may take the topic: its export is there, whole, but for OFFER."""
        return self._log(name, token, (MoveState.LEAVING, MoveState.OFFERED), MoveState.OFFERED)

    def taken(self, name: str, token: str, url: str | None) -> Ticket[MoveBody]:
        """TAKEN says that another store has the topic."""
        return self._log(name, token, (MoveState.OFFERED, MoveState.TAKEN), MoveState.TAKEN, url)

    def keep(self, name: str, token: str) -> Ticket[MoveBody]:
        """TAKEN says that the topic stays here."""
        return self._log(name, token, (MoveState.OFFERED,), MoveState.STAYS)

    def _log(
        self, name: str, token: str, states: Collection[MoveState], state: MoveState, url: str | None = None
    ) -> Ticket[MoveBody]:
        slot = self._slot(name)
        now = slot.moved
        if now is None or now.token != token or now.state not in states:
            raise _refused(name, "offer", "it is not offered under that token any more")
        ticket: Ticket[MoveBody] = Ticket()
        move = MoveBody(state=state, to=now.to, token=token, generation=now.generation, url=url or now.url)
        if move == now:
            self._core.commit.add_free(StagedHandover(slot, ticket, move))
            return ticket
        body = encode_control_body(move)
        self._stage(slot, ticket, FrameType.MOVE, body, lambda: StagedHandover(slot, ticket, move))
        return ticket

    def _stage(
        self, slot: Slot, ticket: Ticket[Any], kind: FrameType, body: bytes, change: Callable[[], StagedHandover]
    ) -> None:
        core = self._core

        def attempt() -> bool:
            core._check_writable(slot.shard)
            if not core._room(slot.shard, len(body), control=True):
                return False
            end = core.wal.stage(slot.shard, kind, 0, 0, slot.topic.id, 0, core.now(), body)
            core.commit.add(change(), end, sync=True)
            return True

        if core.parking.blocks(slot.name) or not attempt():
            core._park(slot.name, ticket, attempt)

    # -- to here -----------------------------------------------------------------------------------------------------

    def expect(self, name: str, token: str) -> int:
        """The id that a topic which is to be copied here gets. Its name is nobody else's until `attach` or `give_up`.

        Raises when the name is taken, or was copied here before and dropped since.
        """
        core = self._core
        there = core.catalog.tip.get(name)
        if token in core.catalog.attached:
            raise _refused(name, "attached", "this offer was attached here before, and the topic was dropped since")
        if there is not None and (there.moved is None or there.moved.token == token or there.pending):
            why = "a topic of that name is here" if there.moved is None else "it was offered by this store; cancel that"
            raise _refused(name, "exists", why)
        core._check_new_topic(name)
        core.catalog.last_id = topic_id = core._next_id()
        self._expected.add(name)
        return topic_id

    def give_up(self, name: str) -> None:
        """Nothing came of it."""
        self._expected.discard(name)

    def attach(self, body: AttachBody) -> Ticket[TopicPut]:
        """Begin a topic with a history: its segments are here and on disk, and TAKEN says that it is ours."""
        ticket: Ticket[TopicPut] = Ticket()
        name, core = body.image.name, self._core
        encoded = encode_attach_body(body)
        topic_id = body.image.id

        def attempt() -> bool:
            shard = core.catalog.shard_of(topic_id)
            core._check_writable(shard)
            stub = core.catalog.tip.get(name)
            if stub is not None:
                core._check_writable(stub.shard)
            if not core._room(shard, len(encoded), control=True):
                return False
            if stub is not None and not core._room(stub.shard, len(encoded), control=True):
                return False
            if stub is not None:
                end = core.wal.stage(
                    stub.shard, FrameType.DROP, 0, 0, stub.topic.id, 0, core.now(), encode_control_body(DropBody())
                )
                core.catalog.drop_tip(stub)
                core.commit.add(StagedDrop(stub, None, []), end, sync=True)
            slot, _ = attached(core.catalog, body)
            end = core.wal.stage(shard, FrameType.ATTACH, 0, 0, topic_id, 0, core.now(), encoded)
            slot.tip = slot.synced = slot.syncing = slot.logged = slot.topic.head
            slot.last_write_ms = core.now()
            if slot.host is not None:
                slot.host.restarted(core.now(), slot.config)
            core.commit.add(StagedAttach(slot, ticket, body.token), end, sync=True)
            self._expected.discard(name)
            return True

        if not attempt():
            core._park(name, ticket, attempt)
        return ticket

    def _slot(self, name: str) -> Slot:
        slot = self._core.catalog.reader(name)
        if slot.dropped:
            raise topic_not_found(name)
        return slot


def attached(catalog: Catalog, body: AttachBody, fs: Fs | None = None) -> tuple[Slot, set[str]]:
    """Put a topic in that an Attach frame speaks of; the files that it names, too. It is not visible yet.

    With `fs` it is looked whether they are there, as a start does; what is not is a `corruption` gap.
    """
    image = body.image
    slot = catalog.add_tip(image.name, image.id, image.epoch, catalog.shared(body.config))
    blocks: list[Block] = []
    files: set[str] = set()
    lost: list[tuple[int, int]] = []
    for entry in image.segments:
        segment = segment_of(image, entry)
        files.update(segment.paths())
        if fs is not None and not _is_there(fs, segment):
            image.count -= entry.live
            image.size -= entry.size
            lost.append((segment.first_seq, segment.last_seq))
            image.ghosts.append((segment.first_seq, segment.last_seq, entry.live, entry.size))
            continue
        tags = None if entry.tags is None else TagSet.unpacked(entry.tags)
        blocks.append(Block.sealed(segment, entry.live, entry.size, tags))
    fill(catalog, slot, image, blocks)
    for block in blocks:
        if block.segment is not None:
            block.segment.deletes_dirty = bool(slot.topic.deleted.between(block.first_seq, block.last_seq))
    for first, last in lost:
        for start, stop in list(slot.topic.live_runs(max(first, slot.topic.earliest_seq), last)):
            slot.topic.note_gap(start, stop, Reason.CORRUPTION)
        if slot.host is not None:
            slot.host.lost(first, last)
    return slot, files


def _is_there(fs: Fs, segment: Segment) -> bool:
    length = length_of(fs, segment.data_path)
    return length is not None and length >= segment.data_size


def _refused(name: str, reason: str, why: str, **detail: Any) -> Refused:
    return Refused(
        Code.TOPIC_EXISTS_INCOMPATIBLE, f"topic {name!r}: {why}", {"topic": name, "reason": reason, **detail}
    )
