"""The rules of queues.md, one by one: the ready order (1), leases (2), claims (3). The others: `test_settling`."""

from __future__ import annotations

import pytest

from engine.errors import Code, Refused
from engine.queue.commands import Claim, Settled, Skip
from engine.types import Match
from tests.queue.topic import START_MS, Host


def skips(decision: Settled) -> dict[int, Skip]:
    return dict(decision.skipped)


# -- rule 1: the ready order -----------------------------------------------------------------------------------------


def test_jobs_that_were_never_delivered_come_by_seq() -> None:
    host = Host()
    host.write(5)
    assert host.seqs(2) == [1, 2]
    assert host.seqs(9) == [3, 4, 5]
    assert host.seqs(1) == []


def test_expired_and_delayed_jobs_come_first_by_the_time_they_became_ready() -> None:
    host = Host()
    host.write(9)
    host.claim(1)
    host.claim(1, lease_ms=500)
    host.claim(1, lease_ms=5000)
    host.nack(3, delay_ms=700)
    host.pass_ms(2000)
    assert host.seqs(9) == [2, 3, 1, 4, 5, 6, 7, 8, 9]


def test_jobs_that_became_ready_in_the_same_millisecond_come_by_seq() -> None:
    host = Host()
    host.write(4)
    host.claim(4)
    host.nack(3)
    host.nack(1)
    host.nack(2)
    assert host.seqs(9) == [1, 2, 3]


def test_third_deliveries_take_every_second_place_while_never_delivered_jobs_wait() -> None:
    host = Host()
    host.write(3)
    for _ in range(2):
        host.claim(3)
        host.nack(1, 2, 3)
    host.write(4)
    assert host.seqs(9) == [1, 4, 2, 5, 3, 6, 7]


def test_the_turn_of_third_deliveries_persists_across_claims() -> None:
    host = Host()
    host.write(2)
    for _ in range(2):
        host.claim(2)
        host.nack(1, 2)
    host.write(2)
    assert [host.seqs(1) for _ in range(4)] == [[1], [3], [2], [4]]


def test_third_deliveries_take_every_place_when_nothing_else_waits() -> None:
    host = Host()
    host.write(3)
    for _ in range(2):
        host.claim(3)
        host.nack(1, 2, 3)
    assert host.seqs(9) == [1, 2, 3]


def test_second_deliveries_go_before_never_delivered_jobs_without_a_turn() -> None:
    host = Host()
    host.write(3)
    host.claim(3)
    host.nack(1, 2, 3)
    host.write(2)
    assert host.seqs(9) == [1, 2, 3, 4, 5]


def test_one_poison_job_does_not_delay_a_thousand_healthy_ones() -> None:
    host = Host(lease_ms=100_000)
    host.write(1001)
    healthy, places = 0, 0
    while healthy < 1000:
        (seq,) = host.seqs(1)
        places += 1
        if seq == 1:
            host.nack(1)
        else:
            host.ack(seq)
            healthy += 1
    assert places <= 2002


# -- rule 2: leases --------------------------------------------------------------------------------------------------


def test_a_lease_holds_until_its_deadline_and_at_the_deadline_exactly_it_is_expired() -> None:
    host = Host()
    host.write()
    leased = host.claim()
    assert leased is not None
    assert leased.deadline == START_MS + 1000
    host.pass_ms(999)
    assert host.seqs(1, "other") == []
    assert host.queue.in_flight == 1
    host.pass_ms(1)
    assert host.queue.in_flight == 0
    assert host.seqs(1, "other") == [1]


def test_the_nearest_deadline_or_end_of_a_delay_is_the_next_time_to_look() -> None:
    host = Host()
    assert host.queue.next_wake_ms() is None
    host.write(3)
    host.claim(1)
    host.claim(1, lease_ms=400)
    host.claim(1)
    host.nack(3, delay_ms=300)
    assert host.queue.next_wake_ms() == START_MS + 300
    host.pass_ms(300)
    assert host.queue.next_wake_ms() == START_MS + 400
    host.ack(2)
    assert host.queue.next_wake_ms() == START_MS + 1000


def test_F55_a_suspension_past_the_lease_expires_it_before_anything_is_served() -> None:
    host = Host()
    host.write()
    host.claim()
    host.now += 3_600_000
    assert skips(host.ack(1)) == {1: Skip.EXPIRED}
    assert host.seqs(1, "other") == [1]


def test_F54_time_that_does_not_advance_changes_nothing() -> None:
    host = Host()
    host.write()
    host.claim()
    host.pass_ms(500)
    host.now -= 400
    host.queue.claim([Claim(node="x")], host.config, host.now, 1)
    assert host.queue.now_ms == START_MS + 500


# -- rule 3: claims --------------------------------------------------------------------------------------------------


def test_every_job_gets_a_lease_of_its_own_and_counts_the_delivery() -> None:
    host = Host()
    host.write(3)
    leased = host.claim(2)
    assert leased is not None
    assert leased.jobs == ((1, 1), (2, 1))
    host.pass_ms(1000)
    again = host.claim(3)
    assert again is not None
    assert again.jobs == ((1, 2), (2, 2), (3, 1))
    assert again.lease_id == leased.lease_id + 2
    assert host.next_lease_id == leased.lease_id + 5


def test_a_claim_is_clamped_to_a_thousand_jobs() -> None:
    host = Host()
    host.write(1200)
    assert len(host.seqs(5000)) == 1000


def test_leases_are_clamped() -> None:
    host = Host()
    host.write(2)
    short, long = host.claim(1, lease_ms=1), host.claim(1, lease_ms=10**12)
    assert short is not None
    assert long is not None
    assert (short.deadline, long.deadline) == (START_MS + 100, START_MS + 86_400_000)


def test_a_claim_ends_before_the_job_that_no_longer_fits_but_gives_one_always() -> None:
    host = Host()
    host.write(5)
    assert host.seqs(5, max_bytes=1) == [1]
    assert host.seqs(5, max_bytes=29) == [2, 3]


@pytest.mark.parametrize("match", [None, Match("Eq", "a")])
def test_a_job_that_fits_to_the_byte_is_given(match: Match | None) -> None:
    host = Host()
    host.write(5, "a")
    size = host.records.size(1)
    assert host.seqs(5, max_bytes=2 * size, match=match) == [1, 2]
    assert host.seqs(5, max_bytes=3 * size - 1, match=match) == [3, 4]


def test_a_claim_with_a_tag_filter_takes_only_what_passes_it() -> None:
    host = Host()
    for tag in ("a", "b", None, "ab", "b"):
        host.write(1, tag)
    assert host.seqs(9, match=Match("Glob", "a")) == [1, 4]
    assert host.seqs(9, match=Match("Eq", "b")) == [2, 5]
    assert host.seqs(9, match=Match("Eq", "b")) == []
    assert host.seqs(9) == [3]


def test_a_tag_filter_holds_for_jobs_that_come_back_too() -> None:
    host = Host()
    for tag in ("a", "b", "a"):
        host.write(1, tag)
    host.claim(3)
    host.nack(1, 2, 3)
    assert host.seqs(9, match=Match("Eq", "b")) == [2]
    host.nack(2)
    assert host.seqs(9, match=Match("Eq", "b")) == [2]
    assert host.seqs(9) == [1, 3]


def test_what_a_filter_has_passed_over_is_not_looked_at_again() -> None:
    host = Host()
    host.write(500, "a")
    host.write(1, "b")
    assert host.seqs(1, match=Match("Eq", "c")) == []
    host.records.asked = 0
    assert host.seqs(1, match=Match("Eq", "c")) == []
    assert host.records.asked <= 3


def test_a_job_that_comes_back_behind_what_a_filter_has_passed_is_found() -> None:
    host = Host()
    host.write(1, "x")
    host.write(1)
    host.claim(2)
    host.nack(2)
    assert host.seqs(1, match=Match("Eq", "x")) == []
    host.nack(1)
    assert host.seqs(1, match=Match("Eq", "x")) == [1]


def test_a_third_delivery_is_given_to_a_filter_that_nothing_else_passes() -> None:
    host = Host()
    host.write(1, "a")
    for _ in range(2):
        host.claim()
        host.nack(1)
    host.write(3, "b")
    assert host.seqs(1, match=Match("Eq", "a")) == [1]
    host.nack(1)
    assert host.seqs(1, match=Match("Eq", "a")) == [1]


def test_an_answer_that_was_never_written_is_no_delivery() -> None:
    host = Host()
    host.write(3)
    leased = host.claim(2)
    assert leased is not None
    event = host.queue.undeliver(leased, host.now)
    assert event is not None
    host.happen(event)
    assert host.queue.in_flight == 0
    again = host.claim(3)
    assert again is not None
    assert again.jobs == ((1, 1), (2, 1), (3, 1))


def test_a_lease_that_ended_before_its_answer_failed_is_not_undone() -> None:
    host = Host()
    host.write(2)
    leased = host.claim(2)
    assert leased is not None
    host.ack(1)
    host.pass_ms(1000)
    assert host.claim(1, "other") is not None
    assert host.queue.undeliver(leased, host.now) is None


def test_a_connection_takes_its_leases_with_it_and_the_deliveries_count() -> None:
    host = Host()
    host.write(4)
    host.claim(2, conn=7)
    host.claim(1, conn=8)
    host.claim(1)
    assert host.queue.held_by(7) == 2
    event = host.queue.release(7, host.now)
    assert event is not None
    host.happen(event)
    assert host.queue.held_by(7) == 0
    assert host.queue.held_by(8) == 1
    again = host.claim(9)
    assert again is not None
    assert again.jobs == ((1, 2), (2, 2))
    assert host.queue.release(7, host.now) is None


@pytest.mark.parametrize(("node", "most"), [("", 1), ("w", 0), ("\ud800", 1)])
def test_a_claim_that_makes_no_sense_is_refused(node: str, most: int) -> None:
    with pytest.raises(Refused) as refusal:
        Claim(node=node, max=most)
    assert refusal.value.code is Code.INVALID_REQUEST
