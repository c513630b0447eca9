"""Reading segments and pieces: rows, chunks of records, tags, deletions. Everything is checked after it was read.

A page asks for a stretch of rows and gets it in as few chunks as it may: one read, no copy, and a check of each of the
64-record sums. Only where a sum fails are records looked at one by one, so that one flipped bit costs the records it
lies in and nothing else. Index rows that do not check are made again
from the data, as far as that can be proven (`engine.segment.mend`), and the segment is then `worn`. A file that says
that it belongs to another store or place is as good as none: what it should hold is lost, and nothing else. In the cold
tier it is none of ours to judge, and neither is a newer format here: `StoreForeign`, and nothing counts as lost.

A `SegmentFiles` is for one thread: it closes the file used longest ago when it opens one too many. Jobs in a pool make
their own. Nothing here decides what damage means: `DamagedSegment` names the rows, the owner of the topic tells readers
(a `corruption` gap), adds them to `Segment.bad`, and asks again. Where the disk refused bytes it may be nothing yet, as
`unread` says.
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import Final, TypeAlias

from xxhash import xxh3_64_intdigest

from engine.errors import StoreForeign
from engine.formats.header import FILE_HEADER_LEN, FileKind
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
    parse_info,
    sums_len,
)
from engine.formats.tagtable import TagTable, parse_filter, parse_filter_len
from engine.fs import REFUSED, Fs, OpenMode
from engine.ranges import Ranges, ranges_of
from engine.segment.damaged import DamagedSegment
from engine.segment.few import GONE, is_few, read_few
from engine.segment.mend import LOW, mend_rows
from engine.segment.segment import CHUNK_RECORDS, Segment
from engine.segment.whose import ELSEWHERE, Elsewhere, check_header
from engine.tagset import Needle, TagSet

HANDLES_MAX: Final = 64
"""Files that one `SegmentFiles` keeps open."""
MENDED_MAX: Final = 4
"""Indexes made again from data that are kept."""
FILTER_FIRST: Final = 4096
"""What is read of a `.tags` file at first: most filters are shorter."""
CHUNK_BYTES: Final = 1 << 20
"""A chunk is ended before it has more bytes of records, where a sum allows that."""
_TRIES: Final = 3
"""So often in a row what only the data can give is asked for (faults.md F37: an error that lasts)."""


_GROUP_LEN: Final = SUM_ROWS * ROW_LEN
"""Bytes of the rows that one sum covers."""
_COMMA: Final = b","
_MISSING: Final = -1
"""Stands for the handle of a file that is not there."""


Bytes: TypeAlias = bytes | bytearray | memoryview


class Rows:
    """Index rows of consecutive seqs; a column is cut out of them when it is asked for.

    first_row, count    which rows of the segment
    offsets             count + 1 numbers: where the bytes of record i begin in the segment's data, with those of the
                        comma after each
    bounds              the same, from where the first record of these begins: record i has the bytes bounds[i] …
                        bounds[i + 1] - 2 of a chunk's data, and none when the two are equal
    first_ts, last_ts   the `$ts` of the first and of the last one
    ts                  one for all, or an array
    parts               lengths of the node, meta and tag parts, None where no record of the segment has one
    """

    __slots__ = ("_begin", "_bounds", "_end", "_view", "count", "first_row", "offsets")

    def __init__(self, first_row: int, view: RowView, begin: int, end: int, offsets: array[int]) -> None:
        """The rows `begin … end - 1` of a view, of which `offsets` are `view.bounds()`."""
        self.first_row = first_row
        self.count = end - begin
        self.offsets = offsets if self.count == view.count else offsets[begin : end + 1]
        self._bounds: array[int] | None = None
        self._view = view
        self._begin = begin
        self._end = end

    @property
    def bounds(self) -> array[int]:
        if self._bounds is None:
            self._bounds = minus(self.offsets, self.offsets[0])
        return self._bounds

    @property
    def first_ts(self) -> int:
        return self._view.ts_at(self._begin)

    @property
    def last_ts(self) -> int:
        return self._view.ts_at(self._end - 1)

    def ts_at(self, index: int) -> int:
        """The `$ts` of one of them."""
        return self._view.ts_at(self._begin + index)

    @property
    def ts(self) -> int | array[int]:
        return self._view.tss(self._begin, self._end)

    @property
    def parts(self) -> tuple[array[int] | None, array[int] | None, array[int] | None]:
        return self._view.parts(self._begin, self._end)


class Chunk(Rows):
    """Rows with the bytes of their records: what a hot block is made of."""

    __slots__ = ("data",)

    def __init__(
        self, first_row: int, view: RowView, begin: int, end: int, offsets: array[int], data: bytes | bytearray
    ) -> None:
        super().__init__(first_row, view, begin, end, offsets)
        self.data = data


class SegmentFiles:
    """The segments of one store, for one thread."""

    __slots__ = (
        "_elsewhere",
        "_fs",
        "_handles",
        "_mended",
        "_pairs",
        "_refused",
        "_store_id",
        "_strange",
        "handles_max",
    )

    def __init__(self, fs: Fs, store_id: bytes, handles_max: int = HANDLES_MAX) -> None:
        self._fs = fs
        self._store_id = store_id
        self.handles_max = handles_max
        """How many files it keeps open."""
        self._handles: dict[str, int] = {}
        """By path, the one opened or looked up longest ago first."""
        self._pairs: dict[Segment, tuple[int, int]] = {}
        """Those of the data and of the index of a segment that was read, as long as no handle is given back: to make
        the paths and to look them up costs as much as to read the rows."""
        self._mended: dict[Segment, tuple[bytes, Ranges]] = {}
        self._refused = False
        """Whether the disk has refused something that is being read now."""
        self._elsewhere: set[str] = set()
        """Paths of files that were taken for none."""
        self._strange: set[Segment] = set()
        """Those where the index of something else was found under a header of theirs."""

    def __enter__(self) -> SegmentFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give all handles back."""
        self._pairs.clear()
        while self._handles:
            self._fs.close(self._handles.popitem()[1])
        self._mended.clear()

    def forget(self, segment: Segment) -> None:
        """Close the files of a segment that is going to be removed."""
        self._mended.pop(segment, None)
        self._pairs.clear()
        for path in (segment.data_path, segment.idx_path, segment.tags_path):
            handle = self._handles.pop(path, None)
            if handle is not None:
                self._fs.close(handle)

    # -- what readers ask ----------------------------------------------------------------------------------------------

    def rows(self, segment: Segment, start: int, stop: int) -> Rows:
        """The rows `start … stop - 1`, from `.idx` alone. Raises `DamagedSegment`, `StoreForeign`, `OSError`."""
        self._refused = False
        first, rows, _ = self._rows(segment, start, stop)
        return Rows(start, rows, start - first, stop - first, rows.bounds())

    def chunks(self, segment: Segment, start: int, stop: int, *, nowait: bool = False) -> list[Chunk] | None:
        """The records `start … stop - 1`, and those around them that the same sums cover, in chunks of `CHUNK_BYTES`;
        without those around them where they are few among much (engine/segment/few.py).

        None when `nowait` and the disk would have to be asked. Raises `DamagedSegment` for rows that are not in
        `segment.bad` yet, `StoreForeign`, `OSError`.

        What comes from the cold tier may have been hurt on its way here: it is damage when it is so twice.
        """
        worn = segment.worn
        try:
            return self._chunks(segment, start, stop, nowait=nowait)
        except DamagedSegment:
            if not segment.cold:
                raise
        segment.worn = worn
        self.forget(segment)
        return self._chunks(segment, start, stop, nowait=nowait)

    def _chunks(self, segment: Segment, start: int, stop: int, *, nowait: bool) -> list[Chunk] | None:
        self._refused = False
        pair = self._pairs.get(segment)
        handle = self._open_data(segment, nowait=nowait) if pair is None else pair[0]
        if handle is None:
            return None
        first, rows, sums = self._rows(segment, start, stop)
        if pair is None and not segment.in_tails:
            self._pair(segment)
        offsets = rows.bounds()
        begin, end = start - first, min(stop - first, rows.count)
        if not (segment.bad or segment.cold or handle == _MISSING) and is_few(offsets, begin, end):
            few = read_few(self._fs, handle, segment, (first, rows, sums), (begin, end), nowait=nowait)
            if few is None or few:
                return None if few is None else [Chunk(start, rows, begin, end, offsets, few)]
        chunks: list[Chunk] = []
        bad: list[int] = []
        at = 0
        while at < rows.count:
            upto = _chunk_end(offsets, at)
            covered = offsets if upto - at == rows.count else offsets[at : upto + 1]
            data = self._data(handle, segment, covered, nowait=nowait)
            if data is None:
                return None
            if segment.bad or not _checks(data, offsets, sums, at, upto):
                data, news = self._located(segment, first, rows, sums, at, upto, bytearray(data))
                bad += news
            chunks.append(Chunk(first + at, rows, at, upto, offsets, data))
            at = upto
        if bad:
            fail = "record fails its check" if len(bad) == 1 else "records fail their checks"
            raise self._damaged(segment, segment.data_path, bad, f"{len(bad)} {fail} or cannot be read")
        return chunks

    def _located(
        self, segment: Segment, first: int, rows: RowView, sums: array[int], at: int, upto: int, data: bytearray
    ) -> tuple[bytearray, list[int]]:
        """Look for what is wrong in the data of the rows `at … upto - 1` of those that were read, of which row `first`
        of the segment is the first one: the data, with what is bad blanked out and commas put right, and which rows of
        the segment are bad and not known to be."""
        offsets, checks = rows.bounds(), rows.checks()
        base, bad = offsets[at], []
        for begin in range(at, upto, SUM_ROWS):
            end = min(begin + SUM_ROWS, upto)
            if offsets[end] > offsets[begin] > base:
                border = slice(offsets[begin] - base - 1, offsets[begin] - base)
                segment.worn = segment.worn or data[border] != _COMMA
                data[border] = _COMMA
            known = any(low < first + end and high >= first + begin for low, high in segment.bad)
            if not known and _checks(memoryview(data)[offsets[begin] - base :], offsets, sums, begin, end):
                continue
            segment.worn = segment.worn or not known
            news = []
            for row in range(begin, end):
                start, stop = offsets[row] - base, offsets[row + 1] - base
                if stop == start:
                    continue
                if _within(segment.bad, first + row):
                    data[start : stop - 1] = bytes(stop - 1 - start)
                elif xxh3_64_intdigest(memoryview(data)[start : stop - 1]) & LOW != checks[row]:
                    news.append(first + row)
                if stop - 1 < len(data):
                    data[stop - 1 : stop] = _COMMA
            group = memoryview(data)[offsets[begin] - base :]
            if not (news or known) and self._differs(segment, group, offsets, first, begin, end):
                # No record alone is to blame, yet together they are not what was written.
                news = [first + row for row in range(begin, end) if offsets[row + 1] > offsets[row]]
            bad += news
        return data, bad

    def tag_rows(self, segment: Segment, needle: Needle) -> array[int]:
        """The rows whose tag passes, ascending, dead records' included: from `.tags`, else by looking at all of them.

        Raises what `chunks` raises.
        """
        rows = self.table_rows(segment, needle)
        if rows is not None:
            return rows
        found = array("I")
        for at in range(0, segment.count, CHUNK_RECORDS):
            for chunk in self.chunks(segment, at, min(at + CHUNK_RECORDS, segment.count)) or ():
                found.extend(_tagged(chunk, needle))
        return found

    def table_rows(self, segment: Segment, needle: Needle) -> array[int] | None:
        """As `tag_rows` from `.tags` alone; None where there is none that can be used. Raises `OSError`."""
        if not segment.has_tag:
            return array("I")
        if segment.in_tails:
            return None
        try:
            rows = TagTable(self._whole(segment, segment.tags_path, FileKind.SEGMENT_TAGS)).rows(needle)
            if not rows or rows[-1] < segment.count:
                return rows
            segment.worn = True
        except (BadSegment, StoreForeign):
            segment.worn = True
        except OSError as error:
            if error.errno not in GONE:
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
            if error.errno not in GONE:
                raise
            segment.worn = True
            return None

    # -- files ---------------------------------------------------------------------------------------------------------

    def _open(self, segment: Segment, path: str, kind: FileKind, *, nowait: bool = False) -> int | None:
        """A handle of a file, whose header was looked at; None when that would have to wait."""
        handle = self._handles.pop(path, None)
        if handle is None:
            while len(self._handles) >= self.handles_max:
                self._pairs.clear()
                self._fs.close(self._handles.pop(next(iter(self._handles))))
            fs = self._fs
            handle = fs.open(path, OpenMode.READ)
            try:
                read = fs.pread_nowait if nowait else fs.pread
                header = read(handle, FILE_HEADER_LEN, 0)
                if header is not None:
                    proven = check_header(bytes(header), segment, path, kind, self._store_id)
                    if kind is FileKind.SEGMENT_TAGS and not proven:
                        raise Elsewhere(path)  # a table does not say whose it is, and records say the same
            except BaseException as error:
                if not isinstance(error, OSError) or not self._is_gone(error):
                    fs.close(handle)
                    raise
                header = b""
            if header is None:
                fs.close(handle)
                return None
        self._handles[path] = handle
        return handle

    def _pair(self, segment: Segment) -> None:
        """Remember the handles of a segment with files of its own, if both are open."""
        data, index = self._handles.get(segment.data_path), self._handles.get(segment.idx_path)
        if data is not None and index is not None:
            self._pairs[segment] = (data, index)

    def _open_data(self, segment: Segment, *, nowait: bool = False) -> int | None:
        """`_open` of the data; `_MISSING` when the disk has lost the file. Of what is cold that says nothing."""
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                return self._open(segment, segment.data_path, FileKind.SEGMENT_DATA, nowait=nowait)
            except Elsewhere:
                if segment.cold:
                    raise
                self._elsewhere.add(segment.data_path)
                break
            except OSError as error:
                if segment.cold or error.errno not in GONE:
                    raise
                if error.errno == errno.ENOENT or not tries_left:
                    self._is_gone(error)
                    break
        return _MISSING

    def _is_gone(self, error: OSError) -> bool:
        """Whether an error says that bytes cannot be had; that it was the disk that refused them is remembered."""
        self._refused = self._refused or error.errno in REFUSED
        return error.errno in GONE

    def _whole(self, segment: Segment, path: str, kind: FileKind) -> bytes:
        """All of a file behind its header."""
        handle = self._open(segment, path, kind)
        assert handle is not None, "a read that may wait is answered"
        return self._fs.pread(handle, self._fs.size(handle), FILE_HEADER_LEN)

    def _piece(self, segment: Segment, offset: int, length: int) -> bytes:
        """Bytes of the index, zeros where there are none."""
        if segment in self._strange:
            return bytes(length)
        try:
            pair = self._pairs.get(segment)
            handle = self._open(segment, segment.idx_path, FileKind.SEGMENT_INDEX) if pair is None else pair[1]
            assert handle is not None, "a read that may wait is answered"
            return self._fs.pread(handle, length, offset).ljust(length, b"\0")
        except Elsewhere:
            self._elsewhere.add(segment.idx_path)
            return bytes(length)
        except OSError as error:
            if not self._is_gone(error):
                raise
            return bytes(length)

    def _damaged(self, segment: Segment, path: str, rows: list[int], why: str) -> DamagedSegment:
        """What to raise for rows that are lost; where they should be there may be a file of something else."""
        elsewhere = path in self._elsewhere or segment in self._strange
        why = ELSEWHERE if elsewhere else "the disk refuses bytes that its records need" if self._refused else why
        return DamagedSegment(segment, path, ranges_of(rows), why, unread=self._refused and not elsewhere)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(self, segment: Segment, start: int, stop: int) -> tuple[int, RowView, array[int]]:
        """The groups of rows that hold `start … stop - 1`: which row is their first, the rows, and their sums."""
        if not segment.own:
            self._recognise(segment)
        first = start - start % SUM_ROWS
        last = min(-(-stop // SUM_ROWS) * SUM_ROWS, segment.count)
        groups = segment.sums_offset + first // SUM_ROWS * SUM_LEN
        sums = array("Q", self._piece(segment, groups, segment.sums_offset + sums_len(last) - groups))
        mended = self._mended.get(segment)
        if mended is None:
            rows = self._piece(segment, segment.rows_offset + first * ROW_LEN, (last - first) * ROW_LEN)
            view = memoryview(rows)
            found = [xxh3_64_intdigest(view[at : at + _GROUP_LEN]) for at in range(0, len(rows), _GROUP_LEN)]
            if found == sums[0::2].tolist():
                return first, RowView(rows, segment.flags), sums
            mended = self._mend(segment)
        all_rows, bad = mended
        news = [row for a, b in bad for row in range(max(a, first), min(b + 1, last)) if not _within(segment.bad, row)]
        if news:
            why = f"the index of {len(news)} records cannot be made again"
            raise self._damaged(segment, segment.idx_path, news, why)
        return first, RowView(all_rows[first * ROW_LEN : last * ROW_LEN], segment.flags), sums

    def _recognise(self, segment: Segment) -> None:
        """Find out whether the index is that of this segment: a disk may have written another's to its place. An info
        that does not check proves nothing."""
        info = parse_info(self._piece(segment, segment.info_offset, INFO_LEN))
        ours = (segment.topic_id, segment.first_seq, segment.count, segment.present, segment.data_len, segment.flags)
        if info is not None and info[:6] != ours:
            self._strange.add(segment)
        else:
            segment.own = True

    def _mend(self, segment: Segment) -> tuple[bytes, Ranges]:
        """Make the rows that do not check again, from the data; which of them cannot be. That is kept, unless it is so
        only because the disk refuses what it would be made from."""
        rows = self._piece(segment, segment.rows_offset, segment.count * ROW_LEN)
        sums = self._piece(segment, segment.sums_offset, sums_len(segment.count))
        handle = self._open_data(segment)
        assert handle is not None, "a read that may wait is answered"
        data = b""
        for _ in range(_TRIES if handle != _MISSING else 0):
            try:
                data = self._fs.pread(handle, segment.data_len + CHECK_LEN, segment.data_offset)
                break
            except OSError as error:
                if not self._is_gone(error):
                    raise
        data = data.ljust(segment.data_len + CHECK_LEN, b"\0")
        check = parse_check(data, segment.data_len)
        data = data[: segment.data_len]
        proven = xxh3_64_intdigest(data) == check
        made = mend_rows(rows, sums, data, segment.first_seq, segment.flags, data_proven=proven)
        if not (made[1] and self._refused):
            while len(self._mended) >= MENDED_MAX:
                del self._mended[next(iter(self._mended))]
            self._mended[segment] = made
        segment.worn = True
        return made

    # -- data ----------------------------------------------------------------------------------------------------------

    def _data(self, handle: int, segment: Segment, offsets: array[int], *, nowait: bool) -> bytes | bytearray | None:
        """The bytes of the records at `offsets`, zeros where there are none; None when `nowait` and they are not at
        hand."""
        length = max(offsets[-1] - offsets[0] - 1, 0)
        if handle == _MISSING:
            return bytes(length)
        at = segment.data_offset + offsets[0]
        data: bytes | bytearray | None
        try:
            data = self._fs.pread_nowait(handle, length, at) if nowait else self._fs.pread(handle, length, at)
        except OSError as error:
            if error.errno not in GONE:
                raise
            data = self._piecewise(handle, segment.data_offset, offsets)
        if data is not None and len(data) < length:
            return data.ljust(length, b"\0")
        return data

    def _piecewise(self, handle: int, offset: int, offsets: array[int]) -> bytearray:
        """The same of what cannot be read at once: a few records at a time, and where that fails one by one."""
        data = bytearray(max(offsets[-1] - offsets[0] - 1, 0))
        last = len(offsets) - 1
        for begin in range(0, last, SUM_ROWS):
            end = min(begin + SUM_ROWS, last)
            if not self._read_into(data, handle, offset, offsets[0], (offsets[begin], offsets[end])):
                for bounds in pairwise(offsets[begin : end + 1]):
                    self._read_into(data, handle, offset, offsets[0], bounds)
        return data

    def _read_into(self, data: bytearray, handle: int, offset: int, base: int, bounds: tuple[int, int]) -> bool:
        """Read what lies between two offsets to its place in `data`; False when the disk has lost some of it."""
        start, length = bounds[0], bounds[1] - bounds[0] - 1
        if length > 0:
            try:
                part = self._fs.pread(handle, length, offset + start)
            except OSError as error:
                if not self._is_gone(error):
                    raise
                return False
            data[start - base : start - base + len(part)] = part
        return True

    def _differs(
        self, segment: Segment, group: memoryview, offsets: array[int], first: int, begin: int, end: int
    ) -> bool:
        """Whether a group of rows is not what was written, by sums that are proven to be those that were written.

        They are read again for that: what they were compared with before may be what could not be read then.
        """
        info = parse_info(self._piece(segment, segment.info_offset, INFO_LEN))
        sums = self._piece(segment, segment.sums_offset, sums_len(segment.count))
        if info is None or info.sums_check != xxh3_64_intdigest(sums):
            return False
        return not _checks(group, offsets, array("Q", sums)[2 * first // SUM_ROWS :], begin, end)


def _chunk_end(offsets: array[int], at: int) -> int:
    """Where the chunk ends that begins with row `at`: where a sum does, or all rows do."""
    last = len(offsets) - 1
    upto = bisect_right(offsets, offsets[at] + CHUNK_BYTES, at + 1) - 1
    return last if upto == last else min(max(upto - (upto - at) % SUM_ROWS, at + SUM_ROWS), last)


def _checks(data: Bytes, offsets: array[int], sums: array[int], at: int, upto: int) -> bool:
    """Whether the data of the rows `at … upto - 1` of those that `offsets` and `sums` cover is what was written: the
    sums, and the commas between what they cover. `data` begins with row `at`."""
    view = memoryview(data)
    base = offsets[at]
    borders = [offset - base for offset in offsets[at:upto:SUM_ROWS]]
    borders.append(offsets[upto] - base)
    # A group without a record may differ here although nothing is wrong: then each is looked at for itself.
    expected = sums[2 * at // SUM_ROWS + 1 : 2 * -(-upto // SUM_ROWS) : 2].tolist()
    if [xxh3_64_intdigest(view[start : stop - 1]) for start, stop in pairwise(borders)] == expected:
        commas = b"".join([view[border - 1 : border] for border in borders[1:-1]])
        if commas == _COMMA * (len(borders) - 2):
            return True
    return _checks_each(view, borders, expected)


def _checks_each(view: memoryview, borders: list[int], expected: list[int]) -> bool:
    """As `_checks`, where groups may have no record: they have no comma, and no sum is asked of them."""
    for (start, stop), digest in zip(pairwise(borders), expected, strict=True):
        if stop > start:
            if xxh3_64_intdigest(view[start : stop - 1]) != digest:
                return False
            if start > 0 and view[start - 1] != _COMMA[0]:
                return False
    return True


def _within(ranges: Ranges, row: int) -> bool:
    return any(first <= row <= last for first, last in ranges)


def _tagged(chunk: Chunk, needle: Needle) -> list[int]:
    tag_lens = chunk.parts[2]
    if tag_lens is None:
        return []
    data, bounds = chunk.data, chunk.bounds
    return [
        chunk.first_row + index
        for index, size in enumerate(tag_lens)
        if size and needle.accepts(bytes(data[bounds[index + 1] - 2 - size : bounds[index + 1] - 2]))
    ]
