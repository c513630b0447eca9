"""From records to copies: what is taken, the bytes of a copy, and both ways of finding the records again."""

from __future__ import annotations

import json
import random
from typing import Any

from engine.commands import Batch
from engine.formats.forward import Range
from engine.fragment import payload_bytes, render
from engine.routers.copies import Missing, Record, Run, carried, carry, copies, cut, gather, missed, take
from engine.routers.hops import Hops
from engine.topic.state import Topic
from engine.types import Match, Reason, TopicConfig

ALL: dict[str, Any] = {"match": None, "hops_max": 31, "records_max": 1000, "bytes_max": 1 << 20}


def a_topic(**config: Any) -> Topic:
    """Ten writes of one or two records each, with and without node, meta and tag; seqs 1 to 15."""
    topic = Topic(1, "t", 1, TopicConfig(**config))
    for number in range(10):
        count = 1 + number % 2
        batch = Batch(
            [b'{"n": %d}' % number] * count,
            tags=["a" if number % 3 else None] * count,
            nodes=["n" if number % 4 else None] * count,
            metas=[b'{"k":1}' if number % 5 else None] * count,
        )
        topic.apply_append(
            topic.head + 1, render(batch, topic.head + 1, 1000 + number), 1000 + number, (0, 100 * number)
        )
    return topic


def test_copies_are_the_same_bytes_behind_another_beginning() -> None:
    topic = a_topic()
    stretch = take(topic, None, 0, 2000, **ALL)
    assert (stretch.to, stretch.lost, len(stretch.records), stretch.by_position) == (15, 0, 15, True)
    for keep_node, keep_tag in ((True, True), (False, True), (True, False), (False, False)):
        seq = 96
        made = copies(cut(stretch.found(), keep_node, keep_tag), seq, 0)
        assert (made.seqs, made.records, made.last_ts, made.loses) == (15, 15, 1009, False)
        assert made.size == sum(record.size(keep_node, keep_tag) for record in stretch.records)
        for item in made.items:
            assert isinstance(item, Run)
            records = json.loads(b"[" + item.rendered.fragments + b"]")
            sizes = payload_bytes(item.rendered, seq, item.ts)
            for record, size in zip(records, sizes, strict=True):
                source = stretch.records[seq - 96]
                own = json.loads(source.fragment)
                wanted = {**own, "$seq": seq}
                if not keep_node:
                    wanted.pop("$node", None)
                if not keep_tag:
                    wanted.pop("$tag", None)
                assert list(record.items()) == list(wanted.items())
                assert size == source.size(keep_node, keep_tag)
                seq += 1
        assert seq == 96 + 15


def test_times_are_raised_to_the_floor_and_never_fall() -> None:
    stretch = take(a_topic(), None, 0, 2000, **ALL)
    made = copies(cut(stretch.found(), True, True), 1, 1005)
    times = [item.ts for item in made.items if isinstance(item, Run) for _ in range(len(item.rendered))]
    assert times == [1005] * 9 + [1006, 1007, 1007, 1008, 1009, 1009]
    shown = json.loads(b"[%b]" % b",".join(item.rendered.fragments for item in made.items if isinstance(item, Run)))
    assert [record["$ts"] for record in shown] == times
    assert made.last_ts == 1009
    assert copies(cut(stretch.found(), True, True), 1, 2000).last_ts == 2000


def test_records_of_one_time_are_one_run_unless_they_were_forwarded_more_often() -> None:
    records = [
        Record(seq, 7, seq // 3, b'{"$seq":%d,"$ts":7,"data":%d}' % (seq, seq), (0, 0, 0)) for seq in range(1, 7)
    ]
    made = copies(cut([*missed(2), *records[:1], *missed(1), *records[1:]], True, True), 10, 0)
    runs = [item if isinstance(item, Missing) else (item.hops, item.rendered.fragments) for item in made.items]
    first, second = b'{"$seq":12,"$ts":7,"data":1}', b'{"$seq":14,"$ts":7,"data":2}'
    assert runs[:4] == [*missed(2), (1, first), *missed(1), (1, second)]
    assert [run[0] for run in runs[4:]] == [2, 3]
    assert (made.seqs, made.records, made.loses) == (9, 6, True)


def test_records_are_found_again_by_position_and_in_what_was_carried() -> None:
    dice = random.Random(3)
    topic = a_topic()
    topic.apply_delete([(4, 5)], 1010)
    for _ in range(50):
        cursor, limit = dice.randrange(15), dice.randrange(1, 9)
        stretch = take(topic, None, cursor, 2000, **{**ALL, "records_max": limit})
        ranges = stretch.ranges()
        assert gather(topic, ranges) == stretch.records
        assert carried(carry(stretch.records), ranges) == stretch.records


def test_what_is_gone_is_counted_where_it_was_and_damage_is_called_so() -> None:
    topic = a_topic(cap_records=14)
    ranges = [Range(1, 15, 0)]
    topic.apply_gap(3, 4, Reason.CORRUPTION)
    topic.apply_gap(7, 7, Reason.CRASH)
    found = gather(topic, ranges)
    told = [item if isinstance(item, Missing) else item.seq for item in found]
    damaged = Missing(2, Reason.CORRUPTION)
    assert told == [*missed(1), 2, damaged, 5, 6, *missed(1), *range(8, 16)]
    items = copies(cut(found, True, True), 1, 0).items
    assert sum(item.seqs if isinstance(item, Missing) else len(item.rendered) for item in items) == 15
    assert gather(None, ranges) == missed(15)


def test_losses_in_front_are_counted_and_deletions_are_not() -> None:
    topic = a_topic(cap_records=10)
    assert topic.earliest_seq == 6
    stretch = take(topic, None, 2, 2000, **ALL)
    assert (stretch.lost, stretch.records[0].seq) == (3, 6)
    topic.apply_delete([(6, 8)], 1010)
    stretch = take(topic, None, 5, 2000, **ALL)
    assert (stretch.lost, stretch.records[0].seq) == (0, 9)


def test_of_losses_among_copies_only_those_are_counted_that_may_be_forwarded_again() -> None:
    topic, hops = a_topic(cap_records=10), Hops([(3, 7, 2)])
    stretch = take(topic, hops, 0, 2000, **ALL)
    assert (stretch.lost, stretch.lost_hops, stretch.records[0].seq) == (5, 2, 6)
    stretch = take(topic, hops, 0, 2000, **{**ALL, "hops_max": 1})
    assert (stretch.lost, stretch.lost_hops, stretch.records[0].seq) == (2, 0, 8)


def test_a_loss_at_the_very_end_is_left_to_the_pass_that_counts_it() -> None:
    topic = a_topic()
    topic.apply_gap(15, 15, Reason.CRASH)
    stretch = take(topic, None, 0, 2000, **ALL)
    assert (stretch.to, stretch.lost, len(stretch.records)) == (14, 0, 14)
    stretch = take(topic, None, 14, 2000, **ALL)
    assert (stretch.to, stretch.lost, stretch.records) == (15, 1, [])


def test_filters_hops_and_bounds() -> None:
    topic = a_topic()
    tagged = take(topic, None, 0, 2000, **{**ALL, "match": Match("Eq", "a")})
    assert tagged.to == 15
    assert all(json.loads(record.fragment)["$tag"] == "a" for record in tagged.records)
    few = take(topic, None, 0, 2000, **{**ALL, "records_max": 4})
    assert (few.to, len(few.records)) == (4, 4)
    assert few.first(2).to == 2
    assert few.first(0).to == 0
    assert len(take(topic, None, 0, 2000, **{**ALL, "bytes_max": 1}).records) == 1
    record = few.records[0]
    assert Record(*record) == record
