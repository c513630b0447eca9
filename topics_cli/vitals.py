"""How a daemon is, out of its metrics: one reading, and what two readings say of the time between them."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from topics_cli.session import Session

METRICS_PATH: Final = "/v0/metrics"
PROMISES: Final = {
    "ephemeral": "in memory only",
    "memory": "acked at once",
    "disk": "acked once in the log: survives a crash of the process",
    "fsync": "acked once synced: survives a power cut",
}
"""What an ack means in each durability class."""


FORECAST_S_MAX: Final = 30 * 86_400.0
"""A disk that lasts longer than this is not said to fill: nobody has to do anything about it yet."""


class Reading:
    """The metrics at one moment."""

    __slots__ = ("_families", "taken_s")

    def __init__(self, families: dict[str, Any], taken_s: float) -> None:
        self._families = families
        self.taken_s = taken_s
        """Monotonic clock, seconds."""

    def by(self, name: str, label: str = "") -> dict[str, float]:
        """Values of a metric by one of its labels; those that share it are summed."""
        found: dict[str, float] = {}
        for sample in self._families.get(name, {}).get("series", ()):
            if sample.get("part") in (None, "count"):
                key = str(sample["labels"].get(label, ""))
                found[key] = found.get(key, 0) + float(sample["value"])
        return found

    def sum(self, name: str) -> float:
        """A metric summed over its labels; 0 where the daemon has none such."""
        return sum(self.by(name).values())

    def quantile(self, name: str, part: float) -> float | None:
        """An upper bound of a quantile of a histogram, in its unit; None when it holds nothing yet."""
        buckets = [
            sample for sample in self._families.get(name, {}).get("series", ()) if sample.get("part") == "bucket"
        ]
        counts = sorted((float(sample["labels"]["le"].replace("+Inf", "inf")), sample["value"]) for sample in buckets)
        total = counts[-1][1] if counts else 0
        return next((bound for bound, count in counts if count >= part * total), None) if total else None

    @property
    def families(self) -> dict[str, Any]:
        """Everything that was read."""
        return self._families

    def has(self, name: str) -> bool:
        """Whether the daemon gives this metric."""
        return bool(self._families.get(name, {}).get("series"))


class Pace:
    """What happened between two readings, per second."""

    __slots__ = ("_newer", "_older", "_seconds")

    def __init__(self, older: Reading, newer: Reading) -> None:
        self._older = older
        self._newer = newer
        self._seconds = max(newer.taken_s - older.taken_s, 0.001)

    def of(self, name: str) -> float:
        """How fast a counter rose; a daemon that was started again in between counts from 0."""
        before, after = self._older.sum(name), self._newer.sum(name)
        return max(0.0, after - before if after >= before else after) / self._seconds

    def by(self, name: str, label: str) -> dict[str, float]:
        """How fast it rose for each value of a label, the fastest first."""
        before = self._older.by(name, label)
        rose = {
            key: (value - before.get(key, value)) / self._seconds for key, value in self._newer.by(name, label).items()
        }
        return dict(sorted(((key, rate) for key, rate in rose.items() if rate > 0), key=lambda pair: -pair[1]))


def take(session: Session) -> Reading:
    """Read the metrics; raises `Failure` as any request does."""
    client = session.client
    answer = client.get(METRICS_PATH)
    return Reading(json.loads(answer.body)["metrics"], time.monotonic())


def full_in_s(free: float, bytes_per_s: float) -> float | None:
    """Seconds until a disk is full when it goes on so; None when that is too far away to be said."""
    left = free / bytes_per_s if bytes_per_s > 0 else FORECAST_S_MAX
    return left if left < FORECAST_S_MAX else None
