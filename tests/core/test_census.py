"""The counts over all topics: equal to counting by hand, through every kind of change and a restart."""

from __future__ import annotations

import random

from engine.commands import DeleteSelector
from engine.routers.router import RouterSpec
from engine.types import Durability, Reason
from tests.core.hand import Hand

CLASSES = [durability.value for durability in Durability]


def check(hand: Hand) -> None:
    """Compare the census with the catalog as it is."""
    catalog = hand.core.catalog
    by_class = dict.fromkeys(Durability, 0)
    damaged = 0
    for slot in catalog.visible.values():
        by_class[slot.topic.config.durability] += 1
        damaged += len(slot.topic.lost)
    assert catalog.census.by_class == by_class
    assert catalog.census.damage_ranges == damaged


def test_topics_are_counted_by_class_through_any_changes_and_a_restart() -> None:
    hand = Hand()
    chance = random.Random(7)
    for step in range(120):
        name = f"t{chance.randrange(8)}"
        match chance.randrange(4):
            case 0:
                hand.take(hand.core.drop_topic(name))
            case 1:
                hand.write(name, step)
            case _:
                hand.create(name, durability=chance.choice(CLASSES))
        check(hand)
    assert sum(hand.core.catalog.census.by_class.values()) == len(hand.core.catalog.names)
    check(hand.reopen())


def test_copies_that_a_start_makes_again_are_counted_once() -> None:
    hand = Hand()
    for name in "ab":
        hand.create(name)
    hand.take(hand.core.routers.put("a>b", "a", "b", RouterSpec()))
    hand.write("a", 1, 2, 3)
    while hand.core.route():
        pass
    hand.turn()
    assert hand.core.catalog.census.forwarded == 3
    catalog = hand.reopen().core.catalog
    there = [slot.topic for slot in catalog.by_id.values()]
    assert [topic.count for topic in there] == [3, 3], "no checkpoint has the copies"
    assert catalog.records_live == 6
    assert catalog.bytes_live == sum(topic.bytes for topic in there)
    assert catalog.census.forwarded == 0, "of this process, as all counters are"


def test_records_written_read_and_lost_are_counted_by_why() -> None:
    hand = Hand()
    hand.create("t", cap_records=3, ttl_ms=1000)
    cache, census = hand.core.catalog.cache, hand.core.catalog.census
    hand.write("t", 1, 2, 3, 4, 5)
    assert (census.written, cache.lost[Reason.CAP], cache.lost[Reason.TTL]) == (5, 2, 0)
    assert len(hand.read("t")) == 3
    assert (census.read, census.told[Reason.CAP]) == (3, 1)
    hand.take(hand.core.delete("t", DeleteSelector(seqs=(4,))))
    hand.pass_ms(5000)
    hand.write("t", 6)
    # What was deleted is no loss; the two others were too old.
    assert (census.written, cache.lost[Reason.CAP], cache.lost[Reason.TTL]) == (6, 2, 2)
    assert hand.core.catalog.records_live == 1
