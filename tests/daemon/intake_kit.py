"""Streams of lines to a real daemon, over both versions of HTTP: what the tests of `intake` are made of."""

from __future__ import annotations

import json
from typing import Any

from tests.daemon.http2_kit import Client
from tests.daemon.kit import DaemonProcess, Wire

NDJSON, TEXT = "application/x-ndjson", "text/x-lines"


def head(topic: str, *headers: str, query: str = "", kind: str = NDJSON) -> bytes:
    """The head of a stream; without a length among the headers it is chunked."""
    if not any(one.lower().startswith("content-length") for one in headers):
        headers = (*headers, "Transfer-Encoding: chunked")
    target = f"/v0/topics/{topic}/records?stream=true{query}"
    lines = [f"POST {target} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


END = b"0\r\n\r\n"


class Stream:
    """One stream over HTTP/1.1, on a connection of its own."""

    def __init__(self, daemon: DaemonProcess, first: bytes, *, unix: bool = False) -> None:
        self.wire: Wire = daemon.wire(unix=unix)
        self.wire.send(first)
        self.status = 0

    def send(self, data: bytes) -> None:
        self.wire.send(data)

    def line(self) -> Any:
        """The next line of the answer."""
        if not self.status:
            self.status = int(self.wire.until(b"\r\n\r\n").split(b" ")[1])
        return json.loads(self.wire.until(b"\n"))

    def rest(self) -> list[Any]:
        """All lines until the daemon closes."""
        if not self.status:
            self.status = int(self.wire.until(b"\r\n\r\n").split(b" ")[1])
        text = self.wire.buffer
        while data := self.wire.sock.recv(1 << 18):
            text += data
        return [json.loads(line) for line in text.splitlines()]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()


def whole(daemon: DaemonProcess, topic: str, body: bytes, *headers: str, unix: bool = False, **more: str) -> list[Any]:
    """Send a stream of known length at once; returns the lines of the answer."""
    with Stream(daemon, head(topic, f"Content-Length: {len(body)}", *headers, **more) + body, unix=unix) as stream:
        lines = stream.rest()
        assert stream.status in (200, 201), (stream.status, lines)
        return lines


def begin2(client: Client, topic: str, *headers: tuple[str, str], query: str = "") -> int:
    """Begin a stream over HTTP/2; returns its number."""
    target = f"/v0/topics/{topic}/records?stream=true{query}"
    return client.begin("POST", target, ("content-type", NDJSON), *headers, end=False)


def send2(client: Client, number: int, data: bytes, *, end: bool = False) -> None:
    """Send a part of it, as the windows allow."""
    left = memoryview(data)
    while left or end:
        room = min(client.h2.local_flow_control_window(number), 16_384)
        if left and not room:
            assert client.read(), "the window stays shut"
            continue
        piece, left = left[:room], left[room:]
        client.h2.send_data(number, bytes(piece), end_stream=end and not left)
        client.flush()
        if not left:
            return


def lines2(client: Client, number: int) -> list[Any]:
    """The lines of its whole answer."""
    return [json.loads(line) for line in client.answer(number)[1].splitlines()]
