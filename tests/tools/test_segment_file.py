"""Segments, tails files and snapshots by themselves: healthy, damaged, foreign; one flipped bit costs what it must."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from engine.commands import Batch
from engine.formats.header import FILE_HEADER_LEN
from engine.formats.snapshot import Globals, TopicImage, encode_sections
from engine.fragment import render
from engine.fs import OsFs
from engine.segment.build import Run, build
from engine.segment.segment import Segment
from engine.segment.write import TailsWriter, write_deletes, write_segment
from engine.tools.finding import FileReport, FindingId, Kind
from engine.tools.segment_file import FileLook, Relocated, records_of
from engine.types import TopicConfig
from tests.tools.stores import hurt

STORE = bytes(range(16))
TS = 1_748_450_000_000
SEQS = 700


class Files:
    """A segment with deleted rows, a tails file with two pieces, and a snapshot, on a real directory."""

    def __init__(self, root: Path) -> None:
        fs = OsFs(str(root))
        fs.mkdir("meta")
        values = [b'{"n":%d,"pad":"%s"}' % (number, b"x" * (number % 50)) for number in range(SEQS)]
        rendered = render(Batch(values, tags=[f"t{number % 7}" for number in range(SEQS)]), 1, TS)
        run = Run(1, rendered.fragments, rendered.strides, TS, None, None, rendered.tag_lens)
        self.segment: Segment = write_segment(fs, STORE, TS, 1, build(5, 1, SEQS, [run]))
        write_deletes(fs, STORE, TS, self.segment, 1, [(3, 5)])
        writer = TailsWriter(fs, STORE, TS, 2)
        writer.add(build(5, 1, SEQS, [run]))
        writer.add(build(6, 1, SEQS, [run]))
        writer.finish()
        fs.shut()
        base = root / self.segment.stem
        self.data = base.with_name(base.name + ".data")
        self.index = base.with_name(base.name + ".idx")
        self.tags = base.with_name(base.name + ".tags")
        self.deletes = base.with_name(base.name + ".1.del")
        self.tails = root / "meta/tails-0000000002.data"
        self.snapshot = root / "meta/snapshot-0000000002.snap"
        topics = [(TopicImage(id=n, name=f"t{n}", epoch=n, from_lsn=0), TopicConfig()) for n in range(1, 9)]
        self.snapshot.write_bytes(b"".join(encode_sections(topics, Globals(number=2), STORE)))

    @property
    def all(self) -> list[Path]:
        return [self.data, self.index, self.tags, self.deletes, self.tails, self.snapshot]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def look(path: Path) -> tuple[FileReport, int]:
    """The report, and how many records can be read."""
    fs = Relocated(str(path.parent))
    one = FileLook(fs, path.name, str(path), lambda _: None)
    report = one.report()
    count = sum(1 for segment in one.pieces for _ in records_of(one, segment))
    fs.shut()
    return report, count


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 16
    path.write_bytes(content)


def test_whole_files_have_nothing_to_find(files: Files) -> None:
    for path in files.all:
        report, count = look(path)
        assert report.findings == [], path
        assert sum(span.length for span in report.spans) <= path.stat().st_size
        assert all(span.kind is not Kind.DAMAGED for span in report.spans)
        expected = {files.data: SEQS, files.index: SEQS, files.tails: 2 * SEQS}.get(path, 0)
        assert count == expected, path


def test_records_are_where_they_are_said_to_be(files: Files) -> None:
    for path in (files.data, files.tails):
        content = path.read_bytes()
        fs = Relocated(str(path.parent))
        one = FileLook(fs, path.name, str(path), lambda _: None)
        one.report()
        for segment in one.pieces:
            for record in records_of(one, segment):
                assert content[record.offset : record.offset + len(record.fragment)] == record.fragment
                assert record.fragment.startswith(b'{"$seq":%d,' % record.seq)
        fs.shut()


def test_deleted_rows_are_shown(files: Files) -> None:
    report, _ = look(files.data)
    assert report.facts["deleted"] == 3
    assert any(span.kind is Kind.DELETED for span in report.spans)


def test_one_flipped_bit_in_data_costs_one_record(files: Files) -> None:
    at = files.data.read_bytes().index(b'"n":100,')
    flip(files.data, at)
    report, count = look(files.data)
    assert [(one.id, one.seqs) for one in report.findings] == [(FindingId.SEGMENT_DATA, (101, 101))]
    assert count == SEQS - 1


def test_a_damaged_index_costs_no_record(files: Files) -> None:
    flip(files.index, FILE_HEADER_LEN + 64 + 32 * 10 + 4)
    report, count = look(files.index)
    assert [one.id for one in report.findings] == [FindingId.SEGMENT_INDEX]
    assert count == SEQS
    assert look(files.data)[0].findings[0].id is FindingId.SEGMENT_INDEX


def test_data_without_its_index_is_checked_as_a_whole(files: Files) -> None:
    files.index.unlink()
    assert look(files.data)[0].findings == []
    flip(files.data, 5000)
    assert [one.id for one in look(files.data)[0].findings] == [FindingId.SEGMENT_DATA]


def test_a_piece_that_cannot_be_read_does_not_hide_the_next_one(files: Files) -> None:
    flip(files.tails, FILE_HEADER_LEN + 8)
    report, count = look(files.tails)
    assert [one.id for one in report.findings] == [FindingId.SEGMENT_DATA]
    assert count == SEQS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "index", "tags", "deletes", "tails", "snapshot"])
def test_every_flipped_bit_is_found(files: Files, name: str) -> None:
    path: Path = getattr(files, name)
    whole = path.read_bytes()
    rng = random.Random(30)
    for _ in range(40):
        at = rng.randrange(len(whole))
        flip(path, at)
        report, _ = look(path)
        padding = name == "tails" and not report.damaged and whole[at] == 0
        assert report.damaged or padding, at
        path.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "index", "tags", "deletes", "tails", "snapshot"])
def test_any_bytes_are_read_to_their_end(files: Files, name: str) -> None:
    """A slice of what the gate runs in full."""
    path: Path = getattr(files, name)
    whole = path.read_bytes()
    rng = random.Random(40)
    for _ in range(40):
        path.write_bytes(hurt(whole, rng))
        look(path)


def test_the_check_over_all_of_the_data_is_shown_as_stored_and_as_computed(files: Files) -> None:
    told = look(files.data)[0].facts["data_check"]
    stored, computed = re.fullmatch(r"stored ([0-9a-f]{16}), computed ([0-9a-f]{16})", told).groups()  # type: ignore[union-attr]  # it fits, or the test fails
    assert stored == computed
    flip(files.data, 100)
    assert look(files.data)[0].facts["data_check"] != told
    assert look(files.data)[0].facts["data_check"].startswith(f"stored {stored}, computed ")
