"""Streams of records: one request, as many batches as it takes (`intake` has the life of one)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from engine.commands import check_batch
from engine.errors import invalid
from engine.limits import Limits
from topics_daemon.decode import check_names, decode_ndjson, decode_text_lines
from topics_daemon.head import Content, Head
from topics_daemon.intake import Asked, Intake
from topics_daemon.routes.asked import flag
from topics_daemon.routes.write import batch_of_lines

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester, Sender

_QUERY: Final = frozenset({"stream", "tag", "node", "meta", "create", "ack"})


def append_stream(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:t/records?stream=true`: asked before its body is there; `body` is what has come of it."""
    query = head.query
    if not flag(query, "stream", False):
        raise invalid("this is for streams: say stream=true, or POST one batch to the topic itself", "stream")
    if head.idempotency_key is not None or "idempotency_key" in query:
        raise invalid("a stream is many writes, and takes no idempotency key", "idempotency_key")
    if query.get("ack", "fsync") != "fsync":
        raise invalid('ack must be "fsync"', "ack")
    warnings: list[str] = []
    check_names(query, _QUERY, warnings)
    if (pressed := daemon.pressure.refusal(connection.waited_s())) is not None:
        raise pressed.error.anew()
    # What is wrong with each record is wrong before the first one.
    check_batch(batch_of_lines(query, [b"0"]), daemon.limits)
    asked = Asked(
        (_texts if head.content is Content.LINES else _values)(daemon.limits),
        partial(batch_of_lines, query),
        head.content is not Content.LINES,
        flag(query, "create", True) if "create" in query else None,
        "ack" in query,
        warnings,
    )
    Intake(daemon, cast("Sender", connection), head, asked, started_ns).open(body)


def _values(limits: Limits) -> Callable[[bytes, int], list[bytes]]:
    return lambda run, first: decode_ndjson(run, limits, first)


def _texts(limits: Limits) -> Callable[[bytes, int], list[bytes]]:
    return lambda run, _first: decode_text_lines(run, limits)
