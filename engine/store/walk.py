"""One shard's stream, frame by frame, as recovery reads it; where it stops checking out, the verdict is made here.

A frame is taken when its header checks, names its own position, points back to the frame before it (so that no hole of
whole blocks is passed over), lies inside what its file owns, and its body checks. The next one begins

    where this one ends, or on the next block (a sync began between them), or at the start of the next owner's file
    (or, in what a recovery copied, where an older file once began).

If no frame behind points back to this one, `_judge` gathers the evidence, for which it looks ahead
through everything behind, and engine.store.verdicts says what it means. Memory is bounded by a window and one frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.append import BadBody
from engine.formats.attach import decode_attach_body
from engine.formats.control import CreateBody, decode_control_body
from engine.formats.frame import (
    FRAME_ALIGN,
    FRAME_LEN_MIN,
    HEAD_LEN,
    HEADER_LEN,
    NO_FRAME,
    SECTOR,
    FrameHeader,
    FrameType,
    align_block,
    back_to,
    frame_len,
    header_misses_bytes,
    misses_bytes,
    parse_header,
    places,
    resembles_header,
)
from engine.formats.snapshot import ShardCut
from engine.fs import Fs, OpenMode
from engine.limits import OnCorruption
from engine.store import verdicts
from engine.store.verdicts import After, Evidence, Response, Row, Stop, Verdict
from engine.wal.chain import Piece
from engine.wal.reader import WINDOW, Window, body_of

_ZEROS: Final = bytes(WINDOW)
_KNOWN: Final = frozenset(map(int, FrameType))
"""Types that this version can replay."""
NEXT_STEP: Final = (
    "Nothing was changed. Put the directory back from a backup; or see what is left with `topics fsck DIR` and save "
    "everything that can be proven good with `topics recover DIR --to NEW`; or start once with "
    "TOPICS_ON_CORRUPTION=salvage, which goes on with what is left"
)
NO_SETTING: Final = (
    "Nothing was changed, and no setting makes it start. Put the directory back from a backup; or see what is left "
    "with `topics fsck DIR` and save everything that can be proven good with `topics recover DIR --to NEW`"
)
"""Where `salvage` refuses, too."""


class Frame:
    """A frame as replay gets it: the header's fields by the names of FORMATS.md, its body and shard, both checked."""

    __slots__ = (
        "body",
        "count",
        "durable_lsn",
        "end",
        "first_seq",
        "flags",
        "lsn",
        "order",
        "shard",
        "tick",
        "tick_shards",
        "topic_id",
        "ts",
        "type",
    )

    def __init__(self, header: FrameHeader, body: bytes, shard: int, end: int) -> None:
        (
            _check,
            _body_len,
            self.type,
            self.flags,
            self.tick_shards,
            _zero,
            self.count,
            self.lsn,
            _back,
            _reserved,
            self.order,
            self.tick,
            self.topic_id,
            self.first_seq,
            self.ts,
            self.durable_lsn,
        ) = header
        self.body = body
        self.shard = shard
        self.end = end


class CorruptionGap(NamedTuple):
    """Records that are gone because their frame does not check; its header still tells which."""

    topic_id: int
    first_seq: int
    last_seq: int
    ts: int
    order: int
    tick: int
    tick_shards: int
    shard: int
    lsn: int
    end: int
    path: str
    offset: int


class Hole(NamedTuple):
    """A stretch that cannot be read, and behind which a salvage goes on. Everything that may have stood there is lost.

    A control frame whose header is good says which topic it concerned, and how; otherwise `topic_id` is 0 and `type`
    None, and any topic of the shard may be concerned.
    """

    topic_id: int
    type: int | None
    ts: int
    order: int
    tick: int
    tick_shards: int
    shard: int
    lsn: int
    end: int
    path: str
    offset: int
    open: bool = False
    """Nobody knows how much there was: the newest file is gone or short, so it is behind every image, too."""


Item: TypeAlias = "Frame | CorruptionGap | Hole"
"""What a walk finds, one after the other."""


class Cut(NamedTuple):
    """Bytes behind the end of the log that are set aside."""

    row: Row
    first_lsn: int
    end_lsn: int
    path: str
    offset: int


class Ahead(NamedTuple):
    """What lies behind some position, to the end of the shard's files."""

    first: FrameHeader | None
    """The first valid header."""
    durable_lsn: int
    """The greatest that a valid header says."""
    nonzero_lsn: int | None
    """The first byte that is not zero."""
    end_lsn: int
    """Behind the last byte that is not zero."""


class ShardWalk:
    """The walk over one shard. Its results are complete once `items` is exhausted."""

    def __init__(
        self,
        fs: Fs,
        seed: int,
        shard: int,
        pieces: list[Piece],
        start: ShardCut,
        known_end: int,
        stop: Stop,
        policy: OnCorruption,
        names: dict[int, str],
        heard: Callable[[int], None],
        newest_lost: bool = False,
    ) -> None:
        """`start`: where to begin, and which frame ended before; `pieces` begin with the file that owns it.
        `known_end`: how far MANIFEST knows the log to have been on disk; the snapshot that made the cut knows too.
        `names`: names of topics by id, filled here for messages. `heard` is told now and then how many bytes were read.
        `newest_lost`: the newest file is missing or short, and a salvage goes on without it.
        """
        known_end = max(known_end, start.end_lsn)
        self.shard = shard
        self.pieces = pieces
        self.start_lsn = start.lsn
        self.end_lsn = start.last_end
        """Where the last kept frame ends."""
        self.last_lsn = start.last_lsn
        """Where it begins; `NO_FRAME` in an empty log, so that only a stream's first frame can be the first."""
        self.durable_lsn = max(start.lsn, align_block(known_end))
        """The greatest proven one: everything below is on disk."""
        self.order = 0
        """The greatest seen."""
        self.tick = 0
        self.cut: Cut | None = None
        self.isolated: list[CorruptionGap] = []
        """Frames whose records became a corruption gap."""
        self.holes = 0
        """Places that a salvage passed over."""
        self._over = False
        """Nothing follows the hole that was found last."""
        self._newest_lost = newest_lost
        self._fs = fs
        self._seed = seed
        self._known_end = known_end
        self._stop = stop
        self._policy = policy
        self._names = names
        self._heard = heard
        self._at = start.lsn
        """Where the next frame is looked for: at `end_lsn`, or where the log was found to go on."""
        self._nothing: Ahead | None = None
        """What `_resume` saw, if it saw no frame: the same look need not be taken twice."""
        self._run_lsn = 0
        for before, after in pairwise(pieces):
            if after.file.run > before.file.run:
                self._run_lsn = after.file.first_lsn
        self.durable_lsn = max(self.durable_lsn, self._run_lsn)

    def items(self) -> Iterator[Item]:
        """Everything that the shard holds, in order. Raises `StoreDamaged` where the verdict is to refuse."""
        index = 0
        window = Window(self._fs, self.pieces[0].file)
        try:
            if self._at < self.pieces[0].file.first_lsn:
                yield self._nowhere(0)
            while True:
                yield from self._frames(window, self.pieces[index].end_lsn)
                place = self._resume(index)
                if place is None:
                    missing = self._maybe_missing(index)
                    found = self._nowhere(missing) if missing == index + 1 else self._judge(index)
                    if found is None and missing is not None and self.cut is None:
                        found = self._nowhere(missing)
                    if found is None:
                        break
                    yield found
                    if self._over:
                        break
                    place = self._index_of(self._at)
                if place != index:
                    index = place
                    window.close()
                    self._heard(self.end_lsn)
                    window = Window(self._fs, self.pieces[index].file)
        finally:
            window.close()
        if self._newest_lost:
            end = self.pieces[-1].end_lsn
            yield self._hole(None, end, end)._replace(open=True)

    def _frames(self, window: Window, owned_end: int) -> Iterator[Frame]:
        """Valid frames that follow each other inside one file, from `_at` on."""
        seed, shard = self._seed, self.shard
        lsn, last = self._at, self.last_lsn
        while lsn + FRAME_LEN_MIN <= owned_end:
            buffer, start = window.at(lsn, HEADER_LEN)
            header = parse_header(seed, buffer, start, lsn)
            if header is None or header.back != back_to(last, lsn):
                lsn = align_block(lsn)
                if lsn == self._at or lsn + FRAME_LEN_MIN > owned_end:
                    return
                buffer, start = window.at(lsn, HEADER_LEN)
                header = parse_header(seed, buffer, start, lsn)
                if header is None or header.back != back_to(last, lsn):
                    return
                self._at = lsn
            total = frame_len(header.body_len)
            end = lsn + total
            if end > owned_end:
                return
            if start + total > len(buffer):
                buffer, start = window.at(lsn, total)
                self._heard(lsn)
            body = body_of(buffer, start, header, seed)
            if body is None:
                return
            if header.type not in _KNOWN:
                raise StoreForeign(self._newer(header))
            if header.type in (FrameType.CREATE, FrameType.ATTACH):
                self._learn(header, body)
            self.last_lsn = last = lsn
            self.end_lsn = self._at = end
            self._seen(header)
            yield Frame(header, body, shard, end)
            lsn = end

    def _seen(self, header: FrameHeader) -> None:
        """Take the counters of a valid header in."""
        self.order = header.order
        self.tick = header.tick
        if header.durable_lsn > self.durable_lsn:
            self.durable_lsn = header.durable_lsn

    def _learn(self, header: FrameHeader, body: bytes) -> None:
        """Remember a topic's name for messages."""
        try:
            if header.type == FrameType.ATTACH:
                self._names[header.topic_id] = decode_attach_body(body).image.name
                return
            create = decode_control_body(FrameType.CREATE, body)
        except BadBody as error:
            path, offset = self.where(header.lsn)
            raise StoreDamaged(f"{path}: offset {offset}: {error}, though its check is good. {NO_SETTING}") from error
        if isinstance(create, CreateBody):
            self._names[header.topic_id] = create.name

    # --- where a run of frames ends -------------------------------------------------------------------------------

    def _resume(self, index: int) -> int | None:
        """Move on to the place where the log goes on behind zeros; returns the index of its file, or None."""
        if index + 1 < len(self.pieces):
            lsn = self.pieces[index + 1].file.first_lsn
            header = parse_header(self._seed, self._bytes(index + 1, lsn, HEADER_LEN), 0, lsn)
            if header is not None and header.back == back_to(self.last_lsn, lsn):
                self._at = lsn
                return index + 1
        # In what a recovery copied, the log may go on where an older file once began. The first header behind proves it
        # by pointing back to here: there is no frame between.
        ahead = self._look_ahead(self._behind(), stop_at_first=True)
        first = ahead.first
        self._nothing = ahead if first is None else None
        if first is not None and first.lsn > self._at and first.back == back_to(self.last_lsn, first.lsn):
            self._at = first.lsn
            return self._index_of(first.lsn)
        return None

    def _behind(self) -> int:
        """Where evidence begins: where MANIFEST recorded the end of a synced frame, the next one begins a block."""
        return align_block(self._at) if self._at == self._known_end else self._at

    def _bytes(self, index: int, lsn: int, length: int) -> bytes:
        """Bytes of the stream out of one file; fewer at its end."""
        file = self.pieces[index].file
        handle = self._fs.open(file.path, OpenMode.READ)
        try:
            return self._fs.pread(handle, length, file.offset(lsn))
        finally:
            self._fs.close(handle)

    def _judge(self, index: int) -> CorruptionGap | Hole | None:
        """The verdict where no frame follows: None at the end of the log, or what is lost here."""
        lsn = self._at
        piece = self.pieces[index]
        header = parse_header(self._seed, self._bytes(index, lsn, HEADER_LEN), 0, lsn)
        if header is not None and (
            header.back != back_to(self.last_lsn, lsn) or lsn + frame_len(header.body_len) > piece.end_lsn
        ):
            header = None
        if header is not None:
            evidence, ahead, spot = self._bad_body(index, header)
        else:
            evidence, ahead, spot = self._unreadable(index)
        row = verdicts.judge(evidence)
        if row.verdict is Verdict.END:
            return None
        path, offset = self.where(spot)
        if row.verdict is Verdict.CUT:
            end = max(self.end_lsn, self.pieces[0].file.first_lsn)
            self.cut = Cut(row, end, max(ahead.end_lsn, end), path, offset)
            return None
        response = verdicts.respond(evidence.frame, self._policy).response
        if response is Response.SALVAGE:
            return self._pass_over(header, row, ahead)
        if response is not Response.ISOLATE or header is None:
            raise StoreDamaged(self._refusal(row, header, path, offset))
        self._seen(header)
        self.last_lsn = lsn
        self.end_lsn = self._at = end = lsn + frame_len(header.body_len)
        last_seq = header.first_seq + header.records - 1
        gap = CorruptionGap(
            header.topic_id,
            header.first_seq,
            last_seq,
            header.ts,
            header.order,
            header.tick,
            header.tick_shards,
            self.shard,
            lsn,
            end,
            path,
            offset,
        )
        self.isolated.append(gap)
        return gap

    def _bad_body(self, index: int, header: FrameHeader) -> tuple[Evidence, Ahead, int]:
        """The evidence about a frame whose header is good and whose body is not."""
        lsn, total = self._at, frame_len(header.body_len)
        ahead = self._look_ahead(lsn + total)
        frame = self._bytes(index, lsn, total)
        evidence = Evidence(
            After.GARBAGE if ahead.first is None else After.FRAMES,
            verdicts.Frame.APPEND if header.type == FrameType.APPEND else verdicts.Frame.CONTROL,
            misses_bytes(frame, lsn % SECTOR, total),
            lsn < self._known_end or lsn < self._run_lsn or lsn < ahead.durable_lsn,
            self._stop,
        )
        return evidence, ahead._replace(end_lsn=max(ahead.end_lsn, lsn + total)), lsn

    def _unreadable(self, index: int) -> tuple[Evidence, Ahead, int]:
        """The evidence about a place that holds no header that can be believed."""
        lsn = self._at
        ahead = self._nothing or self._look_ahead(self._behind())
        spot = lsn
        before = None if ahead.first is None else ahead.first.lsn - ahead.first.back
        if ahead.nonzero_lsn is not None:
            # Zeros up to a place where the log may go on: what is missing or bad began there, unless the first frame
            # behind points to one that began before.
            block = min(align_block(lsn), self.pieces[index].end_lsn)
            if ahead.nonzero_lsn >= block and (before is None or not lsn <= before < block):
                spot = self._start_behind(index, block, ahead)
        head = self._bytes(self._index_of(spot), spot, HEAD_LEN)
        missing = header_misses_bytes(head, spot)
        if spot != lsn and not resembles_header(head, spot, back_to(self.last_lsn, spot)):
            # No frame begins here: this is the middle of one that began before, whose first sector is not there.
            missing = True
        proven = (
            lsn < self._known_end
            # A run that begins on the very next block says nothing about the rest of this one.
            or (spot < self._run_lsn and self._run_lsn > align_block(lsn))
            or spot < ahead.durable_lsn
            or (before is not None and lsn <= before < ahead.durable_lsn)
        )
        if ahead.first is not None:
            after = After.FRAMES
        else:
            after = After.ZEROS if ahead.nonzero_lsn is None else After.GARBAGE
        return Evidence(after, verdicts.Frame.UNREADABLE, missing, proven, self._stop), ahead, spot

    def _start_behind(self, index: int, block: int, ahead: Ahead) -> int:
        """Where a bad frame may begin behind zeros: on the next block, or at the start of the next file."""
        if index + 1 < len(self.pieces) and ahead.nonzero_lsn is not None:
            start = self.pieces[index + 1].file.first_lsn
            if ahead.nonzero_lsn >= start and (ahead.first is None or ahead.first.lsn > start):
                head = self._bytes(index + 1, start, HEADER_LEN)
                if resembles_header(head, start, back_to(self.last_lsn, start)):
                    return start
        return block

    # --- going on behind what cannot be read (salvage) ------------------------------------------------------------

    def _pass_over(self, header: FrameHeader | None, row: Row, ahead: Ahead) -> Hole:
        """Go on behind a bad control frame, or at the next valid header; without one the log ends here."""
        lsn = self._at
        if header is not None:
            self._seen(header)
            self.last_lsn = lsn
            self.end_lsn = self._at = lsn + frame_len(header.body_len)
            return self._hole(header, lsn, self._at)
        first = ahead.first
        if first is None or first.lsn <= lsn:
            first = self._look_ahead(lsn + 8, stop_at_first=True).first
        if first is None:
            path, offset = self.where(lsn)
            begin = max(self.end_lsn, self.pieces[0].file.first_lsn)
            self.cut = Cut(row, begin, max(ahead.end_lsn, begin), path, offset)
            self._over = True
            return self._hole(None, lsn, max(ahead.end_lsn, lsn))
        self._go_on_at(first)
        return self._hole(None, lsn, first.lsn)

    def _go_on_at(self, first: FrameHeader) -> None:
        self._at = first.lsn
        self.last_lsn = first.lsn - first.back if first.back else NO_FRAME

    def _maybe_missing(self, index: int) -> int | None:
        """The first piece behind that does not begin where the one before ends (only a salvage gets to see that)."""
        for behind, (before, after) in enumerate(pairwise(self.pieces[index:]), index + 1):
            if before.end_lsn < after.file.first_lsn:
                return behind
        return None

    def _nowhere(self, index: int) -> Hole:
        """Go on with the first frame of the pieces from `index` on: there is no file for what comes before."""
        assert verdicts.respond(verdicts.Frame.NOWHERE, self._policy).response is Response.SALVAGE, "survey refuses"
        lsn = self._at
        start = self.pieces[index].file.first_lsn
        first = self._look_ahead(start, stop_at_first=True).first
        if first is None:
            self._at, self.last_lsn, self._over = start, NO_FRAME, True
            return self._hole(None, lsn, start)
        self._go_on_at(first)
        return self._hole(None, lsn, first.lsn)

    def _hole(self, header: FrameHeader | None, lsn: int, end: int) -> Hole:
        self.holes += 1
        path, offset = self.where(lsn)
        place = (self.order, self.tick, 1 if header is None else header.tick_shards, self.shard, lsn, end, path)
        if header is None:
            return Hole(0, None, 0, *place, max(offset, 0))
        return Hole(header.topic_id, header.type, header.ts, *place, offset)

    def _index_of(self, lsn: int) -> int:
        """Which file owns a position; the last one if none does."""
        return next((i for i, piece in enumerate(self.pieces) if lsn < piece.end_lsn), len(self.pieces) - 1)

    # --- looking ahead --------------------------------------------------------------------------------------------

    def _look_ahead(self, lsn: int, *, stop_at_first: bool = False) -> Ahead:
        """Everything behind `lsn` that may be evidence, or only as far as the first valid header."""
        ahead = Ahead(None, 0, None, lsn)
        for piece in self.pieces:
            if piece.end_lsn > lsn and not (stop_at_first and ahead.first is not None):
                ahead = self._look_through(piece, max(lsn, piece.file.first_lsn), ahead, stop_at_first)
        return ahead

    def _look_through(self, piece: Piece, lsn: int, ahead: Ahead, stop_at_first: bool) -> Ahead:
        handle = self._fs.open(piece.file.path, OpenMode.READ)
        try:
            while lsn < piece.end_lsn and not (stop_at_first and ahead.first is not None):
                chunk = self._fs.pread(handle, min(WINDOW, piece.end_lsn - lsn), piece.file.offset(lsn))
                if not chunk:
                    break
                if chunk == _ZEROS[: len(chunk)]:
                    lsn += len(chunk)
                    continue
                if ahead.nonzero_lsn is None:
                    ahead = ahead._replace(nonzero_lsn=lsn + len(chunk) - len(chunk.lstrip(b"\0")))
                ahead = ahead._replace(end_lsn=lsn + len(chunk.rstrip(b"\0")))
                ahead, used = self._search(chunk, lsn, ahead)
                lsn += max(used, FRAME_LEN_MIN) if lsn + len(chunk) < piece.end_lsn else len(chunk)
        finally:
            self._fs.close(handle)
        return ahead

    def _search(self, chunk: bytes, lsn: int, ahead: Ahead) -> tuple[Ahead, int]:
        """Valid headers in a piece of the stream, at any place where a frame could begin."""
        last = len(chunk) - HEADER_LEN
        at = 0
        for place in places(chunk, lsn):
            if at <= place - lsn <= last:
                header = parse_header(self._seed, chunk, place - lsn, place)
                if header is not None:
                    durable = max(ahead.durable_lsn, header.durable_lsn)
                    ahead = ahead._replace(first=ahead.first or header, durable_lsn=durable)
                    at = place - lsn + frame_len(header.body_len)
        return ahead, max(at, (last // FRAME_ALIGN + 1) * FRAME_ALIGN)

    # --- saying it ------------------------------------------------------------------------------------------------

    def where(self, lsn: int) -> tuple[str, int]:
        """File and offset of a position."""
        file = self.pieces[self._index_of(lsn)].file
        return file.path, file.offset(lsn)

    def _newer(self, header: FrameHeader) -> str:
        path, offset = self.where(header.lsn)
        return (
            f"{path}: the frame at offset {offset} is of type {header.type}, which this version of topics does not "
            "know. Nothing was changed; start the store with the newer version that wrote it"
        )

    def _refusal(self, row: Row, header: FrameHeader | None, path: str, offset: int) -> str:
        if header is None:
            whose = f"any of the {len(self._names)} topics whose creation was read"
            if 0 < len(self._names) <= 8:
                whose += f" ({', '.join(sorted(self._names.values()))})"
            what = "what stands there cannot be read as a frame"
        else:
            name = self._names.get(header.topic_id, f"id {header.topic_id}")
            kind = FrameType(header.type).name if header.type in list(FrameType) else f"type {header.type}"
            what = f"a {kind} frame there does not check"
            whose = f"topic {name}" if header.topic_id else "any topic"
        where = f"{path}: damage at offset {offset} (row {row.letter}: {row.why})"
        return f"{where}: {what}. Concerned: {whose}. {NEXT_STEP}"
