"""What clients see when the disk fails: F10 (a failed sync), F20 (no space), F12 (a sync that hangs), or is slow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, clean_environment, post, records_of, request, start
from tests.waiting import until

pytestmark = pytest.mark.slow

LAUNCHER = Path(__file__).with_name("faulty.py")


@contextmanager
def faulty(directory: Path, *flags: str) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon whose disk fails on demand; killed at the end if it is still there."""
    faults = directory / "faults"
    faults.mkdir(exist_ok=True)
    daemon = start(directory, *flags, environ=clean_environment(FAULTS=str(faults)), launcher=LAUNCHER)
    try:
        yield daemon, faults
    finally:
        for name in faults.iterdir():
            name.unlink()
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()


def test_F10_after_a_failed_sync_writes_are_503_reads_go_on_and_ready_says_why(tmp_path: Path) -> None:
    with faulty(tmp_path) as (daemon, faults):
        daemon.write("t", 1, config={"durability": "fsync"})
        (faults / "sync").touch()
        answer = daemon.ask(post("/v0/topics/t", {"records": [{"data": 2}]}))
        assert answer.status == 503
        assert answer.code == "read_only"
        assert answer.json["error"]["detail"]["outcome"] == "unknown"
        assert answer.headers["retry-after"]
        (faults / "sync").unlink()
        refused = daemon.ask(post("/v0/topics/t", {"records": [{"data": 3}]}))
        assert (refused.status, refused.code) == (503, "read_only")
        assert "outcome" not in refused.json["error"].get("detail", {})
        assert records_of(daemon.read("t")) == [1]
        assert daemon.ask(request("GET", "/v0/health")).status == 200
        ready = daemon.ask(request("GET", "/v0/ready"))
        assert (ready.status, ready.code) == (503, "read_only")
        assert "sync failed" in daemon.log
        until(lambda: '"event": "read only"' in daemon.log)
        assert daemon.log.count('"event": "read only"') == 1
        checkpoint = daemon.ask(request("POST", "/v0/admin/checkpoint"))
        assert (checkpoint.status, checkpoint.code) == (503, "read_only"), "trying again helps nobody"
        assert "restart the daemon" in checkpoint.json["error"]["message"]
        daemon.stop()
    with faulty(tmp_path) as (daemon, _):
        assert records_of(daemon.read("t"))[0] == 1
        daemon.write("t", 4)


def test_F20_without_space_writes_are_507_deletes_work_and_writing_resumes_by_itself(tmp_path: Path) -> None:
    with faulty(tmp_path, "--wal-file-bytes", "1MiB") as (daemon, faults):
        daemon.write("t", "first")
        (faults / "space").touch()
        statuses = []
        for _ in range(200):
            answer = daemon.ask(post("/v0/topics/t", {"records": [{"data": "x" * 50_000}]}))
            statuses.append(answer.status)
            if answer.status == 507:
                break
        assert statuses[-1] == 507, statuses
        assert answer.code == "disk_full"
        assert answer.headers["retry-after"]
        assert daemon.ask(post("/v0/topics/t/delete", {"seqs": [1]})).json["deleted"] == 1
        assert daemon.read("t", limit=1)["records"][0]["$seq"] == 2
        assert daemon.ask(request("GET", "/v0/ready")).status == 200
        time.sleep(1.5)  # it is tried again each second
        (faults / "space").unlink()
        deadline = time.monotonic() + 10
        while (answer := daemon.ask(post("/v0/topics/t", {"records": [{"data": "again"}]}))).status != 200:
            assert answer.status == 507
            assert time.monotonic() < deadline
            time.sleep(0.1)
        until(lambda: "log space is there again" in daemon.log)
        assert daemon.log.count("log space could not be prepared") == 1, "said once, not each second"
        assert daemon.stop() == 0


def test_F12_a_sync_that_hangs_makes_the_daemon_not_ready_and_its_waiters_unknown(tmp_path: Path) -> None:
    with faulty(tmp_path) as (daemon, faults):
        daemon.write("t", 1, config={"durability": "fsync"})
        (faults / "hang").touch()
        with daemon.wire() as wire:
            wire.sock.settimeout(20)
            wire.send(post("/v0/topics/t", {"records": [{"data": 2}], "idempotency_key": "k"}))
            assert daemon.ask(request("GET", "/v0/health")).status == 200
            answer = wire.answer()
            assert answer.status == 503
            assert answer.json["error"]["detail"]["outcome"] == "unknown"
        assert daemon.ask(request("GET", "/v0/ready")).status == 503
        (faults / "hang").unlink()
        deadline = time.monotonic() + 10
        while daemon.ask(request("GET", "/v0/ready")).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        again = daemon.write("t", 2, idempotency_key="k")
        assert (again["first_seq"], again["deduped"]) == (2, True)
        assert daemon.stop() == 0


def test_who_is_answered_by_a_sync_and_writes_again_shares_the_next_one_with_who_waits_for_it(tmp_path: Path) -> None:
    one, two, three = (post("/v0/topics/t", {"records": [{"data": number}]}) for number in (1, 2, 3))
    with faulty(tmp_path) as (daemon, faults), daemon.wire() as first, daemon.wire() as second:
        daemon.write("t", 0, config={"durability": "fsync"})
        (faults / "hang").touch()
        # A read waits for the writes before it, and a write for that read: it is taken up when the first is answered.
        first.send(one + request("GET", "/v0/topics/t") + three)
        until((faults / "hangs").exists)
        second.send(two)
        assert daemon.ask(request("GET", "/v0/health")).status == 200
        (faults / "hang").unlink()
        answers = [first.answer().json, first.answer().json, first.answer().json, second.answer().json]
        assert [answers[at]["first_seq"] for at in (0, 3, 2)] == [2, 3, 4]
        took = [answers[at]["performance"]["fsync_ms"] for at in (0, 3, 2)]
        assert took[1] == took[2] != took[0]
        assert daemon.stop() == 0
