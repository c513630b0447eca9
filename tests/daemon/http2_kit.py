"""A client of HTTP/2 that does as it is told, also what no client should: frames by hand beside the library's own."""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from types import TracebackType

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

from tests.daemon.kit import ANSWER_S, DaemonProcess

JSON = ("content-type", "application/json")


class Client:
    """One connection. Answers are kept by the number of their stream."""

    def __init__(
        self, daemon: DaemonProcess, *, unix: bool = False, window: int | None = None, greedy: bool = True
    ) -> None:
        """`window`: what the server may send of each answer; `greedy`: whether more is allowed as it comes."""
        self.sock = daemon.wire(unix=unix).sock
        self.greedy = greedy
        self.h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding="latin-1",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.statuses: dict[int, int] = {}
        self.headers: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = defaultdict(bytes)
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goodbye: int | None = None
        """The code of a GOAWAY."""
        self.closed = False
        self.flush()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.sock.close()

    def flush(self) -> None:
        self.raw(self.h2.data_to_send())

    def raw(self, data: bytes) -> None:
        """Send bytes; a server that has hung up shows when reading."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def begin(
        self, method: str, path: str, *headers: tuple[str, str], host: str = "localhost", end: bool = True
    ) -> int:
        """Send the head of a request."""
        number = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":authority", host), (":path", path), *headers]
        self.h2.send_headers(number, fields, end_stream=end)
        self.flush()
        return number

    def post(self, path: str, body: bytes, *headers: tuple[str, str]) -> int:
        """Send a request with a body that fits into the window."""
        number = self.begin("POST", path, JSON, *headers, end=False)
        self.h2.send_data(number, body, end_stream=True)
        self.flush()
        return number

    def upload(self, path: str, body: bytes) -> int:
        """Send a request with a body of any size, as the server's windows allow."""
        number = self.begin("POST", path, JSON, end=False)
        at = 0
        while at < len(body):
            room = min(self.h2.local_flow_control_window(number), 16_384)
            if not room:
                self.read()
                continue
            piece = body[at : at + room]
            at += len(piece)
            self.h2.send_data(number, piece, end_stream=at == len(body))
            self.flush()
        return number

    def read(self, within_s: float = ANSWER_S) -> bool:
        """Read what is there, waiting for something; False at the end of the connection, or when nothing comes."""
        self.sock.settimeout(within_s)
        try:
            data = self.sock.recv(1 << 18)
        except TimeoutError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return False
        for event in self.h2.receive_data(data):
            self._take(event)
        self.flush()
        return True

    def _take(self, event: object) -> None:
        if isinstance(event, ResponseReceived):
            named = {str(name): str(value) for name, value in event.headers}
            self.statuses[event.stream_id] = int(named[":status"])
            self.headers[event.stream_id] = named
        elif isinstance(event, DataReceived):
            self.bodies[event.stream_id] += event.data
            if self.greedy:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, StreamReset):
            self.resets[event.stream_id] = event.error_code
        elif isinstance(event, ConnectionTerminated):
            self.goodbye = event.error_code

    def answer(self, number: int, within_s: float = ANSWER_S) -> tuple[int, bytes]:
        """Wait for one whole answer."""
        deadline = time.monotonic() + within_s
        while number not in self.ended:
            left = deadline - time.monotonic()
            assert left > 0, f"no answer: {self.statuses.get(number)} {self.bodies[number][:200]!r}"
            assert number not in self.resets, f"reset: {self.resets[number]}"
            assert self.read(left), f"no answer; closed: {self.closed}, goodbye: {self.goodbye}"
        return self.statuses[number], self.bodies[number]

    def until(self, number: int, marker: bytes, within_s: float = ANSWER_S) -> bytes:
        """Wait until a stream has said something."""
        deadline = time.monotonic() + within_s
        while marker not in self.bodies[number]:
            assert self.read(max(deadline - time.monotonic(), 0.001)), self.bodies[number]
        return self.bodies[number]

    def is_ended(self, within_s: float = ANSWER_S) -> bool:
        """Whether the server ends the connection in time."""
        deadline = time.monotonic() + within_s
        while not self.closed and time.monotonic() < deadline:
            self.read(max(deadline - time.monotonic(), 0.001))
        return self.closed


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    """A frame by hand."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + payload


def quiet(sock: socket.socket) -> bool:
    """Whether nothing is there to be read."""
    sock.settimeout(0.05)
    try:
        return not sock.recv(1)
    except TimeoutError:
        return True
