"""Start and stop: locks, sockets, signals, exit codes, readiness, recovery."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.daemon.kit import DaemonProcess, Wire, clean_environment, daemon_process, post, records_of, request, start
from tests.waiting import until

pytestmark = pytest.mark.slow


def signalled(daemon: DaemonProcess, number: int = signal.SIGTERM) -> None:
    """Send the first signal once all that was sent before has been read (what comes later was answered), and wait until
    the daemon has seen it."""
    for _ in range(3):
        daemon.is_well()
    daemon.process.send_signal(number)
    until(lambda: '"stopping"' in daemon.log)


def run(*flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`topicsd` with these flags, which is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "topics_daemon.main", *flags],
        capture_output=True,
        text=True,
        timeout=20,
        env=clean_environment(**environ),
        check=False,
    )


def test_what_was_acked_is_there_after_sigkill(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    for number in range(50):
        daemon.write("t", number)
    daemon.process.kill()
    daemon.process.wait()
    again = start(tmp_path)
    assert records_of(again.read("t")) == list(range(50))
    assert again.stop() == 0


def test_F57_S14_a_second_daemon_on_the_directory_stops_with_73_and_names_the_first(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    other = run("--data-dir", str(tmp_path / "data"), "--port", "0", "--socket", str(tmp_path / "other" / "sock"))
    assert other.returncode == 73
    assert f"process {daemon.pid}" in other.stderr
    assert not (tmp_path / "other" / "sock").exists()
    daemon.is_well()
    assert daemon.stop() == 0


def test_S14_a_live_socket_is_never_taken_from_its_daemon(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    other = run("--data-dir", str(tmp_path / "b"), "--port", "none", "--socket", daemon.socket_path)
    assert other.returncode == 73
    assert "another daemon" in other.stderr
    assert daemon.ask(request("GET", "/v0/health"), unix=True).status == 200
    assert daemon.stop() == 0
    assert not Path(daemon.socket_path).exists()


def test_a_live_default_socket_makes_the_next_daemon_fall_back_to_its_data_directory(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environ = clean_environment(XDG_RUNTIME_DIR=str(runtime))
    processes = []
    try:
        for name in ("a", "b"):
            log = (tmp_path / f"{name}.log").open("w")
            command = [sys.executable, "-m", "topics_daemon.main", "--data-dir", str(tmp_path / name), "--port", "none"]
            processes.append(subprocess.Popen(command, env=environ, stderr=log))
            log.close()
            deadline = time.monotonic() + 15
            while '"ready"' not in (tmp_path / f"{name}.log").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert (runtime / "topics" / "topics.sock").is_socket()
        assert (tmp_path / "b" / "topics.sock").is_socket()
        assert "falls back" in (tmp_path / "b.log").read_text()
    finally:
        for process in processes:
            process.terminate()
        assert [process.wait(10) for process in processes] == [0] * len(processes)


def test_S14_a_stale_socket_is_replaced_and_a_file_of_another_kind_is_not(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(tmp_path / "run" / "topics.sock"))
    stale.close()
    daemon = start(tmp_path)
    assert daemon.ask(request("GET", "/v0/health"), unix=True).status == 200
    assert daemon.stop() == 0
    precious = tmp_path / "precious"
    precious.write_text("mine")
    other = run("--data-dir", str(tmp_path / "b"), "--port", "none", "--socket", str(precious))
    assert other.returncode == 73
    assert precious.read_text() == "mine"


def test_S14_of_daemons_that_start_at_once_one_has_the_socket(tmp_path: Path) -> None:
    """Both found the same stale one, and the second removed what the first had just put in its place."""
    directory, path = tmp_path / "run", str(tmp_path / "run" / "sock")
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    handle = os.open(directory, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as who is a moment earlier
    with (tmp_path / "log").open("wb") as log, socket.socket(socket.AF_UNIX) as other:
        process = subprocess.Popen(
            [sys.executable, "-m", "topics_daemon.main", "--data-dir", str(tmp_path), "--port", "0", "--socket", path],
            env=clean_environment(),
            stderr=log,
        )
        try:
            until(lambda: b'"starting"' in (tmp_path / "log").read_bytes())
            time.sleep(0.3)  # until it has come to the lock
            os.unlink(path)
            other.bind(path)
            other.listen()
            os.close(handle)
            assert process.wait(20) == 73
            assert "another daemon listens" in (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()


def test_S13_the_socket_is_ours_alone_and_so_is_what_is_made_for_it(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    path = Path(daemon.socket_path)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert daemon.stop() == 0


def test_S14_a_socket_that_is_not_ours_any_more_is_left_alone_at_the_end(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    path = Path(daemon.socket_path)
    path.unlink()
    path.write_text("somebody else's")
    assert daemon.stop() == 0
    assert path.read_text() == "somebody else's"


def test_S13_S21_directories_that_others_can_write_are_refused_with_77(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    data = run("--data-dir", str(loose), "--port", "0", "--socket", "none")
    assert data.returncode == 77
    door = run("--data-dir", str(tmp_path / "d"), "--port", "none", "--socket", str(loose / "sock"))
    assert door.returncode == 77


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # refused is what it has to be
def test_an_address_that_is_not_loopback_needs_keys(tmp_path: Path, host: str) -> None:
    ended = run("--data-dir", str(tmp_path / "d"), "--host", host, "--port", "0", "--socket", "none")
    assert ended.returncode == 78
    assert "TOPICS_ALLOW_INSECURE_NO_AUTH" in ended.stderr


def test_no_door_at_all_is_a_mistake(tmp_path: Path) -> None:
    assert run("--data-dir", str(tmp_path / "d"), "--port", "none", "--socket", "none").returncode == 78


def test_a_port_that_is_taken_stops_the_start_with_73(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run("--data-dir", str(tmp_path / "d"), "--port", port, "--socket", "none").returncode == 73


def test_a_data_directory_that_cannot_be_made_is_73(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run("--data-dir", str(tmp_path / "file" / "d"), "--port", "0", "--socket", "none").returncode == 73


def test_damaged_data_is_refused_with_76(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    daemon.write("t", 1)
    assert daemon.stop() == 0
    store = tmp_path / "data" / "STORE"
    store.write_bytes(b"\0" * store.stat().st_size)
    ended = run("--data-dir", str(tmp_path / "data"), "--port", "0", "--socket", "none")
    assert ended.returncode == 76, ended.stderr


def test_without_a_snapshot_that_checks_a_trimmed_store_is_refused_with_76(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    for number in range(3):
        daemon.write("t", number)
        assert daemon.ask(post("/v0/admin/checkpoint", {})).status == 200
    assert daemon.stop() == 0
    snapshots = sorted((tmp_path / "data" / "meta").glob("snapshot-*.snap"))
    assert len(snapshots) == 2
    for path in snapshots:
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
    logs = {path: path.read_bytes() for path in (tmp_path / "data" / "wal").rglob("*.log")}
    ended = run("--data-dir", str(tmp_path / "data"), "--port", "0", "--socket", "none")
    assert ended.returncode == 76, ended.stderr
    for path in snapshots:
        assert path.name in ended.stderr
    assert "topics recover" in ended.stderr
    assert {path: path.read_bytes() for path in logs} == logs
    assert sorted((tmp_path / "data" / "meta").glob("snapshot-*.snap")) == snapshots


def test_the_first_signal_lets_what_is_in_flight_end(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    head = daemon.write("t", 1)["head_seq"]
    wires: list[Wire] = []
    for _ in range(5):
        wires.append(daemon.wire())
        wires[-1].send(post("/v0/topics/t/diff", {"from_seq": head, "wait_ms": 30000}))
    began = time.monotonic()
    signalled(daemon, signal.SIGINT)
    assert daemon.process.wait(20) == 0
    assert time.monotonic() - began < 20
    for wire in wires:
        assert wire.answer().json["records"] == []
        assert wire.closed()
        wire.close()


def test_a_request_that_never_ends_does_not_hold_the_stop_beyond_the_drain_time(tmp_path: Path) -> None:
    daemon = start(tmp_path, "--drain-ms", "300")
    with daemon.wire() as wire:
        wire.send(b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        wire.send(b"Content-Length: 100\r\n\r\n{")
        for _ in range(3):
            daemon.is_well()
        began = time.monotonic()
        assert daemon.stop() == 0
        assert 0.2 < time.monotonic() - began < 15


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_at_once_and_loses_nothing_acked(tmp_path: Path, number: int, code: int) -> None:
    daemon = start(tmp_path)
    daemon.write("t", 1)
    with daemon.wire() as wire:
        wire.send(b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        wire.send(b"Content-Length: 100\r\n\r\n{")
        signalled(daemon, number)
        assert daemon.stop(number) == code
    again = start(tmp_path)
    assert records_of(again.read("t")) == [1]
    assert again.stop() == 0


def test_new_requests_during_the_stop_are_503_shutting_down(tmp_path: Path) -> None:
    daemon = start(tmp_path, "--drain-ms", "10s")
    whole = post("/v0/topics/t", {"records": [{"data": 1}]})
    with daemon.wire() as wire:
        wire.send(whole[:-5])
        signalled(daemon)
        wire.send(whole[-5:])
        answer = wire.answer()
        assert (answer.status, answer.code) == (503, "shutting_down")
        assert answer.headers["retry-after"]
        assert wire.closed()
    assert daemon.process.wait(20) == 0


def test_writes_under_way_at_a_stop_are_answered_or_not_there(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    acked: list[int] = []

    def write_on() -> None:
        with daemon.wire() as wire:
            try:
                for number in range(100_000):
                    wire.send(post("/v0/topics/t", {"records": [{"data": number}]}))
                    if wire.answer().status in (200, 201):
                        acked.append(number)
            except (AssertionError, OSError):
                return

    writer = threading.Thread(target=write_on)
    writer.start()
    until(lambda: len(acked) > 20 or not writer.is_alive())
    assert daemon.stop() == 0
    writer.join(10)
    again = start(tmp_path)
    found: list[int] = []
    while len(found) < again.ask(request("GET", "/v0/topics/t")).json["count"]:
        found += records_of(again.read("t", from_seq=len(found), limit=1000))
    assert found[: len(acked)] == acked
    assert len(found) - len(acked) <= 1
    assert again.stop() == 0


def test_the_supervisor_hears_when_a_request_would_succeed_and_when_it_ends(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(10)
        environ = clean_environment(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="600000")
        daemon = start(tmp_path, environ=environ)
        heard = supervisor.recv(4096).decode()
        while not heard.startswith("READY=1"):
            heard = supervisor.recv(4096).decode()
        assert supervisor.recv(4096) == b"WATCHDOG=1"
        assert supervisor.recv(4096) == b"WATCHDOG=1"
        assert daemon.stop() == 0
        while not heard.startswith("STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000"):
            heard = supervisor.recv(4096).decode()


def test_the_port_file_names_the_port_and_goes_with_the_daemon(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    assert int((tmp_path / "port").read_text()) == daemon.port
    assert daemon.stop() == 0
    assert not (tmp_path / "port").exists()


def test_a_daemon_that_could_not_start_leaves_the_port_file_of_another(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    port_file = tmp_path / "port"
    flags = ("--port", str(daemon.port), "--port-file", str(port_file), "--socket", "none")
    assert run("--data-dir", str(tmp_path / "other"), *flags).returncode == 73
    assert port_file.read_text() == f"{daemon.port}\n"
    assert daemon.stop() == 0
    assert not port_file.exists()


def test_the_log_is_one_json_object_a_line_without_payloads() -> None:
    with daemon_process("--log-level", "debug") as daemon:
        daemon.write("t", "a payload that nobody should read")
        for line in daemon.log.splitlines():
            assert json.loads(line)["event"]
        assert "payload" not in daemon.log


def test_F58_a_data_directory_that_is_moved_away_makes_the_daemon_read_only(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    daemon.write("t", 1)
    os.rename(tmp_path / "data", tmp_path / "moved")
    deadline = time.monotonic() + 10
    while daemon.ask(request("GET", "/v0/ready")).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert daemon.ask(post("/v0/topics/t", {"records": [{"data": 2}]})).code == "read_only"
    assert records_of(daemon.read("t")) == [1]
    assert daemon.stop() == 74


def test_F58_a_data_directory_that_went_away_just_before_the_end_is_no_good_end(tmp_path: Path) -> None:
    daemon = start(tmp_path)
    daemon.write("t", 1)
    shutil.rmtree(tmp_path / "data")
    assert daemon.stop() == 74
    assert "the data directory was moved or replaced" in daemon.log


def test_sighup_changes_the_log_level_and_says_what_would_need_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text('log_level = "info"\n')
    daemon = start(tmp_path, "--config", str(file))
    for content, expected in (
        ('log_level = "debug"\nmax_topics = 5\n', '"needs a restart", "setting": "max_topics"'),
        ('log_level = "loud"\n', "must be one of debug, info, warning, error"),
    ):
        file.write_text(content)
        daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 5
        while expected not in daemon.log:
            assert time.monotonic() < deadline, daemon.log
            time.sleep(0.02)
    daemon.is_well()
    assert daemon.stop() == 0


def test_print_config_says_where_each_value_came_from_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text('cache_bytes = "96MiB"\nlog_level = "debug"\n')
    keys = tmp_path / "keys"
    keys.write_text("f1le-secret\n")
    keys.chmod(0o600)
    environ = {"TOPICS_LOG_LEVEL": "error", "TOPICS_API_KEYS": "s3cret:rw", "TOPICS_API_KEYS_FILE": str(keys)}
    done = run("--config", str(file), "--print-config", "--port", "0", "--data-dir", str(tmp_path / "d"), **environ)
    assert done.returncode == 0
    for line in (
        f'cache_bytes = "96MiB"  # file {file}',
        'log_level = "error"  # environment TOPICS_LOG_LEVEL',
        'port = "0"  # flag --port',
        'api_keys = "********"  # environment TOPICS_API_KEYS',
        'host = "127.0.0.1"  # default',
    ):
        assert line in done.stdout.splitlines()
    assert "s3cret" not in done.stdout + done.stderr
    assert "f1le-secret" not in done.stdout + done.stderr
    assert not (tmp_path / "d").exists(), "nothing is made"


@pytest.mark.parametrize(
    ("flags", "environ", "code", "lines"),
    [
        (["--nonsense", "1"], {}, 64, 1),
        (["--port"], {}, 64, 1),
        (["--port", "99999", "--cache-bytes", "lots"], {"TOPICS_MAX_TOPICS": "-1"}, 78, 3),
        (["--config", "/nonexistent/topics.toml"], {}, 78, 1),
    ],
)
def test_a_mistake_is_a_line_on_stderr_and_an_exit_code(
    flags: list[str], environ: dict[str, str], code: int, lines: int
) -> None:
    done = run(*flags, **environ)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == lines, done.stderr


def test_an_unknown_key_in_a_file_stops_the_start_and_an_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text("max_topcis = 5\n")
    done = run("--config", str(file), "--data-dir", str(tmp_path / "d"))
    assert done.returncode == 78
    assert "'max_topcis'" in done.stderr
    with daemon_process(environ=clean_environment(TOPICS_MAX_TOPCIS="5")) as daemon:
        assert "unknown variable TOPICS_MAX_TOPCIS is ignored" in daemon.log


@pytest.mark.parametrize(("fault", "code"), [("sync", 74), ("forbidden", 77)])
def test_a_disk_that_fails_during_the_start_is_74_and_one_that_may_not_be_used_77(
    tmp_path: Path, fault: str, code: int
) -> None:
    daemon = start(tmp_path)
    daemon.write("t", 1)
    daemon.process.kill()
    daemon.process.wait()
    (tmp_path / fault).touch()
    launcher = str(Path(__file__).with_name("faulty.py"))
    done = subprocess.run(
        [sys.executable, launcher, "--data-dir", str(tmp_path / "data"), "--port", "0", "--socket", "none"],
        capture_output=True,
        text=True,
        timeout=30,
        env=clean_environment(FAULTS=str(tmp_path)),
    )
    assert done.returncode == code, done.stderr
    (tmp_path / fault).unlink()
    again = start(tmp_path)
    assert records_of(again.read("t")) == [1]
    assert again.stop() == 0


@pytest.mark.parametrize("records", [1, 100], ids=["small", "with a checkpoint"])
def test_a_sync_that_ends_while_the_daemon_stops_is_followed_by_the_last_one(tmp_path: Path, records: int) -> None:
    """A sync is under way and more waits for the next one: there was none, and the stop waited for it without end."""
    environ = clean_environment(FAULTS=str(tmp_path))
    daemon = start(tmp_path, environ=environ, launcher=Path(__file__).with_name("faulty.py"))
    for _ in range(records):
        daemon.write("t", "x" * 100_000)
    (tmp_path / "hang").touch()
    for _ in range(3):
        daemon.write("t", "x")
        until((tmp_path / "hangs").exists)
    daemon.process.terminate()
    until(lambda: '"stopping"' in daemon.log)
    time.sleep(0.3)  # until its threads are waited for; less is no harm, it only shows less
    (tmp_path / "hang").unlink()
    assert daemon.process.wait(30) == 0
    assert '"stopped"' in (tmp_path / "data" / "LOCK").read_text(), "in good order: all is synced"
    again = start(tmp_path)
    assert again.ask(request("GET", "/v0/topics/t")).json["count"] == records + 3
    assert again.stop() == 0


def test_a_signal_during_recovery_ends_it_with_0_and_the_next_start_is_whole(tmp_path: Path) -> None:
    first = start(tmp_path)
    first.write("t", *range(100))
    first.process.kill()
    first.process.wait()
    held = tmp_path / "held"
    held.touch()
    port_file = tmp_path / "port"
    port_file.unlink()
    arguments = [sys.executable, str(Path(__file__).with_name("held.py")), *first.arguments[3:]]
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(arguments, env=clean_environment(HELD=str(held)), stderr=log)
    deadline = time.monotonic() + 20
    while not port_file.exists():
        assert time.monotonic() < deadline, "it does not listen while it recovers"
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 0
    assert not port_file.exists()
    again = start(tmp_path)
    assert records_of(again.read("t")) == list(range(100))
    assert again.stop() == 0


@pytest.mark.parametrize("flag", ["--help", "--print-config"])
def test_what_is_shown_can_be_shown_on_any_terminal_and_says_what_a_full_disk_does(tmp_path: Path, flag: str) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    for encoding in ("ascii:strict", "latin-1:strict", "utf-8:strict"):
        done = run(flag, "--data-dir", path, PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (0, "")
    assert "/\\udcff" in done.stdout or flag == "--help"
    with open("/dev/full", "w") as full:
        full_up = subprocess.run(
            [sys.executable, "-m", "topics_daemon.main", flag],
            stdout=full,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            timeout=20,
        )
    said = b"topicsd: cannot write to stdout: No space left on device\n"
    assert (full_up.returncode, full_up.stderr) == (74, said)


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_daemon_whose_standard_streams_are_closed_serves_and_gives_their_numbers_to_no_file(
    tmp_path: Path, closed: str
) -> None:
    port_file = tmp_path / "port"
    flags = '--data-dir "$1/data" --socket none --port 0 --port-file "$1/port"'
    script = f'exec "$0" -m topics_daemon.main {flags} {closed}'
    process = subprocess.Popen(["/bin/sh", "-c", script, sys.executable, str(tmp_path)], env=clean_environment())
    try:
        until(lambda: port_file.exists() or process.poll() is not None)
        assert process.poll() is None
        daemon = DaemonProcess(process, int(port_file.read_text()), "", tmp_path)
        until(lambda: daemon.ask(request("GET", "/v0/ready")).status == 200)
        for number in range(3):
            if (" <&-", " >&-", " 2>&-")[number] in f" {closed}":
                assert Path(f"/proc/{process.pid}/fd/{number}").readlink() == Path(os.devnull)
        daemon.write("t", 1)
        process.send_signal(signal.SIGHUP)
        assert records_of(daemon.read("t")) == [1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_what_a_proxy_says_of_its_client_is_ignored() -> None:
    """`X-Forwarded-*` opens no door and names no peer: a client could have written it."""
    with daemon_process("--log-level", "debug") as daemon:
        headers = ("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Host: localhost", "X-Forwarded-Proto: https")
        assert daemon.ask(request("GET", "/v0/health", None, *headers)).status == 200
        rebound = request("GET", "/v0/health", None, *headers).replace(b"Host: localhost", b"Host: evil.example", 1)
        assert daemon.ask(rebound).status == 421
        assert "203.0.113.9" not in daemon.log


def test_a_connection_that_a_test_leaves_is_closed_with_its_daemon() -> None:
    """Left to the collector of garbage, those of a test that failed made others fail, which know nothing of them."""
    with daemon_process() as daemon:
        left, closed = daemon.wire(), daemon.wire()
        closed.close()
        assert daemon.wires == {left}
    assert left.sock.fileno() == -1
    assert not daemon.wires
