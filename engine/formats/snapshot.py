"""meta/snapshot-<n>.snap: everything that a store is but its records, as checkpoint *n* took it down (FORMATS.md).

    file header (kind 7, id 0, first = n)
    section …                     u32 kind, u32 length, u64 check, payload: one JSON object
        topics   (1)              up to `TOPICS_PER_SECTION` topics, and the configurations that they share
        globals  (2)              counters, cuts, topics that were dropped meanwhile
        end      (3)              how many sections and topics there are; nothing follows it

The check is the XXH3-64 of the payload, seeded with kind and length, so that a flipped bit anywhere is noticed; the end
section notices what is missing. Sections are made one after the other, so neither side holds the file at once. JSON for
the reason that control frames have: members that a version does not know are passed over, new ones are optional.

The topics are taken down one after the other while writes go on, each with the position in its shard that its image
stands at (`from_lsn`): replay skips what lies below. docs/adr/0015-cut-per-topic.md says why that is one cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from engine.formats.forward import RouterBody
from engine.formats.header import FORMAT_VERSION, FileHeader, FileKind, pack_file_header
from engine.formats.moving import MoveBody
from engine.types import Reason, TopicConfig

META_DIR: Final = "meta"
TOPICS_PER_SECTION: Final = 500
"""So that encoding a section takes a few milliseconds, and decoding one a few hundred kilobytes."""
SECTION_BYTES_MAX: Final = 1 << 30
"""As a frame's body: a length beyond is damage, whatever its check says."""

_HEAD: Final = Struct("<IIQ")
SECTION_HEAD_LEN: Final = 16
assert _HEAD.size == SECTION_HEAD_LEN
_SNAPSHOT_NAME: Final = re.compile(r"snapshot-(\d{10})\.snap\Z")
_TAILS_NAME: Final = re.compile(r"tails-(\d{10})\.data\Z")


def snapshot_path(number: int) -> str:
    """Where the snapshot of a checkpoint lies below the root."""
    return f"{META_DIR}/snapshot-{number:010d}.snap"


def tails_path(number: int) -> str:
    """Where the unsealed records that a checkpoint wrote lie below the root."""
    return f"{META_DIR}/tails-{number:010d}.data"


def parse_snapshot_name(name: str) -> int | None:
    """The number in a snapshot's name, or None for a name that is not ours."""
    match = _SNAPSHOT_NAME.match(name)
    return int(match[1]) if match else None


def parse_tails_name(name: str) -> int | None:
    """The number in a tails file's name, or None for a name that is not ours."""
    match = _TAILS_NAME.match(name)
    return int(match[1]) if match else None


class SectionKind(IntEnum):
    """What a section holds. Numbers are for ever."""

    TOPICS = 1
    GLOBALS = 2
    END = 3


class BadSnapshot(ValueError):
    """A snapshot that fails a check or does not hold what it should."""


class SegmentEntry(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One sealed run of records of a topic: files of its own, or a piece of a tails file."""

    first: int
    """The first seq."""
    count: int
    """How many seqs it spans, dead ones included."""
    present: int = -1
    """How many records were in it when it was sealed; -1: as many as seqs."""
    number: int
    """The checkpoint that made it, which is in the name of its files."""
    offset: int = 0
    """Where its piece begins in meta/tails-<number>.data; 0: it has files of its own."""
    data_len: int
    first_ts: int
    last_ts: int
    flags: int = 0
    """As in its SegmentInfo: whether some record has a node (1), meta (2), a tag (4)."""
    live: int
    """How many of its records are live…"""
    size: int
    """…and what they count for."""
    deletes: int = 0
    """The version of its .del file; 0: it has none."""
    digest: int = 0
    """XXH3-64 of that file."""
    cold: bool = False
    """Its .data lies in the cold tier."""
    worn: bool = False
    """It was read with repairs, and is to be written anew."""
    tags: bytes | None = None
    """Which tags occur, as in a .tags file, when that is short."""


class FloorImage(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What was lost from the front (engine/topic/floor.py)."""

    seq: int
    last_ts: int = 0
    unknown_from: int = 0
    ranges: list[tuple[int, Reason]] = []
    """(last seq, reason), ascending."""


class TopicImage(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Everything that a topic is, at one position of its shard."""

    id: int
    name: str
    epoch: int
    config: int = 0
    """Which of its section's configurations it has."""
    shard: int = 0
    from_lsn: int
    """Frames of the topic in this shard are in the image when they begin below."""
    head: int = 0
    earliest: int = 1
    count: int = 0
    """How many live records it has…"""
    size: int = 0
    """…and what they count for."""
    last_write_ts: int | None = None
    quiet: bool = False
    reserved: int = 0
    """Seqs up to here may have been used although no record of them is kept (ephemeral topics)."""
    floor: FloorImage | None = None
    gaps: list[tuple[int, int, Reason]] = []
    ghosts: list[tuple[int, int, int, int]] = []
    """(first, last, records, bytes) of damaged writes that go on counting for the caps."""
    lost: list[tuple[int, int]] = []
    """Ranges known lost to corruption."""
    deleted: list[tuple[int, int]] = []
    """Ranges above `earliest` that were deleted, but for those inside segments with files of their own."""
    keys: list[tuple[bytes, int, int, bytes, int]] = []
    """(key, first seq, count, digest, ts) of the idempotency keys, oldest first."""
    segments: list[SegmentEntry] = []
    """Its records, ascending."""
    cursors: list[tuple[str, int, int]] = []
    """(name, seq, ts) of its cursors."""
    routers: list[RouterBody] = []
    """The routers into it."""
    hops: list[tuple[int, int, int]] = []
    """(first, last, how often forwarded) of its copies."""
    queue: Any = None
    """Of a queue: what is known of its jobs, and its counters (engine/queue/snapshot.py)."""
    move: MoveBody | None = None
    """Where it has moved to; None: it is here."""
    moves: int = 0
    """How often it was offered to another store."""


class ShardCut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where the log of one shard goes on behind a snapshot."""

    shard: int
    lsn: int
    """A multiple of 4096. Everything below is in the images; replay begins here."""
    last_lsn: int = -1
    """The last frame below; -1: there is none."""
    last_end: int = 0
    """Where that frame ends."""
    end_lsn: int = 0
    """The end of a frame: the log was on disk up to here when the snapshot was written."""


class DroppedTopic(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A topic that was dropped while the snapshot was taken down: its frames behind the cut are passed over."""

    id: int
    name: str
    closed: bool = False
    """A write must not make the name again (`auto_create: false`)."""


class Globals(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What belongs to no single topic."""

    number: int
    predecessor: int = 0
    """The snapshot before this one; 0: there is none."""
    created_ms: int = 0
    """Wall clock."""
    last_ts: int = 0
    """Engine time never falls below."""
    order: int = 1
    """The next frame's."""
    tick: int = 1
    """The next group write's."""
    epoch: int = 0
    """The last id that was given out."""
    last_epoch: int = 0
    """The highest that a topic ever had."""
    shards: int = 1
    """How many took writes: topics live on `xxh3(id) % shards`."""
    closed_names: list[str] = []
    cuts: list[ShardCut] = []
    dropped: list[DroppedTopic] = []
    attached: list[str] = []
    """Offers that were taken: none is taken twice."""

    def cut(self, shard: int) -> ShardCut:
        """The cut of a shard; one that the snapshot does not know is read from its beginning."""
        return next((cut for cut in self.cuts if cut.shard == shard), ShardCut(shard=shard, lsn=0))


class TopicsSection(msgspec.Struct, kw_only=True, gc=False):
    """Some topics."""

    configs: list[TopicConfig]
    topics: list[TopicImage]


class EndSection(msgspec.Struct, kw_only=True):
    """The last section."""

    sections: int
    """How many came before this one."""
    topics: int


class Snapshot(NamedTuple):
    """A snapshot, whole and checked."""

    globals: Globals
    sections: list[TopicsSection]

    def topics(self) -> Iterator[tuple[TopicImage, TopicConfig]]:
        """Every topic, with its configuration."""
        for section in self.sections:
            for image in section.topics:
                yield image, section.configs[image.config]


_encoder: Final = msgspec.json.Encoder()
_topics_decoder: Final = msgspec.json.Decoder(TopicsSection)
_globals_decoder: Final = msgspec.json.Decoder(Globals)
_end_decoder: Final = msgspec.json.Decoder(EndSection)


def _section(kind: SectionKind, payload: bytes) -> bytes:
    return _HEAD.pack(kind, len(payload), _check(kind, payload)) + payload


def _topics_payload(configs: list[TopicConfig], images: Iterable[TopicImage]) -> bytes:
    """A `TopicsSection` as JSON, made topic by topic: a call that encodes all of them would keep the interpreter's lock
    from the loop for milliseconds."""
    encode = _encoder.encode
    return b'{"configs":%b,"topics":[%b]}' % (encode(configs), b",".join([encode(image) for image in images]))


def _check(kind: int, payload: bytes) -> int:
    return xxh3_64_intdigest(payload, kind << 32 | len(payload))


def snapshot_header(store_id: bytes, number: int, created_ms: int) -> FileHeader:
    """The file header of a snapshot."""
    return FileHeader(FORMAT_VERSION, FileKind.SNAPSHOT, 0, store_id, 0, number, created_ms)


def encode_sections(
    topics: Iterable[tuple[TopicImage, TopicConfig]], globals_: Globals, store_id: bytes
) -> Iterator[bytes]:
    """The bytes of a snapshot, piece by piece: the header, sections of topics, globals, the end.

    `topics` may be made while this is consumed; each image's `config` is set here. Assumes that all that the images
    name is on disk. Raises `BadSnapshot` for an image that does not add up, so that no start ever meets one.
    """
    yield pack_file_header(snapshot_header(store_id, globals_.number, globals_.created_ms))
    source = iter(topics)
    sections = total = 0
    while some := list(islice(source, TOPICS_PER_SECTION)):
        places: dict[TopicConfig, int] = {}
        for image, config in some:
            check_image(image)
            image.config = places.setdefault(config, len(places))
        yield _section(SectionKind.TOPICS, _topics_payload(list(places), (image for image, _ in some)))
        sections += 1
        total += len(some)
    yield _section(SectionKind.GLOBALS, _encoder.encode(globals_))
    yield _section(SectionKind.END, _encoder.encode(EndSection(sections=sections + 1, topics=total)))


def check_image(image: TopicImage) -> None:
    """That a topic counts what its segments do, and that they ascend. Raises `BadSnapshot`."""
    live = size = 0
    after = 0
    for entry in image.segments:
        live += entry.live
        size += entry.size
        if entry.first < after:
            raise BadSnapshot(f"a segment of topic {image.name!r} begins at {entry.first}, inside the one before")
        after = entry.first + entry.count
    if (live, size) != (image.count, image.size) or after > image.head + 1:
        raise BadSnapshot(
            f"the segments of topic {image.name!r} hold {live} live records of {size} bytes up to seq {after - 1}; the "
            f"topic has {image.count} of {image.size} up to {image.head}"
        )


class SnapshotDecoder:
    """Takes the bytes behind the file header in pieces of any size; `finish` gives the snapshot.

    Raises `BadSnapshot` as soon as something does not check.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._globals: Globals | None = None
        self._topics: list[TopicsSection] = []
        self._sections = 0
        self._total = 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD.size:
            kind, length, check = _HEAD.unpack_from(buffer)
            if length > SECTION_BYTES_MAX:
                raise BadSnapshot(f"section {self._sections} says that it is {length} bytes long")
            end = _HEAD.size + length
            if len(buffer) < end:
                return
            payload = bytes(memoryview(buffer)[_HEAD.size : end])
            if check != _check(kind, payload):
                raise BadSnapshot(f"section {self._sections} does not check")
            if self._ended:
                raise BadSnapshot("something follows the end")
            del buffer[:end]
            self._take(kind, payload)

    def _take(self, kind: int, payload: bytes) -> None:
        try:
            if kind == SectionKind.TOPICS:
                self._take_topics(_topics_decoder.decode(payload))
            elif kind == SectionKind.GLOBALS:
                if self._globals is not None:
                    raise BadSnapshot("there are two sections of globals")
                self._globals = _globals_decoder.decode(payload)
            elif kind == SectionKind.END:
                said = _end_decoder.decode(payload)
                if (said.sections, said.topics) != (self._sections, self._total):
                    raise BadSnapshot(
                        f"its end speaks of {said.sections} sections and {said.topics} topics; "
                        f"there are {self._sections} and {self._total}"
                    )
                self._ended = True
            # Other kinds are of a newer version that says nothing which this one must know.
        except msgspec.DecodeError as error:
            raise BadSnapshot(f"section {self._sections}: {error}") from error
        self._sections += 1

    def _take_topics(self, section: TopicsSection) -> None:
        known = range(len(section.configs))
        for image in section.topics:
            if image.config not in known:
                raise BadSnapshot(f"topic {image.name!r} has configuration {image.config} of {len(known)}")
        self._topics.append(section)
        self._total += len(section.topics)

    def finish(self) -> Snapshot:
        """The snapshot, if it ended where its bytes do."""
        if self._buffer or not self._ended:
            raise BadSnapshot("it is cut short")
        if self._globals is None:
            raise BadSnapshot("it has no globals")
        return Snapshot(self._globals, self._topics)


def good_sections(data: bytes) -> Iterator[TopicsSection | Globals | EndSection | None]:
    """The sections that check by themselves, of a snapshot that does not as a whole, and None for each that does not.

    `data` follows the file header.
    """
    at = 0
    while at + _HEAD.size <= len(data):
        kind, length, check = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        at += _HEAD.size + length
        if len(payload) < length or check != _check(kind, payload):
            yield None
            continue
        try:
            if kind == SectionKind.TOPICS:
                section = _topics_decoder.decode(payload)
                known = range(len(section.configs))
                yield section if all(image.config in known for image in section.topics) else None
            elif kind == SectionKind.GLOBALS:
                yield _globals_decoder.decode(payload)
            elif kind == SectionKind.END:
                yield _end_decoder.decode(payload)
        except msgspec.DecodeError:
            yield None


def parse_section_head(head: bytes) -> tuple[int, int]:
    """Kind and length of a section. Raises `BadSnapshot`."""
    if len(head) < _HEAD.size:
        raise BadSnapshot("it is cut short")
    kind, length, _ = _HEAD.unpack(head)
    if length > SECTION_BYTES_MAX:
        raise BadSnapshot(f"a section says that it is {length} bytes long")
    return kind, length


def decode_globals(head: bytes, payload: bytes) -> Globals:
    """The section of globals alone, checked. Raises `BadSnapshot`."""
    kind, length, check = _HEAD.unpack(head)
    if length != len(payload) or check != _check(kind, payload):
        raise BadSnapshot("its globals do not check")
    try:
        return _globals_decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise BadSnapshot(f"its globals: {error}") from error


def check_header(header: FileHeader | None, store_id: bytes, number: int) -> None:
    """That a file is the snapshot of this store that its name says. Raises `BadSnapshot`."""
    if header is None:
        raise BadSnapshot("the file header does not check")
    if header.store_id != store_id:
        raise BadSnapshot(f"it belongs to store {header.store_id.hex()}")
    if (header.kind, header.id, header.first) != (FileKind.SNAPSHOT, 0, number):
        raise BadSnapshot(f"it says that it is kind {header.kind}, number {header.first}: it lies in the wrong place")
