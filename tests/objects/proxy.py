"""A proxy in front of a bucket's server that makes answers worse: late, refused, cut short, changed, or none at all.

It knows HTTP/1.1 as far as clients of the S3 protocol speak it: bodies with a length, one request after the other.
"""

from __future__ import annotations

import http.client
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>told by the proxy</Message></Error>'
_KEPT = ("content-range", "etag", "last-modified", "content-type", "x-amz-checksum-sha256")


class Answer(NamedTuple):
    """What a client gets; `length` is what it is told of the body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    length: int


Fault = Callable[[str, str, Answer], Answer]
"""Gets method, path and the server's answer, and makes another one. It may wait."""


class Proxy:
    """Sits on a port of its own until it is closed."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        self.fault: Fault | None = None
        self.before: Callable[[str, str], Answer | None] = lambda method, path: None
        """May answer in the server's place."""
        self.seen: Counter[str] = Counter()
        """Requests by method, whatever became of them."""
        self.sent: dict[str, dict[str, str]] = {}
        """The headers of the last request, by method."""
        self._server = _Threads(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Threads(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        proxy = self.server.proxy  # type: ignore[attr-defined]  # ours
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        proxy.seen[self.command] += 1
        proxy.sent[self.command] = {name.lower(): value for name, value in self.headers.items()}
        answer = proxy.before(self.command, self.path)
        if answer is None:
            answer = self._upstream(body)
            if proxy.fault is not None:
                answer = proxy.fault(self.command, self.path, answer)
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("content-length", str(answer.length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        if len(answer.body) < answer.length and self.command != "HEAD":
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        """Every method is handled alike."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _upstream(self, body: bytes) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.upstream, timeout=60)  # type: ignore[attr-defined]  # ours
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() in _KEPT]
            length = len(content)
            if self.command == "HEAD":
                length = int(answer.getheader("content-length") or 0)
            return Answer(answer.status, kept, content, length)
        finally:
            connection.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


# -- faults ------------------------------------------------------------------------------------------------------------


def refusing(status: int, code: str) -> Callable[[str, str], Answer]:
    """Every request is refused."""
    body = ERROR.format(code).encode()
    return lambda method, path: Answer(status, [], body, len(body))


def times(count: int, fault: Fault, method: str = "GET", part: str = ".data") -> Fault:
    """A fault of the first `count` requests of one kind; all others are well."""
    lock = threading.Lock()
    left = count

    def some(asked: str, path: str, answer: Answer) -> Answer:
        nonlocal left
        with lock:
            hit = asked == method and part in path and left > 0
            left -= hit
        return fault(asked, path, answer) if hit else answer

    return some


def refused(method: str, path: str, answer: Answer) -> Answer:
    body = ERROR.format("SlowDown").encode()
    return Answer(503, [], body, len(body))


def truncated(method: str, path: str, answer: Answer) -> Answer:
    """The connection ends in the middle of the body."""
    return answer._replace(body=answer.body[: len(answer.body) // 2])


def shortened(method: str, path: str, answer: Answer) -> Answer:
    """A whole answer that is shorter than the object, and says so nowhere but in its length."""
    body = answer.body[: len(answer.body) // 2]
    return answer._replace(body=body, length=len(body))


def changed(method: str, path: str, answer: Answer) -> Answer:
    """One byte is another one."""
    at = len(answer.body) // 2
    return answer._replace(body=answer.body[:at] + bytes([answer.body[at] ^ 1]) + answer.body[at + 1 :])


def late(seconds: float) -> Fault:
    def wait(method: str, path: str, answer: Answer) -> Answer:
        time.sleep(seconds)
        return answer

    return wait
