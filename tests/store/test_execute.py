"""The writing half of recovery: a crash or an error at any step of it converges."""

from __future__ import annotations

import random

import pytest

from engine.errors import StoreIOError
from engine.limits import KIB
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut
from tests.store.trees import (
    FIRST,
    SMALL,
    changed,
    flipped,
    images_of_start,
    numbers,
)
from tests.wal.hand import Hand, values_of


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
