"""The same client over HTTP/2 with prior knowledge: requests go out as frames, answers come back as HTTP/1.1 text.

So every case can be run over both without knowing of it. Requests that only HTTP/1.1 can say (half a head, two
requests at once, `Transfer-Encoding`, a head that no library would send) are `OnlyHttp1`, and their cases are left out.
"""

from __future__ import annotations

import time

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, InformationalResponseReceived, ResponseReceived, StreamEnded
from h2.events import StreamReset as Reset
from h2.exceptions import ProtocolError

from tests.conformance.wire import Connection, Target, WireError

_ONE_HOP = frozenset({"connection", "transfer-encoding", "upgrade", "expect", "te", "keep-alive"})
_CHUNK = 16_384


class OnlyHttp1(Exception):
    """This cannot be said in HTTP/2."""


def connect(target: Target) -> Connection:
    """A connection of the version that the target asks for."""
    return Http2Connection(target) if target.http2 else Connection(target)


class Http2Connection(Connection):
    """One connection of HTTP/2, used for one request after the other."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
        self._h2.initiate_connection()
        self._stream = 0
        self._over = False
        """Whether an answer without a length is at its end."""
        self._flush()

    def send(self, data: bytes) -> None:
        """Send one whole request."""
        method, target, headers, body = _parts(data)
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1:
            raise OnlyHttp1("not one Host")
        fields = [(":method", method), (":scheme", "http"), (":authority", hosts[0]), (":path", target)]
        fields += [(name, value) for name, value in headers if name != "host"]
        self._stream = self._h2.get_next_available_stream_id()
        self._over = False
        framed = any(name == "content-length" for name, _ in headers)
        try:
            self._h2.send_headers(self._stream, fields, end_stream=not framed)
        except ProtocolError as error:
            raise OnlyHttp1(str(error)) from error
        self._flush()
        left = memoryview(body)
        deadline = time.monotonic() + 15.0
        while framed:
            room = min(self._h2.local_flow_control_window(self._stream), _CHUNK)
            if left and not room:
                if self._over or not self._read(deadline):
                    # It is answered to the end, or cut, before all of it was wanted. An answer that has begun may go
                    # on with the body: who stopped there would be waited for.
                    return
                continue
            piece, left = left[:room], left[room:]
            self._h2.send_data(self._stream, bytes(piece), end_stream=not left)
            self._flush()
            framed = bool(left)

    def half_close(self) -> None:
        raise OnlyHttp1("half a connection")

    def _flush(self) -> None:
        super().send(self._h2.data_to_send())

    def _fill(self, deadline: float) -> bool:
        """Read frames until they say something."""
        before = len(self._buffer)
        while len(self._buffer) == before:
            if self._over or not self._read(deadline):
                return False
        return True

    def _read(self, deadline: float) -> bool:
        """Read some frames, and keep what they say as HTTP/1.1; False at the end of the connection."""
        kept, self._buffer = self._buffer, bytearray()
        try:
            more = super()._fill(deadline)
            frames, self._buffer = bytes(self._buffer), bytearray()
            for event in self._h2.receive_data(frames):
                self._buffer += self._say(event)
            self._flush()
        except ProtocolError as error:
            raise WireError(f"not HTTP/2: {error}") from error
        finally:
            self._buffer = kept + self._buffer
        return more

    def _say(self, event: object) -> bytes:
        if isinstance(event, ConnectionTerminated):
            raise WireError(f"the server broke off: {event.error_code}")
        if getattr(event, "stream_id", None) != self._stream:
            return b""
        if isinstance(event, ResponseReceived | InformationalResponseReceived):
            fields = [(str(name), str(value)) for name, value in event.headers]
            lines = [f"HTTP/1.1 {fields[0][1]} "] + [f"{name}: {value}" for name, value in fields[1:]]
            if isinstance(event, ResponseReceived) and "content-length" not in dict(fields):
                lines.append("connection: close")
            return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        if isinstance(event, DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return event.data
        if isinstance(event, StreamEnded | Reset):
            self._over = True
        return b""


def _parts(request: bytes) -> tuple[str, str, list[tuple[str, str]], bytes]:
    """Method, target, headers and body of one whole request that HTTP/2 can say."""
    head, end, body = request.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if not end or len(words) != 3 or words[2] != b"HTTP/1.1" or not words[1].startswith(b"/"):
        raise OnlyHttp1("not one whole request")
    headers = []
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(": ")
        if not colon or name.strip() != name or "\n" in value or name.lower() in _ONE_HOP:
            raise OnlyHttp1(f"header {line!r}")
        headers.append((name.lower(), value))
    lengths = [value for name, value in headers if name == "content-length"]
    if lengths != ([str(len(body))] if lengths or body else []):
        raise OnlyHttp1("a body that its length does not frame")
    return words[0].decode("latin-1"), words[1].decode("latin-1"), headers, body
