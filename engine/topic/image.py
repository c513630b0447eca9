"""A topic as an image and back: all that it is but its records, which lie in segments (engine/formats/snapshot.py).

`dump` copies, so that the image stays what it was while the topic goes on; `load` is its opposite. A topic that was
loaded goes on exactly as the dumped one does. This is the one other place that knows how the parts of `Topic` are kept.

What the blocks of a topic count for is in their entries; the topic's own `count` and `bytes` are said beside them, so
that a reader of a snapshot can check one against the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.formats.snapshot import BadSnapshot, FloorImage, TopicImage
from engine.topic.floor import Floor
from engine.topic.gaps import Gaps
from engine.topic.ghosts import Ghosts
from engine.topic.idempotency import Used
from engine.topic.rangeset import RangeSet
from engine.topic.state import Topic


def dump(topic: Topic, shard: int, from_lsn: int, spans: Iterable[tuple[int, int]] = ()) -> TopicImage:
    """What the topic is now, without its records and without the deletions inside `spans` (segments that have .del
    files, as ascending ranges of seqs)."""
    image = TopicImage(
        id=topic.id,
        name=topic.name,
        epoch=topic.epoch,
        shard=shard,
        from_lsn=from_lsn,
        head=topic.head,
        earliest=topic.earliest_seq,
        count=topic.count,
        size=topic.bytes,
        last_write_ts=topic.last_write_ts,
    )
    floor = topic.floor
    if floor.seq > 1:
        image.floor = FloorImage(
            seq=floor.seq, last_ts=floor.last_ts, unknown_from=floor.unknown_from, ranges=floor.ranges()
        )
    if topic.gaps:
        image.gaps = [(gap.first, gap.last, gap.reason) for gap in topic.gaps]
    if topic._ghosts:
        image.ghosts = [(ghost.first, ghost.last, ghost.records, ghost.bytes) for ghost in topic._ghosts]
    if topic.lost:
        image.lost = list(topic.lost)
    if topic.deleted:
        image.deleted = outside(topic.deleted, spans)
    if topic.idempotency:
        image.keys = [
            (key, used.first_seq, used.count, used.digest, used.ts) for key, used in topic.idempotency.entries()
        ]
    return image


def load(topic: Topic, image: TopicImage, deleted: Sequence[tuple[int, int]] = ()) -> None:
    """Make a new topic what the image says, with the deletions that .del files add; its blocks are the caller's.

    Raises `BadSnapshot` for an image that no topic can have.
    """
    if not 1 <= image.earliest <= image.head + 1:
        raise BadSnapshot(f"topic {image.name!r} begins at {image.earliest} and ends at {image.head}")
    topic.head = image.head
    topic.earliest_seq = image.earliest
    topic.count = image.count
    topic.bytes = image.size
    topic.last_write_ts = image.last_write_ts
    if image.floor is not None:
        floor = image.floor
        topic._floor = Floor.of(floor.seq, floor.last_ts, floor.unknown_from, floor.ranges)
    if image.gaps:
        topic._gaps = Gaps.of(image.gaps)
    if image.ghosts:
        topic._ghosts = Ghosts.of(image.ghosts)
    if image.lost:
        topic.lost = tuple(image.lost)
    if image.deleted or deleted:
        ranges = RangeSet.of(sorted([*image.deleted, *deleted]))
        ranges.remove_below(image.earliest)
        topic.deleted = ranges
    for key, first_seq, count, digest, ts in image.keys:
        topic.idempotency.add(key, Used(first_seq, count, digest, ts))
        topic._ages = True


def outside(ranges: RangeSet, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a set that lie in none of the ascending spans."""
    found: list[tuple[int, int]] = []
    start = 0
    for first, last in spans:
        if start < first:
            found += ranges.between(start, first - 1)
        start = last + 1
    return [*found, *ranges.between(start, 1 << 64)]
