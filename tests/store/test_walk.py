"""One shard's stream: cut where power was lost, isolated or refused where it was damaged."""

from __future__ import annotations

import random

import pytest

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.frame import BLOCK, FrameType
from engine.limits import OnCorruption
from engine.store.recovery import CorruptionGap, Hole
from engine.wal.chain import DATA_START
from tests.sim.disk import FakeDisk
from tests.sim.images import power_cuts
from tests.sim.media import ALL, Cut, tree_hash
from tests.store.trees import (
    FIRST,
    changed,
    file_in,
    flipped,
    numbers,
    three_batches,
)
from tests.wal.hand import Hand, settings, values_of


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


def test_a_bad_control_frame_is_refused_by_name_and_passed_over_by_salvage() -> None:
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
    hole = Hand(image, settings(on_corruption=OnCorruption.SALVAGE)).items[0]
    assert isinstance(hole, Hole)
    assert (hole.type, hole.topic_id, hole.offset) == (FrameType.CREATE, 1, DATA_START)


@pytest.mark.parametrize("type_", [0, 9, 24, 255])
def test_F39_a_frame_of_a_type_that_is_not_known_is_of_a_newer_version(type_: int) -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.wal.stage(0, type_, 0, 0, 1, 0, 5, b"{}")
    hand.write()
    with pytest.raises(StoreForeign, match=f"offset {DATA_START} is of type {int(type_)}, which this version"):
        Hand(disk.killed())


def test_a_create_that_makes_no_sense_is_refused_where_it_stands() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.wal.stage(0, FrameType.CREATE, 0, 0, 1, 0, 5, b'{"name":7}')
    hand.write()
    with pytest.raises(StoreDamaged, match=f"{FIRST}: offset {DATA_START}: the body of a CREATE"):
        Hand(disk.killed())


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
