"""Making a store and knowing one again: STORE, LOCK, MANIFEST and the lock of the root."""

from __future__ import annotations

import pathlib
import random

import msgspec
import pytest

from engine.errors import StoreDamaged, StoreForeign, StoreIOError, StoreLocked
from engine.formats.manifest import StoreInfo, decode_meta, encode_meta
from engine.fs import OsFs, write_new
from engine.store.init import LOCAL_KINDS
from engine.store.recovery import open_store
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.flips import HISTORY, quiet_world
from tests.sim.media import Cut
from tests.store.trees import (
    MANIFEST,
    SMALL,
    changed,
    file_in,
    images_of_start,
    numbers,
    several_files,
)
from tests.wal.hand import Hand, settings, values_of


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


def test_a_store_without_any_log_is_refused_as_damaged() -> None:
    """Half of a backup is one such: its log is copied last."""
    tree, _ = several_files()
    disk = FakeDisk.of_tree({path: content for path, content in tree.items() if not path.startswith("wal")}, boot="b")
    with pytest.raises(StoreDamaged, match=r"wal/shard-00 is missing with all of its log.*topics recover"):
        Hand(disk, SMALL)


def test_F39_a_newer_format_is_refused_with_both_versions() -> None:
    tree, _ = several_files()
    store = decode_meta(file_in(tree, "STORE"), StoreInfo)
    newer = encode_meta(StoreInfo(store_id=store.store_id, format=7, created_ms=store.created_ms))
    with pytest.raises(StoreForeign, match="format 7, this version of topics knows up to 1"):
        Hand(changed(tree, "STORE", newer), SMALL)


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


@pytest.mark.parametrize("left", ["meta", "topics", "exports", "quarantine", "lost"])
def test_no_store_is_made_over_what_is_left_of_one(left: str) -> None:
    """STORE, LOCK and the log are gone: an empty store would take the old one's files for nobody's, and remove them."""
    disk = quiet_world(stop=True, settings=HISTORY).start().settle().stop().disk
    for room in ("exports", "quarantine", "lost"):
        disk.mkdir(room)
        write_new(disk, f"{room}/some-bytes", [b"x"])
    tree = {path: content for path, content in disk.cached_tree().items() if path.startswith(f"{left}/")}
    tree.pop(MANIFEST, None)
    there = FakeDisk.of_tree({left: None, **tree}, boot="boot-1")
    for make in (True, False):
        with pytest.raises(
            StoreDamaged, match=f"STORE is missing, but {left}/.* is there.*topics recover DIR"
        ) as caught:
            open_store(there, ManualClock(), SMALL, make=make)
        assert "salvage" not in str(caught.value)
        there = there.killed()
    assert there.cached_tree() == {left: None, **tree}


def test_F41_a_crash_at_any_step_of_making_a_store_leaves_a_store_or_room_for_one() -> None:
    images = images_of_start(FakeDisk(), SMALL, random.Random(5))
    for image in images:
        hand = Hand(image, SMALL)
        assert hand.items == []
        hand.append(1, 0, sync=True)
        assert values_of(Hand(image.powered_off(Cut(0), boot="boot-4"), SMALL).items, 1) == numbers(1)


class Elsewhere(FakeDisk):
    """A disk that says that it is something else."""

    said = "nfs4"

    def kind(self) -> str:
        return self.said


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "9p", "of tomorrow"])
def test_F59_a_network_or_unknown_file_system_is_refused_unless_it_is_wanted(kind: str) -> None:
    disk = Elsewhere()
    disk.said = kind
    with pytest.raises(StoreIOError, match=f"of type {kind}.*TOPICS_ANY_FILE_SYSTEM=1"):
        Hand(disk)
    assert not disk.cached_tree()
    Hand(disk, msgspec.structs.replace(settings(), any_file_system=True))
    assert disk.cached_tree()


def test_F59_local_file_systems_and_what_cannot_be_told_are_fine(tmp_path: pathlib.Path) -> None:
    for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", ""):
        disk = Elsewhere()
        disk.said = kind
        Hand(disk)
    real = OsFs(str(tmp_path))
    assert real.kind() in LOCAL_KINDS | {""}
    real.shut()
