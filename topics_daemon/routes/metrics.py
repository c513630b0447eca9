"""Metrics: text for Prometheus, or JSON (http-api.md §12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from topics_daemon.answers import json_answer, respond
from topics_daemon.decode import check_names
from topics_daemon.exposition import TEXT, as_json, as_text
from topics_daemon.gauges import collect
from topics_daemon.head import Head, quality
from topics_daemon.stepping import Stepping

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class MetricsExchange(Stepping):
    """A scrape on its way: a thousand queues with cursors and routers take twenty milliseconds."""

    __slots__ = ()

    def __init__(self, daemon: Daemon, connection: Requester, head: Head, started_ns: int) -> None:
        super().__init__(connection, head, started_ns, self._run(daemon, head))

    def _run(self, daemon: Daemon, head: Head) -> Iterator[None]:
        """Collect, render, answer."""
        families = yield from collect(daemon, head.caller)
        json = quality(head.accept, ("application/json",)) if head.accept else 0.0
        if json > 0 and json >= quality(head.accept, ("text/plain", "text/*", "application/openmetrics-text")):
            warnings: list[str] = []
            check_names(head.query, frozenset(), warnings)
            shown = yield from as_json(families)
            self.finish(json_answer(head, 200, {"metrics": shown}, warnings, self.started_ns))
        else:
            text = yield from as_text(families)
            self.finish(respond(head, 200, text, TEXT))


def get_metrics(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`GET /v0/metrics`; JSON when Accept prefers it to text."""
    MetricsExchange(daemon, connection, head, started_ns).go_on()
