"""Opening stores after every kind of end, on a simulated disk; several shards."""

from __future__ import annotations

from engine.formats.frame import BLOCK
from engine.formats.manifest import LockInfo, LockState, Manifest, decode_meta
from engine.limits import KIB
from engine.store.recovery import Frame, open_store
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import ALL, Cut
from tests.store.trees import (
    FIRST,
    MANIFEST,
    SMALL,
    changed,
    file_in,
    logs_in,
    numbers,
    several_files,
)
from tests.wal.hand import Hand, settings, values_of


def test_after_a_stop_in_good_order_the_log_goes_on_in_the_same_file() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0, 1)
    assert hand.stop()
    later = disk.killed()
    hand = Hand(later)
    assert hand.opened.clean
    assert values_of(hand.items, 1) == numbers(2)
    hand.append(1, 2)
    assert logs_in(later) == [(0, 1)]
    assert values_of(Hand(later.killed()).items, 1) == numbers(3)


def test_F60_after_a_kill_nothing_is_appended_to_the_files_that_were_found() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0, 1, sync=True)
    hand.append(1, 2)
    later = disk.killed()
    before = file_in(later.cached_tree(), FIRST)
    hand = Hand(later)
    assert not hand.opened.clean
    assert not hand.opened.power_loss
    assert logs_in(later) == [(0, 1), (BLOCK, 2)]
    hand.append(1, 3)
    after = file_in(later.cached_tree(), FIRST)
    assert before.startswith(after)
    assert values_of(Hand(later.killed()).items, 1) == numbers(4)


def test_F60_a_storm_of_kills_keeps_everything_and_takes_space_only_for_what_is_there() -> None:
    disk = FakeDisk()
    for number in range(25):
        hand = Hand(disk)
        assert values_of(hand.items, 1) == numbers(number)
        hand.append(1, number)
        disk = disk.killed()
    sizes = [len(content) for path, content in disk.cached_tree().items() if content and path.endswith(".log")]
    assert len(sizes) <= 25
    assert sum(sizes) < 25 * 3 * BLOCK + 64 * KIB


def test_F62_which_boot_it_was_decides_whether_power_was_lost() -> None:
    disk = FakeDisk()
    Hand(disk).append(1, 0)
    assert not Hand(disk.killed()).opened.power_loss
    assert Hand(disk.powered_off(Cut(ALL))).opened.power_loss
    unreadable = disk.killed()
    unreadable.boot = ""
    assert Hand(unreadable).opened.power_loss
    tree = disk.killed().cached_tree()
    assert Hand(changed(tree, "LOCK", b"nonsense")).opened.power_loss
    assert Hand(changed(tree, "LOCK", None)).opened.power_loss


def test_F62_a_kill_before_going_live_after_a_power_failure_is_still_a_power_failure() -> None:
    disk = FakeDisk()
    Hand(disk).append(1, 0)
    later = disk.powered_off(Cut(ALL))
    assert Hand(later, live=False).opened.power_loss
    again = later.killed()
    hand = Hand(again)
    assert hand.opened.power_loss
    assert not Hand(again.killed()).opened.power_loss


def test_what_is_written_right_after_a_clean_start_is_not_behind_the_recorded_end() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    assert hand.stop()
    later = disk.killed()
    hand = Hand(later, live=False)
    hand.append(1, 1)
    again = Hand(later.killed())
    assert not again.opened.clean
    assert values_of(again.items, 1) == numbers(2)


def test_stop_is_not_in_good_order_while_something_is_unsynced_or_a_shard_has_failed() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    assert not hand.opened.stop()
    assert not Hand(disk.killed()).opened.clean
    hand = Hand(FakeDisk())
    hand.wal.shards[0].failed = OSError(5, "gone")
    assert not hand.opened.stop()


def test_shards_are_merged_by_order() -> None:
    disk = FakeDisk()
    hand = Hand(disk, settings(shards=3))
    for number in range(30):
        hand.stage(number % 4, number, shard=number % 4 % 3)
        if number % 5 == 4:
            hand.write()
    hand = Hand(disk.killed(), settings(shards=3))
    assert [item.order for item in hand.items] == list(range(1, 31))
    assert hand.wal.order == 31


def test_a_last_tick_that_did_not_reach_all_of_its_shards_is_dropped_whole_after_a_kill() -> None:
    disk = FakeDisk()
    hand = Hand(disk, settings(shards=2))
    hand.append(1, 0)
    hand.append(2, 0, shard=1)
    hand.stage(1, 1)
    hand.stage(2, 1, shard=1)
    first, _second = hand.wal.take_groups()
    first.run(disk)
    image = disk.killed()
    again = Hand(image, settings(shards=2))
    assert values_of(again.items, 1) == numbers(1)
    assert values_of(again.items, 2) == numbers(1)
    assert any("row T" in line for line in again.opened.report)
    again.append(1, 7)
    assert values_of(Hand(image.killed(), settings(shards=2)).items, 1) == [b"0", b"7"]


def test_the_parts_of_a_last_tick_are_kept_after_a_power_failure() -> None:
    disk = FakeDisk()
    hand = Hand(disk, settings(shards=2))
    hand.stage(1, 0)
    hand.stage(2, 0, shard=1)
    hand.write()
    hand.sync(0)
    image = disk.powered_off(Cut(0))
    again = Hand(image, settings(shards=2))
    assert values_of(again.items, 1) == numbers(1)
    assert values_of(again.items, 2) == []
    assert values_of(Hand(image.killed(), settings(shards=2)).items, 1) == numbers(1), "it is proven now"


def test_the_number_of_shards_may_change_between_starts() -> None:
    disk = FakeDisk()
    Hand(disk, settings(shards=1)).append(1, 0)
    disk = disk.killed()
    hand = Hand(disk, settings(shards=3))
    assert hand.append(2, 0, shard=2) is not None
    assert len(decode_meta(file_in(disk.cached_tree(), MANIFEST), Manifest).shards) == 3
    disk = disk.killed()
    hand = Hand(disk, settings(shards=1))
    assert values_of(hand.items, 1) == numbers(1)
    assert values_of(hand.items, 2) == numbers(1)
    assert hand.wal.active == 1
    assert hand.stop()
    lock = decode_meta(file_in(disk.cached_tree(), "LOCK"), LockInfo)
    assert lock.state is LockState.STOPPED
    assert all(isinstance(item, Frame) for item in Hand(disk.killed(), settings(shards=2)).items)


def test_a_frame_can_be_read_again_during_and_after_recovery() -> None:
    tree, _ = several_files()
    disk = FakeDisk.of_tree(tree, boot="boot-1")
    opened = open_store(disk, ManualClock(), SMALL)
    frames = []
    for item in opened.frames():
        assert isinstance(item, Frame)
        assert opened.read_body(item.shard, item.lsn)[1] == item.body
        frames.append(item)
    opened.execute()
    for item in frames:
        assert opened.read_body(item.shard, item.lsn)[1] == item.body


def test_progress_rises_to_one() -> None:
    disk = FakeDisk.of_tree(several_files()[0], boot="boot-1")
    heard: list[float] = []
    list(open_store(disk, ManualClock(), SMALL).frames(heard.append))
    assert heard == sorted(heard)
    assert len(heard) > 2
    assert heard[-1] == 1.0
