"""Writing segments, tails files and deleted rows: new files only, synced, read back and checked before they count.

A file becomes part of the store only when a snapshot names it. So a failure here needs no repair: what was written is
removed as far as possible, what cannot be removed is a leftover that nothing names, and the `OSError` is the caller's.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final

from xxhash import xxh3_64

from engine.formats.header import FORMAT_VERSION, FileHeader, FileKind, pack_file_header
from engine.formats.segment import CHECK_LEN, PIECE_ALIGN, SegmentInfo, pack_deletes, parse_check
from engine.formats.snapshot import META_DIR, tails_path
from engine.fs import Fs, create, write_whole
from engine.segment.build import Buffer, Built
from engine.segment.segment import TOPICS_DIR, Segment, topic_dir

READ_BACK: Final = 1 << 20
"""Bytes of a file that are read back at once."""
FLUSH_BYTES: Final = 1 << 20
"""Bytes of a tails file that are gathered before they are written."""


def write_segment(
    fs: Fs, store_id: bytes, now_ms: int, number: int, built: Built, durable: set[str] | None = None
) -> Segment:
    """Write the `.data`, `.idx` and, where a record has a tag, `.tags` of a segment, durably, their names included.

    `number` is the checkpoint's; no file may be there yet that it would name. `durable` are directories that the caller
    knows to be on disk, and is added to: one that merely exists may be what a killed process left in the page cache.
    Raises `OSError`: nothing counts then.
    """
    segment = segment_of(built.info, number, 0)
    write_files(fs, segment, files_of(store_id, now_ms, segment, built), set() if durable is None else durable)
    return segment


def files_of(store_id: bytes, now_ms: int, segment: Segment, built: Built) -> dict[str, Sequence[Buffer]]:
    """The content of a segment's files by their paths."""
    found: list[tuple[str, FileKind, Sequence[Buffer]]] = [
        (segment.data_path, FileKind.SEGMENT_DATA, (*built.data, _check_bytes(built))),
        (segment.idx_path, FileKind.SEGMENT_INDEX, (built.index,)),
    ]
    if built.tags is not None:
        found.append((segment.tags_path, FileKind.SEGMENT_TAGS, (built.tags,)))
    place = (store_id, segment.topic_id, segment.first_seq, now_ms)
    return {path: (_header(kind, segment.number, *place), *content) for path, kind, content in found}


def write_files(fs: Fs, segment: Segment, files: Mapping[str, Sequence[Buffer]], durable: set[str]) -> None:
    """Write files of a segment, durably, their names included. Raises `OSError`: what was written is gone again."""
    directory = topic_dir(segment.topic_id)
    _make_directories(fs, directory, durable)
    made: list[str] = []
    try:
        for path, content in files.items():
            _write_file(fs, path, content, made)
        fs.fsync_dir(directory)
    except OSError:
        remove(fs, made)
        raise


def _make_directories(fs: Fs, directory: str, durable: set[str]) -> None:
    """Make the directory of a topic's segments, durably."""
    for path, parent in ((TOPICS_DIR, ""), (directory, TOPICS_DIR)):
        if path not in durable:
            fs.mkdir(path)
            fs.fsync_dir(parent)
            durable.add(path)


def segment_of(info: SegmentInfo, number: int, offset: int) -> Segment:
    """What is known of a segment (a piece, with `offset`) without reading its rows."""
    return Segment(
        info.topic_id,
        info.first_seq,
        info.rows,
        info.present,
        number,
        offset,
        info.data_len,
        info.first_ts,
        info.last_ts,
        info.flags,
    )


def remove(fs: Fs, paths: Sequence[str]) -> list[str]:
    """Remove files that do not count; one that cannot be removed stays, a leftover. Returns those, and why."""
    left = []
    for path in paths:
        try:
            fs.unlink(path)
        except OSError as error:
            left.append(f"{path}: {error.strerror}")
    return left


def remove_empty(fs: Fs, directory: str) -> bool:
    """Remove a directory if there is nothing in it; whether it is gone."""
    try:
        fs.rmdir(directory)
    except OSError:
        return False
    return True


def _check_bytes(built: Built) -> bytes:
    return built.data_check.to_bytes(CHECK_LEN, "little")


def _header(kind: FileKind, run: int, store_id: bytes, id_: int, first: int, now_ms: int) -> bytes:
    return pack_file_header(FileHeader(FORMAT_VERSION, kind, run, store_id, id_, first, now_ms))


def _write_file(fs: Fs, path: str, buffers: Sequence[Buffer], made: list[str]) -> None:
    """Write a new file, sync it, and read it back; its directory entry is the caller's to sync."""
    handle = create(fs, path)
    made.append(path)
    try:
        write_whole(fs, handle, [flat_of(buffer) for buffer in buffers], 0)
        fs.fdatasync(handle)
        digest = xxh3_64()
        for buffer in buffers:
            digest.update(flat_of(buffer))
        read_back(fs, handle, path, sum(map(len, buffers)), digest.intdigest())
    finally:
        fs.close(handle)


def flat_of(buffer: Buffer) -> bytes | memoryview:
    """A buffer as the calls of a file system take it."""
    return memoryview(buffer) if isinstance(buffer, bytearray) else buffer


def read_back(fs: Fs, handle: int, path: str, size: int, digest: int) -> None:
    """Compare what the file now holds with what was written. Raises `OSError`."""
    found, offset = xxh3_64(), 0
    while part := fs.pread(handle, READ_BACK, offset):
        found.update(part)
        offset += len(part)
    if offset != size or found.intdigest() != digest:
        raise OSError(errno.EIO, "what was written does not read back", path)


class TailsWriter:
    """Writes one tails file: `add` each piece, then `finish`; or `abandon` it."""

    __slots__ = ("_digest", "_fs", "_handle", "_offset", "_pending", "_pending_bytes", "_written", "number", "path")

    def __init__(self, fs: Fs, store_id: bytes, now_ms: int, number: int) -> None:
        self._fs = fs
        self.number = number
        self.path = tails_path(number)
        if not fs.exists(META_DIR):
            fs.mkdir(META_DIR)
            fs.fsync_dir("")
        self._handle: int | None = create(fs, self.path)
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._digest = xxh3_64()
        self._offset = self._written = 0
        self._put(_header(FileKind.TAILS, number, store_id, 0, number, now_ms))

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._offset

    def add(self, built: Built) -> Segment:
        """Add a piece. Raises `OSError`; the file is then of no use any more (`abandon`)."""
        segment = segment_of(built.info, self.number, self._offset)
        self._put(built.index)
        for buffer in built.data:
            self._put(buffer)
        self._put(_check_bytes(built))
        self._put(bytes(-self._offset % PIECE_ALIGN))
        if self._pending_bytes >= FLUSH_BYTES:
            self._flush()
        return segment

    def finish(self) -> None:
        """Make the file and its name durable, and read it back. Raises `OSError`: nothing counts then."""
        assert self._handle is not None, "a tails file is finished once"
        try:
            self._flush()
            self._fs.fdatasync(self._handle)
            read_back(self._fs, self._handle, self.path, self._offset, self._digest.intdigest())
            self._fs.fsync_dir(META_DIR)
        except OSError:
            self.abandon()
            raise
        self._fs.close(self._handle)
        self._handle = None

    def abandon(self) -> None:
        """Remove the file; nothing happens when it is finished or gone already."""
        if self._handle is not None:
            self._fs.close(self._handle)
            self._handle = None
            remove(self._fs, (self.path,))
        self._pending.clear()

    def _put(self, buffer: Buffer) -> None:
        if buffer:
            self._pending.append(buffer)
            self._pending_bytes += len(buffer)
            self._offset += len(buffer)

    def _flush(self) -> None:
        assert self._handle is not None, "a tails file is written until it is finished"
        flat = [flat_of(buffer) for buffer in self._pending]
        write_whole(self._fs, self._handle, flat, self._written)
        for buffer in flat:
            self._digest.update(buffer)
        self._written, self._pending_bytes = self._offset, 0
        self._pending.clear()


def write_deletes(
    fs: Fs, store_id: bytes, now_ms: int, segment: Segment, version: int, ranges: Sequence[tuple[int, int]]
) -> int:
    """Write version `version` of a segment's deleted rows (ascending inclusive ranges of rows), durably.

    Returns the digest that the snapshot has to name. The segment itself is not changed. Raises `OSError`.
    """
    assert not segment.in_tails, "deleted rows of a piece are the snapshot's"
    body = pack_deletes(segment.number, ranges)
    header = _header(FileKind.SEGMENT_DELETES, version, store_id, segment.topic_id, segment.first_seq, now_ms)
    made: list[str] = []
    try:
        _write_file(fs, segment.del_path(version), (header, body), made)
        fs.fsync_dir(topic_dir(segment.topic_id))
    except OSError:
        remove(fs, made)
        raise
    return parse_check(body, len(body) - CHECK_LEN)
