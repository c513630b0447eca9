"""A store whose small files or log files are damaged, as if they were not: a view of the directory to save from.

    STORE            the store that most files say in their headers that they belong to
    meta/MANIFEST    what log files say where they belong; also for shards of which it turns out to be older
    log files, snapshots, tails files, segments
                     read where their headers say that they belong (engine.tools.placed)
    a shard          that has no log at all: an empty file behind all that it may have held, so that all of its topics
                     are in doubt

It is an assumption where they could be read, so it is only made to save what can be saved, on a view of the directory
that nobody writes to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from engine.errors import StoreDamaged, StoreOutlived
from engine.formats.frame import align_block
from engine.formats.header import FORMAT_VERSION, FileKind
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
from engine.formats.snapshot import META_DIR, BadSnapshot, Globals, parse_snapshot_name
from engine.fs import Fs, OpenMode, read_file
from engine.store.init import Missing, read_meta
from engine.store.leftovers import checkpoint_files
from engine.store.snapshots import read_globals
from engine.tools.placed import Found, Placed, headers_of, history_moved, log_files, place
from engine.tools.readonly import View
from engine.wal.chain import DATA_START, LogFile, owners, shard_dir
from engine.wal.prepare import file_header

_NEVER: Final = 1 << 40
"""Handles from here on are of files that are made up."""
_RUNNING: Final = encode_meta(LockInfo(boot_id="", state=LockState.RUNNING, pid=0, started_ms=0))
"""How far the log was on disk is not known any more, so nobody may believe that it was stopped in good order."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class Patched(View):
    """`Fs` over another one, some of whose files have another content or another place; nothing is written."""

    def __init__(self, fs: Fs, contents: dict[str, bytes], placed: Placed, empty: dict[str, str]) -> None:
        """`empty`: files that were made up for shards without log, and what these are called."""
        super().__init__(fs)
        self._contents = contents
        self._placed = placed
        self._made = {*contents, *placed.moved}
        self.empty = empty
        self._open: dict[int, bytes] = {}

    def open(self, path: str, mode: OpenMode) -> int:
        if mode is OpenMode.READ and path in self._contents:
            handle = _NEVER + len(self._open)
            self._open[handle] = self._contents[path]
            return handle
        if path in self._placed.hidden:
            raise FileNotFoundError(path)
        return self._fs.open(self.lies(path), mode)

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

    @property
    def strange(self) -> list[tuple[str, str]]:
        """Log files that are left out, by where they lie, and why."""
        return self._placed.strange

    def exists(self, path: str) -> bool:
        below = f"{path}/"
        if path in self._made or any(one.startswith(below) for one in self._made):
            return True
        return path not in self._placed.hidden and self._fs.exists(path)

    def list(self, path: str) -> list[str]:
        below = f"{path}/" if path else ""
        made = dict.fromkeys(one[len(below) :].partition("/")[0] for one in self._made if one.startswith(below))
        try:
            names = [name for name in self._fs.list(path) if f"{below}{name}" not in self._placed.hidden]
        except FileNotFoundError:
            if not made:
                raise
            names = []
        return [*names, *(name for name in made if name not in names)]

    def lies(self, path: str) -> str:
        """Where the file lies that is read under a path."""
        return self._placed.moved.get(path, path)

    def with_file(self, path: str, content: bytes) -> Patched:
        """The same with one more file."""
        return Patched(self._fs, {**self._contents, path: content}, self._placed, self.empty)

    def said(self, note: str) -> str:
        """A line about this view, as one about what lies there."""
        for path, name in self.empty.items():
            note = note.replace(f"{path}: offset 0", name).replace(path, name)
        return note


def patch(fs: Fs, notes: list[str]) -> Patched:
    """The same directory with STORE, MANIFEST and every log file as they must have been.

    `notes` gets a line for each that was not. Raises `StoreDamaged` when nothing says whose files these are.
    """
    found = log_files(fs)
    contents: dict[str, bytes] = {}
    store = _read(fs, STORE_PATH, StoreInfo)
    store_id = _owner(fs, found, store)
    if store is None or store.store_id != store_id.hex():
        why = "cannot be read" if store is None else "is another store's"
        notes.append(f"{STORE_PATH} {why}; the store's id was taken from the headers of its files")
        store = StoreInfo(store_id=store_id.hex(), format=FORMAT_VERSION, created_ms=0)
        contents[STORE_PATH] = encode_meta(store)
    placed = place(found, store_id)
    placed.moved.update(history_moved(headers_of(fs, _checkpoint_files(fs)), store_id))
    notes += [f"{path}: {why}; it is left out" for path, why in placed.strange]
    notes += [
        f"{lies} is {path} by its header, in the wrong place: read as that" for path, lies in placed.moved.items()
    ]
    known = _globals(fs, store_id)
    manifest = _read(fs, MANIFEST_PATH, Manifest)
    if manifest is not None and manifest.store_id != store.store_id:
        manifest = None
    entries = {} if manifest is None else {entry.shard: entry for entry in manifest.shards}
    if manifest is None:
        contents[LOCK_PATH] = _RUNNING
        notes.append(f"{MANIFEST_PATH} cannot be read; what it said of the log was taken from the log files")
    counted = max([0, *(one.shards for one in known)]) if manifest is None else 0
    last = max([counted - 1, *entries, *(shard for shard, logs in placed.logs.items() if _counts(manifest, logs))])
    if last < 0 and not _checkpoint_files(fs):
        raise StoreDamaged("no log, no segment, no snapshot and no meta/MANIFEST is left: nothing can be saved")
    shards, empty = [], {}
    for shard in range(max(last, 0) + 1):
        entry, logs = entries.get(shard), placed.logs.get(shard, [])
        if not any(entry is None or one.said().end_lsn > entry.start_lsn for one in logs):
            entry, log = _without_log(shard, entry, known)
            contents[log.path] = file_header(log, store_id, 0)
            empty[log.path] = shard_dir(shard)
            said = (
                "has no log file that can be used" if fs.exists(shard_dir(shard)) else "is missing with all of its log"
            )
            notes.append(f"{shard_dir(shard)} {said}: what it held behind the last snapshot is lost")
        elif entry is None:
            entry = _entry(shard, logs, [log for log in placed.headless if log.shard == shard])
        elif any(one.is_used() and one.said()[2:0:-1] > (entry.run, entry.first_lsn) for one in logs):
            notes.append(f"{MANIFEST_PATH} is older than the log of shard {shard}, which was taken from the log files")
            entry = _entry(shard, logs, end_lsn=entry.end_lsn)
        shards.append(entry)
    if manifest is None or manifest.shards != shards:
        contents[MANIFEST_PATH] = encode_meta(Manifest(store_id=store.store_id, shards=shards))
    return Patched(fs, contents, placed, empty)


def outlived(view: Patched, notes: list[str], read: Callable[[Patched], _R]) -> _R:
    """What `read` makes of a store; once more where LOCK and MANIFEST turn out to be older than the log, as of a store
    that was not stopped."""
    try:
        return read(view)
    except StoreOutlived as error:
        notes.append(f"{str(error).partition('. Nothing was changed')[0]}; it counts as one that was not stopped")
        return read(view.with_file(LOCK_PATH, _RUNNING))


def reaching(view: Patched, ends: Mapping[int, int]) -> Patched:
    """A view of which the log is known to have been on disk up to a position, by shard."""
    manifest = decode_meta(read_file(view, MANIFEST_PATH), Manifest)
    shards = [msgspec.structs.replace(one, end_lsn=ends.get(one.shard, one.end_lsn)) for one in manifest.shards]
    return view.with_file(MANIFEST_PATH, encode_meta(msgspec.structs.replace(manifest, shards=shards)))


def _read(fs: Fs, path: str, kind: type[_T]) -> _T | None:
    try:
        found = read_meta(fs, path, kind)
    except (OSError, BadMeta):
        return None
    return None if found is Missing.MISSING else found


def _owner(fs: Fs, found: list[Found], store: StoreInfo | None) -> bytes:
    """The store that most files say they belong to; of as many, the one that STORE names."""
    headers = [one.header for one in found]
    headers += headers_of(fs, _checkpoint_files(fs)).values()
    kinds = list(FileKind)
    votes = Counter(header.store_id for header in headers if header is not None and header.kind in kinds)
    if store is not None:
        votes[bytes.fromhex(store.store_id)] += 1
    if not votes:
        raise StoreDamaged("no file here says which store it belongs to: there is nothing that can be saved")
    return max(votes, key=lambda one: (votes[one], store is not None and one.hex() == store.store_id))


def _checkpoint_files(fs: Fs) -> list[str]:
    try:
        return sorted(checkpoint_files(fs))
    except OSError:
        return []


def _globals(fs: Fs, store_id: bytes) -> list[Globals]:
    """What the snapshots that can be read say of the whole store."""
    known = []
    for name in fs.list(META_DIR) if fs.exists(META_DIR) else ():
        number = parse_snapshot_name(name)
        if number is not None:
            try:
                known.append(read_globals(fs, number, store_id))
            except (OSError, BadSnapshot):
                continue
    return known


def _counts(manifest: Manifest | None, logs: list[Found]) -> bool:
    """Whether a shard is one of the store's: one that MANIFEST does not name was never used, or it is older."""
    return manifest is None or any(one.is_used() for one in logs)


def _entry(shard: int, logs: list[Found], headless: Sequence[LogFile] = (), *, end_lsn: int = 0) -> ShardEntry:
    """What MANIFEST said, but for how far the log was known to be on disk. A file that ends inside a block was cut, and
    so were those that are `headless`, and left out."""
    chain, _ = owners(one.said() for one in logs)
    newest = max((*chain, *headless), key=lambda log: (log.run, log.first_lsn))
    return ShardEntry(
        shard=shard,
        start_lsn=chain[0].first_lsn,
        first_lsn=newest.first_lsn,
        run=newest.run,
        size=align_block(newest.size),
        end_lsn=end_lsn,
    )


def _without_log(shard: int, entry: ShardEntry | None, known: list[Globals]) -> tuple[ShardEntry, LogFile]:
    """For a shard without log: what MANIFEST says, and an empty file behind all that is known of."""
    cuts = [one.cut(shard) for one in known]
    ends = [1, *(max(cut.lsn, cut.end_lsn) for cut in cuts)]
    if entry is not None:
        ends += [entry.start_lsn, entry.first_lsn, entry.end_lsn]
    behind = align_block(max(ends))
    if entry is None:
        entry = ShardEntry(shard=shard, start_lsn=behind, first_lsn=behind, run=1, size=0, end_lsn=0)
    return entry, LogFile(shard, behind, 0, DATA_START)
