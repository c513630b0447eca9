"""A log file by itself: what is in it, and every place where no frame checks out."""

from __future__ import annotations

import random

import pytest

from engine.tools.finding import FindingId, Kind, Severity
from engine.tools.log_file import LogScan, describe, records_of
from engine.wal.chain import DATA_START
from tests.sim.still import StillDisk
from tests.tools.stores import damage, flip, hurt, log_of, put, scan, stopped, stores


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_whole_file_has_nothing_to_find(how: str) -> None:
    tree = dict(stores())[how]
    report = scan(tree, log_of(tree)).report()
    assert report.findings == []
    assert not report.damaged
    assert report.facts["records"] > 0
    assert sum(span.length for span in report.spans) == report.facts["size_bytes"]


def test_records_are_where_they_are_said_to_be() -> None:
    tree = stopped()
    path = log_of(tree)
    content = tree[path]
    assert content is not None
    one = LogScan(StillDisk(tree, "boot-1"), path)
    seen = 0
    for frame in one.items():
        assert describe(frame)
        for record in records_of(frame):
            assert content[record.offset : record.offset + len(record.fragment)] == record.fragment
            assert record.fragment.startswith(b'{"$seq":%d,' % record.seq)
            seen += 1
    assert seen == one.records


def test_a_flipped_bit_in_a_body_names_topic_and_seqs() -> None:
    tree = stopped()
    path = log_of(tree)
    frame = next(frame for frame in LogScan(StillDisk(tree, "boot-1"), path).items() if frame.header.records == 3)
    found = scan(flip(tree, path, frame.offset + 100), path).findings()
    assert [(finding.id, finding.offset, finding.topic) for finding in found] == [
        (FindingId.WAL_FRAME, frame.offset, "orders")
    ]
    first = frame.header.first_seq
    assert found[0].seqs == (first, first + 2)


def test_a_flipped_bit_in_a_header_costs_that_frame_and_no_other() -> None:
    tree = stopped()
    path = log_of(tree)
    whole = scan(tree, path)
    frames = list(LogScan(StillDisk(tree, "boot-1"), path).items())
    hit = scan(flip(tree, path, frames[2].offset + 20), path)
    assert sum(hit.types.values()) == sum(whole.types.values()) - 1
    assert [finding.id for finding in hit.findings()] == [FindingId.WAL_BYTES]


def test_zeros_where_a_synced_frame_was_are_damage() -> None:
    tree = stopped()
    path = log_of(tree)
    frames = list(LogScan(StillDisk(tree, "boot-1"), path).items())
    content = bytearray(tree[path] or b"")
    content[frames[1].offset : frames[2].offset] = bytes(frames[2].offset - frames[1].offset)
    hit = scan(put(tree, path, bytes(content)), path)
    assert len(damage(hit.findings())) == 1
    assert any(span.kind is Kind.DAMAGED for span in hit.spans)


def test_an_unfinished_last_write_is_normal() -> None:
    tree = dict(stores())["kill"]
    path = max(path for path in tree if path.endswith(".log"))
    frames = list(LogScan(StillDisk(tree, "boot-1"), path).items())
    content = bytearray(tree[path] or b"")
    last = frames[-1]
    content[last.offset + last.length // 2 : last.offset + last.length] = bytes(last.length - last.length // 2)
    found = scan(put(tree, path, bytes(content)), path).findings()
    assert [(finding.severity, finding.id) for finding in found] == [(Severity.NOTE, FindingId.WAL_TAIL)]


def test_a_bad_file_header_is_said_and_frames_need_the_stores_id() -> None:
    tree = stopped()
    path = log_of(tree)
    hurt_tree = flip(tree, path, 20)
    assert scan(hurt_tree, path).findings()[0].id is FindingId.WAL_HEADER
    assert scan(hurt_tree, path).records == 0
    header = scan(tree, path).header
    assert header is not None
    helped = LogScan(StillDisk(hurt_tree, "boot-1"), path, header.store_id)
    assert len(list(helped.items())) == sum(scan(tree, path).types.values())


def test_a_file_of_another_place_is_foreign() -> None:
    tree = stopped()
    path = log_of(tree)
    moved = path.replace("-1.log", "-7.log")
    tree[moved] = tree[path]
    assert [finding.id for finding in scan(tree, moved).findings()] == [FindingId.FOREIGN]


def test_any_bytes_are_read_to_their_end() -> None:
    """A slice of what scripts/flips runs in full."""
    rng = random.Random(10)
    tree = stopped()
    path = log_of(tree)
    content = tree[path]
    assert content is not None
    for _ in range(150):
        hit = scan(put(tree, path, hurt(content, rng)), path)
        report = hit.report()
        assert sum(span.length for span in report.spans) <= report.facts["size_bytes"]
        assert hit.done == hit.size or hit.size < DATA_START
