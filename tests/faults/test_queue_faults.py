"""Faults that leases meet: clocks, sleep, crashes around a claim (faults.md, 54–56; 67: `tests/sim/test_queues.py`)."""

from __future__ import annotations

import signal
import time

import msgspec
import pytest

from engine.errors import Code, Unavailable
from engine.queue.commands import Ack
from engine.types import Durability
from tests.daemon.kit import DaemonProcess, daemon_process, post, request
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.queues import Shop, live
from tests.sim.world import TINY

pytestmark = pytest.mark.slow

KIB = 1024
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
LEASE_MS = 60_000


def leased() -> Shop:
    """A queue with durable leases of a minute, whose first two of three jobs are held."""
    shop = Shop(FakeDisk(), ManualClock(), TINY)
    shop.make(durability=Durability.FSYNC, leases_durable=True)
    shop.write(1, 2, 3)
    assert shop.claim(2) == [1, 2]
    return shop


def held(shop: Shop) -> list[int]:
    """The seqs that somebody holds."""
    shop.step()
    return [lease.seq for lease in shop.core.queues.leases("q", 0, 100)]


def test_F21_acks_and_nacks_work_on_a_full_disk() -> None:
    """Their room was kept back when the jobs were written."""
    settings = msgspec.structs.replace(TINY, wal_file_bytes=256 * KIB, wal_reserve_bytes=64 * KIB)
    shop = Shop(FakeDisk(capacity=1024 * KIB), ManualClock(), settings)
    shop.make(durability=Durability.FSYNC, leases_durable=True)
    written = 0

    def fill() -> None:
        nonlocal written
        while written < 100_000:
            shop.write(*range(written + 1, written + 201))
            written += 200

    with pytest.raises(Unavailable) as refused:
        fill()
    assert refused.value.code is Code.DISK_FULL
    held = shop.claim(6)
    assert len(held) == 6
    shop.ack(*held[:3])
    shop.nack(*held[3:], reason="the disk is full")
    with pytest.raises(Unavailable):
        shop.write(written + 1)
    shop.restart("kill")
    counters = shop.core.state("q").queue
    assert counters is not None
    assert (counters["acked"], counters["written"]) == (3, written)


@pytest.mark.parametrize("step_ms", [-HOUR_MS, DAY_MS], ids=["an hour back", "a day forward"])
def test_F54_a_step_of_the_wall_clock_ends_no_lease_and_lengthens_none(step_ms: int) -> None:
    shop = leased()
    shop.step(20_000)
    shop.clock.wall_step(step_ms)
    assert held(shop) == [1, 2]
    shop.write(4)
    shop.step(LEASE_MS - 21_000)
    assert held(shop) == [1, 2], "not a moment earlier"
    shop.step(1_500)
    assert held(shop) == [], "nor later"
    assert shop.claim(4) == [1, 2, 3, 4], "seqs and their order never ask the clock"


@pytest.mark.parametrize("step_ms", [-HOUR_MS, DAY_MS], ids=["an hour back", "a day forward"])
def test_F54_across_a_restart_a_durable_lease_lasts_its_remaining_time_at_most(step_ms: int) -> None:
    shop = leased()
    shop.step(20_000)
    shop.clock.wall_step(step_ms)
    shop.restart("kill")
    shop.told.leased.clear()
    if step_ms < 0:
        assert held(shop) == [1, 2]
    shop.step(LEASE_MS - 20_000 + 1_000)
    assert held(shop) == []
    assert set(shop.claim(3)) == {1, 2, 3}


def test_F56_a_claim_whose_answer_nobody_got_is_delivered_again_and_never_acked_twice() -> None:
    """The process is killed when the lease is on the disk and its answer is not out."""
    shop = leased()
    images: list[FakeDisk] = []
    lost: list[int] = []

    def shoot(disk: FakeDisk, _what: str) -> None:
        disk.on_step = None
        images.append(disk.killed())
        disk.on_step = shoot

    shop.disk.on_step = shoot
    assert shop.claim(1) == [3]
    shop.disk.on_step = None
    for image in images:
        again = Shop(image, shop.clock.restart(), TINY)
        got_out = 3 in held(again)
        lost.append(got_out)
        assert set(live(again.core, "q")) == {1, 2, 3}, "never lost"
        if got_out:
            assert again.claim(1) == [], "it is held by somebody who does not know"
        again.step(LEASE_MS + 1_000)
        again.told.leased.clear()
        before = {lease.seq: lease.deliveries for lease in again.core.queues.leases("q", 0, 100)}
        assert before == {}
        assert set(again.claim(3)) == {1, 2, 3}
        counts = {lease.seq: lease.deliveries for lease in again.core.queues.leases("q", 0, 100)}
        assert counts[3] == (2 if got_out else 1), "the count goes up with every lease that was logged"
        again.ack(3)
        twice = again.wait(again.core.queues.ack("q", Ack(node="n", seqs=[3])))
        assert (twice.seqs, [seq for seq, _ in twice.skipped]) == ([], [3])
        counters = again.core.state("q").queue
        assert counters is not None
        assert counters["acked"] == 1
    assert True in lost, "the moment was met"


def claim(daemon: DaemonProcess) -> dict[str, object]:
    """A job with a short lease."""
    answer = daemon.ask(post("/v0/topics/q/claim", {"node": "n", "max": 1, "lease_ms": 500, "wait_ms": 5000}))
    (job,) = answer.json["claimed"]
    assert isinstance(job, dict)
    return job


def test_F55_after_a_sleep_beyond_the_lease_it_is_over_before_anything_is_served() -> None:
    with daemon_process() as daemon:
        assert daemon.ask(request("PUT", "/v0/topics/q", {"type": "queue"})).status == 201
        daemon.write("q", 1)
        job = claim(daemon)
        late = post("/v0/topics/q/ack", {"node": "n", "seqs": [1], "lease_ids": [job["lease_id"]]})
        with daemon.wire() as wire:
            daemon.process.send_signal(signal.SIGSTOP)
            time.sleep(1.0)
            wire.send(late)
            daemon.process.send_signal(signal.SIGCONT)
            answer = wire.answer().json
        assert answer["acked"] == 0
        assert answer["skipped_detail"] == [{"seq": 1, "detail": "expired"}]
        again = claim(daemon)
        assert again["deliveries"] == 2
        assert again["lease_id"] != job["lease_id"]
