"""HTTP/1.1 over one kept connection, a step at a time.

`Channel` holds a connection to the daemon over a Unix socket or TCP. `start` takes a request, each `step` moves what
can be moved without waiting, and returns the answer once it is whole; between steps the caller waits for `watch`, as
it likes and for whatever else it likes. That one shape serves a plain call, a writer that reads its input meanwhile,
and a reader of many topics. Nothing is retried here: whatever breaks is `Lost`.

Our own client, because the one of the standard library takes longer to import than a whole command may take; it
speaks only to our own daemon (or a proxy before it): no redirects, no cookies, no compression. `_socket` is the C half
of `socket`, without the enums.
"""

from __future__ import annotations

import _socket
import errno

from topics_cli.signals import POLLIN, POLLOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from topics_cli.where import Where

READ_BYTES = 1 << 20
HEAD_BYTES_MAX = 64 * 1024
SEND_SLICE = 1 << 18
JOIN_BYTES = 1 << 15
"""A body smaller than this is copied behind its head, so that the daemon reads both at once."""
_IN_PROGRESS = (errno.EINPROGRESS, errno.EAGAIN, errno.EALREADY, errno.EWOULDBLOCK)


class Lost(Exception):
    """The connection failed or was never made. `refused`: nobody listens there; `fresh`: nothing was answered yet."""

    def __init__(self, why: str, *, refused: bool = False, errno: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.refused = refused
        self.errno = errno


class Answer:
    """A whole answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Channel:
    """One connection, used for one request after the other."""

    __slots__ = (
        "_body",
        "_chunked",
        "_connecting",
        "_head",
        "_input",
        "_missing",
        "_out",
        "_socket",
        "_until_close",
        "answered",
        "met",
        "reused",
        "where",
    )

    def __init__(self, where: Where) -> None:
        self.where = where
        self._socket: _socket.socket | None = None
        self._connecting = False
        self.reused = False
        """Whether the request in flight went out on a connection that had already served one."""
        self.met = False
        """Whether somebody took the connection that was tried last."""
        self.answered = False
        """Whether this connection has ever given an answer."""
        self._reset()

    def _reset(self) -> None:
        self._out: list[memoryview] = []
        self._input = bytearray()
        self._head: tuple[int, dict[bytes, bytes]] | None = None
        self._body: list[bytes] = []
        self._missing = 0
        self._chunked = False
        self._until_close = False

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for before the next step."""
        if self._socket is None:
            return []
        events = POLLOUT if self._connecting else POLLIN | POLLOUT if self._out else POLLIN
        return [(self._socket.fileno(), events)]

    @property
    def status(self) -> int:
        """The status of the answer that is coming in; 0 while its head is not there."""
        return 0 if self._head is None else self._head[0]

    def taken(self) -> bytes:
        """What has come of the body of an answer that ends with its connection; it is not kept for the end."""
        if not self._until_close and not self._chunked:
            return b""
        body, self._body = self._body, []
        return b"".join(body)

    def start(self, *parts: bytes) -> None:
        """Begin a request: its bytes, in parts; small ones go out in one piece. Connects first where needed."""
        self._reset()
        if len(parts[-1]) < JOIN_BYTES:
            parts = (b"".join(parts),)
        self._out = [memoryview(part) for part in parts]
        self.reused = self._socket is not None
        if self._socket is None:
            self.met = False
            self._socket, self._connecting = _connect(self.where)
            self.met = not self._connecting
            self.answered = False

    def step(self) -> Answer | None:
        """Move what can be moved; the answer once it is whole. Raises `Lost`, and closes then."""
        try:
            return self._step()
        except OSError as error:
            self.close()
            raise Lost(_said(error), refused=_is_refusal(error), errno=error.errno or 0) from error
        except Lost:
            self.close()
            raise

    def hang_up(self) -> None:
        """Send nothing more: the daemon learns that we are gone, and what it had sent by then can still be read."""
        if self._socket is not None and not self._connecting:
            try:
                self._socket.shutdown(_socket.SHUT_WR)
            except OSError:
                self.close()

    def close(self) -> None:
        """Let the connection go."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._connecting = False

    def _step(self) -> Answer | None:
        sock = self._socket
        if sock is None:
            raise Lost("not connected")
        if self._connecting:
            number = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
            if number:
                raise OSError(number, _strerror(number))
            try:
                sock.getpeername()
            except OSError as error:
                if error.errno == errno.ENOTCONN:
                    return None
                raise
            self._connecting = False
            self.met = True
        self._send(sock)
        while True:
            try:
                data = sock.recv(READ_BYTES)
            except BlockingIOError:
                return None
            if not data:
                return self._ended()
            answer = self._take(data)
            if answer is not None:
                self.answered = True
                if answer.headers.get(b"connection", b"").lower() == b"close" or self._out:
                    self.close()
                return answer

    def _send(self, sock: _socket.socket) -> None:
        out = self._out
        try:
            while out:
                sent = sock.send(out[0][:SEND_SLICE])
                if sent == len(out[0]):
                    out.pop(0)
                else:
                    out[0] = out[0][sent:]
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise
            # The daemon may have refused before it read the whole body: its answer is still there to be read.
            out.clear()

    def _ended(self) -> Answer:
        if self._head is not None and self._until_close:
            status, headers = self._head
            self.close()
            return Answer(status, headers, b"".join(self._body))
        raise Lost("the daemon closed the connection")

    def _take(self, data: bytes) -> Answer | None:
        """Take received bytes in; the answer when they complete it."""
        if self._head is None:
            self._input += data
            if not self._take_head():
                return None
            data = bytes(self._input)
            self._input.clear()
        status, headers = self._head or (0, {})
        if self._chunked:
            self._input += data
            if not self._take_chunks():
                return None
        else:
            self._body.append(data)
            self._missing -= len(data)
            if self._until_close or self._missing > 0:
                return None
            if self._missing < 0:
                raise Lost("the daemon sent more than it announced")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return Answer(status, headers, body)

    def _take_head(self) -> bool:
        """Read a head out of the input; False while it is not whole. Interim answers (1xx) are passed over."""
        while True:
            end = self._input.find(b"\r\n\r\n")
            if end < 0:
                if len(self._input) > HEAD_BYTES_MAX:
                    raise Lost("the answer is not HTTP")
                return False
            lines = bytes(self._input[:end]).split(b"\r\n")
            del self._input[: end + 4]
            status = lines[0][9:12]
            if not lines[0].startswith(b"HTTP/1.") or not status.isdigit():
                raise Lost("the answer is not HTTP")
            if not status.startswith(b"1"):
                break
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        self._head = (int(status), headers)
        length = headers.get(b"content-length", b"")
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        if length.isdigit():
            self._missing = int(length)
        elif not self._chunked and status not in (b"204", b"304"):
            self._until_close = True
        return True

    def _take_chunks(self) -> bool:
        """Move whole chunks from the input to the body; True when the last one was there."""
        data = self._input
        at = 0
        done = False
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            try:
                size = int(data[at:end].split(b";")[0], 16)
            except ValueError:
                raise Lost("the answer is not HTTP") from None
            if size == 0:
                # The last chunk; trailers may follow it, and an empty line ends them.
                done = data.find(b"\r\n\r\n", end) >= 0
                break
            if len(data) < end + 2 + size + 2:
                break
            self._body.append(bytes(data[end + 2 : end + 2 + size]))
            at = end + 2 + size + 2
        del data[:at]
        return done


def _connect(where: Where) -> tuple[_socket.socket, bool]:
    """A socket that is connected or about to be, and which of the two."""
    try:
        if where.path:
            sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            address: str | tuple[str, int] = where.path
        else:
            # As bytes: a name that is text would be taken through the codec for international names, which is slow to
            # import, and which ASCII does not need.
            host = where.host.encode() if where.host.isascii() else where.host
            family, _, _, _, found = _socket.getaddrinfo(host, where.port, 0, _socket.SOCK_STREAM)[0]
            sock = _socket.socket(family, _socket.SOCK_STREAM)
            address = found  # type: ignore[assignment]  # what getaddrinfo gives is what connect takes
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        number = sock.connect_ex(address)
    except OSError as error:
        raise Lost(_said(error), refused=_is_refusal(error), errno=error.errno or 0) from error
    if number and number not in _IN_PROGRESS:
        sock.close()
        raise Lost(_strerror(number), refused=number in _REFUSALS, errno=number)
    return sock, bool(number)


_REFUSALS = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.EHOSTUNREACH, errno.ENETUNREACH)


def _is_refusal(error: OSError) -> bool:
    return error.errno in _REFUSALS


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def _strerror(number: int) -> str:
    import os

    return os.strerror(number)
