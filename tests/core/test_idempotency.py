"""A key makes a repeated write harmless: while it is being committed, afterwards, and after a crash."""

from __future__ import annotations

import pytest

from engine.commands import Batch
from engine.errors import Code, Refused
from engine.limits import Limits
from tests.core.hand import Hand
from tests.sim.media import Cut


def test_the_same_key_gives_the_first_answer_and_appends_nothing() -> None:
    hand = Hand()
    first = hand.write("t", 1, 2, key=b"k")
    hand.write("t", 3)
    again = hand.write("t", 1, 2, key=b"k")
    assert (again.first_seq, again.last_seq, again.deduped, again.created, again.head_seq) == (1, 2, True, False, 3)
    assert (first.deduped, first.created) == (False, True)
    assert hand.read("t") == [1, 2, 3]


def test_a_retry_that_arrives_while_the_first_is_being_committed_waits_for_it() -> None:
    hand = Hand()
    hand.create("t", durability="fsync")
    first = hand.core.append("t", Batch.of([1]), key=b"k")
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    retry = hand.core.append("t", Batch.of([1]), key=b"k")
    hand.turn()
    assert not retry.done
    hand.sync_end(job)
    assert first.value().first_seq == retry.value().first_seq == 1
    assert retry.value().deduped
    assert hand.read("t") == [1]


@pytest.mark.parametrize("committed", [True, False])
def test_the_same_key_with_other_records_is_refused_and_changes_nothing(committed: bool) -> None:
    hand = Hand()
    hand.create("t")
    hand.core.append("t", Batch.of([1]), key=b"k")
    if committed:
        hand.settle()
    with pytest.raises(Refused) as refused:
        hand.core.append("t", Batch.of([2]), key=b"k")
    assert refused.value.code is Code.IDEMPOTENCY_MISMATCH
    hand.settle()
    assert hand.read("t") == [1]


def test_tag_node_and_meta_belong_to_what_a_key_stands_for() -> None:
    hand = Hand()
    hand.take(hand.core.append("t", Batch([b"1"], tags=["a"]), key=b"k"))
    with pytest.raises(Refused):
        hand.core.append("t", Batch([b"1"], tags=["b"]), key=b"k")
    with pytest.raises(Refused):
        hand.core.append("t", Batch([b"1"]), key=b"k")
    assert hand.take(hand.core.append("t", Batch([b"1"], tags=["a"]), key=b"k")).deduped


def test_a_key_is_forgotten_after_its_window() -> None:
    hand = Hand()
    hand.create("t", idempotency_window_ms=1000)
    hand.write("t", 1, key=b"k")
    hand.pass_ms(1001)
    assert not hand.write("t", 2, key=b"k").deduped
    assert hand.read("t") == [1, 2]


@pytest.mark.parametrize("power", [False, True])
def test_a_retry_after_a_crash_is_recognised(power: bool) -> None:
    hand = Hand()
    hand.create("t", durability="fsync")
    hand.write("t", 1, key=b"k")
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot()) if power else hand.reopen()
    assert again.write("t", 1, key=b"k").deduped
    assert again.read("t") == [1]
    with pytest.raises(Refused):
        again.core.append("t", Batch.of([2]), key=b"k")


def test_keys_belong_to_their_topic() -> None:
    hand = Hand()
    hand.write("a", 1, key=b"k")
    assert not hand.write("b", 2, key=b"k").deduped


def test_the_number_of_live_keys_is_bounded_and_expired_ones_make_room() -> None:
    hand = Hand(limits=Limits(idempotency_keys=2))
    hand.create("t", idempotency_window_ms=1000)
    hand.write("t", 1, key=b"1")
    hand.write("t", 2, key=b"2")
    with pytest.raises(Refused) as refused:
        hand.core.append("t", Batch.of([3]), key=b"3")
    assert refused.value.code is Code.THROTTLED
    assert hand.write("t", 1, key=b"1").deduped
    hand.pass_ms(1001)
    assert hand.write("t", 3, key=b"3").first_seq == 3


def test_a_retry_that_asks_for_a_sync_is_answered_after_one() -> None:
    hand = Hand()
    hand.create("t")
    hand.write("t", 0)
    hand.pass_ms(20)
    hand.settle()
    hand.core.append("t", Batch.of([1]), key=b"k")
    hand.turn()
    retry = hand.core.append("t", Batch.of([1]), key=b"k", ack_fsync=True)
    hand.turn()
    assert not retry.done
    hand.sync()
    assert retry.value().deduped
