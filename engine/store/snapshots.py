"""Which snapshot a start begins from, and what the files that it names are missing.

    newest whose sections all check, whose files are all there, and from whose cuts on the log is whole
    else the older one, in the same way (more log is read)
    else the log alone, if it reaches back to the beginning
    else the newest one that checks, without what is missing of its segments: those records are a gap (`isolate`);
    of a segment that was cut short, what lies behind the cut becomes one when it is read
    else, under `salvage`, the newest one that checks, with what is left of the log behind it
    else nothing: refuse, naming files and what helps

A snapshot is proof: of files, that they were there whole; of the log, that it was on disk up to its `end_lsn`. Pure
reading; `.idx` and `.tags` are not looked at, for they can be made again from `.data`, and `.data` only from outside,
for it may be large and lie in the cold tier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.header import FILE_HEADER_LEN, FORMAT_VERSION, parse_file_header
from engine.formats.segment import sums_len
from engine.formats.snapshot import (
    META_DIR,
    SECTION_HEAD_LEN,
    BadSnapshot,
    Globals,
    SectionKind,
    SegmentEntry,
    ShardCut,
    Snapshot,
    SnapshotDecoder,
    TopicImage,
    check_header,
    decode_globals,
    parse_section_head,
    parse_snapshot_name,
    parse_tails_name,
    snapshot_path,
)
from engine.fs import Fs, OpenMode
from engine.limits import OnCorruption
from engine.segment.segment import Segment
from engine.segment.tiers import ColdError
from engine.segment.whose import ELSEWHERE, is_ours, read_deletes
from engine.store.scan import Directory, check_log
from engine.store.walk import NEXT_STEP, NO_SETTING
from engine.tagset import TagSet

TAGS_BYTES_MAX: Final = 1024
"""Sets of tags up to this size are in the snapshot; larger ones are read from `.tags` when they are asked for."""
SNAPSHOTS_KEPT: Final = 2
"""The log is trimmed only behind the older one, so that one bad snapshot costs time and nothing else."""
_READ: Final = 1 << 20


class Lost(NamedTuple):
    """A segment whose records cannot be read, or must not be because nobody knows which of them were deleted."""

    path: str
    why: str
    begins: bool = False
    """It was cut short, and its index is whole: exactly the records before the cut can be read."""


class Restorable(NamedTuple):
    """A snapshot with what was found of the files that it names."""

    snapshot: Snapshot
    lost: dict[tuple[int, int], Lost]
    """By topic id and first seq."""
    deleted: dict[int, list[tuple[int, int]]]
    """By topic id: seqs that .del files say are deleted, as ascending ranges."""
    tails: dict[str, int | None]
    """Lengths of the tails files that it names; None for one that is missing, or another file."""


class Start(NamedTuple):
    """What a start begins from."""

    begin: Restorable | None
    """None: from the log alone."""
    report: list[str]
    """What was wrong on the way."""
    bad: list[str]
    """Snapshots that fail their checks: they are moved to quarantine."""
    number: int
    """The greatest number that a file of a checkpoint has; the next checkpoint's is greater."""
    kept: tuple[Globals, ...] = ()
    """Of the newest two snapshots that can be read what they say of the whole store, ascending; the last is `begin`."""

    def cut(self, shard: int, start_lsn: int) -> ShardCut:
        """Where the log of a shard begins to be read."""
        if self.begin is None:
            return ShardCut(shard=shard, lsn=start_lsn)
        return self.begin.snapshot.globals.cut(shard)


def read_snapshot(fs: Fs, number: int, store_id: bytes) -> Snapshot:
    """A snapshot, all of its checks done. Raises `BadSnapshot`, `StoreForeign` for a newer format, and `OSError`."""
    path = snapshot_path(number)
    handle = fs.open(path, OpenMode.READ)
    try:
        header = parse_file_header(fs.pread(handle, FILE_HEADER_LEN, 0))
        if header is not None and header.version > FORMAT_VERSION:
            raise StoreForeign(
                f"{path} has format {header.version}, this version of topics knows up to {FORMAT_VERSION}. "
                "Nothing was changed; start it with the newer version"
            )
        check_header(header, store_id, number)
        decoder = SnapshotDecoder()
        offset = FILE_HEADER_LEN
        while chunk := fs.pread(handle, _READ, offset):
            decoder.feed(chunk)
            offset += len(chunk)
    finally:
        fs.close(handle)
    snapshot = decoder.finish()
    if snapshot.globals.number != number:
        raise BadSnapshot(f"its globals say that it is number {snapshot.globals.number}")
    return snapshot


def read_globals(fs: Fs, number: int, store_id: bytes) -> Globals:
    """What a snapshot says of the whole store, without reading its topics. Raises `BadSnapshot` and `OSError`."""
    handle = fs.open(snapshot_path(number), OpenMode.READ)
    try:
        check_header(parse_file_header(fs.pread(handle, FILE_HEADER_LEN, 0)), store_id, number)
        offset = FILE_HEADER_LEN
        while head := fs.pread(handle, SECTION_HEAD_LEN, offset):
            kind, length = parse_section_head(head)
            offset += SECTION_HEAD_LEN
            if kind == SectionKind.GLOBALS:
                return decode_globals(head, fs.pread(handle, length, offset))
            offset += length
    finally:
        fs.close(handle)
    raise BadSnapshot("it has no globals")


def segment_of(image: TopicImage, entry: SegmentEntry) -> Segment:
    """The segment that an entry of an image names."""
    segment = Segment(
        image.id,
        entry.first,
        entry.count,
        entry.count if entry.present < 0 else entry.present,
        entry.number,
        entry.offset,
        entry.data_len,
        entry.first_ts,
        entry.last_ts,
        entry.flags,
    )
    segment.del_version, segment.del_digest = entry.deletes, entry.digest
    segment.cold, segment.worn = entry.cold, entry.worn
    return segment


def entry_of(segment: Segment, live: int, size: int, tags: TagSet | None) -> SegmentEntry:
    """What an image says of a segment of which so many records are live and count for so much."""
    packed = None if tags is None else tags.packed()
    return SegmentEntry(
        first=segment.first_seq,
        count=segment.count,
        present=-1 if segment.present == segment.count else segment.present,
        number=segment.number,
        offset=segment.offset,
        data_len=segment.data_len,
        first_ts=segment.first_ts,
        last_ts=segment.last_ts,
        flags=segment.flags,
        live=live,
        size=size,
        deletes=segment.del_version,
        digest=segment.del_digest,
        cold=segment.cold,
        worn=segment.worn,
        tags=None if packed is None or len(packed) > TAGS_BYTES_MAX else packed,
    )


def choose(fs: Fs, store_id: bytes, directory: Directory, policy: OnCorruption) -> Start:
    """Find what to begin from. Raises `StoreDamaged` when there is nothing, and `OSError`."""
    start = _choose(fs, store_id, directory, policy)
    if start.begin is None:
        return start
    newest = start.begin.snapshot.globals
    names = fs.list(META_DIR)
    older = [n for name in names if (n := parse_snapshot_name(name)) is not None and n < newest.number]
    kept: tuple[Globals, ...] = (newest,)
    if older:
        try:
            kept = (read_globals(fs, max(older), store_id), newest)
        except BadSnapshot as error:
            start.report.append(f"{snapshot_path(max(older))} is damaged: {error}")
            start.bad.append(snapshot_path(max(older)))
    # Both snapshots may lack the same file.
    return start._replace(kept=kept, report=list(dict.fromkeys(start.report)))


def _choose(fs: Fs, store_id: bytes, directory: Directory, policy: OnCorruption) -> Start:
    names = fs.list(META_DIR)
    numbers = sorted((n for name in names if (n := parse_snapshot_name(name)) is not None), reverse=True)
    highest = max([0, *numbers, *(n for name in names if (n := parse_tails_name(name)) is not None)])
    report: list[str] = []
    bad: list[str] = []
    flawed: list[Restorable] = []
    torn: list[Restorable] = []
    refusal: StoreDamaged | None = None
    for number in numbers:
        path = snapshot_path(number)
        try:
            found = inspect(fs, store_id, read_snapshot(fs, number, store_id))
        except BadSnapshot as error:
            bad.append(path)
            report.append(f"{path} is damaged: {error}")
            continue
        trouble = _log_trouble(directory, store_id, found.snapshot.globals.cut)
        if trouble is not None:
            refusal = refusal or trouble
            torn.append(found)
            report.append(str(trouble))
            continue
        if not found.lost:
            if report:
                report.append(f"{path} is used instead, with the log behind it")
            return Start(found, report, bad, highest)
        flawed.append(found)
        report += [f"{lost.path}: {lost.why}" for lost in found.lost.values()]
    begins, whole = all_log(directory, store_id)
    if begins and whole is None:
        if numbers:
            report.append("the store is read from its log alone, which reaches back to the beginning")
        return Start(None, report, bad, highest)
    if flawed:
        return Start(_accepted(flawed[0], policy), report, bad, highest)
    if policy is OnCorruption.SALVAGE:
        if torn:
            return Start(_accepted(torn[0], policy), report, bad, highest)
        if not numbers:
            return Start(None, [*report, str(whole)], bad, highest)
    if refusal is not None:
        raise refusal
    if bad:
        raise StoreDamaged(
            f"{' and '.join(bad)}: no snapshot checks ({'; '.join(report)}), and the log does not reach back to the "
            f"beginning. Concerned: all topics. {NO_SETTING}"
        )
    if begins and whole is not None:
        raise whole
    raise StoreDamaged(
        f"{META_DIR}/ holds no snapshot, but meta/MANIFEST says that the log begins behind one. Concerned: all topics. "
        f"{NO_SETTING}"
    )


def all_log(directory: Directory, store_id: bytes) -> tuple[bool, StoreDamaged | None]:
    """Whether the kept log begins where the store did, and what is missing of it from there on."""
    begins = all(found.entry.start_lsn == 0 for found in directory.shards)
    return begins, _log_trouble(directory, store_id, lambda shard: ShardCut(shard=shard, lsn=0))


def _log_trouble(directory: Directory, store_id: bytes, cut: Callable[[int], ShardCut]) -> StoreDamaged | None:
    """What the log lacks from the cuts on, or None. Raises `StoreForeign`: such a file is never passed over."""
    try:
        for found in directory.shards:
            check_log(found, store_id, cut(found.entry.shard).lsn)
    except StoreForeign:
        raise
    except StoreDamaged as error:
        return error
    return None


def _accepted(found: Restorable, policy: OnCorruption) -> Restorable:
    """The best there is, though segments of it are lost, unless the operator wants to decide about that.

    One that was cut short is read as far as it goes: what is missing of it is damage like any other, met by readers.
    """
    if policy is not OnCorruption.REFUSE:
        return found._replace(lost={key: lost for key, lost in found.lost.items() if not lost.begins})
    names = {image.id: image.name for image, _ in found.snapshot.topics()}
    topics = sorted({names[topic_id] for topic_id, _ in found.lost})
    lost = next(iter(found.lost.values()))
    raise StoreDamaged(
        f"{lost.path}: {lost.why} ({len(found.lost)} segments are concerned, of topics {', '.join(topics[:8])}). "
        f"{NEXT_STEP}"
    )


def inspect(fs: Fs, store_id: bytes, snapshot: Snapshot) -> Restorable:
    """Look at the files that a snapshot names. Raises `OSError` for anything but absence, `StoreForeign` for a tails
    file of a newer format."""
    lost: dict[tuple[int, int], Lost] = {}
    deleted: dict[int, list[tuple[int, int]]] = {}
    tails: dict[str, int | None] = {}
    for image, _ in snapshot.topics():
        for entry in image.segments:
            segment = segment_of(image, entry)
            why = _missing(fs, store_id, segment, tails)
            if entry.deletes:
                # Of a lost segment too: what was deleted is not lost.
                why = _read_deletes(fs, store_id, segment, deleted) or why
            if why is not None:
                lost[image.id, entry.first] = why
    return Restorable(snapshot, lost, deleted, tails)


def _missing(fs: Fs, store_id: bytes, segment: Segment, tails: dict[str, int | None]) -> Lost | None:
    """Why the records of a segment are gone, or None."""
    path = segment.data_path
    if segment.cold:
        return None
    if segment.in_tails:
        if path not in tails:
            tails[path] = length_of(fs, path)
            if tails[path] is not None and not is_ours(fs, store_id, segment):
                tails[path] = None
        length = tails[path]
    else:
        length = length_of(fs, path)
    if length is None:
        return Lost(path, ELSEWHERE if fs.exists(path) else "it is missing")
    if length < segment.data_size:
        why = f"it was cut short: {length} bytes are there, {segment.data_size} are needed"
        return Lost(path, why, length > segment.data_offset and _has_index(fs, segment))
    return None


def _has_index(fs: Fs, segment: Segment) -> bool:
    """Whether the index of a segment is there to its end; in a tails file it lies before the data."""
    length = None if segment.in_tails else length_of(fs, segment.idx_path)
    return segment.in_tails or (length is not None and length >= segment.sums_offset + sums_len(segment.count))


def _read_deletes(fs: Fs, store_id: bytes, segment: Segment, deleted: dict[int, list[tuple[int, int]]]) -> Lost | None:
    """Take in which rows were deleted; a segment of which that is not known must not be read."""
    try:
        rows = read_deletes(fs, store_id, segment, segment.del_version, segment.del_digest)
    except (StoreDamaged, FileNotFoundError) as error:
        path = segment.del_path(segment.del_version)
        return Lost(path, f"which records of {segment.data_path} were deleted cannot be read: {error}")
    first = segment.first_seq
    deleted.setdefault(segment.topic_id, []).extend((first + start, first + stop) for start, stop in rows)
    return None


def length_of(fs: Fs, path: str) -> int | None:
    """A file's length, or None where there is none; one that should be here may be had from the cold tier, or not."""
    try:
        handle = fs.open(path, OpenMode.READ)
    except FileNotFoundError:
        return None
    try:
        return fs.size(handle)
    except ColdError:
        return None
    finally:
        fs.close(handle)


def named_files(snapshot: Snapshot) -> set[str]:
    """Every file that a snapshot needs, itself included."""
    files = {snapshot_path(snapshot.globals.number)}
    for image, _ in snapshot.topics():
        for entry in image.segments:
            segment = segment_of(image, entry)
            files.update(segment.paths() or (segment.data_path,))
    return files
