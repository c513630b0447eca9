"""The cold tier: a store for whole files, whose it is, and what its errors mean."""

from __future__ import annotations

import errno

import pytest

from engine.formats.manifest import LOCK_PATH, STORE_PATH
from engine.fs import Fs, OpenMode, read_file, write_whole
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import SegmentFiles
from engine.segment.tiers import ColdError, ColdTier, LocalSegmentStore, SegmentStore, TieredFs, copy_to
from tests.segment.kit import STORE, all_chunks, check_all, disk_of, small
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut

NAME = "topics/0000000000000003/seg-1.data"


class SegmentStoreContract:
    """What every `SegmentStore` has to do."""

    def store(self) -> SegmentStore:
        raise NotImplementedError

    def test_a_file_comes_back_in_any_ranges(self) -> None:
        store = self.store()
        assert not store.exists(NAME)
        store.put(NAME, [b"0123", b"", b"456789"])
        assert store.exists(NAME)
        assert store.size(NAME) == 10
        assert [store.get_range(NAME, at, 4) for at in (0, 3, 8, 10, 99)] == [b"0123", b"3456", b"89", b"", b""]
        assert store.list("topics/0000000000000003") == ["seg-1.data"]
        assert store.list("topics/0000000000000004") == []

    def test_a_file_is_replaced_and_removed(self) -> None:
        store = self.store()
        store.put(NAME, [b"one"])
        store.put(NAME, [b"other"])
        assert store.get_range(NAME, 0, 99) == b"other"
        store.delete(NAME)
        store.delete(NAME)
        assert not store.exists(NAME)
        with pytest.raises(OSError, match="No such file"):
            store.get_range(NAME, 0, 1)


class TestLocalSegmentStore(SegmentStoreContract):
    def store(self) -> SegmentStore:
        return LocalSegmentStore(FakeDisk(), STORE, may_begin=True)

    def test_what_was_put_survives_a_power_failure_and_what_was_not_leaves_nothing(self) -> None:
        disk = FakeDisk()
        LocalSegmentStore(disk, STORE, may_begin=True).put(NAME, [b"data"])
        after = disk.powered_off(Cut(upto=-1))
        assert LocalSegmentStore(after, STORE, may_begin=False).get_range(NAME, 0, 9) == b"data"
        faulty = FaultFs(disk, [Fault(Call.WRITE, 0, Effect.ENOSPC)])
        store = LocalSegmentStore(faulty, STORE, may_begin=False)
        with pytest.raises(OSError, match="space"):
            store.put("topics/0000000000000003/seg-2.data", [b"data"])
        assert not store.exists("topics/0000000000000003/seg-2.data")
        store.put("topics/0000000000000003/seg-2.data", [b"data"])

    def test_F36_a_directory_of_another_store_is_refused(self) -> None:
        disk = FakeDisk()
        LocalSegmentStore(disk, STORE, may_begin=True)
        with pytest.raises(ColdError, match="another store"):
            LocalSegmentStore(disk, bytes(16), may_begin=True)

    def test_a_directory_without_STORE_is_taken_over_only_when_it_is_empty_and_nothing_is_there_yet(self) -> None:
        with pytest.raises(ColdError, match="mounted"):
            LocalSegmentStore(FakeDisk(), STORE, may_begin=False)
        disk = FakeDisk()
        disk.mkdir("something")
        with pytest.raises(ColdError, match="not empty"):
            LocalSegmentStore(disk, STORE, may_begin=True)

    def test_a_data_directory_is_not_a_cold_one_although_its_STORE_is_ours(self) -> None:
        disk = FakeDisk()
        LocalSegmentStore(disk, STORE, may_begin=True)
        disk.open(LOCK_PATH, OpenMode.CREATE)
        with pytest.raises(ColdError, match="data directory"):
            LocalSegmentStore(disk, STORE, may_begin=False)

    def test_a_damaged_STORE_file_is_not_believed(self) -> None:
        disk = FakeDisk()
        LocalSegmentStore(disk, STORE, may_begin=True)
        tree = disk.cached_tree()
        tree[STORE_PATH] = (tree[STORE_PATH] or b"").replace(b"1", b"2")
        with pytest.raises(ColdError, match="damaged"):
            LocalSegmentStore(FakeDisk.of_tree(tree, boot="b"), STORE, may_begin=True)


def tier_of(cold: Fs, *, opened: list[int] | None = None) -> ColdTier:
    """The way to a directory; `opened` counts how often it was taken."""

    def open_store(may_begin: bool) -> SegmentStore:
        if opened is not None:
            opened.append(1)
        return LocalSegmentStore(cold, STORE, may_begin=may_begin)

    return ColdTier(open_store)


def moved() -> tuple[FakeDisk, FakeDisk, TieredFs]:
    """A segment whose data is in the cold tier alone."""
    disk, segment = disk_of(small())
    cold = FakeDisk()
    tier = tier_of(cold)
    copy_to(tier, disk, segment.data_path, may_begin=True)
    disk.unlink(segment.data_path)
    return disk, cold, TieredFs(disk, tier)


def test_a_segment_reads_the_same_from_both_tiers_and_the_local_one_wins() -> None:
    disk, segment = disk_of(small())
    cold, opened = FakeDisk(), list[int]()
    tiered = TieredFs(disk, tier_of(cold, opened=opened))
    with SegmentFiles(tiered, STORE) as files:
        check_all(files, segment, small())
    assert not opened
    copy_to(tiered.tier, disk, segment.data_path, may_begin=True)
    assert read_file(cold, segment.data_path) == read_file(disk, segment.data_path)
    disk.unlink(segment.data_path)
    with SegmentFiles(tiered, STORE) as files:
        check_all(files, segment, small())
        assert files.chunks(segment, 0, 9, nowait=True) is None
    assert not tiered._cold
    assert not cold._handles
    with pytest.raises(FileNotFoundError):
        tiered.open("meta/MANIFEST", OpenMode.READ)
    with pytest.raises(FileNotFoundError):
        tiered.open(segment.idx_path.replace("seg", "no"), OpenMode.READ)


@pytest.mark.parametrize("effect", [Effect.EIO, Effect.EACCES, Effect.ESTALE, Effect.EMFILE])
def test_F68_whatever_the_tier_says_is_no_damage(effect: Effect) -> None:
    disk, segment = disk_of(small())
    copied = FakeDisk()
    copy_to(tier_of(copied), disk, segment.data_path, may_begin=True)
    disk.unlink(segment.data_path)
    for call in (Call.OPEN, Call.READ):
        for at in range(3):
            tiered = TieredFs(disk, tier_of(FaultFs(copied, [Fault(call, at, effect, lasting=True)])))
            with SegmentFiles(tiered, STORE) as files, pytest.raises(OSError, match="cold tier") as raised:
                all_chunks(files, segment)
            assert raised.value.errno not in (errno.EIO, errno.ENOENT)
            assert not segment.bad


def test_F68_a_tier_that_is_empty_or_lacks_the_file_is_no_damage() -> None:
    disk, segment = disk_of(small())
    disk.unlink(segment.data_path)
    there = FakeDisk()
    LocalSegmentStore(there, STORE, may_begin=True)
    for cold in (FakeDisk(), there):
        with SegmentFiles(TieredFs(disk, tier_of(cold)), STORE) as files, pytest.raises(ColdError):
            all_chunks(files, segment)


def test_F68_wrong_bytes_are_damage_of_the_records_that_they_hit() -> None:
    _, segment = disk_of(small())
    disk, cold, tiered = moved()
    handle = cold.open(segment.data_path, OpenMode.WRITE)
    write_whole(cold, handle, (b"#",), segment.data_offset + 20)
    with SegmentFiles(tiered, STORE) as files, pytest.raises(DamagedSegment) as raised:
        all_chunks(files, segment)
    first = small().alive[0]
    assert raised.value.rows == [(first, first)]
    assert not disk.exists(segment.data_path)


def test_a_copy_that_does_not_read_back_does_not_count() -> None:
    class Lying(FakeDisk):
        def pread(self, handle: int, length: int, offset: int) -> bytes:
            return super().pread(handle, length, offset).replace(b'"$ts"', b'"$tx"')

    disk, segment = disk_of(small())
    with pytest.raises(ColdError, match="read back"):
        copy_to(tier_of(Lying()), disk, segment.data_path, may_begin=True)


def test_an_error_of_the_local_disk_is_not_the_tiers() -> None:
    disk, segment = disk_of(small())
    faulty = FaultFs(disk, [Fault(Call.READ, 0, Effect.EIO)])
    with pytest.raises(OSError, match="Input/output") as raised:
        copy_to(tier_of(FakeDisk()), faulty, segment.data_path, may_begin=True)
    assert not isinstance(raised.value, ColdError)
