"""Opening stores after every kind of end, on a simulated disk: what must be there is there, and it converges."""

from __future__ import annotations

import random

import pytest

from engine.errors import StoreDamaged, StoreForeign, StoreIOError, StoreLocked
from engine.formats.frame import BLOCK
from engine.formats.manifest import LockInfo, LockState, Manifest, StoreInfo, decode_meta, encode_meta
from engine.limits import KIB, OnCorruption
from engine.store.recovery import CorruptionGap, Frame, open_store
from engine.wal.chain import DATA_START, log_path, parse_log_name
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.images import power_cuts
from tests.sim.media import ALL, Cut, Tree, tree_hash
from tests.wal.hand import Hand, settings, values_of

MANIFEST = "meta/MANIFEST"
FIRST = log_path(0, 0, 1)


def numbers(count: int, start: int = 0) -> list[bytes | str]:
    return [str(number).encode() for number in range(start, start + count)]


def changed(tree: Tree, path: str, content: bytes | None, *, boot: str = "boot-1") -> FakeDisk:
    """A disk with another content of one file, or without it."""
    copy = dict(tree)
    if content is None:
        del copy[path]
    else:
        copy[path] = content
    return FakeDisk.of_tree(copy, boot=boot)


def file_in(tree: Tree, path: str) -> bytes:
    content = tree[path]
    assert content is not None
    return content


def logs_in(disk: FakeDisk, shard: int = 0) -> list[tuple[int, int]]:
    return sorted(parsed for name in disk.list(f"wal/shard-{shard:02d}") if (parsed := parse_log_name(name)))


# --- how a process can end ----------------------------------------------------------------------------------


def test_a_new_store_is_made_and_found_again() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    assert hand.opened.clean
    assert not hand.opened.power_loss
    assert hand.items == []
    assert hand.stop()
    store = decode_meta(file_in(disk.cached_tree(), "STORE"), StoreInfo)
    assert bytes.fromhex(store.store_id) == hand.opened.store_id
    again = Hand(disk.killed())
    assert again.opened.store_id == hand.opened.store_id
    assert again.opened.clean


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


# --- power failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_F01_F03_F06_F61_every_cut_of_a_power_failure_keeps_what_was_synced_and_a_prefix_of_the_rest(seed: int) -> None:
    rng = random.Random(seed)
    disk = FakeDisk()
    hand = Hand(disk, settings(file_kib=16, fill_kib=8, reserve_kib=2))
    synced = written = 0
    for step in range(26):
        count = rng.choice((1, 1, 2, 7))
        pad = "x" * rng.randrange(0, 900)
        hand.append(1, *[[written + number, pad] for number in range(count)])
        written += count
        if step < 20 and rng.random() < 0.25:
            hand.sync()
            synced = written
    whole = values_of(hand.items, 1) or values_of(Hand(disk.killed(), hand.settings).items, 1)
    seen: set[bytes] = set()
    for cut in power_cuts(disk, rng):
        image = disk.powered_off(cut)
        digest = tree_hash(image.cached_tree())
        if digest in seen:
            continue
        seen.add(digest)
        hand = Hand(image, settings(file_kib=16, fill_kib=8, reserve_kib=2))
        found = values_of(hand.items, 1)
        assert found == whole[: len(found)]
        assert synced <= len(found) <= written
        assert hand.opened.power_loss
        hand.append(1, "later", sync=True)
        once = values_of(Hand(image.powered_off(Cut(0), boot="boot-3"), hand.settings).items, 1)
        assert once == [*found, b'"later"']
    assert len(seen) > 20


def test_F61_frames_behind_a_hole_are_cut_and_kept_in_quarantine_and_never_come_back() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0, sync=True)
    hand.append(1, 1, "x" * 5000)
    at = hand.append(1, 2)
    assert at is not None
    tree = disk.powered_off(Cut(ALL)).cached_tree()
    log = bytearray(file_in(tree, FIRST))
    log[DATA_START + BLOCK : DATA_START + BLOCK + 512] = bytes(512)
    image = changed(tree, FIRST, bytes(log), boot="boot-2")
    hand = Hand(image)
    assert values_of(hand.items, 1) == numbers(1)
    assert any("row C" in line for line in hand.opened.report)
    (kept,) = image.list("quarantine")
    assert b'"data":2}' in file_in(image.cached_tree(), f"quarantine/{kept}")
    hand.append(1, "other")
    assert values_of(Hand(image.killed()).items, 1) == [b"0", b'"other"']


def test_F03_a_torn_tail_after_a_kill_is_cut_at_any_byte() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    hand.append(1, "x" * 1500)
    assert disk.last_write is not None
    length = len(disk.last_write[3])
    start = disk.last_write[1]
    for wrote in [0, *range(512 - start % 512, length, 512)]:
        image = disk.killed(wrote)
        again = Hand(image)
        assert values_of(again.items, 1) == numbers(1), wrote
        assert values_of(Hand(image.killed()).items, 1) == numbers(1)


# --- damage -------------------------------------------------------------------------------------------------


def three_batches(*, synced: bool = False) -> tuple[Tree, list[int]]:
    disk = FakeDisk()
    hand = Hand(disk)
    places = [hand.append(1, number, number, sync=synced) for number in range(3)]
    assert None not in places
    return disk.killed().cached_tree(), [place for place in places if place is not None]


def flipped(tree: Tree, at: int) -> bytes:
    log = bytearray(file_in(tree, FIRST))
    log[DATA_START + at] ^= 1
    return bytes(log)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_F26_F27_a_bad_batch_is_a_gap_of_exactly_its_records_and_the_rest_is_served(which: int) -> None:
    tree, places = three_batches()
    image = changed(tree, FIRST, flipped(tree, places[which] + 90))
    hand = Hand(image)
    expected: list[bytes | str] = [b"0", b"0", b"1", b"1", b"2", b"2"]
    expected[2 * which : 2 * which + 2] = ["gap", "gap"]
    assert values_of(hand.items, 1) == expected
    (gap,) = [item for item in hand.items if isinstance(item, CorruptionGap)]
    assert (gap.topic_id, gap.first_seq, gap.last_seq) == (1, 2 * which + 1, 2 * which + 2)
    assert gap.path == FIRST
    assert gap.offset == DATA_START + places[which]
    hand.append(1, 3)
    assert values_of(Hand(image.killed()).items, 1) == [*expected, b"3"]
    assert values_of(Hand(image.powered_off(Cut(0))).items, 1) == expected, "the copy of the bad frame was synced"


def test_the_policy_refuse_refuses_any_damage_and_changes_nothing() -> None:
    tree, places = three_batches()
    image = changed(tree, FIRST, flipped(tree, places[1] + 90))
    with pytest.raises(StoreDamaged, match=rf"{FIRST}: damage at offset {DATA_START + places[1]} .*topics recover"):
        Hand(image, settings(on_corruption=OnCorruption.REFUSE))
    assert image.cached_tree() == {**tree, FIRST: flipped(tree, places[1] + 90)}


@pytest.mark.parametrize("byte", [0, 4, 8, 16, 24, 32, 79])
def test_F28_an_unreadable_header_is_refused_and_named(byte: int) -> None:
    tree, places = three_batches()
    with pytest.raises(StoreDamaged, match=f"offset {DATA_START + places[1]} .*cannot be read as a frame"):
        Hand(changed(tree, FIRST, flipped(tree, places[1] + byte)))


def test_a_bad_control_frame_is_refused_by_name_and_salvage_says_that_it_is_not_built() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.create(1, "mine")
    hand.write()
    hand.append(1, 0)
    tree = disk.killed().cached_tree()
    image = changed(tree, FIRST, flipped(tree, 85))
    with pytest.raises(StoreDamaged, match="a CREATE frame there does not check"):
        Hand(image)
    image = image.killed()
    with pytest.raises(StoreDamaged, match="salvage cannot pass over this yet"):
        Hand(image, settings(on_corruption=OnCorruption.SALVAGE))


def test_F29_a_valid_frame_in_the_wrong_place_is_damage() -> None:
    tree, places = three_batches()
    log = bytearray(file_in(tree, FIRST))
    first, second, third = (DATA_START + place for place in places)
    log[second:third] = log[first:second]
    with pytest.raises(StoreDamaged, match=f"offset {second}"):
        Hand(changed(tree, FIRST, bytes(log)))


def test_a_hole_of_whole_blocks_below_a_later_durable_lsn_is_damage_even_after_a_power_failure() -> None:
    tree, places = three_batches(synced=True)
    log = bytearray(file_in(tree, FIRST))
    start = DATA_START + places[1]
    log[start : start + BLOCK] = bytes(BLOCK)
    with pytest.raises(StoreDamaged, match="row I"):
        Hand(changed(tree, FIRST, bytes(log), boot="boot-2"))


def test_F05_F36_a_frame_of_another_store_is_no_frame() -> None:
    tree, places = three_batches()
    other = FakeDisk(boot="elsewhere")
    other_hand = Hand(other)
    other_hand.append(1, *"abcdefgh")
    theirs = file_in(other.cached_tree(), FIRST)
    log = bytearray(file_in(tree, FIRST))
    log[DATA_START + places[1] :] = theirs[DATA_START + places[1] :]
    with pytest.raises(StoreDamaged):
        Hand(changed(tree, FIRST, bytes(log)))


# --- files --------------------------------------------------------------------------------------------------


def several_files() -> tuple[Tree, list[str]]:
    disk = FakeDisk()
    hand = Hand(disk, settings(file_kib=16, fill_kib=8, reserve_kib=2))
    for number in range(30):
        hand.append(1, number, "x" * 1500, sync=True)
    assert hand.stop()
    tree = disk.cached_tree()
    return tree, sorted(path for path in tree if path.endswith(".log"))


SMALL = settings(file_kib=16, fill_kib=8, reserve_kib=2)


def test_F30_F31_any_missing_log_file_is_refused() -> None:
    tree, paths = several_files()
    assert len(paths) >= 4
    for path in paths:
        image = changed(tree, path, None)
        before = image.cached_tree()
        with pytest.raises(StoreDamaged, match=r"missing|begins at"):
            Hand(image, SMALL)
        assert image.cached_tree() == before


def test_F32_a_log_file_cut_short_is_refused() -> None:
    tree, paths = several_files()
    for path in paths:
        for length in (0, 100, DATA_START, DATA_START + 5000):
            with pytest.raises(StoreDamaged):
                Hand(changed(tree, path, file_in(tree, path)[:length]), SMALL)


def test_F36_a_file_of_another_store_or_place_is_refused() -> None:
    tree, paths = several_files()
    other_disk = FakeDisk(boot="elsewhere")
    Hand(other_disk, SMALL).append(1, 0)
    other = other_disk.cached_tree()
    with pytest.raises(StoreForeign, match="belongs to store"):
        Hand(changed(tree, paths[0], file_in(other, FIRST)), SMALL)
    with pytest.raises(StoreForeign, match="wrong place"):
        Hand(changed(tree, paths[1], file_in(tree, paths[2])), SMALL)
    with pytest.raises(StoreForeign, match="MANIFEST belongs"):
        Hand(changed(tree, MANIFEST, file_in(other, MANIFEST)), SMALL)


def test_F36_the_three_small_files_of_an_earlier_time_are_noticed() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    assert hand.stop()
    earlier = disk.cached_tree()
    later = disk.killed()
    hand = Hand(later)
    hand.append(1, 1)
    mixed = later.killed().cached_tree()
    mixed |= {path: earlier[path] for path in ("LOCK", MANIFEST)}
    with pytest.raises(StoreDamaged, match="older than the log"):
        Hand(FakeDisk.of_tree(mixed, boot="boot-1"))


@pytest.mark.parametrize("path", ["STORE", MANIFEST])
def test_a_small_file_that_is_damaged_or_missing_is_refused(path: str) -> None:
    tree, _ = several_files()
    content = file_in(tree, path)
    for bad in (None, b"", content[:-5], content.replace(b":", b";", 1)):
        with pytest.raises(StoreDamaged, match=path):
            Hand(changed(tree, path, bad), SMALL)


def test_F39_a_newer_format_is_refused_with_both_versions() -> None:
    tree, _ = several_files()
    store = decode_meta(file_in(tree, "STORE"), StoreInfo)
    newer = encode_meta(StoreInfo(store_id=store.store_id, format=7, created_ms=store.created_ms))
    with pytest.raises(StoreForeign, match="format 7, this version of topics knows up to 1"):
        Hand(changed(tree, "STORE", newer), SMALL)


def test_F37_what_cannot_be_read_is_never_taken_for_empty() -> None:
    tree, _ = several_files()
    probe = FaultFs(FakeDisk.of_tree(tree, boot="boot-1"))
    list(open_store(probe, ManualClock(), SMALL).frames())
    for call in (Call.READ, Call.OPEN, Call.LIST):
        for at in range(probe.calls[call]):
            for effect in (Effect.EIO, Effect.EACCES):
                disk = FakeDisk.of_tree(tree, boot="boot-1")
                with pytest.raises(StoreIOError):
                    list(open_store(FaultFs(disk, [Fault(call, at, effect)]), ManualClock(), SMALL).frames())
                assert disk.cached_tree() == tree


def test_F40_temporary_files_go_after_a_good_recovery_and_unknown_files_stay() -> None:
    tree, paths = several_files()
    tree = {**tree, paths[-1] + ".tmp": b"half", MANIFEST + ".tmp": b"x", "wal/notes.txt": b"mine", "mine": b"too"}
    disk = FakeDisk.of_tree(tree, boot="boot-1")
    Hand(disk, SMALL)
    left = disk.cached_tree()
    assert not any(path.endswith(".tmp") for path in left)
    assert left["wal/notes.txt"] == b"mine"
    assert left["mine"] == b"too"


def test_F17_a_newer_file_that_was_never_finished_is_normal() -> None:
    tree, paths = several_files()
    name = parse_log_name(paths[-1].rpartition("/")[2])
    assert name is not None
    ahead = log_path(0, name[0] + len(file_in(tree, paths[-1])) - DATA_START, 1)
    for content in (b"", bytes(16 * KIB)):
        disk = changed(tree, ahead, content)
        assert len(values_of(Hand(disk, SMALL).items, 1)) == 60


def test_F57_a_second_process_is_told_who_has_the_directory() -> None:
    disk = FakeDisk()
    Hand(disk)
    with pytest.raises(StoreLocked, match="process 7 has this data directory"):
        open_store(disk, ManualClock(), settings())


def test_a_store_whose_STORE_is_lost_is_not_made_anew_over_its_data() -> None:
    tree, _ = several_files()
    with pytest.raises(StoreDamaged, match="STORE is missing"):
        Hand(changed(tree, "STORE", None))
    copy = {path: content for path, content in tree.items() if path not in ("STORE", "LOCK")}
    with pytest.raises(StoreDamaged, match="holds data"):
        Hand(FakeDisk.of_tree(copy, boot="boot-1"))


# --- crashes while recovering -------------------------------------------------------------------------------


def images_of_start(disk: FakeDisk, config: object, rng: random.Random) -> list[FakeDisk]:
    """Every disk that a power failure or a kill can leave at any step of a start, without repeats."""
    seen: set[bytes] = set()
    images: list[FakeDisk] = []

    def crash(now: FakeDisk, _what: str) -> None:
        now.on_step = None
        candidates = [now.powered_off(cut, boot="boot-3") for cut in power_cuts(now, rng, sample=4)]
        candidates.append(now.killed())
        for image in candidates:
            digest = tree_hash(image.cached_tree()) + image.boot.encode()
            if digest not in seen:
                seen.add(digest)
                images.append(image)
        now.on_step = crash

    disk.on_step = crash
    Hand(disk, SMALL)
    disk.on_step = None
    return images


@pytest.mark.parametrize("end", ["killed", "torn", "power", "damaged"])
def test_F41_F42_a_crash_at_any_step_of_recovery_converges(end: str) -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    for number in range(6):
        hand.append(1, number, "x" * 900, sync=number == 2)
    if end == "torn":
        start = disk.killed(600)
    elif end == "power":
        start = disk.powered_off(Cut(0))
    elif end == "damaged":
        tree = disk.killed().cached_tree()
        start = changed(tree, FIRST, flipped(tree, 300))
    else:
        start = disk.killed()
    expected = values_of(Hand(start.killed(), SMALL).items, 1)
    assert len(expected) in ((10,) if end == "torn" else (6, 8) if end == "power" else (12,))
    assert expected.count("gap") == (2 if end == "damaged" else 0)
    images = images_of_start(start, SMALL, random.Random(3))
    assert len(images) > 10
    for image in images:
        again = Hand(image, SMALL)
        found = values_of(again.items, 1)
        if end in ("killed", "torn") and image.boot == "boot-3":
            # What the killed process had not synced is lost with the power, until recovery has copied and synced it.
            assert 6 <= len(found) <= len(expected)
            assert found == expected[: len(found)]
        else:
            assert found == expected
        again.append(1, "later", sync=True)
        last = Hand(image.powered_off(Cut(0), boot="boot-4"), SMALL)
        assert values_of(last.items, 1) == [*found, b'"later"']


def test_F41_a_crash_at_any_step_of_making_a_store_leaves_a_store_or_room_for_one() -> None:
    images = images_of_start(FakeDisk(), SMALL, random.Random(5))
    for image in images:
        hand = Hand(image, SMALL)
        assert hand.items == []
        hand.append(1, 0, sync=True)
        assert values_of(Hand(image.powered_off(Cut(0), boot="boot-4"), SMALL).items, 1) == numbers(1)


def test_F43_an_error_at_any_call_of_recovery_refuses_and_the_next_start_is_whole() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    for number in range(6):
        hand.append(1, number, "x" * 900, sync=number == 2)
    tree = disk.killed(600).cached_tree()
    probe = FaultFs(FakeDisk.of_tree(tree, boot="boot-1"))
    expected = values_of(Hand(probe, SMALL).items, 1)
    tidying = 0
    for call in (Call.CREATE, Call.WRITE, Call.SYNC, Call.SYNC_DIR, Call.RENAME, Call.ALLOCATE, Call.TRUNCATE):
        for at in range(probe.calls.get(call, 0)):
            image = FakeDisk.of_tree(tree, boot="boot-1")
            try:
                Hand(FaultFs(image, [Fault(call, at, Effect.EIO)]), SMALL)
            except StoreIOError:
                pass
            else:
                tidying += 1
            assert values_of(Hand(image.killed(), SMALL).items, 1) == expected, (call, at)
    assert tidying == 1, "only ending an old file may fail"


def test_F20_a_start_on_a_full_disk_makes_do_with_a_short_log_file() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    image = disk.killed()
    image.capacity = image.capacity - image.space().bytes_free + 24 * KIB
    hand = Hand(image)
    assert values_of(hand.items, 1) == numbers(1)
    assert hand.append(1, 1) is not None


# --- several shards -----------------------------------------------------------------------------------------


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
