"""A topic's changes: caps, age, deletes, gaps, configuration, refusals. Random lives are in test_model."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from engine.commands import Batch
from engine.errors import Code, Refused
from engine.fragment import render
from engine.limits import GAPS_MAX
from engine.topic.cache import Cache
from engine.topic.idempotency import Keys
from engine.topic.page import read_page
from engine.topic.record import find_record
from engine.topic.state import Topic, check_fits
from engine.types import Discard, PageRequest, Reason, TopicConfig, WhyGone
from tests.topic.making import Made


def test_a_new_topic_is_empty() -> None:
    topic = Made().topic
    assert (topic.head, topic.earliest_seq, topic.count, topic.bytes) == (0, 1, 0, 0)
    assert topic.last_write_ts is None


def test_bytes_are_those_of_data_meta_node_and_tag() -> None:
    made = Made()
    made.write(b'{"a":1}', metas=[b'{"m":2}'], nodes=["nod"], tags=["tagé"])
    assert made.topic.bytes == 7 + 7 + 3 + 5


@pytest.mark.parametrize("sizes", [[1] * 10, [10], [3, 4, 3]])
def test_a_cap_of_records_is_exact(sizes: list[int]) -> None:
    made = Made(cap_records=4)
    for size in sizes:
        made.write(*[b"1"] * size)
        assert made.topic.count == min(4, made.topic.head)
    assert made.topic.earliest_seq == 7


@pytest.mark.parametrize("sizes", [[1] * 10, [10], [3, 4, 3]])
def test_a_cap_of_bytes_is_exact(sizes: list[int]) -> None:
    made = Made(cap_bytes=35)
    for size in sizes:
        made.write(*[b'"12345678"'] * size)
        assert made.topic.bytes == min(30, made.topic.head * 10)
    assert made.topic.earliest_seq == 8


def test_a_batch_larger_than_the_cap_evicts_its_own_first_records() -> None:
    made = Made(cap_records=2)
    made.write(*[b"1"] * 500)
    assert (made.topic.count, made.topic.earliest_seq, made.topic.head) == (2, 499, 500)
    page = read_page(made.topic, PageRequest(), 1000)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 498, Reason.CAP)


def test_a_record_expires_one_millisecond_after_its_age() -> None:
    made = Made(ttl_ms=100)
    made.write(b"1", ts=1000)
    made.write(b"2", ts=1001)
    assert made.topic.at(1100).count == 2
    assert made.topic.at(1101).count == 1
    assert made.topic.at(1101).earliest_seq == 2
    assert made.topic.at(1102).earliest_seq == 3
    assert made.topic.count == 2, "looking changes nothing"
    assert find_record(made.topic, 1, 1101) is WhyGone.EXPIRED
    made.topic.expire(1101)
    assert made.topic.count == 1
    assert find_record(made.topic, 1, 1101) is WhyGone.EXPIRED


def test_the_reason_of_a_lost_front_tells_cap_from_age() -> None:
    made = Made(ttl_ms=100, cap_records=2)
    for _ in range(3):
        made.write(b"1", ts=1000)
    made.topic.expire(1101)
    made.write(b"1", ts=1101)
    reasons = [
        read_page(made.topic, PageRequest(from_seq=cursor), 1101).tombstone.reason  # type: ignore[union-attr]  # is lost
        for cursor in (0, 1, 2)
    ]
    assert reasons == [Reason.MIXED, Reason.TTL, Reason.TTL]


def test_deletes_move_earliest_but_not_the_floor() -> None:
    made = Made()
    made.write(*[b"1"] * 10)
    assert made.topic.apply_delete([(1, 3), (5, 5)], 1000) == 4
    topic = made.topic
    assert (topic.earliest_seq, topic.floor.seq, topic.count) == (4, 1, 6)
    assert topic.apply_delete([(1, 5)], 1000) == 1
    assert topic.earliest_seq == 6
    assert read_page(topic, PageRequest(), 1000).tombstone is None
    assert topic.apply_delete([(1, 99)], 1000) == 5
    assert (topic.earliest_seq, topic.count, topic.bytes) == (11, 0, 0)


def test_nothing_is_looked_at_in_blocks_that_are_deleted_as_a_whole_whatever_holes_they_have() -> None:
    made = Made()
    for _ in range(3):
        made.write(*[b"1"] * 100)
    topic = made.topic
    assert topic.apply_delete([(seq, seq) for seq in range(2, 300, 2)], 1000) == 149
    made.cool()
    made.log.reads = 0
    assert topic.apply_delete([(1, 200)], 1000) == 100
    assert made.log.reads == 0
    assert (topic.earliest_seq, topic.count, topic.bytes) == (201, 51, 51)
    assert list(topic.deleted)[:2] == [(202, 202), (204, 204)]


def test_a_crash_gap_moves_the_head() -> None:
    made = Made()
    made.write(b"1")
    made.topic.apply_gap(2, 100, Reason.CRASH)
    assert (made.topic.head, made.topic.count, made.topic.earliest_seq) == (100, 1, 1)
    made.write(b"2")
    assert made.topic.head == 101
    assert find_record(made.topic, 50, 0) is WhyGone.LOST


def test_damage_is_remembered_below_the_floor() -> None:
    made = Made(cap_records=2)
    made.write(*[b"1"] * 2)
    made.topic.apply_gap(3, 4, Reason.CORRUPTION)
    made.topic.apply_gap(5, 5, Reason.CRASH)
    made.write(*[b"1"] * 20)
    assert made.topic.damage() == [(3, 4)]
    assert not made.topic.gaps
    assert find_record(made.topic, 3, 0) is WhyGone.LOST
    assert find_record(made.topic, 6, 0) is WhyGone.EVICTED


def test_no_live_record_is_given_up_to_keep_gaps_few() -> None:
    made = Made()
    for _ in range(GAPS_MAX + 2):
        made.write(b"1", b"2")
        made.topic.apply_gap(made.topic.head + 1, made.topic.head + 1, Reason.CORRUPTION)
    topic = made.topic
    assert topic.count == 2 * (GAPS_MAX + 2)
    assert len(topic.gaps) == GAPS_MAX + 2
    assert len(topic.damage()) == GAPS_MAX, "what is only told is kept short"


def test_a_lower_cap_evicts_at_once_and_reject_never_does() -> None:
    made = Made()
    made.write(*[b"1"] * 10)
    made.topic.apply_config(TopicConfig(cap_records=3, discard=Discard.REJECT), 1000)
    assert made.topic.count == 10
    made.topic.apply_config(TopicConfig(cap_records=3), 1000)
    assert made.topic.count == 3


def test_a_longer_age_revives_nothing() -> None:
    made = Made(ttl_ms=100)
    made.write(b"1", ts=1000)
    made.topic.apply_config(TopicConfig(ttl_ms=0), 1200)
    assert made.topic.count == 0
    assert made.topic.earliest_seq == 2


def refusal(config: TopicConfig, sizes: list[int], topic: Topic | None, records: int = 0, size: int = 0) -> Any:
    try:
        check_fits(config, sizes, topic, records, size, now_ms=1000)
    except Refused as error:
        return error
    return None


def test_what_can_never_fit_is_told_from_what_does_not_fit_now() -> None:
    made = Made(discard=Discard.REJECT, cap_records=3, cap_bytes=30)
    made.write(b'"12345678"')
    config = made.topic.config
    assert refusal(config, [10, 10], made.topic) is None
    assert refusal(config, [10, 10], made.topic, 1, 0).code is Code.TOPIC_FULL
    assert refusal(config, [10, 10], made.topic, 0, 1).code is Code.TOPIC_FULL
    assert refusal(config, [1, 1, 1], made.topic).code is Code.TOPIC_FULL
    assert refusal(config, [1] * 4, made.topic).code is Code.RECORD_TOO_LARGE
    assert refusal(config, [16, 16], made.topic).code is Code.RECORD_TOO_LARGE
    assert refusal(config, [16, 16], None).code is Code.RECORD_TOO_LARGE
    full = refusal(config, [30], made.topic)
    assert full.detail == {"caps": {"cap_records": 3, "cap_bytes": 30}, "head_seq": 1, "earliest_seq": 1}


def test_a_topic_that_discards_refuses_only_a_record_larger_than_it() -> None:
    config = TopicConfig(cap_bytes=30, cap_records=1)
    assert refusal(config, [30, 30, 30], None) is None
    assert refusal(config, [31], None).code is Code.RECORD_TOO_LARGE


def test_expired_records_make_room_in_a_full_topic() -> None:
    made = Made(discard=Discard.REJECT, cap_records=1, ttl_ms=100)
    made.write(b"1", ts=800)
    assert refusal(made.topic.config, [1], made.topic) is None


def reachable(topic: Topic, but: set[int]) -> dict[int, int]:
    """Sizes of the objects that hang on a topic, by id."""
    sizes: dict[int, int] = {}
    waiting: list[Any] = [topic]
    while waiting:
        thing = waiting.pop()
        if id(thing) in sizes or id(thing) in but or isinstance(thing, (type, int)):
            continue
        sizes[id(thing)] = sys.getsizeof(thing)
        if isinstance(thing, (list, tuple)):
            waiting += thing
        waiting += [getattr(thing, slot, None) for slot in getattr(type(thing), "__slots__", ())]
    return sizes


def test_an_idle_topic_is_small() -> None:
    cache, keys, config = Cache(), Keys(), TopicConfig()
    first, second = (Topic(number, f"topic-{number}", 1, config, cache, keys) for number in (1, 2))
    rendered = render(Batch([b'"x"']), 1, 1000)
    second.apply_append(1, rendered, 1000, (0, 0))
    own = reachable(second, set(reachable(first, set())))
    assert sum(own.values()) < 1100, "of the 1.5 KB that an idle topic may cost"


def test_views_are_values() -> None:
    view = Made().topic.at(0)
    with pytest.raises(AttributeError):
        view.count = 1  # type: ignore[misc]  # that it is refused is the point
    assert msgspec.structs.astuple(view) == (1, 1, 0, 0, 0)
