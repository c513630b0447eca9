"""One log file looked at by itself: every frame in it, and every place where no frame checks out.

    items()     frames, one after the other, from the first block to the end of the file
    report()    after that: counts, times, damaged places, and the strip

A file by itself says less than a whole log: whether its last frame is the last one of the log, and how the process that
wrote it ended. So the verdict on a place that does not check (`engine.store.verdicts`, the same table as at a start)
takes the evidence of this file, and supposes a power failure, after which the most is normal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from engine.formats.append import BadBody, decode_append_body
from engine.formats.attach import decode_attach_body
from engine.formats.control import CreateBody, decode_control_body
from engine.formats.forward import decode_forward, decode_router_drop, decode_router_put
from engine.formats.frame import (
    CHECK_LEN,
    FRAME_ALIGN,
    FRAME_LEN_MIN,
    HEAD_LEN,
    HEADER_LEN,
    SECTOR,
    FrameHeader,
    FrameType,
    back_to,
    body_check,
    frame_len,
    header_misses_bytes,
    misses_bytes,
    parse_header,
    places,
    seed_of,
)
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind, parse_file_header
from engine.fs import Fs, OpenMode
from engine.store import verdicts
from engine.store.verdicts import After, Evidence, Row, Stop, Verdict
from engine.tools.finding import FileReport, Finding, FindingId, Kind, Severity, Span, add_span
from engine.wal.chain import DATA_START, parse_log_name
from engine.wal.reader import WINDOW, body_of

PLACES_MAX: Final = 1000
"""Damaged places of one file that are kept; beyond, they are only counted."""
TOPICS_MAX: Final = 100_000
"""Topics of one file that are told apart."""
SAVE: Final = "`topics recover DIR --to NEW` saves everything else"


class LogFrame(NamedTuple):
    """A frame whose header and body check."""

    offset: int
    header: FrameHeader
    body: bytes

    @property
    def length(self) -> int:
        return frame_len(self.header.body_len)


class BadPlace(NamedTuple):
    """A place where no frame checks out."""

    offset: int
    length: int
    header: FrameHeader | None
    """The frame's, if that is good."""
    after: After
    missing: bool
    checks: tuple[str, str] | None
    """Stored and computed check of a body, in hex."""


class LogScan:
    """A pass over one file."""

    def __init__(self, fs: Fs, path: str, store_id: bytes | None = None, label: str = "") -> None:
        """`store_id`: for a file whose own header does not check; `label`: what to call the file. Raises `OSError`."""
        self.path = path
        self.label = label or path
        self._fs = fs
        self._handle = fs.open(path, OpenMode.READ)
        self.size = fs.size(self._handle)
        self.done = 0
        """Bytes looked at."""
        self.header: FileHeader | None = parse_file_header(fs.pread(self._handle, FILE_HEADER_LEN, 0))
        named = parse_log_name(path.rpartition("/")[2])
        self.named = named
        said = self.header
        known = store_id or (said.store_id if said is not None else None)
        self._seed = None if known is None else seed_of(known)
        self.first_lsn = said.first if said is not None else named[0] if named is not None else 0
        self.spans: list[Span] = []
        self.bad: list[BadPlace] = []
        self.bad_count = 0
        self.types: Counter[int] = Counter()
        self.topics: Counter[int] = Counter()
        self.records = 0
        self.frame_bytes = 0
        self.durable_lsn = 0
        self.first_ts = self.last_ts = 0
        self.names: dict[int, str] = {}
        """Names of topics by id, from what this file says; may be shared with other files of the log."""
        self._data, self._base = b"", 0

    def close(self) -> None:
        """Give the handle back."""
        self._fs.close(self._handle)

    # -- reading -------------------------------------------------------------------------------------------------------

    def items(self) -> Iterator[LogFrame]:
        """Every frame that checks; what does not is in `bad` afterwards. Raises `OSError`."""
        header_good = self.header is not None and self.header.kind == FileKind.WAL
        add_span(self.spans, Kind.HEADER if header_good else Kind.DAMAGED, 0, min(DATA_START, self.size))
        if self._seed is None or (self.header is not None and not header_good):
            add_span(self.spans, Kind.DAMAGED, DATA_START, self.size - DATA_START)
            self.done = self.size
            return
        at, last = DATA_START, None
        while at + FRAME_LEN_MIN <= self.size:
            lsn = self.lsn(at)
            buffer, start = self._at(at, HEADER_LEN)
            header = parse_header(self._seed, buffer, start, lsn)
            if header is None:
                found = self._skip(at, last)
                if found is None:
                    break
                at = found
                continue
            total = frame_len(header.body_len)
            if start + total > len(buffer):
                buffer, start = self._at(at, total)
            body = body_of(buffer, start, header, self._seed)
            if body is None:
                self._bad_body(at, header, bytes(buffer[start : start + total]))
            else:
                self._good(at, header)
                if header.type in (FrameType.CREATE, FrameType.ATTACH) and len(self.names) < TOPICS_MAX:
                    self._learn(header, body)
                yield LogFrame(at, header, body)
            last = lsn
            at += total
            self.done = at
        self.done = self.size

    def lsn(self, offset: int) -> int:
        """The position in the stream of a place in the file."""
        return self.first_lsn + offset - DATA_START

    def _at(self, offset: int, length: int) -> tuple[bytes, int]:
        start = offset - self._base
        if start < 0 or start + length > len(self._data):
            self._data = self._fs.pread(self._handle, max(WINDOW, length), offset)
            self._base, start = offset, 0
        return self._data, start

    def _good(self, offset: int, header: FrameHeader) -> None:
        total = frame_len(header.body_len)
        add_span(self.spans, Kind.GOOD, offset, total)
        self.frame_bytes += total
        self.types[header.type] += 1
        self.records += header.records
        if header.topic_id and (header.topic_id in self.topics or len(self.topics) < TOPICS_MAX):
            self.topics[header.topic_id] += header.records
        self.durable_lsn = max(self.durable_lsn, header.durable_lsn)
        if header.ts:
            self.first_ts = min(self.first_ts or header.ts, header.ts)
            self.last_ts = max(self.last_ts, header.ts)

    def _learn(self, header: FrameHeader, body: bytes) -> None:
        try:
            if header.type == FrameType.ATTACH:
                self.names[header.topic_id] = decode_attach_body(body).image.name
                return
            create = decode_control_body(FrameType.CREATE, body)
        except BadBody:
            return
        if isinstance(create, CreateBody):
            self.names[header.topic_id] = create.name

    def _bad_body(self, offset: int, header: FrameHeader, frame: bytes) -> None:
        total = frame_len(header.body_len)
        assert self._seed is not None
        stored = frame[total - CHECK_LEN : total].hex() or "nothing"
        computed = body_check(frame[HEADER_LEN : HEADER_LEN + header.body_len], self._seed).hex()
        self.durable_lsn = max(self.durable_lsn, header.durable_lsn)
        missing = misses_bytes(frame, self.lsn(offset) % SECTOR, total)
        self._note(BadPlace(offset, min(total, self.size - offset), header, After.GARBAGE, missing, (stored, computed)))

    def _note(self, place: BadPlace) -> None:
        add_span(self.spans, Kind.DAMAGED, place.offset, place.length)
        self.bad_count += 1
        if len(self.bad) < PLACES_MAX:
            self.bad.append(place)

    def _skip(self, at: int, last: int | None) -> int | None:
        """Find the next frame behind `at`, and say what lies between; None at the end of the file."""
        head = self._fs.pread(self._handle, HEAD_LEN, at)
        found, header, nonzero = self._search(at)
        end = self.size if found is None else found
        lost = False
        if header is not None and last is not None:
            lsn = self.lsn(end)
            lost = header.back != back_to(last, lsn)
        if nonzero is None and not lost:
            add_span(self.spans, Kind.EMPTY, at, end - at)
            return found
        begin = at if nonzero is None else at + (nonzero - at) // SECTOR * SECTOR if nonzero - at >= SECTOR else at
        add_span(self.spans, Kind.EMPTY, at, begin - at)
        if begin != at:
            head = self._fs.pread(self._handle, HEAD_LEN, begin)
        missing = nonzero is None or header_misses_bytes(head, self.lsn(begin))
        after = After.FRAMES if found is not None else After.GARBAGE
        self._note(BadPlace(begin, end - begin, None, after, missing, None))
        return found

    def _search(self, at: int) -> tuple[int | None, FrameHeader | None, int | None]:
        """The offset of the next valid header, that header, and the first byte before it that is not zero."""
        assert self._seed is not None
        nonzero: int | None = None
        offset = at
        while offset < self.size:
            self.done = offset
            chunk = self._fs.pread(self._handle, WINDOW, offset)
            if not chunk:
                break
            stripped = chunk.lstrip(b"\0")
            if nonzero is None and stripped:
                nonzero = offset + len(chunk) - len(stripped)
            if stripped:
                base = self.lsn(offset)
                for place in places(chunk, base):
                    start = place - base
                    if start + HEADER_LEN <= len(chunk) and offset + start > at:
                        header = parse_header(self._seed, chunk, start, place)
                        if header is not None:
                            found = offset + start
                            return found, header, nonzero if nonzero is not None and nonzero < found else None
            if offset + len(chunk) >= self.size:
                break
            offset += max(len(chunk) - HEADER_LEN, FRAME_ALIGN) // FRAME_ALIGN * FRAME_ALIGN
        return None, None, nonzero

    # -- saying --------------------------------------------------------------------------------------------------------

    def verdict(self, place: BadPlace) -> Row:
        """What the table says, by the evidence of this file."""
        kind = verdicts.Frame.UNREADABLE
        if place.header is not None:
            kind = verdicts.Frame.APPEND if place.header.type == FrameType.APPEND else verdicts.Frame.CONTROL
        after = place.after
        if place.header is not None and self.spans and self._followed(place):
            after = After.FRAMES
        proven = self.lsn(place.offset) < self.durable_lsn
        return verdicts.judge(Evidence(after, kind, place.missing, proven, Stop.POWER_LOSS))

    def _followed(self, place: BadPlace) -> bool:
        return any(span.kind is Kind.GOOD and span.offset > place.offset for span in reversed(self.spans))

    def findings(self) -> list[Finding]:
        """What is wrong with the file, after `items` was read to its end."""
        found = self._header_findings()
        for place in self.bad:
            row = self.verdict(place)
            damage = row.verdict is Verdict.DAMAGE
            header = place.header
            is_append = header is not None and header.type == FrameType.APPEND
            found.append(
                Finding(
                    severity=Severity.DAMAGE if damage else Severity.NOTE,
                    id=(FindingId.WAL_FRAME if header is not None else FindingId.WAL_BYTES)
                    if damage
                    else FindingId.WAL_TAIL,
                    file=self.label,
                    offset=place.offset,
                    topic=self.names.get(header.topic_id, f"#{header.topic_id:x}")
                    if header is not None and header.topic_id
                    else None,
                    seqs=(header.first_seq, header.first_seq + header.records - 1)
                    if header is not None and is_append
                    else None,
                    what=self._what(place, row),
                    next_step=SAVE if damage else "nothing to do: a start sets it aside",
                )
            )
        if self.bad_count > len(self.bad):
            more = self.bad_count - len(self.bad)
            found.append(
                Finding(
                    severity=Severity.DAMAGE,
                    id=FindingId.WAL_BYTES,
                    file=self.label,
                    what=f"{more} more damaged places are not listed",
                    next_step=SAVE,
                )
            )
        return found

    def _header_findings(self) -> list[Finding]:
        said, named = self.header, self.named
        if said is None:
            what = "the file header does not check"
            if self._seed is None:
                what += ", and without it frames cannot be checked: they are seeded with the store's id"
            found = FindingId.WAL_HEADER
        elif said.version > FORMAT_VERSION:
            what = f"it has format {said.version}, this version of topics knows up to {FORMAT_VERSION}"
            found = FindingId.FOREIGN
        elif said.kind != FileKind.WAL:
            what, found = f"it is no log file but kind {said.kind}", FindingId.FOREIGN
        elif named is not None and named != (said.first, said.run):
            what = f"it says that it is first lsn {said.first}, run {said.run}: it lies in the wrong place"
            found = FindingId.FOREIGN
        else:
            return []
        return [
            Finding(severity=Severity.DAMAGE, id=found, file=self.label, offset=0, what=what, next_step=SAVE),
        ]

    def _what(self, place: BadPlace, row: Row) -> str:
        header = place.header
        if header is None:
            text = f"{place.length} bytes are no frame"
            if place.missing:
                text = f"{place.length} bytes where a frame was are missing or cannot be read as one"
        else:
            text = f"{place.length} bytes of a frame ({type_name(header.type)}) whose body does not check"
        if place.checks is not None:
            text += f" (stored {place.checks[0]}, computed {place.checks[1]})"
        return f"{text} (row {row.letter}: {row.why})"

    def report(self) -> FileReport:
        """Everything about the file, after `items` was read to its end."""
        facts: dict[str, Any] = {"kind": "log file"}
        said = self.header
        if said is not None:
            facts |= {
                "format": said.version,
                "store": said.store_id.hex(),
                "shard": said.id,
                "first_lsn": said.first,
                "run": said.run,
                "created_ms": said.created_ms,
            }
        facts |= {
            "size_bytes": self.size,
            "in_frames_bytes": self.frame_bytes,
            "damaged_bytes": _total(self.spans, Kind.DAMAGED),
            "empty_bytes": _total(self.spans, Kind.EMPTY),
            "frames": sum(self.types.values()),
            "types": {type_name(kind): count for kind, count in sorted(self.types.items())},
            "records": self.records,
            "topics": len(self.topics),
        }
        if self.last_ts:
            facts |= {"first_ts": self.first_ts, "last_ts": self.last_ts}
        facts["durable_lsn"] = self.durable_lsn
        return FileReport(file=self.label, facts=facts, findings=self.findings(), spans=self.spans)


def _total(spans: list[Span], kind: Kind) -> int:
    return sum(span.length for span in spans if span.kind is kind)


def type_name(kind: int) -> str:
    """A frame type as people read it."""
    return FrameType(kind).name if kind in list(FrameType) else f"type {kind}"


class Record(NamedTuple):
    """A record of a frame, as it lies there."""

    seq: int
    ts: int
    offset: int
    """Of the fragment in the file."""
    fragment: bytes


def records_of(frame: LogFrame) -> list[Record]:
    """The records of an Append frame; none of any other. Raises `BadBody`."""
    header = frame.header
    if header.type != FrameType.APPEND:
        return []
    rendered = decode_append_body(header.flags, header.records, frame.body).rendered
    fragments = rendered.fragments
    begin = frame.offset + HEADER_LEN + header.body_len - len(fragments)
    found, at = [], 0
    for index, stride in enumerate(rendered.strides):
        piece = fragments[at : at + stride - 1]
        found.append(Record(header.first_seq + index, header.ts, begin + at, piece))
        at += stride
    return found


def describe(frame: LogFrame) -> str:
    """What a frame says, without any payload."""
    header = frame.header
    if header.type == FrameType.APPEND:
        return f"seqs {header.first_seq}-{header.first_seq + header.records - 1}"
    if header.type == FrameType.FORWARD:
        return _forward(frame)
    body = frame.body.partition(b"\n")[0] if header.type == FrameType.DEAD_LETTER else frame.body
    try:
        if header.type == FrameType.ROUTER_PUT:
            decode_router_put(body)
        elif header.type == FrameType.ROUTER_DROP:
            decode_router_drop(body)
        elif header.type == FrameType.ATTACH:
            decode_attach_body(body)
        elif header.type not in (FrameType.LEASE, FrameType.DEAD_LETTER):
            decode_control_body(header.type, body)
    except BadBody as error:
        return str(error)
    return body.decode("utf-8", "backslashreplace")


def _forward(frame: LogFrame) -> str:
    """What a Forward copies, and where to."""
    try:
        groups, _ = decode_forward(frame.body, frame.header.ts)
    except BadBody as error:
        return str(error)
    said = []
    for group in groups:
        seqs = ",".join(f"{first}-{last}" for first, last, _ in group.ranges) or "nothing"
        lost = f" behind {group.lost} lost" if group.lost else ""
        dests = ", ".join(f"router {number} at seq {first}" for number, first, _ in group.landings)
        said.append(f"seqs {seqs}{lost} by {dests}")
    carried = f"; carries {frame.header.records} records" if frame.header.records else ""
    return "; ".join(said) + carried
