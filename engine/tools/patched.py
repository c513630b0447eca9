"""A store whose small files are damaged, as if they were not: what STORE and meta/MANIFEST said is made again.

Every file of a store says in its header whose it is, and log files say where they belong, so both can be told from
what lies there. It is an assumption where they could be read, so it is only made to save what can be saved, on a view
of the directory that nobody writes to.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeVar

from engine.errors import StoreDamaged
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileKind, parse_file_header
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
from engine.fs import Fs, OpenMode, Space, read_file
from engine.store.leftovers import checkpoint_files
from engine.tools.readonly import NoWrites
from engine.wal.chain import WAL_DIR, LogFile, owners, parse_log_name, parse_shard_dir, shard_dir

_NEVER: Final = 1 << 40
"""Handles from here on are of files that are made up."""

_T = TypeVar("_T")


class Patched(NoWrites):
    """`Fs` over another one, some of whose small files have another content; nothing is written."""

    def __init__(self, fs: Fs, contents: dict[str, bytes]) -> None:
        self._fs = fs
        self._contents = contents
        self._open: dict[int, bytes] = {}

    def open(self, path: str, mode: OpenMode) -> int:
        if mode is OpenMode.READ and path in self._contents:
            handle = _NEVER + len(self._open)
            self._open[handle] = self._contents[path]
            return handle
        return self._fs.open(path, mode)

    def close(self, handle: int) -> None:
        if handle < _NEVER:
            self._fs.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        if handle >= _NEVER:
            return self._open[handle][offset : offset + length]
        return self._fs.pread(handle, length, offset)

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        if handle >= _NEVER:
            return self._open[handle][offset : offset + length]
        return self._fs.pread_nowait(handle, length, offset)

    def size(self, handle: int) -> int:
        return len(self._open[handle]) if handle >= _NEVER else self._fs.size(handle)

    def exists(self, path: str) -> bool:
        return path in self._contents or self._fs.exists(path)

    def list(self, path: str) -> list[str]:
        names = self._fs.list(path)
        made = [at.rpartition("/")[2] for at in self._contents if at.rpartition("/")[0] == path]
        return [*names, *(name for name in made if name not in names)]

    def with_file(self, path: str, content: bytes) -> Patched:
        """The same with one more file."""
        return Patched(self._fs, {**self._contents, path: content})

    def lock(self) -> bool:
        return True

    def same_root(self) -> bool:
        return True

    def kind(self) -> str:
        return self._fs.kind()

    def space(self) -> Space:
        return self._fs.space()

    def boot_id(self) -> str:
        return self._fs.boot_id()


def patch(fs: Fs, notes: list[str]) -> Patched:
    """The same directory with STORE and MANIFEST as they must have been.

    `notes` gets a line for each that was made again. Raises `StoreDamaged` when nothing says whose files these are.
    """
    contents: dict[str, bytes] = {}
    store = _read(fs, STORE_PATH, StoreInfo)
    if store is None:
        store_id = _owner(fs)
        store = StoreInfo(store_id=store_id.hex(), format=FORMAT_VERSION, created_ms=0)
        contents[STORE_PATH] = encode_meta(store)
        notes.append(f"{STORE_PATH} cannot be read; the store's id was taken from the headers of its files")
    manifest = _read(fs, MANIFEST_PATH, Manifest)
    if manifest is None or manifest.store_id != store.store_id:
        contents[MANIFEST_PATH] = encode_meta(Manifest(store_id=store.store_id, shards=_shards(fs)))
        # How far the log was on disk is not known any more, so nobody may believe that it was stopped in good order.
        running = LockInfo(boot_id="", state=LockState.RUNNING, pid=0, started_ms=0)
        contents[LOCK_PATH] = encode_meta(running)
        notes.append(f"{MANIFEST_PATH} cannot be read; what it said of the log was taken from the log files")
    return Patched(fs, contents)


def _read(fs: Fs, path: str, kind: type[_T]) -> _T | None:
    try:
        return decode_meta(read_file(fs, path), kind)
    except (OSError, BadMeta):
        return None


def _owner(fs: Fs) -> bytes:
    """The store that most files say they belong to."""
    votes: Counter[bytes] = Counter()
    for path in [log.path for logs in _logs(fs).values() for log in logs] + _checkpoint_files(fs):
        try:
            handle = fs.open(path, OpenMode.READ)
        except OSError:
            continue
        try:
            header = parse_file_header(fs.pread(handle, FILE_HEADER_LEN, 0))
        finally:
            fs.close(handle)
        if header is not None and header.kind in list(FileKind):
            votes[header.store_id] += 1
    if not votes:
        raise StoreDamaged("no file here says which store it belongs to: there is nothing that can be saved")
    return votes.most_common(1)[0][0]


def _checkpoint_files(fs: Fs) -> list[str]:
    try:
        return sorted(checkpoint_files(fs))
    except OSError:
        return []


def _logs(fs: Fs) -> dict[int, list[LogFile]]:
    found: dict[int, list[LogFile]] = {}
    if not fs.exists(WAL_DIR):
        return found
    for directory in fs.list(WAL_DIR):
        shard = parse_shard_dir(directory)
        if shard is None:
            continue
        found[shard] = []
        for name in fs.list(shard_dir(shard)):
            parsed = parse_log_name(name)
            if parsed is not None:
                handle = fs.open(f"{shard_dir(shard)}/{name}", OpenMode.READ)
                try:
                    found[shard].append(LogFile(shard, *parsed, fs.size(handle)))
                finally:
                    fs.close(handle)
    return found


def _shards(fs: Fs) -> list[ShardEntry]:
    """What MANIFEST said, but for how far the log was known to be on disk."""
    entries = []
    for shard, logs in sorted(_logs(fs).items()):
        chain, _ = owners(logs)
        if chain:
            newest = max(chain, key=lambda log: (log.run, log.first_lsn))
            entries.append(
                ShardEntry(
                    shard=shard,
                    start_lsn=chain[0].first_lsn,
                    first_lsn=newest.first_lsn,
                    run=newest.run,
                    size=newest.size,
                    end_lsn=0,
                )
            )
    return entries
