"""A new store from everything of an old one that could be read: same topics, ids, epochs, seqs, times and deletions.

    topics as a start would have them ─► segments and tails ─► one snapshot ─► an empty log ─► STORE
                                         (records copied       (number 1)                     (last: without it
                                         as they are)                                          there is no store)

The new store has an id of its own, so that no file of the old one can ever pass for one of its files. What is not live
is not copied; why it is not there (deleted, evicted, lost) is in the snapshot, as it was. Records are read back through
the checks that they were written with, so what cannot be proven good does not get in: it becomes a `corruption` gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from xxhash import xxh3_128_digest

from engine.checkpoint.jobs import Copy, SnapshotJob
from engine.checkpoint.plan import SEAL_BYTES_MIN, Group, has_own_files, to_tails
from engine.checkpoint.sources import Readers, source_of
from engine.clock import Clock
from engine.core.images import Captured, note_places
from engine.core.replay import Replay
from engine.core.slot import Slot
from engine.errors import StoreDamaged, StoreIOError
from engine.formats.frame import seed_of
from engine.formats.header import FORMAT_VERSION
from engine.formats.manifest import (
    LOCK_PATH,
    MANIFEST_PATH,
    STORE_PATH,
    LockInfo,
    LockState,
    Manifest,
    StoreInfo,
    encode_meta,
)
from engine.formats.snapshot import META_DIR, Globals, SegmentEntry, ShardCut, TopicImage
from engine.fs import Fs, replace_file
from engine.limits import EngineSettings
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.segment.tiers import ColdError, ColdMissingError
from engine.segment.write import TailsWriter, write_deletes, write_segment
from engine.store.init import BEHIND_SNAPSHOT, QUARANTINE_DIR, add_shard
from engine.store.init import entry_of as shard_entry
from engine.store.snapshots import entry_of
from engine.tools.finding import Finding
from engine.tools.segment_check import check_segment, cold_finding
from engine.topic.block import NOT_LOGGED
from engine.topic.image import dump
from engine.topic.state import Topic
from engine.types import Reason
from engine.wal.chain import WAL_DIR, LogFile

NUMBER: Final = 1
"""Of the one checkpoint that a new store begins with."""


class BadRows(NamedTuple):
    """Records of a segment that do not check."""

    topic: str
    segment: Segment
    rows: list[tuple[int, int]]


class Proof:
    """The topics of a store, proven record by record: what does not check becomes a gap."""

    def __init__(
        self, fs: Fs, replay: Replay, now_ms: int, found: Callable[[Finding], None], heard: Callable[[float], None]
    ) -> None:
        self.bad: list[BadRows] = []
        self._fs = fs
        self._replay = replay
        self._now_ms = now_ms
        self._found = found
        self._heard = heard

    def run(self, wanted: Callable[[str], bool]) -> None:
        """Read every payload of the topics that are wanted. Raises `OSError`."""
        slots = [slot for slot in self._replay.catalog.by_id.values() if wanted(slot.name)]
        whole = max(sum(_sealed_bytes(slot.topic) for slot in slots), 1)
        done = 0

        def heard(length: int) -> None:
            nonlocal done
            done += length
            self._heard(done / whole)

        with SegmentFiles(self._fs, self._replay.opened.store_id) as files:
            for slot in slots:
                segments = [block.segment for block in slot.topic.tail.blocks if block.segment is not None]
                for segment in segments:
                    try:
                        rows = check_segment(self._fs, files, segment, slot.name, self._found, heard)
                    except ColdMissingError as error:
                        self._found(cold_finding(segment, slot.name, error))
                        rows = [(0, segment.count - 1)]
                        segment.bad = rows
                    except ColdError as error:
                        # It may be there tomorrow: what is in it must not be taken for lost.
                        raise StoreIOError(f"topic {slot.name!r}, {segment.data_path}: {error.strerror}") from error
                    if rows:
                        self.bad.append(BadRows(slot.name, segment, rows))
                        self._lose(slot.topic, segment, rows)

    def _lose(self, topic: Topic, segment: Segment, rows: list[tuple[int, int]]) -> None:
        for first, last in rows:
            runs = list(topic.live_runs(segment.first_seq + first, segment.first_seq + last))
            for start, stop in runs:
                topic.apply_gap(start, stop, Reason.CORRUPTION, self._now_ms)


def _sealed_bytes(topic: Topic) -> int:
    return sum(block.segment.data_len for block in topic.tail.blocks if block.segment is not None)


class Rebuild:
    """One new store being written."""

    def __init__(
        self,
        source: Fs,
        replay: Replay,
        target: Fs,
        clock: Clock,
        settings: EngineSettings,
        heard: Callable[[float], None],
    ) -> None:
        """`source` is where `replay` has read from; `target` an empty directory."""
        self.records = 0
        self.bytes = 0
        self.segments = 0
        self._replay = replay
        self._target = target
        self._settings = settings
        self._heard = heard
        self._now_ms = clock.wall_ms()
        opened = replay.opened
        logs: dict[int, list[LogFile]] = {}
        for piece in opened.pieces:
            logs.setdefault(piece.file.shard, []).append(piece.file)
        self._readers = Readers(source, opened.store_id, seed_of(opened.store_id), logs)
        seed = f"{opened.store_id.hex()} {target.boot_id()} {clock.boot_ns()} {self._now_ms}"
        self.store_id = xxh3_128_digest(seed.encode())

    def run(self, wanted: Callable[[str], bool]) -> None:
        """Write everything. Raises `OSError`: then there is no store, only files."""
        fs = self._target
        for directory in (WAL_DIR, META_DIR, QUARANTINE_DIR):
            fs.mkdir(directory)
        fs.fsync_dir("")
        slots = [slot for slot in self._replay.catalog.by_id.values() if slot.visible and wanted(slot.name)]
        whole = max(sum(slot.topic.bytes for slot in slots), 1)
        captured = []
        writer = TailsWriter(fs, self.store_id, self._now_ms, NUMBER)
        try:
            for slot in slots:
                captured.append(self._topic(slot, writer))
                self._heard(self.bytes / whole)
            if any(entry.offset for found in captured for entry in found.image.segments):
                writer.finish()
            else:
                writer.abandon()
        finally:
            self._readers.close()
        globals_ = self._globals(wanted)
        SnapshotJob(captured, [], globals_, lambda _: self._readers, self.store_id).run(fs)
        self._finish()

    def _topic(self, slot: Slot, writer: TailsWriter) -> Captured:
        topic = slot.topic
        if topic.tail.blocks and topic.tail.blocks[-1].open:
            topic.tail.blocks[-1].close()
        entries: list[SegmentEntry] = []
        spans: list[tuple[int, int]] = []
        for group in self._groups(topic):
            copy = Copy(topic, group.blocks, [source_of(topic, block) for block in group.blocks])
            built = copy.build(self._readers)
            if built is None:
                if copy.why is not None:
                    raise StoreDamaged(f"topic {topic.name!r}: {copy.why}")
                continue
            live, size = sum(block.live for block in group.blocks), sum(block.live_bytes for block in group.blocks)
            if self._is_segment(group):
                segment = write_segment(self._target, self.store_id, self._now_ms, NUMBER, built)
                self._delete_rows(topic, segment)
                spans.append((segment.first_seq, segment.last_seq))
            else:
                segment = writer.add(built)
            self.segments += 1
            self.records += live
            self.bytes += size
            entries.append(entry_of(segment, live, size, built.tag_set))
        image: TopicImage = dump(topic, 0, BEHIND_SNAPSHOT, spans)
        image.quiet = True
        image.reserved = slot.reserved
        image.move, image.moves = slot.moved, slot.moves
        image.segments = entries
        if slot.host is not None:
            image.queue = slot.host.queue.snapshot()
        note_places(image, slot, self._replay.catalog.routers)
        return Captured(image, topic.config, [], [], [])

    def _groups(self, topic: Topic) -> list[Group]:
        """Blocks with files of their own one by one, the others together as far as they fit."""
        blocks = [block for block in topic.tail.blocks if block.segment is not None or block.shard != NOT_LOGGED]
        groups = [Group([block]) for block in blocks if has_own_files(block)]
        groups += to_tails(blocks, self._settings, lambda _: True)
        return sorted(groups, key=_first_seq)

    def _is_segment(self, group: Group) -> bool:
        if has_own_files(group.blocks[0]):
            return True
        count = group.last_seq - group.first_seq + 1
        return count >= self._settings.segment_max_events or group.size >= SEAL_BYTES_MIN

    def _delete_rows(self, topic: Topic, segment: Segment) -> None:
        first = segment.first_seq
        rows = [(a - first, b - first) for a, b in topic.deleted.between(first, segment.last_seq)]
        if rows:
            segment.del_digest = write_deletes(self._target, self.store_id, self._now_ms, segment, 1, rows)
            segment.del_version = 1

    def _globals(self, wanted: Callable[[str], bool]) -> Globals:
        catalog = self._replay.catalog
        return Globals(
            number=NUMBER,
            created_ms=self._now_ms,
            last_ts=self._replay.last_ts,
            epoch=catalog.last_id,
            last_epoch=catalog.last_epoch,
            shards=1,
            closed_names=sorted(name for name in catalog.closed_names if wanted(name)),
            attached=sorted(catalog.attached),
            cuts=[ShardCut(shard=0, lsn=BEHIND_SNAPSHOT)],
        )

    def _finish(self) -> None:
        """The log and the three small files; STORE last."""
        fs = self._target
        log = add_shard(fs, 0, self.store_id, self._settings, self._now_ms, BEHIND_SNAPSHOT)
        manifest = Manifest(store_id=self.store_id.hex(), shards=[shard_entry(log, BEHIND_SNAPSHOT, BEHIND_SNAPSHOT)])
        replace_file(fs, MANIFEST_PATH, encode_meta(manifest))
        stopped = LockInfo(
            boot_id=fs.boot_id(),
            state=LockState.STOPPED,
            pid=0,
            started_ms=self._now_ms,
            offset_ms=self._replay.opened.time.offset_ms,
        )
        replace_file(fs, LOCK_PATH, encode_meta(stopped))
        store = StoreInfo(store_id=self.store_id.hex(), format=FORMAT_VERSION, created_ms=self._now_ms)
        replace_file(fs, STORE_PATH, encode_meta(store))


def _first_seq(group: Group) -> int:
    return group.first_seq
