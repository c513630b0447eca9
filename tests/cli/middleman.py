"""A proxy between `topics` and a daemon that can be told to meddle: whole requests go in, whole answers come out."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

PASSED_ON: Final = ("content-type", "accept", "idempotency-key", "authorization")


@dataclass(slots=True)
class Asked:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Answered:
    """An answer."""

    status: int
    content_type: str
    body: bytes


class _Local(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


class Middleman(ThreadingHTTPServer):
    """Passes requests on to a daemon; `meddle` may do it differently, one request at a time."""

    daemon_threads = True

    def __init__(self, daemon: str, meddle: Callable[[Middleman, Asked], Answered | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self._daemon = daemon
        self._meddle = meddle

    def ask(self, asked: Asked) -> Answered:
        """Ask the daemon."""
        connection = _Local(self._daemon)
        try:
            connection.request(asked.method, asked.path, asked.body or None, asked.headers)
            answer = connection.getresponse()
            return Answered(answer.status, answer.headers.get("content-type", ""), answer.read())
        finally:
            connection.close()

    def answer(self, asked: Asked) -> Answered:
        """Meddle, or just ask."""
        with self.lock:
            answered = self._meddle(self, asked)
        return answered or self.ask(asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # `do_GET` and so on, which is how the library calls us.
            return self._any
        raise AttributeError(name)

    def _any(self) -> None:
        assert isinstance(self.server, Middleman)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: self.headers[name] for name in PASSED_ON if self.headers[name]}
        answered = self.server.answer(Asked(self.command, self.path, headers, body))
        self.send_response(answered.status)
        self.send_header("Content-Type", answered.content_type)
        self.send_header("Content-Length", str(len(answered.body)))
        self.end_headers()
        self.wfile.write(answered.body)

    def log_message(self, *_words: object) -> None:
        """Nothing is said."""


@contextmanager
def middleman(daemon: str, meddle: Callable[[Middleman, Asked], Answered | None]) -> Iterator[str]:
    """A proxy before the daemon at a socket; its URL."""
    server = Middleman(daemon, meddle)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
