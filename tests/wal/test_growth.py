"""How large log files are: small at first, larger while they fill, small again after a checkpoint's request."""

from __future__ import annotations

import msgspec
import pytest

from engine.formats.frame import align_block
from engine.limits import KIB, MIB, EngineSettings
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut
from tests.wal.hand import Hand, settings, values_of

GROWING = msgspec.structs.replace(settings(file_kib=256, fill_kib=8, reserve_kib=2), wal_small_bytes=16 * KIB)


def sizes(hand: Hand) -> list[int]:
    return [log.size // KIB for log in hand.wal.shards[0].files]


def loaded(disk: FakeDisk, count: int = 60) -> Hand:
    hand = Hand(disk, GROWING)
    for number in range(count):
        hand.append(1, "x" * 4000 + str(number), sync=True)
        while hand.chore():
            pass
    return hand


def anew(hand: Hand) -> bool:
    """Have the log go on in a small file; whether it has."""
    hand.wal.begin_anew()
    for _ in range(10):
        if hand.wal.is_anew():
            return True
        hand.chore()
    return False


def test_each_file_is_four_times_the_one_before_up_to_the_largest() -> None:
    assert sizes(loaded(FakeDisk()))[:4] == [16, 64, 256, 256]


def test_files_are_never_larger_than_the_largest_also_where_small_ones_would_be() -> None:
    assert EngineSettings(wal_file_bytes=MIB).wal_first_bytes == MIB


@pytest.mark.parametrize("count", [22, 60])  # without and with a file that is prepared
def test_the_log_goes_on_in_a_small_file_and_every_frame_is_found(count: int) -> None:
    disk = FakeDisk()
    hand = loaded(disk, count)
    assert sizes(hand)[-1] == 256
    assert (hand.wal.shards[0].next is not None) == (count == 60)
    assert anew(hand)
    assert sizes(hand)[-1] == 16
    assert hand.wal.shards[0].current.log.size == 16 * KIB
    hand.append(1, "behind", sync=True)
    again = Hand(disk.killed())
    assert len(values_of(again.items, 1)) == count + 1


def test_a_new_file_without_a_frame_is_no_evidence_of_anything() -> None:
    disk = FakeDisk()
    hand = loaded(disk)
    shard = hand.wal.shards[0]
    end = shard.last_end
    assert anew(hand)
    assert shard.tip_lsn == shard.current.log.first_lsn > align_block(end)
    assert hand.wal.settled
    assert hand.wal.unsynced_bytes == 0
    assert shard.retired, "a sync gives the handle of the old file back"
    assert hand.sync()
    assert not shard.retired
    assert (shard.durable_end, shard.durable_lsn) == (end, align_block(end))
    assert shard.cut_lsn == shard.tip_lsn, "nothing lies between"
    for boot in (disk.killed(), disk.powered_off(Cut(0), "boot-2")):
        assert len(values_of(Hand(boot).items, 1)) == 60
    assert hand.stop()
    assert len(values_of(Hand(disk.killed()).items, 1)) == 60


def test_the_second_frame_of_a_new_file_without_the_first_is_a_power_failure_not_damage() -> None:
    disk = FakeDisk()
    hand = loaded(disk)
    assert anew(hand)
    hand.sync()
    before = disk.step
    hand.append(1, "y" * 900)
    hand.append(1, "z" * 900)
    written = disk.file_of(hand.wal.shards[0].current.handle)
    first = tuple((written.number, sector, before) for sector in (8, 9))
    again = Hand(disk.powered_off(Cut(disk.step, first), "boot-2"))
    assert len(values_of(again.items, 1)) == 60
    assert again.opened.cuts, "what was behind the hole is set aside"


def test_F17_without_space_the_log_stays_where_it_is() -> None:
    disk = FakeDisk()
    hand = loaded(disk, 22)
    hand.fs = FaultFs(disk, [Fault(Call.ALLOCATE, 0, Effect.ENOSPC)])
    assert anew(hand), "it is not waited for"
    assert hand.wal.shards[0].current.log.size == 256 * KIB
    assert hand.wal.shards[0].failed is None
    assert hand.append(1, "on") is not None


def test_F17_a_file_that_cannot_be_made_shorter_for_want_of_space_is_used_as_far_as_it_was_to_be() -> None:
    disk = FakeDisk()
    hand = loaded(disk)
    hand.fs = FaultFs(disk, [Fault(Call.WRITE, 0, Effect.ENOSPC)])
    assert anew(hand)
    shard = hand.wal.shards[0]
    assert shard.failed is None
    assert shard.full is None
    assert shard.current.log.size == 256 * KIB
    assert shard.next is not None
    assert shard.next.log.size == 16 * KIB
    for number in range(60):
        assert hand.append(1, "x" * 4000 + str(number), sync=True) is not None
    assert len(values_of(Hand(disk.killed()).items, 1)) == 120


def near_the_end(hand: Hand, left: int) -> None:
    """Have less than so much left in the file, with a larger one behind it."""
    shard = hand.wal.shards[0]
    while shard.next is None or shard.current.log.end_lsn - shard.tip_lsn > left:
        hand.append(1, "x" * 1000, sync=True)
        while hand.chore():
            pass
    assert shard.next.log.size > 16 * KIB


def test_what_asked_for_room_and_never_came_does_not_keep_the_log_from_going_on() -> None:
    """A frame is refused after it has asked, or is smaller than was thought: a checkpoint would wait for the next write
    that is as large, or for the end of the file."""
    hand = loaded(FakeDisk(), 10)
    near_the_end(hand, 8 * KIB)
    shard = hand.wal.shards[0]
    assert not hand.wal.room(0, 40 * KIB), "it does not fit here"
    while hand.chore():
        pass
    assert shard.tip_lsn + shard.want > shard.current.log.end_lsn, "nobody has taken it"
    assert anew(hand)
    assert hand.wal.room(0, 40 * KIB), "it is there for whoever asks again"
    assert shard.want == 0
