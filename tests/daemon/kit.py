"""A real daemon process and raw sockets to it: what the tests of this directory are made of.

Every module starts one daemon (`daemon_process`), with the settings that it needs, in a temporary directory. Requests
are bytes, written as they go over the wire; answers are read by a small reader that trusts nothing but Content-Length,
or the end of a connection that was said to close.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_S = 20.0
STOP_S = 20.0
ANSWER_S = 10.0


class NoAnswer(AssertionError):
    """The daemon closed the connection, or said nothing in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable code of an error answer."""
        code = self.json["error"]["code"]
        assert isinstance(code, str)
        return code


class Wire:
    """One connection, byte by byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(ANSWER_S)
        self.buffer = b""
        self.among: set[Wire] = set()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer; raises `NoAnswer` when there is none."""
        head, _, self.buffer = self._until(b"\r\n\r\n").partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        if status == 100:
            return Answer(status, headers, b"")
        if "content-length" not in headers and headers.get("connection") == "close":
            while data := self.sock.recv(1 << 18):
                self.buffer += data
            return Answer(status, headers, self.buffer)
        length = 0 if method == "HEAD" else int(headers["content-length"])
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(status, headers, body)

    def until(self, marker: bytes) -> bytes:
        """Everything up to and with `marker`."""
        text, _, rest = self._until(marker).partition(marker)
        self.buffer = rest
        return text + marker

    def _until(self, marker: bytes) -> bytes:
        while marker not in self.buffer:
            self._more()
        return self.buffer

    def _more(self) -> None:
        try:
            data = self.sock.recv(1 << 18)
        except TimeoutError as error:
            raise NoAnswer("nothing came in time") from error
        except ConnectionResetError as error:
            raise NoAnswer("connection reset") from error
        if not data:
            raise NoAnswer(f"closed after {self.buffer[:200]!r}")
        self.buffer += data

    def closed(self, within_s: float = ANSWER_S) -> bool:
        """Whether the other side closes in time; what it still sends is dropped."""
        self.sock.settimeout(within_s)
        try:
            while self.sock.recv(1 << 18):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.sock.close()
        self.among.discard(self)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def post(path: str, body: bytes | str | dict[str, Any], *headers: str, kind: str = "application/json") -> bytes:
    """The bytes of a POST with a body."""
    return request("POST", path, body, *headers, kind=kind)


def request(
    method: str,
    path: str,
    body: bytes | str | dict[str, Any] | None = None,
    *headers: str,
    kind: str = "application/json",
) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    data = b""
    if body is not None:
        data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


@dataclass(slots=True)
class DaemonProcess:
    """A running `topicsd`."""

    process: subprocess.Popen[bytes]
    port: int
    socket_path: str
    directory: Path
    arguments: list[str] = field(default_factory=list)
    wires: set[Wire] = field(default_factory=set)
    """Those that are open: what a test that failed has left is closed with the daemon, else later tests hear of it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def wire(self, *, unix: bool = False) -> Wire:
        """A new connection."""
        if unix:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(ANSWER_S)
            sock.connect(self.socket_path)
        else:
            sock = socket.create_connection(("127.0.0.1", self.port), ANSWER_S)
        wire = Wire(sock)
        wire.among = self.wires
        self.wires.add(wire)
        return wire

    def ask(self, data: bytes, *, unix: bool = False, method: str = "GET") -> Answer:
        """One request on a connection of its own."""
        with self.wire(unix=unix) as wire:
            wire.send(data)
            return wire.answer(method)

    def write(self, topic: str, *values: Any, **more: Any) -> Any:
        """Write values; returns the decoded answer."""
        body = {"records": [{"data": value} for value in values], **more}
        answer = self.ask(post(f"/v0/topics/{topic}", body))
        assert answer.status in (200, 201), answer
        return answer.json

    def read(self, topic: str, **more: Any) -> Any:
        """One page; returns the decoded answer."""
        answer = self.ask(post(f"/v0/topics/{topic}/diff", more))
        assert answer.status == 200, answer
        return answer.json

    def resident_bytes(self) -> int:
        """What the process has in memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def is_well(self) -> None:
        """Assert that it still serves, and has had no bug."""
        assert self.process.poll() is None, self.log
        answer = self.ask(request("GET", "/v0/ready"))
        assert answer.status == 200, answer
        assert "internal error" not in self.log, self.log

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; returns the exit status. The log of one that is not 0 is printed, and
        what does not end in time is killed."""
        self.process.send_signal(number)
        try:
            status = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status:
            print(f"the daemon ended with {status}:\n{self.log}")
        return status


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without settings of topics, but for `more`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    environ.update(more)
    return environ


def start(
    directory: Path, *flags: str, environ: dict[str, str] | None = None, launcher: Path | None = None
) -> DaemonProcess:
    """Start `topicsd` on a free port and a socket in `directory`, and wait until it is ready."""
    port_file, socket_path = directory / "port", directory / "run" / "topics.sock"
    port_file.unlink(missing_ok=True)
    program = [str(launcher)] if launcher is not None else ["-m", "topics_daemon.main"]
    arguments = [
        sys.executable,
        *program,
        *("--data-dir", str(directory / "data"), "--socket", str(socket_path), "--port", "0"),
        *("--port-file", str(port_file), *flags),
    ]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(arguments, stderr=log, env=environ or clean_environment())
    deadline = time.monotonic() + START_S
    try:
        while not port_file.exists():
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline, "the daemon does not start"
            time.sleep(0.01)
        daemon = DaemonProcess(process, int(port_file.read_text()), str(socket_path), directory, arguments)
        # 401: probes need a key, so whoever has one asks again.
        while daemon.ask(request("GET", "/v0/ready")).status not in (200, 401):
            assert time.monotonic() < deadline, "the daemon does not become ready"
            time.sleep(0.01)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return daemon


@contextmanager
def serving(
    directory: Path, *flags: str, environ: dict[str, str] | None = None, launcher: Path | None = None
) -> Iterator[DaemonProcess]:
    """A daemon on a directory for the length of a block; it must have had no bug, and end with 0 on SIGTERM."""
    daemon = start(directory, *flags, environ=environ, launcher=launcher)
    try:
        yield daemon
    finally:
        for wire in list(daemon.wires):
            wire.close()
        if daemon.process.poll() is None:
            status = daemon.stop()
            log = daemon.log
            assert status == 0, log
            assert "internal error" not in log, log


@contextmanager
def daemon_process(
    *flags: str, environ: dict[str, str] | None = None, launcher: Path | None = None
) -> Iterator[DaemonProcess]:
    """The same on a new directory, which goes with it."""
    with (
        tempfile.TemporaryDirectory(prefix="topics-daemon-") as name,
        serving(Path(name), *flags, environ=environ, launcher=launcher) as daemon,
    ):
        yield daemon


def records_of(page: Any) -> list[Any]:
    """The data of a page's records."""
    return [record["data"] for record in page["records"]]


def check_order(taken: list[list[int]], seqs: range) -> None:
    """Whether the writes of some connections have these seqs, those of each in the order in which they came."""
    for own in taken:
        assert own == sorted(own)
    assert sorted(seq for own in taken for seq in own) == [*seqs]


class Events:
    """The events of an SSE stream, one after the other."""

    def __init__(self, daemon: DaemonProcess, url: str, *headers: str) -> None:
        self.wire = daemon.wire()
        self.wire.send(request("GET", url, None, "Accept: text/event-stream", *headers))
        self.head = self.wire.until(b"\r\n\r\n").decode()

    def block(self) -> list[tuple[str, str]]:
        """The fields of the next event or comment."""
        text = self.wire.until(b"\n\n").decode()
        fields = []
        for line in text.strip("\n").split("\n"):
            name, _, value = line.partition(": ")
            fields.append((name, value))
        return fields

    def next(self, *, comments: bool = False) -> tuple[str, Any, str]:
        """The next event: name, data, id."""
        while True:
            fields = self.block()
            if not comments and not any(name == "event" for name, _ in fields):
                continue
            named = dict(fields)
            data = "\n".join(value for name, value in fields if name == "data")
            return named["event"], json.loads(data), named.get("id", "")

    def close(self) -> None:
        self.wire.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watch(daemon: DaemonProcess, topics: dict[str, Any], **more: Any) -> str:
    """Open a session; returns its stream's URL."""
    answer = daemon.ask(post("/v0/watch", {"topics": topics, **more}))
    assert answer.status == 200, answer
    url = answer.json["stream_url"]
    assert isinstance(url, str)
    return url


def halt(pid: int) -> None:
    """Stop a process, and wait until it stands still."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.001)


def make_queue(daemon: DaemonProcess, name: str, *datas: Any, **config: Any) -> None:
    """Make a queue whose leases last, with jobs."""
    answer = daemon.ask(request("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": 3_600_000, **config}))
    assert answer.status == 201, answer
    for at in range(0, len(datas), 1000):
        daemon.write(name, *datas[at : at + 1000])
