"""What once grew without bound, or was thrown away to keep a bound."""

from __future__ import annotations

import msgspec

from engine.commands import Batch, DeleteSelector
from engine.fragment import Rendered, render
from engine.limits import GAPS_MAX, KIB
from engine.topic.state import Topic
from engine.types import Match, PageRequest, Reason, TopicConfig
from tests.core.hand import SMALL, Hand

TIGHT = msgspec.structs.replace(SMALL, cache_bytes=64 * KIB, wal_file_bytes=2048 * KIB, wal_fill_bytes=512 * KIB)


def filled(records: int, pad: int, **columns: object) -> Hand:
    hand = Hand(settings=TIGHT)
    for _ in range(records // 10):
        hand.take(hand.core.append("t", Batch.of(["x" * pad] * 10, **columns)))
    return hand


def test_a_delete_by_tag_over_a_cold_topic_stays_inside_the_cache_bound() -> None:
    hand = filled(600, 2000, tags=["keep", "drop"] * 5)
    cache = hand.core.catalog.cache
    assert cache.bytes_held <= cache.bytes_max
    held: list[int] = []
    load = cache.load

    def watched(shard: int, lsn: int) -> Rendered:
        held.append(cache.bytes_held)
        return load(shard, lsn)

    cache.load = watched
    assert hand.take(hand.core.delete("t", DeleteSelector(match=Match("Eq", "drop")))).deleted == 300
    assert max(held) <= 4 * cache.bytes_max


def test_a_filtered_page_over_a_cold_topic_stays_inside_the_cache_bound_and_reads_only_what_may_pass() -> None:
    hand = filled(600, 2000, tags=["keep", "drop"] * 5)
    cache = hand.core.catalog.cache
    loads: list[int] = []
    load = cache.load

    def watched(shard: int, lsn: int) -> Rendered:
        loads.append(cache.bytes_held)
        return load(shard, lsn)

    cache.load = watched
    page = hand.core.page("t", PageRequest(match=Match("Eq", "none")))
    assert (page.count, page.caught_up) == (0, True)
    assert max(loads, default=0) <= 4 * cache.bytes_max
    assert len(loads) < 10


def test_live_records_are_never_given_up_to_keep_the_list_of_gaps_short() -> None:

    topic = Topic(1, "t", 1, TopicConfig())
    for number in range(GAPS_MAX + 2):
        topic.apply_append(topic.head + 1, render(Batch.of([number]), topic.head + 1, 5), 5)
        topic.apply_gap(topic.head + 1, topic.head + 1, Reason.CRASH, 5)
    assert topic.count == GAPS_MAX + 2


def test_keys_of_topics_that_fell_silent_are_forgotten_when_their_window_has_passed() -> None:
    hand = Hand()
    for number in range(20):
        hand.write(f"t{number}", 1, key=b"k%d" % number)
    assert hand.core.catalog.keys.live == 20
    for _ in range(5):
        hand.pass_ms(60_000)
        hand.settle()
    assert hand.core.catalog.keys.live == 0
