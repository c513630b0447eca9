"""What a delete means, and that a tag is found without reading what cannot hold it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.commands import DeleteSelector, LargeDelete
from engine.tagset import Needle
from engine.topic.tags import COLLECTED_RECORDS, DENSE, resolve_delete, tagged_in
from engine.types import Match, Reason
from tests.topic.making import HARD, Made


def meant(made: Made, now: int = 1000, **selector: Any) -> list[tuple[int, int]]:
    return resolve_delete(made.topic, DeleteSelector(**selector), now)


def three_blocks() -> Made:
    made = Made()
    for name in ("a", "b", "c"):
        made.write(*[b"1"] * 200, tags=[f"{name}{index % 100}" for index in range(200)])
    return made


def test_before_seq_stops_below_it_and_at_the_head() -> None:
    made = three_blocks()
    assert meant(made, before_seq=5) == [(1, 4)]
    assert meant(made, before_seq=9999) == [(1, 600)]
    assert meant(made, before_seq=1) == []
    made.topic.apply_delete([(1, 10)], 1000)
    assert meant(made, before_seq=20) == [(11, 19)]


def test_seqs_that_are_live_are_meant() -> None:
    made = three_blocks()
    made.topic.apply_delete([(4, 4)], 1000)
    made.topic.apply_gap(601, 603, Reason.CRASH)
    assert meant(made, seqs=(7, 3, 4, 5, 3, 602, 999)) == [(3, 3), (5, 5), (7, 7)]
    assert meant(made, seqs=(1, 2, 3), before_seq=3) == [(1, 2)]
    assert meant(made, seqs=(1, 2, 101), match=Match("Eq", "a0")) == [(1, 1), (101, 101)]


def test_a_tag_is_met_wherever_it_is() -> None:
    made = three_blocks()
    assert meant(made, match=Match("Eq", "b7")) == [(208, 208), (308, 308)]
    assert meant(made, match=Match("Glob", "c")) == [(401, 600)]
    assert meant(made, match=Match("Glob", "b7"), before_seq=300) == [(208, 208), (271, 280)]
    assert meant(made, match=Match("Eq", "zebra")) == []


def test_untagged_records_never_match() -> None:
    made = Made()
    made.write(*HARD)
    assert meant(made, match=Match("Glob", "")) == []


def test_cold_blocks_that_cannot_hold_the_tag_are_not_read() -> None:
    made = three_blocks()
    made.cool()
    assert meant(made, match=Match("Eq", "b7")) == [(208, 208), (308, 308)]
    assert made.log.reads == 1
    made.cool()
    assert meant(made, match=Match("Eq", "zebra"), seqs=(1, 300)) == []
    assert made.log.reads == 1


def test_a_delete_of_more_than_it_may_at_once_says_how_far_it_comes_and_goes_on_from_there() -> None:
    made, steps, after = three_blocks(), [], 0
    made.topic.apply_delete([(3, 3)], 1000)
    whole = meant(made, match=Match("Glob", "b"))
    while True:
        selector: dict[str, Any] = {"match": Match("Glob", "b"), "after_seq": after}
        try:
            steps.append(meant(made, most=90, **selector))
            break
        except LargeDelete as large:
            steps.append(meant(made, before_seq=large.until + 1, **selector))
            after = large.until
    assert steps == [[(201, 290)], [(291, 380)], [(381, 400)]]
    assert whole == [(201, 400)]
    assert meant(made, most=1, before_seq=9) == [(1, 8)], "what is not found by tag costs nothing"


def test_a_search_collects_the_tags_of_some_blocks_for_the_next_ones_and_not_of_all_at_once() -> None:
    made, size = Made(cache_bytes=1 << 30), 256
    for block in range(20):
        made.write(*[b"1"] * size, tags=[f"{block}-{index}" for index in range(size)])
    blocks = made.topic.tail.blocks
    assert meant(made, match=Match("Eq", "19-255")) == [(20 * size, 20 * size)]
    assert [block.known_tags is not None for block in blocks] == [
        index < COLLECTED_RECORDS // size for index in range(20)
    ]
    assert meant(made, match=Match("Eq", "19-255")) == [(20 * size, 20 * size)]
    assert sum(block.known_tags is not None for block in blocks) == 2 * COLLECTED_RECORDS // size


def test_expired_records_are_not_meant() -> None:
    made = Made(ttl_ms=100)
    made.write(b"1", tags=["t"], ts=1000)
    made.write(b"1", tags=["t"], ts=1050)
    assert meant(made, 1120, match=Match("Eq", "t")) == [(2, 2)]


TAGS = st.sampled_from([None, "t", "tt", '"', ',"$tag":"t"', "t}"])
DATAS = st.sampled_from([b"1", b'{"$tag":"t"}', b'{"a":1,"$tag":"t"}', b'[{"a":1,"$tag":"t"},{"$tag":"tt"}]'])


@given(st.lists(st.tuples(DATAS, TAGS), min_size=1, max_size=20), TAGS, st.booleans(), st.data())
def test_what_looks_like_a_tag_inside_data_is_none(
    records: list[tuple[bytes, str | None]], tag: str | None, exact: bool, data: st.DataObject
) -> None:
    made = Made()
    tags = [record[1] for record in records]
    made.write(*[record[0] for record in records], tags=tags)
    match = Match("Eq" if exact else "Glob", tag or "")
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    found = list(tagged_in(made.topic.tail.blocks[0], start, stop, Needle(match)))
    assert found == [index for index in range(start, stop) if match.accepts(tags[index])]


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "aba", "aa", "é", None]), min_size=1, max_size=40),
    st.sampled_from([Match("Eq", "a"), Match("Eq", "ab"), Match("Glob", "a"), Match("Glob", "ab"), Match("Eq", "é")]),
)
def test_where_hits_are_frequent_each_tag_is_compared_whole(tags: list[str | None], match: Match) -> None:
    """So many hits in front that tags are no longer searched for, but looked at one by one."""
    tags = [*[match.value] * (DENSE + 1), *tags]
    made = Made()
    made.write(*[b'"a"'] * len(tags), tags=tags)
    (block,) = made.topic.tail.blocks
    found = list(tagged_in(block, 0, len(tags), Needle(match)))
    assert found == [index for index, tag in enumerate(tags) if match.accepts(tag)]
