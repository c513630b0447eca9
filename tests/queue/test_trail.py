"""A trail has the last eight deliveries, once each, in few bytes."""

from __future__ import annotations

from engine.queue.trail import TRAIL_MAX, Delivery, End, deliveries_of, extended


def step(number: int) -> Delivery:
    return Delivery(number, "worker-1", 1_748_450_000_000 + number, 1_748_450_030_000 + number, End.EXPIRED)


def test_the_last_eight_are_remembered_in_order() -> None:
    trail = None
    for number in range(1, 20):
        trail = extended(trail, step(number))
    assert deliveries_of(trail) == [step(number) for number in range(20 - TRAIL_MAX, 20)]
    assert deliveries_of(None) == []


def test_the_same_delivery_is_remembered_once() -> None:
    trail = extended(extended(extended(None, step(1)), step(2)), step(1))
    assert deliveries_of(trail) == [step(1), step(2)]


def test_an_entry_takes_few_bytes() -> None:
    assert len(extended(None, step(1))) < 48
