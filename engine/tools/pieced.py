"""A snapshot pieced together where none checks and the log was trimmed behind them: what files still prove.

    sections of either snapshot that check    topics as they were, name and all; replay goes on from their `from_lsn`
    segments, tails files, .del files         topics whose names are lost: `salvaged-<id>`; their epoch is their id
    the log that is left                      all that came later, replayed as ever

Of a topic that has only its files nobody knows the configuration, or what was evicted or deleted since: its records are
*doubtful*. It is an assumption, so it is only made to save what can be saved, on a view that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from engine.errors import StoreDamaged
from engine.formats.frame import HEADER_LEN, NO_FRAME, FrameHeader, parse_header, seed_of
from engine.formats.header import FILE_HEADER_LEN, FileKind, parse_file_header
from engine.formats.manifest import MANIFEST_PATH, STORE_PATH, Manifest, ShardEntry, StoreInfo, decode_meta
from engine.formats.segment import CHECK_LEN, INFO_LEN, PIECE_ALIGN, BadSegment, index_len, parse_deletes, parse_info
from engine.formats.snapshot import (
    META_DIR,
    BadSnapshot,
    Globals,
    SegmentEntry,
    ShardCut,
    TopicImage,
    TopicsSection,
    encode_sections,
    good_sections,
    parse_snapshot_name,
    parse_tails_name,
    snapshot_path,
    tails_path,
)
from engine.fs import Fs, OpenMode, read_file
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.segment.write import segment_of
from engine.store.leftovers import checkpoint_files
from engine.store.scan import pieces_from, survey
from engine.store.snapshots import all_log, entry_of, read_snapshot
from engine.topic.block import Block
from engine.topic.cache import Cache
from engine.topic.rangeset import RangeSet
from engine.types import Reason, TopicConfig
from engine.wal.chain import Piece

_BLOCK: Final = 4096


class Pieced(NamedTuple):
    """What was pieced together."""

    path: str
    content: bytes
    """The snapshot that is to lie there."""
    nameless: frozenset[int]
    """Ids of topics that are known by their files alone."""
    bad: list[str]
    """The snapshots that do not check."""
    whole: bool
    """Whether there is no topic but those that something speaks of."""


def piece_together(fs: Fs, notes: list[str]) -> Pieced | None:
    """A snapshot in the place of those that do not check; None where one does, or where none is needed.

    `notes` gets what was assumed. STORE and MANIFEST are good. Raises `OSError`, and `StoreDamaged` for log that is
    missing whole.
    """
    store_id = bytes.fromhex(decode_meta(read_file(fs, STORE_PATH), StoreInfo).store_id)
    manifest = decode_meta(read_file(fs, MANIFEST_PATH), Manifest)
    numbers = sorted((n for name in fs.list(META_DIR) if (n := parse_snapshot_name(name)) is not None), reverse=True)
    begins, trouble = all_log(survey(fs, manifest), store_id)
    if begins and (trouble is None or not numbers):
        return None
    for number in numbers:
        try:
            read_snapshot(fs, number, store_id)
        except BadSnapshot:
            continue
        return None
    files = _Files(fs, store_id)
    known, images, whole = _images(fs, store_id, numbers)
    nameless = [(image, TopicConfig()) for image in files.images(manifest) if image.id not in images]
    base = known[0] if known else Globals(number=0, shards=len(manifest.shards))
    ends = [image.last_write_ts or 0 for image, _ in images.values()]
    routers = [router.number for image, _ in images.values() for router in image.routers]
    globals_ = msgspec.structs.replace(
        base,
        number=max([1, *numbers, files.highest]),
        last_ts=max([base.last_ts, files.last_ts, *ends]),
        epoch=max([base.epoch, *images, *routers, *(image.id for image, _ in nameless)]),
        last_epoch=max([base.last_epoch, *(image.epoch for image, _ in images.values())]),
        cuts=_cuts(fs, store_id, manifest, known),
    )
    bad = [snapshot_path(number) for number in numbers]
    lacks = "is not whole" if begins else "does not reach back to the beginning"
    notes.append(
        f"no snapshot checks ({' and '.join(bad) or 'there is none'}) and the log {lacks}: {len(images)} topics are "
        f"taken from sections of snapshots that check, {len(nameless)} from their files alone"
    )
    if not whole:
        notes.append(
            "a topic that neither a section, nor a file, nor the rest of the log speaks of is lost without a trace"
        )
    for image, _ in nameless:
        notes.append(
            f"the name and the configuration of topic {image.id:x} are lost: it is called {image.name!r}, "
            "and which of its records were deleted or evicted is not known for sure"
        )
    content = b"".join(encode_sections([*images.values(), *nameless], globals_, store_id))
    ids = frozenset(image.id for image, _ in nameless)
    return Pieced(snapshot_path(globals_.number), content, ids, bad, whole)


Images = dict[int, tuple[TopicImage, TopicConfig]]


def _images(fs: Fs, store_id: bytes, numbers: list[int]) -> tuple[list[Globals], Images, bool]:
    """What sections that check say, the newest first: of the store, of each topic; and whether these are all topics."""
    known: list[Globals] = []
    images: Images = {}
    whole = False
    for number in numbers:
        data = read_file(fs, snapshot_path(number))
        header = parse_file_header(data)
        if header is not None and (header.store_id, header.kind, header.first) != (
            store_id,
            FileKind.SNAPSHOT,
            number,
        ):
            continue
        topics, sound = 0, True
        for section in good_sections(data[FILE_HEADER_LEN:]):
            if isinstance(section, TopicsSection):
                topics += len(section.topics)
                for image in section.topics:
                    images.setdefault(image.id, (image, section.configs[image.config]))
            elif isinstance(section, Globals):
                known.append(section)
                whole = whole or sound  # no topics follow them
            elif section is None:
                sound = False
            else:
                whole = whole or section.topics == topics
    return known, images, whole


def _cuts(fs: Fs, store_id: bytes, manifest: Manifest, known: list[Globals]) -> list[ShardCut]:
    """Where the log that is left begins, and which frame it points back to."""
    directory = survey(fs, manifest)
    cuts = []
    for found in directory.shards:
        entry = found.entry
        said = next((cut for one in known for cut in one.cuts if _is_begin(cut, entry)), None)
        if said is None:
            last = NO_FRAME
            for piece in pieces_from(found, entry.start_lsn):
                first = _first_header(fs, piece, entry.start_lsn, seed_of(store_id))
                if first is not None:
                    last = first.lsn - first.back if first.back else NO_FRAME
                    break
            said = ShardCut(shard=entry.shard, lsn=entry.start_lsn, last_lsn=last, last_end=max(last, 0))
        cuts.append(said)
    return cuts


def _is_begin(cut: ShardCut, entry: ShardEntry) -> bool:
    return (cut.shard, cut.lsn) == (entry.shard, entry.start_lsn)


def _first_header(fs: Fs, piece: Piece, lsn: int, seed: int) -> FrameHeader | None:
    """The first frame of a file that begins a block, from a position on."""
    lsn = max(lsn, piece.file.first_lsn)
    handle = fs.open(piece.file.path, OpenMode.READ)
    try:
        while lsn < piece.end_lsn:
            data = fs.pread(handle, HEADER_LEN, piece.file.offset(lsn))
            header = parse_header(seed, data, 0, lsn) if len(data) == HEADER_LEN else None
            if header is not None:
                return header
            lsn += _BLOCK
    finally:
        fs.close(handle)
    return None


class _Files:
    """Segments as they lie there, for topics of which nothing else is known."""

    def __init__(self, fs: Fs, store_id: bytes) -> None:
        self._fs = fs
        self._store_id = store_id
        self.highest = 0
        """The greatest number of a checkpoint that has a file."""
        self.last_ts = 0

    def images(self, manifest: Manifest) -> Iterator[TopicImage]:
        """An image of each topic that has a file, with the newest segment of each stretch of its seqs."""
        by_topic: dict[int, list[Segment]] = {}
        for segment in self._segments():
            by_topic.setdefault(segment.topic_id, []).append(segment)
            self.highest = max(self.highest, segment.number)
            self.last_ts = max(self.last_ts, segment.last_ts)
        for topic_id, segments in sorted(by_topic.items()):
            yield self._image(topic_id, segments)

    def _image(self, topic_id: int, segments: list[Segment]) -> TopicImage:
        taken: list[Segment] = []
        spans = RangeSet()
        # Of what overlaps, the later one has what the earlier one had and was not deleted since.
        for one in sorted(segments, key=lambda one: (-one.number, one.offset != 0, one.first_seq)):
            last = one.first_seq + one.count - 1
            if not list(spans.between(one.first_seq, last)):
                spans.add(one.first_seq, last)
                taken.append(one)
        taken.sort(key=lambda one: one.first_seq)
        deleted = RangeSet()
        entries = [self._entry(one, deleted) for one in taken]
        first, head = taken[0].first_seq, taken[-1].first_seq + taken[-1].count - 1
        gaps, after = [], first
        for one in taken:
            if one.first_seq > after:
                gaps.append((after, one.first_seq - 1, Reason.CORRUPTION))
            after = one.first_seq + one.count
        return TopicImage(
            id=topic_id,
            name=f"salvaged-{topic_id:x}",
            epoch=topic_id,
            from_lsn=0,
            head=head,
            earliest=first,
            count=sum(entry.live for entry in entries),
            size=sum(entry.size for entry in entries),
            last_write_ts=max(one.last_ts for one in taken),
            deleted=list(deleted),
            gaps=gaps,
            lost=[(low, high) for low, high, _ in gaps],
            segments=entries,
        )

    def _entry(self, segment: Segment, deleted: RangeSet) -> SegmentEntry:
        """A segment without what the newest .del file beside it says, and without rows that have no record: these go to
        `deleted`, for the log that is left may delete them again."""
        dead = RangeSet.of(self._deletes(segment))
        live = size = 0
        # Where it is not here it may be in the cold tier; if it is not there either, reading it will tell.
        segment.cold = not segment.in_tails and not self._fs.exists(segment.data_path)
        cache = Cache()
        cache.history.attach(self._fs, lambda fs: SegmentFiles(fs, self._store_id))
        block = Block.sealed(segment, segment.present, 0, None)
        with SegmentFiles(self._fs, self._store_id) as files:
            rows = files.rows(segment, 0, segment.count)
        bounds = rows.bounds
        start = 0
        for low, high in [*dead, (segment.count, segment.count)]:
            if start < low:
                for row in range(start, low):
                    if bounds[row + 1] > bounds[row]:
                        live += 1
                    else:
                        deleted.add(segment.first_seq + row, segment.first_seq + row)
                size += cache.history.size(block, start, low)
            start = high + 1
        return entry_of(segment, live, size, None)

    def _deletes(self, segment: Segment) -> list[tuple[int, int]]:
        if segment.in_tails:
            return []
        directory, _, name = segment.data_path.rpartition("/")
        stem = name.removesuffix(".data") + "."
        versions = [
            int(part)
            for other in self._fs.list(directory)
            if other.startswith(stem)
            and other.endswith(".del")
            and (part := other.removeprefix(stem).removesuffix(".del")).isdigit()
        ]
        if not versions:
            return []
        segment.del_version = max(versions)
        data = read_file(self._fs, segment.del_path(segment.del_version))
        try:
            _, ranges, segment.del_digest = parse_deletes(data[FILE_HEADER_LEN:])
        except BadSegment:
            return []  # read again, and told, by who opens the snapshot
        return ranges

    def _segments(self) -> Iterator[Segment]:
        """Every segment and piece whose index says what it is, its rows readable."""
        with SegmentFiles(self._fs, self._store_id) as files:
            for segment in self._said():
                try:
                    files.rows(segment, 0, segment.count)
                except (StoreDamaged, OSError):
                    continue
                yield segment

    def _said(self) -> Iterator[Segment]:
        fs = self._fs
        for path in sorted(checkpoint_files(fs)):
            if path.endswith(".idx"):
                data = read_file(fs, path)
                header, info = parse_file_header(data), parse_info(data, FILE_HEADER_LEN)
                if header is not None and info is not None and header.store_id == self._store_id:
                    yield segment_of(info, header.run, 0)
        for name in sorted(fs.list(META_DIR)):
            number = parse_tails_name(name)
            if number is not None:
                yield from self._pieces(number)

    def _pieces(self, number: int) -> Iterator[Segment]:
        handle = self._fs.open(tails_path(number), OpenMode.READ)
        try:
            size, at = self._fs.size(handle), FILE_HEADER_LEN
            while at + INFO_LEN <= size:
                info = parse_info(self._fs.pread(handle, INFO_LEN, at))
                end = 0 if info is None else at + index_len(info.rows) + info.data_len + CHECK_LEN
                if info is None or end > size:
                    at += PIECE_ALIGN
                    continue
                yield segment_of(info, number, at)
                at = -(-end // PIECE_ALIGN) * PIECE_ALIGN
        finally:
            self._fs.close(handle)
