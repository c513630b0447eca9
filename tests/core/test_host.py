"""What a queue asks of its topic by runs is what it would be told job by job."""

from __future__ import annotations

import pytest

from engine.commands import DeleteSelector
from engine.core.host import Host
from engine.queue.commands import Claim
from engine.types import TopicType
from tests.core.hand import Hand

HEAD = 60


def holed(ttl_ms: int = 0) -> tuple[Hand, Host]:
    """A queue of several blocks with deleted jobs in and between them; with a ttl the first ones are too old."""
    hand = Hand()
    hand.create("q", type=TopicType.QUEUE, ttl_ms=ttl_ms)
    hand.write("q", *range(5))
    hand.pass_ms(1500)
    hand.write("q", *range(5))
    hand.write("q", *("x" * 9000 for _ in range(3)))
    for _ in range(HEAD - 13):
        hand.write("q", "y" * 100)
    hand.take(hand.core.delete("q", DeleteSelector(seqs=(3, 12, 13, 14, 30, 40, 41, HEAD))))
    host = hand.core.queues.find("q")[1]
    host.at(hand.core.now())
    return hand, host


@pytest.mark.parametrize("ttl_ms", [0, 1400])
def test_runs_are_what_single_jobs_are(ttl_ms: int) -> None:
    _, host = holed(ttl_ms)
    live = [seq for seq in range(HEAD + 3) if host.is_live(seq)]
    assert live[0] == (6 if ttl_ms else 1)
    for first in range(HEAD + 3):
        for last in range(first, HEAD + 3):
            wanted = all(map(host.is_live, range(first, last + 1)))
            assert host.all_live(first, last) == wanted, (first, last)
    for seq in live:
        for count in (1, 2, 7, 100):
            last, size = host.run(seq, count)
            assert seq <= last < seq + count
            assert host.all_live(seq, last)
            assert size == sum(map(host.size, range(seq, last + 1)))
    assert max(host.run(seq, 100)[0] - seq for seq in live) > 5


def test_a_claim_goes_round_what_is_known_and_what_is_deleted() -> None:
    """A job that was given back without a delivery is known, and lies among those that never were delivered."""
    hand, host = holed()
    first = hand.core.queues.claim("q", Claim(node="w", max=9), 0)
    hand.core.queues.undeliver(first)
    kept = hand.core.queues.claim("q", Claim(node="w", max=2), 0)
    rest = hand.core.queues.claim("q", Claim(node="w", max=1000), 0)
    hand.settle()
    taken = []
    for waiter in (kept, rest):
        leased = waiter.ticket.value().leased
        assert leased is not None
        taken.append([seq for seq, _ in leased.jobs])
    live = [seq for seq in range(HEAD + 1) if host.is_live(seq)]
    assert taken == [live[:2], live[2:]]


def test_what_fits_is_given_to_the_byte() -> None:
    hand, host = holed()
    sizes = [host.size(seq) for seq in (1, 2, 4, 5, 6)]
    for count in range(1, 6):
        for spare in (0, -1):
            waiter = hand.core.queues.claim("q", Claim(node="w", max=100, max_bytes=sum(sizes[:count]) + spare), 0)
            hand.settle()
            leased = waiter.ticket.value().leased
            assert leased is not None
            assert len(leased.jobs) == max(count + spare, 1)
            hand.core.queues.undeliver(waiter)
            hand.settle()
