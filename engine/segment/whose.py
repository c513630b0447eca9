"""Whose a file is: headers of the files of segments, and the lists of deleted rows, which nothing else can prove."""

from __future__ import annotations

from typing import Final

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileKind, parse_file_header
from engine.formats.segment import BadSegment, parse_deletes
from engine.fs import Fs, OpenMode
from engine.ranges import Ranges
from engine.segment.few import GONE
from engine.segment.segment import Segment

ELSEWHERE: Final = "it is a file of another store, kind or place"


class Elsewhere(StoreForeign):
    """A whole file of another store, kind or place stands where ours should be."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: {ELSEWHERE}")


def check_header(data: bytes, segment: Segment, path: str, kind: FileKind, store_id: bytes) -> bool:
    """Whether the header of a segment's file is whole. Raises `StoreForeign` when it is another file's, or newer.

    One that does not check proves nothing: what follows has checks of its own, and those decide.
    """
    header = parse_file_header(data)
    if header is None:
        return False
    if header.version > FORMAT_VERSION:
        raise StoreForeign(f"{path} has format {header.version}, newer than {FORMAT_VERSION}, the newest known")
    place = (kind, segment.topic_id, segment.first_seq)
    if segment.in_tails:
        place = (FileKind.TAILS, 0, segment.number)
    if header.store_id != store_id or (*place, segment.number) != (header.kind, header.id, header.first, header.run):
        raise Elsewhere(path)
    return True


def is_ours(fs: Fs, store_id: bytes, segment: Segment) -> bool:
    """Whether the header of a segment's data says nothing else. Raises `StoreForeign` for a newer format, `OSError`."""
    path = segment.data_path
    handle = fs.open(path, OpenMode.READ)
    try:
        check_header(fs.pread(handle, FILE_HEADER_LEN, 0), segment, path, FileKind.SEGMENT_DATA, store_id)
    except Elsewhere:
        return False
    except OSError as error:
        if error.errno not in GONE:
            raise
    finally:
        fs.close(handle)
    return True


def read_deletes(fs: Fs, store_id: bytes, segment: Segment, version: int, digest: int) -> Ranges:
    """The deleted rows of a segment as version `version` of its `.del` file has them, ascending and inclusive.

    Raises `StoreDamaged` (never an empty list) when the file is not the one that `digest` names, `OSError`.
    """
    path = segment.del_path(version)
    handle = fs.open(path, OpenMode.READ)
    try:
        data = fs.pread(handle, fs.size(handle), 0)
    finally:
        fs.close(handle)
    header = parse_file_header(data)
    if header is None:
        raise StoreDamaged(f"{path}: its header fails its check")
    if header.store_id != store_id or header[1:3] != (FileKind.SEGMENT_DELETES, version):
        raise Elsewhere(path)
    if (header.id, header.first) != (segment.topic_id, segment.first_seq):
        raise Elsewhere(path)
    try:
        number, ranges, found = parse_deletes(data[FILE_HEADER_LEN:])
    except BadSegment as error:
        raise StoreDamaged(f"{path}: {error}") from error
    if number != segment.number or found != digest:
        raise StoreDamaged(f"{path}: it is not the version that the snapshot names")
    return ranges
