"""The floor: why what was in front is gone."""

from engine.limits import FLOOR_REASONS_MAX
from engine.topic.floor import Floor
from engine.types import Reason, WhyGone


def test_nothing_lost_is_a_floor_of_one() -> None:
    floor = Floor()
    assert floor.seq == 1
    assert floor.ranges() == []


def test_losses_of_one_reason_are_one_range() -> None:
    floor = Floor()
    floor.lose(3, Reason.CAP, 10)
    floor.lose(8, Reason.CAP, 20)
    floor.lose(5, Reason.TTL, 30)
    assert floor.seq == 9, "a lower seq changes nothing"
    assert floor.ranges() == [(8, Reason.CAP)]
    assert floor.last_ts == 20


def test_each_range_keeps_its_reason() -> None:
    floor = Floor()
    floor.lose(3, Reason.CAP, 10)
    floor.lose(6, Reason.TTL, 20)
    floor.lose_gap(7, 9, Reason.CRASH)
    assert [floor.why(seq) for seq in (1, 3, 4, 6, 7, 9)] == [
        WhyGone.EVICTED,
        WhyGone.EVICTED,
        WhyGone.EXPIRED,
        WhyGone.EXPIRED,
        WhyGone.LOST,
        WhyGone.LOST,
    ]
    assert floor.reasons_from(1) == {Reason.CAP, Reason.TTL, Reason.CRASH}
    assert floor.reasons_from(4) == {Reason.TTL, Reason.CRASH}
    assert floor.reasons_from(7) == {Reason.CRASH}


def test_the_oldest_ranges_merge_to_mixed_beyond_the_bound() -> None:
    floor = Floor()
    for seq in range(1, FLOOR_REASONS_MAX + 3):
        floor.lose(seq, Reason.CAP if seq % 2 else Reason.TTL, seq)
    ranges = floor.ranges()
    assert len(ranges) == FLOOR_REASONS_MAX
    assert ranges[0] == (3, Reason.MIXED)
    assert ranges[-1] == (FLOOR_REASONS_MAX + 2, Reason.TTL)
    assert floor.why(1) is WhyGone.EVICTED


def test_a_reader_from_a_time_is_put_before_losses_of_that_time_only() -> None:
    floor = Floor()
    floor.lose(5, Reason.CAP, 100)
    assert floor.cursor_since(100, 0, 6) == 0
    assert floor.cursor_since(101, 0, 6) == 5
    floor.lose_gap(6, 9, Reason.CRASH)
    assert floor.cursor_since(101, 0, 10) == 5, "nobody knows when the lost ones were written"
    assert floor.cursor_since(101, 7, 10) == 7
