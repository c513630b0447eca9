"""All topics by name: as decisions see them (the tip), and as readers do (what is visible).

A Create or a Drop moves the tip at once and what is visible when it is synced. Also here: the last id and the highest
epoch, so that no two incarnations of a name share one, and the names that a write must not create.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from itertools import islice
from typing import Final

import xxhash

from engine.core.census import Census
from engine.core.slot import Slot
from engine.errors import topic_not_found
from engine.routers.roster import Roster
from engine.topic.cache import Cache
from engine.topic.idempotency import Keys
from engine.topic.state import Topic
from engine.types import TopicConfig

AGING_TOPICS_PER_CALL: Final = 256
"""Topics whose memory is tended in one call, so that a hundred thousand of them never hold the loop."""

CONFIGS_KEPT: Final = 1024
"""Different configurations that are remembered in order to be shared."""


class Catalog:
    """The topics of one store."""

    def __init__(self, shards: int, cache: Cache) -> None:
        self.shards = shards
        self.cache = cache
        """The payloads that all topics hold in memory."""
        self.keys = Keys()
        """The idempotency keys of all topics."""
        self.routers = Roster()
        """The routers between them."""
        self.tip: dict[str, Slot] = {}
        self.visible: dict[str, Slot] = {}
        self.by_id: dict[int, Slot] = {}
        self.names: list[str] = []
        """Visible names, sorted."""
        self.last_id = 0
        """The last number that was given to a topic or a router."""
        self.last_epoch = 0
        """The highest epoch that a topic here ever had."""
        self.closed_names: set[str] = set()
        """Dropped names whose last configuration said `auto_create: false`, or that have moved to another store."""
        self.attached: set[str] = set()
        """Offers of other stores that were taken (`engine.formats.moving`)."""
        self._configs: dict[TopicConfig, TopicConfig] = {}
        self._aging: dict[Slot, None] = {}
        """Topics with a `ttl_ms`, in the order in which their memory is tended."""
        self.census = Census()
        self.records_live = 0
        self.bytes_live = 0
        self.bytes_staged = 0
        """What the writes that are staged will add; counted where a bound on bytes needs it."""

    def shard_of(self, topic_id: int) -> int:
        """The shard that a topic lives on (storage.md §3)."""
        if self.shards == 1:
            return 0
        return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % self.shards

    def add_tip(self, name: str, topic_id: int, epoch: int, config: TopicConfig) -> Slot:
        """A new topic that decisions see from now on."""
        slot = Slot(Topic(topic_id, name, epoch, self.shared(config), self.cache, self.keys), self.shard_of(topic_id))
        self.tip[name] = slot
        self.by_id[topic_id] = slot
        self.last_id = max(self.last_id, topic_id)
        self.last_epoch = max(self.last_epoch, epoch)
        self.closed_names.discard(name)
        return slot

    def put_back(self, name: str, topic_id: int, epoch: int, config: TopicConfig) -> Slot:
        """A topic out of a snapshot, which decisions and readers see: `add_tip` and `show` for a hundred thousand.

        Called on an empty catalog, in the order of the names; `config` is one that `shared` gave.
        """
        slot = Slot(Topic(topic_id, name, epoch, config, self.cache, self.keys), self.shard_of(topic_id))
        slot.visible = True
        self.tip[name] = self.visible[name] = self.by_id[topic_id] = slot
        self.names.append(name)
        if config.ttl_ms:
            self._aging[slot] = None
        return slot

    def shared(self, config: TopicConfig) -> TopicConfig:
        """The one object for equal configurations: most topics have the same, and it is a fifth of their size."""
        if len(self._configs) >= CONFIGS_KEPT:
            self._configs.clear()
        return self._configs.setdefault(config, config)

    def drop_tip(self, slot: Slot) -> None:
        """The name is free for decisions from now on."""
        slot.dropped = True
        if self.tip.get(slot.name) is slot:
            del self.tip[slot.name]
        if slot.config.auto_create and slot.moved is None:
            self.closed_names.discard(slot.name)
        else:
            self.closed_names.add(slot.name)

    def show(self, slot: Slot) -> None:
        """Readers see the topic from now on, in place of an older one of the same name.

        A newer one of the same name, on another shard, may be visible already: it stays.
        """
        current = self.visible.get(slot.name)
        if current is not None and current.topic.id > slot.topic.id:
            return
        if current is not None:
            self.census.leave(current)
        slot.visible = True
        self.census.enter(slot)
        self.tend(slot)
        if slot.name not in self.visible:
            insort(self.names, slot.name)
        self.visible[slot.name] = slot

    def hide(self, slot: Slot) -> None:
        """Readers do not see the topic any more."""
        slot.visible = False
        self.by_id.pop(slot.topic.id, None)
        if self.visible.get(slot.name) is slot:
            self.census.leave(slot)
            del self.visible[slot.name]
            del self.names[bisect_left(self.names, slot.name)]

    def change(self, slot: Slot, apply: Callable[[], object]) -> None:
        """Apply what may change the class of a topic, or what is known of its damage."""
        seen = self.visible.get(slot.name) is slot
        if seen:
            self.census.leave(slot)
        apply()
        if seen:
            self.census.enter(slot)

    def tend(self, slot: Slot) -> None:
        """Look after the memory of a topic whose records age, or no more."""
        if slot.topic.config.ttl_ms:
            self._aging[slot] = None
        else:
            self._aging.pop(slot, None)

    def expire_some(self, now_ms: int) -> None:
        """Forget expired records of topics that nobody may ever write to again; the readers' view needs no help."""
        for slot in list(islice(self._aging, AGING_TOPICS_PER_CALL)):
            del self._aging[slot]
            if not slot.visible:
                continue
            self._aging[slot] = None
            if not slot.pending:
                records, size = slot.topic.count, slot.topic.bytes
                slot.topic.expire(now_ms)
                self.records_live += slot.topic.count - records
                self.bytes_live += slot.topic.bytes - size

    def freed(self, slot: Slot) -> None:
        """A topic may take more than before: its routers try again."""
        if not self.routers.by_name:
            return
        for router in self.routers.of_dest(slot.topic.id):
            source = self.by_id.get(router.source)
            if router.blocked is not None and source is not None and source.outlets is not None:
                source.outlets.note()

    def reader(self, name: str) -> Slot:
        """The topic that a reader means, or 404."""
        slot = self.visible.get(name)
        if slot is None:
            raise topic_not_found(name)
        return slot

    def count(self, prefix: str) -> int:
        """How many visible topics there are whose names begin with `prefix`."""
        # No name holds the sign behind the last one of ASCII, so it stands behind all that may follow the prefix.
        return bisect_left(self.names, prefix + "\x7f") - bisect_left(self.names, prefix)

    def page(self, prefix: str, size: int, after: str) -> tuple[list[Slot], bool]:
        """Up to `size` visible topics after a name, and whether there are more."""
        start = max(bisect_left(self.names, prefix), bisect_right(self.names, after) if after else 0)
        chosen: list[Slot] = []
        for name in self.names[start : start + size + 1]:
            if not name.startswith(prefix):
                break
            chosen.append(self.visible[name])
        return chosen[:size], len(chosen) > size
