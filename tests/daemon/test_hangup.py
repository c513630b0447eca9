"""SIGHUP: the key file is read again, and what was open on the word of a key that is gone ends at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, Events, Wire, clean_environment, daemon_process, post, request
from tests.waiting import until

pytestmark = pytest.mark.slow

WITHIN_S = 1.0
"""The least heartbeat that a stream may have: what a removed key has open must be gone by then."""


@contextmanager
def keyed_daemon(directory: Path, *entries: str) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon that reads its keys from a file."""
    file = directory / "keys"
    store(file, *entries)
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS_FILE=str(file))) as daemon:
        yield daemon, file


def store(file: Path, *entries: str) -> None:
    file.write_text("".join(f"{entry}\n" for entry in entries))
    file.chmod(0o600)


def reread(daemon: DaemonProcess, said: str = "configuration read again") -> None:
    """Send SIGHUP, and wait until the daemon has said so."""
    before = daemon.log.count(said)
    daemon.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while daemon.log.count(said) == before:
        assert time.monotonic() < deadline, daemon.log
        time.sleep(0.005)


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}"


def write(daemon: DaemonProcess, key: str, topic: str = "t", value: int = 1) -> int:
    return daemon.ask(post(f"/v0/topics/{topic}", {"records": [{"data": value}]}, bearer(key))).status


def stream(daemon: DaemonProcess, key: str, topic: str = "t") -> tuple[Events, str]:
    """An open stream that is caught up, and its URL."""
    answer = daemon.ask(post("/v0/watch", {"topics": {topic: {"tail": True}}, "heartbeat_ms": 1000}, bearer(key)))
    url = answer.json["stream_url"]
    events = Events(daemon, url, bearer(key))
    assert events.next()[0] == "caught-up"
    return events, url


def poll(daemon: DaemonProcess, key: str, topic: str = "t") -> Wire:
    """A long poll that waits."""
    wire = daemon.wire()
    head = daemon.ask(request("GET", f"/v0/topics/{topic}", None, bearer(key))).json["head_seq"]
    wire.send(post(f"/v0/topics/{topic}/diff", {"from_seq": head, "wait_ms": 20_000}, bearer(key)))
    return wire


def test_a_removed_key_is_401_and_what_it_has_open_ends_within_one_heartbeat(tmp_path: Path) -> None:
    with keyed_daemon(tmp_path, "stays", "goes") as (daemon, file):
        assert write(daemon, "goes") == 201
        kept_alive = daemon.wire()
        line = request("GET", "/v0/topics/t", None, bearer("goes"))
        kept_alive.send(line)
        assert kept_alive.answer().status == 200
        theirs, url = stream(daemon, "goes")
        ours, _ = stream(daemon, "stays")
        their_poll, our_poll = poll(daemon, "goes"), poll(daemon, "stays")
        many = daemon.wire()
        many.send(post("/v0/diff", {"topics": {"t": {"from_seq": 1}}, "max_wait_ms": 20_000}, bearer("goes")))
        # A request whose body is on its way while its key goes.
        half = daemon.wire()
        body = post("/v0/topics/t", {"records": [{"data": "half"}]}, bearer("goes"))
        half.send(body[:-5])
        time.sleep(0.1)

        store(file, "stays")
        began = time.monotonic()
        reread(daemon)
        name, data, _ = theirs.next()
        assert (name, data["code"], data["error"]) == ("error", 401, "unauthorized")
        assert theirs.wire.closed(WITHIN_S)
        assert their_poll.answer().status == 401
        assert many.answer().status == 401
        assert time.monotonic() - began < WITHIN_S
        half.send(body[-5:])
        assert half.answer().status == 401
        kept_alive.send(line)
        assert kept_alive.answer().status == 401
        assert write(daemon, "goes") == 401
        with daemon.wire() as wire:
            wire.send(request("GET", url, None, "Accept: text/event-stream", bearer("goes")))
            assert wire.answer().status == 401

        # The other key noticed nothing.
        assert write(daemon, "stays", value=2) == 200
        name, data, _ = ours.next()
        assert (name, [record["data"] for record in data["records"]]) == ("record", [2])
        assert our_poll.answer().json["records"][0]["data"] == 2
        assert "goes" not in daemon.log
        for wire in (kept_alive, theirs.wire, ours.wire, their_poll, our_poll, many, half):
            wire.close()


def test_a_key_that_loses_scopes_or_prefixes_loses_what_they_let_it_have(tmp_path: Path) -> None:
    with keyed_daemon(tmp_path, "full", "key") as (daemon, file):
        for topic in ("a", "b"):
            assert write(daemon, "full", topic) == 201
        on_a, _ = stream(daemon, "key", "a")
        on_b, url = stream(daemon, "key", "b")
        store(file, "full", "key:r:a")
        reread(daemon)
        name, data, _ = on_b.next()
        assert (name, data["code"], data["error"]) == ("error", 403, "forbidden")
        assert write(daemon, "full", "a", 7) == 200
        assert on_a.next()[1]["records"][0]["data"] == 7
        assert write(daemon, "key", "a") == 403
        with daemon.wire() as wire:
            wire.send(request("GET", url, None, "Accept: text/event-stream", bearer("key")))
            assert wire.answer().status == 403
        store(file, "full", "key:w:a")
        reread(daemon)
        assert on_a.next()[1]["error"] == "forbidden"
        on_a.close()
        on_b.close()
        # What comes back, comes back.
        store(file, "full", "key")
        reread(daemon)
        again = Events(daemon, url, bearer("key"))
        assert again.next()[0] == "caught-up"
        again.close()


@pytest.mark.parametrize(("entries", "code"), [(["full"], "unauthorized"), (["full", "key:w"], "forbidden")])
def test_a_request_that_waits_for_the_disk_is_not_answered_for_a_key_that_may_not_ask_any_more(
    tmp_path: Path, entries: list[str], code: str
) -> None:
    file = tmp_path / "keys"
    store(file, "full", "key")
    environ = clean_environment(TOPICS_API_KEYS_FILE=str(file), FAULTS=str(tmp_path))
    with daemon_process(environ=environ, launcher=Path(__file__).with_name("late.py")) as daemon:
        assert write(daemon, "full", "late") == 201
        (tmp_path / "hang").touch()
        with daemon.wire() as wire:
            wire.send(post("/v0/topics/late/diff", {}, bearer("key")))
            deadline = time.monotonic() + 10
            while not (tmp_path / "reads").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            store(file, *entries)
            reread(daemon)
            (tmp_path / "hang").unlink()
            assert wire.answer().code == code


def test_a_new_key_works_at_once(tmp_path: Path) -> None:
    with keyed_daemon(tmp_path, "full") as (daemon, file):
        assert write(daemon, "new") == 401
        store(file, "full", "new:w")
        reread(daemon)
        assert write(daemon, "new") == 201
        assert daemon.ask(request("GET", "/v0/topics/t", None, bearer("new"))).status == 403


def test_a_mistake_in_the_file_changes_nothing_and_is_said_without_the_secret(tmp_path: Path) -> None:
    with keyed_daemon(tmp_path, "full") as (daemon, file):
        store(file, "s3cret:nonsense")
        reread(daemon, "line 1 is malformed")
        assert write(daemon, "full") == 201
        assert write(daemon, "s3cret") == 401
        os.unlink(file)
        reread(daemon, "No such file")
        assert write(daemon, "full") == 200
        assert "s3cret" not in daemon.log


def test_an_emptied_file_lets_nobody_in(tmp_path: Path) -> None:
    with keyed_daemon(tmp_path, "full") as (daemon, file):
        assert write(daemon, "full") == 201
        open_stream, _ = stream(daemon, "full")
        store(file)
        reread(daemon)
        assert open_stream.next()[1]["error"] == "unauthorized"
        open_stream.close()
        assert write(daemon, "full") == 401
        assert daemon.ask(request("GET", "/v0/topics/t")).status == 401
        assert daemon.ask(request("GET", "/v0/health")).status == 200
        assert "no keys are left" in daemon.log
        store(file, "full")
        reread(daemon)
        assert write(daemon, "full") == 200


def test_the_log_level_is_taken_over_and_what_needs_a_restart_is_said(tmp_path: Path) -> None:
    config = tmp_path / "topics.toml"
    config.write_text('log_level = "info"\n')
    with daemon_process("--config", str(config)) as daemon:
        config.write_text('log_level = "debug"\nmax_topics = 5\n')
        reread(daemon, "needs a restart")
        assert '"setting": "max_topics"' in daemon.log
        assert '"setting": "api_keys' not in daemon.log


def test_a_key_file_that_hangs_holds_nobody_up_and_the_next_hangup_is_heeded(tmp_path: Path) -> None:
    """The loop read the file itself, and stood still until somebody wrote into the pipe."""
    with keyed_daemon(tmp_path, "stays", "goes") as (daemon, file):
        file.unlink()
        os.mkfifo(file, 0o600)
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)  # until it has come to the pipe
        assert write(daemon, "goes") == 201
        pipe = file.rename(tmp_path / "pipe")
        store(file, "stays")
        reread(daemon)
        assert write(daemon, "goes") == 401
        with pipe.open("w") as late:
            late.write("goes\n")
        time.sleep(0.3)
        assert (write(daemon, "goes"), write(daemon, "stays")) == (401, 200), "what was asked for earlier is too late"


def test_keys_that_came_from_a_pipe_stay_when_nothing_is_left_in_it(tmp_path: Path) -> None:
    """Of `--api-keys-file <(pass show topics)` there is nothing to be read again: it let nobody in any more."""
    read, put = os.pipe()
    os.write(put, b"secret\n")
    os.close(put)
    port_file = tmp_path / "port"
    flags = ["--data-dir", str(tmp_path / "data"), "--socket", "none", "--port", "0", "--port-file", str(port_file)]
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "topics_daemon.main", *flags, "--api-keys-file", f"/dev/fd/{read}"],
            env=clean_environment(),
            stderr=log,
            pass_fds=[read],
        )
    os.close(read)
    try:
        until(lambda: port_file.exists() or process.poll() is not None)
        daemon = DaemonProcess(process, int(port_file.read_text()), "", tmp_path)
        until(lambda: write(daemon, "secret") in (200, 201))
        reread(daemon, "what comes from a pipe cannot be read again")
        assert write(daemon, "secret") == 200
        assert daemon.stop() == 0
    finally:
        process.kill()
        process.wait()
