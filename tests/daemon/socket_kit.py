"""WebSockets to a real daemon: a client of the `websockets` package, and raw frames for what no client would send."""

from __future__ import annotations

import json
import struct
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.conformance.ws import BINARY, CLOSE, CONT, PING, PONG, TEXT, frame, handshake
from tests.daemon.kit import ANSWER_S, DaemonProcess, NoAnswer, Wire

__all__ = ["BINARY", "CLOSE", "CONT", "PING", "PONG", "TEXT", "Client", "Raw", "frame", "handshake"]


class Client:
    """A client that says and hears messages of JSON."""

    def __init__(self, daemon: DaemonProcess, *headers: tuple[str, str], query: str = "", unix: bool = False) -> None:
        more: dict[str, Any] = {"unix": True, "path": daemon.socket_path} if unix else {}
        self._connecting = connect(
            f"ws://127.0.0.1:{daemon.port}/v0/ws{query}",
            additional_headers=list(headers),
            open_timeout=ANSWER_S,
            close_timeout=ANSWER_S,
            max_size=None,
            **more,
        )
        self.ws: ClientConnection = self._connecting.__enter__()

    def say(self, op: str, **members: Any) -> None:
        self.ws.send(json.dumps({"op": op, **members}))

    def next(self) -> Any:
        """The next message."""
        return json.loads(self.text())

    def text(self) -> str:
        text = self.ws.recv(ANSWER_S)
        assert isinstance(text, str)
        return text

    def ask(self, op: str, **members: Any) -> Any:
        """Say something, and hear the next message."""
        self.say(op, **members)
        return self.next()

    def rest(self) -> list[Any]:
        """Everything until the other side closes."""
        heard: list[Any] = []
        try:
            while True:
                heard.append(self.next())
        except ConnectionClosed:
            return heard

    def until(self, op: str) -> list[Any]:
        """Everything up to and with the next message of this `op`."""
        heard: list[Any] = []
        while not heard or heard[-1]["op"] != op:
            heard.append(self.next())
        return heard

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connecting.__exit__(None, None, None)


class Raw:
    """An open socket, frame by frame."""

    def __init__(self, daemon: DaemonProcess, *headers: str) -> None:
        self.wire: Wire = daemon.wire()
        self.wire.send(handshake(*headers))
        self.head = self.wire.until(b"\r\n\r\n").decode()
        assert self.head.startswith("HTTP/1.1 101 "), self.head

    def send(self, data: bytes) -> None:
        self.wire.send(data)

    def frame(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload; never masked, never fragmented."""
        first, second = self._take(2)
        assert first & 0xF0 == 0x80, "the server sends whole messages, without extensions"
        assert second & 0x80 == 0, "the server does not mask"
        size = second & 0x7F
        if size == 126:
            size = struct.unpack("!H", self._take(2))[0]
        elif size == 127:
            size = struct.unpack("!Q", self._take(8))[0]
        return first & 0x0F, self._take(size)

    def message(self) -> Any:
        """The next message of JSON."""
        opcode, payload = self.frame()
        assert opcode == TEXT, (opcode, payload)
        return json.loads(payload)

    def closing(self) -> int:
        """The code of the close frame that comes; 1006 when the connection ends without one."""
        try:
            while True:
                opcode, payload = self.frame()
                if opcode == CLOSE:
                    return int(struct.unpack("!H", payload[:2])[0]) if payload else 1005
        except NoAnswer as why:
            if "in time" in str(why):
                raise
            return 1006

    def _take(self, size: int) -> bytes:
        while len(self.wire.buffer) < size:
            self.wire._more()
        data, self.wire.buffer = self.wire.buffer[:size], self.wire.buffer[size:]
        return data

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()
