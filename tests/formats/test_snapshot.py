"""Snapshots: whole, byte by byte, with trailing bytes, and with every kind of damage."""

from __future__ import annotations

import pathlib
import re
import struct

import msgspec
import pytest
from xxhash import xxh3_64_intdigest

from engine.formats.header import FILE_HEADER_LEN, FileHeader, FileKind, parse_file_header
from engine.formats.snapshot import (
    BadSnapshot,
    DroppedTopic,
    EndSection,
    FloorImage,
    Globals,
    SegmentEntry,
    ShardCut,
    Snapshot,
    SnapshotDecoder,
    TopicImage,
    TopicsSection,
    check_header,
    encode_sections,
    parse_snapshot_name,
    parse_tails_name,
    snapshot_path,
    tails_path,
)
from engine.queue.snapshot import QueueSnapshot
from engine.types import TopicConfig, TopicType
from tests.golden.make_v1 import STORE_ID, TS, places_snapshot, whole_snapshot


def encoded() -> bytes:
    topics, globals_ = whole_snapshot()
    return b"".join(encode_sections(topics, globals_, STORE_ID))


def decoded(data: bytes, step: int = 1 << 20) -> Snapshot:
    decoder = SnapshotDecoder()
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
    return decoder.finish()


def test_what_is_encoded_is_decoded_whatever_the_pieces() -> None:
    topics, globals_ = whole_snapshot()
    for step in (1, 7, 100, 1 << 20):
        snapshot = decoded(encoded()[FILE_HEADER_LEN:], step)
        assert snapshot.globals == globals_
        assert [config for _, config in snapshot.topics()] == [config for _, config in topics]
        for (image, _), (original, _) in zip(snapshot.topics(), topics, strict=True):
            assert msgspec.structs.replace(image, config=0) == msgspec.structs.replace(original, config=0)
    assert snapshot.globals.cut(1).end_lsn == 8200
    assert snapshot.globals.cut(9) == ShardCut(shard=9, lsn=0)


def test_cursors_routers_hops_and_queues_come_back() -> None:
    topics, globals_ = places_snapshot()
    snapshot = decoded(b"".join(encode_sections(topics, globals_, STORE_ID))[FILE_HEADER_LEN:])
    (out, _), (jobs, config) = snapshot.topics()
    (written, _), (queue, _) = topics
    assert (out.cursors, out.routers, out.hops) == (written.cursors, written.routers, written.hops)
    assert config.type is TopicType.QUEUE
    assert msgspec.convert(jobs.queue, QueueSnapshot) == queue.queue


def test_a_thousand_topics_are_several_sections_that_share_configurations() -> None:
    topics = [(TopicImage(id=n, name=f"t{n}", epoch=n, from_lsn=0), TopicConfig(ttl_ms=n % 2)) for n in range(1, 1201)]
    parts = list(encode_sections(topics, Globals(number=1), STORE_ID))
    assert len(parts) == 1 + 3 + 2
    snapshot = decoded(b"".join(parts[1:]))
    assert [(image.id, config.ttl_ms) for image, config in snapshot.topics()] == [(n, n % 2) for n in range(1, 1201)]
    assert all(len(section.configs) == 2 for section in snapshot.sections)


@pytest.mark.parametrize("change", [{"count": 6}, {"size": 39}, {"head": 10}])
def test_an_image_that_does_not_add_up_is_never_written(change: dict[str, int]) -> None:
    topics, globals_ = whole_snapshot()
    image, config = topics[0]
    with pytest.raises(BadSnapshot, match="the topic has"):
        list(encode_sections([(msgspec.structs.replace(image, **change), config)], globals_, STORE_ID))
    image.segments.reverse()
    with pytest.raises(BadSnapshot, match="inside the one before"):
        list(encode_sections(topics, globals_, STORE_ID))


def test_every_cut_and_every_trailing_byte_is_noticed() -> None:
    data = encoded()[FILE_HEADER_LEN:]
    for length in range(len(data)):
        with pytest.raises(BadSnapshot, match="cut short"):
            decoded(data[:length])
    for tail in (b"\0", bytes(16), data[:200], data[-40:]):
        with pytest.raises(BadSnapshot):
            decoded(data + tail)


def test_every_flipped_bit_is_noticed() -> None:
    data = encoded()[FILE_HEADER_LEN:]
    for at in range(len(data)):
        for bit in (0, 3, 7):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            with pytest.raises(BadSnapshot):
                decoded(bytes(broken))


def test_missing_and_repeated_sections_are_noticed() -> None:
    topics, globals_ = whole_snapshot()
    _, some, whole, end = encode_sections(topics, globals_, STORE_ID)
    for parts in ((some, whole), (some, end), (whole, end), (some, whole, whole, end), (some, some, whole, end), ()):
        with pytest.raises(BadSnapshot):
            decoded(b"".join(parts))
    assert decoded(some + whole + end).globals == globals_


def test_a_topic_without_its_configuration_is_noticed() -> None:
    topics, globals_ = whole_snapshot()
    _, some, whole, end = encode_sections(topics, globals_, STORE_ID)
    assert b'"config":1' in some
    with pytest.raises(BadSnapshot, match="configuration 2 of 2"):
        decoded(section(1, some[16:].replace(b'"config":1', b'"config":2')) + whole + end)


def section(kind: int, payload: bytes) -> bytes:
    """A section by hand, as FORMATS.md says."""
    check = xxh3_64_intdigest(payload, kind << 32 | len(payload))
    return struct.pack("<IIQ", kind, len(payload), check) + payload


def test_members_and_sections_of_newer_versions_are_passed_over() -> None:
    topics, globals_ = whole_snapshot()
    _, some, whole, end = encode_sections(topics, globals_, STORE_ID)
    assert section(1, some[16:]) == some
    strange = section(77, b"what nobody knows yet")
    end = section(3, end[16:].replace(b'"sections":2', b'"sections":3'))
    snapshot = decoded(some + strange + section(2, b'{"new":[1],' + whole[17:]) + end)
    assert snapshot.globals == globals_


def test_the_header_says_whose_snapshot_it_is() -> None:
    header = parse_file_header(encoded())
    assert header == FileHeader(1, FileKind.SNAPSHOT, 0, STORE_ID, 0, 7, TS)
    check_header(header, STORE_ID, 7)
    for store_id, number in ((bytes(16), 7), (STORE_ID, 8)):
        with pytest.raises(BadSnapshot):
            check_header(header, store_id, number)
    with pytest.raises(BadSnapshot, match="does not check"):
        check_header(None, STORE_ID, 7)


def test_names() -> None:
    assert parse_snapshot_name(snapshot_path(12).removeprefix("meta/")) == 12
    assert parse_tails_name(tails_path(12).removeprefix("meta/")) == 12
    for name in ("snapshot-1.snap", "snapshot-0000000001.snap.tmp", "tails-0000000001.snap", "MANIFEST"):
        assert parse_snapshot_name(name) is None
        assert parse_tails_name(name) is None


def test_the_page_names_every_member() -> None:
    page = (pathlib.Path(__file__).parents[2] / "FORMATS.md").read_text()
    part = page.split("## Snapshot\n")[1].split("\n## ")[0]
    for kind in (TopicImage, SegmentEntry, FloorImage, Globals, ShardCut, DroppedTopic, TopicsSection, EndSection):
        for member in kind.__struct_fields__:
            assert re.search(rf'`{member}`|"{member}"', part), (kind.__name__, member)
