"""What says that a directory is a store: STORE, LOCK and meta/MANIFEST; making them, and reading them at a start.

    made in this order      directories → log files → meta/MANIFEST → STORE
    so at a start           STORE there ⇒ everything is there, and what is missing was lost
                            no STORE    ⇒ a first start never got to its end, or STORE itself was lost

The two are told apart by LOCK, which is written before the first ack, by logs, which hold nothing until then, and by
the rooms of checkpoints, exports and tools, which are made later. A restore or a recovery writes its STORE last, too,
and a LOCK first: what is left of one that was cut short is never taken for an empty directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from xxhash import xxh3_128_digest

from engine.clock import Clock
from engine.errors import StoreDamaged, StoreForeign, StoreIOError, StoreLocked, StoreMissing
from engine.formats.export import EXPORTS_DIR
from engine.formats.header import FORMAT_VERSION
from engine.formats.manifest import (
    LOCK_PATH,
    MANIFEST_PATH,
    STORE_PATH,
    BadMeta,
    LockInfo,
    LockState,
    Manifest,
    ShardEntry,
    StoreInfo,
    decode_meta,
    encode_meta,
)
from engine.formats.snapshot import META_DIR, parse_snapshot_name, parse_tails_name
from engine.fs import Fs, OpenMode, create, remedy, replace_file
from engine.limits import EngineSettings
from engine.segment.segment import TOPICS_DIR
from engine.store.verdicts import Stop
from engine.store.walk import NO_SETTING
from engine.wal.chain import DATA_START, WAL_DIR, LogFile, parse_log_name, parse_shard_dir, shard_dir
from engine.wal.prepare import begin_log_file, finish_log_file, zero_fill

QUARANTINE_DIR: Final = "quarantine"
LOST_DIR: Final = "lost"
"""Where a recovery puts what it could not use."""
BEHIND_SNAPSHOT: Final = DATA_START
"""Where the log of a store begins that is made with a snapshot. Not at 0: when that snapshot is damaged, a log that
reached back to the beginning would be taken for all that there ever was."""
_MADE_LATER: Final = (TOPICS_DIR, EXPORTS_DIR, QUARANTINE_DIR, LOST_DIR)
"""Directories in which there is nothing when STORE is written."""
_OR_BEGUN: Final = (
    ", or a restore or a recovery into it was cut short (then remove the directory, and run that again). " + NO_SETTING
)
_META_BYTES_MAX: Final = 1 << 20

_T = TypeVar("_T")


class Missing(Enum):
    """The answer for a small file that is not there."""

    MISSING = "missing"


class Identity(NamedTuple):
    """What a start learns before it looks at any log."""

    store: StoreInfo
    store_id: bytes
    manifest: Manifest
    stop: Stop
    fresh: bool
    """Whether the store was made just now."""
    starts: int = 0
    """As LOCK has it."""
    offset_ms: int | None = None
    """As LOCK has it, if it is of this boot."""


LOCAL_KINDS: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2", "reiserfs", "ubifs"}
    | {"tmpfs", "ramfs", "overlay"}
)
"""File systems whose locks and syncs mean what they say: those of one machine (tmpfs holds what it holds until the
power goes, which is what anybody who chose it wants)."""


def check_kind(fs: Fs) -> None:
    """Refuse a file system of the network, or one that nobody knows. What cannot be told is let pass."""
    kind = fs.kind()
    if kind and kind not in LOCAL_KINDS:
        raise StoreIOError(
            f"the data directory lies on a file system of type {kind}: whether its locks and syncs hold is not known, "
            "and most of the network's do not. Use a local one, or set TOPICS_ANY_FILE_SYSTEM=1; nothing was changed"
        )


def take_root(fs: Fs) -> None:
    """Take the root's lock, or say who has it."""
    try:
        if fs.lock():
            return
        owner = read_meta(fs, LOCK_PATH, LockInfo)
        who = f"process {owner.pid}" if isinstance(owner, LockInfo) and owner.pid else "another process"
    except (OSError, BadMeta):
        who = "another process"
    raise StoreLocked(f"{who} has this data directory; stop it, or use another directory")


def identify(fs: Fs, clock: Clock, settings: EngineSettings, pid: int, *, make: bool = True) -> Identity:
    """Read the three files; make a new store where there is none, if `make`. Raises the `StoreError`s of a start."""
    store = _required(fs, STORE_PATH, StoreInfo)
    if store is Missing.MISSING:
        unused = _unused_logs(fs)
        if not make:
            raise StoreMissing(f"{STORE_PATH} is missing: there is no store here, or its first start was cut short")
        _remove(fs, unused)
        store = _make(fs, clock, settings, pid)
        return Identity(store, bytes.fromhex(store.store_id), _manifest(fs, store), Stop.CLEAN, True)
    if store.format > FORMAT_VERSION:
        raise StoreForeign(
            f"{STORE_PATH}: the store has format {store.format}, this version of topics knows up to {FORMAT_VERSION}. "
            "Nothing was changed; start it with the newer version"
        )
    return Identity(store, bytes.fromhex(store.store_id), _manifest(fs, store), *_last_stop(fs))


def write_lock(fs: Fs, state: LockState, pid: int, now_ms: int, starts: int, offset_ms: int) -> None:
    """Say durably whose turn it is."""
    info = LockInfo(boot_id=fs.boot_id(), state=state, pid=pid, started_ms=now_ms, starts=starts, offset_ms=offset_ms)
    replace_file(fs, LOCK_PATH, encode_meta(info))


def begin_lock(fs: Fs) -> None:
    """Say durably that the empty directory is taken, before a tool makes anything else in it: LOCK is there, and empty
    until there is a store."""
    fs.close(create(fs, LOCK_PATH))
    fs.fsync_dir("")


def add_shard(
    fs: Fs, shard: int, store_id: bytes, settings: EngineSettings, now_ms: int, first_lsn: int = 0
) -> LogFile:
    """Make a shard's directory and its first log file, durably; MANIFEST is the caller's."""
    fs.mkdir(shard_dir(shard))
    fs.fsync_dir(WAL_DIR)
    log = LogFile(shard, first_lsn, 1, settings.wal_first_bytes)
    handle = begin_log_file(fs, log, store_id, now_ms)
    try:
        zero_fill(fs, handle, DATA_START, min(settings.wal_fill_bytes, log.size - DATA_START))
        finish_log_file(fs, log, handle)
    finally:
        fs.close(handle)
    return log


def entry_of(log: LogFile, start_lsn: int, end_lsn: int) -> ShardEntry:
    """What MANIFEST says of a shard whose newest file is `log`."""
    return ShardEntry(
        shard=log.shard, start_lsn=start_lsn, first_lsn=log.first_lsn, run=log.run, size=log.size, end_lsn=end_lsn
    )


def _make(fs: Fs, clock: Clock, settings: EngineSettings, pid: int) -> StoreInfo:
    """A new, empty store. The id comes from the two seams, which no two starts share."""
    now_ms = clock.wall_ms()
    seed = f"{fs.boot_id()} {clock.boot_ns()} {now_ms} {pid}"
    store_id = xxh3_128_digest(seed.encode())
    try:
        for directory in (WAL_DIR, META_DIR, QUARANTINE_DIR):
            fs.mkdir(directory)
        fs.fsync_dir("")
        logs = [add_shard(fs, shard, store_id, settings, now_ms) for shard in range(settings.wal_shards)]
        manifest = Manifest(store_id=store_id.hex(), shards=[entry_of(log, 0, 0) for log in logs])
        replace_file(fs, MANIFEST_PATH, encode_meta(manifest))
        store = StoreInfo(store_id=store_id.hex(), format=FORMAT_VERSION, created_ms=now_ms)
        replace_file(fs, STORE_PATH, encode_meta(store))
    except OSError as error:
        raise StoreIOError(
            f"a new store could not be made: {error}; {remedy(error)}, or use another directory"
        ) from error
    return store


def _unused_logs(fs: Fs) -> list[str]:
    """Without STORE: refuse if a store was to be here; else the empty logs of a start that was cut short."""
    try:
        if fs.exists(LOCK_PATH):
            raise StoreDamaged(f"{STORE_PATH} is missing, but {LOCK_PATH} says that a store was in use{_OR_BEGUN}")
        paths = list(_log_paths(fs))
        for path in paths:
            if not _is_unused(fs, path):
                raise StoreDamaged(f"{STORE_PATH} is missing, but {path} holds data. {NO_SETTING}")
        for path in _remains(fs):
            raise StoreDamaged(f"{STORE_PATH} is missing, but {path} is there: this was a store{_OR_BEGUN}")
    except OSError as error:
        raise StoreIOError(f"the data directory cannot be read: {error}; nothing was changed") from error
    return paths


def _remains(fs: Fs) -> Iterator[str]:
    """What no first start leaves, however it ends."""
    for name in fs.list(META_DIR) if fs.exists(META_DIR) else ():
        if parse_snapshot_name(name) is not None or parse_tails_name(name) is not None:
            yield f"{META_DIR}/{name}"
    for directory in _MADE_LATER:
        for name in fs.list(directory) if fs.exists(directory) else ():
            yield f"{directory}/{name}"


def _remove(fs: Fs, paths: list[str]) -> None:
    try:
        for path in paths:
            fs.unlink(path)
    except OSError as error:
        raise StoreIOError(
            f"an empty log file could not be removed: {error}; remove it, or use another directory"
        ) from error


def _log_paths(fs: Fs) -> list[str]:
    if not fs.exists(WAL_DIR):
        return []
    found = []
    for directory in fs.list(WAL_DIR):
        if parse_shard_dir(directory) is not None:
            names = fs.list(f"{WAL_DIR}/{directory}")
            found += [f"{WAL_DIR}/{directory}/{name}" for name in names if parse_log_name(name) is not None]
    return found


def _is_unused(fs: Fs, path: str) -> bool:
    """Whether a log file holds nothing behind its header block."""
    handle = fs.open(path, OpenMode.READ)
    try:
        offset, size = DATA_START, fs.size(handle)
        while offset < size:
            chunk = fs.pread(handle, 1 << 20, offset)
            if not chunk:
                break
            if any(chunk):
                return False
            offset += len(chunk)
    finally:
        fs.close(handle)
    return True


def _last_stop(fs: Fs) -> tuple[Stop, bool, int, int | None]:
    """How the last process ended, that the store is not fresh, how many starts LOCK knows of, and the time it had.

    What cannot be read counts as another boot: the careful answer.
    """
    try:
        lock = read_meta(fs, LOCK_PATH, LockInfo)
    except BadMeta:
        return Stop.POWER_LOSS, False, 0, None
    except OSError as error:
        raise StoreIOError(f"{LOCK_PATH} cannot be read: {error}; nothing was changed") from error
    if lock is Missing.MISSING:
        return Stop.POWER_LOSS, False, 0, None
    same = bool(lock.boot_id) and lock.boot_id == fs.boot_id()
    stop = Stop.SAME_BOOT if same else Stop.POWER_LOSS
    if lock.state is LockState.STOPPED:
        stop = Stop.CLEAN
    return stop, False, lock.starts, lock.offset_ms if same else None


def _manifest(fs: Fs, store: StoreInfo) -> Manifest:
    manifest = _required(fs, MANIFEST_PATH, Manifest)
    if manifest is Missing.MISSING:
        raise StoreDamaged(f"{MANIFEST_PATH} is missing; without it nobody knows whether a log file is. {NO_SETTING}")
    if manifest.store_id != store.store_id:
        raise StoreForeign(
            f"{MANIFEST_PATH} belongs to store {manifest.store_id}, {STORE_PATH} says {store.store_id}. {NO_SETTING}"
        )
    return manifest


def _required(fs: Fs, path: str, type_: type[_T]) -> _T | Missing:
    try:
        return read_meta(fs, path, type_)
    except BadMeta as error:
        raise StoreDamaged(f"{path} is damaged: {error}. Concerned: the whole store. {NO_SETTING}") from error
    except OSError as error:
        raise StoreIOError(f"{path} cannot be read: {error}; nothing was changed") from error


def read_meta(fs: Fs, path: str, type_: type[_T]) -> _T | Missing:
    """One of the small files. Raises `BadMeta`, and `OSError` for anything but absence."""
    if not fs.exists(path):
        return Missing.MISSING
    handle = fs.open(path, OpenMode.READ)
    try:
        if fs.size(handle) > _META_BYTES_MAX:
            raise BadMeta("it is far too long")
        return decode_meta(fs.pread(handle, _META_BYTES_MAX, 0), type_)
    finally:
        fs.close(handle)
