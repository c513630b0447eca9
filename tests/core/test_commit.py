"""Decided, then durable, then visible: when a write is acked, when it is seen, and what a failure leaves."""

from __future__ import annotations

import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import Ticket
from engine.errors import Code, Unavailable
from engine.limits import SYNC_WINDOW
from engine.types import AppendResult, DeleteResult, Durability, Reason
from tests.core.hand import Hand, records
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut


def awake(hand: Hand, name: str, **config: object) -> None:
    """A topic whose first write is behind it."""
    hand.create(name, **config)
    hand.write(name, "first")


def test_a_disk_write_is_acked_and_visible_once_its_group_is_written_and_not_before() -> None:
    hand = Hand()
    awake(hand, "t")
    ticket = hand.core.append("t", Batch.of(["second"]))
    assert not ticket.done
    assert hand.read("t") == ["first"]
    hand.turn()
    assert ticket.value().first_seq == 2
    assert hand.read("t") == ["first", "second"]


def test_an_fsync_write_is_neither_acked_nor_visible_before_its_sync_completed() -> None:
    hand = Hand()
    awake(hand, "t", durability="fsync")
    ticket = hand.core.append("t", Batch.of(["second"]))
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    assert not ticket.done
    assert hand.read("t") == ["first"]
    hand.clock.tick(3)
    hand.sync_end(job)
    assert ticket.value().first_seq == 2
    assert ticket.sync_ns == 3_000_000
    assert hand.read("t") == ["first", "second"]


def test_what_arrives_while_a_sync_runs_waits_for_the_next_one() -> None:
    hand = Hand()
    awake(hand, "t", durability="fsync")
    one = hand.core.append("t", Batch.of([1]))
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    two = hand.core.append("t", Batch.of([2]))
    hand.turn()
    assert hand.sync_begin() is None
    hand.sync_end(job)
    assert one.done
    assert not two.done
    hand.sync()
    assert two.done


def test_a_sync_that_begins_late_takes_along_what_has_come_meanwhile() -> None:
    hand = Hand()
    awake(hand, "t", durability="fsync")
    awake(hand, "d")
    one = hand.core.append("t", Batch.of([1]))
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    two = hand.core.append("t", Batch.of([2]))
    hand.turn()
    hand.sync_end(job)
    assert hand.core.commit.waits(job.shard)
    again, beside = hand.core.append("t", Batch.of([3])), hand.core.append("d", Batch.of([4]))
    hand.turn()
    assert (one.done, two.done, again.done, beside.done) == (True, False, False, True)
    job = hand.sync_begin()
    assert job is not None
    hand.sync_end(job)
    assert (two.done, again.done) == (True, True)
    assert not hand.core.commit.waits(job.shard)


def test_a_sync_begins_though_the_answer_to_what_it_covers_stages_more() -> None:
    """A command of several steps (requeue: append, then delete) goes on in the answer to its first step. When a sync
    comes between the request and its turn, that first step is written by `sync_job`."""
    hand = Hand()
    awake(hand, "steps")
    awake(hand, "f", durability="fsync")
    hand.core.append("f", Batch.of(["waits for a sync"]))
    first = hand.core.append("steps", Batch.of(["second"]))
    deleted: list[Ticket[DeleteResult]] = []
    first.on_done = lambda _: deleted.append(hand.core.delete("steps", DeleteSelector(seqs=(1,))))
    job = hand.core.sync_job()
    assert job is not None
    assert (first.done, deleted[0].done) == (True, True)
    hand.sync_end(job)
    hand.sync()
    assert (hand.read("steps"), hand.read("f")) == (["second"], ["first", "waits for a sync"])


def test_disk_writes_go_on_being_acked_while_a_sync_runs() -> None:
    hand = Hand()
    awake(hand, "d")
    awake(hand, "f", durability="fsync")
    hand.core.append("f", Batch.of([1]))
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    ticket = hand.core.append("d", Batch.of([2]))
    hand.turn()
    assert ticket.done
    hand.sync_end(job)


def test_ack_fsync_makes_the_answer_wait_but_not_the_readers() -> None:
    hand = Hand()
    awake(hand, "t")
    ticket = hand.core.append("t", Batch.of(["second"]), ack_fsync=True)
    hand.turn()
    assert not ticket.done
    assert hand.read("t") == ["first", "second"]
    hand.sync()
    assert ticket.done


def test_strong_readers_see_only_what_is_synced() -> None:
    hand = Hand()
    awake(hand, "t")
    hand.pass_ms(20)
    hand.sync()
    hand.core.append("t", Batch.of(["second"]))
    hand.turn()
    assert [r["$seq"] for r in records(hand.page("t", strong=True))] == [1]
    hand.core.fresh.clear()
    hand.pass_ms(20)
    hand.sync()
    assert not hand.core.fresh, "who reads whatever is written has it already"
    assert [slot.name for slot in hand.core.commit.synced] == ["t"]
    assert [r["$seq"] for r in records(hand.page("t", strong=True))] == [1, 2]


def test_the_first_write_to_a_quiet_topic_waits_for_one_sync_and_what_follows_it_keeps_order() -> None:
    hand = Hand()
    awake(hand, "t")
    hand.quieten()
    one = hand.core.append("t", Batch.of([1]))
    hand.turn()
    assert not one.done
    job = hand.sync_begin()
    assert job is not None
    two = hand.core.append("t", Batch.of([2]))
    hand.turn()
    assert not two.done
    assert hand.read("t") == ["first"]
    three = hand.core.append("t", Batch.of([3]))  # staged, not written, when the sync completes
    hand.sync_end(job)
    assert [ticket.done for ticket in (one, two, three)] == [True, True, False]
    hand.turn()
    assert three.value().first_seq == 4
    assert hand.read("t") == ["first", 1, 2, 3]


def test_a_background_sync_follows_within_the_interval_although_nobody_waits() -> None:
    hand = Hand()
    awake(hand, "t")
    hand.pass_ms(20)
    hand.sync()
    hand.core.append("t", Batch.of([1]))
    hand.turn()
    assert hand.sync_begin() is None
    hand.pass_ms(hand.settings.sync_interval_ms)
    assert hand.sync_begin() is not None


@pytest.mark.slow
def test_no_ack_runs_further_ahead_of_the_synced_head_than_the_window() -> None:
    hand = Hand(
        settings=Hand().settings.__class__(wal_file_bytes=64 << 20, wal_small_bytes=64 << 20, wal_fill_bytes=16 << 20)
    )
    awake(hand, "t")
    hand.pass_ms(20)
    hand.sync()
    batch = Batch([b"1"] * 10_000)
    tickets = [hand.core.append("t", batch) for _ in range(SYNC_WINDOW // 10_000 + 1)]
    hand.turn()
    assert not tickets[-1].done
    assert all(ticket.done for ticket in tickets[:-1])
    hand.settle()
    assert tickets[-1].done


def test_a_failed_group_makes_the_shard_read_only_its_writes_unknown_and_reads_go_on() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    awake(hand, "t")
    hand.settle()
    hand.core.fs = hand.core.commit.fs = FaultFs(disk, [Fault(Call.WRITE, 0, Effect.EIO)])
    ticket = hand.core.append("t", Batch.of(["lost?"]))
    hand.turn()
    assert ticket.error is not None
    assert ticket.error.code is Code.READ_ONLY
    assert ticket.error.detail == {"outcome": "unknown"}
    with pytest.raises(Unavailable) as refused:
        hand.core.append("t", Batch.of(["no"]))
    assert refused.value.code is Code.READ_ONLY
    assert refused.value.detail is None
    assert hand.read("t") == ["first"]
    assert hand.core.read_only is not None


def test_a_failed_sync_is_final_although_the_next_one_would_succeed() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    awake(hand, "t", durability="fsync")
    ticket = hand.core.append("t", Batch.of(["lost?"]))
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    hand.sync_end(job, FaultFs(disk, [Fault(Call.SYNC, 0, Effect.FAILED_SYNC)]))
    assert ticket.error is not None
    assert ticket.error.detail == {"outcome": "unknown"}
    with pytest.raises(Unavailable):
        hand.core.append("t", Batch.of(["no"]))
    hand.turn()
    assert hand.sync_begin() is None
    assert hand.read("t") == ["first"]


def test_a_sync_that_hangs_answers_its_waiters_unknown_and_its_late_success_answers_nobody_twice() -> None:
    hand = Hand()
    awake(hand, "t", durability="fsync")
    answers: list[Ticket[AppendResult]] = []
    ticket = hand.core.append("t", Batch.of(["late"]))
    ticket.on_done = answers.append
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    hand.pass_ms(11_000)
    assert ticket.error is not None
    assert [hand.core.commit.stalled] == [True]
    hand.sync_end(job)
    assert answers == [ticket]
    assert [hand.core.commit.stalled] == [False]
    assert hand.read("t") == ["first", "late"]


def test_after_a_power_failure_a_disk_topic_goes_on_behind_a_crash_gap_and_a_quiet_one_without() -> None:
    hand = Hand()
    awake(hand, "quiet")
    hand.quieten()
    awake(hand, "busy")
    hand.pass_ms(20)
    hand.settle()
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    page = again.page("busy", 1)
    assert page.tombstone is not None
    assert page.tombstone.reason is Reason.CRASH
    assert page.tombstone.gap_to == 1 + SYNC_WINDOW
    assert again.write("busy", "next").first_seq == 2 + SYNC_WINDOW
    assert again.write("quiet", "next").first_seq == 2
    assert again.read("quiet") == ["first", "next"]


def test_after_sigkill_seqs_go_on_without_a_gap() -> None:
    hand = Hand()
    awake(hand, "t")
    hand.core.append("t", Batch.of(["second"]))
    hand.turn()
    again = hand.reopen()
    assert again.read("t") == ["first", "second"]
    assert again.write("t", "third").first_seq == 3


def test_after_a_clean_stop_everything_is_there_and_no_topic_is_taken_for_lost_on_another_boot() -> None:
    hand = Hand()
    awake(hand, "t")
    hand.core.append("t", Batch.of(["second"]))
    hand.turn()
    hand.core.close()
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    assert again.write("t", "third").first_seq == 3
    assert again.read("t") == ["first", "second", "third"]


@pytest.mark.parametrize("stop", ["kill", "close"])
def test_an_ephemeral_topic_keeps_head_and_config_but_its_records_become_a_crash_gap(stop: str) -> None:
    hand = Hand()
    awake(hand, "e", durability="ephemeral")
    assert hand.read("e") == ["first"]
    if stop == "close":
        hand.core.close()
    again = hand.reopen(None if stop == "kill" else hand.disk.powered_off(Cut(0)))
    state = again.core.state("e")
    assert state.config.durability is Durability.EPHEMERAL
    assert state.count == 0
    page = again.page("e")
    assert page.tombstone is not None
    assert page.tombstone.reason is Reason.CRASH
    assert page.tombstone.gap_from == 1
    assert again.write("e", "next").first_seq == state.head_seq + 1
    assert (state.head_seq == 1) == (stop == "close")
    said = [line for line in again.core.store.report if "behind a gap (crash)" in line]
    assert [line.rpartition(": ")[2] for line in said] == ["e"]
    assert again.read("e") == ["next"]
