"""What is written again, and what is not worth it."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.plan import HOLE_MAX
from engine.checkpoint.reclaim import ROWS_FACTOR, TINY_MIN, to_rewrite
from engine.limits import EngineSettings
from engine.segment.segment import Segment
from engine.topic.block import Block

SETTINGS = msgspec.structs.replace(EngineSettings(), segment_max_events=1000, segment_max_bytes=100_000)


def block(first: int, present: int, live: int, *, rows: int = 0, size: int = 50, **changes: object) -> Block:
    """A sealed block; `changes` are attributes of its segment."""
    count = rows or present
    segment = Segment(1, first, count, present, 5, int(str(changes.pop("offset", 0))), present * 60, 1, 2, 0)
    for name, value in changes.items():
        setattr(segment, name, value)
    return Block.sealed(segment, live, live * size, None)


def planned(*blocks: Block) -> list[list[int]]:
    return [[one.first_seq for one in group.blocks] for group in to_rewrite(blocks, SETTINGS)]


def test_a_full_segment_is_left_alone() -> None:
    assert planned(block(1, 1000, 1000), block(1001, 1000, 251), block(2001, 1000, 400)) == []


def test_one_that_is_mostly_dead_is_written_again_with_its_small_neighbours() -> None:
    assert planned(block(1, 1000, 250)) == [[1]]
    neighbours = (block(1, 100, 100), block(101, 1000, 250), block(1101, 9, 9), block(1110, 1000, 900))
    assert planned(*neighbours) == [[1, 101, 1101]]


def test_one_that_was_written_again_is_not_at_once_written_again() -> None:
    assert planned(block(1, 250, 250, rows=1000)) == []


def test_many_tiny_ones_are_joined_and_few_are_not() -> None:
    tiny = [block(1 + 10 * at, 10, 10) for at in range(TINY_MIN)]
    assert planned(*tiny[:-1]) == []
    assert planned(*tiny) == [[one.first_seq for one in tiny]]


def test_small_is_up_to_a_quarter_of_a_full_one_by_records_and_by_bytes() -> None:
    dead = block(1, 1000, 100)
    for present, size, joined in ((250, 100, True), (251, 99, False), (250, 101, False)):
        near = block(1001, present, present, size=size)
        assert (planned(dead, near) == [[1, 1001]]) == joined, (present, size)


def test_a_group_may_be_as_large_as_a_full_segment_and_no_larger() -> None:
    four = [block(1 + 250 * at, 1000, 250, rows=250, size=100) for at in range(4)]
    assert planned(*four) == [[1, 251, 501, 751]]
    four[3] = block(751, 1000, 250, rows=250, size=101)
    assert planned(*four) == [[1, 251, 501], [751]]


def test_one_in_which_nothing_lives_is_not_written_again() -> None:
    assert planned(block(1, 1000, 0)) == []


def test_a_worn_one_is_written_again_whatever_is_alive() -> None:
    assert planned(block(1, 1000, 1000, worn=True)) == [[1]]


def test_cold_ones_pieces_and_those_under_way_are_left_alone() -> None:
    assert planned(block(1, 1000, 1, cold=True), block(1001, 1000, 1, offset=64)) == []
    busy = block(1, 1000, 1)
    busy.sealing = True
    assert planned(busy) == []


def test_nothing_is_joined_over_a_hole_of_many_seqs() -> None:
    assert planned(block(1, 10, 1), block(11 + HOLE_MAX, 10, 1)) == [[1], [11 + HOLE_MAX]]
    assert planned(block(1, 10, 1), block(3000, 10, 1)) == [[1, 3000]]


@given(
    st.lists(
        st.tuples(st.integers(0, 6000), st.integers(1, 1200), st.floats(0, 1), st.integers(1, 2000), st.booleans()),
        max_size=40,
    )
)
def test_groups_are_neighbours_within_bounds(shapes: list[tuple[int, int, float, int, bool]]) -> None:
    blocks, seq = [], 1
    for hole, present, share, size, cold in shapes:
        seq += hole
        blocks.append(block(seq, present, max(1, int(present * share)), size=size, cold=cold))
        seq += present
    groups = to_rewrite(blocks, SETTINGS)
    seen: list[Block] = []
    for group in groups:
        at = blocks.index(group.blocks[0])
        assert blocks[at : at + len(group.blocks)] == group.blocks
        assert all(one not in seen for one in group.blocks)
        seen += group.blocks
        if len(group.blocks) > 1:
            assert sum(one.live for one in group.blocks) <= SETTINGS.segment_max_events
            assert sum(one.live_bytes for one in group.blocks) <= SETTINGS.segment_max_bytes
            assert group.last_seq - group.first_seq < ROWS_FACTOR * SETTINGS.segment_max_events
        assert not any(one.segment is not None and one.segment.cold for one in group.blocks)
    # Written again, nothing is planned but joining what is tiny.
    done = [one for one in blocks if one not in seen]
    for group in groups:
        live = sum(one.live for one in group.blocks)
        joined = block(group.first_seq, live, live, rows=group.last_seq - group.first_seq + 1)
        done.append(joined)
    done.sort(key=lambda one: one.first_seq)
    assert all(len(group.blocks) > 1 for group in to_rewrite(done, SETTINGS))
