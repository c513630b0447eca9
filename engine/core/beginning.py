"""From a snapshot to topics, and which frames of the log are in it already.

Every image stands at a position of its own (`from_lsn`), so replay asks here for each frame between the cut of a shard
and the last of these positions whether it is new to its topic. Frames of topics that are in no image, because they were
dropped while the snapshot was taken down or because a newer topic of the same name is, are passed over. What lies
behind all positions is new to everybody, and nobody asks any more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

from engine.core.catalog import Catalog
from engine.core.images import restore
from engine.core.slot import Slot
from engine.errors import StoreDamaged
from engine.formats.snapshot import BadSnapshot, DroppedTopic, TopicImage, snapshot_path
from engine.store.recovery import Item
from engine.store.snapshots import Restorable, segment_of
from engine.store.walk import NO_SETTING
from engine.tagset import TagSet
from engine.topic.block import Block
from engine.types import Reason, TopicConfig


class Beginning:
    """What replay begins with; without a snapshot that is nothing."""

    def __init__(self) -> None:
        self.last_ts = 0
        self._positions: dict[int, int] = {}
        """topic id → from_lsn × 256 + shard"""
        self._ends: dict[int, int] = {}
        """shard → the greatest from_lsn in it"""
        self._passed: dict[int, DroppedTopic] = {}
        """Topics whose frames are passed over."""

    def restore(self, catalog: Catalog, begin: Restorable) -> None:
        """Put every topic back. Raises `StoreDamaged` for a snapshot that checks and makes no sense."""
        globals_ = begin.snapshot.globals
        self._passed = {dropped.id: dropped for dropped in globals_.dropped}
        collects = gc.isenabled()
        gc.disable()  # what is made here stays, so looking for garbage in it would be a third of the time
        try:
            for section in begin.snapshot.sections:
                section.configs = [catalog.shared(config) for config in section.configs]
            for image, config in self._in_order(begin):
                if image.segments:
                    self._restore_records(catalog, begin, image, config)
                else:
                    _check_sum(image, ())
                    restore(catalog, image, config, [])
                self._positions[image.id] = image.from_lsn << 8 | image.shard
                if image.from_lsn > self._ends.get(image.shard, 0):
                    self._ends[image.shard] = image.from_lsn
        except BadSnapshot as error:
            raise StoreDamaged(
                f"{snapshot_path(globals_.number)} checks but makes no sense ({error}): a bug, or a newer version "
                f"wrote it. {NO_SETTING}"
            ) from error
        finally:
            if collects:
                gc.enable()
        catalog.last_id = globals_.epoch
        catalog.last_epoch = globals_.last_epoch
        catalog.closed_names.update(globals_.closed_names)
        catalog.attached.update(globals_.attached)
        self.last_ts = globals_.last_ts

    def _in_order(self, begin: Restorable) -> Iterator[tuple[TopicImage, TopicConfig]]:
        """The images that stand, by name: of two with one name the older one's Drop is behind the cut, or was lost."""
        last: tuple[TopicImage, TopicConfig] | None = None
        for entry in sorted(begin.snapshot.topics(), key=_name):
            if last is not None:
                if last[0].name == entry[0].name:
                    older, entry = (last, entry) if last[0].id < entry[0].id else (entry, last)
                    image, config = older
                    self._passed[image.id] = DroppedTopic(id=image.id, name=image.name, closed=not config.auto_create)
                elif last[0].id not in self._passed:
                    yield last
            last = entry
        if last is not None and last[0].id not in self._passed:
            yield last

    @staticmethod
    def _restore_records(catalog: Catalog, begin: Restorable, image: TopicImage, config: TopicConfig) -> None:
        """Put back a topic that has segments, some of which may be lost."""
        blocks: list[Block] = []
        lost: list[tuple[int, int]] = []
        for entry in image.segments:
            if begin.lost and (image.id, entry.first) in begin.lost:
                image.count -= entry.live
                image.size -= entry.size
                lost.append((entry.first, entry.first + entry.count - 1))
                # What it evicted stays evicted (engine/topic/ghosts.py).
                image.ghosts.append((entry.first, entry.first + entry.count - 1, entry.live, entry.size))
            else:
                tags = None if entry.tags is None else TagSet.unpacked(entry.tags)
                blocks.append(Block.sealed(segment_of(image, entry), entry.live, entry.size, tags))
        _check_sum(image, blocks)
        slot = restore(catalog, image, config, blocks, begin.deleted.get(image.id, ()))
        for first, last in lost:
            for start, stop in list(slot.topic.live_runs(max(first, slot.topic.earliest_seq), last)):
                slot.topic.note_gap(start, stop, Reason.CORRUPTION)
            if slot.host is not None:
                slot.host.lost(first, last)

    # -- what replay asks ------------------------------------------------------------------------------------------

    def covers(self, item: Item) -> bool:
        """Whether a topic's frame is in its image, or nobody's any more."""
        topic_id = item.topic_id
        if topic_id in self._passed:
            return True
        if item.lsn >= self._ends.get(item.shard, 0):
            return False
        return self.has_told(topic_id, item.shard, item.lsn)

    def has_told(self, topic_id: int, shard: int, lsn: int) -> bool:
        """Whether what the log says of a topic at a position is in its image."""
        position = self._positions.get(topic_id, 0)
        return lsn < position >> 8 and position & 0xFF == shard

    def dropped(self, topic_id: int) -> DroppedTopic | None:
        """What is known of a topic whose frames are passed over."""
        return self._passed.get(topic_id)

    def pass_over(self, topic_id: int, name: str, known: Slot) -> bool:
        """Whether a Create or Attach is of a topic that the `known` one of the same name, in an image, has followed."""
        if known.topic.id <= topic_id:
            return False
        self._passed[topic_id] = DroppedTopic(id=topic_id, name=name)
        return True


def _name(entry: tuple[TopicImage, TopicConfig]) -> str:
    return entry[0].name


def _check_sum(image: TopicImage, blocks: Sequence[Block]) -> None:
    """That the topic counts what its segments do."""
    if not blocks and not image.count and not image.size:
        return
    live, size = sum(block.live for block in blocks), sum(block.live_bytes for block in blocks)
    if (live, size) != (image.count, image.size):
        raise BadSnapshot(f"the segments of topic {image.name!r} do not add up to what it counts")
