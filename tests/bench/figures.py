"""What a row of the bench is: its measurements, their medians and spread, the goal and whether it was met."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of load against one server: how many operations, server CPU, wall time, latencies, client CPU."""

    count: int
    server_cpu_s: float
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    client_cpu_s: float

    @property
    def cpu_us(self) -> float:
        """Server CPU per operation, in microseconds."""
        return self.server_cpu_s / self.count * 1e6 if self.count else float("nan")

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the range around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """The spread of some values."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int = 1) -> str:
        """`median (low … high)`."""
        return f"{_number(self.median, digits)} ({_number(self.low, digits)} … {_number(self.high, digits)})"


def by_chance(ratios: Sequence[float]) -> float:
    """How probable it is that so many pairs differ by that much or more in one direction although nothing makes them
    (0 … 1): of all ways to swap the sides of pairs, the share with a mean of the logarithms as far from zero.

    With n pairs no difference can be shown below 2 / 2**n. At most sixteen pairs.
    """
    logs = [math.log(ratio) for ratio in ratios]
    least = abs(sum(logs)) - 1e-9
    ways = list(itertools.product((1, -1), repeat=len(logs)))
    return sum(abs(sum(map(math.prod, zip(way, logs, strict=True)))) >= least for way in ways) / len(ways)


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


@dataclass
class Row:
    """A row of the table.

    `figure` is what the goal is about, in `unit`; `floor` and `peers` are the same figure of the servers beside it.
    """

    name: str
    unit: str
    figure: Spread
    goal: str
    met: bool | None
    floor: Spread | None = None
    peers: dict[str, Spread] = field(default_factory=dict)
    compiled: float | None = None
    rate: Spread | None = None
    rate_unit: str = "req/s"
    p50_us: float | None = None
    p99_us: float | None = None
    client_cpu_us: float | None = None
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The figure over the floor's."""
        return None if self.floor is None or not self.floor.median else self.figure.median / self.floor.median


def spread_of(turns: list[Turn], per: int = 1) -> Spread:
    """Server CPU in µs per operation, or per part of it if an operation has several parts (records of a batch)."""
    return Spread.of([turn.cpu_us / per for turn in turns])
