"""Pages, sentence by sentence of http-api.md §5. Random reads of random topics are in test_model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.topic.page import LOOKS_MAX, RUN_LOOKS, read_newest, read_page, weight
from engine.types import Match, Page, PageRequest, Reason, Tombstone
from tests.topic.making import HARD, Made


def page(made: Made, now: int = 1000, visible: int | None = None, **request: Any) -> Page:
    return read_page(made.topic, PageRequest(**request), now, visible)


def seqs(read: Page) -> list[int]:
    return [record["$seq"] for record in msgspec.json.decode(b"[" + b"".join(read.pieces) + b"]")]


def loss(read: Page) -> tuple[int, int, Reason, int] | None:
    tombstone = read.tombstone
    if tombstone is None:
        return None
    return tombstone.gap_from, tombstone.gap_to, tombstone.reason, tombstone.missed_estimate


def numbered(count: int, **config: Any) -> Made:
    made = Made(**config)
    for index in range(count):
        made.write(b"%d" % index, ts=1000 + index)
    return made


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ways", ["one batch", "one by one", "cold"])
@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("tagged", [False, True])
def test_data_comes_back_byte_for_byte(ways: str, lines: bool, tagged: bool) -> None:
    made = Made()
    columns: dict[str, Any] = {"tags": ["t"], "metas": [b'{ "a" : 1.10 }'], "nodes": ["n"]} if tagged else {}
    if ways == "one batch":
        made.write(*HARD, **{name: column * len(HARD) for name, column in columns.items()})
    else:
        for data in HARD:
            made.write(data, **columns)
    if ways == "cold":
        made.cool()
    read = page(made, lines=lines)
    text = b"".join(read.pieces)
    records = [] if lines else list(map(bytes, msgspec.json.decode(b"[" + text + b"]", type=list[msgspec.Raw])))
    if lines:
        records = text.splitlines()
        assert text.endswith(b"\n")
        assert b"\r" not in text
    middle = b'"$node":"n",' if tagged else b""
    meta = b',"meta":{ "a" : 1.10 }' if tagged else b""
    assert records == [
        b'{"$seq":%d,"$ts":1000,%b"data":%b%b}' % (seq, middle, data, meta) for seq, data in enumerate(HARD, 1)
    ]


def test_raw_line_breaks_become_spaces_in_lines_only() -> None:
    made = Made()
    made.write(b'{\n"a":\r\n1}', b"2", metas=[b'{"m"\n:1}', None])
    lines = b"".join(page(made, lines=True).pieces)
    assert lines.splitlines() == [
        b'{"$seq":1,"$ts":1000,"data":{ "a":  1},"meta":{"m" :1}}',
        b'{"$seq":2,"$ts":1000,"data":2}',
    ]
    assert b'{\n"a":\r\n1}' in b"".join(page(made).pieces)


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("data", [False, True])
def test_parts_that_were_not_asked_for_are_left_out(tags: bool, meta: bool, data: bool) -> None:
    made = Made()
    made.write(b"1", b"2", tags=["t", None], metas=[None, b"{}"], nodes=["n", None])
    read = page(made, include_tags=tags, include_meta=meta, include_data=data)
    first = b'{"$seq":1,"$ts":1000,"$node":"n"' + (b',"data":1' if data else b"") + (b',"$tag":"t"' if tags else b"")
    second = b'{"$seq":2,"$ts":1000' + (b',"data":2' if data else b"") + (b',"meta":{}' if meta else b"")
    assert b"".join(read.pieces) == first + b"}," + second + b"}"


def test_a_whole_block_is_not_copied() -> None:
    made = Made()
    made.write(*[b"1"] * 200)
    assert page(made).pieces[0] is made.topic.tail.blocks[0].data


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_limit_counts_records_across_blocks() -> None:
    made = numbered(700)
    read = page(made, limit=600)
    assert seqs(read) == list(range(1, 601))
    assert (read.count, read.next_from_seq, read.caught_up, read.lag) == (600, 600, False, 100)
    rest = page(made, from_seq=600, limit=600)
    assert (seqs(rest), rest.caught_up) == (list(range(601, 701)), True)


def test_max_bytes_bounds_a_page_but_one_record_is_always_given() -> None:
    made = Made()
    made.write(*[b'"' + b"x" * 100 + b'"'] * 10)
    size = len(made.topic.tail.hot(made.topic.tail.blocks[0]).fragment(0)) + 1
    assert page(made, max_bytes=1).count == 1
    assert page(made, max_bytes=3 * size).count == 3
    assert page(made, max_bytes=3 * size - 1).count == 2
    assert page(made, max_bytes=9 * size).count == 9
    assert page(made, max_bytes=10 * size + 1).count == 10  # the tenth seq has two digits


def test_to_seq_is_the_inclusive_end() -> None:
    made = numbered(5)
    assert seqs(page(made, to_seq=3)) == [1, 2, 3]
    assert page(made, to_seq=3).next_from_seq == 3
    assert page(made, from_seq=4, to_seq=3).next_from_seq == 4
    assert seqs(page(made, to_seq=99)) == [1, 2, 3, 4, 5]


def test_at_most_a_hundred_slots_are_examined_for_each_record_of_the_limit() -> None:
    made = Made()
    for _ in range(5):
        made.write(*[b"1"] * 200, tags=["no"] * 200)
    made.write(b"1", tags=["yes"])
    read = page(made, limit=3, match=Match("Eq", "yes"))
    assert (read.count, read.next_from_seq, read.scanned) == (0, 300, 300)
    assert read.tombstone is None
    read = page(made, from_seq=900, limit=3, match=Match("Eq", "yes"))
    assert (seqs(read), read.caught_up) == ([1001], True)


# -- what is left out --------------------------------------------------------------------------------------------------


def test_deleted_records_are_silent_and_the_cursor_moves_past_them() -> None:
    made = numbered(6)
    made.topic.apply_delete([(1, 2), (4, 4), (6, 6)], 1010)
    read = page(made, 1010)
    assert (seqs(read), read.next_from_seq, read.caught_up, read.tombstone) == ([3, 5], 6, True, None)


def test_a_reader_does_not_get_its_own_echo() -> None:
    made = Made()
    made.write(b"1", b"2", b"3", nodes=["me", None, "you"])
    assert seqs(page(made, nodes=frozenset({"me"}))) == [2, 3]
    assert seqs(page(made, nodes=frozenset({"me", "you"}))) == [2]
    made = Made(dedupe_node=False)
    made.write(b"1", nodes=["me"])
    assert seqs(page(made, nodes=frozenset({"me"}))) == [1]


def test_a_page_looks_at_the_nodes_of_a_few_thousand_records_and_the_next_ones_go_on() -> None:
    made = Made()
    count = LOOKS_MAX + 100
    for tag in ("a", "b"):
        made.write(*[b"0"] * count, nodes=["me"] * count, tags=[tag] * count)
    made.write(b"1", nodes=["you"], tags=["b"])
    mine: dict[str, Any] = {"nodes": frozenset({"me"}), "limit": 1000}
    ends, cursor = [], 0
    while cursor < made.topic.head:
        read = page(made, from_seq=cursor, **mine)
        cursor = read.next_from_seq
        ends.append(cursor)
    assert (seqs(read), read.caught_up) == ([2 * count + 1], True)
    assert ends == [LOOKS_MAX, 2 * LOOKS_MAX, 2 * count + 1]
    assert page(made, match=Match("Eq", "b"), **mine).next_from_seq == count + LOOKS_MAX, (
        "what the tag rules out is free"
    )
    assert page(made, limit=40, nodes=frozenset({"me"})).next_from_seq == 4000


def test_a_filter_goes_through_a_bounded_number_of_holes_and_passes_over_what_cannot_hold_the_tag_at_once() -> None:
    made, runs = Made(), LOOKS_MAX // RUN_LOOKS
    count = 4 * runs
    for tags in (["a", "b"], ["c", "d"]):
        made.write(*[b"0"] * count, tags=[*tags * (count // 2 - 1), tags[0], "z"])
    made.topic.apply_delete([(seq, seq) for seq in range(2, 2 * count, 2) if seq != count], 1000)
    mine: dict[str, Any] = {"match": Match("Eq", "z"), "limit": 1000}
    ends, found, cursor = [], [], 0
    while cursor < made.topic.head:
        read = page(made, from_seq=cursor, **mine)
        cursor = read.next_from_seq
        ends.append(cursor)
        found += seqs(read)
    assert found == [count, 2 * count]
    assert ends[0] == 2 * runs - 1
    assert len(ends) == 4
    for block in made.topic.tail.blocks:
        block.tags()
    other = page(made, match=Match("Eq", "c"), limit=1)
    assert other.next_from_seq < count, "the bound of what a page examines holds as before"
    passed = page(made, match=Match("Eq", "no"), limit=1000)
    assert (passed.next_from_seq, passed.scanned, passed.caught_up) == (2 * count, made.topic.count, True)


def test_match_is_a_tag_filter_that_data_cannot_fool() -> None:
    made = Made()
    made.write(*HARD, tags=[None] * len(HARD))
    made.write(b'{"a":"x","$tag":"t"}', b"2", b"3", tags=[None, "t", "tt"])
    last = made.topic.head
    assert seqs(page(made, match=Match("Eq", "t"), include_tags=True)) == [last - 1]
    assert seqs(page(made, match=Match("Glob", "t"))) == [last - 1, last]
    assert seqs(page(made, match=Match("Glob", ""))) == [last - 1, last]


# -- losses ------------------------------------------------------------------------------------------------------------


def test_a_tombstone_covers_what_is_gone_between_cursor_and_page() -> None:
    made = numbered(10, cap_records=3)
    read = page(made, from_seq=2)
    assert read.tombstone == Tombstone(
        gap_from=3, gap_to=7, reason=Reason.CAP, missed_estimate=5, earliest_seq=8, head_seq=10
    )
    assert (seqs(read), read.from_seq, read.next_from_seq) == ([8, 9, 10], 2, 10)
    assert page(made, from_seq=7).tombstone is None


def test_when_all_is_lost_the_page_is_empty_and_caught_up() -> None:
    made = numbered(3, ttl_ms=10)
    read = page(made, 5000)
    assert (loss(read), read.count, read.next_from_seq, read.caught_up) == ((1, 3, Reason.TTL, 3), 0, 3, True)
    assert read.earliest_seq == 4


def test_a_page_ends_before_a_second_loss_which_the_next_page_begins_with() -> None:
    made = numbered(4, cap_records=6)
    made.topic.apply_gap(5, 9, Reason.CRASH)
    for _ in range(4):
        made.write(b"1", ts=1010)
    read = page(made, 1010)
    assert (loss(read), seqs(read), read.next_from_seq) == ((1, 2, Reason.CAP, 2), [3, 4], 4)
    read = page(made, 1010, from_seq=4)
    assert (loss(read), seqs(read)) == ((5, 9, Reason.CRASH, 5), [10, 11, 12, 13])
    read = page(made, 1010, from_seq=6)
    assert loss(read) == (7, 9, Reason.CRASH, 3)


def test_losses_of_several_kinds_in_a_row_are_mixed() -> None:
    made = numbered(2, cap_records=1)
    made.topic.apply_gap(3, 5, Reason.CRASH)
    made.write(b"1", ts=1010)
    assert loss(page(made, 1010)) == (1, 5, Reason.MIXED, 5)
    assert loss(page(made, 1010, from_seq=2)) == (3, 5, Reason.CRASH, 3)


def test_deleting_what_stands_before_a_gap_does_not_hide_it() -> None:
    made = numbered(2)
    made.topic.apply_gap(3, 5, Reason.CORRUPTION)
    made.write(b"1", ts=1010)
    made.topic.apply_delete([(1, 6)], 1010)
    assert loss(page(made, 1010)) == (1, 6, Reason.CORRUPTION, 6)
    assert page(made, 1010, from_seq=5).tombstone is None


def test_a_filtered_record_ends_the_page_before_a_gap_too() -> None:
    made = Made()
    made.write(b"1", tags=["a"])
    made.topic.apply_gap(2, 3, Reason.CRASH)
    made.write(b"1", tags=["b"])
    read = page(made, match=Match("Eq", "b"))
    assert (read.count, read.next_from_seq, read.tombstone) == (0, 1, None)
    read = page(made, from_seq=1, match=Match("Eq", "b"))
    assert (seqs(read), loss(read)) == ([4], (2, 3, Reason.CRASH, 2))


@pytest.mark.parametrize("request_", [{"from_seq": 9}, {"epoch": 2}, {"from_seq": 2, "epoch": 2}])
def test_a_cursor_of_another_incarnation_is_told_and_reads_on_from_earliest(request_: dict[str, int]) -> None:
    made = numbered(5, cap_records=3)
    read = page(made, **request_)
    assert (loss(read), seqs(read), read.next_from_seq) == ((1, 5, Reason.RECREATED, 5), [3, 4, 5], 5)


def test_a_recreated_topic_may_be_empty() -> None:
    read = page(Made(), from_seq=3)
    assert (loss(read), read.next_from_seq, read.caught_up) == ((1, 0, Reason.RECREATED, 0), 0, True)


def test_the_right_epoch_changes_nothing() -> None:
    assert page(numbered(3), epoch=1, from_seq=3).tombstone is None


# -- from a time, and only what is synced -----------------------------------------------------------------------------


def test_from_ts_starts_at_the_first_record_that_is_as_young() -> None:
    made = numbered(600)
    assert seqs(page(made, from_ts=1500, limit=2)) == [501, 502]
    assert seqs(page(made, from_ts=1500, from_seq=510, limit=1)) == [511]
    assert page(made, 9999, from_ts=5000).next_from_seq == 600
    assert seqs(page(made, from_ts=0, limit=1)) == [1]


def test_from_ts_tells_of_losses_that_may_be_as_young_only() -> None:
    made = numbered(10, cap_records=5)
    assert page(made, from_ts=1006).tombstone is None
    assert page(made, from_ts=1005).tombstone is None
    assert loss(page(made, from_ts=1004)) == (5, 5, Reason.CAP, 1)
    made.topic.apply_gap(11, 12, Reason.CRASH)
    made.write(b"1", ts=2000)
    read = page(made, 2000, from_ts=1500)
    assert (loss(read), seqs(read)) == ((11, 12, Reason.CRASH, 2), [13])
    assert page(made, 2000, from_ts=2001).caught_up


def test_a_strong_reader_sees_the_synced_head_as_the_head() -> None:
    made = numbered(10)
    read = page(made, visible=4)
    assert (seqs(read), read.head_seq, read.caught_up) == ([1, 2, 3, 4], 4, True)
    read = page(made, visible=4, from_seq=7)
    assert (read.count, read.tombstone, read.next_from_seq, read.caught_up) == (0, None, 7, True)
    assert page(made, visible=99).head_seq == 10
    assert loss(page(made, visible=4, from_seq=11)) == (1, 4, Reason.RECREATED, 4)


# -- what is new -------------------------------------------------------------------------------------------------------


def newest(made: Made, cursor: int, **request: Any) -> bytes | None:
    asked = PageRequest(**request)
    assert asked.whole
    return read_newest(made.topic, asked, cursor)


def test_what_is_new_is_a_slice_of_the_newest_block() -> None:
    made = numbered(3)
    for cursor in range(3):
        assert newest(made, cursor) == b"".join(page(made, from_seq=cursor).pieces)
    assert newest(made, 3) is None, "nothing is new"
    assert newest(made, 4) is None, "a cursor from elsewhere"
    made.write(*[b"%d" % number for number in range(100)])
    assert newest(made, 3) == b"".join(page(made, from_seq=3).pieces), "a block of its own"
    assert newest(made, 2) is None, "two blocks"


def test_what_is_new_beyond_the_limits_of_a_page_is_read_as_pages() -> None:
    made = numbered(3)
    assert newest(made, 0, limit=3) is not None
    assert newest(made, 0, limit=2) is None
    size = len(b"".join(page(made).pieces)) + 1
    assert newest(made, 0, max_bytes=size) is not None
    assert newest(made, 0, max_bytes=size - 1) is None


def test_what_is_new_is_read_as_a_page_where_something_was_lost_deleted_or_may_be_too_old() -> None:
    deleted = numbered(3)
    deleted.topic.apply_delete([(2, 2)], 1003)
    assert newest(deleted, 0) is None
    lost = numbered(3)
    lost.topic.apply_gap(2, 2, Reason.CORRUPTION, 1003)
    assert newest(lost, 0) is None
    assert newest(numbered(3, ttl_ms=1000), 2) is None
    capped = numbered(3, cap_records=1)
    assert newest(capped, 1) is None
    assert newest(capped, 2) is not None
    tagged = Made()
    tagged.write(b"1", tags=["t"])
    assert newest(tagged, 0) is None
    assert newest(tagged, 0, include_tags=True) == b"".join(page(tagged, include_tags=True).pieces)


@pytest.mark.parametrize(
    "request_",
    [
        PageRequest(match=Match("Eq", "t")),
        PageRequest(nodes=frozenset({"n"})),
        PageRequest(from_ts=1),
        PageRequest(to_seq=1),
        PageRequest(include_data=False),
        PageRequest(include_meta=False),
        PageRequest(lines=True),
        PageRequest(strong=True),
    ],
)
def test_a_request_that_leaves_something_out_is_not_whole(request_: PageRequest) -> None:
    assert not request_.whole


# -- what a page weighs, before it is read -----------------------------------------------------------------------------


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("request_", "at_least"),
    [
        ({}, 100 * 1000),
        ({"limit": 10}, 10 * 1000),
        ({"from_seq": 95}, 5 * 1000),
        ({"from_seq": 999}, 100 * 1000),
        ({"from_ts": 1090}, 10 * 1000),
        ({"limit": 2, "match": Match("Eq", "t")}, 100 * 1000),
    ],
)
def test_what_a_page_weighs_is_known_before_it_is_read(cold: bool, request_: dict[str, Any], at_least: int) -> None:
    made = Made()
    for index in range(100):
        made.write(b'"' + b"x" * 998 + b'"', ts=1000 + index)
    if cold:
        made.cool()
    found = weight(made.topic, PageRequest(**request_), 10**9)
    assert at_least < found < 1.1 * at_least + (64 * 1024 if "from_ts" in request_ else 0)
    assert made.log.reads == 0
    assert weight(made.topic, PageRequest(**request_), 0) > 0


def test_a_page_weighs_no_more_than_it_may_hold_and_nothing_at_the_head() -> None:
    made = numbered(100)
    assert weight(made.topic, PageRequest(max_bytes=500), 10**9) == 500
    assert weight(made.topic, PageRequest(from_seq=100), 10**9) == 0
    assert weight(Made().topic, PageRequest(), 10**9) == 0
