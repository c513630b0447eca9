"""What the log must know of topics whose records are not in it.

An ephemeral topic's records live in memory only, but its seqs must never mean another record: they are logged ahead in
blocks (Reserve), and a write waits only where its block is not synced yet. A topic may have turned ephemeral with
records in the log from before; when those go (by a cap, by the memory bound, by a delete), the log has to hear of it
too, or the next start would bring them back. What was ephemeral itself is a `crash` gap after any restart.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.commit import Commit
from engine.core.slot import Slot
from engine.core.staged import Staged
from engine.formats.control import ConfigBody, GapBody, ReserveBody, encode_control_body
from engine.formats.frame import FrameType
from engine.limits import SEQ_BLOCK
from engine.topic.rangeset import RangeSet
from engine.types import Durability, Reason, TopicConfig
from engine.wal.wal import Wal


class Ephemeral:
    """The log's side of ephemeral topics."""

    def __init__(self, wal: Wal, commit: Commit, room: Callable[[int, int], bool]) -> None:
        """`room(shard, body_len)` says whether a frame can be staged, or raises the 507."""
        self._wal = wal
        self._commit = commit
        self._room = room
        self.mixed: dict[Slot, int] = {}
        """Ephemeral topics with records in the log, and the floor that the log knows for them."""

    def reserve(self, slot: Slot, count: int) -> bool:
        """Log so many seqs ahead, unless they are; False when the log has no room for that yet."""
        if slot.tip + count + SEQ_BLOCK // 2 > slot.reserved:
            upto = slot.tip + count + SEQ_BLOCK
            body = encode_control_body(ReserveBody(upto=upto))
            if not self._room(slot.shard, len(body)):
                return False
            end = self._frame(slot, FrameType.RESERVE, body)
            if slot.reserve_lsn <= self._wal.shards[slot.shard].durable_lsn:
                slot.reserve_floor = slot.reserved
            slot.reserved, slot.reserve_lsn = upto, end
        return True

    def stage(self, slot: Slot, change: Staged, count: int) -> bool:
        """Queue records that have no frame; False when the log has no room to reserve their seqs yet."""
        if not self.reserve(slot, count):
            return False
        if slot.unlogged is None:
            slot.unlogged = RangeSet()
        slot.unlogged.add(slot.tip + 1, slot.tip + count)
        if slot.logged and slot not in self.mixed:
            self.mixed[slot] = slot.topic.floor.seq
        self._commit.add_free(change, slot.reserve_lsn if slot.tip + count > slot.reserve_floor else 0)
        return True

    def turns(self, slot: Slot, config: TopicConfig) -> bool:
        """A Config frame follows that may end the topic's being ephemeral; False when there is no room for both."""
        if slot.config.durability is not Durability.EPHEMERAL or config.durability is Durability.EPHEMERAL:
            return True
        body = encode_control_body(ReserveBody(upto=slot.tip))
        if not self._room(slot.shard, len(body) + len(encode_control_body(ConfigBody(config=config))) + 256):
            return False
        self._frame(slot, FrameType.RESERVE, body)
        slot.reserved = slot.reserve_floor = slot.reserve_lsn = 0
        return True

    def log_evictions(self) -> None:
        """Tell the log which of its records ephemeral ones have pushed out since it was last told."""
        for slot, known in list(self.mixed.items()):
            floor = slot.topic.floor.seq
            if slot.dropped or known > slot.logged:
                del self.mixed[slot]
            elif floor > known:
                body = encode_control_body(GapBody(first=known, last=min(floor - 1, slot.logged), reason=Reason.CAP))
                if self._wal.room(slot.shard, len(body), True):
                    self._frame(slot, FrameType.GAP, body)
                    self.mixed[slot] = floor

    def release(self) -> None:
        """At a stop: log where ephemeral topics really got to, so that the next start skips no seqs."""
        self.log_evictions()
        for slot in self._commit.catalog.by_id.values():
            body = encode_control_body(ReserveBody(upto=slot.tip))
            if slot.reserved and self._wal.room(slot.shard, len(body), True):
                self._frame(slot, FrameType.RESERVE, body)

    def _frame(self, slot: Slot, kind: FrameType, body: bytes) -> int:
        end = self._wal.stage(slot.shard, kind, 0, 0, slot.topic.id, 0, self._commit.now_ms, body)
        self._commit.note_frame(slot, wanted=True)
        return end
