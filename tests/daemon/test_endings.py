"""Whatever ends the daemon with 74 (the disk, or a bug) is the last thing that its log tells; a bug in what makes an
answer does not."""

from __future__ import annotations

import io
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.daemon.http2_kit import Client as Http2
from tests.daemon.intake_kit import Stream, head
from tests.daemon.kit import DaemonProcess, clean_environment, post, records_of, request, start
from tests.daemon.socket_kit import Client
from tests.waiting import until
from topics_daemon.daemon import Daemon
from topics_daemon.log import BURST, Log, describe

pytestmark = pytest.mark.slow

FAULTY = Path(__file__).with_name("faulty.py")
BUGGY = Path(__file__).with_name("buggy.py")


@contextmanager
def _faulty(directory: Path, **environ: str) -> Iterator[DaemonProcess]:
    """A daemon on a disk that fails on demand; killed if it is still there in the end."""
    daemon = start(directory, environ=clean_environment(FAULTS=str(directory), **environ), launcher=FAULTY)
    try:
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.wait(10)


def _events(daemon: DaemonProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines()]


def test_a_bug_of_the_engine_is_the_last_line_of_the_log(tmp_path: Path) -> None:
    with _faulty(tmp_path) as daemon:
        (tmp_path / "bug").touch()
        assert daemon.process.wait(20) == 74
    last = _events(daemon)[-1]
    assert (last["level"], last["code"], last["error"]) == ("error", 74, "ValueError")
    assert last["event"] == "ended by an internal error of the engine"
    assert "/faulty.py:" in last["at"]
    assert "/daemon.py:" in last["via"], "who called it is told, too"
    assert "payload" not in daemon.log


def test_a_disk_that_hangs_at_the_stop_is_told_with_the_thread_that_waits_for_it(tmp_path: Path) -> None:
    with _faulty(tmp_path, TOPICS_DRAIN_MS="100") as daemon, daemon.wire() as wire:
        (tmp_path / "hang").touch()
        wire.send(post("/v0/topics/t", {"records": [{"data": 1}]}))
        over = time.monotonic() + 20
        while not (tmp_path / "hangs").exists():
            assert time.monotonic() < over, "no sync was begun"
            time.sleep(0.02)
        assert daemon.stop() == 74
    said = [event for event in _events(daemon) if event["event"].startswith("the disk does not answer")]
    assert [event["s"] for event in said] == [1.1]
    threads = said[0]["threads"].split()
    assert "sync" in threads
    assert set(threads) <= {"sync", "chores"}, "log space may be prepared just then, and waits for the disk as well"
    assert _events(daemon)[-1]["code"] == 74


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_at_once_also_what_waits_for_the_disk(tmp_path: Path, number: int, code: int) -> None:
    """While the store is closed the loop does not turn: a signal that went through it came when all was over."""
    with _faulty(tmp_path) as daemon:
        daemon.write("t", "acked", ack="fsync")
        (tmp_path / "hang").touch()
        with daemon.wire() as wire:
            wire.send(post("/v0/topics/t", {"records": [{"data": "hangs"}], "ack": "fsync"}))
            until((tmp_path / "hangs").exists)
        daemon.process.send_signal(number)
        until(lambda: '"stopping"' in daemon.log)
        time.sleep(0.5)  # until it waits for the sync, for the eleven seconds that the drain time leaves it
        assert daemon.stop(number) == code
    assert _events(daemon)[-1]["event"] == "stopped at once"
    assert "the disk does not answer" not in daemon.log
    (tmp_path / "hang").unlink()
    with _faulty(tmp_path) as daemon:
        assert records_of(daemon.read("t"))[0] == "acked"


@pytest.fixture(scope="module")
def buggy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    daemon = start(tmp_path_factory.mktemp("buggy"), launcher=BUGGY)
    yield daemon
    assert daemon.stop() == 0, "no bug has ended it"
    assert "s3cret" not in daemon.log


ONE = {"records": [{"data": 1}]}


def test_a_bug_in_what_answers_a_ticket_costs_that_answer_and_what_was_done_stays_done_once(
    buggy: DaemonProcess,
) -> None:
    with buggy.wire() as wire:
        keyed = post("/v0/topics/bug", {"records": [{"data": "x"}], "idempotency_key": "k"})
        wire.send(post("/v0/topics/well", ONE) + keyed + keyed + post("/v0/topics/well", ONE))
        answers = [wire.answer() for _ in range(4)]
        assert [answer.status for answer in answers] == [201, 500, 500, 200]
        for answer in answers[1:3]:
            error = answer.json["error"]
            assert (error["code"], error["detail"]["outcome"]) == ("internal", "unknown")
            assert error["detail"]["id"] in buggy.log
        wire.send(keyed)  # by itself, and answered at once: it is there already
        assert wire.answer().status == 500
        wire.send(post("/v0/topics/well", ONE))
        assert wire.answer().json["seqs"] == [3]
    assert records_of(buggy.read("bug")) == ["x"]
    assert buggy.ask(post("/v0/topics/bug/delete", {"seqs": [1]})).status == 500
    assert records_of(buggy.read("bug")) == []
    with Http2(buggy) as client:
        assert client.answer(client.post("/v0/topics/bug", b'{"records":[{"data":1}]}'))[0] == 500
        assert client.answer(client.post("/v0/topics/well", b'{"records":[{"data":1}]}'))[0] == 200
    with Client(buggy) as socket:
        assert socket.ask("publish", topic="bug", records=[{"data": 1}])["code"] == "internal"
        assert socket.ask("publish", topic="well", records=[{"data": 1}])["op"] == "ack"


def test_a_bug_behind_an_answer_ends_its_connection_alone(buggy: DaemonProcess) -> None:
    with buggy.wire() as other, buggy.wire() as wire:
        wire.send(post("/v0/topics/late", ONE))
        assert wire.closed()
        other.send(post("/v0/topics/late/diff", {}))
        assert records_of(other.answer().json) == [1]


def test_jobs_whose_claim_meets_a_bug_are_free_again(buggy: DaemonProcess) -> None:
    assert buggy.ask(request("DELETE", "/v0/topics/bug")).status == 200
    assert buggy.ask(request("PUT", "/v0/topics/bug", {"type": "queue"})).status == 201
    claim = post("/v0/topics/bug/claim", {"node": "n", "wait_ms": 5000})
    with buggy.wire() as waiting:
        waiting.send(claim)
        assert buggy.ask(post("/v0/topics/bug", ONE)).status == 500
        assert waiting.answer().status == 500
    jobs = buggy.ask(claim).json["claimed"]  # there at once, and so no ticket's to answer
    assert [job["$seq"] for job in jobs] == [1]


def test_a_bug_in_what_answers_a_pin_or_a_detach_costs_that_answer(buggy: DaemonProcess, tmp_path: Path) -> None:
    pin = buggy.ask(post("/v0/admin/exports", {}, "Idempotency-Key: bug"))
    assert (pin.status, pin.json["error"]["detail"]["outcome"]) == (500, "unknown")
    assert len(buggy.ask(request("GET", "/v0/admin/exports")).json["exports"]) == 1
    assert buggy.ask(request("DELETE", "/v0/topics/bug")).status == 200
    assert buggy.ask(request("PUT", "/v0/topics/bug")).status == 201
    assert buggy.ask(post("/v0/topics/bug/detach", {"to": str(tmp_path)})).status == 500
    assert buggy.ask(request("DELETE", "/v0/topics/bug/detach")).status == 500
    assert buggy.ask(request("GET", "/v0/topics/bug")).status == 200, "it is here again"


def test_a_bug_in_the_results_of_a_stream_of_lines_ends_that_stream(buggy: DaemonProcess) -> None:
    assert buggy.ask(request("DELETE", "/v0/topics/bug")).status == 200
    with Stream(buggy, head("bug", "Content-Length: 4") + b"1\n2\n") as stream:
        (error,) = stream.rest()
    assert error["error"]["detail"]["outcome"] == "unknown"
    assert records_of(buggy.read("bug")) == [1, 2]


def test_a_storm_of_internal_errors_hides_not_the_one_that_ends_it() -> None:
    said, codes = io.StringIO(), list[int]()
    log = Log(said, as_text=False)
    for _ in range(BURST + 5):
        log.error("internal error", id="x")
    Daemon.bug(cast(Daemon, SimpleNamespace(log=log, die=codes.append)), ValueError("payload"))
    last = json.loads(said.getvalue().splitlines()[-1])
    assert (last["event"], codes) == ("ended by an internal error of the engine", [74])


def test_the_place_of_a_bug_is_told_from_the_inside_out() -> None:
    def inner() -> None:
        raise KeyError("payload")

    try:
        inner()
    except KeyError as error:
        told = describe(error)
    assert told["error"] == "KeyError"
    assert told["at"].rpartition(":")[0] == told["via"].rpartition(":")[0] == __file__
    assert int(told["at"].rpartition(":")[2]) < int(told["via"].rpartition(":")[2])
