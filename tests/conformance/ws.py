"""A WebSocket client by RFC 6455, on a connection of the suite: handshake, frames, and nothing that hides them."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import struct
import time
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import Api, Failed, same
from tests.conformance.wire import Connection, Response

TEXT, BINARY, CLOSE, PING, PONG, CONT = 1, 2, 8, 9, 10, 0
WAIT_S = 8.0
_ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(payload: bytes | str, opcode: int = TEXT, *, fin: bool = True, reserved: int = 0, mask: bool = True) -> bytes:
    """A frame as a client sends it, or would not."""
    data = payload.encode() if isinstance(payload, str) else payload
    first = bytes([(0x80 if fin else 0) | reserved | opcode])
    bit = 0x80 if mask else 0
    if len(data) < 126:
        size = bytes([bit | len(data)])
    elif len(data) < 65536:
        size = struct.pack("!BH", bit | 126, len(data))
    else:
        size = struct.pack("!BQ", bit | 127, len(data))
    if not mask:
        return first + size + data
    key = os.urandom(4)
    mask_bytes = (key * (len(data) // 4 + 1))[: len(data)]
    masked = int.from_bytes(data, "big") ^ int.from_bytes(mask_bytes, "big")
    return first + size + key + masked.to_bytes(len(data), "big")


def handshake(
    *headers: str, path: str = "/v0/ws", key: str = "", version: str = "13", host: str = "localhost"
) -> bytes:
    """The bytes of an opening request."""
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        f"Sec-WebSocket-Key: {key or base64.b64encode(os.urandom(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Socket:
    """An open socket; over HTTP/1.1 whatever else the suite speaks."""

    def __init__(self, api: Api, *headers: str, path: str = "/v0/ws", key: str | None = None) -> None:
        self._connection = Connection(dataclasses.replace(api.target, http2=False))
        self._bytes = b""
        nonce = base64.b64encode(os.urandom(16)).decode()
        auth = [f"{name}: {value}" for name, value in api.auth(key)] if "token=" not in path else []
        self._connection.send(handshake(*auth, *headers, path=path, key=nonce, host=api.target.host_header))
        status, fields = self._connection.read_head(time.monotonic() + WAIT_S)
        self.head = Response(status, fields, b"")
        if status != 101:
            self._connection.close()
            raise Failed(f"GET {path} → {status}, not 101")
        digest = hashlib.sha1(nonce.encode() + _ACCEPT, usedforsecurity=False).digest()
        same(self.head.header("sec-websocket-accept"), base64.b64encode(digest).decode(), "Sec-WebSocket-Accept")

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._connection.send(data)

    def say(self, op: str, **members: Any) -> None:
        """Send a command."""
        self.send(frame(json.dumps({"op": op, **members})))

    def ask(self, op: str, **members: Any) -> Any:
        """Send a command, and hear the next message."""
        self.say(op, **members)
        return self.next()

    def frame(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload, which is whole and not masked."""
        first, second = self._take(2)
        same(first & 0xF0, 0x80, "fin and reserved bits")
        same(second & 0x80, 0, "mask of a server")
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 0x0F, self._take(size)

    def raw(self) -> bytes:
        """The next message; pings are answered on the way."""
        while True:
            opcode, payload = self.frame()
            if opcode == PING:
                self.send(frame(payload, PONG))
            elif opcode == TEXT:
                return payload
            elif opcode != PONG:
                raise Failed(f"a frame of opcode {opcode} where a message was expected: {payload!r}")

    def next(self) -> Any:
        """The next message."""
        return rawjson.parse(self.raw())

    def until(self, op: str) -> list[Any]:
        """Everything up to and with the next message of this `op`."""
        heard = [self.next()]
        while heard[-1]["op"] != op:
            heard.append(self.next())
        return heard

    def closing(self) -> int:
        """The code of the close frame that comes."""
        while True:
            opcode, payload = self.frame()
            if opcode == CLOSE:
                return int.from_bytes(payload[:2], "big")

    def _take(self, size: int) -> bytes:
        deadline = time.monotonic() + WAIT_S
        while len(self._bytes) < size:
            more = self._connection.read_some(deadline)
            if not more:
                raise Failed("closed in the middle of a frame")
            self._bytes += more
        data, self._bytes = self._bytes[:size], self._bytes[size:]
        return data
