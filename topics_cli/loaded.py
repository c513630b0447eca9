"""What `topics bench` saw of one mode: sums, what happened in each tenth of a second, latencies; and how it is shown.

A terminal gets a table, and below it a plot that fits 80 by 24: the rate as it went, and how often it took how long. A
pipe gets a line of tab-separated cells for each mode, or objects; a scraper the same figures as metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from typing import Any, Final

from topics_cli.amounts import brief_size
from topics_cli.exits import Failure
from topics_cli.latencies import Latencies
from topics_cli.listing import Column
from topics_cli.screen import show_rows
from topics_cli.session import Session
from topics_cli.talk import columns, speaks_utf8
from topics_cli.watching import BARS, sparkline

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
HEADS: Final = (
    Column("MODE"),
    Column("REQ/S", True),
    Column("REC/S", True),
    Column("MB/S", True),
    *(Column(name, True) for name in ("P50ms", "P90ms", "P99ms", "MAXms")),
    Column("REFUSED", True),
    Column("LOST", True),
)
BUCKETS_MAX: Final = 12
_BAR: Final = ("█", "#")


@dataclass(slots=True)
class Seen:
    """One mode."""

    mode: str
    seconds: float = 0.0
    requests: int = 0
    records: int = 0
    bytes: int = 0
    refused: int = 0
    lost: int = 0
    cpu_s: float = 0.0
    """CPU of the processes that made the load."""
    latencies: Latencies = field(default_factory=Latencies)
    slots: list[int] = field(default_factory=list)
    """Records in each tenth of a second."""

    def take(self, report: dict[str, Any], slot: int) -> None:
        """Add what a process reports."""
        self.requests += report["requests"]
        self.records += report["records"]
        self.bytes += report["bytes"]
        self.refused += report["refused"]
        self.lost += report["lost"]
        counts = {int(place): count for place, count in report["counts"].items()}
        self.latencies.merge(counts, report["total"], report["largest"])
        self.slots += [0] * (slot + 1 - len(self.slots))
        self.slots[slot] += report["records"]

    def a_second(self, count: int) -> float:
        """A rate."""
        return count / self.seconds if self.seconds else 0.0

    def milliseconds(self) -> dict[str, float]:
        """Latencies by name."""
        seen = self.latencies
        found = {name: seen.quantile(part) for name, part in QUANTILES.items()}
        found |= {"mean": seen.mean, "max": seen.largest / 1e6}
        return {name: round(value, 3) for name, value in found.items()}

    def as_object(self) -> dict[str, Any]:
        """For programs."""
        return {
            "mode": self.mode,
            "seconds": round(self.seconds, 3),
            **{name: getattr(self, name) for name in ("requests", "records", "bytes", "refused", "lost")},
            "requests_per_s": round(self.a_second(self.requests), 1),
            "records_per_s": round(self.a_second(self.records), 1),
            "bytes_per_s": round(self.a_second(self.bytes)),
            "latency_ms": self.milliseconds(),
            "client_cpu_s": round(self.cpu_s, 3),
            "records_per_100ms": self.slots,
        }

    def row(self) -> list[str]:
        """For people and scripts."""
        took = self.milliseconds()
        rates = [self.a_second(self.requests), self.a_second(self.records)]
        cells = [self.mode, *(f"{rate:.0f}" for rate in rates), f"{self.a_second(self.bytes) / 1e6:.1f}"]
        cells += [f"{took[name]:.{1 if took[name] >= 100 else 2}f}" for name in ("p50", "p90", "p99", "max")]
        return [*cells, str(self.refused), str(self.lost)]


def show(session: Session, runs: list[Seen]) -> None:
    """A table, and on a terminal the plots: of all that was done, or more closely of the only thing."""
    show_rows(session, list(HEADS), [seen.row() for seen in runs])
    if not session.out.is_terminal or session.out.form is not None:
        return
    width = min(columns() - 1, 120)
    bars = BARS[0] if speaks_utf8() else BARS[1]
    for seen in runs:
        peak = max(seen.slots, default=0) * 10
        line = sparkline(squeezed(seen.slots, width - 32), width - 32, bars)
        session.out.line(f"{seen.mode:<6}{line} up to {peak:,} records/s")
    if len(runs) == 1:
        for text in histogram(runs[0].latencies, width):
            session.out.line(text)


def squeezed(slots: list[int], width: int) -> list[float]:
    """At most `width` averages of all slots, so that a long run fits a line."""
    if len(slots) <= width:
        return [float(slot) for slot in slots]
    edges = [place * len(slots) // width for place in range(width + 1)]
    return [sum(slots[begin:end]) / (end - begin) for begin, end in pairwise(edges)]


def histogram(latencies: Latencies, width: int) -> list[str]:
    """Bars of how often it took how long; rare ends are joined."""
    buckets = latencies.doubling()
    if len(buckets) > BUCKETS_MAX:
        last = len(buckets) - BUCKETS_MAX
        buckets = [(buckets[last][0], sum(count for _, count in buckets[: last + 1])), *buckets[last + 1 :]]
    most = max((count for _, count in buckets), default=0)
    mark = _BAR[0] if speaks_utf8() else _BAR[1]
    room = max(10, width - 32)
    return [
        f"<{bound:>9.2f} ms {count:>9,} {count / latencies.count:>6.1%} {mark * -(-count * room // most)}".rstrip()
        for bound, count in buckets
    ]


def brief(seen: Seen, seconds: float) -> str:
    """How it goes, for a progress line."""
    rate, p99 = seen.records / max(seconds, 0.001), seen.latencies.quantile(0.99)
    size = brief_size(int(seen.bytes / max(seconds, 0.001)))
    return f"{seen.mode}  {seconds:.0f} s  {rate:,.0f} records/s  {size}/s  p99 {p99:.1f} ms"


def exposition(runs: list[Seen]) -> str:
    """All figures so far in the text format of Prometheus."""
    lines = []
    for name in ("requests", "records", "bytes", "refused", "lost"):
        metric = f"topics_bench_{name}_total"
        lines.append(f"# TYPE {metric} counter")
        lines += [f'{metric}{{mode="{seen.mode}"}} {getattr(seen, name)}' for seen in runs]
    metric = "topics_bench_latency_seconds"
    lines.append(f"# TYPE {metric} summary")
    for seen in runs:
        for part in QUANTILES.values():
            lines.append(f'{metric}{{mode="{seen.mode}",quantile="{part}"}} {seen.latencies.quantile(part) / 1000:.6f}')
        lines.append(f'{metric}_sum{{mode="{seen.mode}"}} {seen.latencies.total / 1e9:.6f}')
        lines.append(f'{metric}_count{{mode="{seen.mode}"}} {seen.latencies.count}')
    return "\n".join(lines) + "\n"


class Endpoint(HTTPServer):
    """Metrics for a scraper on this machine; a request is answered between two looks at the load, and takes a second
    at most."""

    def __init__(self, port: int, runs: list[Seen]) -> None:
        self.runs = runs
        try:
            super().__init__(("127.0.0.1", port), _Metrics)
        except (OSError, OverflowError) as error:
            why = f"port {port} cannot be listened to: {error}"
            raise Failure(why, "cannot_listen", "give another: --prometheus PORT") from error
        self.timeout = 0


class _Metrics(BaseHTTPRequestHandler):
    timeout = 1.0

    def do_GET(self) -> None:
        """Whatever the path."""
        assert isinstance(self.server, Endpoint)
        body = exposition(self.server.runs).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Nothing is said about scrapes."""
