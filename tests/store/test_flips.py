"""F26–F29: every thirteenth byte of a small log flipped, one at a time; nothing is ever less in silence.

The outcome of each flip must be the full state, the documented gap, or a refusal; and a refusal must leave the
directory as it was. Each kind of last stop is swept, because what is evidence differs.
"""

from __future__ import annotations

from collections import Counter

import pytest

from engine.errors import StoreDamaged
from engine.limits import KIB
from engine.store.recovery import CorruptionGap, open_store
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import ALL, Cut, Tree
from tests.wal.hand import Hand, settings, values_of

CONFIG = settings(file_kib=16, fill_kib=4, reserve_kib=2)


def small_log(stop: str) -> tuple[Tree, list[bytes | str]]:
    """A log of a few files with creates, batches of several sizes and syncs; its tree, and what it holds of topic 1."""
    disk = FakeDisk()
    hand = Hand(disk, CONFIG)
    hand.create(1, "flipped")
    for number in range(12):
        hand.append(1, number, "x" * (number * 97 % 1500), sync=number % 5 == 0)
    if stop == "clean":
        assert hand.stop()
        tree = disk.cached_tree()
    else:
        tree = (disk.killed() if stop == "killed" else disk.powered_off(Cut(ALL))).cached_tree()
    boot = "boot-1" if stop == "killed" else "boot-2"
    expected = values_of(Hand(FakeDisk.of_tree(tree, boot=boot), CONFIG, live=False).items, 1)
    assert len(expected) == 24
    assert "gap" not in expected
    return tree, expected


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["clean", "killed", "power"])
def test_F26_F27_F28_no_flipped_byte_is_passed_over(stop: str) -> None:
    tree, expected = small_log(stop)
    boot = "boot-1" if stop == "killed" else "boot-2"
    outcomes: Counter[str] = Counter()
    for path, content in tree.items():
        if content is None or not path.endswith(".log"):
            continue
        used = len(content.rstrip(b"\0")) + KIB
        for at in range(0, min(used, len(content)), 13):
            flipped = bytearray(content)
            flipped[at] ^= 1 << (at % 8)
            disk = FakeDisk.of_tree({**tree, path: bytes(flipped)}, boot=boot)
            before = disk.step
            try:
                items = list(open_store(disk, ManualClock(), CONFIG).frames())
            except StoreDamaged as error:
                refusal = str(error)
            else:
                refusal = ""
            if refusal:
                assert path in refusal
                assert disk.step == before, "a refusal changes nothing"
                outcomes["refused"] += 1
                continue
            found = values_of(items, 1)
            gaps = [item for item in items if isinstance(item, CorruptionGap)]
            assert len(found) == len(expected), (path, at)
            assert all(one in ("gap", other) for one, other in zip(found, expected, strict=True)), (path, at)
            assert found.count("gap") == sum(gap.last_seq - gap.first_seq + 1 for gap in gaps) <= 2
            outcomes["gap" if gaps else "full"] += 1
            if at % 91 == 0:
                once = disk.killed()
                assert values_of(Hand(once, CONFIG, live=False).items, 1) == found
                assert values_of(Hand(once.killed(), CONFIG).items, 1) == found, "what was recovered recovers"
    assert outcomes["gap"] > 300, outcomes
    assert outcomes["refused"] > 40, outcomes
