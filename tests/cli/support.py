"""What the tests of the command line share: a real daemon, real processes, and values that break careless code."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parents[2]
READY_S_MAX = 15.0
RUN_S_MAX = 30.0

HARD = [
    b'{"n":12345678901234567890}',
    b'{"price":1.10,"rate":1e3,"tiny":1E-7,"z":-0,"zz":-0.0}',
    b"123456789012345678901234567890",
    b"1e400",
    b"1.0",
    b"-1",
    b"true",
    b"null",
    b'""',
    b"[]",
    b"{}",
    b'{ "a" : [ 1 , 2 ,3 ] , "b":{ } }',
    b'{"a":1,"a":2}',
    b'{"":1,"$seq":9,"$ts":"mine","data":{"data":1},"meta":{"x":1},"$tag":"t"}',
    b'{"path":"a\\/b","tab":"a\\tb","u":"\\u0041","q":"\\"","bs":"\\\\"}',
    b'"\\ud83d\\ude00"',
    b'"\\ud83d"',
    '"😀 ключ 日本 é"'.encode(),
    '{"ls":"\u2028","bom":"\ufeff","rtl":"\u202e","nel":"\u0085"}'.encode(),
    b'"\\u0000\\u001b[31mred\\u001b[0m\\u0007"',
    b'{"$tombstone":{"gap_from":1}}',
    b'{"topic":"t","records":[],"next_from_seq":7}',
    b'"},{\\"$seq\\":1"',
    b'"data: x\\n\\nevent: evil"',
    b'"line\\r\\nbreak"',
    b'"ends with backslash \\\\"',
    b'"' + b"x" * 70_000 + b'"',
    b"[" * 60 + b"]" * 60,
    b'{"$base64":"AAECAw=="}',
]


STARTED: list[subprocess.Popen[bytes]] = []
"""Commands that run beside a test; whatever of them is left when it ends is killed (`conftest`)."""

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_us() -> None:
    """Let a child be killed when we end, however we end."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A daemon of our own, on a directory of its own, that can be killed and started again."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.socket = str(directory / "t.sock")
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = environment

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = clean_environment()
        environment |= {
            "TOPICS_DATA_DIR": str(self.directory / "data"),
            "TOPICS_SOCKET": self.socket,
            "TOPICS_PORT": "none",
            **self._environment,
        }
        log = open(self.directory / "daemon.log", "ab")  # noqa: SIM115  # closed just below, once the child has it
        self.process = subprocess.Popen(
            [PYTHON, "-m", "topics_daemon.main"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_us,  # noqa: PLW1509  # one system call
        )
        log.close()
        over = time.monotonic() + READY_S_MAX
        while time.monotonic() < over:
            if self._is_ready():
                return
            assert self.process.poll() is None, (self.directory / "daemon.log").read_text()
            time.sleep(0.02)
        raise AssertionError("the daemon did not become ready")

    def _is_ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self.socket)
                probe.sendall(b"GET /v0/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return probe.recv(4096).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        """SIGTERM, and wait; SIGKILL where that does not help."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a command that is to talk to this daemon."""
        return {**clean_environment(), "TOPICS_SOCKET": self.socket, **more}

    def run(self, *words: str | bytes, stdin: bytes | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
        """Run `topics` to its end."""
        return run(*words, stdin=stdin, environment=self.environment(**more))

    def ok(self, *words: str | bytes, stdin: bytes | None = None) -> bytes:
        """Run `topics`, which must succeed; its stdout."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.returncode, done.stderr)
        return done.stdout

    def start_command(
        self,
        *words: str,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        **more: str,
    ) -> subprocess.Popen[bytes]:
        """Start `topics` with pipes."""
        process = subprocess.Popen(
            command(*words),
            cwd=ROOT,
            env=self.environment(**more),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            preexec_fn=die_with_us,  # noqa: PLW1509  # calls one system call and nothing else
        )
        STARTED.append(process)
        return process


def command(*words: str | bytes) -> Sequence[str | bytes]:
    """The command line of `topics WORDS`."""
    return [PYTHON, "-m", "topics_cli", *words]


def run(
    *words: str | bytes, stdin: bytes | None = None, environment: dict[str, str], cwd: Path = ROOT
) -> subprocess.CompletedProcess[bytes]:
    """Run `topics` to its end, with standard input from a pipe."""
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment,
        capture_output=True,
        timeout=RUN_S_MAX,
        check=False,
        input=stdin if stdin is not None else b"",
    )


def clean_environment() -> dict[str, str]:
    """Our environment without anything that would lead a command elsewhere."""
    dropped = ("TOPICS_", "XDG_RUNTIME_DIR", "NO_COLOR", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", "TERM": "xterm"}


def short_directory() -> Iterator[Path]:
    """A temporary directory with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tcli", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def running() -> Iterator[Daemon]:
    """A daemon on a directory of its own, stopped in the end: what a fixture yields."""
    for directory in short_directory():
        daemon = Daemon(directory)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()


def topics_program(directory: Path) -> Path:
    """A command `topics` for shells, in a directory to be put in front of PATH."""
    program = directory / "topics"
    directory.mkdir()
    program.write_text(f'#!/bin/sh\nexec {PYTHON} -m topics_cli "$@"\n')
    program.chmod(0o755)
    return program


def started(words: list[str], environment: dict[str, str], directory: Path | None = None) -> subprocess.Popen[str]:
    """A program of a user's, in a process group of its own, with text on both outputs; it ends when the test does."""
    process = subprocess.Popen(
        words,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=die_with_us,  # noqa: PLW1509  # one system call
    )
    STARTED.append(process)  # type: ignore[arg-type]  # only killed and waited for there
    return process


def read_until(process: subprocess.Popen[bytes], count: int, limit_s: float = 10.0) -> list[bytes]:
    """The next `count` lines of a process's stdout; fails when they do not come."""
    assert process.stdout is not None
    handle = process.stdout.fileno()
    over = time.monotonic() + limit_s
    data = b""
    while data.count(b"\n") < count:
        left = over - time.monotonic()
        ready = select.select([handle], [], [], max(0.0, left))[0]
        assert ready, f"only {data!r} came"
        piece = os.read(handle, 65536)
        assert piece, f"the output ended after {data!r}"
        data += piece
    return data.splitlines()


def finish(process: subprocess.Popen[bytes], signum: int = 0) -> tuple[int, bytes, bytes]:
    """End a process by a signal (0: let it end) and give its exit code, stdout and stderr."""
    if signum:
        process.send_signal(signum)
    out, said = process.communicate(timeout=RUN_S_MAX)
    return process.returncode, out, said


def _own_terminal() -> None:
    die_with_us()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command on a terminal of 80 by 24: what it draws can be read, and keys can be typed."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self._handle, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            command(*words),
            cwd=ROOT,
            env=environment,
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509  # calls two system calls and nothing else
        )
        STARTED.append(self.process)
        os.close(far)
        self.seen = b""

    def read_until(self, what: bytes, limit_s: float = 10.0) -> bytes:
        """Everything drawn so far, once `what` is in it."""
        over = time.monotonic() + limit_s
        while what not in self.seen:
            assert self._read(over - time.monotonic()), f"{what!r} was not drawn: {self.seen!r}"
        return self.seen

    def type(self, keys: bytes) -> None:
        """Type keys."""
        os.write(self._handle, keys)

    def end(self) -> tuple[int, bytes]:
        """Let the command end; its exit code and everything drawn."""
        while self._read(RUN_S_MAX):
            pass
        code = self.process.wait(10)
        os.close(self._handle)
        return code, self.seen

    def _read(self, limit_s: float) -> bool:
        if not select.select([self._handle], [], [], max(0.0, limit_s))[0]:
            return False
        try:
            piece = os.read(self._handle, 65536)
        except OSError:
            return False
        self.seen += piece
        return bool(piece)


INT, TERM = signal.SIGINT, signal.SIGTERM
