"""Hop counts of a topic's records."""

from __future__ import annotations

import random

from engine.routers.hops import HOPS_KEPT_MAX, RANGES_MAX, Hops


def test_a_model_of_single_records() -> None:
    dice = random.Random(5)
    for _ in range(50):
        hops, model, seq = Hops(), dict[int, int](), 1
        for _ in range(40):
            if dice.random() < 0.4:
                seq += dice.randrange(1, 4)
                continue
            count, last = dice.randrange(1, 4), seq + dice.randrange(3)
            hops.add(seq, last, count)
            model.update(dict.fromkeys(range(seq, last + 1), count))
            seq = last + 1
        for one in range(1, seq + 3):
            count, until = hops.at(one)
            assert count == model.get(one, 0)
            assert all(model.get(other, 0) == count for other in range(one, min(until, seq + 3) + 1))
        start = dice.randrange(seq)
        kept = Hops(hops.above(start))
        assert all(kept.at(one)[0] == model.get(one, 0) for one in range(start + 1, seq))


def test_they_are_bounded_and_never_say_less() -> None:
    hops = Hops()
    for number in range(RANGES_MAX + 500):
        hops.add(2 * number + 1, 2 * number + 1, 1 + number % 3)
    assert len(hops.above(0)) == RANGES_MAX
    assert all(hops.at(2 * number + 1)[0] >= 1 + number % 3 for number in range(RANGES_MAX + 500))
    hops.add(10**6, 10**6, 99)
    assert hops.at(10**6)[0] == HOPS_KEPT_MAX


def test_seqs_are_counted_that_were_not_forwarded_too_often() -> None:
    hops = Hops([(3, 5, 2), (8, 8, 1)])
    assert hops.among(1, 10, 31) == (10, 2)
    assert hops.among(1, 10, 1) == (7, 1)
    assert hops.among(4, 9, 0) == (3, 0)
    assert hops.among(4, 5, 1) == (0, 0)
    assert hops.among(9, 8, 1) == (0, 0)
