"""One record: all of it, or why not."""

from engine.topic.record import find_record
from engine.types import Reason, WhyGone
from tests.topic.making import HARD, Made


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
