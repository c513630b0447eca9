"""Topics come, change and go: epochs, the tip and what is visible, `auto_create`, bounds, lists."""

from __future__ import annotations

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.core.jobs import outcome
from engine.errors import Code, Refused
from engine.limits import Limits
from engine.routers.router import RouterSpec
from engine.types import Discard, Durability, TopicConfig, TopicType
from tests.core.hand import SMALL, Hand, records
from tests.sim.media import Cut


def refusal(code: Code) -> pytest.RaisesExc[Refused]:
    return pytest.raises(Refused, check=lambda error: error.code is code)


def test_a_write_creates_its_topic_and_says_so_once() -> None:
    hand = Hand()
    assert hand.write("t", 1).created
    assert not hand.write("t", 2).created


def test_a_topic_is_not_visible_before_its_create_is_synced_and_its_first_write_neither() -> None:
    hand = Hand()
    ticket = hand.core.append("t", Batch.of([1]))
    hand.turn()
    assert not ticket.done
    with refusal(Code.TOPIC_NOT_FOUND):
        hand.core.state("t")
    hand.sync()
    assert ticket.value().created
    assert hand.read("t") == [1]


def test_create_false_and_a_dropped_name_that_said_no_are_404_for_a_write() -> None:
    hand = Hand()
    with refusal(Code.TOPIC_NOT_FOUND):
        hand.core.append("t", Batch.of([1]), create=False)
    hand.create("t", auto_create=False)
    hand.take(hand.core.drop_topic("t"))
    for each in (hand, hand.reopen()):
        with refusal(Code.TOPIC_NOT_FOUND):
            each.core.append("t", Batch.of([1]))
    assert each.write("t", 1, create=True).created


def test_a_recreated_topic_has_another_epoch_also_after_a_crash_and_starts_at_seq_1() -> None:
    hand = Hand()
    first = hand.write("t", 1)
    hand.take(hand.core.drop_topic("t"))
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    second = again.write("t", 2)
    assert second.epoch > first.epoch
    assert second.first_seq == 1


def test_two_epochs_tell_the_time_between_them_and_not_how_many_topics_and_routers_others_made() -> None:
    told = []
    for others in (0, 7):
        hand = Hand()
        mine = hand.write("mine.1", 1).epoch
        for number in range(others):
            hand.pass_ms(1)
            hand.write(f"theirs.{number}", 1)
        if others:
            hand.take(hand.core.routers.put("r", "theirs.0", "theirs.1", RouterSpec()))
        hand.pass_ms(20 - others)
        told.append(hand.write("mine.2", 1).epoch - mine)
    assert told == [20_000, 20_000]


def test_an_epoch_is_above_that_of_a_dropped_topic_from_a_store_whose_clock_was_ahead_also_after_a_checkpoint() -> None:
    hand = Hand()
    ahead = hand.core.catalog.last_epoch = hand.core.now() * 1000 + 86_400_000_000
    hand.write("t", 1)
    hand.take(hand.core.drop_topic("t"))
    job = hand.snapshot_job()
    hand.core.keep_done(job, outcome(job, hand.fs))
    hand.settle()
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    assert again.write("t", 2).epoch > ahead + 1


def test_a_dropped_topic_never_comes_back() -> None:
    hand = Hand()
    hand.write("t", 1)
    assert hand.take(hand.core.drop_topic("t")).deleted
    assert not hand.take(hand.core.drop_topic("t")).deleted
    with refusal(Code.TOPIC_NOT_FOUND):
        hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot()).core.state("t")


def test_drop_if_empty_counts_what_is_staged_too() -> None:
    hand = Hand()
    hand.create("t")
    hand.core.append("t", Batch.of([1]))
    with refusal(Code.TOPIC_NOT_EMPTY):
        hand.core.drop_topic("t", if_empty=True)
    hand.settle()
    hand.take(hand.core.delete("t", DeleteSelector(before_seq=2)))
    assert hand.take(hand.core.drop_topic("t", if_empty=True)).deleted


def test_put_keeps_fields_left_out_and_an_unchanged_put_writes_no_frame() -> None:
    hand = Hand()
    hand.create("t", cap_records=5, durability="fsync")
    hand.create("t", ttl_ms=1000)
    tip = hand.core.wal.shards[0].tip_lsn
    hand.create("t", ttl_ms=1000, cap_records=5)
    assert hand.core.wal.shards[0].tip_lsn == tip
    config = hand.core.state("t").config
    assert (config.cap_records, config.ttl_ms, config.durability, config.durable) == (5, 1000, Durability.FSYNC, True)
    assert hand.reopen().core.state("t").config == config


def test_the_type_of_a_topic_never_changes() -> None:
    hand = Hand()
    hand.create("t")
    with refusal(Code.TOPIC_EXISTS_INCOMPATIBLE):
        hand.create("t", type="queue")
    hand.create("q", type="queue")
    assert hand.core.state("q").type is TopicType.QUEUE


def test_the_topic_bound_is_429_with_its_name_and_updates_of_what_exists_pass() -> None:
    hand = Hand(limits=Limits(topics=2))
    hand.create("a")
    hand.create("b")
    with refusal(Code.THROTTLED) as refused:
        hand.create("c")
    assert refused.value.detail == {"limit": "max_topics", "max": 2}
    with refusal(Code.THROTTLED):
        hand.core.append("c", Batch.of([1]))
    hand.create("a", ttl_ms=5)
    assert hand.write("b", 1).first_seq == 1


def test_the_bound_on_live_bytes_counts_deletes_back() -> None:
    hand = Hand(limits=Limits(total_bytes=10))
    hand.write("t", "123456")
    with refusal(Code.THROTTLED) as refused:
        hand.core.append("t", Batch.of(["123456"]))
    assert refused.value.detail == {"limit": "max_total_bytes", "max": 10}
    hand.take(hand.core.delete("t", DeleteSelector(before_seq=2)))
    assert hand.write("t", "123456").first_seq == 2


def test_a_refused_write_that_would_have_created_its_topic_leaves_no_topic() -> None:
    hand = Hand(limits=Limits(total_bytes=10))
    with refusal(Code.THROTTLED):
        hand.core.append("t", Batch.of(["0123456789"]))
    hand.settle()
    with refusal(Code.TOPIC_NOT_FOUND):
        hand.core.state("t")
    assert hand.core.list_topics("", 10, "") == ([], None)


def test_lists_are_sorted_by_name_prefixed_and_paged() -> None:
    hand = Hand()
    for name in ("b2", "a", "b1", "c", "b3"):
        hand.create(name)
    states, after = hand.core.list_topics("b", 2, "")
    assert ([state.topic for state in states], after) == (["b1", "b2"], "b2")
    assert after is not None
    states, after = hand.core.list_topics("b", 2, after)
    assert ([state.topic for state in states], after) == (["b3"], None)


def test_reject_counts_what_is_staged_and_uses_no_seq() -> None:
    hand = Hand()
    hand.create("t", cap_records=2, discard="reject")
    one = hand.core.append("t", Batch.of([1]))
    two = hand.core.append("t", Batch.of([2]))
    with refusal(Code.TOPIC_FULL):
        hand.core.append("t", Batch.of([3]))
    hand.settle()
    assert (one.value().first_seq, two.value().first_seq) == (1, 2)
    hand.take(hand.core.delete("t", DeleteSelector(seqs=(1,))))
    assert hand.write("t", 3).first_seq == 3
    assert hand.core.state("t").config.discard is Discard.REJECT


def test_caps_evict_the_oldest_and_say_so_and_replay_gives_the_same_state() -> None:
    hand = Hand()
    hand.create("t", cap_records=3)
    for value in range(5):
        hand.write("t", value)
    page = hand.page("t")
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason.value) == (1, 2, "cap")
    assert hand.reopen().core.state("t", touch=False).count == 3
    assert [record["data"] for record in records(hand.page("t"))] == [2, 3, 4]
    assert hand.reopen().read("t") == [2, 3, 4]


def test_expired_records_are_gone_without_any_write_and_stay_gone_after_a_restart() -> None:
    hand = Hand()
    hand.create("t", ttl_ms=5000)
    hand.write("t", 1)
    hand.pass_ms(5000)
    assert hand.core.state("t").count == 1
    hand.pass_ms(1)
    assert hand.core.state("t").count == 0
    assert hand.read("t") == []
    page = hand.page("t")
    assert page.tombstone is not None
    assert page.tombstone.reason.value == "ttl"
    assert hand.reopen().core.state("t").count == 0


def test_deletes_are_silent_permanent_and_survive_as_their_class_promises() -> None:
    hand = Hand()
    hand.create("t", durability="fsync")
    hand.write("t", *range(10))
    answer = hand.take(hand.core.delete("t", DeleteSelector(seqs=(3, 5, 99))))
    assert (answer.deleted, answer.count, answer.earliest_seq) == (2, 8, 1)
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    assert again.read("t") == [0, 1, 3, 5, 6, 7, 8, 9]
    assert again.page("t").tombstone is None
    assert again.take(again.core.delete("t", DeleteSelector(seqs=(3, 5)))).deleted == 0


def test_a_record_that_is_gone_says_why() -> None:
    hand = Hand()
    hand.create("t", cap_records=3)
    hand.write("t", *range(5))
    hand.take(hand.core.delete("t", DeleteSelector(seqs=(4,))))

    def why(seq: int) -> object:
        with refusal(Code.NOT_FOUND) as refused:
            hand.core.record("t", seq)
        assert refused.value.detail is not None
        return refused.value.detail["why"]

    assert (why(1), why(4), why(6)) == ("evicted", "deleted", "never_written")
    assert b'"data":2' in hand.core.record("t", 3)


def test_defaults_are_the_seventeen_of_the_specification() -> None:
    hand = Hand()
    hand.write("t", 1)
    assert hand.core.state("t").config == TopicConfig()
    assert len(TopicConfig.__struct_fields__) == 17


def test_a_write_refused_for_its_key_leaves_no_topic_either() -> None:
    hand = Hand(limits=Limits(idempotency_keys=1))
    hand.write("t", 1, key=b"1")
    for key, code in ((b"", Code.INVALID_REQUEST), (b"k" * 257, Code.INVALID_REQUEST), (b"2", Code.THROTTLED)):
        with refusal(code):
            hand.core.append("new", Batch.of([1]), key=key)
    hand.settle()
    with refusal(Code.TOPIC_NOT_FOUND):
        hand.core.state("new")


def test_new_topics_go_to_the_shards_that_still_take_writes() -> None:
    hand = Hand(settings=msgspec.structs.replace(SMALL, wal_shards=3))
    hand.core.wal.shards[1].failed = OSError("gone")
    for number in range(20):
        assert hand.write(f"t{number}", number).created
    assert {slot.shard for slot in hand.core.catalog.tip.values()} == {0, 2}
