"""The supervisor's side: status and more time while a start is slow, sockets that are passed, and the unit file."""

from __future__ import annotations

import configparser
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.daemon.filtered import LIBRARY
from tests.daemon.kit import DaemonProcess, clean_environment, post, records_of, request, serving, start
from topics_daemon.config import BY_NAME
from topics_daemon.lifecycle import FDS_RESERVED
from topics_daemon.listen import CannotListen
from topics_daemon.supervisor import Notifier, passed_sockets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).with_name("faulty.py")
UNIT = ROOT / "packaging" / "topicsd.service"


def has_library(name: str) -> bool:
    """Whether a library of the system is there."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def test_a_slow_start_says_how_far_it_is_asks_for_time_and_is_ready_when_a_request_succeeds(tmp_path: Path) -> None:
    """What is heard before READY is status, and the time that is asked for; the disk is let go after two of them."""
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / "hang").touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(20)
        slow: list[str] = []

        def hear_and_release() -> None:
            slow.extend(supervisor.recv(4096).decode() for _ in range(2))
            (faults / "hang").unlink()

        thread = threading.Thread(target=hear_and_release)
        thread.start()
        environ = clean_environment(NOTIFY_SOCKET=str(tmp_path / "notify"), FAULTS=str(faults))
        daemon = start(tmp_path, environ=environ, launcher=LAUNCHER)
        thread.join()
        heard = supervisor.recv(4096).decode()
        while not heard.startswith("READY=1"):
            slow.append(heard)
            heard = supervisor.recv(4096).decode()
        assert len(slow) >= 2
        for text in slow:
            assert text.startswith("STATUS=recovering, ")
            assert text.endswith("%\nEXTEND_TIMEOUT_USEC=30000000")
        assert daemon.ask(request("GET", "/v0/topics")).status == 200
        assert daemon.stop() == 0


class Manager:
    """Does to one daemon what a service manager does to a unit of `Type=notify` with `Restart=on-failure`.

    Whoever is not ready when its time to start is over is killed and started again; `EXTEND_TIMEOUT_USEC` gives it
    more, counted from when it was said.
    """

    def __init__(self, directory: Path, start_s: float, *flags: str, **environ: str) -> None:
        self.directory, self.start_s = directory, start_s
        self.starts = 0
        self.heard: list[str] = []
        """What was said before READY, in order."""
        self._flags = flags
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "manager"))
        self._environ = clean_environment(NOTIFY_SOCKET=str(directory / "manager"), **environ)

    def start(self) -> DaemonProcess:
        """Start it, again and again until it is ready; returns at once when it says so."""
        port_file = self.directory / "port"
        while self.starts < 3:
            self.starts += 1
            arguments = [sys.executable, *self._flags, "--data-dir", str(self.directory / "data"), "--port", "0"]
            arguments += ["--port-file", str(port_file), "--socket", "none"]
            with (self.directory / "log").open("ab") as log:
                process = subprocess.Popen(arguments, env=self._environ, stderr=log)
            deadline = time.monotonic() + self.start_s
            while (left := deadline - time.monotonic()) > 0 and process.poll() is None:
                self._socket.settimeout(min(left, 0.5))
                try:
                    lines = self._socket.recv(4096).decode().split("\n")
                except TimeoutError:
                    continue
                if "READY=1" in lines:
                    return DaemonProcess(process, int(port_file.read_text()), "", self.directory)
                self.heard += lines
                for line in lines:
                    if line.startswith("EXTEND_TIMEOUT_USEC="):
                        deadline = max(deadline, time.monotonic() + int(line.partition("=")[2]) / 1e6)
            process.kill()
            process.wait()
        raise AssertionError(f"it is started again and again: {self.heard}")

    def next(self, within_s: float = 20.0) -> str | None:
        """What it says next; None when it says nothing for so long."""
        self._socket.settimeout(within_s)
        try:
            return self._socket.recv(4096).decode()
        except TimeoutError:
            return None

    def close(self) -> None:
        self._socket.close()


START_S = 8.0


def test_a_replay_that_takes_longer_than_a_start_may_is_not_begun_again(tmp_path: Path) -> None:
    """Fourteen megabytes of log on a disk that takes seconds for some of them: longer than `TimeoutStartSec`."""
    first = start(tmp_path)
    for _ in range(14):
        first.write("t", *["x" * 1000] * 1000)
    first.process.kill()
    first.process.wait()
    (tmp_path / "port").unlink()
    launcher = str(Path(__file__).with_name("slow.py"))
    manager = Manager(tmp_path, START_S, launcher, SLOW_S="2.5", WATCHDOG_USEC="900000")
    began = time.monotonic()
    daemon = None
    try:
        daemon = manager.start()
        # The moment of READY: a write and a read succeed, without a second try.
        assert daemon.ask(post("/v0/topics/t", {"records": [{"data": "after"}]})).status == 200
        assert daemon.ask(request("GET", "/v0/topics/t")).json["count"] == 14_001
        assert time.monotonic() - began > START_S, "it did take longer: without more time it would have been killed"
        assert manager.starts == 1
        shares = [int(line.split()[1].rstrip("%")) for line in manager.heard if line.startswith("STATUS=recovering, ")]
        assert len(shares) >= 5
        assert shares == sorted(shares)
        assert len(set(shares)) >= 4, "it says how far it is"
        assert "WATCHDOG=1" not in manager.heard, "the watchdog begins with READY"
        assert [manager.next() for _ in range(2)] == ["WATCHDOG=1"] * 2
        daemon.process.send_signal(signal.SIGSTOP)
        while manager.next(1.5) is not None:
            pass  # what was under way: it is the loop that feeds the watchdog, and the loop stands still
        daemon.process.send_signal(signal.SIGCONT)
        assert manager.next() == "WATCHDOG=1"
        assert daemon.stop() == 0
    finally:
        if daemon is not None and daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        manager.close()


def test_without_more_time_the_same_start_is_a_loop(tmp_path: Path) -> None:
    """The stand-in would notice: a start that hangs before it says anything is begun again."""
    held = tmp_path / "held"
    held.touch()
    script = f"import time\nwhile __import__('os').path.exists({str(held)!r}): time.sleep(0.05)"
    manager = Manager(tmp_path, 0.3, "-c", script)
    try:
        with pytest.raises(AssertionError, match="again and again"):
            manager.start()
        assert manager.starts == 3
    finally:
        manager.close()


def with_passed(tmp_path: Path, listeners: list[socket.socket], **more: str) -> subprocess.Popen[bytes]:
    """A daemon to which sockets are passed from descriptor 3 on, as systemd does it."""
    script = (
        "import os, sys; fds = [int(n) for n in sys.argv[1].split(',')]\n"
        "for to, fd in enumerate(fds, 3): os.dup2(fd, to)\n"
        "os.environ['LISTEN_PID'] = str(os.getpid()); os.environ['LISTEN_FDS'] = str(len(fds))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'topics_daemon.main', *sys.argv[2:]])"
    )
    # High enough that nothing is overwritten while descriptors are moved to their places.
    high = [os.dup2(listener.fileno(), 60 + index) for index, listener in enumerate(listeners)]
    try:
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", script, ",".join(map(str, high)), "--data-dir", str(tmp_path / "data")],
                env=clean_environment(**more),
                stderr=log,
                pass_fds=high,
            )
    finally:
        for fd in high:
            os.close(fd)


def test_sockets_that_are_passed_are_served_and_no_others(tmp_path: Path) -> None:
    path = str(tmp_path / "passed.sock")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        unix.bind(path)
        for listener in (tcp, unix):
            listener.listen()
        process = with_passed(tmp_path, [tcp, unix])
        daemon = DaemonProcess(process, tcp.getsockname()[1], path, tmp_path)
        deadline = time.monotonic() + 20
        # The queue of the socket holds what came before the daemon did.
        while daemon.ask(request("GET", "/v0/ready")).status != 200:
            assert time.monotonic() < deadline, daemon.log
            time.sleep(0.01)
        assert daemon.ask(request("GET", "/v0/topics"), unix=True).status == 200
        assert '"passed": 2' in daemon.log
        assert not (tmp_path / "data" / "topics.sock").exists()
        assert daemon.stop() == 0
        # Whoever passed the socket keeps it.
        assert Path(path).exists()


def test_a_passed_address_that_is_open_needs_keys_too(tmp_path: Path) -> None:
    with socket.socket() as tcp:
        tcp.bind(("0.0.0.0", 0))
        tcp.listen()
        assert with_passed(tmp_path, [tcp]).wait(20) == 78
    assert "no keys are configured" in (tmp_path / "log").read_text()


def test_what_is_passed_but_is_no_door_is_a_mistake(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        idle, datagrams, packets, machines = (
            stack.enter_context(socket.socket(*kind))
            for kind in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_SEQPACKET),
                (socket.AF_VSOCK, socket.SOCK_STREAM),
            )
        )
        packets.bind(str(tmp_path / "packets"))
        machines.bind((socket.VMADDR_CID_ANY, socket.VMADDR_PORT_ANY))
        for listener in (packets, machines):
            listener.listen()
        for passed in (idle, datagrams, packets, machines):
            assert with_passed(tmp_path, [passed]).wait(20) == 78
    said = "descriptor 3, which was passed, is no listening socket of TCP or a Unix stream"
    assert (tmp_path / "log").read_text().count(said) == 4


def test_what_was_passed_to_another_process_is_not_ours_and_variables_are_used_up() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "OTHER": "y"}
    assert passed_sockets(environ) == []
    assert environ == {"OTHER": "y"}
    for count in ("", "x", "-1", "+1", "1_0"):
        assert passed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count}) == []
    with pytest.raises(CannotListen):
        passed_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "65"})


def test_a_watchdog_that_is_meant_for_another_process_is_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    assert Notifier().watchdog_s == 3.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert Notifier().watchdog_s == 0.0


def unit(path: Path) -> configparser.ConfigParser:
    """A unit file; of settings that are given twice, the last."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(path.read_text())
    return parser


def test_a_supervisor_that_reads_nothing_holds_nobody_up_and_hears_all_of_it_later(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(address)
        supervisor.settimeout(10)
        fill(address)
        with serving(tmp_path, environ=clean_environment(NOTIFY_SOCKET=address, WATCHDOG_USEC="60000")) as daemon:
            daemon.write("t", 1)
            time.sleep(0.2)  # for some signs of life that find no room
            daemon.is_well()
            heard = supervisor.recv(4096)
            while heard == b"x":
                heard = supervisor.recv(4096)
            assert set(heard.split(b"\n")) == {b"READY=1", b"STATUS=serving", b"WATCHDOG=1"}
            assert supervisor.recv(4096) == b"WATCHDOG=1", "what was heard is not said again"
            fill(address)
        # It did not wait for the last word either.


def fill(address: str) -> None:
    """Send to a socket until it has no room."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect(address)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(b"x")


def test_the_unit_says_what_the_daemon_needs() -> None:
    service = unit(UNIT)["Service"]
    assert service["Type"] == "notify"
    assert service["DynamicUser"] == "yes"
    assert service["StateDirectory"] == service["RuntimeDirectory"] == "topics"
    # A start that is wrong is not repeated; one that met damage neither.
    assert {"64", "73", "76", "77", "78"} <= set(service["RestartPreventExitStatus"].split())
    assert int(service["LimitNOFILE"]) >= BY_NAME["max_connections"].default + FDS_RESERVED
    # The boot id tells a kill from a power failure: it has to be readable.
    assert "ProcSubset" not in service
    for line in UNIT.read_text().splitlines():
        if line.startswith("Environment="):
            assert line.removeprefix("Environment=").partition("=")[0].removeprefix("TOPICS_").lower() in BY_NAME


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_hardened() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not has_library(LIBRARY),
    reason="systemd-analyze or libseccomp is not installed",
)
def test_the_daemon_does_all_its_work_behind_the_filter_of_its_unit(tmp_path: Path) -> None:
    """What its threads may not do was seen by nobody: it said that it was ready, and no sync ever came."""
    with serving(tmp_path, launcher=Path(__file__).with_name("filtered.py")) as daemon:
        assert "\nSeccomp:\t2\n" in Path(f"/proc/{daemon.pid}/status").read_text(), "there is no filter"
        daemon.write("t", "synced", ack="fsync")
        assert daemon.ask(post("/v0/admin/checkpoint", {})).status == 200
        export = daemon.ask(post("/v0/admin/exports", {}))
        assert export.status == 201, export
        policies = {os.sched_getscheduler(int(task.name)) for task in Path(f"/proc/{daemon.pid}/task").iterdir()}
        assert policies == {os.SCHED_OTHER, os.SCHED_BATCH}
    with serving(tmp_path, launcher=Path(__file__).with_name("filtered.py")) as daemon:
        assert records_of(daemon.read("t")) == ["synced"]
