"""Every exit code that these commands can give, and the two lines that go with a failure."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.support import Daemon, clean_environment, run
from topics_cli import exits
from topics_cli.where import Where
from topics_cli.wire import Channel, Lost

pytestmark = pytest.mark.slow


@contextmanager
def answering(place: Path, *answers: bytes) -> Iterator[tuple[dict[str, str], list[bytes]]]:
    """A server that gives these answers, one a request (the last one for ever), and closes after half a one.

    Yields the environment that leads to it, and the requests that came.
    """
    path, seen = str(place / "fake.sock"), list[bytes]()
    left = list(answers)

    def serve(connection: socket.socket) -> None:
        with connection:
            while True:
                request = b""
                while b"\r\n\r\n" not in request:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    request += piece
                seen.append(request)
                answer = left.pop(0) if len(left) > 1 else left[0]
                connection.sendall(answer)
                if not answer.endswith((b"}", b"\n")):
                    return

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield {**clean_environment(), "TOPICS_SOCKET": path}, seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def refusal(status: int, code: str, extra: bytes = b"") -> bytes:
    """An error answer."""
    body = json.dumps({"error": {"code": code, "message": f"because of {code}"}}).encode()
    return b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b" % (status, extra, len(body), body)


WRITTEN = b'{"topic":"t","first_seq":1,"last_seq":1,"head_seq":1,"count":1,"created":false}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(WRITTEN), WRITTEN)


def test_1_is_a_refusal_told_in_two_lines(shared: Daemon) -> None:
    done = shared.run("write", "bad name", "x")
    assert done.returncode == 1
    first, second = done.stderr.decode().splitlines()
    assert first == "topics: no topic can be called 'bad name' (invalid_request)"
    assert second.startswith("  names match")


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["tail"],
        ["tail", "t", "--nonsense"],
        ["tail", "t", "-n", "x"],
        ["write", "t", "-0", "--length", "x"],
    ],
)
def test_2_is_a_mistake_on_the_command_line(shared: Daemon, words: list[str]) -> None:
    done = shared.run(*words)
    assert done.returncode == 2
    assert done.stdout == b""
    first, second = done.stderr.decode().splitlines()
    assert first.startswith("topics: ")
    assert first.endswith("(usage)")
    assert second.startswith("  ")


def test_a_mistyped_command_gets_a_suggestion(shared: Daemon) -> None:
    assert b"did you mean tail?" in shared.run("tial", "x").stderr


def test_69_is_no_daemon_there(place: Path) -> None:
    done = run("ls", "--socket", str(place / "none.sock"), environment=clean_environment())
    assert done.returncode == 69
    assert b"there is no socket (no_daemon)" in done.stderr
    done = run("ls", "--url", "http://127.0.0.1:9", environment=clean_environment())
    assert done.returncode == 69


@pytest.mark.parametrize(("status", "code"), [(429, "throttled"), (503, "not_ready")])
def test_75_is_a_daemon_that_stays_busy_through_the_retries(place: Path, status: int, code: str) -> None:
    with answering(place, refusal(status, code)) as (environment, seen):
        done = run("write", "t", "x", "--retry-for", "300ms", environment=environment)
        assert done.returncode == 75
        assert f"because of {code} ({code})".encode() in done.stderr
        assert len(seen) > 2
        keys = {line for request in seen for line in request.split(b"\r\n") if line.startswith(b"Idempotency-Key")}
        assert len(keys) == 1


def test_retry_for_0_never_tries_again(place: Path) -> None:
    with answering(place, refusal(503, "not_ready"), OK) as (environment, seen):
        assert run("write", "t", "x", "--retry-for", "0", environment=environment).returncode == 75
        assert len(seen) == 1


def test_a_busy_daemon_and_a_lost_connection_are_tried_again(place: Path) -> None:
    busy = refusal(429, "throttled")
    with answering(place, busy, b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"", OK) as (environment, _):
        done = run("write", "t", "x", environment=environment)
        assert (done.returncode, done.stdout) == (0, b"t 1-1\n"), done.stderr


@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_a_first_request_whose_answer_is_lost_is_tried_again_too(place: Path, last_words: bytes) -> None:
    """It may have been taken: whoever is told 69 would write it a second time."""
    with answering(place, last_words, OK) as (environment, seen):
        done = run("write", "t", "x", environment=environment)
        assert (done.returncode, done.stdout) == (0, b"t 1-1\n"), done.stderr
        assert len(seen) == 2
        assert seen[0] == seen[1], "the same idempotency key"


def test_a_lost_answer_is_69_where_nothing_is_tried_again(place: Path) -> None:
    with answering(place, b"") as (environment, seen):
        done = run("write", "t", "x", "--retry-for", "0", environment=environment)
        assert (done.returncode, len(seen)) == (69, 1)


def test_warnings_of_the_daemon_are_told_on_stderr(place: Path) -> None:
    body = WRITTEN[:-1] + b',"warnings":["unknown field x"]}'
    with answering(place, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) as (environment, _):
        done = run("write", "t", "x", environment=environment)
        assert (done.returncode, done.stdout) == (0, b"t 1-1\n")
        assert done.stderr == b"topics: warning: unknown field x\n"


@pytest.mark.slow
def test_retry_after_is_waited_for(place: Path) -> None:
    with answering(place, refusal(429, "throttled", b"Retry-After: 1\r\n"), OK) as (environment, _):
        begun = time.monotonic()
        assert run("write", "t", "x", environment=environment).returncode == 0
        assert time.monotonic() - begun >= 1.0


@pytest.mark.parametrize(("status", "code"), [(401, "unauthorized"), (403, "forbidden")])
def test_77_is_not_allowed(place: Path, status: int, code: str) -> None:
    with answering(place, refusal(status, code)) as (environment, _):
        done = run("ls", environment=environment)
        assert done.returncode == 77
        assert f"({code})".encode() in done.stderr


def test_77_is_a_socket_that_we_may_not_use(place: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may use every socket")
    with answering(place, OK) as (environment, _):
        os.chmod(place / "fake.sock", 0)
        assert run("ls", environment=environment).returncode == 77


def test_78_is_a_configuration_that_cannot_be_used(place: Path) -> None:
    environment = clean_environment()
    (place / ".topics.toml").write_text("socket = [")
    assert run("ls", environment=environment, cwd=place).returncode == 78
    assert run("ls", environment={**environment, "TOPICS_URL": "ftp://x"}).returncode == 78
    assert run("ls", "--key-file", str(place / "none"), "--socket", "/x", environment=environment).returncode == 78


def test_json_output_gives_the_apis_error_object_on_stderr(shared: Daemon, topic: str) -> None:
    done = shared.run("info", topic, "-o", "json")
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["detail"]["topic"]) == ("topic_not_found", topic)
    for words in (["tail", "-o", "json"], ["ls", "-o", "json", "--socket", "/nowhere"]):
        error = json.loads(shared.run(*words).stderr)["error"]
        assert error["code"] in ("usage", "no_daemon")


def test_the_key_is_presented_and_its_first_line_counts(place: Path) -> None:
    (place / "key").write_text("secret\nrest\n")
    with answering(place, OK) as (environment, seen):
        run("write", "t", "x", "--key-file", str(place / "key"), environment=environment)
        run("write", "t", "x", environment={**environment, "TOPICS_KEY": "other"})
    assert b"Authorization: Bearer secret\r\n" in seen[0]
    assert b"Authorization: Bearer other\r\n" in seen[1]


def test_an_argument_that_is_no_text_is_a_mistake_on_the_command_line(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic)
    bad = b"\xff"
    lines: list[list[str | bytes]] = [["tail", topic, "--tag", bad], ["write", topic, "x", "--tag", bad], ["ls", bad]]
    for words in lines:
        done = shared.run(*words)
        assert done.returncode in (1, 2), done
        assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_retry_is_told_once_where_nobody_watches(place: Path) -> None:
    done = run("ls", "--socket", str(place / "none"), "--retry-for", "1500ms", environment=clean_environment())
    assert done.returncode == 69
    assert done.stderr.count(b"trying again") == 1
    done = run("ls", "--socket", str(place / "none"), "--retry-for", "1500ms", "-q", environment=clean_environment())
    assert b"trying again" not in done.stderr


def test_an_answer_may_come_in_any_pieces(place: Path) -> None:
    chunked = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    half = len(WRITTEN) // 2
    for part in (WRITTEN[:half], WRITTEN[half:]):
        chunked += b"%x;x=y\r\n%b\r\n" % (len(part), part)
    chunked += b"0\r\n\r\n"
    for size in (1, 7, 1000):
        taken = Channel(Where("here", path="/x"))
        assert feed(taken, chunked, size) == WRITTEN
        assert feed(taken, OK, size) == WRITTEN
    for wrong in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
        with pytest.raises(Lost):
            feed(Channel(Where("here", path="/x")), wrong, 5)


def feed(channel: Channel, answer: bytes, size: int) -> bytes:
    """What a channel makes of an answer that comes in pieces."""
    channel._reset()
    for at in range(0, len(answer), size):
        found = channel._take(answer[at : at + size])
        if found is not None:
            assert at + size >= len(answer)
            return found.body
    raise AssertionError("the answer was not whole")


TESTED = {
    exits.DONE: "test_exits.test_a_busy_daemon_and_a_lost_connection_are_tried_again",
    exits.FAILED: "test_exits.test_1_is_a_refusal_told_in_two_lines",
    exits.USAGE: "test_exits.test_2_is_a_mistake_on_the_command_line",
    exits.NOTHING: "test_queue.test_a_claim_prints_a_line_a_job_with_its_lease_and_an_empty_queue_exits_3",
    exits.DAMAGE: "test_files.test_damage_is_a_line_an_object_and_exit_4",
    exits.LOSS: "test_files.test_recover_says_what_is_lost_keeps_the_bytes_and_ends_with_5",
    exits.STALE: "test_queue.test_claimed_jobs_are_acked_through_a_pipe",
    exits.GAP: "test_tail.test_a_gap_is_told_on_stderr_and_in_ndjson_and_fails_where_asked",
    exits.NO_DAEMON: "test_exits.test_69_is_no_daemon_there",
    exits.TRY_AGAIN: "test_exits.test_75_is_a_daemon_that_stays_busy_through_the_retries",
    exits.NOT_ALLOWED: "test_exits.test_77_is_not_allowed",
    exits.CONFIGURATION: "test_exits.test_78_is_a_configuration_that_cannot_be_used",
    exits.CANNOT_EXECUTE: "test_worker.test_a_command_that_is_not_there_touches_no_job_and_exits_127",
    exits.COMMAND_NOT_FOUND: "test_worker.test_a_command_that_is_not_there_touches_no_job_and_exits_127",
    exits.INTERRUPTED: "test_kill.test_waiting_for_a_daemon_ends_within_a_tenth_of_a_second_of_ctrl_c",
    exits.CLOSED_PIPE: "test_tail.test_a_closed_pipe_ends_it_silently_with_141",
    exits.TERMINATED: "test_tail.test_sigterm_ends_a_follower_with_143_and_saves_its_cursor",
}
"""Where each exit code of the table is shown by a command that ends with it."""


def test_every_exit_code_of_the_table_has_a_test_that_names_it() -> None:
    assert set(TESTED) == set(exits.MEANINGS)
    for code, place in TESTED.items():
        module, _, name = place.partition(".")
        function = getattr(importlib.import_module(f"tests.cli.{module}"), name)
        assert re.search(rf"\b{code}\b", inspect.getsource(function)), place
