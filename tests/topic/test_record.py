"""One record: all of it, or why not."""

from functools import partial
from itertools import combinations_with_replacement

import pytest

from engine.topic.record import find_live, find_record, find_run
from engine.types import Reason, WhyGone
from tests.topic.making import HARD, Made
from tests.topic.sealing import Sealer


def test_a_record_comes_with_tag_and_meta() -> None:
    made = Made()
    for data in HARD:
        made.write(data, tags=["t"], metas=[b"{}"], nodes=["n"])
    for seq, data in enumerate(HARD, 1):
        wanted = b'{"$seq":%d,"$ts":1000,"$node":"n","data":%b,"meta":{},"$tag":"t"}' % (seq, data)
        assert find_record(made.topic, seq, 1000) == wanted


def test_each_way_of_being_gone_has_its_name() -> None:
    made = Made(cap_records=4, ttl_ms=500)
    made.write(*[b"1"] * 6)
    made.topic.apply_gap(7, 8, Reason.SOURCE_TRIM)
    made.write(b"1", ts=1400)
    made.topic.apply_delete([(5, 5)], 1400)
    why = {seq: find_record(made.topic, seq, 1501) for seq in (0, 1, 3, 4, 5, 7, 10)}
    assert why == {
        0: WhyGone.NEVER_WRITTEN,
        1: WhyGone.EVICTED,
        3: WhyGone.EVICTED,
        4: WhyGone.EXPIRED,
        5: WhyGone.DELETED,
        7: WhyGone.LOST,
        10: WhyGone.NEVER_WRITTEN,
    }
    assert isinstance(find_record(made.topic, 9, 1501), bytes)


@pytest.mark.parametrize("sealed", [False, True], ids=["hot", "sealed"])
def test_a_run_is_its_records_or_none_where_they_do_not_lie_together(sealed: bool) -> None:
    made = Made(ttl_ms=500)
    made.write(*[b'"old"'] * 2, ts=900)
    made.write(*HARD, tags=["t"] * len(HARD), metas=[b"{}"] * len(HARD))
    for _ in range(4):
        made.write(b"1", b"2", nodes=["n", "n"])
    made.topic.apply_delete([(7, 7), (9, 10)], 1000)
    made.topic.apply_gap(made.topic.head + 1, made.topic.head + 2, Reason.SOURCE_TRIM)
    made.write(b"3")
    topic, sealer = made.topic, Sealer(made.topic)
    if sealed:
        sealer.seal(0, 2)
    given = 0
    for first, last in combinations_with_replacement(range(topic.head + 2), 2):
        found = sealer.ask(partial(find_run, topic, first, last, 1450))
        live = sealer.ask(partial(find_live, topic, range(first, last + 1), 1450))
        if found is None:
            blocks = {topic.tail.locate(seq) for seq in range(first, last + 1)}
            assert None in live or len(blocks) > 1
            continue
        text, starts = found
        given += 1
        assert text == b",".join(record for record in live if record is not None)
        assert [text[start:].split(b",")[0] for start in starts] == [
            b'{"$seq":%d' % seq for seq in range(first, last + 1)
        ]
    assert given > 100
