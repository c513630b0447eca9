"""What happened to one record: written when and where, gone when and by what.

The log is replayed as a start would, with an eye on one seq of one name: whenever a frame of its topic was applied, it
is asked whether the record can still be read. So a record that a cap evicted is explained by the very write that pushed
it out, and one that was deleted by its Delete, each with its time, file and offset. What lies below a snapshot is only
known by what is left of it: the reason stands, the moment does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from engine.clock import Clock
from engine.core.replay import Replay
from engine.formats.frame import HEADER_LEN, FrameType
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.segment.reader import SegmentFiles
from engine.store.recovery import CorruptionGap, Frame, OpenedStore, open_store
from engine.topic.block import DERIVED
from engine.topic.floor import WHY
from engine.topic.state import Topic
from engine.types import Reason, WhyGone

LIVE: Final = "live"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to the record, or to its topic."""

    what: str
    ts: int | None = None
    """Engine time; None: not known any more."""
    file: str = ""
    offset: int | None = None


class Explanation(msgspec.Struct, kw_only=True):
    """The story of one seq of one name."""

    topic: str
    seq: int
    state: str
    """`live`, `topic_not_found`, or why it is gone, as `GET …/records/{seq}` says it."""
    reason: str | None = None
    """Of a loss: cap, ttl, crash, corruption…"""
    file: str = ""
    """Where its bytes lie, of a live record."""
    offset: int | None = None
    length: int | None = None
    cold: bool = False
    """The file lies in the cold tier."""
    events: list[Event] = []


class Watching(Replay):
    """A replay that notes what happens to one record."""

    def __init__(self, opened: OpenedStore, settings: EngineSettings, name: str, seq: int) -> None:
        super().__init__(opened, settings)
        self.events: list[Event] = []
        self._name = name
        self._seq = seq
        self._began = False
        self._topic_id = 0
        self._state = WhyGone.NEVER_WRITTEN.value
        for kind, handler in list(self._handlers.items()):
            self._handlers[kind] = self._watched(handler)

    def _watched(self, handler: Callable[[Frame], None]) -> Callable[[Frame], None]:
        def handle(frame: Frame) -> None:
            self.begin()
            handler(frame)
            if frame.type == FrameType.CREATE and self._is_ours(frame):
                self._topic_id = frame.topic_id
                self._state = WhyGone.NEVER_WRITTEN.value
                self._note(frame, "the topic was created")
            elif frame.type == FrameType.ATTACH and self._is_ours(frame):
                self._topic_id = frame.topic_id
                self._state = state_of(self.catalog.by_id[frame.topic_id].topic, self._seq, None)[0]
                self._note(frame, f"the topic came from another store: {self._state}")
            elif frame.topic_id and frame.topic_id == self._topic_id:
                self._look(frame)

        return handle

    def _is_ours(self, frame: Frame) -> bool:
        slot = self.catalog.by_id.get(frame.topic_id)
        return slot is not None and slot.name == self._name

    def begin(self) -> None:
        """Look at what a snapshot has put back, before the first frame behind it."""
        if self._began:
            return
        self._began = True
        slot = self.catalog.visible.get(self._name)
        if slot is not None:
            self._topic_id = slot.topic.id
            self._state = state_of(slot.topic, self._seq, None)[0]
            self.events.append(Event(what=f"in the snapshot that a start begins from: {self._state}"))

    def _look(self, frame: Frame) -> None:
        """See what a frame of the topic has done to the record."""
        slot = self.catalog.by_id.get(self._topic_id)
        if slot is None:
            self._note(frame, "the topic was dropped")
            self._topic_id, self._state = 0, "topic_not_found"
            return
        state, reason = state_of(slot.topic, self._seq, None)
        if state == self._state:
            return
        first, last = frame.first_seq, frame.first_seq + frame.count - 1
        if frame.type == FrameType.APPEND and first <= self._seq <= last:
            self._note(frame, f"written, with seqs {first}-{last}")
            if state == LIVE:
                self._state = state
                return
        by = {
            FrameType.APPEND: f"by the write of seqs {first}-{last}",
            FrameType.DELETE: "by a delete",
            FrameType.CONFIG: "by a change of the configuration",
            FrameType.GAP: "in a gap that was found",
        }.get(FrameType(frame.type), "")
        self._note(frame, f"{state}{f' ({reason})' if reason else ''} {by}".rstrip())
        self._state = state

    def _note(self, frame: Frame, what: str) -> None:
        file, offset = self.opened.where(frame.shard, frame.lsn)
        self.events.append(Event(what=what, ts=frame.ts, file=file, offset=offset))

    def _damaged(self, damage: CorruptionGap) -> None:
        super()._damaged(damage)
        if damage.topic_id == self._topic_id and damage.first_seq <= self._seq <= damage.last_seq:
            what = f"lost: the write of seqs {damage.first_seq}-{damage.last_seq} does not check"
            self.events.append(Event(what=what, ts=damage.ts, file=damage.path, offset=damage.offset))
            self._state = WhyGone.LOST.value


def state_of(topic: Topic, seq: int, now_ms: int | None) -> tuple[str, str | None]:
    """`LIVE`, or why a record is gone, and the reason of its loss; at `now_ms` if age is to count."""
    if seq < 1 or seq > topic.head:
        return WhyGone.NEVER_WRITTEN.value, None
    if seq < topic.floor.seq:
        reason = topic.floor.reason(seq)
        return WHY[reason].value, reason.value
    gap = topic.gaps.holding(seq)
    if gap is not None:
        return WHY[gap.reason].value, gap.reason.value
    if seq < topic.earliest_seq or seq in topic.deleted:
        return WhyGone.DELETED.value, None
    if now_ms is not None and topic.config.ttl_ms and seq < topic.at(now_ms).earliest_seq:
        return WhyGone.EXPIRED.value, Reason.TTL.value
    return LIVE, None


def explain(
    fs: Fs,
    clock: Clock,
    name: str,
    seq: int,
    heard: Callable[[float], None],
    settings: EngineSettings | None = None,
) -> Explanation:
    """The story of a record. Raises the `StoreError`s of a start."""
    settings = settings if settings is not None else EngineSettings()
    opened = open_store(fs, clock, settings, make=False)
    try:
        replay = Watching(opened, settings, name, seq)
        replay.run(heard)
        replay.begin()
        now = opened.engine_time(replay.last_ts).advance()
        replay.conclude(now)
        slot = replay.catalog.visible.get(name)
        if slot is None:
            return Explanation(topic=name, seq=seq, state="topic_not_found", events=replay.events)
        state, reason = state_of(slot.topic, seq, now)
        found = Explanation(topic=name, seq=seq, state=state, reason=reason, events=replay.events)
        if state == LIVE:
            _locate(found, fs, opened, slot.topic)
        return found
    finally:
        opened.close()


def _locate(found: Explanation, fs: Fs, opened: OpenedStore, topic: Topic) -> None:
    """Where the bytes of a live record lie."""
    block = topic.tail.block_of(found.seq)
    assert block is not None, "what is live lies in a block"
    if (segment := block.segment) is not None:
        row = found.seq - segment.first_seq
        with SegmentFiles(fs, opened.store_id) as files:
            bounds = files.rows(segment, 0, row + 1).bounds
        found.file, found.offset = segment.data_path, segment.data_offset + bounds[row]
        found.length, found.cold = bounds[row + 1] - bounds[row] - 1, segment.cold
        return
    if block.shard == DERIVED:
        return  # the log has the record that it is a copy of
    part, index = topic.tail.at(block, found.seq - block.first_seq)
    fragment = part.fragment(index)
    lsn, _, _ = block.frame_of(found.seq - block.first_seq)
    header, body = opened.read_body(block.shard, lsn)
    file, offset = opened.where(block.shard, lsn)
    found.file, found.length = file, len(fragment)
    found.offset = offset + HEADER_LEN + body.rindex(fragment, 0, header.body_len)
