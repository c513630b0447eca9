"""Files by what they say of themselves, not by where they lie: one in the wrong place is read in its right one.

The header of a log file names its store, shard, first lsn and run. Files that were swapped, or whose shard's directory
was renamed, lose nothing so. What says that it is another store's is never read, and neither is a second file for the
same place. A file whose header does not check is taken for what its name says: its frames are checked by themselves.

So do the headers of snapshots, tails files and segments. One of these is read in its right place where no file that
belongs there lies; where it lies it stays, for the files of a topic that came from elsewhere keep the names of there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from engine.errors import StoreIOError
from engine.formats.frame import HEADER_LEN, parse_header, seed_of
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind, parse_file_header
from engine.formats.snapshot import snapshot_path, tails_path
from engine.fs import Fs, OpenMode
from engine.segment.segment import stem_of
from engine.wal.chain import DATA_START, WAL_DIR, LogFile, log_path, parse_log_name, parse_shard_dir, shard_dir

_SUFFIXES: Final[dict[int, str]] = {
    FileKind.SEGMENT_DATA: ".data",
    FileKind.SEGMENT_INDEX: ".idx",
    FileKind.SEGMENT_TAGS: ".tags",
}


class Found(NamedTuple):
    """A log file as it lies there."""

    log: LogFile
    header: FileHeader | None
    begins: bytes
    """What stands where its first frame would."""

    def said(self) -> LogFile:
        """What its header says that it is, or its name where that does not check."""
        if self.header is None:
            return self.log
        return LogFile(self.header.id, self.header.first, self.header.run, self.log.size)

    def is_used(self) -> bool:
        """Whether a frame of ours begins it."""
        header = self.header
        return header is not None and parse_header(seed_of(header.store_id), self.begins, 0, header.first) is not None


class Placed(NamedTuple):
    """Where each log file belongs."""

    logs: dict[int, list[Found]]
    """By shard: the files to be read."""
    moved: dict[str, str]
    """Of those that lie in the wrong place: where they lie, by where they belong."""
    hidden: frozenset[str]
    """Paths where there is nothing any more."""
    strange: list[tuple[str, str]]
    """Files that are left out, and why."""
    headless: list[LogFile]
    """Those among them that were cut in their headers: what followed is gone."""


def headers_of(fs: Fs, paths: Iterable[str]) -> dict[str, FileHeader]:
    """The headers that check, by where they lie; a file that cannot be read proves nothing."""
    found = {}
    for path in paths:
        try:
            handle = fs.open(path, OpenMode.READ)
            try:
                header = parse_file_header(fs.pread(handle, FILE_HEADER_LEN, 0))
            finally:
                fs.close(handle)
        except OSError:
            continue
        if header is not None:
            found[path] = header
    return found


def history_moved(headers: Mapping[str, FileHeader], store_id: bytes) -> dict[str, str]:
    """Of snapshots, tails files and files of segments in the wrong place: where they lie, by where they belong."""
    lie = {
        path: _belongs(header)
        for path, header in headers.items()
        if header.version <= FORMAT_VERSION and header.store_id == store_id
    }
    right = {path for path, belongs in lie.items() if path == belongs}
    return {belongs: path for path, belongs in lie.items() if belongs is not None and belongs not in right}


def _belongs(header: FileHeader) -> str | None:
    """Where a file of a checkpoint belongs; None for one that could be several (`.del` files have versions)."""
    if header.kind == FileKind.SNAPSHOT:
        return snapshot_path(header.first)
    if header.kind == FileKind.TAILS:
        return tails_path(header.first)
    suffix = _SUFFIXES.get(header.kind)
    return None if suffix is None else stem_of(header.id, header.first, header.run) + suffix


def log_files(fs: Fs) -> list[Found]:
    """Every log file, with its header. Raises `StoreIOError` for one that cannot be read, and `OSError`."""
    found = []
    for directory in fs.list(WAL_DIR) if fs.exists(WAL_DIR) else ():
        shard = parse_shard_dir(directory)
        for name in () if shard is None else fs.list(shard_dir(shard)):
            parsed = parse_log_name(name)
            if shard is not None and parsed is not None:
                try:
                    found.append(_look_at(fs, LogFile(shard, *parsed, 0)))
                except OSError as error:
                    raise StoreIOError(
                        f"{shard_dir(shard)}/{name} cannot be read: {error.strerror}. Copy what the disk still gives "
                        "to a good one; without that file, what it held is taken for lost"
                    ) from error
    return found


def _look_at(fs: Fs, log: LogFile) -> Found:
    handle = fs.open(log.path, OpenMode.READ)
    try:
        header = parse_file_header(fs.pread(handle, FILE_HEADER_LEN, 0))
        return Found(log._replace(size=fs.size(handle)), header, fs.pread(handle, HEADER_LEN, DATA_START))
    finally:
        fs.close(handle)


def place(found: list[Found], store_id: bytes) -> Placed:
    """Put each file of a store where it says that it belongs."""
    strange: list[tuple[str, str]] = []
    claims: dict[str, list[Found]] = {}
    headless: list[LogFile] = []
    for one in found:
        header, path = one.header, one.log.path
        if header is not None and header.version <= FORMAT_VERSION:
            if header.store_id != store_id:
                strange.append((path, f"it belongs to store {header.store_id.hex()}, not to {store_id.hex()}"))
                continue
            if header.kind != FileKind.WAL or header.id > 99:
                strange.append((path, f"it says that it is kind {header.kind}, number {header.id}, and no log file"))
                continue
            if one.log.size < DATA_START:
                strange.append((path, "it was cut short in its header"))
                headless.append(one.said())
                continue
        claims.setdefault(one.said().path, []).append(one)
    logs: dict[int, list[Found]] = {}
    moved: dict[str, str] = {}
    for path, some in claims.items():
        best = max(some, key=lambda one: (one.header is not None, one.log.path == path, one.log.size))
        strange += [(one.log.path, f"{best.log.path} is {path}, too") for one in some if one is not best]
        logs.setdefault(best.said().shard, []).append(best)
        if best.log.path != path:
            moved[path] = best.log.path
    gone = {path for path, _ in strange} | set(moved.values())
    hidden = frozenset(gone - {log_path(*one.said()[:3]) for some in logs.values() for one in some})
    return Placed(logs, moved, hidden, strange, headless)
