"""Topics that move between two stores, at a part of their cuts (`make crash` looks at all)."""

from __future__ import annotations

import pytest

from engine.errors import Code
from engine.types import ConfigChanges, Durability
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.moves import NAME, PLAYS, Told, fill, open_sides, refusal, started
from tests.sim.plays import Play, played


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
@pytest.mark.parametrize(("shards", "share"), [(1, 0.1), (3, 0.15)])
def test_a_topic_has_one_owner_whatever_is_cut(play: Play, shards: int, share: float) -> None:
    images = played(play, shards, share=SHORT.get(play.name, share))
    assert images > 3 or play.name in UNCUT


SHORT = {"move-cancel": 1.0, "move-back": 0.5}
"""Plays of few moments, and the part of these that is looked at."""
UNCUT = ("move-race", "move-busy", "move-given-up")
"""Plays of two commands at once, or of refusals: nothing is killed in them."""


def test_a_topic_comes_home_only_where_its_old_place_can_end() -> None:
    disk = FakeDisk()
    a, b = open_sides(disk, ManualClock(), 3)
    fill(a, Told(), Durability.FSYNC)
    a.detach()
    b.attach()
    b.detach()
    old = a.core.catalog.visible[NAME]
    count = 0
    while a.core.catalog.shard_of(a.core.catalog.last_id + 1) == old.shard:
        a.wait(a.core.put_topic(f"more-{count}", ConfigChanges()))
        count += 1
    a.core.wal.shards[old.shard].failed = OSError("the disk is gone")
    assert refusal(a.attach) is Code.READ_ONLY
    assert a.core.catalog.tip[NAME] is old
    again = started(disk.killed(), "a", a.clock, 3)
    again.attach()
    assert again.state() == "here"
