"""Tails: joining writes to blocks, and finding them."""

import msgspec

from engine.commands import DeleteSelector
from engine.topic.block import BLOCK_RECORDS, OPEN_BYTES, OPEN_RECORDS
from engine.topic.page import read_page
from engine.topic.record import find_record
from engine.topic.state import Topic
from engine.topic.tags import resolve_delete
from engine.types import PageRequest, Reason, TopicConfig
from tests.topic.making import Made


def test_small_writes_share_blocks() -> None:
    made = Made()
    for _ in range(2 * BLOCK_RECORDS + 1):
        made.write(b"1")
    assert [block.count for block in made.topic.tail.blocks] == [BLOCK_RECORDS, BLOCK_RECORDS, 1]
    assert [block.open for block in made.topic.tail.blocks] == [False, False, True]


def test_a_large_write_stands_alone_and_small_ones_go_on_after_it() -> None:
    made = Made()
    made.write(b"1")
    made.write(*[b"2"] * BLOCK_RECORDS)
    made.write(b"3")
    made.write(b"4", b"5")
    assert [block.count for block in made.topic.tail.blocks] == [1, BLOCK_RECORDS, 3]


def test_a_block_ends_when_it_holds_enough() -> None:
    made = Made()
    for _ in range(40):
        made.write(b'"' + b"x" * 4000 + b'"')
    blocks = made.topic.tail.blocks
    assert [block.count for block in blocks] == [16, 16, 8]
    made.write(b'"' + b"x" * OPEN_BYTES + b'"')
    assert [block.count for block in blocks] == [16, 16, 8, 1]
    assert not blocks[-1].open


def test_a_gap_is_never_inside_a_block() -> None:
    made = Made()
    made.write(b"1")
    made.topic.apply_gap(2, 10, Reason.CRASH)
    made.write(b"2")
    assert [(block.first_seq, block.count) for block in made.topic.tail.blocks] == [(1, 1), (11, 1)]
    tail = made.topic.tail
    assert [tail.locate(seq) for seq in (0, 1, 2, 10, 11, 12)] == [0, 0, 1, 1, 1, 2]
    assert [block.first_seq if (block := tail.block_of(seq)) else None for seq in (0, 1, 2, 11, 12)] == [
        None,
        1,
        None,
        11,
        None,
    ]


def test_another_shard_begins_another_block() -> None:
    made = Made()
    made.write(b"1", shard=0)
    made.write(b"2", shard=1)
    assert [(block.shard, block.count) for block in made.topic.tail.blocks] == [(0, 1), (1, 1)]


def test_blocks_without_anything_live_are_let_go() -> None:
    made = Made()
    for _ in range(3):
        made.write(*[b"1"] * (OPEN_RECORDS + 1))
    held = made.cache.bytes_held
    made.topic.apply_delete([(OPEN_RECORDS + 2, 2 * OPEN_RECORDS + 2)], 1000)
    assert [block.first_seq for block in made.topic.tail.blocks] == [1, 2 * OPEN_RECORDS + 3]
    assert made.cache.bytes_held < held
    made.topic.apply_delete([(1, 10**9)], 1000)
    assert made.topic.tail.blocks == []
    assert made.cache.bytes_held == 0


def test_a_released_topic_holds_nothing() -> None:
    made = Made()
    made.write(b"1", b"2")
    made.topic.release()
    assert made.cache.bytes_held == 0


def test_cold_blocks_are_joined_so_that_little_memory_means_no_block_a_record() -> None:
    first, second = Made(cache_bytes=1), Made()
    second.cache = first.cache
    second.log = first.log
    second.topic = Topic(8, "other", 1, TopicConfig(), first.cache)
    for index in range(600):
        for made in (first, second):
            made.write(b"%d" % index, ts=1000 + index // 7, tags=[f"t{index % 3}"])
            made.cache.shrink()
    for made in (first, second):
        assert [block.count for block in made.topic.tail.blocks] == [256, 256, 88]
        text = b"".join(read_page(made.topic, PageRequest(limit=1000, include_tags=True), 0).pieces)
        assert [record["data"] for record in msgspec.json.decode(b"[" + text + b"]")] == list(range(600))


def test_one_record_of_a_cold_block_costs_one_frame() -> None:
    made = Made()
    for index in range(256):
        made.write(b"%d" % index, ts=1000 + index)
    made.cool()
    topic = made.topic
    assert find_record(topic, 100, 0) == b'{"$seq":100,"$ts":1099,"data":99}'
    assert made.log.reads == 1
    assert topic.apply_delete([(50, 50)], 2000) == 1
    assert made.log.reads == 2
    assert topic.tail.ts_at(topic.tail.blocks[0], 69) == 1069
    assert made.log.reads == 3
    assert resolve_delete(topic, DeleteSelector(seqs=(60,)), 2000) == [(60, 60)]
    assert made.log.reads == 3
    before = made.log.reads
    topic.apply_config(TopicConfig(cap_records=254), 2000)
    assert topic.count == 254
    topic.apply_config(TopicConfig(ttl_ms=2000 - 1002), 2001)
    assert topic.earliest_seq == 4
    assert made.log.reads - before < 10
    assert topic.tail.blocks[0].data is None
    assert topic.bytes == sum(len(str(index)) for index in range(256) if index not in (0, 1, 2, 49))


def test_the_first_record_since_a_time_is_found_in_hot_and_cold_blocks() -> None:
    made = Made()
    for index in range(40):
        made.write(b"1", ts=1000 + 10 * (index // 3))
    for _ in range(2):
        block = made.topic.tail.blocks[0]
        for ts in range(990, 1140):
            expected = next((index for index in range(40) if 1000 + 10 * (index // 3) >= ts), 40)
            assert made.topic.tail.offset_since(block, ts) == expected
        made.cool()
