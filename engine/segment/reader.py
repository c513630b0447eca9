"""Reading segments and pieces: rows, chunks of records, tags, deletions. Everything is checked after it was read.

A page asks for chunks, whose 64-record sums are checked as a whole; only where a sum fails are records looked at one by
one, so that one flipped bit costs the records it lies in and nothing else. Index rows that do not check are made again
from the data, as far as that can be proven (`engine.segment.mend`), and the segment is then `worn`.

A `SegmentFiles` is for one thread: it closes the file used longest ago when it opens one too many. Jobs in a pool make
their own. Nothing here decides what damage means: `DamagedSegment` names the rows, the owner of the topic tells readers
(a `corruption` gap), adds them to `Segment.bad`, and asks again.
"""

from __future__ import annotations

import errno
from array import array
from itertools import pairwise
from typing import Final

from xxhash import xxh3_64_intdigest

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileKind, parse_file_header
from engine.formats.segment import (
    CHECK_LEN,
    INFO_LEN,
    ROW_LEN,
    SUM_LEN,
    SUM_ROWS,
    BadSegment,
    RowView,
    minus,
    parse_check,
    parse_deletes,
    parse_info,
    sums_len,
)
from engine.formats.tagtable import TagTable, parse_filter, parse_filter_len
from engine.fs import Fs, OpenMode
from engine.segment.mend import LOW, Ranges, mend_rows, ranges_of
from engine.segment.segment import CHUNK_RECORDS, Segment
from engine.tagset import Needle, TagSet

HANDLES_MAX: Final = 64
"""Files that one `SegmentFiles` keeps open."""
MENDED_MAX: Final = 4
"""Indexes made again from data that are kept."""
FILTER_FIRST: Final = 4096
"""What is read of a `.tags` file at first: most filters are shorter."""
_GONE: Final = (errno.EIO, errno.ENOENT, errno.ENODATA, errno.EUCLEAN)
"""Errors that say that the disk has lost the bytes; all others are the caller's."""


_MISSING: Final = -1
"""Stands for the handle of a file that is not there."""


class DamagedSegment(StoreDamaged):
    """Records that do not check, or cannot be read: `rows` are exactly those, as ascending inclusive ranges."""

    def __init__(self, segment: Segment, path: str, rows: Ranges, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.segment = segment
        self.path = path
        self.rows = rows
        self.why = why


class Rows:
    """Index rows of consecutive seqs, as arrays.

    first_row, count    which rows of the segment
    bounds              count + 1 numbers: record i has the bytes bounds[i] … bounds[i + 1] - 2 of a chunk's data, and
                        none when the two are equal
    ts                  one for all, or an array
    …_lens              lengths of the parts, None where no record of the segment has one
    """

    __slots__ = ("bounds", "count", "first_row", "meta_lens", "node_lens", "tag_lens", "ts")

    def __init__(self, first_row: int, bounds: array[int], rows: RowView, begin: int, end: int) -> None:
        self.first_row = first_row
        self.count = end - begin
        self.bounds = bounds
        self.ts = rows.tss(begin, end)
        self.node_lens, self.meta_lens, self.tag_lens = rows.parts(begin, end)


class Chunk(Rows):
    """Rows with the bytes of their records: what a hot block is made of."""

    __slots__ = ("data",)

    def __init__(self, first_row: int, bounds: array[int], rows: RowView, begin: int, end: int, data: bytes) -> None:
        super().__init__(first_row, bounds, rows, begin, end)
        self.data = data


class SegmentFiles:
    """The segments of one store, for one thread."""

    __slots__ = ("_fs", "_handles", "_handles_max", "_mended", "_store_id")

    def __init__(self, fs: Fs, store_id: bytes, handles_max: int = HANDLES_MAX) -> None:
        self._fs = fs
        self._store_id = store_id
        self._handles_max = handles_max
        self._handles: dict[str, int] = {}
        """By path, the one used longest ago first."""
        self._mended: dict[Segment, tuple[bytes, Ranges]] = {}

    def __enter__(self) -> SegmentFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give all handles back."""
        while self._handles:
            self._fs.close(self._handles.popitem()[1])
        self._mended.clear()

    def forget(self, segment: Segment) -> None:
        """Close the files of a segment that is going to be removed."""
        self._mended.pop(segment, None)
        for path in (segment.data_path, segment.idx_path, segment.tags_path):
            handle = self._handles.pop(path, None)
            if handle is not None:
                self._fs.close(handle)

    # -- what readers ask ----------------------------------------------------------------------------------------------

    def rows(self, segment: Segment, start: int, stop: int) -> Rows:
        """The rows `start … stop - 1`, from `.idx` alone. Raises `DamagedSegment`, `StoreForeign`, `OSError`."""
        first, rows = self._rows(segment, start, stop)
        bounds = rows.bounds()[start - first : stop - first + 1]
        return Rows(start, minus(bounds, bounds[0]), rows, start - first, stop - first)

    def chunks(self, segment: Segment, start: int, stop: int, *, nowait: bool = False) -> list[Chunk] | None:
        """The chunks (of `CHUNK_RECORDS` rows, the last may be shorter) that hold the rows `start … stop - 1`.

        None when `nowait` and the disk would have to be asked. Raises `DamagedSegment` for rows that are not in
        `segment.bad` yet, `StoreForeign`, `OSError`.
        """
        start -= start % CHUNK_RECORDS
        stop = min(-(-stop // CHUNK_RECORDS) * CHUNK_RECORDS, segment.count)
        handle = self._open_data(segment, nowait=nowait)
        if handle is None:
            return None
        _, rows = self._rows(segment, start, stop)
        all_bounds = rows.bounds()
        sums = self._sums(segment, start, stop)
        chunks, bad = [], []
        for at in range(0, stop - start, CHUNK_RECORDS):
            upto = min(at + CHUNK_RECORDS, stop - start)
            base = all_bounds[at]
            bounds = minus(all_bounds[at : upto + 1], base)
            data = self._data(handle, segment, base, bounds, nowait=nowait)
            if data is None:
                return None
            known = segment.bad and any(a < start + upto and b >= start + at for a, b in segment.bad)
            if known or not _checks(data, bounds, sums, at):
                data, news = _located(segment, start + at, bounds, rows.checks()[at:upto], data)
                segment.worn = segment.worn or not known
                if not (news or known or _checks(data, bounds, sums, at)) and self._sums_check(segment):
                    # No record alone is to blame, yet together they are not what was written.
                    news = [start + row for row, length in enumerate(rows.lengths()[at:upto], at) if length]
                bad += news
            chunks.append(Chunk(start + at, bounds, rows, at, upto, data))
        if bad:
            raise DamagedSegment(
                segment, segment.data_path, ranges_of(bad), f"{len(bad)} records fail their checks or cannot be read"
            )
        return chunks

    def tag_rows(self, segment: Segment, needle: Needle) -> array[int]:
        """The rows whose tag passes, ascending, dead records' included: from `.tags`, else by looking at all of them.

        Raises what `chunks` raises.
        """
        rows = self.table_rows(segment, needle)
        if rows is not None:
            return rows
        found = array("I")
        for at in range(0, segment.count, CHUNK_RECORDS):
            for chunk in self.chunks(segment, at, at + 1) or ():
                found.extend(_tagged(chunk, needle))
        return found

    def table_rows(self, segment: Segment, needle: Needle) -> array[int] | None:
        """As `tag_rows` from `.tags` alone; None where there is none that can be used. Raises `OSError`."""
        if not segment.has_tag:
            return array("I")
        if segment.in_tails:
            return None
        try:
            return TagTable(self._whole(segment, segment.tags_path, FileKind.SEGMENT_TAGS)).rows(needle)
        except (BadSegment, StoreForeign):
            segment.worn = True
        except OSError as error:
            if error.errno not in _GONE:
                raise
            segment.worn = True
        return None

    def tag_set(self, segment: Segment) -> TagSet | None:
        """Which tags occur, from the filter in `.tags`; None when it cannot be told. Raises `OSError`."""
        if segment.in_tails or not segment.has_tag:
            return None if segment.has_tag else TagSet(set())
        try:
            handle = self._open(segment, segment.tags_path, FileKind.SEGMENT_TAGS)
            assert handle is not None, "a read that may wait is answered"
            data = self._fs.pread(handle, FILTER_FIRST, FILE_HEADER_LEN)
            total = parse_filter_len(data)
            if total > len(data):
                data += self._fs.pread(handle, total - len(data), FILE_HEADER_LEN + len(data))
            return parse_filter(data)
        except (BadSegment, StoreForeign):
            segment.worn = True
            return None
        except OSError as error:
            if error.errno not in _GONE:
                raise
            segment.worn = True
            return None

    # -- files ---------------------------------------------------------------------------------------------------------

    def _open(self, segment: Segment, path: str, kind: FileKind, *, nowait: bool = False) -> int | None:
        """A handle of a file, whose header was looked at; None when that would have to wait."""
        handle = self._handles.pop(path, None)
        if handle is None:
            while len(self._handles) >= self._handles_max:
                self._fs.close(self._handles.pop(next(iter(self._handles))))
            fs = self._fs
            handle = fs.open(path, OpenMode.READ)
            try:
                read = fs.pread_nowait if nowait else fs.pread
                header = read(handle, FILE_HEADER_LEN, 0)
                if header is not None:
                    check_header(header, segment, path, kind, self._store_id)
            except BaseException as error:
                if not isinstance(error, OSError) or error.errno not in _GONE:
                    fs.close(handle)
                    raise
                header = b""
            if header is None:
                fs.close(handle)
                return None
        self._handles[path] = handle
        return handle

    def _open_data(self, segment: Segment, *, nowait: bool = False) -> int | None:
        """`_open` of the data; `_MISSING` when the disk has lost the file. Of what is cold that says nothing."""
        try:
            return self._open(segment, segment.data_path, FileKind.SEGMENT_DATA, nowait=nowait)
        except OSError as error:
            if segment.cold or error.errno not in _GONE:
                raise
            return _MISSING

    def _whole(self, segment: Segment, path: str, kind: FileKind) -> bytes:
        """All of a file behind its header."""
        handle = self._open(segment, path, kind)
        assert handle is not None, "a read that may wait is answered"
        return self._fs.pread(handle, self._fs.size(handle), FILE_HEADER_LEN)

    def _piece(self, segment: Segment, offset: int, length: int) -> bytes:
        """Bytes of the index, zeros where there are none."""
        try:
            handle = self._open(segment, segment.idx_path, FileKind.SEGMENT_INDEX)
            assert handle is not None, "a read that may wait is answered"
            return self._fs.pread(handle, length, offset).ljust(length, b"\0")
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return bytes(length)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _sums(self, segment: Segment, start: int, stop: int) -> array[int]:
        """The sums of the groups that hold the rows `start … stop - 1`, two numbers each."""
        offset, end = start // SUM_ROWS * SUM_LEN, sums_len(stop)
        return array("Q", self._piece(segment, segment.sums_offset + offset, end - offset))

    def _rows(self, segment: Segment, start: int, stop: int) -> tuple[int, RowView]:
        """The groups of rows that hold `start … stop - 1`, and which row is their first."""
        first = start - start % SUM_ROWS
        last = min(-(-stop // SUM_ROWS) * SUM_ROWS, segment.count)
        if segment not in self._mended:
            rows = self._piece(segment, segment.rows_offset + first * ROW_LEN, (last - first) * ROW_LEN)
            sums = self._sums(segment, first, last)
            view = memoryview(rows)
            for at in range(0, last - first, SUM_ROWS):
                if xxh3_64_intdigest(view[at * ROW_LEN : (at + SUM_ROWS) * ROW_LEN]) != sums[2 * at // SUM_ROWS]:
                    self._mend(segment)
                    break
            else:
                return first, RowView(rows, segment.flags)
        all_rows, bad = self._mended[segment]
        news = [row for a, b in bad for row in range(max(a, first), min(b + 1, last)) if not _within(segment.bad, row)]
        if news:
            raise DamagedSegment(
                segment, segment.idx_path, ranges_of(news), f"the index of {len(news)} records cannot be made again"
            )
        return first, RowView(all_rows[first * ROW_LEN : last * ROW_LEN], segment.flags)

    def _mend(self, segment: Segment) -> None:
        """Make the rows that do not check again, from the data."""
        rows = self._piece(segment, segment.rows_offset, segment.count * ROW_LEN)
        sums = self._piece(segment, segment.sums_offset, sums_len(segment.count))
        handle = self._open_data(segment)
        assert handle is not None, "a read that may wait is answered"
        try:
            data = b""
            if handle != _MISSING:
                data = self._fs.pread(handle, segment.data_len + CHECK_LEN, segment.data_offset)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            data = b""
        data = data.ljust(segment.data_len + CHECK_LEN, b"\0")
        check = parse_check(data, segment.data_len)
        data = data[: segment.data_len]
        proven = xxh3_64_intdigest(data) == check
        while len(self._mended) >= MENDED_MAX:
            del self._mended[next(iter(self._mended))]
        self._mended[segment] = mend_rows(rows, sums, data, segment.first_seq, segment.flags, data_proven=proven)
        segment.worn = True

    # -- data ----------------------------------------------------------------------------------------------------------

    def _data(self, handle: int, segment: Segment, base: int, bounds: array[int], *, nowait: bool) -> bytes | None:
        """The bytes of a chunk, zeros where there are none; None when `nowait` and they are not at hand."""
        length = max(bounds[-1] - 1, 0)
        if handle == _MISSING:
            return bytes(length)
        offset = segment.data_offset + base
        try:
            data = self._fs.pread_nowait(handle, length, offset) if nowait else self._fs.pread(handle, length, offset)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            data = self._piecewise(handle, offset, bounds)
        if data is not None and len(data) < length:
            return data.ljust(length, b"\0")
        return data

    def _piecewise(self, handle: int, offset: int, bounds: array[int]) -> bytes:
        """The bytes of a chunk, record by record, because not all of them can be read."""
        data = bytearray(max(bounds[-1] - 1, 0))
        for at, upto in pairwise(bounds):
            if upto > at:
                try:
                    part = self._fs.pread(handle, upto - at - 1, offset + at)
                except OSError as error:
                    if error.errno not in _GONE:
                        raise
                    continue
                data[at : at + len(part)] = part
        return bytes(data)

    def _sums_check(self, segment: Segment) -> bool:
        """Whether the sums are those that were written."""
        info = parse_info(self._piece(segment, segment.info_offset, INFO_LEN))
        sums = self._piece(segment, segment.sums_offset, sums_len(segment.count))
        return info is not None and info.sums_check == xxh3_64_intdigest(sums)


def check_header(data: bytes, segment: Segment, path: str, kind: FileKind, store_id: bytes) -> bool:
    """Whether the header of a segment's file is whole. Raises `StoreForeign` when it is another file's.

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
        raise StoreForeign(f"{path} is a file of another store, kind or place")
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
        raise StoreForeign(f"{path} is a file of another store, kind or place")
    if (header.id, header.first) != (segment.topic_id, segment.first_seq):
        raise StoreForeign(f"{path} is a file of another store, kind or place")
    try:
        number, ranges, found = parse_deletes(data[FILE_HEADER_LEN:])
    except BadSegment as error:
        raise StoreDamaged(f"{path}: {error}") from error
    if number != segment.number or found != digest:
        raise StoreDamaged(f"{path}: it is not the version that the snapshot names")
    return ranges


def _checks(data: bytes, bounds: array[int], sums: array[int], at: int) -> bool:
    """Whether the data of a chunk matches its sums; `at` is where the chunk begins among the rows that `sums` cover."""
    view = memoryview(data)
    last = len(bounds) - 1
    for row in range(0, last, SUM_ROWS):
        start, stop = bounds[row], bounds[min(row + SUM_ROWS, last)]
        if stop > start and xxh3_64_intdigest(view[start : stop - 1]) != sums[2 * (at + row) // SUM_ROWS + 1]:
            return False
    return True


def _located(
    segment: Segment, first_row: int, bounds: array[int], checks: array[int], data: bytes
) -> tuple[bytes, list[int]]:
    """Look at each record of a chunk: the data with what is bad blanked out and commas put right, and the rows that
    are bad and not known to be.

    Called when a sum fails. When every record checks, the commas alone were hit, or the sum.
    """
    fixed = bytearray(data)
    news = []
    for row, ((start, stop), check) in enumerate(zip(pairwise(bounds), checks, strict=True), first_row):
        if stop == start:
            continue
        if _within(segment.bad, row):
            fixed[start : stop - 1] = bytes(stop - 1 - start)
        elif xxh3_64_intdigest(data[start : stop - 1]) & LOW != check:
            news.append(row)
        if stop - 1 < len(fixed):
            fixed[stop - 1] = 0x2C
    return bytes(fixed), news


def _within(ranges: Ranges, row: int) -> bool:
    return any(first <= row <= last for first, last in ranges)


def _tagged(chunk: Chunk, needle: Needle) -> list[int]:
    if chunk.tag_lens is None:
        return []
    data, bounds = chunk.data, chunk.bounds
    return [
        chunk.first_row + index
        for index, size in enumerate(chunk.tag_lens)
        if size and needle.accepts(data[bounds[index + 1] - 2 - size : bounds[index + 1] - 2])
    ]
