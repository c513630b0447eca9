"""Metrics: text for Prometheus, or JSON (http-api.md §12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics_daemon.answers import json_answer, respond
from topics_daemon.decode import check_names
from topics_daemon.exposition import TEXT, as_json, as_text
from topics_daemon.gauges import collect
from topics_daemon.head import Head, quality

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


def get_metrics(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/metrics`; JSON when Accept prefers it to text."""
    families = collect(daemon, head.caller)
    json = quality(head.accept, ("application/json",)) if head.accept else 0.0
    if json > 0 and json >= quality(head.accept, ("text/plain", "text/*", "application/openmetrics-text")):
        warnings: list[str] = []
        check_names(head.query, frozenset(), warnings)
        return json_answer(head, 200, {"metrics": as_json(families)}, warnings, started_ns)
    return respond(head, 200, as_text(families), TEXT)
