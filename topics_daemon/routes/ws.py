"""Opening a WebSocket (http-api.md §8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.errors import Code, Refused
from topics_daemon.head import Head
from topics_daemon.http1 import Connection
from topics_daemon.websocket import Socket, shake_hands

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

OPENED: Final = b"HTTP/1.1 101"
"""How the answer to the opening begins, for who counts it."""


def open_socket(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`GET /v0/ws`: from here on the connection is a WebSocket.

    Who asks needs a valid key, whatever it is good for: every command is judged by itself.
    """
    if head.upgrade is None or not isinstance(connection, Connection):
        raise Refused(Code.INVALID_REQUEST, "this path speaks WebSocket, over HTTP/1.1: open it with a client for that")
    protocol = shake_hands(head.upgrade, daemon.limits.body_bytes)
    Socket(daemon, connection, head.caller, protocol).open()
    head.tally.add(OPENED, started_ns)
