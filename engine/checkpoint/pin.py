"""Export pins: a consistent set of a store's files, kept by hard links whatever happens to the store meanwhile.

    exports/<id>/   STORE LOCK meta/MANIFEST wal/…    made new: stopped in good order, with an empty log
                    meta/snapshot-<n>.snap            the last checkpoint's, of the chosen topics, in front of that log
                    meta/tails-… topics/…             links; what lies in the cold tier alone is listed
                    manifest.json                     last: the set is whole

So a pin is itself a store, as of its checkpoint: what checks, saves or explains a store works on it, and a copy is a
backup. Links are made in the keeper's thread, where checkpoints remove files too, so nothing vanishes meanwhile. Pins
do not outlive the process that made them, so nothing of them is synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from xxhash import xxh3_128_hexdigest

from engine.errors import StoreDamaged
from engine.formats.export import (
    EXPORT_FORMAT,
    EXPORTS_DIR,
    MANIFEST_NAME,
    ExportFile,
    ExportGap,
    ExportManifest,
    ExportPiece,
    ExportTopic,
    is_export_id,
    is_member,
)
from engine.formats.header import FORMAT_VERSION
from engine.formats.manifest import (
    LOCK_PATH,
    MANIFEST_PATH,
    STORE_PATH,
    BadMeta,
    LockInfo,
    LockState,
    Manifest,
    StoreInfo,
    decode_meta,
    encode_meta,
)
from engine.formats.segment import CHECK_LEN, INFO_LEN
from engine.formats.snapshot import META_DIR, Globals, ShardCut, TopicImage, encode_sections, snapshot_path
from engine.fs import Fs, OpenMode, Space, read_file, replace_file
from engine.limits import KIB, EngineSettings
from engine.segment.segment import TOPICS_DIR, Segment, topic_dir
from engine.segment.whose import read_deletes
from engine.store.init import BEHIND_SNAPSHOT, QUARANTINE_DIR, add_shard, entry_of
from engine.store.snapshots import read_snapshot, segment_of
from engine.topic.rangeset import RangeSet
from engine.types import Reason, TopicConfig
from engine.wal.chain import WAL_DIR

LOG_BYTES: Final = 16 * KIB
"""Of the empty log of a pin: nobody writes to it, and that of a store made of a copy grows as any other."""
FILES_MAX: Final = 10_000_000
"""Files that a manifest may list."""


class Below:
    """`Fs` for a directory below the root of another one."""

    def __init__(self, fs: Fs, prefix: str) -> None:
        self._fs = fs
        self._prefix = prefix
        self.close, self.pread, self.pwritev = fs.close, fs.pread, fs.pwritev
        self.pread_nowait, self.fdatasync, self.size = fs.pread_nowait, fs.fdatasync, fs.size
        self.allocate, self.truncate, self.boot_id = fs.allocate, fs.truncate, fs.boot_id

    def _at(self, path: str) -> str:
        return f"{self._prefix}/{path}" if path else self._prefix

    def open(self, path: str, mode: OpenMode) -> int:
        return self._fs.open(self._at(path), mode)

    def fsync_dir(self, path: str) -> None:
        self._fs.fsync_dir(self._at(path))

    def rename(self, source: str, target: str) -> None:
        self._fs.rename(self._at(source), self._at(target))

    def link(self, source: str, target: str) -> None:
        self._fs.link(self._at(source), self._at(target))

    def unlink(self, path: str) -> None:
        self._fs.unlink(self._at(path))

    def mkdir(self, path: str) -> None:
        self._fs.mkdir(self._at(path))

    def rmdir(self, path: str) -> None:
        self._fs.rmdir(self._at(path))

    def list(self, path: str) -> list[str]:
        return self._fs.list(self._at(path))

    def exists(self, path: str) -> bool:
        return self._fs.exists(self._at(path))

    def lock(self) -> bool:
        return True

    def same_root(self) -> bool:
        return self._fs.same_root()

    def kind(self) -> str:
        return self._fs.kind()

    def space(self) -> Space:
        return self._fs.space()


class _Passing(Below):
    """The same for what ends with this process: nothing in it is synced."""

    def __init__(self, fs: Fs, prefix: str) -> None:
        super().__init__(fs, prefix)
        self.fdatasync = lambda handle: None

    def fsync_dir(self, path: str) -> None:
        pass


def export_dir(export_id: str) -> str:
    """Where a pin's files are."""
    return f"{EXPORTS_DIR}/{export_id}"


class PinJob:
    """Make one pin. `manifest` is there when it ran well; the number of the snapshot is set when it is handed out."""

    def __init__(
        self,
        export_id: str,
        store_id: bytes,
        now_ms: int,
        names: frozenset[str] | None,
        prefix: str | None,
        cold_dir: str | None = None,
    ) -> None:
        """`names`: these topics; `prefix`: those whose names begin so; neither: all. `cold_dir`: where the tier is."""
        self.export_id = export_id
        self.number = 0
        self.manifest: ExportManifest | None = None
        self._store_id = store_id
        self._now_ms = now_ms
        self._names = names
        self._prefix = prefix
        self._cold_dir = cold_dir
        self.cold: dict[str, int] = {}
        """Path → length of each file that lies in the cold tier alone: nobody may remove it while there is the pin."""
        self._files: dict[str, int | bytes] = {}
        """Path → length of a link, or content of a small file."""

    def _wants(self, name: str) -> bool:
        if self._names is not None:
            return name in self._names
        return self._prefix is None or name.startswith(self._prefix)

    def run(self, fs: Fs) -> None:
        """Raises `OSError`; what was made is gone again then."""
        base = export_dir(self.export_id)
        try:
            if not fs.exists(EXPORTS_DIR):
                fs.mkdir(EXPORTS_DIR)
            fs.mkdir(base)
            self._make(fs, _Passing(fs, base))
        except StoreDamaged as error:
            remove_export(fs, self.export_id)
            raise OSError(0, str(error)) from error
        except OSError:
            remove_export(fs, self.export_id)
            raise

    def _make(self, fs: Fs, below: Fs) -> None:
        for directory in (META_DIR, WAL_DIR, QUARANTINE_DIR, TOPICS_DIR):
            below.mkdir(directory)
        snapshot = read_snapshot(fs, self.number, self._store_id)
        chosen = [(image, config) for image, config in snapshot.topics() if self._wants(image.name)]
        topics = [self._topic(fs, below, image, config) for image, config in chosen]
        self._snapshot(below, chosen, snapshot.globals)
        self._small(below)
        manifest = ExportManifest(
            format=EXPORT_FORMAT,
            id=self.export_id,
            store_id=self._store_id.hex(),
            created_ms=self._now_ms,
            ts=snapshot.globals.last_ts,
            checkpoint=self.number,
            topics=topics,
            files=[
                *(self._file(path, of) for path, of in sorted(self._files.items())),
                *(ExportFile(path=path, bytes=length, cold=True) for path, length in sorted(self.cold.items())),
            ],
            cold=self._cold_dir if self.cold else None,
        )
        replace_file(below, MANIFEST_NAME, encode_meta(manifest))
        self.manifest = manifest

    @staticmethod
    def _file(path: str, of: int | bytes) -> ExportFile:
        if isinstance(of, int):
            return ExportFile(path=path, bytes=of)
        return ExportFile(path=path, bytes=len(of), xxh3_128=xxh3_128_hexdigest(of))

    # -- links ---------------------------------------------------------------------------------------------------------

    def _topic(self, fs: Fs, below: Fs, image: TopicImage, config: TopicConfig) -> ExportTopic:
        deleted = RangeSet.of(image.deleted)
        pieces = []
        for entry in image.segments:
            segment = segment_of(image, entry)
            if segment.cold:
                # It never changes; the tier itself is not asked, because it may hang.
                self.cold[segment.data_path] = segment.data_size
            for path in segment.paths() or [segment.data_path]:
                self._link(fs, below, path, segment)
            if entry.deletes:
                for first, last in read_deletes(fs, self._store_id, segment, entry.deletes, entry.digest):
                    deleted.add(segment.first_seq + first, segment.first_seq + last)
            pieces.append(self._piece(fs, segment, entry.live))
        floor = image.floor
        return ExportTopic(
            name=image.name,
            id=f"{image.id:016x}",
            epoch=image.epoch,
            type=config.type,
            durability=config.durability,
            ttl_ms=config.ttl_ms,
            head_seq=image.head,
            earliest_seq=image.earliest,
            floor_seq=1 if floor is None else floor.seq,
            count=image.count,
            bytes=image.size,
            deleted=list(deleted.between(image.earliest, image.head)) if deleted and image.head else [],
            gaps=[ExportGap(first=first, last=last, reason=reason) for first, last, reason in image.gaps],
            pieces=pieces,
            losses=[] if floor is None else _losses(floor.ranges),
        )

    def _link(self, fs: Fs, below: Fs, path: str, segment: Segment) -> None:
        if path in self._files:
            return
        if not segment.in_tails:
            below.mkdir(topic_dir(segment.topic_id))
        fs.link(path, f"{export_dir(self.export_id)}/{path}")
        handle = fs.open(path, OpenMode.READ)
        try:
            self._files[path] = fs.size(handle)
        finally:
            fs.close(handle)

    @staticmethod
    def _piece(fs: Fs, segment: Segment, live: int) -> ExportPiece:
        handle = fs.open(segment.idx_path, OpenMode.READ)
        try:
            check = fs.pread(handle, CHECK_LEN, segment.info_offset + INFO_LEN - CHECK_LEN)
        finally:
            fs.close(handle)
        return ExportPiece(
            data=segment.data_path,
            data_offset=segment.data_offset,
            data_bytes=segment.data_len,
            index=segment.idx_path,
            index_offset=segment.info_offset,
            first_seq=segment.first_seq,
            last_seq=segment.last_seq,
            records=segment.present,
            live=live,
            first_ts=segment.first_ts,
            last_ts=segment.last_ts,
            flags=segment.flags,
            check=f"{int.from_bytes(check, 'little'):016x}",
        )

    # -- files of its own ----------------------------------------------------------------------------------------------

    def _put(self, below: Fs, path: str, content: bytes) -> None:
        replace_file(below, path, content)
        self._files[path] = content

    def _snapshot(self, below: Fs, chosen: Sequence[tuple[TopicImage, TopicConfig]], globals_: Globals) -> None:
        """The snapshot again, for a log that is empty."""
        for image, _ in chosen:
            image.from_lsn, image.shard, image.quiet = BEHIND_SNAPSHOT, 0, True
        alone = msgspec.structs.replace(
            globals_,
            predecessor=0,
            shards=1,
            cuts=[ShardCut(shard=0, lsn=BEHIND_SNAPSHOT)],
            dropped=[],
            closed_names=[name for name in globals_.closed_names if self._wants(name)],
        )
        self._put(below, snapshot_path(self.number), b"".join(encode_sections(chosen, alone, self._store_id)))

    def _small(self, below: Fs) -> None:
        settings = EngineSettings(wal_file_bytes=LOG_BYTES, wal_fill_bytes=LOG_BYTES, wal_reserve_bytes=0)
        log = add_shard(below, 0, self._store_id, settings, self._now_ms, BEHIND_SNAPSHOT)
        handle = below.open(log.path, OpenMode.READ)
        try:
            self._files[log.path] = below.pread(handle, below.size(handle), 0)
        finally:
            below.close(handle)
        store = self._store_id.hex()
        entry = entry_of(log, BEHIND_SNAPSHOT, BEHIND_SNAPSHOT)
        self._put(below, MANIFEST_PATH, encode_meta(Manifest(store_id=store, shards=[entry])))
        stopped = LockInfo(boot_id=below.boot_id(), state=LockState.STOPPED, pid=0, started_ms=self._now_ms)
        self._put(below, LOCK_PATH, encode_meta(stopped))
        info = StoreInfo(store_id=store, format=FORMAT_VERSION, created_ms=self._now_ms)
        self._put(below, STORE_PATH, encode_meta(info))


def read_manifest(fs: Fs) -> ExportManifest:
    """The manifest of a pin or backup. Raises `StoreDamaged` for one that does not check or lists what cannot be."""
    try:
        manifest = decode_meta(read_file(fs, MANIFEST_NAME), ExportManifest)
    except FileNotFoundError as error:
        raise StoreDamaged(f"{MANIFEST_NAME} is missing: this is no backup, or one that was cut short") from error
    except BadMeta as error:
        raise StoreDamaged(f"{MANIFEST_NAME} is damaged: {error}") from error
    if manifest.format > EXPORT_FORMAT:
        raise StoreDamaged(f"{MANIFEST_NAME} has format {manifest.format}, newer than {EXPORT_FORMAT}")
    paths = [file.path for file in manifest.files]
    bad = next((path for path in paths if not is_member(path)), None)
    if bad is not None:
        raise StoreDamaged(f"{MANIFEST_NAME} lists {bad!r}, which no file of a store is called")
    if len(set(paths)) != len(paths) or len(paths) > FILES_MAX:
        raise StoreDamaged(f"{MANIFEST_NAME} lists a file twice, or too many")
    return manifest


def _losses(ranges: Sequence[tuple[int, Reason]]) -> list[ExportGap]:
    """The losses in front of a floor, with the seq that each begins at."""
    firsts = [1, *(last + 1 for last, _ in ranges)]
    return [
        ExportGap(first=first, last=last, reason=reason) for first, (last, reason) in zip(firsts, ranges, strict=False)
    ]


class UnpinJob:
    """Remove pins; with no ids all that there are, which is what a start does."""

    def __init__(self, export_ids: Sequence[str] | None = None) -> None:
        self.export_ids = export_ids

    def run(self, fs: Fs) -> None:
        """What cannot be removed is tried again at the next start. Raises `OSError` when it cannot be looked at."""
        if not fs.exists(EXPORTS_DIR):
            return
        ids = self.export_ids
        for export_id in fs.list(EXPORTS_DIR) if ids is None else ids:
            if is_export_id(export_id):
                remove_export(fs, export_id)


def remove_export(fs: Fs, export_id: str) -> None:
    """Remove a pin: its manifest first, so that nobody takes the rest for whole."""
    base = export_dir(export_id)
    try:
        if fs.exists(f"{base}/{MANIFEST_NAME}"):
            fs.unlink(f"{base}/{MANIFEST_NAME}")
        _remove_below(fs, base, 3)
    except OSError:
        return


def _remove_below(fs: Fs, directory: str, depth: int) -> None:
    """Remove a directory of ours with what is in it, at most `depth` levels; links are removed, never followed."""
    for name in fs.list(directory):
        path = f"{directory}/{name}"
        try:
            fs.unlink(path)
        except OSError:
            if depth == 0:
                raise
            _remove_below(fs, path, depth - 1)
    fs.rmdir(directory)
