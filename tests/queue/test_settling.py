"""The rules of queues.md: settling leases (4), cohorts (5), dead letters (6), removal and counters (7, 8)."""

from __future__ import annotations

import pytest

from engine.errors import Code, Refused
from engine.queue.commands import Ack, Claim, Nack, Settled, Skip
from engine.queue.events import DeadLettered, Leased, Nacked, Removed, Why
from engine.queue.machine import BACKOFF_MAX_MS, backoff_ms
from engine.queue.trail import End
from engine.types import Match
from tests.queue.topic import Host, logged


def skips(decision: Settled) -> dict[int, Skip]:
    return dict(decision.skipped)


# -- rule 4: ack, nack, extend ---------------------------------------------------------------------------------------


def test_an_ack_is_the_permanent_delete_and_repeating_it_is_harmless() -> None:
    host = Host()
    host.write(2)
    host.claim(2)
    assert host.ack(1, 2).seqs == [1, 2]
    assert (host.queue.acked, host.queue.live) == (2, 0)
    again = host.ack(1, 2)
    assert again.seqs == []
    assert again.skipped == [(1, Skip.GONE), (2, Skip.GONE)]
    assert host.queue.acked == 2


def test_what_is_skipped_is_named_with_its_reason_in_the_order_of_the_request() -> None:
    host = Host()
    host.write(6)
    mine = host.claim(1)
    host.claim(1, "other")
    host.claim(1, lease_ms=100)
    gone = host.claim(1)
    assert mine is not None
    assert gone is not None
    host.ack(4)
    host.pass_ms(100)
    seqs = [3, 99, 2, 1, 4, 5]
    leases = [mine.lease_id + 2, 1, mine.lease_id + 1, mine.lease_id + 9, gone.lease_id, 1]
    decision = host.ack(*seqs, lease_ids=leases)
    assert decision.skipped == [
        (3, Skip.EXPIRED),
        (99, Skip.NOT_LEASED),
        (2, Skip.OTHER_HOLDER),
        (1, Skip.STALE_LEASE),
        (4, Skip.GONE),
        (5, Skip.NOT_LEASED),
    ]
    assert decision.event is None


def test_F55_a_late_ack_with_an_old_lease_changes_nothing_though_the_holder_is_the_same() -> None:
    host = Host()
    host.write()
    first = host.claim()
    host.pass_ms(1000)
    second = host.claim()
    assert first is not None
    assert second is not None
    assert skips(host.ack(1, lease_ids=[first.lease_id])) == {1: Skip.STALE_LEASE}
    assert host.ack(1, lease_ids=[second.lease_id]).seqs == [1]


def test_a_late_ack_without_a_lease_id_is_taken_from_the_present_holder_alone() -> None:
    host = Host()
    host.write()
    host.claim(1, "a")
    host.pass_ms(1000)
    host.claim(1, "b")
    assert skips(host.ack(1, node="a")) == {1: Skip.OTHER_HOLDER}
    assert host.ack(1, node="b").seqs == [1]


def test_a_seq_that_is_listed_twice_counts_once() -> None:
    host = Host()
    host.write(2)
    host.claim(2)
    assert host.ack(1, 1).skipped == [(1, Skip.GONE)]
    assert host.extend(2, 2).seqs == [2]
    assert host.nack(2, 2).skipped == [(2, Skip.NOT_LEASED)]
    assert host.queue.acked == 1


def test_what_is_staged_is_nobodys_and_an_answer_about_it_waits() -> None:
    host = Host()
    host.write(2)
    host.claim(1)
    first = host.queue.ack(Ack(node="w", seqs=[1]), host.now)
    assert first.event is not None
    assert not first.waits
    host.queue.stage(first.event)  # type: ignore[arg-type]  # an ack's event is an Acked
    again = host.queue.ack(Ack(node="w", seqs=[1]), host.now)
    assert (again.skipped, again.waits) == ([(1, Skip.GONE)], True)
    host.pass_ms(1000)
    assert host.seqs(9, "other") == [2]
    host.queue.apply(first.event)
    assert host.queue.live == 1
    assert host.queue.ready == 0


def test_a_nacked_job_is_ready_at_once_or_after_its_delay() -> None:
    host = Host()
    host.write(2)
    host.claim(2)
    host.nack(1)
    host.nack(2, delay_ms=250)
    assert (host.queue.ready, host.queue.delayed) == (1, 1)
    assert host.seqs(9) == [1]
    host.pass_ms(249)
    assert host.seqs(9) == []
    host.pass_ms(1)
    assert host.seqs(9) == [2]


def test_a_job_that_nobody_began_is_given_back_without_a_delivery() -> None:
    host = Host()
    host.write(2)
    host.claim(1)
    assert host.nack(1, delivered=False).seqs == [1]
    again = host.claim(2)
    assert again is not None
    assert again.jobs == ((1, 1), (2, 1))


def test_backoff_doubles_from_a_second_to_fifteen_minutes_give_or_take_a_fifth() -> None:
    for deliveries in range(1, 70):
        full = min(1000 << (deliveries - 1), 2**40)
        delays = {backoff_ms(deliveries, lease_id) for lease_id in range(1 << 32, (1 << 32) + 500)}
        assert min(delays) >= min(full * 8 // 10, BACKOFF_MAX_MS)
        assert max(delays) <= min(full * 12 // 10, BACKOFF_MAX_MS)
        if deliveries < 10:
            assert max(delays) - min(delays) > full * 3 // 10, "spread over most of the range"


def test_a_nack_with_backoff_waits_so_long() -> None:
    host = Host()
    host.write()
    leased = host.claim()
    assert leased is not None
    host.nack(1, delay_ms=None)
    assert host.queue.next_wake_ms() == host.now + backoff_ms(1, leased.lease_id)


def test_an_extended_lease_holds_to_its_new_deadline_and_deliveries_stay() -> None:
    host = Host()
    host.write()
    host.claim()
    host.pass_ms(900)
    decision = host.extend(1, lease_ms=5000)
    assert decision.seqs == [1]
    host.pass_ms(4999)
    assert host.queue.in_flight == 1
    host.pass_ms(1)
    again = host.claim()
    assert again is not None
    assert again.jobs == ((1, 2),)


def test_an_extend_may_shorten_and_lengthen_as_often_as_it_likes_without_the_heap_growing() -> None:
    host = Host()
    host.write()
    host.claim()
    for turn in range(5000):
        host.extend(1, lease_ms=1000 + turn % 7)
    assert len(host.queue._timers) < 200
    host.pass_ms(1000 + 4999 % 7)
    assert host.queue.ready == 1


@pytest.mark.parametrize("count", [0, 1001])
def test_one_to_a_thousand_seqs_are_taken(count: int) -> None:
    host = Host()
    with pytest.raises(Refused) as refusal:
        host.ack(*range(1, count + 1))
    assert refusal.value.code is Code.BATCH_TOO_LARGE
    host.ack(*range(1, 1001))


@pytest.mark.parametrize(
    ("field", "value"),
    [("delay_ms", -1), ("delay_ms", 86_400_001), ("reason", "é" * 129), ("reason", "\udfff"), ("lease_ids", [1, 2])],
)
def test_a_nack_that_makes_no_sense_is_refused(field: str, value: object) -> None:
    host = Host()
    with pytest.raises(Refused) as refusal:
        host.nack(1, node="w", **{field: value})
    assert refusal.value.detail == {"field": field}


# -- rule 5: cohorts -------------------------------------------------------------------------------------------------


def test_ten_claimers_of_ten_and_fifty_jobs_five_each() -> None:
    host = Host()
    host.write(50)
    decision = host.claim_all(*(Claim(node=f"w{index}", max=10) for index in range(10)))
    assert [len(leased.jobs) for leased in decision.leased if leased is not None] == [5] * 10
    seqs = [seq for leased in decision.leased if leased is not None for seq, _ in leased.jobs]
    assert sorted(seqs) == list(range(1, 51))


def test_jobs_are_dealt_in_proportion_to_what_each_claimer_asked_for() -> None:
    host = Host()
    host.write(12)
    decision = host.claim_all(Claim(node="a", max=10), Claim(node="b", max=20), Claim(node="c", max=30))
    assert [len(leased.jobs) for leased in decision.leased if leased is not None] == [2, 4, 6]


def test_a_claimer_that_gets_nothing_is_told_so_and_does_not_take_from_others() -> None:
    host = Host()
    host.write(3, "a")
    decision = host.claim_all(Claim(node="x", max=5, match=Match("Eq", "b")), Claim(node="y", max=5))
    assert decision.leased[0] is None
    assert decision.leased[1] is not None
    assert len(decision.leased[1].jobs) == 3


def test_leases_of_one_window_are_all_different() -> None:
    host = Host()
    host.write(9)
    decision = host.claim_all(*(Claim(node="w", max=4) for _ in range(3)))
    ids = [
        lease
        for leased in decision.leased
        if leased is not None
        for lease in range(leased.lease_id, leased.lease_id + len(leased.jobs))
    ]
    assert len(set(ids)) == 9


# -- rule 6: dead letters --------------------------------------------------------------------------------------------


def exhausted(deliveries: int = 2, count: int = 1) -> Host:
    host = Host(max_deliveries=deliveries, dead_letter="dead")
    seqs = host.write(count)
    for _ in range(deliveries):
        host.claim(count)
        host.nack(*seqs, reason="no")
    return host


def test_a_claim_beyond_max_deliveries_moves_the_job_with_its_trail() -> None:
    host = exhausted()
    host.write()
    decision = host.claim_all(Claim(node="w", max=9))
    assert decision.moved is not None
    (move,) = decision.moved.moves
    assert (move.seq, move.deliveries) == (1, 2)
    assert [(step.node, step.how, step.reason) for step in move.trail] == [("w", End.NACKED, "no")] * 2
    assert decision.leased[0] is not None
    assert decision.leased[0].jobs == ((2, 1),)
    assert (host.queue.dead_lettered, host.queue.live) == (1, 1)


def test_without_a_dead_letter_topic_it_is_tried_for_ever() -> None:
    host = Host(max_deliveries=1)
    host.write()
    for deliveries in range(1, 30):
        leased = host.claim()
        assert leased is not None
        assert leased.jobs == ((1, deliveries),)
        host.nack(1)


def test_a_claim_moves_at_most_a_thousand_and_still_gives_healthy_jobs() -> None:
    host = Host(max_deliveries=1, dead_letter="dead")
    first = host.write(700)
    more = host.write(700)
    host.claim(700)
    host.claim(700)
    host.nack(*first)
    host.nack(*more)
    host.write(3)
    decision = host.claim_all(Claim(node="w", max=9))
    assert decision.moved is not None
    assert len(decision.moved.moves) == 1000
    assert decision.leased[0] is not None
    assert [seq for seq, _ in decision.leased[0].jobs] == [1401, 1402, 1403]
    assert host.queue.ready == 400


def test_the_trail_has_the_last_eight_deliveries_and_how_each_ended() -> None:
    host = Host(max_deliveries=10, dead_letter="dead")
    host.write()
    for turn in range(10):
        host.claim(1, f"w{turn}", conn=5 if turn == 8 else 0)
        if turn == 8:
            event = host.queue.release(5, host.now)
            assert event is not None
            host.happen(event)
        elif turn == 9:
            host.pass_ms(5000)
        else:
            host.nack(1, node=f"w{turn}", reason=f"r{turn}")
    moved = host.claim_all(Claim(node="w")).moved
    assert moved is not None
    trail = moved.moves[0].trail
    assert [step.node for step in trail] == [f"w{turn}" for turn in range(2, 10)]
    assert [step.how for step in trail] == [End.NACKED] * 6 + [End.RELEASED, End.EXPIRED]
    assert trail[-1].ended == trail[-1].claimed + 1000, "at the deadline, not when somebody looked"
    assert trail[0].reason == "r2"


def test_a_nack_can_send_jobs_straight_to_the_dead_letters() -> None:
    host = Host(dead_letter="dead")
    host.write()
    host.claim()
    decision = host.nack(1, dead_letter=True, reason="bad data")
    assert decision.seqs == [1]
    assert decision.moved is not None
    (move,) = decision.moved.moves
    assert (move.deliveries, move.trail[-1].reason) == (1, "bad data")
    assert (host.queue.dead_lettered, host.queue.live) == (1, 0)


def test_a_nack_to_the_dead_letters_of_a_queue_without_any_is_refused() -> None:
    host = Host()
    host.write()
    host.claim()
    with pytest.raises(Refused) as refusal:
        host.nack(1, dead_letter=True)
    assert refusal.value.detail == {"field": "dead_letter"}
    assert host.queue.in_flight == 1


def test_a_target_that_takes_nothing_leaves_the_job_ready_again_after_backoff_and_says_so() -> None:
    host = exhausted()
    decision = host.queue.claim([Claim(node="w")], host.config, host.now, host.next_lease_id)
    assert decision.moved is not None
    for event in host.queue.refuse_moves(decision.moved, "dead is full", host.now):
        host.happen(event)
    assert (host.queue.delayed, host.queue.ready, host.queue.live) == (1, 0, 1)
    assert host.queue.counters(host.now).dead_letter_problem == "dead is full"
    host.pass_ms(2400)
    assert host.queue.ready == 1
    assert host.claim_all(Claim(node="w")).moved is not None
    assert host.queue.counters(host.now).dead_letter_problem is None
    assert host.queue.dead_lettered == 1


def test_a_nack_whose_target_takes_nothing_is_a_nack_with_backoff() -> None:
    host = Host(dead_letter="dead")
    host.write()
    host.claim()
    decision = host.queue.nack(Nack(node="w", seqs=[1], dead_letter=True, reason="bad"), host.config, host.now)
    assert isinstance(decision.moved, DeadLettered)
    events = host.queue.refuse_moves(decision.moved, "missing", host.now)
    assert any(isinstance(event, Nacked) and event.reason == "bad" for event in events)
    for event in events:
        host.happen(event)
    assert (host.queue.in_flight, host.queue.delayed) == (0, 1)


# -- rule 7 and 8: what the topic removes, and counting --------------------------------------------------------------


@pytest.mark.parametrize("why", list(Why))
def test_a_lease_goes_with_its_record_and_the_ack_is_then_gone(why: Why) -> None:
    host = Host()
    host.write(3)
    host.claim(2, conn=3)
    assert host.remove(1, 1, why) == 1
    assert skips(host.ack(1)) == {1: Skip.GONE}
    assert getattr(host.queue, why.value) == 1
    assert host.queue.in_flight == 1
    assert host.queue.held_by(3) == 1


def test_deleting_never_delivered_jobs_asks_nothing_of_each() -> None:
    host = Host()
    host.write(100_000)
    host.records.tags.clear()
    host.records.asked = 0
    host.happen(Removed(1, 100_000, 100_000, Why.DELETED))
    assert host.records.asked == 0
    assert (host.queue.live, host.queue.deleted) == (0, 100_000)


def test_a_job_that_is_evicted_before_its_ack_is_visible_counts_as_evicted_alone() -> None:
    host = Host()
    host.write()
    host.claim()
    decision = host.queue.ack(Ack(node="w", seqs=[1]), host.now)
    assert decision.event is not None
    host.queue.stage(decision.event)  # type: ignore[arg-type]  # an ack's event is an Acked
    host.remove(1, 1, Why.EVICTED)
    host.queue.apply(decision.event)
    assert (host.queue.evicted, host.queue.acked, host.queue.live) == (1, 0, 0)


def test_the_counters_add_up_and_the_oldest_ready_job_has_its_age() -> None:
    host = Host()
    assert host.queue.counters(host.now).oldest_ready_ms is None
    host.write(6)
    host.pass_ms(400)
    assert host.queue.counters(host.now).oldest_ready_ms == 400
    host.claim(4)
    host.ack(1)
    host.nack(2, delay_ms=50)
    host.remove(3, 3)
    host.pass_ms(100)
    counters = host.queue.counters(host.now)
    assert (counters.ready, counters.in_flight, counters.delayed) == (3, 1, 0)
    assert counters.written == 6
    assert counters.oldest_ready_ms == 500
    host.claim(1)
    host.remove(5, 6)
    assert host.queue.counters(host.now).oldest_ready_ms is None


def test_the_jobs_of_a_requeue_are_nobodys_from_the_moment_it_is_staged() -> None:
    host = Host()
    host.write(4)
    host.queue.leave([2, 3])
    assert host.seqs(9) == [1, 4]
    assert host.queue.ready == 2
    host.remove(2, 3)
    assert (host.queue.ready, host.queue.deleted, host.queue.live) == (0, 2, 2)


def test_leases_are_listed_by_seq_a_page_at_a_time() -> None:
    host = Host()
    host.write(5)
    host.claim(2, "a")
    host.claim(3, "b")
    page = host.queue.leases(host.now, 0, 3)
    assert [(lease.seq, lease.node, lease.deliveries) for lease in page] == [(1, "a", 1), (2, "a", 1), (3, "b", 1)]
    assert [lease.seq for lease in host.queue.leases(host.now, 3, 3)] == [4, 5]
    host.pass_ms(1000)
    assert host.queue.leases(host.now, 0, 9) == []


def test_events_for_jobs_that_are_gone_change_nothing() -> None:
    host = Host()
    host.write()
    leased = host.claim()
    assert isinstance(leased, Leased)
    host.remove(1, 1)
    host.queue.apply(logged(leased))
    assert (host.queue.in_flight, host.queue.live) == (0, 0)
