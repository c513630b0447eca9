"""Saving everything of a damaged store that can be proven good, into a new one.

    read()      open and replay under `salvage` (the code of a start), then every payload; writes nothing
    write(to)   the new store (engine.tools.rebuild), and beside it what was bad: lost/

What cannot be proven good is not taken over, and is not thrown away either: its bytes are kept in lost/ with their
digests, and readers meet a `corruption` gap exactly where records are gone. Deleted records never come back: where a
delete itself is lost, nobody knows any more which records of its topic it took, so all that it may have taken count as
lost, and are kept in lost/ as lines that `topics write --records` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

import msgspec
from xxhash import xxh3_128, xxh3_128_hexdigest

from engine.checkpoint.sources import Readers, source_of
from engine.clock import Clock
from engine.core.catalog import Catalog
from engine.core.replay import Replay
from engine.core.salvage import Salvage
from engine.core.slot import Slot
from engine.errors import StoreError
from engine.formats.control import GapBody, decode_control_body
from engine.formats.frame import FrameType, align_block, seed_of
from engine.fs import Fs, OpenMode, write_new
from engine.limits import EngineSettings, OnCorruption
from engine.segment.build import Run
from engine.store.init import LOST_DIR, Missing, begin_lock, read_meta
from engine.store.recovery import Frame, OpenedStore, open_store
from engine.store.snapshots import Lost
from engine.store.verdicts import Verdict
from engine.store.walk import NEXT_STEP, NO_SETTING, Hole
from engine.tools.finding import Finding
from engine.tools.patched import Patched, outlived, patch, reaching
from engine.tools.pieced import piece_together
from engine.tools.rebuild import Proof, Rebuild
from engine.tools.unreadable import Readable, Unread
from engine.topic.rangeset import RangeSet
from engine.types import Reason
from engine.wal.chain import DATA_START, LogFile

_COPY: Final = 1 << 20


class LostRange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"first": "from", "last": "to"}):
    """Seqs of a topic that are a gap now."""

    topic: str
    first: int
    last: int
    perhaps: bool = False
    """Behind all that is known of the topic: nothing says whether there was anything."""


class KeptBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that could not be used, kept beside the new store."""

    file: str
    """Below lost/."""
    source: str
    offset: int
    length: int
    xxh3_128: str
    why: str


class Report(msgspec.Struct, kw_only=True):
    """What a recovery found, saved and lost."""

    source: str = ""
    target: str = ""
    source_store: str = ""
    store: str = ""
    topics: int = 0
    records: int = 0
    bytes: int = 0
    segments: int = 0
    lost: list[LostRange] = []
    """Losses that this recovery adds; older ones are in the store as they were."""
    doubtful: list[LostRange] = []
    """Of these: records that may have been deleted, because the delete cannot be read."""
    unread: list[Unread] = []
    """What the disk refuses; what that has cost is among the losses."""
    kept: list[KeptBytes] = []
    notes: list[str] = []
    concerned: list[str] = []
    """Topics of which log that cannot be read may have spoken."""
    left_out: list[str] = []
    """Topics that were not asked for."""
    untold: bool = False
    """Nothing says which topics there were: some may be lost without a trace."""

    @property
    def complete(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost and not self.untold


class _Careful(Salvage):
    """A salvage that takes down which topics a lost delete may have concerned."""

    def __init__(self, catalog: Catalog, report: list[str]) -> None:
        super().__init__(catalog, report)
        self.undecided: list[tuple[int, int]] = []
        """(topic id, head at that moment) for each lost delete."""

    def hole(
        self,
        hole: Hole,
        told: Callable[[int, int, int], bool],
        concerns: Callable[[Slot], bool],
        drop: Callable[[Slot], None],
    ) -> None:
        super().hole(hole, told, concerns, drop)
        slot = self._catalog.by_id.get(hole.topic_id)
        if hole.type == FrameType.DELETE and slot is not None and slot.topic.id in self.doubtful:
            self.undecided.append((slot.topic.id, slot.topic.head))


class _Reading(Replay):
    """A replay that tells earlier losses from those that are found now."""

    def __init__(self, opened: OpenedStore, settings: EngineSettings, nameless: frozenset[int] | None) -> None:
        """`nameless`: no snapshot checks, and these topics are known by their files alone."""
        super().__init__(opened, settings)
        self.careful = _Careful(self.catalog, opened.report)
        self._salvage = self.careful
        self._nameless = nameless or frozenset()
        self.careful.nameless = nameless is not None
        self.careful.doubtful.update((topic_id, set()) for topic_id in self._nameless)
        self.earlier: dict[int, RangeSet] = {}
        begin = opened.start.begin
        for image, _ in () if begin is None else begin.snapshot.topics():
            if image.lost:
                self.earlier[image.id] = RangeSet.of(image.lost)
        gap = self._handlers[FrameType.GAP]

        def noted(frame: Frame) -> None:
            gap(frame)
            body = decode_control_body(frame.type, frame.body)
            if isinstance(body, GapBody) and body.reason is Reason.CORRUPTION:
                known = self.earlier.setdefault(frame.topic_id, RangeSet())
                known.add(body.first, body.last)

        self._handlers[FrameType.GAP] = noted
        append = self._handlers[FrameType.APPEND]

        def appended(frame: Frame) -> None:
            # Nothing says how much of the log is in the files of a topic, but seqs only rise.
            slot = self.catalog.by_id.get(frame.topic_id)
            if slot is None or frame.topic_id not in self._nameless or frame.first_seq > slot.topic.head:
                append(frame)

        self._handlers[FrameType.APPEND] = appended

    def doubt_nameless(self) -> None:
        """Which records of topics whose configuration is lost were evicted, nobody knows."""
        for slot in self.catalog.by_id.values():
            if self.careful.nameless and slot.name == f"salvaged-{slot.topic.id:x}":
                self.careful.undecided.append((slot.topic.id, slot.topic.head))


class Recovery:
    """One recovery: `read`, then `write`."""

    def __init__(
        self,
        source: Fs,
        clock: Clock,
        found: Callable[[Finding], None],
        heard: Callable[[str, float], None],
        settings: EngineSettings | None = None,
        *,
        topics: frozenset[str] = frozenset(),
        keep_doubtful: bool = False,
    ) -> None:
        """`topics`: only these; all when it is empty. `keep_doubtful`: keep what a lost delete may have taken."""
        base = settings if settings is not None else EngineSettings()
        self.report = Report()
        self._there = Readable(source)
        self._source: Fs = self._there
        self._sound: Fs = self._there
        self._clock = clock
        self._found = found
        self._heard = heard
        self._settings = msgspec.structs.replace(base, on_corruption=OnCorruption.SALVAGE, wal_shards=1)
        self._topics = topics
        self._keep_doubtful = keep_doubtful
        self._replay: _Reading | None = None
        self._bad: list[tuple[str, int, int, str]] = []
        """(file, offset, length, why) of bytes that are kept."""
        self._strange: list[tuple[str, str]] = []
        """Files that are left out, and why."""
        self._lines: dict[str, list[bytes]] = {}

    def wanted(self, name: str) -> bool:
        """Whether a topic is to be saved."""
        return not self._topics or name in self._topics

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self) -> Report:
        """Read everything and find out what can be saved. Raises `StoreError` when that is nothing, and `OSError`."""
        report = self.report
        self._source = self._sound = patched = patch(self._there, report.notes)
        pieced = piece_together(patched, report.notes)
        if pieced is not None:
            self._source = patched.with_file(pieced.path, pieced.content)
            report.untold = not pieced.whole
            self._bad += [(path, 0, -1, "a snapshot that does not check") for path in pieced.bad]
        settings = msgspec.structs.replace(self._settings, wal_shards=_shards_of(self._source, self._settings))
        self._strange = patched.strange
        lost: list[Lost] = []

        def replayed(view: Patched) -> _Reading:
            self._source = view
            opened = open_store(view, self._clock, settings, make=False)
            begin = opened.start.begin
            lost[:] = [] if begin is None else begin.lost.values()
            reading = _Reading(opened, settings, None if pieced is None else pieced.nameless)
            try:
                reading.run(lambda part: self._heard("log", part))
            except StoreError:
                opened.close()
                raise
            ends = {} if opened.clean else self._unread_behind(view, opened)
            if not ends:
                return reading
            opened.close()
            return replayed(reaching(view, ends))

        replay = self._replay = outlived(self._source, report.notes, replayed)
        opened = replay.opened
        report.source_store = opened.store_id.hex()
        if any(hole.type in (None, FrameType.CREATE, FrameType.ATTACH) for hole in replay.careful.holes):
            report.untold = True
            opened.report.append("a topic of which only log that cannot be read spoke is lost without a trace")
        report.concerned = sorted(replay.careful.concerned)
        now = opened.engine_time(replay.last_ts).advance()
        known_heads = {slot.topic.id: slot.topic.head for slot in replay.catalog.by_id.values()}
        replay.conclude(now)
        replay.doubt_nameless()
        proof = Proof(self._source, replay, now, self._found, lambda part: self._heard("payloads", part))
        proof.run(self.wanted)
        self._note_bad(opened, replay, proof, patched.empty)
        self._bad += [(one.path, 0, -1, one.why) for one in lost]
        if not self._keep_doubtful:
            self._drop_doubtful(replay, now)
        report.notes += dict.fromkeys(patched.said(without_advice(note)) for note in opened.report)
        for slot in replay.catalog.by_id.values():
            if not self.wanted(slot.name):
                report.left_out.append(slot.name)
                continue
            known = replay.earlier.get(slot.topic.id, RangeSet())
            head = known_heads.get(slot.topic.id, slot.topic.head)
            for first, last in slot.topic.lost:
                for start, stop in _outside(known, first, last):
                    if start <= head:
                        report.lost.append(LostRange(topic=slot.name, first=start, last=min(stop, head)))
                    if stop > head:
                        after = max(start, head + 1)
                        report.lost.append(LostRange(topic=slot.name, first=after, last=stop, perhaps=True))
            report.topics += 1
            report.records += slot.topic.count
            report.bytes += slot.topic.bytes
        self._note_unread()
        return report

    def _unread_behind(self, view: Patched, opened: OpenedStore) -> dict[int, int]:
        """Where log seems to end in a torn write because what might follow is refused: by shard, how far that reaches.

        What was synced begins right there, on the next block, or at the start of a file; never behind zeros.
        """
        ends: dict[int, int] = {}
        files = {view.lies(piece.file.path): piece.file for piece in opened.pieces}
        for one in self._there.unread():
            file = files.get(one.path)
            if file is None or one.length < 0:
                continue
            first = file.first_lsn + one.offset - DATA_START
            for cut in opened.cuts:
                begins = (cut.first_lsn, align_block(cut.first_lsn), max(cut.first_lsn, file.first_lsn))
                if cut.row.verdict is Verdict.CUT and any(first <= begin < first + one.length for begin in begins):
                    ends[file.shard] = first + one.length
        return ends

    def _note_unread(self) -> None:
        self.report.unread = list(self._there.unread())
        self.report.untold = self.report.untold or self._there.misses_names

    def _note_bad(self, opened: OpenedStore, replay: _Reading, proof: Proof, empty: Container[str]) -> None:
        for gap in opened.damage:
            self._bad.append((gap.path, gap.offset, gap.end - gap.lsn, "a write whose body does not check"))
        for hole in replay.careful.holes:
            if hole.path in empty:
                continue
            self._bad.append((hole.path, hole.offset, hole.end - hole.lsn, "log that cannot be read"))
        for cut in opened.cuts:
            self._bad.append((cut.path, cut.offset, cut.end_lsn - cut.first_lsn, "behind the end of the log"))
        for path in opened.start.bad:
            self._bad.append((path, 0, -1, "a snapshot that does not check"))
        for bad in proof.bad:
            for first, last in bad.rows:
                why = f"rows {first}-{last} of topic {bad.topic}, from seq {bad.segment.first_seq}, do not check"
                self._bad.append((bad.segment.data_path, bad.segment.data_offset, bad.segment.data_len, why))

    def _drop_doubtful(self, replay: _Reading, now_ms: int) -> None:
        """Records that a lost delete may have taken: kept as lines, and a gap in the topic."""
        opened = replay.opened
        logs: dict[int, list[LogFile]] = {}
        for piece in opened.pieces:
            logs.setdefault(piece.file.shard, []).append(piece.file)
        readers = Readers(self._source, opened.store_id, seed_of(opened.store_id), logs)
        try:
            for topic_id, head in replay.careful.undecided:
                slot = replay.catalog.by_id.get(topic_id)
                if slot is None or not self.wanted(slot.name):
                    continue
                topic = slot.topic
                runs = list(topic.live_runs(topic.earliest_seq, head)) if head >= topic.earliest_seq else []
                if topic.tail.blocks and topic.tail.blocks[-1].open:
                    topic.tail.blocks[-1].close()
                lines = self._lines.setdefault(slot.name, [])
                for block in topic.tail.blocks:
                    for run in source_of(topic, block).runs(readers):
                        lines += _fragments(run, head)
                for first, last in runs:
                    topic.apply_gap(first, last, Reason.CORRUPTION, now_ms)
                    self.report.doubtful.append(LostRange(topic=slot.name, first=first, last=last))
        finally:
            readers.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, target: Fs) -> Report:
        """Write the new store and what is beside it. Raises `OSError`: then there is no store in `target`."""
        replay = self._replay
        assert replay is not None, "read() comes first"
        rebuild = Rebuild(
            self._source, replay, target, self._clock, self._settings, lambda part: self._heard("new store", part)
        )
        report = self.report
        begin_lock(target)
        if self._bad or self._strange or self._lines:
            target.mkdir(LOST_DIR)
            target.fsync_dir("")
            self._keep(target)
        rebuild.run(self.wanted)
        report.store = rebuild.store_id.hex()
        report.records, report.bytes, report.segments = rebuild.records, rebuild.bytes, rebuild.segments
        self._note_unread()
        return report

    def _keep(self, target: Fs) -> None:
        """Copy what is bad to lost/."""
        wanted = {(path, offset, length): (self._sound, "", why) for path, offset, length, why in reversed(self._bad)}
        wanted |= {(path, 0, -1): (self._there, "left-out_", why) for path, why in self._strange}
        for (path, offset, length), (source, prefix, why) in sorted(wanted.items(), key=lambda one: one[0]):
            name = f"{prefix}{path.replace('/', '_')}-{offset}.bytes"
            copied = self._copy(source, target, path, offset, length, f"{LOST_DIR}/{name}")
            if copied is not None:
                size, digest = copied
                self.report.kept.append(
                    KeptBytes(file=name, source=path, offset=offset, length=size, xxh3_128=digest, why=why)
                )
        for number, (topic, lines) in enumerate(sorted(self._lines.items()), 1):
            name = f"doubtful-{number}.ndjson"
            content = b"".join(line.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for line in lines)
            write_new(target, f"{LOST_DIR}/{name}", [content])
            why = f"records of topic {topic} that a lost delete may have taken"
            digest = xxh3_128_hexdigest(content)
            self.report.kept.append(
                KeptBytes(file=name, source="", offset=0, length=len(content), xxh3_128=digest, why=why)
            )
        target.fsync_dir(LOST_DIR)

    def _copy(self, source: Fs, target: Fs, path: str, offset: int, length: int, to: str) -> tuple[int, str] | None:
        """Copy a stretch (to the end, with length -1); its size and digest, or None when there is nothing."""
        try:
            handle = source.open(path, OpenMode.READ)
        except OSError:
            return None
        try:
            end = source.size(handle) if length < 0 else offset + length
            digest, size = xxh3_128(), 0

            def parts() -> Iterator[bytes]:
                nonlocal size
                at = offset
                while at < end and (part := source.pread(handle, min(_COPY, end - at), at)):
                    digest.update(part)
                    size += len(part)
                    at += len(part)
                    yield part

            write_new(target, to, parts())
        except OSError as error:
            self.report.notes.append(f"{path}: the bad bytes could not be copied: {error}")
            return None
        finally:
            source.close(handle)
        return size, digest.hexdigest()


def without_advice(said: str) -> str:
    """What a start says, without what it tells people to do: that is what they have just done."""
    for advice in (NEXT_STEP, NO_SETTING):
        said = said.replace(f". {advice}", "")
    return said


def put_report(target: Fs, report: Report, text: str) -> None:
    """Write the report beside the store, as JSON and as text."""
    if not target.exists(LOST_DIR):
        target.mkdir(LOST_DIR)
        target.fsync_dir("")
    write_new(target, f"{LOST_DIR}/report.json", [msgspec.json.format(msgspec.json.encode(report)) + b"\n"])
    write_new(target, f"{LOST_DIR}/report.txt", [text.encode()])
    target.fsync_dir(LOST_DIR)


def _fragments(run: Run, head: int) -> list[bytes]:
    """The records of a run up to a seq."""
    flat, at, found = bytes(run.data), 0, []
    for index, stride in enumerate(run.strides):
        if run.first_seq + index <= head:
            found.append(flat[at : at + stride - 1])
        at += stride
    return found


def _outside(known: RangeSet, first: int, last: int) -> list[tuple[int, int]]:
    """The parts of a range that a set does not hold."""
    found, start = [], first
    for low, high in known.between(first, last):
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    if start <= last:
        found.append((start, last))
    return found


def _shards_of(fs: Fs, settings: EngineSettings) -> int:
    """So many shards as the store has, so that topics are looked for where they live."""
    from engine.formats.manifest import MANIFEST_PATH, BadMeta, Manifest

    try:
        manifest = read_meta(fs, MANIFEST_PATH, Manifest)
    except (OSError, BadMeta):
        return settings.wal_shards
    return settings.wal_shards if manifest is Missing.MISSING else max(len(manifest.shards), 1)
