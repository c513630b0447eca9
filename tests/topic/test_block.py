"""Blocks: arithmetic over lengths, growing, cold and warm again."""

from __future__ import annotations

from typing import Any

import pytest

from engine import scan
from engine.commands import Batch
from engine.errors import StoreDamaged
from engine.fragment import cut, payload_bytes, render
from engine.tagset import Needle
from engine.topic.block import OPEN_RECORDS, Block, counted_bytes, digits_total
from engine.types import Match
from tests.topic.making import HARD

COUNT = len(HARD)
COLUMNS: dict[str, list[Any]] = {
    "metas": [(None, b"{}", b'{"a":"b"}')[index % 3] for index in range(COUNT)],
    "tags": [(None, "t", "é", 'q"')[index % 4] for index in range(COUNT)],
    "nodes": [("n", None)[index % 2] for index in range(COUNT)],
}
HARD_BATCH = Batch(HARD, **COLUMNS)


def one_by_one(batch: Batch) -> list[Batch]:
    """The same records as batches of one."""
    return [
        Batch(
            [batch.datas[i]],
            metas=[batch.metas[i]] if batch.metas else None,
            tags=[batch.tags[i]] if batch.tags else None,
            nodes=[batch.nodes[i]] if batch.nodes else None,
        )
        for i in range(len(batch))
    ]


def joined(first: int, times: list[int]) -> Block:
    """The hard batch written record by record, in one open block."""
    block = None
    for index, batch in enumerate(one_by_one(HARD_BATCH)):
        ts = times[index]
        rendered = render(batch, first + index, ts)
        size = counted_bytes(rendered, first + index, ts)
        if block is None:
            block = Block(first, rendered, ts, 0, 8 * index, size)
        else:
            block.extend(rendered, ts, 8 * index, size)
    assert block is not None
    return block


@pytest.mark.parametrize("first", [1, 9, 95, 99_990])
def test_a_block_of_one_batch_and_one_of_many_writes_are_the_same(first: int) -> None:
    rendered = render(HARD_BATCH, first, 1234)
    whole = Block(first, rendered, 1234, 0, 0, counted_bytes(rendered, first, 1234))
    grown = joined(first, [1234] * COUNT)
    assert bytes(whole.whole()[0]) == bytes(grown.whole()[0]) == rendered.fragments
    assert whole.whole()[1] == grown.whole()[1]
    assert whole.live_bytes == grown.live_bytes == sum(payload_bytes(rendered, first, 1234))
    assert (whole.node_lens, whole.meta_lens, whole.tag_lens) == (grown.node_lens, grown.meta_lens, grown.tag_lens)


@pytest.mark.parametrize("first", [1, 95])
def test_sizes_and_parts_follow_from_lengths(first: int) -> None:
    times = [95 + index for index in range(COUNT)]
    block = joined(first, times)
    for index in range(COUNT):
        data, meta = HARD[index], COLUMNS["metas"][index] or b""
        tag, node = COLUMNS["tags"][index], COLUMNS["nodes"][index]
        quoted = {None: 0, "t": 1, "n": 1, "é": 2, 'q"': 3}
        assert block.size(index, index + 1) == len(data) + len(meta) + quoted[tag] + quoted[node]
        assert block.ts_at(index) == times[index]
        assert block.tag_part(index) == (b"" if tag is None else Needle(Match("Eq", str(tag))).part)
        assert block.node_part(index) == (b"" if node is None else b'"$node":"n",')
        assert block.fragment(index) == render(one_by_one(HARD_BATCH)[index], first + index, times[index]).fragments
    assert block.size(0, COUNT) == block.live_bytes
    assert block.size(3, 3) == 0


@pytest.mark.parametrize("grown", [True, False])
def test_leaving_out_tags_is_a_cut(grown: bool) -> None:
    rendered = render(HARD_BATCH, 1, 1)
    block = joined(1, [1] * COUNT) if grown else Block(1, rendered, 1, 0, 0, 0)
    if not grown:
        block.close()
    tag_lens, meta_lens = rendered.tag_lens, rendered.meta_lens
    assert tag_lens is not None
    assert meta_lens is not None
    for start, stop in [(0, COUNT), (3, 4), (0, 1), (COUNT - 2, COUNT)]:
        data, bounds, base = block.bare(start, stop)
        for index in range(start, stop):
            whole = block.fragment(index)
            wanted = cut(
                whole, 0, meta_lens[index], tag_lens[index], include_tag=False, include_meta=True, include_data=True
            )
            assert data[bounds[index - base] : bounds[index - base + 1] - 1] == wanted
            assert b'"$tag"' not in wanted or b'"$tag"' in HARD[index]
    assert (block.bare_bytes > 0) == (not grown), "an open block keeps nothing, because it still changes"


def test_a_closed_block_is_plain_bytes() -> None:
    block = Block(1, render(Batch([b"1"]), 1, 1), 1, 0, 0, 1)
    kinds: list[type] = [type(block.data)]
    block.close()
    kinds.append(type(block.data))
    assert kinds == [bytearray, bytes]


def test_a_large_write_is_kept_as_it_is() -> None:
    rendered = render(Batch([b"1"] * (OPEN_RECORDS + 1)), 1, 1)
    block = Block(1, rendered, 1, 0, 0, 1)
    assert not block.open
    assert block.data is rendered.fragments


@pytest.mark.parametrize("grown", [True, False])
def test_a_cold_block_comes_back_as_it_was(grown: bool) -> None:
    first, ts = 98, 1234
    rendered = render(HARD_BATCH, first, ts)
    block = joined(first, [ts] * COUNT) if grown else Block(first, rendered, ts, 0, 0, 5)
    frames = [render(b, first + i, ts) for i, b in enumerate(one_by_one(HARD_BATCH))] if grown else [rendered]
    columns = (block.node_lens, block.meta_lens, block.tag_lens)
    block.cool()
    assert block.data is None
    assert block.weight == 0
    assert block.ts_at(2) == ts
    tags = block.tags()
    assert tags is not None
    assert tags.may_hold(Needle(Match("Eq", "é")))
    assert not tags.may_hold(Needle(Match("Eq", "x")))
    block.warm(iter(frames))
    assert block.whole()[0] == rendered.fragments
    assert (block.node_lens, block.meta_lens, block.tag_lens) == columns
    assert block.fragment(COUNT - 1).endswith(b"}")


def test_a_log_that_gives_back_something_else_is_damage() -> None:
    block = Block(1, render(HARD_BATCH, 1, 1), 1, 0, 0, 5)
    block.cool()
    with pytest.raises(StoreDamaged, match="records where seqs from 1 on are"):
        block.warm([render(Batch([b"1"]), 1, 1)])


@pytest.mark.parametrize("sizes", [[1, 1, 1], [3], [2, 2], [2, 1, 1], [1, 2, 3, 1]])
@pytest.mark.parametrize("more", [[1, 1], [2], [1, 3]])
def test_a_record_of_a_cold_block_is_found_in_its_frame(sizes: list[int], more: list[int]) -> None:
    blocks: list[Block] = []
    first = lsn = 0
    where: list[tuple[int, int, int]] = []
    for group in (sizes, more):
        for number, count in enumerate(group):
            rendered = render(Batch([b"1"] * count), 1 + first, 5)
            if number == 0:
                blocks.append(Block(1 + first, rendered, 5, 0, lsn, count))
            else:
                blocks[-1].extend(rendered, 5, lsn, count)
            where += [(lsn, first, count)] * count
            first += count
            lsn += 8
    left, right = blocks
    for block in blocks:
        block.cool()
    left.absorb(right)
    assert (left.count, left.live, left.live_bytes, left.last_seq) == (first, first, first, first)
    assert [left.frame_of(index) for index in range(first)] == where


def test_a_joined_block_knows_the_tags_of_both() -> None:
    blocks = [
        Block(first, render(Batch([b"1"], tags=[tag]), first, 5), 5, 0, first, 2)
        for first, tag in enumerate(["a", None, "b"], 1)
    ]
    for block in blocks:
        block.cool()
    blocks[0].absorb(blocks[1])
    blocks[0].absorb(blocks[2])
    tags = blocks[0].tags()
    assert tags is not None
    assert [tags.may_hold(Needle(Match("Eq", tag))) for tag in ("a", "b", "c")] == [True, True, False]


def test_digits_are_counted_over_powers_of_ten() -> None:
    for first, last in [(1, 9), (1, 10), (99, 101), (5, 12345), (7, 7)]:
        assert digits_total(first, last) == sum(len(str(n)) for n in range(first, last + 1))


@pytest.mark.parametrize("compiled", [True, False])
def test_the_size_that_rendering_tells_is_the_one_that_follows_from_the_lengths(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(scan, "render", lambda *_: None)
    for batch in (Batch(HARD), *map(Batch, ([data] for data in HARD)), Batch([b"1"] * 300)):
        for first in (1, 9, 99, 10**12 - 1):
            rendered = render(batch, first, 1_748_450_000_000)
            assert rendered.size == counted_bytes(rendered, first, 1_748_450_000_000)
    assert render(HARD_BATCH, 1, 1).size == -1
    assert render(Batch([b"1"], tags=["x"]), 1, 1).size == -1
