"""Processes under load: the daemon, the floor, and the peers that are installed. Each alone in a fresh directory.

CPU is user + system of the whole process, by the clock that the kernel keeps for it (to the nanosecond; what
/proc/PID/stat says is counted in ticks of 10 ms).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_CPU_CLOCK = 2
"""The low bits of the id of a process's CPU clock, as clock_getcpuclockid(3) makes it; Python has it for threads only.
"""
READY_WITHIN_S = 60.0
NOT_PASSED = ("TOPICS_", "PYTHONDONTWRITEBYTECODE")
"""What of our environment the daemon does not get: it is measured as it comes from a wheel, whose bytecode is compiled
when it is installed, not at each start."""


class BenchError(Exception):
    """Something that the bench needs did not work."""


class Server:
    """A running process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, directory: Path | None = None) -> None:
        self.process = process
        self.port = port
        self.directory = directory

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def cpu_s(self) -> float:
        """User + system CPU so far, in seconds."""
        return time.clock_gettime(~self.pid << 3 | _CPU_CLOCK)

    def loop_s(self) -> tuple[float, float]:
        """How long its first thread has worked, and how long it has waited for a processor, in seconds."""
        worked, waited, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        return int(worked) / 1e9, int(waited) / 1e9

    def resident_bytes(self) -> int:
        """Resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BenchError(f"no VmRSS of {self.pid}")

    def disk_bytes(self) -> int:
        """Allocated bytes of everything in its directory."""
        assert self.directory is not None
        return sum(path.stat().st_blocks * 512 for path in self.directory.rglob("*") if path.is_file())

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self, within_s: float = 30.0) -> float:
        """SIGTERM, and wait; how long it took."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise BenchError(f"{self.process.args!r} did not stop within {within_s} s") from error
        return time.monotonic() - started


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    """Until somebody listens."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        if process.poll() is not None:
            raise BenchError(f"{process.args!r} exited with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                process.kill()
                raise
            time.sleep(0.005)


def spawn_topicsd(
    directory: Path,
    samples: Path | None = None,
    options: tuple[str, ...] = (),
    syncs: Path | None = None,
    held: Path | None = None,
    launcher: Path | None = None,
) -> Server:
    """Start the daemon on a directory (which may hold a store) and wait until it is ready.

    With `samples` it runs under the sampling profiler, which writes them there at the end; with `syncs` that file gets
    a byte for each sync, with `held` that one a line for each long round of its loop. `launcher` is a script that is
    run in its place. `options` are its own.
    """
    topicsd = Path(sys.executable).with_name("topicsd")
    if not topicsd.exists():
        raise BenchError(f"{topicsd} is not there: make setup")
    command = [sys.executable, "-m", "tests.bench.sampled", str(samples)] if samples else [str(topicsd)]
    if syncs:
        command = [sys.executable, "-m", "tests.bench.counted", str(syncs)]
    if held:
        command = [sys.executable, "-m", "tests.bench.held", str(held)]
    if launcher:
        command = [sys.executable, str(launcher)]
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED)}
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [*command, "--data-dir", str(directory / "data"), "--socket", "none", "--port", str(port), *options]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(arguments, env=environ, stdout=log, stderr=log)
    wait_for_port(process, port)
    wait_until_ready(port)
    return Server(process, port, directory / "data")


def wait_until_ready(port: int) -> None:
    """Until `/v0/ready` says 200."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(b"GET /v0/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if sock.recv(4096).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.005)
    raise BenchError("the daemon did not get ready")


@contextmanager
def scratch(where: Path) -> Iterator[Path]:
    """A directory on the disk that is measured, gone afterwards."""
    where.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="topics-bench-", dir=where))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def topicsd(where: Path, samples: Path | None = None) -> Iterator[Server]:
    """The daemon in a fresh directory."""
    with scratch(where) as directory:
        server = spawn_topicsd(directory, samples)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def floor(
    answer_bytes: int, *, is_fan_out: bool = False, sync: Path | None = None, crowd: Sequence[str] = ()
) -> Iterator[Server]:
    """The floor server for answers of this size, or the one of live delivery, of writes that are synced there, or of
    those who write to the topics of `crowd` beside others that come and go."""
    command = [sys.executable, "-m", "tests.bench.floor", "--answer-bytes", str(answer_bytes)]
    command += ["--fan-out"] if is_fan_out else []
    command += ["--sync", str(sync)] if sync is not None else []
    command += ["--crowd", *crowd] if crowd else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline().split()
    if len(line) != 2:
        raise BenchError("the floor server did not start")
    server = Server(process, int(line[1]))
    try:
        yield server
    finally:
        server.kill()
        process.stdout.close()


@contextmanager
def redis(where: Path, appendfsync: str) -> Iterator[Server]:
    """Redis with an append-only file."""
    with scratch(where) as directory:
        port = free_port()
        settings = [
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(directory),
            "--save",
            "",
            "--appendonly",
            "yes",
        ]
        process = subprocess.Popen(
            ["redis-server", *settings, "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0"],
            stdout=subprocess.DEVNULL,
        )
        wait_for_port(process, port)
        server = Server(process, port, directory)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def nats(where: Path) -> Iterator[Server]:
    """NATS with JetStream on files; its sync interval is the built-in two minutes."""
    with scratch(where) as directory:
        port = free_port()
        process = subprocess.Popen(
            ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(process, port)
        server = Server(process, port, directory)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def beanstalkd(where: Path) -> Iterator[Server]:
    """beanstalkd with its binlog, synced every 10 ms as the daemon's log is."""
    with scratch(where) as directory:
        port = free_port()
        process = subprocess.Popen(
            ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(directory), "-f", "10"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # It says so whenever a connection ends.
        )
        wait_for_port(process, port)
        server = Server(process, port, directory)
        try:
            yield server
        finally:
            server.stop()


def installed(name: str) -> bool:
    """Whether a peer is on the path."""
    return shutil.which(name) is not None


@contextmanager
def beside(module: str, server: Server, begun: str) -> Iterator[None]:
    """A client of a server as a process of its own, for the length of a block: `python -m MODULE PORT`.

    It says `begun` once it is at work, ends with its standard input, and says at last how much it has done, which must
    be more than nothing.
    """
    command = [sys.executable, "-m", module, str(server.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != begun:
            raise BenchError(f"{module} did not begin")
        try:
            yield
        finally:
            process.stdin.close()
            done = process.stdout.readline()
    if not done.strip().isdigit() or not int(done):
        raise BenchError(f"{module} has done {done!r}")
