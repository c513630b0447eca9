"""What a queue costs: nothing for a job that is ready, less than 300 bytes for one under a lease, and time for what a
call is about alone."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from engine.queue.commands import Ack, Claim
from engine.queue.events import Acked, Appended, Removed, Why
from engine.queue.machine import Queue
from engine.types import Match
from tests.queue.topic import queue_config

pytestmark = pytest.mark.slow

NOW = 1_748_450_000_000
LEASES = 8_000


class Endless:
    """A topic of very many live records, but for a run of deleted ones in front."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.gone = 0
        self.asked = 0

    def head(self) -> int:
        return self.count

    def next_live(self, seq: int, match: Match | None) -> int:
        self.asked += 1
        return max(seq, self.gone + 1)

    def is_live(self, seq: int) -> bool:
        self.asked += 1
        return self.gone < seq <= self.count

    def all_live(self, first: int, last: int) -> bool:
        self.asked += 1
        return self.gone < first <= last <= self.count

    def run(self, seq: int, count: int) -> tuple[int, int]:
        self.asked += 1
        last = min(seq + count - 1, self.count)
        return last, (last - seq + 1) * 100

    def passes(self, seq: int, match: Match) -> bool:
        return True

    def size(self, seq: int) -> int:
        return 100

    def ts(self, seq: int) -> int:
        return NOW


def full_queue(count: int) -> tuple[Queue, Endless]:
    topic = Endless(count)
    queue = Queue(topic)
    queue.apply(Appended(count))
    return queue, topic


def claim(queue: Queue, now: int, count: int, lease: int, node: str = "worker-1") -> int:
    decision = queue.claim([Claim(node=node, max=count)], queue_config(lease_ms=60_000), now, lease)
    (leased,) = decision.leased
    assert leased is not None
    queue.apply(leased)
    return decision.next_lease_id


def test_ten_million_ready_jobs_take_no_memory() -> None:
    tracemalloc.start()
    try:
        queue, _ = full_queue(10_000_000)
        claim(queue, NOW, 10, 1 << 40)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()
    assert queue.ready == 9_999_990


@pytest.mark.parametrize("at_a_time", [1, 100])
def test_a_leased_job_takes_less_than_three_hundred_bytes(at_a_time: int) -> None:
    queue, _ = full_queue(10_000_000)
    lease = claim(queue, NOW, 10, 1 << 40)
    tracemalloc.start()
    try:
        worst = 0.0
        for turn in range(LEASES // at_a_time):
            lease = claim(queue, NOW + 1 + turn, at_a_time, lease, f"worker-{turn % 7}")
            if turn * at_a_time > LEASES // 2:
                worst = max(worst, tracemalloc.get_traced_memory()[0] / ((turn + 1) * at_a_time))
    finally:
        tracemalloc.stop()
    assert worst < 300, f"{worst:.0f} bytes"


def test_a_claim_and_an_ack_ask_the_topic_as_often_whatever_the_length_of_the_queue() -> None:
    asked = []
    for count in (100, 10_000_000):
        queue, topic = full_queue(count)
        lease = claim(queue, NOW, 10, 1 << 40)
        topic.asked = 0
        claim(queue, NOW, 10, lease)
        decision = queue.ack(Ack(node="worker-1", seqs=list(range(1, 11))), NOW)
        assert isinstance(decision.event, Acked)
        queue.stage(decision.event)
        queue.apply(decision.event)
        asked.append(topic.asked)
    assert asked[0] == asked[1]
    assert asked[0] < 60


@pytest.mark.slow
def test_no_step_of_a_claim_and_an_ack_grows_with_the_length_of_the_queue() -> None:
    seconds = []
    for count in (20_000, 10_000_000):
        queue, topic = full_queue(count)
        lease, best = 1 << 40, 1e9
        for turn in range(8):
            began = time.thread_time()
            for _ in range(100):
                lease = claim(queue, NOW + turn, 10, lease)
                decision = queue.ack(
                    Ack(node="worker-1", seqs=list(range(topic.gone + 1, topic.gone + 11))), NOW + turn
                )
                assert isinstance(decision.event, Acked)
                queue.stage(decision.event)
                queue.apply(decision.event)
                topic.gone += 10
            best = min(best, time.thread_time() - began)
        seconds.append(best)
    # What grows with the length takes five hundred times as long; caches and neighbours a few times.
    assert seconds[1] < 10 * seconds[0]


def test_evicting_the_front_of_a_long_queue_costs_what_is_known_of_it() -> None:
    queue, topic = full_queue(10_000_000)
    claim(queue, NOW, 1000, 1 << 40)
    topic.gone, topic.asked = 9_000_000, 0
    queue.apply(Removed(1, 9_000_000, 9_000_000, Why.EVICTED))
    assert topic.asked == 0
    assert (queue.in_flight, queue.ready, queue.evicted) == (0, 1_000_000, 9_000_000)
