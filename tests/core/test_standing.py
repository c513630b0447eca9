"""Claims that stand, stepped by hand: room, deadlines, windows, pauses, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import Code, Refused, TopicsError
from engine.queue.commands import Ack, Claim, Nack
from engine.queue.events import Leased
from engine.types import TopicType
from tests.core.hand import Hand


class Worker:
    """Whoever works: what it was told."""

    def __init__(self, hand: Hand, maximum: int, **claim: Any) -> None:
        self.jobs: list[tuple[int, int]] = []
        self.leases: list[Leased] = []
        self.error: TopicsError | None = None
        self.is_drained = False
        self.standing = hand.core.queues.stand("q", Claim(node="w", max=maximum, **claim), self)

    def take(self, leased: Leased) -> None:
        self.leases.append(leased)
        self.jobs += leased.jobs

    def refused(self, error: TopicsError) -> None:
        self.error = error
        self.standing.leave()

    def drained(self) -> None:
        self.is_drained = True
        self.standing.leave()

    def seqs(self) -> list[int]:
        """What came since the last look."""
        found, self.jobs = [seq for seq, _ in self.jobs], []
        return found


def queue(jobs: int = 0, **config: Any) -> Hand:
    hand = Hand()
    hand.create("q", type=TopicType.QUEUE, lease_ms=1000, **config)
    if jobs:
        hand.write("q", *range(jobs))
    return hand


def counters(hand: Hand) -> dict[str, Any]:
    found = hand.core.state("q").queue
    assert found is not None
    return found


@pytest.mark.parametrize("durable", [False, True])
def test_it_never_holds_more_than_it_may(durable: bool) -> None:
    hand = queue(9, leases_durable=durable)
    worker = Worker(hand, 3)
    hand.settle()
    assert worker.seqs() == [1, 2, 3]
    hand.take(hand.core.queues.ack("q", Ack(node="w", seqs=[2, 3])))
    assert worker.seqs() == [4, 5]
    hand.take(hand.core.queues.nack("q", Nack(node="w", seqs=[1], delay_ms=60_000)))
    assert worker.seqs() == [6]
    hand.take(hand.core.queues.nack("q", Nack(node="w", seqs=[4], delivered=False)))
    assert worker.seqs() == [4], "what was given back comes first"
    assert counters(hand)["in_flight"] == 3


def test_a_deadline_frees_its_room_with_no_request_coming_in() -> None:
    hand = queue(2)
    worker = Worker(hand, 1)
    hand.settle()
    assert worker.seqs() == [1]
    assert hand.core.queues.due_ms == worker.leases[0].deadline
    hand.pass_ms(999)
    hand.settle()
    assert worker.seqs() == []
    hand.pass_ms(1)
    hand.settle()
    assert (worker.seqs(), worker.leases[-1].jobs) == ([1], ((1, 2),))


def test_an_end_frees_its_own_jobs_and_counts_them() -> None:
    hand = queue(4)
    one, other = Worker(hand, 2), Worker(hand, 1)
    hand.settle()
    assert (one.seqs(), other.seqs()) == ([1, 2], [3])
    one.standing.leave()
    hand.settle()
    shown = counters(hand)
    assert (shown["in_flight"], shown["ready"]) == (1, 3)
    hand.take(hand.core.queues.ack("q", Ack(node="w", seqs=[3])))
    assert other.jobs == [(1, 2)], "released jobs come first, and know their deliveries"
    assert one.seqs() == []


def test_what_was_never_sent_is_not_delivered() -> None:
    hand = queue(2)
    worker = Worker(hand, 2)
    hand.settle()
    worker.standing.undeliver(worker.leases[0])
    worker.standing.leave()
    again = Worker(hand, 2)
    hand.settle()
    assert again.jobs == [(1, 1), (2, 1)]


def test_a_pause_takes_nothing_until_it_ends() -> None:
    hand = queue()
    worker = Worker(hand, 5)
    hand.settle()
    worker.standing.pause()
    hand.write("q", 1, 2)
    hand.settle()
    assert (worker.seqs(), counters(hand)["claim_waiters"]) == ([], 0)
    worker.standing.resume()
    hand.settle()
    assert worker.seqs() == [1, 2]


def test_a_drain_takes_nothing_more_and_ends_with_the_last_lease() -> None:
    hand = queue(5)
    worker, other = Worker(hand, 2), Worker(hand, 1)
    hand.settle()
    other.standing.leave()
    assert worker.seqs() == [1, 2]
    assert hand.core.queues.drain("q", "nobody") == 0
    assert hand.core.queues.drain("q", "w") == 1
    hand.settle()
    hand.take(hand.core.queues.ack("q", Ack(node="w", seqs=[1])))
    assert (worker.seqs(), worker.is_drained) == ([], False)
    hand.take(hand.core.queues.nack("q", Nack(node="w", seqs=[2], delivered=False)))
    assert (worker.seqs(), worker.is_drained) == ([], True), "what it gave back does not come again"
    idle = Worker(hand, 9)
    hand.core.queues.drain("q", "w")
    hand.settle()
    assert (idle.seqs(), idle.is_drained) == ([], True)


def test_streams_and_claims_of_a_window_are_dealt_together() -> None:
    hand = queue(claim_jitter_ms=50)
    one, other = Worker(hand, 10), Worker(hand, 30)
    hand.settle()
    hand.write("q", *range(8))
    hand.settle()
    assert (len(one.seqs()), len(other.seqs())) == (2, 6), "in proportion to what each may still take"
    hand.write("q", *range(4))
    hand.settle()
    assert len(one.seqs()) + len(other.seqs()) == 4


def test_ten_claimers_and_fifty_jobs_get_five_each() -> None:
    hand = queue(50, claim_jitter_ms=250)
    waiters = [hand.core.queues.claim("q", Claim(node=f"n{number}", max=10), 0) for number in range(10)]
    hand.settle()
    assert not any(waiter.ticket.done for waiter in waiters)
    hand.pass_ms(249)
    hand.settle()
    assert not any(waiter.ticket.done for waiter in waiters), "the window is open"
    hand.pass_ms(1)
    hand.settle()
    given = [waiter.ticket.value().leased for waiter in waiters]
    assert [len(leased.jobs) for leased in given if leased is not None] == [5] * 10


def test_a_dropped_queue_ends_it_whether_or_not_it_waits() -> None:
    for jobs in (0, 3):
        hand = queue(jobs)
        worker = Worker(hand, 1)
        hand.settle()
        hand.take(hand.core.drop_topic("q"))
        hand.settle()
        assert worker.error is not None
        assert worker.error.code is Code.TOPIC_NOT_FOUND


def test_what_makes_no_sense_is_refused_at_once() -> None:
    hand = queue()
    with pytest.raises(Refused):
        Worker(hand, 0)
    hand.write("log", 1)
    with pytest.raises(Refused, match="is a log"):
        hand.core.queues.stand("log", Claim(node="w"), Worker(hand, 1))


def test_a_closed_store_tells_it() -> None:
    hand = queue()
    worker = Worker(hand, 1)
    hand.settle()
    hand.core.queues.shut()
    assert worker.error is not None
    assert worker.error.code is Code.SHUTTING_DOWN
