"""Single files of checkpoints looked at, wherever they lie: segments, tails files, deleted rows, snapshots.

A `.data` takes its geometry from the index beside it, and the other way round; without one, the check over all of the
data is what is left. Records are checked as `engine.tools.segment_check` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from engine.errors import StoreDamaged
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind, parse_file_header
from engine.formats.segment import (
    CHECK_LEN,
    INFO_LEN,
    PIECE_ALIGN,
    BadSegment,
    SegmentInfo,
    index_len,
    parse_deletes,
    parse_info,
)
from engine.formats.snapshot import BadSnapshot, SnapshotDecoder, tails_path
from engine.formats.tagtable import TagTable, parse_filter
from engine.fs import OpenMode
from engine.segment.reader import SegmentFiles
from engine.segment.segment import CHUNK_RECORDS, Segment
from engine.segment.write import segment_of
from engine.tools.finding import FileReport, Finding, FindingId, Kind, Span, add_span
from engine.tools.readonly import ReadOnlyFs
from engine.tools.segment_check import MENDS, ROWS_AT_ONCE, check_segment, damage_at, data_check, within

_READ: Final = 1 << 20
_FOREIGN_STEP: Final = "nothing in it was read: put the right file in its place, or look with the version that wrote it"
_KINDS: Final = {
    FileKind.WAL: "log file: use wal-inspect",
    FileKind.SEGMENT_DATA: "segment data",
    FileKind.SEGMENT_INDEX: "segment index",
    FileKind.SEGMENT_TAGS: "segment tags",
    FileKind.SEGMENT_DELETES: "deleted rows of a segment",
    FileKind.TAILS: "tails of topics",
    FileKind.SNAPSHOT: "snapshot",
}


class Relocated(ReadOnlyFs):
    """A directory whose files are also found by the paths that they would have in a store."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.names: dict[str, str] = {}
        """Path in a store → name here."""

    def open(self, path: str, mode: OpenMode) -> int:
        return super().open(self.names.get(path, path), mode)


class FileLook:
    """One file of a checkpoint: `report` says all that there is to say."""

    def __init__(self, fs: Relocated, name: str, label: str, heard: Callable[[float], None]) -> None:
        self.fs = fs
        self.name = name
        self.label = label
        self.findings: list[Finding] = []
        self.spans: list[Span] = []
        self.facts: dict[str, Any] = {}
        self.pieces: list[Segment] = []
        """What records can be read from."""
        self.store_id = bytes(16)
        self._heard = heard
        self._handle = -1
        self._size = 0

    def report(self) -> FileReport:
        """Read the file to its end. Raises `OSError`."""
        fs = self.fs
        self._handle = fs.open(self.name, OpenMode.READ)
        try:
            self._size = fs.size(self._handle)
            header = parse_file_header(fs.pread(self._handle, FILE_HEADER_LEN, 0))
            self._begin(header)
        finally:
            fs.close(self._handle)
        return FileReport(file=self.label, facts=self.facts, findings=self.findings, spans=self.spans)

    def _say(self, kind: FindingId, what: str, **more: Any) -> None:
        if kind is FindingId.FOREIGN:
            more["next_step"] = _FOREIGN_STEP
        self.findings.append(damage_at(kind, self.label, what, **more))

    def _begin(self, header: FileHeader | None) -> None:
        kind = self._kind(header)
        self.facts = {"kind": _KINDS.get(kind, "unknown") if kind is not None else "unknown"}
        if header is not None:
            self.store_id = header.store_id
            self.facts |= {
                "format": header.version,
                "store": header.store_id.hex(),
                "topic_id": f"{header.id:x}",
                "first": header.first,
                "run": header.run,
                "created_ms": header.created_ms,
            }
        self.facts["size_bytes"] = self._size
        good = header is not None and header.version <= FORMAT_VERSION
        add_span(self.spans, Kind.HEADER if good else Kind.DAMAGED, 0, min(FILE_HEADER_LEN, self._size))
        if header is None:
            self._say(
                FindingId.SEGMENT_INDEX if kind else FindingId.FOREIGN, "the file header does not check", offset=0
            )
        elif header.version > FORMAT_VERSION:
            self._say(
                FindingId.FOREIGN, f"it has format {header.version}, newer than {FORMAT_VERSION}, the newest known"
            )
            return
        match kind:
            case FileKind.SEGMENT_DATA | FileKind.SEGMENT_INDEX:
                self._segment(kind, header)
            case FileKind.SEGMENT_TAGS:
                self._tags()
            case FileKind.SEGMENT_DELETES:
                self._deletes()
            case FileKind.TAILS:
                self._tails(header)
            case FileKind.SNAPSHOT:
                self._snapshot()
            case _:
                add_span(self.spans, Kind.DAMAGED, FILE_HEADER_LEN, self._size - FILE_HEADER_LEN)
                if header is not None:
                    self._say(FindingId.FOREIGN, f"it is no file of a checkpoint but kind {header.kind}")

    def _kind(self, header: FileHeader | None) -> FileKind | None:
        """What the file is, by its header, else by its name."""
        if header is not None:
            return FileKind(header.kind) if header.kind in list(FileKind) else None
        for ending, kind in (
            (".idx", FileKind.SEGMENT_INDEX),
            (".tags", FileKind.SEGMENT_TAGS),
            (".del", FileKind.SEGMENT_DELETES),
            (".snap", FileKind.SNAPSHOT),
        ):
            if self.name.endswith(ending):
                return kind
        if self.name.endswith(".data"):
            return FileKind.TAILS if self.name.startswith("tails-") else FileKind.SEGMENT_DATA
        return None

    def _rest(self, kind: Kind) -> None:
        add_span(self.spans, kind, FILE_HEADER_LEN, self._size - FILE_HEADER_LEN)

    # -- segments ------------------------------------------------------------------------------------------------------

    def _segment(self, kind: FileKind, header: FileHeader | None) -> None:
        """A `.data` or an `.idx`, with the other one beside it."""
        stem = self.name.rpartition(".")[0]
        info = self._info(stem + ".idx", FILE_HEADER_LEN)
        if info is None:
            self._alone(kind)
            return
        other = self._other_header(stem + (".idx" if kind is FileKind.SEGMENT_DATA else ".data"))
        known = header or other
        number = known.run if known is not None else 0
        if known is not None:
            self.store_id = known.store_id
        segment = segment_of(info, number, 0)
        names = {segment.data_path: stem + ".data", segment.idx_path: stem + ".idx", segment.tags_path: stem + ".tags"}
        self.fs.names.update(names)
        bad = self._check(segment)
        self._describe(info)
        if kind is FileKind.SEGMENT_INDEX:
            self._rest(Kind.DAMAGED if self.findings else Kind.GOOD)
        else:
            self.facts["data_check"] = "stored {:016x}, computed {:016x}".format(*self._whole_check())
            self._row_spans(segment, bad, self._deleted(stem, segment))

    def _info(self, name: str, offset: int) -> SegmentInfo | None:
        try:
            handle = self.fs.open(name, OpenMode.READ)
        except OSError:
            return None
        try:
            info = parse_info(self.fs.pread(handle, INFO_LEN, offset))
        finally:
            self.fs.close(handle)
        return info

    def _other_header(self, name: str) -> FileHeader | None:
        try:
            handle = self.fs.open(name, OpenMode.READ)
        except OSError:
            return None
        try:
            return parse_file_header(self.fs.pread(handle, FILE_HEADER_LEN, 0))
        finally:
            self.fs.close(handle)

    def _check(self, segment: Segment) -> list[tuple[int, int]]:
        done = 0

        def heard(length: int) -> None:
            nonlocal done
            done += length
            self._heard(done / max(segment.data_len, 1))

        before = len(self.findings)
        with SegmentFiles(self.fs, self.store_id) as files:
            try:
                bad = check_segment(self.fs, files, segment, f"#{segment.topic_id:x}", self.findings.append, heard)
            except OSError as error:
                self._say(FindingId.UNREADABLE, f"it cannot be read: {error.strerror or error}")
                bad = [(0, segment.count - 1)]
        self.pieces.append(segment)
        for at in range(before, len(self.findings)):
            path = self.findings[at].file
            if segment.in_tails or self.fs.names.get(path) == self.name:
                self.findings[at] = _renamed(self.findings[at], self.label)
        return bad

    def _describe(self, info: SegmentInfo) -> None:
        self.facts |= {
            "seqs": f"{info.first_seq}-{info.first_seq + info.rows - 1}",
            "rows": info.rows,
            "records": info.present,
            "data_bytes": info.data_len,
            "first_ts": info.first_ts,
            "last_ts": info.last_ts,
        }

    def _deleted(self, stem: str, segment: Segment) -> list[tuple[int, int]]:
        """The deleted rows, by the newest version beside the file."""
        found: list[tuple[int, list[tuple[int, int]]]] = []
        for name in self.fs.list(""):
            if name.startswith(stem + ".") and name.endswith(".del"):
                handle = self.fs.open(name, OpenMode.READ)
                try:
                    data = self.fs.pread(handle, self.fs.size(handle), 0)
                finally:
                    self.fs.close(handle)
                header = parse_file_header(data)
                try:
                    if header is not None:
                        found.append((header.run, parse_deletes(data[FILE_HEADER_LEN:])[1]))
                except BadSegment as error:
                    self._say(FindingId.SEGMENT_DELETES, f"{name}: {error}")
        if not found:
            return []
        version, ranges = max(found)
        self.facts["deleted"] = sum(last - first + 1 for first, last in ranges)
        self.facts["deletes_version"] = version
        return [(first, min(last, segment.count - 1)) for first, last in ranges]

    def _row_spans(self, segment: Segment, bad: list[tuple[int, int]], deleted: list[tuple[int, int]]) -> None:
        """The strip of a data file: good records, deleted ones, damaged ones."""
        with SegmentFiles(self.fs, self.store_id) as files:
            for at in range(0, segment.count, ROWS_AT_ONCE):
                try:
                    rows = files.rows(segment, at, min(at + ROWS_AT_ONCE, segment.count))
                except (StoreDamaged, OSError):
                    self._rest(Kind.DAMAGED)
                    return
                offset = self.spans[-1].offset + self.spans[-1].length
                for row in range(rows.count):
                    length = rows.bounds[row + 1] - rows.bounds[row]
                    kind = Kind.GOOD
                    if within(bad, at + row):
                        kind = Kind.DAMAGED
                    elif within(deleted, at + row):
                        kind = Kind.DELETED
                    add_span(self.spans, kind, offset, min(length, self._size - offset))
                    offset += length

    def _whole_check(self) -> tuple[int, int]:
        """The check over all of the data: as it is stored behind it, and as it is."""
        length = max(self._size - FILE_HEADER_LEN - CHECK_LEN, 0)
        return data_check(self.fs, self._handle, FILE_HEADER_LEN, length)

    def _alone(self, kind: FileKind) -> None:
        """Without an index that can be believed: the check over all of the data is what is left."""
        if kind is FileKind.SEGMENT_INDEX:
            self._say(FindingId.SEGMENT_INDEX, "what it says of itself does not check", offset=FILE_HEADER_LEN)
            self._rest(Kind.DAMAGED)
            return
        length = self._size - FILE_HEADER_LEN - CHECK_LEN
        stored, computed = self._whole_check()
        self.facts |= {"data_bytes": max(length, 0), "index": "missing or damaged: the data was checked as a whole"}
        good = length >= 0 and stored == computed
        if not good:
            self._say(
                FindingId.SEGMENT_DATA, f"the data does not check (stored {stored:016x}, computed {computed:016x})"
            )
        self._rest(Kind.GOOD if good else Kind.DAMAGED)

    # -- the others ----------------------------------------------------------------------------------------------------

    def _tags(self) -> None:
        data = self.fs.pread(self._handle, self._size, FILE_HEADER_LEN)
        try:
            TagTable(data)
            parse_filter(data)
        except BadSegment as error:
            self._say(FindingId.SEGMENT_TAGS, str(error), next_step=MENDS)
            self._rest(Kind.DAMAGED)
            return
        self._rest(Kind.GOOD)

    def _deletes(self) -> None:
        data = self.fs.pread(self._handle, self._size, FILE_HEADER_LEN)
        try:
            number, ranges, digest = parse_deletes(data)
        except BadSegment as error:
            next_step = "an older snapshot and the log, else its segment, is what a start falls back to"
            self._say(FindingId.SEGMENT_DELETES, str(error), next_step=next_step)
            self._rest(Kind.DAMAGED)
            return
        rows = sum(last - first + 1 for first, last in ranges)
        self.facts |= {"segment_number": number, "ranges": len(ranges), "deleted": rows, "digest": f"{digest:016x}"}
        self._rest(Kind.GOOD)

    def _tails(self, header: FileHeader | None) -> None:
        """Piece after piece; behind one that says nothing of itself, the next that does."""
        number = header.run if header is not None else 0
        at, pieces, records = FILE_HEADER_LEN, 0, 0
        self.fs.names[tails_path(number)] = self.name
        while at + INFO_LEN <= self._size:
            info = parse_info(self.fs.pread(self._handle, INFO_LEN, at))
            end = 0 if info is None else at + index_len(info.rows) + info.data_len + CHECK_LEN
            if info is None or end > self._size:
                behind = self._next_piece(at + PIECE_ALIGN)
                what = f"{behind - at} bytes are no piece of a topic that can be believed"
                self._say(FindingId.SEGMENT_DATA, what, offset=at)
                add_span(self.spans, Kind.DAMAGED, at, behind - at)
                at = behind
                continue
            segment = segment_of(info, number, at)
            bad = self._check(segment)
            add_span(self.spans, Kind.DAMAGED if bad else Kind.GOOD, at, end - at)
            pieces, records = pieces + 1, records + info.present
            aligned = -(-end // PIECE_ALIGN) * PIECE_ALIGN
            add_span(self.spans, Kind.EMPTY, end, min(aligned, self._size) - end)
            at = aligned
            self._heard(at / self._size)
        self.facts |= {"pieces": pieces, "records": records}

    def _next_piece(self, at: int) -> int:
        """Where the next piece begins that says what it is, or the end of the file."""
        while at + INFO_LEN <= self._size:
            block = self.fs.pread(self._handle, _READ + INFO_LEN, at)
            for start in range(0, min(len(block) - INFO_LEN, _READ - PIECE_ALIGN) + 1, PIECE_ALIGN):
                # A piece spans at most 2^20 rows and has few flags: hardly anything else looks so.
                if block[start + 19] == 0 and block[start + 28] < 8 and not any(block[start + 29 : start + 32]):
                    info = parse_info(block, start)
                    if info is not None:
                        return at + start
            at += _READ
            self._heard(min(at / self._size, 1.0))
        return self._size

    def _snapshot(self) -> None:
        decoder = SnapshotDecoder()
        offset = FILE_HEADER_LEN
        try:
            while part := self.fs.pread(self._handle, _READ, offset):
                decoder.feed(part)
                offset += len(part)
                self._heard(offset / self._size)
            snapshot = decoder.finish()
        except BadSnapshot as error:
            next_step = "a start takes the older one, with more of the log"
            self._say(FindingId.SNAPSHOT, str(error), next_step=next_step)
            self._rest(Kind.DAMAGED)
            return
        globals_ = snapshot.globals
        self.facts |= {
            "number": globals_.number,
            "predecessor": globals_.predecessor,
            "topics": sum(1 for _ in snapshot.topics()),
            "records": sum(image.count for image, _ in snapshot.topics()),
            "segments": sum(len(image.segments) for image, _ in snapshot.topics()),
            "cuts": {f"shard {cut.shard}": cut.lsn for cut in globals_.cuts},
        }
        self._rest(Kind.GOOD)


def _renamed(finding: Finding, label: str) -> Finding:
    return Finding(
        severity=finding.severity,
        id=finding.id,
        file=label,
        offset=finding.offset,
        topic=finding.topic,
        seqs=finding.seqs,
        what=finding.what,
        next_step=finding.next_step,
    )


class SealedRecord(NamedTuple):
    """A record of a segment, as it lies there."""

    seq: int
    ts: int
    offset: int
    """Of the fragment in the file."""
    fragment: bytes


def records_of(look: FileLook, segment: Segment) -> Iterator[SealedRecord]:
    """The records of a segment that `report` has checked, but for the bad ones."""
    with SegmentFiles(look.fs, look.store_id) as files:
        for at in range(0, segment.count, CHUNK_RECORDS):
            try:
                chunks = files.chunks(segment, at, min(at + CHUNK_RECORDS, segment.count)) or ()
            except (StoreDamaged, OSError):
                return
            for chunk in chunks:
                offset = segment.data_offset + offset_of(files, segment, chunk.first_row)
                for row in range(chunk.count):
                    start, stop = chunk.bounds[row], chunk.bounds[row + 1]
                    if stop > start and not within(segment.bad, chunk.first_row + row):
                        ts = chunk.ts_at(row)
                        seq = segment.first_seq + chunk.first_row + row
                        yield SealedRecord(seq, ts, offset + start, bytes(chunk.data[start : stop - 1]))


def offset_of(files: SegmentFiles, segment: Segment, row: int) -> int:
    """Where the fragment of a row begins in the data of its segment."""
    bounds = files.rows(segment, 0, row + 1).bounds
    return bounds[row]
