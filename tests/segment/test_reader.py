"""What was written reads back, whichever way it is asked for."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.header import FileHeader, pack_file_header, parse_file_header
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import SegmentFiles
from engine.segment.whose import read_deletes
from engine.segment.write import write_deletes
from tests.segment.kit import (
    NOW,
    STORE,
    Sample,
    all_chunks,
    check_all,
    disk_of,
    fragments,
    plain,
    samples,
    small,
    written,
)
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(samples(), st.booleans())
def test_any_runs_with_holes_read_back_as_they_were(sample: Sample, piece: bool) -> None:
    disk, segment = disk_of(sample, piece=piece)
    assert segment.present == len(sample.alive)
    assert (segment.first_ts, segment.last_ts) == (sample.rows[0].ts, sample.rows[-1].ts)
    with SegmentFiles(disk, STORE) as files:
        check_all(files, segment, sample)
    assert not segment.worn


@given(st.integers(0, 699), st.integers(1, 700))
def test_any_stretch_of_rows_and_chunks_can_be_asked_for(start: int, count: int) -> None:
    sample = plain(700)
    disk, segment = disk_of(sample)
    stop = min(start + count, 700)
    with SegmentFiles(disk, STORE) as files:
        rows = files.rows(segment, start, stop)
        assert (rows.first_row, rows.count, rows.bounds[0]) == (start, stop - start, 0)
        assert [b - a - 1 for a, b in zip(rows.bounds, rows.bounds[1:], strict=False)] == [
            len(row.fragment) for row in sample.rows[start:stop]
        ]
        chunks = files.chunks(segment, start, stop)
        assert chunks is not None
        first, last = chunks[0].first_row, chunks[-1].first_row + chunks[-1].count
        assert (first, last) == (start // 64 * 64, min(-(-stop // 64) * 64, 700))
        assert fragments(chunks) == [row.fragment for row in sample.rows[first:last]]


def test_a_read_that_must_not_wait_says_so() -> None:
    disk, segment = disk_of(plain(10))
    with SegmentFiles(disk, STORE) as files:
        disk.page_cache = False
        assert files.chunks(segment, 0, 10, nowait=True) is None
        assert files.rows(segment, 0, 10).count == 10
        assert len(files.chunks(segment, 0, 10) or ()) == 1
        assert files.chunks(segment, 0, 10, nowait=True) is None
        disk.page_cache = True
        assert len(files.chunks(segment, 0, 10, nowait=True) or ()) == 1


def test_no_more_files_are_open_than_allowed() -> None:
    disk = FakeDisk()
    segments = [written(disk, plain(5), number=number) for number in range(1, 9)]
    with SegmentFiles(disk, STORE, handles_max=3) as files:
        for segment in segments * 2:
            check_all(files, segment, plain(5))
            assert len(disk._handles) <= 3
        files.forget(segments[-1])
        assert len(disk._handles) <= 1
    assert not disk._handles


ELSEWHERE: list[dict[str, int | bytes]] = [{"store_id": bytes(16)}, {"id": 77}, {"first": 77}, {"kind": 1}, {"run": 77}]


def with_header(disk: FakeDisk, path: str, **change: int | bytes) -> FakeDisk:
    """The same disk with another header on one file."""
    tree = disk.cached_tree()
    content = tree[path]
    assert content is not None
    header = parse_file_header(content)
    assert header is not None
    tree[path] = pack_file_header(FileHeader(**{**header._asdict(), **change})) + content[64:]
    return FakeDisk.of_tree(tree, boot="b")


@pytest.mark.parametrize("piece", [False, True])
@pytest.mark.parametrize("change", ELSEWHERE)
def test_F36_a_file_of_another_store_or_place_is_as_good_as_none(change: dict[str, int | bytes], piece: bool) -> None:
    sample = small()
    disk, segment = disk_of(sample, piece=piece)
    for attempt in range(2):
        with SegmentFiles(with_header(disk, segment.data_path, **change), STORE) as files:
            with pytest.raises(DamagedSegment, match="is a file of another store, kind or place") as lost:
                all_chunks(files, segment)
            assert sum(last - first + 1 for first, last in lost.value.rows) >= segment.present
            with pytest.raises(DamagedSegment):
                files.chunks(segment, 0, 1, nowait=attempt > 0)
            assert not segment.bad


@pytest.mark.parametrize("change", ELSEWHERE)
def test_F36_an_index_of_another_store_or_place_is_made_again(change: dict[str, int | bytes]) -> None:
    sample = small()
    disk, segment = disk_of(sample)
    with SegmentFiles(with_header(disk, segment.idx_path, **change), STORE) as files:
        check_all(files, segment, sample)
    assert segment.worn


@pytest.mark.parametrize("piece", [False, True])
def test_F36_what_a_newer_version_wrote_is_refused_and_not_lost(piece: bool) -> None:
    disk, segment = disk_of(small(), piece=piece)
    for path in {segment.data_path, segment.idx_path}:
        with (
            SegmentFiles(with_header(disk, path, version=2), STORE) as files,
            pytest.raises(StoreForeign, match="newer"),
        ):
            all_chunks(files, segment)


def test_F36_another_file_in_the_cold_tier_is_refused_and_not_lost() -> None:
    disk, segment = disk_of(small())
    segment.cold = True
    with SegmentFiles(with_header(disk, segment.data_path, first=77), STORE) as files:
        with pytest.raises(StoreForeign) as refused:
            all_chunks(files, segment)
        assert not isinstance(refused.value, DamagedSegment)


def test_deleted_rows_come_back_and_no_other_version_does() -> None:
    disk, segment = disk_of(small())
    first = write_deletes(disk, STORE, NOW, segment, 1, [(0, 0), (5, 9)])
    second = write_deletes(disk, STORE, NOW, segment, 2, [])
    assert read_deletes(disk, STORE, segment, 1, first) == [(0, 0), (5, 9)]
    assert read_deletes(disk, STORE, segment, 2, second) == []
    for version, digest in ((1, second), (2, first)):
        with pytest.raises(StoreDamaged):
            read_deletes(disk, STORE, segment, version, digest)
    with pytest.raises(FileNotFoundError):
        read_deletes(disk, STORE, segment, 3, first)
    with pytest.raises(StoreForeign):
        read_deletes(disk, bytes(16), segment, 1, first)


def test_errors_that_say_nothing_of_the_bytes_are_the_callers() -> None:
    disk, segment = disk_of(small())
    for call in (Call.OPEN, Call.READ):
        for at in range(8):
            faulty = FaultFs(disk, [Fault(call, at, Effect.EMFILE)])
            with SegmentFiles(faulty, STORE) as files, contextlib.suppress(OSError):
                check_all(files, segment, small())
            assert faulty.struck or at
            assert not segment.worn
            assert not disk._handles
