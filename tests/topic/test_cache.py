"""The cache: a bound over all tails, second chances, and what is in no log."""

from __future__ import annotations

import pytest

from engine.commands import DeleteSelector
from engine.fragment import Rendered
from engine.topic.cache import Cache
from engine.topic.page import read_page
from engine.topic.record import find_record
from engine.topic.state import Topic
from engine.topic.tags import resolve_delete
from engine.types import Match, PageRequest, Reason, TopicConfig, WhyGone
from tests.topic.making import Made

BIG = [b'"' + b"x" * 500 + b'"'] * 200
"""One block, about 100 KB."""


def test_it_is_over_only_beyond_its_bound() -> None:
    made = Made(cache_bytes=250_000)
    made.write(*BIG)
    made.write(*BIG)
    assert made.cache.bytes_held <= made.cache.bytes_max
    made.write(*BIG)
    over = [made.cache.over]
    assert made.cache.shrink() == (0, 0)
    over.append(made.cache.over)
    assert over == [True, False]
    assert Made(cache_bytes=0).cache.over is False


def test_the_oldest_blocks_go_cold_and_come_back_when_read() -> None:
    made = Made(cache_bytes=250_000)
    for _ in range(5):
        made.write(*BIG)
        made.cache.shrink()
    blocks = made.topic.tail.blocks
    assert [block.data is None for block in blocks] == [True, True, True, False, False]
    first = find_record(made.topic, 1, 0)
    assert isinstance(first, bytes)
    assert first.startswith(b'{"$seq":1,')
    assert made.log.reads == 1
    made.cache.shrink()
    assert made.cache.bytes_held <= 250_000


def test_a_block_that_is_read_is_spared_once() -> None:
    made = Made(cache_bytes=250_000)
    for _ in range(2):
        made.write(*BIG)
    for block in made.topic.tail.blocks:
        block.touched = False
    read_page(made.topic, PageRequest(limit=1), 0)
    made.write(*BIG)
    made.cache.shrink()
    assert [block.data is None for block in made.topic.tail.blocks] == [False, True, False]


def test_what_it_counts_is_what_blocks_hold() -> None:
    made = Made()
    for index in range(1000):
        made.write(b'"%d"' % index, tags=["t"])
    made.write(*BIG, tags=["t"] * len(BIG))
    for block in made.topic.tail.blocks:
        block.touched = True
    read_page(made.topic, PageRequest(limit=1000), 0)
    assert made.cache.bytes_held == sum(block.weight for block in made.topic.tail.blocks)
    made.cool()
    assert made.cache.bytes_held == 0
    read_page(made.topic, PageRequest(limit=1000), 0)
    assert made.cache.bytes_held == sum(block.weight for block in made.topic.tail.blocks)
    made.topic.apply_delete([(1, 5000)], 1000)
    assert made.cache.bytes_held == 0


def test_what_is_in_no_log_is_lost_as_a_cap_would_beyond_half_of_the_bound() -> None:
    made = Made(cache_bytes=1_000_000)
    lost = 0
    for _ in range(20):
        made.write(*BIG, logged=False)
        lost += made.cache.shrink()[0]
    topic = made.topic
    assert made.cache.bytes_held <= 1_000_000
    assert lost == 4000 - topic.count > 0
    assert topic.earliest_seq == lost + 1
    page = read_page(topic, PageRequest(limit=1), 0)
    assert page.tombstone is not None
    assert (page.tombstone.reason, page.tombstone.gap_to) == (Reason.CAP, lost)
    assert find_record(topic, 1, 0) is WhyGone.EVICTED
    assert made.log.reads == 0


def test_logged_blocks_make_room_before_unlogged_ones_are_lost() -> None:
    made = Made(cache_bytes=500_000)
    logged = Topic(8, "logged", 1, TopicConfig(), made.cache)
    other = Made()
    other.topic, other.cache = logged, made.cache
    for _ in range(2):
        made.write(*BIG, logged=False)
    for _ in range(6):
        other.write(*BIG)
        assert made.cache.shrink() == (0, 0)
    assert made.topic.count == 400
    assert logged.count == 1200


def test_blocks_that_are_gone_do_not_pile_up_in_the_queue() -> None:
    made = Made(cap_records=1)
    for index in range(3000):
        made.write(b'"%d"' % index)
        made.topic.tail.blocks[-1].close()
    assert len(made.cache._queue) < 200


def test_a_read_over_cold_blocks_gives_back_what_it_brought_in() -> None:
    made = Made(cache_bytes=250_000)
    for _ in range(10):
        made.write(*BIG, tags=["t"] * len(BIG))
        made.cache.shrink()
    kept = [block for block in made.topic.tail.blocks if block.data is not None]
    held: list[int] = []
    load = made.cache.load

    def watched(shard: int, lsn: int) -> Rendered:
        held.append(made.cache.bytes_held)
        return load(shard, lsn)

    made.cache.load = watched
    ranges = resolve_delete(made.topic, DeleteSelector(match=Match("Eq", "t"), before_seq=1500), 1000)
    assert ranges == [(1, 1499)]
    assert made.topic.apply_delete(ranges, 1000) == 1499
    assert len(held) > 5
    assert max(held) < 2 * 250_000
    assert all(block.data is not None for block in kept), "what others read is not driven out"


def test_a_filtered_page_reads_no_cold_block_that_cannot_pass() -> None:
    made = Made()
    for tag in ("a", "b", "c"):
        made.write(*BIG, tags=[tag] * len(BIG))
    made.cool()
    page = read_page(made.topic, PageRequest(match=Match("Eq", "zebra")), 0)
    assert (page.caught_up, page.scanned, made.log.reads) == (True, 600, 0)
    page = read_page(made.topic, PageRequest(match=Match("Eq", "b")), 0)
    assert (page.count, made.log.reads) == (200, 1)


def test_without_a_way_to_read_back_a_cold_block_says_so() -> None:
    topic = Topic(1, "t", 1, TopicConfig(), Cache())
    made = Made()
    made.topic, made.cache = topic, topic.tail.cache
    made.write(b"1")
    made.cool()
    with pytest.raises(LookupError, match="shard 0 lsn 0"):
        find_record(topic, 1, 0)
