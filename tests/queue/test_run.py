"""Runs of leases: as good as a lease for each of their jobs."""

from __future__ import annotations

from engine.queue.events import Undelivered
from engine.queue.job import Phase
from engine.queue.run import Run
from tests.queue.topic import Host


def _claimed(jobs: int) -> Host:
    host = Host()
    host.records.run_records = jobs
    for _ in range(jobs):
        host.write()
    host.claim(max=jobs)
    assert type(host.queue._known[1]) is Run
    return host


def test_a_claim_of_jobs_in_a_row_is_one_object_until_one_of_them_is_looked_at() -> None:
    host = _claimed(5)
    assert len({id(job) for job in host.queue._known.values()}) == 1
    host.extend(3, lease_ms=5000)
    assert type(host.queue._known[3]) is not Run
    host.pass_ms(1000)
    assert host.queue.in_flight == 1
    assert host.queue.ready == 4


def test_what_is_left_of_a_run_expires_though_its_first_job_is_gone() -> None:
    host = _claimed(5)
    host.ack(1, 2)
    host.happen(Undelivered(host.now, ((4, 0),)))
    host.pass_ms(999)
    assert host.queue.in_flight == 2
    host.pass_ms(1)
    assert (host.queue.in_flight, host.queue.ready) == (0, 3)
    assert not host.queue._headless


def test_a_snapshot_has_each_lease_of_a_run() -> None:
    host = _claimed(3)
    jobs = host.queue.snapshot().jobs
    assert [(job.seq, job.deliveries, job.phase, job.lease_id) for job in jobs] == [
        (seq, 1, Phase.LEASED, (1 << 32) + seq - 1) for seq in (1, 2, 3)
    ]
    assert type(host.queue._known[2]) is Run
