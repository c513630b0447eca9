"""What lies in the directory: missing, short, foreign and unfinished files."""

from __future__ import annotations

import pytest

from engine.errors import StoreDamaged, StoreForeign, StoreIOError
from engine.limits import KIB
from engine.store.recovery import open_store
from engine.wal.chain import DATA_START, log_path, parse_log_name
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.store.trees import (
    FIRST,
    MANIFEST,
    SMALL,
    changed,
    file_in,
    several_files,
)
from tests.wal.hand import Hand, values_of


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
