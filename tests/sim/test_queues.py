"""Queues at a part of their cuts: every play of `queues` (`make crash` looks at all), and dead letters in memory."""

from __future__ import annotations

import pytest

from engine.types import ConfigChanges, Durability, TopicType
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.plays import Play, played
from tests.sim.queues import PLAYS, Shop, live
from tests.sim.world import TINY


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
@pytest.mark.parametrize("shards", [1, 2])
def test_F67_a_queue_at_its_cuts(play: Play, shards: int) -> None:
    assert played(play, shards, share=0.5) > 20


@pytest.mark.parametrize("pair", [("ephemeral", "disk"), ("disk", "ephemeral"), ("ephemeral", "ephemeral")])
def test_dead_letters_of_and_in_memory(pair: tuple[str, str]) -> None:
    shop = Shop(FakeDisk(), ManualClock(), TINY)
    source, target = map(Durability, pair)
    shop.wait(shop.core.put_topic("dead", ConfigChanges(type=TopicType.QUEUE, durability=target)))
    shop.make(durability=source)
    shop.write(1, 2)
    assert shop.claim(2) == [1, 2]
    shop.nack(1, dead_letter=True)
    shop.ack(2)
    assert set(live(shop.core, "dead")) == {1}
    counters = shop.core.state("q").queue
    assert counters is not None
    assert (counters["written"], counters["acked"], counters["dead_lettered"]) == (2, 1, 1)
