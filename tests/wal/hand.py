"""Driving the log by hand, as the core does, on any `Fs`: what the tests of wal and store share."""

from __future__ import annotations

from engine.commands import Batch
from engine.formats.append import decode_append_body, encode_append_body
from engine.formats.control import CreateBody, encode_control_body
from engine.formats.frame import FrameType
from engine.fragment import render
from engine.fs import Fs
from engine.limits import KIB, EngineSettings, OnCorruption
from engine.store.recovery import CorruptionGap, Hole, Item, OpenedStore, open_store
from engine.types import TopicConfig
from engine.wal.wal import Wal
from tests.sim.clock import ManualClock

TS = 1_748_450_000_000


def settings(
    *,
    shards: int = 1,
    file_kib: int = 64,
    fill_kib: int = 16,
    reserve_kib: int = 8,
    disk_reserve: int = 0,
    on_corruption: OnCorruption = OnCorruption.ISOLATE,
) -> EngineSettings:
    """Small files, so that a test meets their ends."""
    return EngineSettings(
        wal_shards=shards,
        wal_file_bytes=file_kib * KIB,
        wal_fill_bytes=fill_kib * KIB,
        wal_reserve_bytes=reserve_kib * KIB,
        disk_reserve_bytes=disk_reserve,
        on_corruption=on_corruption,
    )


class Hand:
    """An open log: topics are ids, records are JSON strings."""

    def __init__(self, fs: Fs, config: EngineSettings | None = None, *, live: bool = True) -> None:
        self.fs = fs
        self.settings = config if config is not None else settings()
        self.opened: OpenedStore = open_store(fs, ManualClock(), self.settings, pid=7)
        self.items = list(self.opened.frames())
        self.opened.execute()
        self.wal: Wal = self.opened.wal
        if live:
            self.opened.go_live()
        self.seqs: dict[int, int] = {}
        for item in self.items:
            if isinstance(item, Hole):
                continue
            if isinstance(item, CorruptionGap):
                self.seqs[item.topic_id] = item.last_seq
            elif item.type == FrameType.APPEND:
                self.seqs[item.topic_id] = item.first_seq + item.count - 1
        self.now_ms = 0

    def make_room(self, shard: int, body_len: int, control: bool = False) -> bool:
        """Run chores until there is room; False when the disk has none to give."""
        while not self.wal.room(shard, body_len, control):
            if not self.chore():
                return False
        return True

    def chore(self) -> bool:
        """Run the next chore; False when there is none."""
        chore = self.wal.next_chore(self.now_ms)
        if chore is None:
            return False
        error = None
        try:
            chore.run(self.fs)
        except OSError as raised:
            error = raised
        self.wal.chore_done(chore, error)
        return True

    def stage(self, topic: int, *values: object, shard: int = 0) -> int | None:
        """Stage one batch; the frame's lsn, or None without room."""
        first = self.seqs.get(topic, 0) + 1
        flags, body = encode_append_body(None, b"", render(Batch.of(list(values)), first, TS))
        if not self.make_room(shard, len(body)):
            return None
        self.seqs[topic] = first + len(values) - 1
        self.wal.stage(shard, FrameType.APPEND, flags, len(values), topic, first, TS, body)
        return self.wal.shards[shard].last_lsn

    def create(self, topic: int, name: str, shard: int = 0) -> None:
        """Stage a Create."""
        body = encode_control_body(CreateBody(name=name, epoch=topic, config=TopicConfig()))
        assert self.make_room(shard, len(body), True)
        self.wal.stage(shard, FrameType.CREATE, 0, 0, topic, 0, TS, body)

    def write(self) -> None:
        """One tick."""
        for group in self.wal.take_groups():
            error = None
            try:
                group.run(self.fs)
            except OSError as raised:
                error = raised
            self.wal.group_done(group, error)

    def sync(self, shard: int = 0) -> bool:
        """One sync; False when there was nothing to sync."""
        job = self.wal.begin_sync(shard)
        if job is None:
            return False
        error = None
        try:
            job.run(self.fs)
        except OSError as raised:
            error = raised
        self.wal.sync_done(job, error)
        return True

    def append(self, topic: int, *values: object, shard: int = 0, sync: bool = False) -> int | None:
        """One batch, written; synced if wanted."""
        lsn = self.stage(topic, *values, shard=shard)
        self.write()
        if sync:
            self.sync(shard)
        return lsn

    def stop(self) -> bool:
        """In good order."""
        for shard in range(len(self.wal.shards)):
            self.sync(shard)
        return self.opened.stop()


def values_of(items: list[Item], topic: int) -> list[bytes | str]:
    """The records of a topic, `"gap"` for each one that is gone."""
    found: list[bytes | str] = []
    for item in items:
        if item.topic_id != topic or isinstance(item, Hole):
            continue
        if isinstance(item, CorruptionGap):
            found += ["gap"] * (item.last_seq - item.first_seq + 1)
        elif item.type == FrameType.APPEND:
            rendered = decode_append_body(item.flags, item.count, item.body).rendered
            start = 0
            for stride in rendered.strides:
                fragment = rendered.fragments[start : start + stride - 1]
                found.append(fragment[fragment.index(b'"data":') + 7 : -1])
                start += stride
    return found
