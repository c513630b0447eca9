"""Taking a topic down for a snapshot, and putting it back: `TopicImage` ↔ `Topic` and `Slot`.

An image holds what is applied, and `from_lsn` says where the first change begins that is not: so image and log fit each
other exactly, whatever is staged, written or being synced at the moment. Changes are applied in the order of their
frames, hence everything below `from_lsn` is in the image and nothing above is.

Ephemeral records are in no log and in no image. What is taken down of a topic that has such records is what the log
knows: its seqs up to the last logged one, with a `crash` gap where ephemeral records lie before it, and behind them a
reservation, so that none of their seqs is ever given out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.checkpoint.plan import Group, has_own_files
from engine.core.catalog import Catalog
from engine.core.slot import Slot
from engine.formats.moving import MoveState
from engine.formats.snapshot import DroppedTopic, SegmentEntry, ShardCut, TopicImage
from engine.routers.hops import Hops
from engine.routers.roster import Roster
from engine.routers.router import Router
from engine.segment.segment import Segment
from engine.store.snapshots import entry_of
from engine.topic.block import NOT_LOGGED, Block
from engine.topic.image import dump, load
from engine.topic.place import Place
from engine.topic.rangeset import RangeSet
from engine.topic.state import Topic
from engine.types import Reason, TopicConfig
from engine.wal.shard import Shard


class Captured(NamedTuple):
    """One topic, taken down; nothing in it changes with the topic but the blocks."""

    image: TopicImage
    """Its `segments` still lack those that will hold the `loose` blocks."""
    config: TopicConfig
    loose: list[Block]
    """Closed blocks whose records lie in no segment yet."""
    live: list[tuple[int, int]]
    """How many records were live in each of them, and what they counted for."""
    deletes: list[tuple[Segment, SegmentEntry, list[tuple[int, int]]]]
    """Segments with files of their own in which rows were deleted that no .del file names: the entry is to name a new
    version, with these ranges of rows."""


def cut_of(shard: Shard) -> ShardCut:
    """Where a snapshot that begins now cuts the shard: no change that is not applied begins below.

    `end_lsn` is to be set again when the snapshot is written, when more of the log is known to be on disk.
    """
    return ShardCut(
        shard=shard.index,
        lsn=shard.cut_lsn,
        last_lsn=shard.durable_last,
        last_end=shard.durable_end,
        end_lsn=shard.durable_end,
    )


def from_lsn(slot: Slot, tip_lsn: int) -> int:
    """Where the first frame of the slot's pending changes begins; the tip of its shard when there is none."""
    for change in slot.pending or ():
        if change.end_lsn:
            return change.lsn
    return tip_lsn


def capture(slot: Slot, tip_lsn: int, roster: Roster, sealing: Sequence[Group] = ()) -> Captured | None:
    """Take a topic down, or None for one whose Create is not applied: the log says all of it.

    `tip_lsn` is the tip of its shard now. The log has to be on disk up to the image's `from_lsn` before a snapshot
    may name it. `sealing`: blocks that become segments with files of their own before it does.
    """
    if not slot.visible:
        return None
    topic = slot.topic
    blocks = topic.tail.blocks
    if blocks and blocks[-1].open:
        blocks[-1].close()
    spans = _spans(blocks, sealing)
    image = dump(topic, slot.shard, from_lsn(slot, tip_lsn), spans)
    image.quiet = slot.quiet
    image.reserved = slot.reserved
    image.moves = slot.moves
    if slot.moved is not None and slot.moved.state is not MoveState.LEAVING:
        image.move = slot.moved
    loose = [block for block in blocks if block.segment is None and block.shard != NOT_LOGGED]
    sealed = [block for block in blocks if block.segment is not None]
    if slot.unlogged:
        image = _as_logged(image, topic, slot.unlogged, slot.reserved, spans)
        loose = [block for block in loose if block.first_seq <= image.head]
        image.count = sum(block.live for block in (*sealed, *loose))
        image.size = sum(block.live_bytes for block in (*sealed, *loose))
    if slot.host is not None:
        image.queue = slot.host.queue.snapshot()
        slot.host.uncovered = False
    note_places(image, slot, roster)
    image.segments = [
        entry_of(block.segment, block.live, block.live_bytes, block.known_tags)
        for block in sealed
        if block.segment is not None
    ]
    live = [(block.live, block.live_bytes) for block in loose]
    return Captured(image, topic.config, loose, live, _deletes(topic, sealed, image.segments))


def _spans(blocks: Sequence[Block], sealing: Sequence[Group]) -> list[tuple[int, int]]:
    """From where to where segments reach whose .del files are going to say what was deleted, ascending."""
    inside = {id(block) for group in sealing for block in group.blocks}
    spans = [(block.first_seq, block.last_seq) for block in blocks if has_own_files(block) and id(block) not in inside]
    return sorted([*spans, *((group.first_seq, group.last_seq) for group in sealing)]) if sealing else spans


def note_places(image: TopicImage, slot: Slot, roster: Roster) -> None:
    """Put into an image who has a place in the topic: cursors, routers into it, and which records are copies."""
    image.routers = [router.body(router.spec) for router in roster.in_image(slot.topic.id)]
    if slot.hops is not None:
        # Of what is lost and not forwarded yet a pass still asks whether it is a loss of the dest's, too.
        needed = [router.cursor for router in roster.of_source(slot.topic.id)]
        image.hops = slot.hops.above(min([image.earliest - 1, *needed]))
    if slot.cursors:
        image.cursors = [(name, *place) for name, place in slot.cursors.items()]


def _deletes(
    topic: Topic, sealed: list[Block], entries: list[SegmentEntry]
) -> list[tuple[Segment, SegmentEntry, list[tuple[int, int]]]]:
    found = []
    for block, entry in zip(sealed, entries, strict=True):
        segment = block.segment
        if segment is not None and segment.deletes_dirty and not segment.in_tails:
            first = segment.first_seq
            rows = [(a - first, b - first) for a, b in topic.deleted.between(first, segment.last_seq)]
            found.append((segment, entry, rows))
    return found


def dropped_of(slot: Slot) -> DroppedTopic:
    """What a snapshot says of a topic that was dropped after its capture began."""
    return DroppedTopic(id=slot.topic.id, name=slot.name, closed=not slot.config.auto_create or slot.moved is not None)


def _as_logged(
    image: TopicImage, topic: Topic, unlogged: RangeSet, reserved: int, spans: list[tuple[int, int]]
) -> TopicImage:
    """The image without the records that only memory has."""
    head = image.head if image.head not in unlogged else unlogged.previous_not_in(image.head)
    quiet = image.quiet
    image.head, image.earliest = head, min(image.earliest, head + 1)
    image.deleted = [(first, min(last, head)) for first, last in image.deleted if first <= head]
    image.gaps = [gap for gap in image.gaps if gap[0] <= head]
    image.keys = [entry for entry in image.keys if entry[1] not in unlogged]
    floor = image.floor
    if floor is not None and floor.seq > head + 1:
        inside = [entry for entry in floor.ranges if entry[0] < head]
        beyond = next((entry for entry in floor.ranges if entry[0] >= head), None)
        floor.ranges = inside if beyond is None or head == 0 else [*inside, (head, beyond[1])]
        floor.seq = head + 1
        floor.unknown_from = floor.unknown_from if floor.unknown_from <= head else 0
        if not head:
            image.floor = None
    # What is live of ephemeral records before the last logged one is a gap after a restart.
    scratch = Topic(image.id, image.name, image.epoch, topic.config)
    load(scratch, image, topic.deleted.between(1, head))
    for first, last in unlogged.between(image.earliest, head):
        for start, stop in topic.live_runs(first, last):
            scratch.note_gap(start, stop, Reason.CRASH)
    image = dump(scratch, image.shard, image.from_lsn, spans)
    image.quiet = quiet
    image.reserved = max(reserved, unlogged.last if unlogged.last > head else 0)
    return image


def restore(
    catalog: Catalog,
    image: TopicImage,
    config: TopicConfig,
    blocks: list[Block],
    deleted: Sequence[tuple[int, int]] = (),
) -> Slot:
    """Put a topic back: `blocks` are its segments, `deleted` what their .del files say. Raises `BadSnapshot`.

    `config` is one that the catalog shares, and names come in their order (`Catalog.put_back`).
    """
    slot = catalog.put_back(image.name, image.id, image.epoch, config)
    fill(catalog, slot, image, blocks, deleted)
    return slot


def fill(
    catalog: Catalog, slot: Slot, image: TopicImage, blocks: list[Block], deleted: Sequence[tuple[int, int]] = ()
) -> None:
    """Make a new topic what its image says. Raises `BadSnapshot`."""
    load(slot.topic, image, deleted)
    if blocks:
        slot.topic.tail.adopt(blocks)
    slot.quiet = image.quiet
    slot.reserved = image.reserved
    slot.moved, slot.moves = image.move, image.moves
    if image.hops:
        slot.hops = Hops(image.hops)
    for body in image.routers:
        catalog.routers.add(Router.of(body, image.id))
    if image.cursors:
        slot.cursors = {name: Place(seq, ts) for name, seq, ts in image.cursors}
    if slot.host is not None:
        slot.host.restore(image.queue)
