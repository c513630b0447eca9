"""A topic's place in the commit pipeline.

`Topic` is what readers see. A `Slot` holds what is decided but not visible yet: the tip of the seqs, the staged
counts, the keys in flight, and how far the disk has got with this topic. Decisions look at the slot, readers at the
topic; the only way from one to the other is `Commit`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from engine.core.host import Host
from engine.formats.moving import MoveBody
from engine.routers.hops import Hops
from engine.routers.router import Outlets
from engine.topic.place import Place
from engine.topic.rangeset import RangeSet
from engine.topic.state import Topic
from engine.types import TopicConfig, TopicType

if TYPE_CHECKING:
    from engine.core.staged import Staged, StagedAppend


class Slot:
    """One topic between decision and visibility.

    tip                    the last seq that was given out
    config                 the configuration that the next decision goes by
    pending                what is staged and not applied, in order (None: nothing)
    staged_records/_bytes  what `pending` will add
    keys                   idempotency keys whose first write is not applied yet (None: none)
    visible, dropped       whether readers may see it; whether a Drop is staged or applied
    synced                 the tip that a completed sync covers; `syncing` the one that the running sync will
    dirty                  whether it is on its shard's list of topics with unsynced frames
    quiet, wake_lsn        storage.md §3: a quiet topic's first write, and what follows it, waits for `wake_lsn`
    reserved, reserve_lsn  ephemeral: seqs logged ahead, and the frame that logs them; up to `reserve_floor` an
                           earlier frame did that is on disk
    logged                 the last seq that the log holds a record or a gap for
    cursors                places of readers, as applied (None: none)
    host                   what makes a queue of it (None: it is a log)
    hops                   which of its records are copies (None: none ever was)
    outlets                the routers that copy it (None: none)
    moved                  on its way to another store, or there: it takes no changes (None: it is here)
    moves                  how often it was offered to one
    unlogged               seqs that were given out to ephemeral records since the start (None: none)
    """

    __slots__ = (
        "config",
        "cursors",
        "dirty",
        "dropped",
        "hops",
        "host",
        "keys",
        "last_write_ms",
        "logged",
        "moved",
        "moves",
        "outlets",
        "pending",
        "quiet",
        "reserve_floor",
        "reserve_lsn",
        "reserved",
        "shard",
        "staged_bytes",
        "staged_records",
        "synced",
        "syncing",
        "tip",
        "topic",
        "unlogged",
        "visible",
        "wake_lsn",
    )

    def __init__(self, topic: Topic, shard: int) -> None:
        self.topic = topic
        self.shard = shard
        self.tip: int = topic.head
        self.config: TopicConfig = topic.config
        self.pending: deque[Staged] | None = None
        self.staged_records = 0
        self.staged_bytes = 0
        self.keys: dict[bytes, StagedAppend] | None = None
        self.visible = False
        self.dropped = False
        self.synced: int = topic.head
        self.syncing: int = topic.head
        self.dirty = False
        self.quiet = False
        self.wake_lsn = 0
        self.reserved = 0
        self.reserve_lsn = 0
        self.reserve_floor = 0
        self.logged: int = topic.head
        self.unlogged: RangeSet | None = None
        self.last_write_ms = 0
        self.cursors: dict[str, Place] | None = None
        self.hops: Hops | None = None
        self.outlets: Outlets | None = None
        self.moved: MoveBody | None = None
        self.moves = 0
        self.host: Host | None = Host(topic) if topic.config.type is TopicType.QUEUE else None

    def queue(self, change: Staged) -> None:
        """Put a change behind the others that wait."""
        if self.pending is None:
            self.pending = deque()
        self.pending.append(change)

    def rest(self) -> None:
        """Nothing has happened for a while: an idle topic keeps no empty containers (they are a third of its size)."""
        if not self.pending:
            self.pending = None
        if not self.keys:
            self.keys = None

    @property
    def name(self) -> str:
        return self.topic.name
