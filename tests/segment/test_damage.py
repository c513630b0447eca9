"""Damage costs what it hits: bits all over every file, cuts, zeroed pages, unreadable sectors."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from engine.errors import StoreDamaged
from engine.fs import Fs, read_file
from engine.segment.damaged import DamagedSegment
from engine.segment.mend import mend_rows, parse_fragment
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.segment.whose import read_deletes
from engine.segment.write import write_deletes
from tests.segment.kit import NOW, STORE, Sample, check_records, check_tags, disk_of, fresh, plain, small
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs

pytestmark = pytest.mark.slow


def bad_rows(disk: Fs, segment: Segment, sample: Sample, *, tags: bool = False, light: bool = False) -> list[int]:
    """Read everything as a topic does: what is damaged is noted and passed over, and all else is as it was."""
    with SegmentFiles(disk, STORE) as files:
        for _ in range(segment.count + 2):
            try:
                passed_over = [row for first, last in segment.bad for row in range(first, last + 1)]
                check_records(files, segment, sample, passed_over, light=light)
                if tags:
                    check_tags(files, segment, sample)
            except DamagedSegment as damage:
                news = {row for first, last in damage.rows for row in range(first, last + 1)}
                if damage.segment is not segment or not news or news & {*passed_over}:
                    raise AssertionError("damage that cannot be acted on") from damage
                segment.bad = sorted([*segment.bad, *damage.rows])
                continue
            return passed_over
    raise AssertionError("damage without end")


def flips(content: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Every `step`-th bit flipped: where, and the bytes."""
    for bit in range(0, len(content) * 8, step):
        bad = bytearray(content)
        bad[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(bad)


def with_file(disk: FakeDisk, path: str, content: bytes) -> FakeDisk:
    """The disk with another content of one file."""
    return FakeDisk.of_tree({**disk.cached_tree(), path: content}, boot="b")


def row_at(sample: Sample, offset: int) -> int | None:
    """The row whose fragment has the byte at an offset of the data."""
    at = 0
    for index in sample.alive:
        end = at + len(sample.rows[index].fragment)
        if at <= offset < end:
            return index
        at = end + 1
    return None


@pytest.mark.parametrize("piece", [False, True])
def test_F63_a_bit_of_the_data_costs_the_record_that_it_lies_in(piece: bool) -> None:
    sample = small()
    disk, segment = disk_of(sample, piece=piece)
    content = read_file(disk, segment.data_path)
    start = segment.data_offset
    for at, bad in flips(content[start : segment.data_size], 29):
        twin = fresh(segment)
        hit = row_at(sample, at)
        broken = with_file(disk, segment.data_path, content[:start] + bad + content[segment.data_size :])
        found = bad_rows(broken, twin, sample, light=True)
        assert found == ([] if hit is None else [hit]), at


@pytest.mark.parametrize("piece", [False, True])
def test_a_comma_that_is_hit_costs_nothing_also_between_what_two_sums_cover(piece: bool) -> None:
    sample = plain(200)
    disk, segment = disk_of(sample, piece=piece)
    content = read_file(disk, segment.data_path)
    wanted = b",".join(row.fragment for row in sample.rows)
    commas = [len(b",".join(row.fragment for row in sample.rows[:count])) for count in range(1, 200)]
    for at in commas:
        bad = bytearray(content)
        assert bad[segment.data_offset + at] == ord(",")
        bad[segment.data_offset + at] ^= 1
        twin = fresh(segment)
        with SegmentFiles(with_file(disk, segment.data_path, bytes(bad)), STORE) as files:
            chunks = files.chunks(twin, 0, 200)
        assert chunks is not None
        assert b",".join(chunk.data for chunk in chunks) == wanted, at
        assert twin.worn


@pytest.mark.parametrize("piece", [False, True])
def test_F47_a_bit_of_the_index_costs_nothing(piece: bool) -> None:
    sample = small()
    disk, segment = disk_of(sample, piece=piece)
    content = read_file(disk, segment.idx_path)
    start, end = segment.info_offset, segment.idx_size
    for at, bad in flips(content[start:end], 29):
        twin = fresh(segment)
        broken = with_file(disk, segment.idx_path, content[:start] + bad + content[end:])
        assert bad_rows(broken, twin, sample) == [], at
        assert twin.worn == (at >= 64), at


@pytest.mark.parametrize("call", [Call.OPEN, Call.READ])
def test_an_error_of_the_disk_at_an_index_that_is_read_well_afterwards_costs_nothing(call: Call) -> None:
    """Found by pairs of faults: sums that could not be read, compared with, and then proven by reading them again."""
    sample = small()
    disk, segment = disk_of(sample)
    for at in range(6):
        faulty = FaultFs(disk, [Fault(call, at, Effect.EIO, path=segment.idx_path)])
        assert bad_rows(faulty, fresh(segment), sample) == [], at


@pytest.mark.parametrize("failures", [1, 2])
def test_F37_data_that_cannot_be_opened_once_or_twice_is_not_lost(failures: int) -> None:
    sample = small()
    disk, segment = disk_of(sample)
    faults = [Fault(Call.OPEN, at, Effect.EIO, path=segment.data_path) for at in range(failures)]
    assert bad_rows(FaultFs(disk, faults), fresh(segment), sample) == []


@pytest.mark.parametrize("failures", [1, 2])
def test_F37_a_damaged_index_is_made_again_from_data_that_cannot_be_read_once_or_twice(failures: int) -> None:
    sample = small()
    disk, segment = disk_of(sample)
    content = read_file(disk, segment.idx_path)
    row = bytearray(content)
    row[segment.rows_offset + 5] ^= 1
    broken = with_file(disk, segment.idx_path, bytes(row))
    for first in range(4):
        faults = [Fault(Call.READ, at, Effect.EIO, path=segment.data_path) for at in range(first, first + failures)]
        assert bad_rows(FaultFs(broken, faults), fresh(segment), sample) == [], first


def test_a_bit_of_a_header_costs_nothing() -> None:
    sample = small()
    disk, segment = disk_of(sample)
    for path in (segment.data_path, segment.idx_path, segment.tags_path):
        content = read_file(disk, path)
        for at, bad in flips(content[:64], 5):
            assert bad_rows(with_file(disk, path, bad + content[64:]), fresh(segment), sample) == [], at


def test_a_bit_of_the_tags_costs_nothing() -> None:
    sample = small()
    disk, segment = disk_of(sample)
    content = read_file(disk, segment.tags_path)
    for at, bad in flips(content[64:], 11):
        twin = fresh(segment)
        assert bad_rows(with_file(disk, segment.tags_path, content[:64] + bad), twin, sample, tags=True) == [], at
        assert twin.worn
    for length in range(0, len(content), 19):
        assert bad_rows(with_file(disk, segment.tags_path, content[:length]), fresh(segment), sample, tags=True) == []
    disk.unlink(segment.tags_path)
    assert bad_rows(disk, fresh(segment), sample, tags=True) == []


def test_a_damaged_list_of_deleted_rows_is_never_taken_for_nothing_deleted() -> None:
    disk, segment = disk_of(small())
    digest = write_deletes(disk, STORE, NOW, segment, 1, [(0, 3), (5, 5)])
    path = segment.del_path(1)
    content = read_file(disk, path)
    for _, bad in flips(content, 1):
        with pytest.raises(StoreDamaged):
            read_deletes(with_file(disk, path, bad), STORE, segment, 1, digest)
    for length in range(len(content)):
        with pytest.raises(StoreDamaged):
            read_deletes(with_file(disk, path, content[:length]), STORE, segment, 1, digest)
    with pytest.raises(StoreDamaged):
        read_deletes(with_file(disk, path, content + bytes(8)), STORE, segment, 1, digest)


def test_F47_an_index_that_is_cut_or_gone_is_made_again() -> None:
    sample = small()
    disk, segment = disk_of(sample)
    content = read_file(disk, segment.idx_path)
    for length in range(0, len(content), 23):
        twin = fresh(segment)
        assert bad_rows(with_file(disk, segment.idx_path, content[:length]), twin, sample) == [], length
        assert twin.worn
    disk.unlink(segment.idx_path)
    assert bad_rows(disk, fresh(segment), sample) == []


def test_data_that_is_cut_costs_what_is_missing() -> None:
    sample = small()
    disk, segment = disk_of(sample)
    content = read_file(disk, segment.data_path)
    ends, at = {}, 0
    for row in sample.alive:
        ends[row] = at = at + len(sample.rows[row].fragment)
        at += 1
    for length in range(0, len(content), 37):
        missing = [row for row, end in ends.items() if end > length - 64]
        assert bad_rows(with_file(disk, segment.data_path, content[:length]), fresh(segment), sample) == missing, length


@pytest.mark.parametrize("seed", range(30))
def test_damage_to_index_and_data_together_never_gives_wrong_bytes(seed: int) -> None:
    dice = random.Random(seed)
    sample = small(200)
    disk, segment = disk_of(sample, piece=seed % 5 == 0)
    for path in {segment.idx_path, segment.data_path}:
        content = bytearray(read_file(disk, path))
        for _ in range(dice.choice([1, 1, 3])):
            at = dice.randrange(64, len(content))
            what = dice.choice(["bit", "zeros", "cut", "swap"])
            if what == "bit":
                content[at] ^= 1 << dice.randrange(8)
            elif what == "zeros":
                content[at : at + 512] = bytes(len(content[at : at + 512]))
            elif what == "swap":
                content[at : at + 64] = content[64:128][: len(content) - at]
            elif dice.random() < 0.3 and len(content) > 130:
                del content[max(at, 65) :]
        disk = with_file(disk, path, bytes(content))
    bad = bad_rows(disk, segment, sample)
    assert len(bad) <= segment.count


def test_a_zeroed_page_costs_the_records_that_it_touches() -> None:
    sample = plain(400, 100)
    disk, segment = disk_of(sample)
    content = bytearray(read_file(disk, segment.data_path))
    content[8192:12288] = bytes(4096)
    hit = {row_at(sample, at - 64) for at in range(8192, 12288)} - {None}
    assert set(bad_rows(with_file(disk, segment.data_path, bytes(content)), segment, sample)) == hit


def test_unreadable_sectors_cost_the_records_in_them() -> None:
    sample = plain(400, 100)
    disk, segment = disk_of(sample)

    class Dying(FaultFs):
        """A disk that cannot read one page of the data."""

        def pread(self, handle: int, length: int, offset: int) -> bytes:
            if self._paths.get(handle, "").endswith(".data") and offset < 8192 and offset + length > 4096:
                raise OSError(5, "EIO")
            return super().pread(handle, length, offset)

    hit = {row_at(sample, at - 64) for at in range(4096, 8192)} - {None}
    found = bad_rows(Dying(disk), segment, sample)
    assert set(found) == hit
    faulty = FaultFs(disk, [Fault(Call.READ, 0, Effect.EIO, lasting=True, path=".idx")])
    assert bad_rows(faulty, fresh(segment), sample) == []


@pytest.mark.parametrize("piece", [False, True])
def test_F36_the_index_of_another_topic_under_a_header_of_ours_is_not_believed(piece: bool) -> None:
    """What a disk leaves that did not write: the info says whose it is."""
    sample = plain(20)
    disk, segment = disk_of(sample, piece=piece)
    content = read_file(disk, segment.idx_path)
    index = Sample(sample.first_seq, sample.runs, sample.rows).built(topic_id=7).index
    at = segment.info_offset
    disk = with_file(disk, segment.idx_path, content[:at] + index + content[at + len(index) :])
    assert bad_rows(disk, segment, sample) == [], "the data proves what the rows were"
    assert segment.worn


@pytest.mark.parametrize(
    "fragment",
    [
        b'{"$seq":1,"$ts":99999999999999999999,"data":1}',
        b'{"$seq":99999999999999999999,"$ts":1,"data":1}',
        b'{"$seq":1,"$ts":1,"$node":"' + b"n" * 70_000 + b'","data":1}',
        b'{"$seq":1,"$ts":1,"data":1,"$tag":"' + b"t" * 70_000 + b'"}',
    ],
)
def test_numbers_that_no_row_can_hold_make_no_row(fragment: bytes) -> None:
    assert parse_fragment(fragment, 0) is None
    rows, bad = mend_rows(bytes(32), bytes(16), fragment, 1, 7, data_proven=False)
    assert (rows, bad) == (mend_rows(bytes(32), bytes(16), b"", 1, 7, data_proven=False)[0], [(0, 0)])
