"""Queues over HTTP: claims that share, a job that always fails, clients that go away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.kit import DaemonProcess, daemon_process, make_queue, post, request

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        yield running


def test_ten_claimers_of_ten_and_fifty_jobs_get_five_each(daemon: DaemonProcess) -> None:
    make_queue(daemon, "shared", *range(50), claim_jitter_ms=250)
    counts: list[int] = []

    def claim(number: int) -> None:
        answer = daemon.ask(post("/v0/topics/shared/claim", {"node": f"n{number}", "max": 10}))
        counts.append(answer.json["count"])

    for _ in range(8):
        # They have to arrive within one window; on a machine that is busy elsewhere some may not.
        counts.clear()
        threads = [threading.Thread(target=claim, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(counts) == 50
        if counts == [5] * 10:
            return
        for number in range(10):
            rest = list(range(1, 51))
            body = {"node": f"n{number}", "seqs": rest, "delivered": False}
            daemon.ask(post("/v0/topics/shared/nack", body))
    raise AssertionError(f"never five each: {counts}")


def test_a_job_that_always_fails_does_not_delay_a_thousand_others(daemon: DaemonProcess) -> None:
    make_queue(daemon, "poison", *range(1001))
    claims = failed = done = longest = waited = 0
    with daemon.wire() as wire:

        def call(verb: str, **body: Any) -> Any:
            wire.send(post(f"/v0/topics/poison/{verb}", {"node": "n", **body}))
            return wire.answer().json

        while done < 1000:
            claims += 1
            job = call("claim")["claimed"][0]
            if job["data"] == 0:
                failed += 1
                waited += 1
                longest = max(longest, waited)
                assert call("nack", seqs=[job["$seq"]])["nacked"] == 1
                continue
            waited = 0
            done += 1
            assert call("ack", seqs=[job["$seq"]])["acked"] == 1
    assert claims <= 2003, "a healthy job gets at least every second place"
    assert longest <= 3, "its first two deliveries are as anybody's"
    assert failed >= 500, "and the job itself is not forgotten"


def test_a_client_that_goes_away_while_it_waits_gets_no_job(daemon: DaemonProcess) -> None:
    make_queue(daemon, "away")
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/away/claim", {"node": "gone", "wait_ms": 30_000}))
        deadline = time.monotonic() + 20
        while _queue(daemon, "away")["claim_waiters"] != 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    while _queue(daemon, "away")["claim_waiters"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    daemon.write("away", "a")
    shown = _queue(daemon, "away")
    assert (shown["ready"], shown["in_flight"]) == (1, 0)
    job = daemon.ask(post("/v0/topics/away/claim", {"node": "here"})).json["claimed"][0]
    assert job["deliveries"] == 1


def _queue(daemon: DaemonProcess, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = daemon.ask(request("GET", f"/v0/topics/{name}")).json["queue"]
    return shown
