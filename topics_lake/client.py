"""The daemon, from a driver or an executor: small blocking calls over HTTP, on TCP or on a Unix socket.

Lost connections, 429 and 503 are tried again with growing pauses; whatever is sent must therefore be harmless when it
is sent twice (reads, deletes, writes with an idempotency key).
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import time
from typing import Any, Final

from topics_lake.errors import LakeError

TIMEOUT_S: Final = 60.0
RETRY_S: Final = 30.0
"""How long a daemon that is away is waited for."""
_PAUSES: Final = (0.05, 2.0)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


class Refusal(LakeError):
    """The daemon's answer was an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message, code)
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status, self.code, self.what)


class Daemon:
    """One daemon, at `http://HOST:PORT` or a socket's path."""

    def __init__(self, where: str, key: str = "", retry_s: float = RETRY_S) -> None:
        self.where = where
        self.key = key
        self._retry_s = retry_s
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None) -> Any:
        """One call; its answer as an object. Raises `Refusal`, and `LakeError` when nobody answers."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        answer = self.fetch(method, path, content)
        return json.loads(answer) if answer else None

    def fetch(self, method: str, path: str, content: bytes = b"") -> bytes:
        """As `call`, the answer as it came."""
        until = time.monotonic() + self._retry_s
        pause = _PAUSES[0]
        while True:
            try:
                status, answer = self._once(method, path, content)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() > until:
                    hint = "is the daemon running?"
                    raise LakeError(f"nobody answers at {self.where}: {error}", "no_daemon", hint) from error
            else:
                if status < 300:
                    return answer
                refusal = _refusal(status, answer)
                if status not in (429, 503) or time.monotonic() > until:
                    raise refusal
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _PAUSES[1])

    def _once(self, method: str, path: str, content: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        self._connection.request(method, path, content or None, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> http.client.HTTPConnection:
        if not self.where.startswith("http://"):
            return _UnixConnection(self.where.removeprefix("unix://").removeprefix("unix:"))
        host, _, port = self.where.removeprefix("http://").rstrip("/").rpartition(":")
        if not host or not port.isdigit():
            raise LakeError(f"{self.where!r} is not http://HOST:PORT", "usage")
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)


def _refusal(status: int, answer: bytes) -> Refusal:
    try:
        error = json.loads(answer)["error"]
        return Refusal(status, str(error["code"]), str(error["message"]))
    except (ValueError, LookupError, TypeError):
        return Refusal(status, "internal", f"the daemon answered {status}")


def key_of(key_file: str | None) -> str:
    """The API key: the first line of a file, else TOPICS_KEY, else that of TOPICS_KEY_FILE."""
    path = key_file or ("" if os.environ.get("TOPICS_KEY") else os.environ.get("TOPICS_KEY_FILE", ""))
    if not path:
        return os.environ.get("TOPICS_KEY", "")
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError as error:
        raise LakeError(f"{path} cannot be read: {error.strerror}", "unreadable") from error
