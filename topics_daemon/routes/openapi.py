"""The OpenAPI document (http-api.md §12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics_daemon.answers import respond
from topics_daemon.head import Head

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


def get_document(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/openapi.json`; made when it is first asked for, since most daemons never are."""
    from topics_daemon.openapi import document_bytes  # which itself reads the table of routes

    return respond(head, 200, document_bytes())
