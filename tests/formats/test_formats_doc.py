"""FORMATS.md and the golden files of every version against the code."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import msgspec
import pytest

from engine.formats import frame as frames
from engine.formats import header as headers
from engine.formats import segment as segments
from engine.formats.forward import decode_forward, decode_router_drop, decode_router_put
from engine.formats.frame import FrameType
from engine.formats.header import FORMAT_VERSION
from engine.formats.manifest import LockInfo, Manifest, ShardEntry, StoreInfo
from engine.queue.events import (
    Extended,
    Leased,
    Nacked,
    Released,
    Undelivered,
    decode_dead_letter_body,
    decode_lease_body,
)
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.store.recovery import CorruptionGap, Frame
from engine.tagset import Needle
from engine.types import Match
from tests.golden.make_v1 import TS, vectors, whole_router
from tests.sim.disk import FakeDisk
from tests.sim.media import Tree
from tests.wal.hand import Hand, settings, values_of

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PAGE = (ROOT / "FORMATS.md").read_text()


def example(name: str) -> str:
    found = re.search(rf"<!-- example: {name} -->\n```\n(.*?)```", PAGE, re.DOTALL)
    assert found, name
    return found[1]


def hex_of(dump: str) -> bytes:
    """The bytes of a dump: offset, up to 16 pairs of digits, and behind two spaces a remark."""
    return b"".join(bytes.fromhex(line[6:].split("  ")[0]) for line in dump.splitlines())


def golden(name: str) -> Any:
    return msgspec.json.decode((GOLDEN / name).read_bytes())


def test_the_frame_that_the_page_explains_is_one_that_the_code_writes() -> None:
    assert hex_of(example("frame")) == vectors()["append one tagged"]
    assert f"{frames.seed_of(bytes(range(16))):x}" in PAGE


def test_the_other_examples_of_the_page_are_what_the_code_writes() -> None:
    assert hex_of(example("file header")) == vectors()["file header"]
    assert example("STORE").encode() == vectors()["STORE"]
    assert hex_of(example("SEGMENT idx")) == vectors()["SEGMENT idx"][headers.FILE_HEADER_LEN :]


def test_the_page_names_every_frame_type_and_every_member_of_the_small_files() -> None:
    table = dict(re.findall(r"^\| (\d+) \| ([A-Z]\w+) \|", PAGE, re.MULTILINE))
    assert table == {str(kind.value): kind.name.title().replace("_", "") for kind in FrameType}
    for struct in (StoreInfo, LockInfo, Manifest, ShardEntry):
        for member in struct.__struct_fields__:
            assert re.search(rf"`(shards\[\]\.|\.)?{member}", PAGE), member
    assert f"version {FORMAT_VERSION}." in PAGE


def test_the_offsets_of_the_page_are_those_beside_the_code() -> None:
    for module, section in (
        (frames, "## Frame"),
        (headers, "## File header"),
        (segments, "### Info"),
        (segments.RowView, "### Row"),
    ):
        part = re.split(r"\n##+ ", PAGE.split(f"\n{section}\n")[1])[0]
        page = re.findall(r"^\| (\d+) \| [^|]* \| ([a-z_]+) \|", part, re.MULTILINE)
        code = re.findall(r"^ +(\d+)  \w+ +([a-z_]+)(?:  |$)", f"{module.__doc__}", re.MULTILINE)
        assert page == code
        assert len(page) >= 8


def test_every_vector_is_written_as_it_always_was() -> None:
    pinned = golden("v1-vectors.json")
    assert {name: value.hex() for name, value in vectors().items()} == pinned
    frames_pinned = [value for name, value in pinned.items() if name[0].islower() and name != "file header"]
    assert {bytes.fromhex(value)[8] for value in frames_pinned} == {kind.value for kind in FrameType}


def test_the_frames_of_routers_and_queues_are_read_as_what_was_written() -> None:
    bodies = {
        name: bytes.fromhex(value)[80 : 80 + int.from_bytes(bytes.fromhex(value)[4:8], "little")]
        for name, value in golden("v1-vectors.json").items()
    }
    assert decode_router_put(bodies["router put"]) == whole_router()
    assert decode_router_drop(bodies["router drop"]).number == 11
    groups, rest = decode_forward(bodies["forward with records"], TS)
    assert decode_forward(bodies["forward"], TS) == (groups, b"")
    assert [(group.to, group.lost, len(group.ranges), len(group.landings)) for group in groups] == [
        (300, 0, 2, 2),
        (8, 6, 1, 1),
    ]
    assert [landing.floor for group in groups for landing in group.landings] == [0, TS - 5, TS]
    assert rest.endswith(b'{"$seq":8,"$ts":1748450000000,"data":22}')
    events = [decode_lease_body(body) for name, body in bodies.items() if name.startswith("lease ")]
    assert [type(event) for event in events] == [Leased, Extended, Nacked, Released, Undelivered]
    head, copies = decode_dead_letter_body(bodies["dead letter"])
    assert (head.target, head.first_seq, head.seqs) == (4, 7, [9, 5])
    assert copies.count(b'"$seq":') == 2


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("v*-store.json")), ids=lambda path: path.stem)
def test_a_store_of_every_version_opens_and_goes_on(path: pathlib.Path) -> None:
    tree: Tree = {
        name: None if file is None else bytes.fromhex(file["hex"]).ljust(file["size"], b"\0")
        for name, file in golden(path.name).items()
    }
    config = settings(file_kib=16, fill_kib=4, reserve_kib=2)
    disk = FakeDisk.of_tree(tree, boot="boot-1")
    hand = Hand(disk, config)
    assert not any(isinstance(item, CorruptionGap) for item in hand.items)
    assert [value for value in values_of(hand.items, 1) if value != b'"' + b"x" * 700 + b'"'] == [
        str(number).encode() for number in range(10)
    ]
    assert values_of(hand.items, 2) == [b"0"]
    assert [item.topic_id for item in hand.items if isinstance(item, Frame) and item.type == FrameType.CREATE] == [1, 2]
    hand.append(2, 1)
    assert values_of(Hand(disk.killed(), config).items, 2) == [b"0", b"1"]


def test_a_segment_of_every_version_opens() -> None:
    pinned = {name: bytes.fromhex(value) for name, value in golden("v1-vectors.json").items()}
    stem = "topics/0000000000000003/seg-00000000000000000007-0000000002"
    disk = FakeDisk.of_tree(
        {
            "meta": None,
            "meta/tails-0000000002.data": pinned["TAILS"],
            "topics": None,
            "topics/0000000000000003": None,
            f"{stem}.data": pinned["SEGMENT data"],
            f"{stem}.idx": pinned["SEGMENT idx"],
            f"{stem}.tags": pinned["SEGMENT tags"],
            f"{stem}.1.del": pinned["SEGMENT del"],
        },
        boot="boot-1",
    )
    info = segments.parse_info(pinned["SEGMENT idx"], headers.FILE_HEADER_LEN)
    assert info is not None
    second = pinned["TAILS"].index(segments.pack_info(info))
    with SegmentFiles(disk, bytes(range(16))) as files:
        for offset in (0, second):
            segment = Segment(3, 7, 3, 2, 2, offset, info.data_len, info.first_ts, info.last_ts, info.flags)
            chunks = files.chunks(segment, 0, 3)
            assert chunks is not None
            (chunk,) = chunks
            assert chunk.data.split(b"},") == [
                b'{"$seq":7,"$ts":1748450000000,"data":1,"$tag":"t"',
                b'{"$seq":9,"$ts":1748450000000,"data":22}',
            ]
            assert list(files.tag_rows(segment, Needle(Match(op="Eq", value="t")))) == [0]
    assert segments.parse_deletes(pinned["SEGMENT del"][64:])[:2] == (2, [(2, 2)])
