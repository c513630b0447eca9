"""The OpenAPI document (http-api.md §12)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topics_daemon.answers import respond
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class _Being(Exchange):
    """An answer whose document is being made, in a thread: it takes 15 ms, in which the loop serves others."""

    __slots__ = ("_daemon",)

    def __init__(self, daemon: Daemon, connection: Requester, head: Head, started_ns: int) -> None:
        super().__init__(connection, head, started_ns)
        self._daemon = daemon
        daemon.loop.run_in_executor(None, _document).add_done_callback(self._made)

    def _made(self, done: asyncio.Future[bytes]) -> None:
        error = done.exception()
        if error is not None:
            self.fail(self._daemon.internal_error(error))
        else:
            _kept[:] = [done.result()]
            self.finish(respond(self.head, 200, _kept[0]))


_kept: list[bytes] = []
"""The document, once it is made."""


def _document() -> bytes:
    from topics_daemon.openapi import document_bytes  # which itself reads the table of routes

    return document_bytes()


def get_document(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes | None:
    """`GET /v0/openapi.json`; made when it is first asked for, since most daemons never are."""
    if _kept:
        return respond(head, 200, _kept[0])
    _Being(daemon, connection, head, started_ns)
    return None
