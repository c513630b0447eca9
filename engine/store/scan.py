"""What lies in the directory: the log files of every shard, checked against each other and against MANIFEST.

Pure reading. What was left half-made by a crash is told from what is missing or strange:

- a `.tmp` file is something that was never finished;
- a log file newer than the one that MANIFEST names was never used; if it has no good header, it is a leftover;
- the newest file that MANIFEST names must be there, with at least the size that MANIFEST knows;
- a file wholly below the position where MANIFEST says that the kept log begins was about to be removed.

Whether the log is whole is a question with a position (`check_log`): a start from a snapshot needs the log from the
snapshot's cut on, a start without one needs it from the beginning. From there on

- the chain of owners must have no holes: a file that ends before the next owner begins is short, or the one between
  them is missing;
- a file that says it belongs to another store, shard or place is never read as ours.

What lies below is not looked at: damage there has hit nothing that is needed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind, parse_file_header
from engine.formats.manifest import LOCK_PATH, MANIFEST_PATH, STORE_PATH, Manifest, ShardEntry
from engine.formats.snapshot import META_DIR, parse_snapshot_name
from engine.fs import Fs, OpenMode
from engine.store.walk import NEXT_STEP, NO_SETTING
from engine.wal.chain import (
    DATA_START,
    TMP_SUFFIX,
    WAL_DIR,
    LogFile,
    Piece,
    owners,
    parse_log_name,
    parse_shard_dir,
    pieces,
    shard_dir,
)


class ShardFiles(NamedTuple):
    """The log of one shard as it was found."""

    entry: ShardEntry
    chain: list[LogFile]
    """The owners, in the order of the stream."""
    superseded: list[LogFile]
    """Files that own nothing any more."""
    leftovers: list[LogFile]
    """Files that a crash kept from being finished, with nothing in them, or from being removed, wholly below the
    beginning of the kept log."""
    headers: dict[LogFile, FileHeader | None]


class Directory(NamedTuple):
    """All that was found."""

    shards: list[ShardFiles]
    strays: list[str]
    """Temporary files."""


def survey(fs: Fs, manifest: Manifest) -> Directory:
    """Find the files of every shard that MANIFEST names. Raises `StoreDamaged` and `OSError`."""
    strays = [path for path in (STORE_PATH, LOCK_PATH, MANIFEST_PATH) if fs.exists(path + TMP_SUFFIX)]
    strays = [path + TMP_SUFFIX for path in strays]
    strays += [
        f"{META_DIR}/{name}"
        for name in fs.list(META_DIR)
        if name.endswith(TMP_SUFFIX) and parse_snapshot_name(name[: -len(TMP_SUFFIX)]) is not None
    ]
    rooms = fs.list(WAL_DIR) if fs.exists(WAL_DIR) else []
    numbers = {number for name in rooms if (number := parse_shard_dir(name)) is not None}
    shards = []
    for entry in sorted(manifest.shards, key=lambda entry: entry.shard):
        if entry.shard not in numbers:
            raise StoreDamaged(
                f"{shard_dir(entry.shard)} is missing with all of its log. Concerned: all topics of shard "
                f"{entry.shard}. {NO_SETTING}"
            )
        names = fs.list(shard_dir(entry.shard))
        strays += [
            f"{shard_dir(entry.shard)}/{name}"
            for name in names
            if name.endswith(TMP_SUFFIX) and parse_log_name(name[: -len(TMP_SUFFIX)]) is not None
        ]
        shards.append(_shard_files(fs, entry, names))
    if [shard.entry.shard for shard in shards] != list(range(len(shards))) or not shards:
        raise StoreDamaged(f"meta/MANIFEST names the shards {[shard.entry.shard for shard in shards]}. {NO_SETTING}")
    return Directory(shards, strays)


def _shard_files(fs: Fs, entry: ShardEntry, names: list[str]) -> ShardFiles:
    files: list[LogFile] = []
    leftovers: list[LogFile] = []
    headers: dict[LogFile, FileHeader | None] = {}
    for name in names:
        parsed = parse_log_name(name)
        if parsed is None:
            continue
        first_lsn, run = parsed
        log = LogFile(entry.shard, first_lsn, run, 0)
        size, head = _look_at(fs, log.path)
        log = log._replace(size=size)
        headers[log] = header = parse_file_header(head)
        unused = (run, first_lsn) > (entry.run, entry.first_lsn)
        if unused and header is None:
            leftovers.append(log)
        else:
            files.append(log)
    leftovers += [log for log in files if log.first_lsn < log.end_lsn <= entry.start_lsn]
    chain, superseded = owners(log for log in files if log not in leftovers)
    if not chain:
        raise StoreDamaged(
            f"{shard_dir(entry.shard)} has no log file any more. Concerned: all topics of shard {entry.shard}. "
            f"{NO_SETTING}"
        )
    return ShardFiles(entry, chain, superseded, leftovers, headers)


def check_log(found: ShardFiles, store_id: bytes, from_lsn: int) -> None:
    """That nothing of a shard's log is missing, short or strange from a position on.

    Raises `StoreDamaged` or `StoreForeign`, with what is wrong and what helps.
    """
    _check_newest(found.entry, found.chain)
    chain = pieces_from(found, from_lsn)
    _check_chain(found.entry, [piece.file for piece in chain], from_lsn)
    for piece in chain:
        _check_header(piece.file, found.headers[piece.file], store_id)


def newest_is_lost(found: ShardFiles) -> bool:
    """Whether the newest file that MANIFEST names is missing or short."""
    try:
        _check_newest(found.entry, found.chain)
    except StoreDamaged:
        return True
    return False


def pieces_from(found: ShardFiles, from_lsn: int) -> list[Piece]:
    """What each file owns, from the one that owns a position on; at least the last one."""
    parts = pieces(found.chain)
    return [part for part in parts[:-1] if part.end_lsn > from_lsn] + parts[-1:]


def _look_at(fs: Fs, path: str) -> tuple[int, bytes]:
    handle = fs.open(path, OpenMode.READ)
    try:
        return fs.size(handle), fs.pread(handle, FILE_HEADER_LEN, 0)
    finally:
        fs.close(handle)


def _check_newest(entry: ShardEntry, chain: list[LogFile]) -> None:
    """The newest file that MANIFEST names is there, as long as MANIFEST knows it."""
    whose = f"Concerned: all topics of shard {entry.shard}"
    newest = next((log for log in chain if (log.first_lsn, log.run) == (entry.first_lsn, entry.run)), None)
    if newest is None and not any(log.run > entry.run and log.first_lsn <= entry.first_lsn for log in chain):
        path = LogFile(entry.shard, entry.first_lsn, entry.run, 0).path
        raise StoreDamaged(f"{path} is missing; meta/MANIFEST names it as the newest log file. {whose}. {NEXT_STEP}")
    if newest is not None and newest.size < entry.size:
        raise StoreDamaged(
            f"{newest.path} is {newest.size} bytes long, meta/MANIFEST knows {entry.size}: it was cut short. "
            f"{whose}. {NEXT_STEP}"
        )


def _check_chain(entry: ShardEntry, chain: list[LogFile], from_lsn: int) -> None:
    """No owner is missing or short."""
    whose = f"Concerned: all topics of shard {entry.shard}"
    if not chain[0].first_lsn <= from_lsn <= chain[-1].end_lsn:
        raise StoreDamaged(
            f"{shard_dir(entry.shard)}: the log is needed from lsn {from_lsn} on, but the oldest file is "
            f"{chain[0].path}, which begins at {chain[0].first_lsn}. {whose}. {NEXT_STEP}"
        )
    for before, after in pairwise(chain):
        if before.end_lsn < after.first_lsn:
            raise StoreDamaged(
                f"{before.path} ends at lsn {before.end_lsn}, the next log file {after.path} begins at "
                f"{after.first_lsn}: a file between them is missing, or the first was cut short at offset "
                f"{before.size}. {whose}. {NEXT_STEP}"
            )


def _check_header(log: LogFile, header: FileHeader | None, store_id: bytes) -> None:
    """The file is what its name says, and ours."""
    if header is None:
        raise StoreDamaged(
            f"{log.path}: the file header at offset 0 does not check. Concerned: all topics of shard {log.shard}. "
            f"{NEXT_STEP}"
        )
    if header.version > FORMAT_VERSION:
        raise StoreForeign(
            f"{log.path} has format {header.version}, this version of topics knows up to {FORMAT_VERSION}. "
            "Nothing was changed; start it with the newer version"
        )
    if header.store_id != store_id:
        raise StoreForeign(
            f"{log.path} belongs to store {header.store_id.hex()}, not to {store_id.hex()}. {NO_SETTING}"
        )
    said = (header.kind, header.id, header.first, header.run)
    if said != (FileKind.WAL, log.shard, log.first_lsn, log.run) or log.size < DATA_START:
        raise StoreForeign(
            f"{log.path} says that it is kind {header.kind}, shard {header.id}, first lsn {header.first}, run "
            f"{header.run}: it lies in the wrong place. {NO_SETTING}"
        )
