"""A queue made from its snapshot is the queue, and applying events again that it has seen changes nothing."""

from __future__ import annotations

import msgspec

from engine.queue.events import Event, Restarted
from engine.queue.machine import Queue
from engine.queue.snapshot import QueueSnapshot
from engine.queue.trail import End, deliveries_of
from tests.queue.topic import Host


def busy_host(**config: object) -> Host:
    host = Host(**config)
    host.write(9)
    host.claim(6, "a", conn=4)
    host.ack(1, node="a")
    host.nack(2, node="a", delay_ms=100, reason="later")
    host.nack(3, node="a")
    host.claim(1, "b")
    host.remove(9, 9)
    return host


def reopened(host: Host, snapshot: QueueSnapshot, events: list[Event], *, durable: bool) -> Queue:
    plain = msgspec.json.decode(msgspec.json.encode(snapshot), type=QueueSnapshot)
    queue = Queue.restore(host.records, plain)
    for event in events:
        queue.apply(event)
    queue.apply(Restarted(host.now, durable))
    return queue


def test_a_snapshot_has_everything_but_connections() -> None:
    host = busy_host()
    queue = reopened(host, host.queue.snapshot(), [], durable=True)
    assert queue.counters(host.now) == host.queue.counters(host.now)
    assert queue.leases(host.now, 0, 99) == host.queue.leases(host.now, 0, 99)
    assert queue.held_by(4) == 0
    host.queue = queue
    host.pass_ms(1000)
    assert host.seqs(9) == [2, 3, 4, 5, 6, 7, 8]


def test_without_durable_leases_what_was_in_flight_is_ready_at_once_and_its_trail_says_why() -> None:
    host = busy_host()
    queue = reopened(host, host.queue.snapshot(), [], durable=False)
    counters = queue.counters(host.now)
    assert (counters.ready, counters.in_flight, counters.delayed) == (6, 0, 1)
    job = next(job for job in queue.snapshot().jobs if job.seq == 4)
    assert [step.how for step in deliveries_of(job.trail)] == [End.RESTARTED]
    assert job.deliveries == 1


def test_F54_a_durable_lease_lasts_its_remaining_time_at_most() -> None:
    host = busy_host(leases_durable=True)
    snapshot = host.queue.snapshot()
    host.now += 999
    host.queue = reopened(host, snapshot, [], durable=True)
    assert host.queue.in_flight == 4
    host.pass_ms(1)
    assert host.queue.in_flight == 0


def test_events_that_are_in_the_snapshot_already_may_be_applied_again() -> None:
    host = Host(leases_durable=True)
    host.write(4)
    host.claim(4, "a")
    host.nack(1, node="a", reason="no")
    host.nack(2, node="a", delay_ms=5000)
    host.extend(3, node="a", lease_ms=7000)
    host.claim(1, "b")
    host.nack(1, node="b")
    queue = reopened(host, host.queue.snapshot(), host.log, durable=True)
    by_seq = {job.seq: job for job in host.queue.snapshot().jobs}
    assert {job.seq: job for job in queue.snapshot().jobs} == by_seq
    assert queue.counters(host.now) == host.queue.counters(host.now)
