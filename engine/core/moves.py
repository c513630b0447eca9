"""Moves to the dead letters: what is copied, whether the target can take it, and the frame (queues.md, rule 6).

A move that cannot be made *now* (the target is being made, or has something else pending) is dropped and decided again
later; one that is refused (the target is full, or cannot be made) leaves the jobs where they are, ready after backoff.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from engine.commands import Batch
from engine.core.leaving import StagedCopies, StagedMove, StagedTake
from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.errors import TopicsError
from engine.formats.append import encode_append_body
from engine.formats.control import DeleteBody, encode_control_body
from engine.formats.frame import FrameType
from engine.fragment import META_FIXED, node_of, payload_bytes, render, tag_of
from engine.limits import MIB, ROOM_SLACK
from engine.queue.dead_letter import dead_letter_config, dead_letter_meta
from engine.queue.events import DeadLetterBody, DeadLettered, Move, encode_dead_letter_body
from engine.ranges import ranges_of
from engine.topic.state import Topic
from engine.types import Durability, configured

if TYPE_CHECKING:
    from engine.core.core import Core

MOVE_BYTES: Final = 4 * MIB
"""What the jobs of one move hold together, if it is more than one: the rest follows in the next."""


class Plan(NamedTuple):
    """A move that can be staged now."""

    target: Slot
    moved: DeadLettered
    batch: Batch


class Columns(NamedTuple):
    """What a record holds."""

    data: bytes
    tag: str | None
    node: str | None
    meta: bytes | None
    ts: int


def columns_of(topic: Topic, seq: int) -> Columns:
    """The parts of a live record, byte for byte. Raises `NotCached`."""
    tail = topic.tail
    block = tail.block_of(seq)
    assert block is not None, "what is live lies in a block"
    part, index = tail.at(block, seq - block.first_seq)
    fragment = part.fragment(index)
    node_len, meta_len, tag_len = (
        0 if lens is None else lens[index] for lens in (part.node_lens, part.meta_lens, part.tag_lens)
    )
    meta_end = len(fragment) - 1 - tag_len
    data_end = meta_end - meta_len
    begin = fragment.index(b",", fragment.index(b",") + 1) + 1 + node_len + len(b'"data":')
    return Columns(
        fragment[begin:data_end],
        tag_of(fragment, len(fragment), tag_len),
        node_of(fragment, 0, node_len),
        fragment[data_end + META_FIXED : meta_end] if meta_len else None,
        part.ts_at(index),
    )


def plan_moves(core: Core, slot: Slot, moved: DeadLettered, bytes_max: int, *, whole: bool) -> Plan | str | None:
    """What is to be staged: as much as the target has room for, or (`whole`) all of it; or why it takes nothing; or
    None when it is too early. Raises `NotCached`."""
    name = slot.config.dead_letter
    if name is None:
        return "the queue has no dead_letter topic any more"
    target = core.catalog.tip.get(name)
    try:
        if target is None:
            return _make(core, slot, name)
        if not target.visible:
            return None
        core._check_writable(target.shard, target)
        logged = Durability.EPHEMERAL not in (slot.config.durability, target.config.durability)
        if logged and not all(isinstance(one, StagedCopies) and one.source is slot for one in target.pending or ()):
            return None
        moves, batch = _copies(slot, moved, bytes_max)
        first, now = target.tip + 1, core.now()
        count = _fitting(core, target, payload_bytes(render(batch, first, now), first, now), whole)
        if count < len(moves):
            moves, batch = _copies(slot, msgspec.structs.replace(moved, moves=moves[:count]), bytes_max)
    except TopicsError as error:
        return f"the dead_letter topic takes nothing: {error.message}"
    return Plan(target, msgspec.structs.replace(moved, moves=moves), batch)


def _fitting(core: Core, target: Slot, sizes: list[int], whole: bool) -> int:
    """How many of the first copies the target takes; raises why it does not take even one, or (`whole`) all."""
    try:
        core._check_fits(target.config, sizes, target)
        return len(sizes)
    except TopicsError:
        if whole:
            raise
    core._check_fits(target.config, sizes[:1], target)
    fits, too_many = 1, len(sizes)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        try:
            core._check_fits(target.config, sizes[:middle], target)
            fits = middle
        except TopicsError:
            too_many = middle
    return fits


def being_made(core: Core, slot: Slot) -> bool:
    """Whether the queue's target is on its way: made, but not yet to be seen."""
    target = core.catalog.tip.get(slot.config.dead_letter or "")
    return target is not None and not target.visible


def _make(core: Core, slot: Slot, name: str) -> str | None:
    """Make the missing target; the move follows when it is there."""
    if name in core.catalog.closed_names:
        return "the dead_letter topic was dropped, and its auto_create was false; create it"
    config = configured(name, None, dead_letter_config(slot.config))
    core._check_new_topic(name)
    if core._room(core.catalog.shard_of(core._next_id()), ROOM_SLACK):
        core._create(name, config, None)
    return None


def _copies(slot: Slot, moved: DeadLettered, bytes_max: int) -> tuple[tuple[Move, ...], Batch]:
    """The first moves that fit, and the records of their copies."""
    topic = slot.topic
    batch = Batch([], tags=[], nodes=[], metas=[])
    assert batch.tags is not None
    assert batch.nodes is not None
    assert batch.metas is not None
    size = 0
    moves: list[Move] = []
    for move in moved.moves:
        record = columns_of(topic, move.seq)
        try:
            meta = dead_letter_meta(record.meta, topic.name, move, record.ts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Half a surrogate pair in it, or the like: the rest of the job is worth more than this.
            meta = dead_letter_meta(None, topic.name, move, record.ts)
        size += len(record.data) + len(meta)
        if moves and size > bytes_max:
            break
        moves.append(move)
        batch.datas.append(record.data)
        batch.tags.append(record.tag)
        batch.nodes.append(record.node)
        batch.metas.append(meta)
    if not any(tag is not None for tag in batch.tags):
        batch.tags = None
    if not any(node is not None for node in batch.nodes):
        batch.nodes = None
    return tuple(moves), batch


def stage_move(
    core: Core, slot: Slot, plan: Plan, ticket: Ticket[Any] | None, answer: Callable[[], Any] | None
) -> bool:
    """Stage a move; False when the log has no room for it now."""
    host, target, moved = slot.host, plan.target, plan.moved
    assert host is not None, "only queues have dead letters"
    seqs = [move.seq for move in moved.moves]
    if Durability.EPHEMERAL in (slot.config.durability, target.config.durability):
        return _stage_apart(core, slot, plan, seqs, ticket, answer)
    now, first = core.now(), target.tip + 1
    rendered = render(plan.batch, first, now)
    size = sum(payload_bytes(rendered, first, now))
    flags, copied = encode_append_body(None, b"", rendered)
    body = encode_dead_letter_body(DeadLetterBody(target=target.topic.id, first_seq=first, seqs=seqs), (copied,))
    if not core._room(slot.shard, sum(map(len, body)), control=False):
        return False
    end = core.wal.stage(slot.shard, FrameType.DEAD_LETTER, flags, len(seqs), slot.topic.id, first, now, body)
    place = (slot.shard, core.wal.shards[slot.shard].last_lsn)
    copies = StagedCopies(target, slot, place, first, rendered, now, size)
    host.queue.stage(moved)
    host.moving += 1
    core.commit.add(StagedMove(slot, ticket, moved, ranges_of(seqs), answer, copies, core.commit.show), end, sync=True)
    target.queue(copies)
    target.tip += len(seqs)
    target.logged = target.tip
    target.staged_records += len(seqs)
    target.staged_bytes += size
    core.catalog.bytes_staged += size
    target.last_write_ms = now
    return True


def _stage_apart(
    core: Core,
    slot: Slot,
    plan: Plan,
    seqs: list[int],
    ticket: Ticket[Any] | None,
    answer: Callable[[], Any] | None,
) -> bool:
    """A move between two topics one of which is ephemeral: a write and a delete. A crash takes the ephemeral half."""
    host = slot.host
    assert host is not None, "only queues have dead letters"
    ranges = ranges_of(seqs)
    logged = ranges
    if slot.config.durability is Durability.EPHEMERAL:
        logged = [(first, min(last, slot.logged)) for first, last in ranges if first <= slot.logged]
    body = encode_control_body(DeleteBody(ranges=logged, moved=True))
    payload = sum(map(len, plan.batch.datas)) + sum(len(meta or b"") for meta in plan.batch.metas or ())
    if not core._room(slot.shard, len(body) + payload + 64 * len(seqs) + ROOM_SLACK, control=True):
        return False
    if not core._append_to(plan.target, Ticket(), plan.batch, None, False, False):
        return False
    host.queue.stage(plan.moved)
    host.moving += 1
    change = StagedTake(slot, ticket, plan.moved, ranges, answer)
    if not logged:
        core.commit.add_free(change)
        return True
    end = core.wal.stage(slot.shard, FrameType.DELETE, 0, 0, slot.topic.id, 0, core.now(), body)
    core.commit.add(change, end, sync=slot.config.durability is Durability.FSYNC)
    return True
