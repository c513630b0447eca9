"""A few large records are read without the rest of their groups, and what is damaged is found all the same."""

from __future__ import annotations

from typing import Any, cast

import pytest

from engine.segment import few
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from tests.segment.kit import STORE, Sample, disk_of, fragments, plain
from tests.sim.disk import FakeDisk

COUNT = 130
"""Two groups of 64 rows, and two rows of a third."""
GROUPS = 64 * 1024
PIECE = 4096
SIZE = 3 * GROUPS // 64


@pytest.fixture(autouse=True)
def _less_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few, "GROUPS_BYTES", GROUPS)
    monkeypatch.setattr(few, "PIECE", PIECE)


class Counting:
    """A disk that notes how much is read at once, and in all."""

    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk
        self.longest = self.total = 0

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        self._note(length)
        return self._disk.pread(handle, length, offset)

    def pread_nowait(self, handle: int, length: int, offset: int) -> bytes | bytearray | None:
        self._note(length)
        return self._disk.pread_nowait(handle, length, offset)

    def _note(self, length: int) -> None:
        self.longest, self.total = max(self.longest, length), self.total + length

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)


@pytest.fixture(scope="module")
def made() -> tuple[FakeDisk, Segment, Sample]:
    sample = plain(COUNT, size=SIZE)
    disk, segment = disk_of(sample)
    return disk, segment, sample


@pytest.fixture
def large(made: tuple[FakeDisk, Segment, Sample]) -> tuple[Counting, Segment, Sample]:
    disk, segment, sample = made
    segment.sound = None
    return Counting(disk), segment, sample


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (63, 65), (70, 75), (127, 130)])
def test_no_more_is_read_than_asked_for_once_the_groups_are_known_to_be_whole(
    large: tuple[Counting, Segment, Sample], start: int, stop: int
) -> None:
    counting, segment, sample = large
    with SegmentFiles(cast(Any, counting), STORE) as files:
        assert files.chunks(segment, start, stop, nowait=True) is None, "to find that out takes time"
        for _ in range(2):
            counting.total = counting.longest = 0
            chunks = files.chunks(segment, start, stop)
            assert chunks is not None
            (chunk,) = chunks
            assert (chunk.first_row, chunk.count) == (start, stop - start)
            assert fragments([chunk]) == [row.fragment for row in sample.rows[start:stop]]
            assert counting.longest <= max((stop - start) * (SIZE + 200), PIECE)
        assert counting.total <= (stop - start) * (SIZE + 200) + 10_000
        assert files.chunks(segment, start, stop, nowait=True) is not None


def test_much_of_it_is_read_in_whole_groups(large: tuple[Counting, Segment, Sample]) -> None:
    counting, segment, _ = large
    with SegmentFiles(cast(Any, counting), STORE) as files:
        chunks = files.chunks(segment, 3, 60) or []
        assert (chunks[0].first_row, chunks[-1].first_row + chunks[-1].count) == (0, 64)
    assert segment.sound is None


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("at", [0, -1])
def test_damage_is_found_before_and_after_its_group_was_whole(known: bool, at: int) -> None:
    sample = plain(COUNT, size=SIZE)
    disk, segment = disk_of(sample)
    fragment = sample.rows[70].fragment
    with SegmentFiles(disk, STORE) as files:
        if known:
            assert files.chunks(segment, 70, 72)
        file = cast(Any, disk._file(segment.data_path))
        file.cache[bytes(file.cache).index(fragment) + at] ^= 1  # in the record, or the comma before it
        if at:
            chunks = files.chunks(segment, 69, 72) or ()
            assert b",".join(bytes(chunk.data) for chunk in chunks).count(fragment) == 1
            return
        with pytest.raises(DamagedSegment) as damaged:
            files.chunks(segment, 69, 72)
        assert damaged.value.rows == [(70, 70)]
        segment.bad = [(70, 70)]
        chunks = files.chunks(segment, 69, 72) or ()
        assert sum(chunk.count for chunk in chunks) == 64, "from then on whole groups are looked at"
