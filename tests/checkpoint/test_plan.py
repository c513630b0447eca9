"""What becomes of the blocks of one topic: sealed, written into a tails file, or left as they are."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.checkpoint.plan import HOLE_MAX, PIECES_MAX, SEAL_BYTES_MIN, Group, stretches, to_seal, to_tails
from engine.commands import Batch
from engine.fragment import render
from engine.limits import EngineSettings
from engine.segment.segment import Segment
from engine.topic.block import NOT_LOGGED, Block

SETTINGS = msgspec.structs.replace(
    EngineSettings(), segment_max_events=1000, segment_max_bytes=200_000, segment_age_ms=5000
)
FIXED = 48
NOW = 100_000


def loose(first: int, count: int = 100, *, size: int = 52, ts: int = NOW, **changes: Any) -> Block:
    """A block whose records are in the log; `size` is what each is counted for."""
    block = Block(first, render(Batch([b"1"] * count), first, ts), ts, 0, 4096, count * size)
    for name, value in changes.items():
        setattr(block, name, value)
    return block


def sealed(first: int, count: int = 100, *, offset: int = 0, number: int = 5) -> Block:
    """A block in a segment of its own, or (`offset`) in a tails file."""
    return Block.sealed(Segment(1, first, count, count, number, offset, count * 60, 1, 2, 0), count, count * 50, None)


def firsts(groups: list[Group]) -> list[list[int]]:
    return [[block.first_seq for block in group.blocks] for group in groups]


def seals(*blocks: Block, now_ms: int = NOW, everything: bool = False, **settings: int) -> list[list[int]]:
    changed = msgspec.structs.replace(SETTINGS, **settings)
    return firsts(to_seal(blocks, changed, now_ms, everything=everything))


def test_a_stretch_is_sealed_when_it_has_so_many_seqs() -> None:
    assert seals(loose(1, 500), loose(501, 499)) == []
    assert seals(loose(1, 500), loose(501, 500)) == [[1, 501]]
    assert seals(loose(1, 1000), loose(1001, 999)) == [[1]]


def test_a_stretch_is_sealed_when_it_has_so_many_bytes() -> None:
    assert seals(loose(1, 100, size=1000 - FIXED), loose(101, 100, size=999 - FIXED)) == []
    assert seals(loose(1, 100, size=1000 - FIXED), loose(101, 100, size=1000 - FIXED)) == [[1, 101]]


def test_what_is_old_is_sealed_unless_it_is_tiny() -> None:
    large = loose(1, 64, size=1024 - FIXED)
    assert large.live_bytes + 64 * FIXED == SEAL_BYTES_MIN
    assert seals(large, now_ms=NOW + 4999) == []
    assert seals(large, now_ms=NOW + 5000) == [[1]]
    assert seals(large, now_ms=NOW + 10**9, segment_age_ms=0) == [], "never by age"
    assert seals(loose(1, 64, size=1023 - FIXED), now_ms=NOW + 10**9) == []


def test_what_nothing_can_join_any_more_counts_as_old() -> None:
    large = loose(1, 64, size=1024 - FIXED)
    assert seals(large, loose(65, 1)) == []
    assert seals(large, sealed(65), loose(165, 1)) == [[1]]


def test_everything_is_sealed_where_nothing_may_be_left_over() -> None:
    assert seals(loose(1, 1), sealed(2), loose(102, 1), everything=True) == [[1], [102]]


def test_nothing_is_joined_over_a_hole_a_segment_what_is_under_way_or_what_is_in_memory_alone() -> None:
    joined = [loose(1), loose(101 + HOLE_MAX - 1)]
    assert [len(run) for run in stretches(joined)] == [2]
    apart = [loose(1), loose(101 + HOLE_MAX), loose(10_000, sealing=True), loose(10_100), sealed(10_200), loose(10_300)]
    apart += [loose(10_400, shard=NOT_LOGGED), loose(10_500)]
    assert [[block.first_seq for block in run] for run in stretches(apart)] == [
        [1], [101 + HOLE_MAX], [10_100], [10_300], [10_500],
    ]  # fmt: skip


def test_a_tails_file_gets_what_is_in_the_log_alone() -> None:
    def tails(*blocks: Block, worn: int = -1) -> list[list[int]]:
        return firsts(to_tails(blocks, SETTINGS, lambda number: number == worn))

    assert tails(sealed(1)) == []
    assert tails(sealed(1), loose(101)) == [[101]]
    assert tails(loose(1, sealing=True), loose(101, shard=NOT_LOGGED)) == []
    assert tails(sealed(1, offset=64), loose(101), loose(201)) == [[101, 201]]
    assert tails(loose(1, 900), loose(901, 100), loose(1001)) == [[1, 901], [1001]]
    assert tails(loose(1, 1000), loose(1001)) == [[1], [1001]]
    assert tails(loose(1, 200, size=1000 - FIXED), loose(201)) == [[1], [201]]
    worn = (sealed(1, offset=64, number=4), sealed(101), loose(201))
    assert tails(*worn, worn=3) == [[201]]
    assert tails(*worn, worn=4) == [[1], [201]], "most of their file is superfluous"
    pieces = [sealed(1 + 10 * at, 10, offset=64) for at in range(PIECES_MAX)]
    assert tails(*pieces[1:], loose(81, 10)) == [[81]]
    assert tails(*pieces, loose(81, 10)) == [[*range(1, 82, 10)]], "they are too many"
