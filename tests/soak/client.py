"""A small HTTP client over a Unix socket, and a daemon that can be killed and started again.

The client is made of the standard library, so that the soak shares no code with the command line or the daemon.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

START_SECONDS_MAX: Final = 60
NO_SPACE: Final = (74, "No space left on device")
"""Exit code and last words of a daemon that finds no space to start in: whoever keeps it running starts it again."""
ANSWER_SECONDS_MAX: Final = 40
FAULTY: Final = Path(__file__).resolve().parents[1] / "daemon" / "faulty.py"
"""The daemon on a disk that fails when it is told to."""


class Answer(NamedTuple):
    """A status and a decoded body."""

    status: int
    body: Any


class Client(http.client.HTTPConnection):
    """One connection, made when it is first needed; any failure closes it."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS_MAX)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """One request; raises OSError or HTTPException when there is no whole answer."""
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            self.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = self.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        except BaseException:
            self.close()
            raise

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """The events of an SSE stream, until it ends; a heartbeat is an event without data."""
        self.request("GET", path, headers={"Accept": "text/event-stream"})
        answer = self.getresponse()
        if answer.status != 200:
            raise ConnectionError(f"the stream answered {answer.status}")
        kind, data = "", []
        while line := answer.readline():
            text = line.rstrip(b"\r\n")
            if text.startswith(b"event: "):
                kind = text[7:].decode()
            elif text.startswith(b"data: "):
                data.append(text[6:])
            elif not text and data:
                yield kind, json.loads(b"\n".join(data))
                kind, data = "", []
            elif text.startswith(b":"):
                yield "heartbeat", None


class Usage(NamedTuple):
    """What the daemon holds: resident bytes and file descriptors."""

    resident_bytes: int
    descriptors: int


class Daemon:
    """The real daemon on a directory whose disk may fail, with a socket only."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = place / "topics.sock"
        self.faults = place / "faults"
        """Where files say how its disk fails (`tests/daemon/faulty.py`)."""
        self.faults.mkdir()
        self.refused = 0
        """How many starts found no space."""
        self._log = (place / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start, again while there is no space, and wait until it is ready; returns the seconds that took."""
        began = time.monotonic()
        process = self._spawn()
        while time.monotonic() - began < START_SECONDS_MAX:
            if process.poll() is not None:
                code, words = NO_SPACE
                if process.returncode != code or words not in self.log().rstrip().rpartition("\n")[2]:
                    raise RuntimeError(f"the daemon ended with {process.returncode}:\n{self.log()}")
                self.refused += 1
                process = self._spawn()
            try:
                if Client(self.socket).ask("GET", "/v0/ready").status == 200:
                    return time.monotonic() - began
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.01)
        raise RuntimeError(f"the daemon was not ready after {START_SECONDS_MAX} s:\n{self.log()}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(FAULTY), "--data-dir", str(self.place / "data")]
        command += ["--socket", str(self.socket), "--port", "none"]
        environ = {**os.environ, "FAULTS": str(self.faults)}
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environ)
        return self._process

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(START_SECONDS_MAX)

    def usage(self) -> Usage:
        """What it holds now."""
        assert self._process is not None
        place = Path(f"/proc/{self._process.pid}")
        pages = int((place / "statm").read_text(encoding="ascii").split()[1])
        return Usage(pages * os.sysconf("SC_PAGE_SIZE"), len(list((place / "fd").iterdir())))

    def log(self) -> str:
        """The end of what it logged."""
        return (self.place / "log").read_text(encoding="utf-8", errors="replace")[-3000:]
