"""Routers as a graph."""

from __future__ import annotations

import pytest

from engine.limits import MAX_HOPS
from engine.routers.graph import ancestors, cycle, hops_limit
from engine.routers.hops import HOPS_KEPT_MAX

CHAIN = {2: 1, 3: 2, 4: 3}
RING = {1: 4, 2: 1, 3: 2, 4: 3}


def test_ancestors_are_a_chain_and_a_cycle_is_walked_once() -> None:
    assert ancestors(4, CHAIN.get) == [3, 2, 1]
    assert ancestors(1, CHAIN.get) == []
    assert ancestors(4, RING.get) == [3, 2, 1]


def test_a_cycle_starts_and_ends_with_the_source() -> None:
    assert cycle(4, 1, CHAIN.get) == [4, 1, 2, 3, 4]
    assert cycle(2, 1, CHAIN.get) == [2, 1, 2]
    assert cycle(4, 5, CHAIN.get) is None
    assert cycle(1, 4, CHAIN.get) is None


@pytest.mark.parametrize(("topic", "dest"), [(1, 2), (2, 3), (3, 4), (4, 1)])
def test_in_a_ring_a_record_comes_into_each_topic_once(topic: int, dest: int) -> None:
    """Written to `dest` it has been forwarded three times when it is back before it; written elsewhere less often."""
    assert hops_limit(ancestors(topic, RING.get), dest, True) == 2


def test_without_a_cycle_a_chain_has_any_length() -> None:
    assert hops_limit(ancestors(4, CHAIN.get), 5, False) == HOPS_KEPT_MAX
    assert hops_limit(ancestors(4, CHAIN.get), 5, True) == MAX_HOPS - 1
    long = {number: number - 1 for number in range(2, 40)} | {1: 39}
    assert hops_limit(ancestors(39, long.get), 1, False) == MAX_HOPS - 1
