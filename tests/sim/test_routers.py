"""Routers at a part of their cuts (`make crash` looks at all): every play of `routers`, and a loss said as a gap."""

from __future__ import annotations

import pytest

from engine.types import Durability, Reason
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.plays import Play, played
from tests.sim.routers import PLAYS, Net, records, values
from tests.sim.world import TINY


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
@pytest.mark.parametrize("shards", [1, 3])
def test_F65_routers_at_their_cuts(play: Play, shards: int) -> None:
    assert played(play, shards, share=0.1) > 7


def test_what_a_source_lost_is_a_gap_of_as_many() -> None:
    net = Net(FakeDisk(), ManualClock(), TINY, Durability.DISK)
    net.topics("a", cap_records=2)
    net.topics("b")
    net.router("a", "b", earliest=False)
    net.core.forwarding.forwards.held = True
    net.write("a", 5)
    net.core.forwarding.forwards.held = False
    net.idle()
    assert values(records(net.core), "b") == [4, 5]
    topic = net.core.catalog.visible["b"].topic
    assert (topic.head, topic.earliest_seq) == (5, 4)
    assert topic.floor.ranges() == [(3, Reason.SOURCE_TRIM)]


def test_what_a_checkpoint_finds_lost_and_not_forwarded_yet_goes_round_no_further_than_it_would_have() -> None:
    """b has lost copies of a's records before a pass came to them: these are no loss for a, b's own record is."""
    for checkpoints in (False, True):
        net = Net(FakeDisk(), ManualClock(), TINY, Durability.DISK)
        net.topics("a")
        net.topics("b", cap_records=2)
        net.router("a", "b")
        net.router("b", "a", allow_cycle=True)
        net.write("a")
        net.idle()
        outlets = net.core.catalog.visible["b"].outlets
        assert outlets is not None
        outlets.queued = True  # whatever comes, b is not in line
        net.write("a", 3)
        net.step()
        net.step()
        net.write("b")
        net.write("a", 6)
        net.step()
        b = net.core.catalog.visible["b"].topic
        assert (b.earliest_seq, net.core.routers.get("b>a").cursor) == (10, 1)
        if checkpoints:
            net.wait(net.core.checkpoint())
            net.restart("kill")
        else:
            outlets.queued = False
            outlets.note()
        net.idle()
        a = net.core.catalog.visible["a"].topic
        assert (a.head, a.count) == (11, 10), "one seq is lost"
