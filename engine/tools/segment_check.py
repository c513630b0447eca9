"""A segment of an opened store checked to its last byte, through the reader that the daemon has.

Damage is said exactly: the records that a flipped bit lies in, or that an index (or a tag table) does not check, and
what that means: it is made again from the data. Single files, wherever they lie, are `engine.tools.segment_file`'s.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from xxhash import xxh3_64, xxh3_64_intdigest

from engine.errors import StoreDamaged
from engine.formats.header import FILE_HEADER_LEN, FileHeader, parse_file_header
from engine.formats.segment import (
    CHECK_LEN,
    INFO_LEN,
    ROW_LEN,
    SUM_ROWS,
    BadSegment,
    parse_check,
    parse_info,
    sums_len,
)
from engine.formats.tagtable import TagTable, parse_filter
from engine.fs import Fs, OpenMode
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import SegmentFiles
from engine.segment.segment import CHUNK_RECORDS, Segment
from engine.segment.tiers import ColdError, ColdMissingError
from engine.tools.finding import Finding, FindingId, Severity

ROWS_AT_ONCE: Final = 16 * CHUNK_RECORDS
_READ: Final = 1 << 20
_NEXT: Final = "readers meet a gap there, and everything else is served; `topics recover DIR --to NEW` saves the rest"
MENDS: Final = "nothing is lost: it is made again from the data, and written anew at the next rewrite"

Found = Callable[[Finding], None]


def check_segment(
    fs: Fs,
    files: SegmentFiles,
    segment: Segment,
    topic: str,
    found: Found,
    heard: Callable[[int], None] = lambda _: None,
    *,
    data: bool = True,
) -> list[tuple[int, int]]:
    """Check everything of a segment; returns its bad rows. `heard` gets bytes as they are read. Raises `OSError`."""
    bad: list[tuple[int, int]] = []
    at = 0
    while at < segment.count:
        stop = min(at + ROWS_AT_ONCE, segment.count)
        try:
            if data:
                for chunk in files.chunks(segment, at, stop) or ():
                    heard(len(chunk.data))
            else:
                files.rows(segment, at, stop)
        except DamagedSegment as error:
            if all(within(segment.bad, first) and within(segment.bad, last) for first, last in error.rows):
                at = stop
                continue
            bad += error.rows
            segment.bad = sorted({*segment.bad, *error.rows})
            for first, last in error.rows:
                found(_bad_rows(segment, topic, error.path, first, last, error.why))
            continue
        except StoreDamaged as error:
            found(damage_at(FindingId.SEGMENT_DATA, segment.data_path, str(error), topic, _seqs(segment)))
            return [(0, segment.count - 1)]
        at = stop
    if data and not bad:
        _check_whole(fs, segment, topic, found)
    _check_index(fs, segment, topic, found)
    if segment.has_tag and not segment.in_tails:
        _check_tags(fs, segment, topic, found)
    return bad


def _seqs(segment: Segment) -> tuple[int, int]:
    return segment.first_seq, segment.last_seq


def cold_finding(segment: Segment, topic: str, error: ColdError) -> Finding:
    """That a segment's data cannot be had from the cold tier."""
    step = "mount it, or say where it is with --cold DIR, and run this again"
    if isinstance(error, ColdMissingError):
        step = "put the file back from a backup; else `topics recover DIR --to NEW --cold-lost` saves the rest"
    return damage_at(FindingId.COLD, segment.data_path, error.strerror or str(error), topic, _seqs(segment), step)


def damage_at(
    kind: FindingId,
    file: str,
    what: str,
    topic: str | None = None,
    seqs: tuple[int, int] | None = None,
    next_step: str = _NEXT,
    offset: int | None = None,
) -> Finding:
    return Finding(
        severity=Severity.DAMAGE,
        id=kind,
        file=file,
        offset=offset,
        topic=topic,
        seqs=seqs,
        what=what,
        next_step=next_step,
    )


def _bad_rows(segment: Segment, topic: str, path: str, first: int, last: int, why: str) -> Finding:
    count = last - first + 1
    kind = FindingId.SEGMENT_INDEX if path.endswith(".idx") else FindingId.SEGMENT_DATA
    seqs = segment.first_seq + first, segment.first_seq + last
    return damage_at(kind, path, f"{count} record{'s' * (count != 1)} of it cannot be believed: {why}", topic, seqs)


def _check_whole(fs: Fs, segment: Segment, topic: str, found: Found) -> None:
    """What lies between and behind records: commas, and the check over all of the data."""
    handle = fs.open(segment.data_path, OpenMode.READ)
    try:
        if not segment.in_tails:
            _header_of(fs, handle, segment.data_path, found, topic)
        stored, computed = data_check(fs, handle, segment.data_offset, segment.data_len)
    finally:
        fs.close(handle)
    if stored != computed:
        what = (
            f"all records check, and the check over the data does not (stored {stored:016x}, computed {computed:016x})"
        )
        found(
            damage_at(
                FindingId.SEGMENT_DATA, segment.data_path, what, topic, None, "nothing is lost: a rewrite mends it"
            )
        )


def data_check(fs: Fs, handle: int, offset: int, length: int) -> tuple[int, int]:
    """The check behind some data as it is stored, and as it should be."""
    whole, end = xxh3_64(), offset + length
    while offset < end:
        part = fs.pread(handle, min(_READ, end - offset), offset)
        if not part:
            break
        whole.update(part)
        offset += len(part)
    stored = fs.pread(handle, CHECK_LEN, end).ljust(CHECK_LEN, b"\0")
    return parse_check(stored, 0), whole.intdigest()


def _header_of(fs: Fs, handle: int, path: str, found: Found, topic: str | None) -> FileHeader | None:
    header = parse_file_header(fs.pread(handle, FILE_HEADER_LEN, 0))
    if header is None:
        kind = FindingId.SEGMENT_INDEX if path.endswith(".idx") else FindingId.SEGMENT_DATA
        found(damage_at(kind, path, "the file header does not check", topic, None, MENDS, 0))
    return header


def _check_index(fs: Fs, segment: Segment, topic: str, found: Found) -> None:
    path = segment.idx_path
    try:
        handle = fs.open(path, OpenMode.READ)
    except FileNotFoundError:
        found(damage_at(FindingId.SEGMENT_INDEX, path, "it is missing", topic, _seqs(segment), MENDS))
        return
    try:
        if not segment.in_tails:
            _header_of(fs, handle, path, found, topic)
        info = parse_info(fs.pread(handle, INFO_LEN, segment.info_offset))
        rows = fs.pread(handle, segment.count * ROW_LEN, segment.rows_offset)
        sums = fs.pread(handle, sums_len(segment.count), segment.sums_offset)
    finally:
        fs.close(handle)
    why = None
    if info is None:
        why = "what it says of itself does not check"
    elif (info.topic_id, info.first_seq, info.rows) != (segment.topic_id, segment.first_seq, segment.count):
        why = f"it says that it is of topic {info.topic_id:x}, from seq {info.first_seq}, {info.rows} rows"
    elif info.sums_check != xxh3_64_intdigest(sums):
        why = "its sums do not check"
    elif not _rows_check(rows, sums):
        why = "some of its rows do not check"
    if why is not None:
        found(damage_at(FindingId.SEGMENT_INDEX, path, why, topic, _seqs(segment), MENDS, segment.info_offset))


def _rows_check(rows: bytes, sums: bytes) -> bool:
    """Whether each 64 rows have their sum."""
    said = array("Q", sums)[0::2]
    step = SUM_ROWS * ROW_LEN
    return all(xxh3_64_intdigest(rows[at * step : (at + 1) * step]) == check for at, check in enumerate(said))


def _check_tags(fs: Fs, segment: Segment, topic: str, found: Found) -> None:
    path = segment.tags_path
    try:
        handle = fs.open(path, OpenMode.READ)
    except FileNotFoundError:
        found(damage_at(FindingId.SEGMENT_TAGS, path, "it is missing", topic, _seqs(segment), MENDS))
        return
    try:
        data = fs.pread(handle, fs.size(handle), 0)
    finally:
        fs.close(handle)
    why = None
    try:
        if parse_file_header(data) is None:
            why = "the file header does not check"
        TagTable(data[FILE_HEADER_LEN:])
        parse_filter(data[FILE_HEADER_LEN:])
    except BadSegment as error:
        why = str(error)
    if why is not None:
        found(damage_at(FindingId.SEGMENT_TAGS, path, why, topic, _seqs(segment), MENDS))


def within(ranges: list[tuple[int, int]], row: int) -> bool:
    """Whether a row lies in one of the inclusive ranges."""
    return any(first <= row <= last for first, last in ranges)
