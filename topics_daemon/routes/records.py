"""One record by its seq (http-api.md §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.types import U64_MAX
from topics_daemon.answers import respond
from topics_daemon.head import Head
from topics_daemon.routes.asked import number

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


def get_record(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/topics/:t/records/:seq`: the record's bytes as they are, so nothing of ours is put into them."""
    seq = number(head.param, "seq", 0, U64_MAX)
    daemon.drain(head.name)
    daemon.reading()
    record = daemon.engine.record(head.name, seq)
    daemon.touch(head.name)
    return respond(head, 200, record)
