"""Tails: joining writes to blocks, and finding them."""

from engine.topic.block import BLOCK_RECORDS, OPEN_BYTES, OPEN_RECORDS
from engine.types import Reason
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
