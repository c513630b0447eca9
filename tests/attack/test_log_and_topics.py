"""Sequences in flight that once left a log which no start could read, or a topic that nobody had asked for."""

from __future__ import annotations

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.errors import Code, Refused, TopicsError, Unavailable
from engine.limits import Limits
from engine.types import ConfigChanges
from tests.core.hand import SMALL, Hand
from tests.sim.media import Cut


def test_a_delete_that_meets_a_drop_in_flight_leaves_a_log_that_opens_again() -> None:
    hand = Hand()
    hand.write("t", 1, 2, 3)
    drop = hand.core.drop_topic("t")
    with pytest.raises(TopicsError) as caught:
        hand.core.delete("t", DeleteSelector(before_seq=3))
    assert caught.value.code is Code.TOPIC_NOT_FOUND
    assert hand.take(drop).deleted
    again = hand.reopen()
    assert again.core.list_topics("", 10, "") == ([], None)


def test_a_delete_that_meets_a_drop_and_a_recreation_in_flight_hits_neither_topic() -> None:
    hand = Hand()
    hand.write("t", 1, 2, 3)
    hand.core.drop_topic("t")
    write = hand.core.append("t", Batch.of(["new"]))
    with pytest.raises(TopicsError) as caught:
        hand.core.delete("t", DeleteSelector(before_seq=3))
    assert caught.value.code is Code.TOPIC_NOT_FOUND
    hand.take(write)
    assert hand.read("t") == ["new"]
    assert hand.reopen().read("t") == ["new"]


def test_a_power_failure_with_more_topics_than_one_fill_has_room_for_gaps_still_opens() -> None:
    hand = Hand()
    for number in range(300):
        hand.core.append(f"t{number}", Batch.of([number]))
        hand.settle()
    disk = hand.disk.powered_off(Cut(hand.disk.step))
    again = hand.reopen(disk, hand.clock.reboot())
    assert again.read("t0") == [0]
    assert again.core.state("t299").head_seq > 1


@pytest.mark.parametrize("key", [b"", b"k" * 257])
def test_a_write_whose_key_is_refused_creates_no_topic(key: bytes) -> None:
    hand = Hand()
    with pytest.raises(Refused):
        hand.core.append("t", Batch.of([1]), key=key)
    hand.settle()
    with pytest.raises(TopicsError):
        hand.core.state("t")


def test_a_write_that_meets_the_bound_on_keys_creates_no_topic() -> None:
    hand = Hand(limits=Limits(idempotency_keys=1))
    hand.write("first", 1, key=b"a")
    with pytest.raises(Refused):
        hand.core.append("second", Batch.of([1]), key=b"b")
    hand.settle()
    with pytest.raises(TopicsError):
        hand.core.state("second")


def test_a_write_that_creates_its_topic_finds_room_also_for_tags_that_grow_when_rendered() -> None:
    hand = Hand()
    batch = Batch.of([0] * 12, tags=["\x01" * 256] * 12, nodes=["\x01" * 128] * 12)
    answer = hand.take(hand.core.append("t", batch))
    assert (answer.count, answer.created) == (12, True)


def test_a_write_to_a_new_topic_says_at_once_that_the_log_has_failed() -> None:
    hand = Hand()
    hand.write("t", 1)
    hand.core.wal.shards[0].failed = OSError("gone")
    with pytest.raises(Unavailable) as caught:
        hand.core.append("new", Batch.of([1]))
    assert caught.value.code is Code.READ_ONLY
    with pytest.raises(Unavailable) as caught:
        hand.core.put_topic("new", ConfigChanges())
    assert caught.value.code is Code.READ_ONLY


def test_the_bound_on_live_bytes_counts_what_is_staged() -> None:
    hand = Hand(limits=Limits(total_bytes=1000))
    hand.write("t", 1)
    hand.core.append("t", Batch.of(["x" * 600]))
    with pytest.raises(Refused) as caught:
        hand.core.append("t", Batch.of(["x" * 600]))
    assert caught.value.code is Code.THROTTLED


def test_a_name_recreated_across_shards_while_all_is_in_flight_is_readable() -> None:
    hand = Hand(settings=msgspec.structs.replace(SMALL, wal_shards=4))
    core = hand.core
    for name in ("a", "b", "c", "d", "e", "f"):
        core.append(name, Batch.of(["old"]))
        core.drop_topic(name)
        core.append(name, Batch.of(["new"]))
    hand.settle()
    for name in ("a", "b", "c", "d", "e", "f"):
        assert hand.read(name) == ["new"]
    again = hand.reopen()
    assert again.read("a") == ["new"]
