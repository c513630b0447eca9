"""Checking a whole store: what a start would say to it, and then every byte that a start does not read.

    1  open, walk, replay        the very code of a start (so the verdicts are the daemon's), ending in topics
    2  when that refuses         every log file by itself, so that all of the damage is listed and not only its first
    3  otherwise                 log files that a start passes over; segments to their last payload byte
    4  what nothing names        leftovers and strays
    5  what the disk refuses     each place, once everything else was read around it (engine.tools.unreadable)

Findings are given out as they are found. Nothing is written; the file system that this is given refuses all writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from engine.clock import Clock
from engine.core.replay import Replay
from engine.errors import StoreDamaged, StoreError, StoreIOError
from engine.formats.manifest import MANIFEST_PATH, STORE_PATH, BadMeta, Manifest, StoreInfo
from engine.fs import Fs, OpenMode
from engine.limits import EngineSettings, OnCorruption
from engine.segment.tiers import TieredFs, here
from engine.store.init import Missing, read_meta
from engine.store.recovery import OpenedStore, open_store
from engine.store.snapshots import Restorable
from engine.store.verdicts import Row, Verdict
from engine.store.walk import CorruptionGap, Cut
from engine.tools.cold_side import ColdCounts
from engine.tools.finding import Finding, FindingId, Severity
from engine.tools.history import History
from engine.tools.log_file import SAVE, LogScan
from engine.tools.patched import Patched, outlived, patch
from engine.tools.unreadable import Readable, Unread
from engine.topic.rangeset import RangeSet
from engine.wal.chain import TMP_SUFFIX, WAL_DIR, LogFile, owners, parse_log_name, parse_shard_dir, pieces, shard_dir

_OFFSET: Final = re.compile(r"offset (\d+)")
_FILE: Final = re.compile(r"(STORE|LOCK|meta/\S+?|(?:wal|topics|exports)/\S+?)(?:'?[:,;]? |'?$)")


LOSSES_SAID: Final = 8
"""Of more ranges that a topic lost earlier only their number is said."""


class Summary(msgspec.Struct, kw_only=True):
    """What was looked at, when all is done."""

    verdict: str = ""
    """What a start would do: start, isolate, refuse."""
    topics: int = 0
    records: int = 0
    log_bytes: int = 0
    """Of log files that were read."""
    segments: int = 0
    segment_bytes: int = 0
    cold: ColdCounts | None = None
    """What lies in the cold tier; None where nothing does."""
    skipped: list[str] = []
    """What was left out, in words."""
    damage: int = 0
    warnings: int = 0
    notes: int = 0


class Fsck:
    """One check of one store."""

    def __init__(
        self,
        fs: Fs,
        clock: Clock,
        found: Callable[[Finding], None],
        heard: Callable[[str, float], None],
        settings: EngineSettings | None = None,
        *,
        quick: bool = False,
        subset: tuple[int, int] = (1, 1),
    ) -> None:
        """`found` gets each finding; `heard` what is being read, and how far (0 … 1), now and then."""
        self.summary = Summary()
        self.replay: Replay | None = None
        """The topics as a start would have them; None when it would refuse."""
        self._start_fs = here(fs)
        """As a start has it."""
        self._readable = Readable(self._start_fs)
        self._fs: Fs = TieredFs(self._readable, fs.tier) if isinstance(fs, TieredFs) else self._readable
        self._clock = clock
        self._settings = settings if settings is not None else EngineSettings()
        self._found = found
        self._heard = heard
        self._quick = quick
        self._subset = subset
        self._lost = 0
        """Segments that a start would do without …"""
        self._gone: dict[int, RangeSet] = {}
        """… and their seqs by topic id."""
        self._looked: History | None = None
        """What was looked at of the files that snapshots name."""

    def run(self) -> Summary:
        """Check everything. Raises `StoreMissing` where there is no store, and whatever the callbacks raise."""
        opened: OpenedStore | None = None
        try:
            opened = self._open()
            if opened is not None:
                self._beyond(opened)
        finally:
            if opened is not None:
                opened.close()
        self._strays()
        for place in self._readable.unread():
            self._say(_refused(place))
        return self.summary

    def _say(self, finding: Finding) -> None:
        summary = self.summary
        if finding.severity is Severity.DAMAGE:
            summary.damage += 1
        elif finding.severity is Severity.WARNING:
            summary.warnings += 1
        else:
            summary.notes += 1
        self._found(finding)

    # -- what a start would say ----------------------------------------------------------------------------------------

    def _open(self) -> OpenedStore | None:
        """Open and replay as a start would; None when it would refuse."""
        opened: OpenedStore | None = None
        try:
            opened = open_store(self._start_fs, self._clock, self._settings, make=False)
            start = opened.start
            self._lost = 0 if start.begin is None else len(start.begin.lost)
            self._gone = _gone(start.begin)
            self._looked = self._history(opened)
            self._looked.of_start(start.begin, start.bad)
            replay = Replay(opened, self._settings)
            replay.run(lambda part: self._heard("log", part))
            replay.conclude(opened.engine_time(replay.last_ts).advance())
        except (StoreDamaged, StoreIOError) as error:
            if opened is not None:
                opened.close()
            self.summary.verdict = "refuse"
            self._say(refusal(error))
            self._beyond_refusal()
            return None
        self.replay = replay
        gaps = opened.damage
        self.summary.verdict = "isolate" if gaps or self._lost else "start"
        for gap in gaps:
            self._say(self._isolated(replay, gap))
        for cut in opened.cuts:
            self._say(_tail(cut))
        self.summary.topics = len(replay.catalog.by_id)
        self.summary.records = sum(slot.topic.count for slot in replay.catalog.by_id.values())
        return opened

    def _isolated(self, replay: Replay, gap: CorruptionGap) -> Finding:
        slot = replay.catalog.by_id.get(gap.topic_id)
        return Finding(
            severity=Severity.DAMAGE,
            id=FindingId.WAL_FRAME,
            file=gap.path,
            offset=gap.offset,
            topic=slot.name if slot is not None else f"#{gap.topic_id:x}",
            seqs=(gap.first_seq, gap.last_seq),
            what=f"the records of this write do not check ({gap.end - gap.lsn} bytes); a start makes them a gap that "
            "readers meet as a tombstone, and serves everything else",
            next_step=SAVE,
        )

    # -- what a start would not say ------------------------------------------------------------------------------------

    def _beyond_refusal(self) -> None:
        """What else is wrong with a store that a start refuses: its log file by file, and every file of history that
        can be told from what is left of the log and the snapshots."""
        settings = msgspec.structs.replace(self._settings, on_corruption=OnCorruption.SALVAGE)
        opened: OpenedStore | None = None
        history: History | None = None

        def read(view: Patched) -> Replay:
            nonlocal opened, history
            if opened is not None:
                opened.close()
            opened = open_store(view, self._clock, settings, make=False)
            if history is None:
                history = self._history(opened)
                history.of_start(opened.start.begin, opened.start.bad)
            replay = Replay(opened, settings)
            replay.run(lambda part: self._heard("log", part))
            return replay

        try:
            try:
                replay = outlived(patch(here(self._fs), []), [], read)
            except (StoreDamaged, StoreIOError):
                self._every_log_file({})
                self.summary.skipped.append("segments: nothing that can be read says which there are")
                return
            self._every_log_file({slot.topic.id: slot.name for slot in replay.catalog.by_id.values()})
            assert history is not None
            history.of_topics(replay.catalog)
            self._count(history)
        finally:
            if opened is not None:
                opened.close()

    def _every_log_file(self, names: dict[int, str]) -> None:
        """After a refusal: all that is wrong with the log, file by file; `names` of topics by their ids."""
        fs = self._fs
        store_id = self._store_id()
        for shard, logs in self._logs():
            chain, _ = owners(logs)
            scans: list[tuple[LogScan, int]] = []
            try:
                durable = self._known_end(shard)
                for piece in pieces(chain):
                    scan = LogScan(fs, piece.file.path, store_id)
                    scans.append((scan, piece.end_lsn))
                    scan.names = names
                    for _ in scan.items():
                        self._heard(scan.path, scan.done / max(scan.size, 1))
                    self.summary.log_bytes += scan.size
                    durable = max(durable, scan.durable_lsn)
                for scan, end_lsn in scans:
                    scan.durable_lsn = durable
                    scan.bad = [place for place in scan.bad if scan.lsn(place.offset) < end_lsn]
                    for finding in scan.findings():
                        self._say(finding)
            except OSError as error:
                self._say(_unreadable(shard_dir(shard), error))
            finally:
                for scan, _ in scans:
                    scan.close()

    def _logs(self) -> list[tuple[int, list[LogFile]]]:
        """The log files of each shard, by their names and sizes alone."""
        fs, found = self._fs, []
        try:
            for directory in fs.list(WAL_DIR) if fs.exists(WAL_DIR) else ():
                shard = parse_shard_dir(directory)
                if shard is None:
                    continue
                logs = []
                for name in fs.list(shard_dir(shard)):
                    parsed = parse_log_name(name)
                    if parsed is not None:
                        size = _size(fs, f"{shard_dir(shard)}/{name}")
                        logs.append(LogFile(shard, *parsed, size))
                found.append((shard, logs))
        except OSError as error:
            self._say(_unreadable(WAL_DIR, error))
        return found

    def _store_id(self) -> bytes | None:
        """What STORE says, if that can be read."""
        try:
            store = read_meta(self._fs, STORE_PATH, StoreInfo)
            return None if store is Missing.MISSING else bytes.fromhex(store.store_id)
        except (OSError, BadMeta, ValueError):
            return None

    def _known_end(self, shard: int) -> int:
        try:
            manifest = read_meta(self._fs, MANIFEST_PATH, Manifest)
        except (OSError, BadMeta):
            return 0
        entry = None if manifest is Missing.MISSING else manifest.entry(shard)
        return 0 if entry is None else entry.end_lsn

    def _beyond(self, opened: OpenedStore) -> None:
        """What a start passes over: losses of earlier days, and parts of the log that it does not need."""
        assert self.replay is not None
        for name in self.replay.catalog.names:
            topic = self.replay.catalog.visible[name].topic
            known = {(gap.first_seq, gap.last_seq) for gap in opened.damage if gap.topic_id == topic.id}
            gone = self._gone.get(topic.id, RangeSet())
            losses = [seqs for seqs in topic.damage() if seqs not in known and seqs[0] not in gone]
            said = [
                (seqs, "these records were lost to damage earlier, and are a gap that readers meet") for seqs in losses
            ]
            if len(losses) > LOSSES_SAID:
                count = sum(last - first + 1 for first, last in losses)
                what = f"{count} of these, in {len(losses)} ranges, were lost to damage earlier: gaps that readers meet"
                said = [((losses[0][0], losses[-1][1]), what)]
            for seqs, what in said:
                self._say(Finding(severity=Severity.NOTE, id=FindingId.LOST, file="", topic=name, seqs=seqs, what=what))
        history = self._looked
        assert history is not None
        history.of_topics(self.replay.catalog)
        history.of_others(0 if opened.snapshot is None else opened.snapshot.number, opened.start.bad)
        history.of_nobody(self.replay.attached_files)
        self._count(history)
        walked = {piece.file.path for piece in opened.pieces}
        for _, logs in self._logs():
            for log in logs:
                if log.path in walked:
                    self.summary.log_bytes += log.size
                elif not self._quick:
                    self._unneeded(log, opened.store_id)
        if self._quick:
            self.summary.skipped.append("log files that a start does not need")

    def _count(self, history: History) -> None:
        """Take over what was looked at of the history."""
        self.summary.segments, self.summary.segment_bytes = history.segments, history.bytes
        if history.cold != ColdCounts():
            self.summary.cold = history.cold
        if history.passed_over:
            self.summary.skipped.append(f"the payloads of {history.passed_over} of {history.segments} segments")
        if history.given_up:
            self.summary.skipped.append(history.given_up)

    def _history(self, opened: OpenedStore) -> History:
        return History(self._fs, opened.store_id, self._say, self._heard, quick=self._quick, subset=self._subset)

    def _unneeded(self, log: LogFile, store_id: bytes) -> None:
        try:
            scan = LogScan(self._fs, log.path, store_id)
        except OSError as error:
            self._say(_unreadable(log.path, error))
            return
        try:
            for _ in scan.items():
                self._heard(scan.path, scan.done / max(scan.size, 1))
            self.summary.log_bytes += scan.size
            for finding in scan.findings():
                if finding.severity is Severity.DAMAGE:
                    what = f"in a part of the log that no start needs any more: {finding.what}"
                    self._say(
                        msgspec.structs.replace(
                            finding, severity=Severity.WARNING, id=FindingId.WAL_UNNEEDED, what=what, next_step=""
                        )
                    )
        except OSError as error:
            self._say(_unreadable(log.path, error))
        finally:
            scan.close()

    def _strays(self) -> None:
        """Temporary files of a crash."""
        for directory in ("", "meta", *(shard_dir(shard) for shard, _ in self._logs())):
            try:
                names = self._fs.list(directory)
            except OSError:
                continue
            for name in names:
                if name.endswith(TMP_SUFFIX):
                    self._say(
                        Finding(
                            severity=Severity.NOTE,
                            id=FindingId.STRAY,
                            file=f"{directory}/{name}".lstrip("/"),
                            what="a file that was never finished",
                            next_step="nothing to do: a start removes it",
                        )
                    )


def _gone(begin: Restorable | None) -> dict[int, RangeSet]:
    """By topic id: the seqs of segments that a start would do without."""
    gone: dict[int, RangeSet] = {}
    if begin is None or not begin.lost:
        return gone
    for image, _ in begin.snapshot.topics():
        for entry in image.segments:
            if (image.id, entry.first) in begin.lost:
                gone.setdefault(image.id, RangeSet()).add(entry.first, entry.first + entry.count - 1)
    return gone


def refusal(error: StoreError) -> Finding:
    """The finding that a start would refuse, and where."""
    text = str(error)
    file, offset = _FILE.search(text), _OFFSET.search(text)
    what, _, _ = text.partition(". Nothing was changed")
    kind = FindingId.UNREADABLE if isinstance(error, StoreIOError) else FindingId.REFUSED
    return Finding(
        severity=Severity.DAMAGE,
        id=kind,
        file=file[1] if file is not None else "",
        offset=int(offset[1]) if offset is not None else None,
        what=f"a start refuses (exit {error.exit_code}): {what}",
        next_step="put the directory back from a backup, or `topics recover DIR --to NEW`",
    )


def _tail(cut: Cut) -> Finding:
    row: Row = cut.row
    assert row.verdict is Verdict.CUT
    return Finding(
        severity=Severity.NOTE,
        id=FindingId.WAL_TAIL,
        file=cut.path,
        offset=cut.offset,
        what=f"{cut.end_lsn - cut.first_lsn} bytes behind the end of the log (row {row.letter}: {row.why})",
        next_step="nothing to do: a start sets them aside in quarantine/",
    )


def _unreadable(path: str, error: OSError) -> Finding:
    return _refused(Unread(path=path, why=error.strerror or str(error)))


def _refused(place: Unread) -> Finding:
    """What the disk refuses, and that nobody knows what stood there."""
    part = "it cannot be read" if place.length < 0 else f"{place.length} bytes cannot be read"
    return Finding(
        severity=Severity.DAMAGE,
        id=FindingId.UNREADABLE,
        file=place.path,
        offset=None if place.length < 0 else place.offset,
        what=f"{part}: {place.why}",
        next_step="look at the disk (dmesg); `topics recover DIR --to NEW` saves everything else",
    )


def _size(fs: Fs, path: str) -> int:
    handle = fs.open(path, OpenMode.READ)
    try:
        return fs.size(handle)
    finally:
        fs.close(handle)
