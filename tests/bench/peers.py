"""The peers' own words: pipelined XADD and XRANGE for Redis, pipelined publishes with acknowledgement for JetStream.

The same payloads as the daemon's rows. Redis and NATS get them on one connection each, as many in one write as a batch
has records; their replies are counted by line ends, not read. What is not the same is said in the row's note.
"""

from __future__ import annotations

import json
import socket

from tests.bench.figures import Turn
from tests.bench.load import pump_turn
from tests.bench.servers import BenchError, Server


def resp(*words: bytes) -> bytes:
    """A Redis command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def xadd_turn(server: Server, payload: bytes, batch: int, connections: int, seconds: float) -> Turn:
    """`XADD s * d <payload>`, a batch of them pipelined; each reply is two lines."""
    blob = resp(b"XADD", b"s", b"*", b"d", payload) * batch
    return pump_turn(server, blob, connections, seconds, done=f"lines:{2 * batch}")


def xrange_turn(server: Server, count: int, connections: int, seconds: float) -> Turn:
    """`XRANGE s - + COUNT n`; the reply's length is learnt from the first one."""
    blob = resp(b"XRANGE", b"s", b"-", b"+", b"COUNT", b"%d" % count)
    return pump_turn(server, blob, connections, seconds, done=f"bytes:{_reply_bytes(server.port, blob)}")


def fill_redis(server: Server, payload: bytes, count: int) -> None:
    """Put `count` entries into the stream."""
    blob = resp(b"XADD", b"s", b"*", b"d", payload)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        for at in range(0, count, 1000):
            sock.sendall(blob * min(1000, count - at))
            lines = 0
            while lines < 2 * min(1000, count - at):
                lines += sock.recv(65536).count(b"\n")


def _reply_bytes(port: int, blob: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(blob)
        size = len(sock.recv(1 << 20))
        sock.settimeout(0.3)
        try:
            while data := sock.recv(1 << 20):
                size += len(data)
        except TimeoutError:
            return size
    raise BenchError("the peer closed the connection")


HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def make_stream(server: Server) -> None:
    """Make a JetStream stream on files."""
    config = json.dumps(
        {"name": "S", "subjects": ["s"], "storage": "file", "num_replicas": 1, "discard": "old"}
    ).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        sock.sendall(HELLO + b"SUB in 1\r\nPUB $JS.API.STREAM.CREATE.S in %d\r\n%s\r\n" % (len(config), config))
        seen = b""
        while b"MSG in" not in seen:
            data = sock.recv(65536)
            if not data:
                raise BenchError(f"nats: {seen!r}")
            seen += data
        if b'"error"' in seen:
            raise BenchError(f"nats: {seen!r}")


def publish_turn(server: Server, payload: bytes, batch: int, connections: int, seconds: float) -> Turn:
    """A batch of publishes in one write; done when every one of them is acknowledged by the stream (two lines each)."""
    blob = b"PUB s in %d\r\n%s\r\n" % (len(payload), payload) * batch
    return pump_turn(
        server, blob, connections, seconds, hello=HELLO + b"SUB in 1\r\nPING\r\n", skip=2, done=f"lines:{2 * batch}"
    )
