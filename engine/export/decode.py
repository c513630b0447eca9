"""A pinned piece (a segment, or a part of a tails file) as Arrow record batches, everything checked on the way.

    index ─► sums and rows, checked ─► windows of whole 64-row groups ─► payload, checked ─► columns ─► batches

The usual way knows only whole columns. Where a check fails, the piece is read again by `engine.segment.reader`, which
mends what can be proven and names exactly the records that cannot; those raise `DamagedRecords`, or are told and left
out. A batch has at most `BATCH_ROWS` rows and `BATCH_BYTES` of payload (one record may be larger), and no more than
one window is in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from engine.errors import DamagedRecords, StoreDamaged
from engine.export.columns import BATCH_ROWS, ROW, batch_of
from engine.formats.export import ExportPiece, ExportTopic
from engine.formats.segment import CHECK_LEN, INFO_LEN, ROW_LEN, SUM_LEN, SUM_ROWS, index_len, parse_info
from engine.fs import Fs, OpenMode
from engine.limits import MIB
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import Chunk, SegmentFiles
from engine.segment.segment import CHUNK_RECORDS, Segment

BATCH_BYTES: Final = 32 * MIB
WINDOW_BYTES: Final = 16 * MIB
"""Payload that is read at once; a single group of 64 records may have more."""
_NUMBER: Final = re.compile(r"-(\d{10})\.")

Ranges = list[tuple[int, int]]
Damaged = Callable[[int, int, str], None]
"""Hears of records that are damaged: first and last seq, inclusive, and the file."""


class _Unchecked(Exception):
    """Something of a piece does not check: it is read the careful way."""


def refuse_damage(topic: str) -> Damaged:
    """A `Damaged` that raises `DamagedRecords`."""

    def damaged(first: int, last: int, path: str) -> None:
        raise DamagedRecords(topic, first, last, path)

    return damaged


class PieceReader:
    """Reads pieces of one topic of a pin. `dead` are ascending inclusive ranges of seqs that are not wanted."""

    def __init__(
        self, fs: Fs, store_id: bytes, topic: ExportTopic, dead: Ranges, oldest_ts: int, damaged: Damaged
    ) -> None:
        """`oldest_ts`: records with an earlier `$ts` are expired."""
        self._fs = fs
        self._store_id = store_id
        self._topic = topic
        self._dead = dead
        self._oldest_ts = oldest_ts
        self._damaged = damaged

    def batches(self, piece: ExportPiece, first: int, last: int) -> Iterator[Any]:
        """The live records of `first … last`. Raises `DamagedRecords`, `StoreDamaged`, `OSError`."""
        first, last = max(first, piece.first_seq), min(last, piece.last_seq)
        done = first - 1
        try:
            for upto, batch in self._quick(piece, first, last):
                yield from batch
                done = upto
        except _Unchecked:
            yield from self._careful(piece, done + 1, last)

    def first_unexpired(self, piece: ExportPiece) -> int:
        """The first seq of a piece whose time is not before `oldest_ts`; one behind the last when there is none."""
        if piece.first_ts >= self._oldest_ts:
            return piece.first_seq
        if piece.last_ts < self._oldest_ts:
            return piece.last_seq + 1
        segment = _segment(self._topic, piece)
        with SegmentFiles(self._fs, self._store_id) as files:
            try:
                stamps = files.rows(segment, 0, segment.count).ts
            except DamagedSegment as damage:
                raise DamagedRecords(self._topic.name, piece.first_seq, piece.last_seq, damage.path) from damage
        if isinstance(stamps, int):
            return piece.first_seq
        return piece.first_seq + int(np.searchsorted(np.frombuffer(stamps, dtype=np.uint64), self._oldest_ts))

    # -- whole columns -------------------------------------------------------------------------------------------------

    def _quick(self, piece: ExportPiece, first: int, last: int) -> Iterator[tuple[int, list[Any]]]:
        """(last seq that is dealt with, batches), window by window. Raises `_Unchecked`."""
        rows, sums = self._index(piece)
        begin, end = first - piece.first_seq, last - piece.first_seq + 1
        wanted = self._wanted(piece.first_seq, rows, begin, end)
        offsets = rows["offset"].astype(np.int64)
        ends = np.where(rows["length"] > 0, offsets + rows["length"], 0)
        edges = np.arange(0, len(rows), SUM_ROWS)
        starts, stops = offsets[edges].tolist(), np.maximum.reduceat(ends, edges).tolist()
        handle = self._open(piece.data)
        try:
            group = begin // SUM_ROWS
            while group * SUM_ROWS < end:
                until = group + 1
                limit = min(group + BATCH_ROWS // SUM_ROWS, -(-end // SUM_ROWS))
                while until < limit and stops[until] - starts[group] <= WINDOW_BYTES:
                    until += 1
                base = starts[group]
                payload = self._payload(handle, piece, base, max(stops[group:until]) - base)
                view = memoryview(payload)
                parts = zip(starts[group:until], stops[group:until], sums[2 * group + 1 : 2 * until : 2], strict=True)
                for start, stop, check in parts:
                    if stop > start and xxh3_64_intdigest(view[start - base : stop - base]) != check:
                        raise _Unchecked
                low, high = max(begin, group * SUM_ROWS), min(end, until * SUM_ROWS)
                kept: Any = low + np.flatnonzero(wanted[low - begin : high - begin])
                yield piece.first_seq + high - 1, list(self._cut(piece.first_seq, rows, kept, payload, base))
                group = until
        finally:
            self._fs.close(handle)

    def _index(self, piece: ExportPiece) -> tuple[Any, Any]:
        """Rows and sums of a piece, all of their checks done. Raises `_Unchecked`."""
        count = piece.last_seq - piece.first_seq + 1
        handle = self._open(piece.index)
        try:
            raw = self._fs.pread(handle, index_len(count), piece.index_offset)
        except OSError as error:
            raise _Unchecked from error
        finally:
            self._fs.close(handle)
        info = parse_info(raw)
        if info is None or len(raw) < index_len(count):
            raise _Unchecked
        if raw[INFO_LEN - CHECK_LEN : INFO_LEN] != int(piece.check, 16).to_bytes(8, "little"):
            raise StoreDamaged(f"{piece.index} is not what the manifest of the pin names")
        view, end = memoryview(raw), INFO_LEN + count * ROW_LEN
        if xxh3_64_intdigest(view[end:]) != info.sums_check:
            raise _Unchecked
        sums = np.frombuffer(raw, dtype="<u8", offset=end).tolist()
        step, rows = SUM_ROWS * ROW_LEN, view[INFO_LEN:end]
        if [xxh3_64_intdigest(rows[start : start + step]) for start in range(0, len(rows), step)] != sums[::2]:
            raise _Unchecked
        assert len(sums) * 8 == -(-count // SUM_ROWS) * SUM_LEN
        return np.frombuffer(raw, dtype=ROW, count=count, offset=INFO_LEN), sums

    def _open(self, path: str) -> int:
        try:
            return self._fs.open(path, OpenMode.READ)
        except FileNotFoundError as error:
            raise StoreDamaged(f"{path} is missing: the pin has expired, or was removed") from error

    def _payload(self, handle: int, piece: ExportPiece, base: int, length: int) -> bytes:
        if length <= 0:
            return b""
        try:
            payload = self._fs.pread(handle, length, piece.data_offset + base)
        except OSError as error:
            raise _Unchecked from error
        if len(payload) < length:
            raise _Unchecked
        return payload

    def _wanted(self, first_seq: int, rows: Any, begin: int, end: int) -> Any:
        """Which of the rows `begin … end - 1` are live."""
        part = rows[begin:end]
        wanted = part["length"] > 0
        if self._oldest_ts:
            wanted &= part["ts"] >= self._oldest_ts
        for low, high in self._dead:
            if high >= first_seq + begin and low < first_seq + end:
                wanted[max(low - first_seq - begin, 0) : high - first_seq - begin + 1] = False
        return wanted

    def _cut(self, first_seq: int, rows: Any, kept: Any, payload: bytes, base: int) -> Iterator[Any]:
        """Batches of some rows of one window, each within its bounds."""
        topic = self._topic
        while len(kept) and (len(payload) > BATCH_BYTES or len(kept) > BATCH_ROWS):
            total = np.cumsum(rows["length"][kept], dtype=np.int64)
            count = max(1, min(BATCH_ROWS, int(np.searchsorted(total, BATCH_BYTES, side="right"))))
            yield batch_of(topic.name, topic.epoch, first_seq, rows, kept[:count], payload, base)
            kept = kept[count:]
        if len(kept):
            yield batch_of(topic.name, topic.epoch, first_seq, rows, kept, payload, base)

    # -- record by record ----------------------------------------------------------------------------------------------

    def _careful(self, piece: ExportPiece, first: int, last: int) -> Iterator[Any]:
        """As `batches` from a piece that does not check as a whole."""
        segment = _segment(self._topic, piece)
        at, end = first - piece.first_seq, last - piece.first_seq + 1
        with SegmentFiles(self._fs, self._store_id) as files:
            while at < end:
                try:
                    chunks = files.chunks(segment, at, min(end, at + CHUNK_RECORDS - at % CHUNK_RECORDS)) or []
                except DamagedSegment as damage:
                    self._tell(piece, damage, at, end)
                    segment.bad = sorted({*segment.bad, *damage.rows})
                    continue
                for chunk in chunks:
                    stop = min(end, chunk.first_row + chunk.count)
                    rows, payload = _rows_of(chunk, segment.bad)
                    begin = at - chunk.first_row
                    base_seq = piece.first_seq + chunk.first_row
                    wanted = self._wanted(base_seq, rows, begin, stop - chunk.first_row)
                    yield from self._cut(base_seq, rows, begin + np.flatnonzero(wanted), payload, 0)
                    at = stop

    def _tell(self, piece: ExportPiece, damage: DamagedSegment, begin: int, end: int) -> None:
        """Say which live records among the rows from `begin` on are damaged."""
        for low, high in damage.rows:
            first, last = max(low, begin) + piece.first_seq, min(high, end - 1) + piece.first_seq
            for start, stop in outside(self._dead, first, last):
                self._damaged(start, stop, damage.path)


def _segment(topic: ExportTopic, piece: ExportPiece) -> Segment:
    """A piece as the engine's own reader knows it."""
    number = _NUMBER.search(piece.data)
    if number is None:
        raise StoreDamaged(f"{piece.data} is no name of a segment")
    return Segment(
        int(topic.id, 16),
        piece.first_seq,
        piece.last_seq - piece.first_seq + 1,
        piece.records,
        int(number[1]),
        piece.index_offset if piece.data == piece.index else 0,
        piece.data_bytes,
        piece.first_ts,
        piece.last_ts,
        piece.flags,
    )


def _rows_of(chunk: Chunk, bad: Ranges) -> tuple[Any, bytes]:
    """A chunk that was read record by record, as index rows of its own and the bytes that they name."""
    rows: Any = np.zeros(chunk.count, dtype=ROW)
    bounds = np.frombuffer(chunk.bounds, dtype=np.uint32)
    rows["offset"] = bounds[:-1]
    rows["length"] = np.maximum(np.diff(bounds.astype(np.int64)) - 1, 0)
    times = chunk.ts
    rows["ts"] = times if isinstance(times, int) else np.frombuffer(times, dtype=np.uint64)
    for name, lens in zip(("node", "meta", "tag"), chunk.parts, strict=True):
        if lens is not None:
            rows[name] = np.frombuffer(lens, dtype=np.uint32)
    for low, high in bad:
        rows["length"][max(low - chunk.first_row, 0) : max(high - chunk.first_row + 1, 0)] = 0
    return rows, bytes(chunk.data)


def outside(ranges: Ranges, first: int, last: int) -> Ranges:
    """What of `first … last` lies in none of the ascending inclusive ranges."""
    left: Ranges = []
    for low, high in ranges:
        if high < first:
            continue
        if low > last:
            break
        if low > first:
            left.append((first, low - 1))
        first = high + 1
    if first <= last:
        left.append((first, last))
    return left


def gathered(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows in fewer batches: small ones are joined up to `BATCH_ROWS` and `BATCH_BYTES`."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES):
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield _joined(held)


def _joined(held: list[Any]) -> Any:
    return held[0] if len(held) == 1 else pa.concat_batches(held)
