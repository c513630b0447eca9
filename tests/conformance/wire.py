"""An HTTP/1.1 client for people who do not trust the server: sockets, exact bytes, strict reading.

The suite needs what ordinary client libraries hide: the bytes as they came, several requests sent before the first
answer is read, heads that no library would send, connections closed in the middle. Nothing here knows about topics.

`Target` says where the server is: `http://host:port` or `unix:///path.sock`, and `h2:` in front for HTTP/2 (`wire2`).
`Connection` is one socket: `send` raw bytes, `read_response` one answer. Reading is strict: a line that does not end in
CRLF, a body without a length, or bytes after the end are a `WireError`, which fails the case.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_S = 15.0
_RECV_BYTES = 262_144


class WireError(Exception):
    """The server sent something that is not HTTP/1.1, or nothing in time."""


class Closed(WireError):
    """The server closed the connection where an answer was expected."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server listens. `path` is set for a Unix socket, else `host` and `port`."""

    host: str
    port: int
    path: str | None
    http2: bool = False

    @classmethod
    def parse(cls, url: str) -> Target:
        """Read `http://host:port` or `unix:///path`, with `h2:` in front for HTTP/2."""
        http2 = url.startswith("h2:")
        parts = urlsplit(url.removeprefix("h2:"))
        if parts.scheme == "unix":
            return cls("localhost", 0, parts.path, http2)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"a base URL is http://host:port or unix:///path, not {url!r}")
        return cls(parts.hostname, parts.port or 80, None, http2)

    @property
    def is_tcp(self) -> bool:
        """Whether this is a TCP listener."""
        return self.path is None

    @property
    def host_header(self) -> str:
        """The `Host` that a well-behaved client sends."""
        if self.path is not None:
            return "localhost"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self) -> socket.socket:
        """A connected socket."""
        if self.path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(TIMEOUT_S)
            sock.connect(self.path)
            return sock
        sock = socket.create_connection((self.host, self.port), timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: status, headers as they came (names in lower case), body after transfer decoding."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of a header, or None; two of the same name are an error of the server here."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise WireError(f"header {name} came {len(values)} times: {values}")
        return values[0] if values else None


class Connection:
    """One connection to the server and what was read of it so far."""

    def __init__(self, target: Target) -> None:
        self._sock = target.open()
        self._buffer = bytearray()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._sock.close()

    def send(self, data: bytes) -> None:
        """Send raw bytes; a server that has already closed shows when reading."""
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self._sock.shutdown(socket.SHUT_WR)

    def read_response(self, timeout_s: float = TIMEOUT_S, *, skip_continue: bool = True) -> Response:
        """Read one whole answer (a `100 Continue` before it is passed over)."""
        deadline = time.monotonic() + timeout_s
        while True:
            status, headers = self.read_head(deadline)
            if status != 100 or not skip_continue:
                return Response(status, headers, self._read_body(status, headers, deadline))

    def read_head(self, deadline: float) -> tuple[int, tuple[tuple[str, str], ...]]:
        """Read a status line and headers, strictly."""
        end = self._find(b"\r\n\r\n", deadline)
        head = self._take(end + 4)[:-4]
        lines = head.split(b"\r\n")
        if any(b"\n" in line or b"\r" in line for line in lines):
            raise WireError(f"bare CR or LF in the head: {head!r}")
        version, _, rest = lines[0].partition(b" ")
        if version != b"HTTP/1.1" or not rest[:3].isdigit() or rest[3:4] not in (b"", b" "):
            raise WireError(f"bad status line {lines[0]!r}")
        headers = []
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip() or b" " in name:
                raise WireError(f"bad header line {line!r}")
            headers.append((name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")))
        return int(rest[:3]), tuple(headers)

    def _read_body(self, status: int, headers: tuple[tuple[str, str], ...], deadline: float) -> bytes:
        fields = dict(headers)
        if status in (204, 304) or status < 200:
            return b""
        if "transfer-encoding" in fields:
            if "content-length" in fields or fields["transfer-encoding"].lower() != "chunked":
                raise WireError(f"bad framing {fields}")
            parts = []
            while (chunk := self.read_chunk(deadline)) is not None:
                parts.append(chunk)
            return b"".join(parts)
        if "content-length" not in fields:
            if fields.get("connection", "").lower() != "close":
                raise WireError(f"an answer without a length that does not close: {status} {fields}")
            return self.read_to_end(deadline)
        if not fields["content-length"].isdigit():
            raise WireError(f"bad content-length {fields['content-length']!r}")
        return self._take_exactly(int(fields["content-length"]), deadline)

    def read_chunk(self, deadline: float) -> bytes | None:
        """One chunk of a chunked body; None at its end."""
        line = self._take(self._find(b"\r\n", deadline) + 2)[:-2]
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError as error:
            raise WireError(f"bad chunk size {line!r}") from error
        data = self._take_exactly(size, deadline)
        if self._take_exactly(2, deadline) != b"\r\n":
            raise WireError("a chunk that does not end in CRLF")
        return data if size else None

    def read_to_end(self, deadline: float) -> bytes:
        """Everything until the server closes."""
        while self._fill(deadline):
            pass
        return self._take(len(self._buffer))

    def read_some(self, deadline: float) -> bytes:
        """What is there, waiting for at least one byte; empty at the end of the connection."""
        if not self._buffer:
            self._fill(deadline)
        return self._take(len(self._buffer))

    def is_closed(self, within_s: float = 3.0) -> bool:
        """Whether the server closes the connection (after sending nothing more) within the time."""
        try:
            return not self._fill(time.monotonic() + within_s) and not self._buffer
        except WireError:
            return False

    def _take_exactly(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            if not self._fill(deadline):
                raise Closed(f"closed in a body: {len(self._buffer)} of {count} bytes came")
        return self._take(count)

    def _find(self, mark: bytes, deadline: float) -> int:
        start = 0
        while (at := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark))
            if len(self._buffer) > 1 << 20:
                raise WireError(f"no {mark!r} in a megabyte")
            if not self._fill(deadline):
                raise Closed(f"closed while waiting for an answer; had {bytes(self._buffer[:200])!r}")
        return at

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _fill(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WireError(f"nothing more in time; had {bytes(self._buffer[:200])!r}")
        self._sock.settimeout(left)
        try:
            data = self._sock.recv(_RECV_BYTES)
        except TimeoutError as error:
            raise WireError(f"nothing more in time; had {bytes(self._buffer[:200])!r}") from error
        except ConnectionResetError:
            data = b""
        finally:
            self._sock.settimeout(TIMEOUT_S)
        self._buffer += data
        return bool(data)


def render_request(
    method: str,
    target: str,
    host: str,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes | None = None,
) -> bytes:
    """The bytes of a request; a body adds `Content-Length`, no body adds nothing."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")
