"""What the daemon counts while it works; `gauges` makes metrics of it, `exposition` makes them text.

The hot path pays for one `Tally.add` a request: an addition, a list item and one look at the answer's status. Times go
into buckets by their number of bits, so that no bound is searched for: the upper bounds are powers of two nanoseconds.
The sum of a route's buckets is its number of requests, and what is not 200 is counted apart, so the usual answer needs
no counter of its own.

Which topics were touched last is known from two sets that are merged by the coarse timer, at most `RECENT_MAX` names.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from engine.errors import Code, TopicsError
from engine.types import Reason

if TYPE_CHECKING:
    from engine.core import Core
    from engine.core.slot import Slot
    from topics_daemon.routes.table import Route

RECENT_MAX: Final = 1000
"""Topics with series of their own (operations.md)."""
BITS: Final = 64
"""Buckets of a histogram: one for each number of bits that a time in nanoseconds may have."""
LAGS_KEPT: Final = 20
"""Looks of the coarse timer over which the worst lag of the loop is told."""
_ZERO, _TWO = b"02"


class Times:
    """A histogram of times."""

    __slots__ = ("buckets", "took_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BITS
        self.took_ns = 0

    def note(self, took_ns: int) -> None:
        """Count one time."""
        self.took_ns += took_ns
        self.buckets[took_ns.bit_length()] += 1


class Tally(Times):
    """The requests of one route: how many with which status, and how long they took."""

    __slots__ = ("route", "statuses")

    def __init__(self, route: str) -> None:
        super().__init__()
        self.route = route
        self.statuses: Counter[int] = Counter()
        """All but 200, which the buckets count together with these."""

    def add(self, answer: bytes, started_ns: int) -> None:
        """Count one answer."""
        took_ns = time.perf_counter_ns() - started_ns
        self.took_ns += took_ns
        self.buckets[took_ns.bit_length()] += 1
        if answer[11] != _ZERO or answer[9] != _TWO:
            self.statuses[int(answer[9:12])] += 1


class Metrics:
    """All that is counted."""

    def __init__(self) -> None:
        self.started = time.time()
        self.tallies: dict[int, Tally] = {}
        """By the identity of the route."""
        self.unrouted = Tally("other")
        """Requests that lead to no route, or cannot be read."""
        self.long_polls = Tally("long poll")
        self.syncs = Times()
        self.throttled: Counter[str] = Counter()
        self.files_left = 0
        """Files that could not be removed."""
        self.touched: set[Slot] = set()
        """Topics with something new since the last look."""
        self.reads: set[str] = set()
        """Names of topics that were read since the last look."""
        self.recent: dict[str, None] = {}
        """The names touched last, the newest at the end."""
        self.lags: deque[float] = deque([0.0], LAGS_KEPT)
        self.lost_before: dict[Reason, int] = {}
        """What topics had already lost when recovery was done, by reason."""
        self._syncs_began_ns: dict[int, int] = {}

    def adopt(self, core: Core) -> None:
        """Recovery is done: count from here."""
        self.lost_before = dict(core.catalog.cache.lost)

    def name_routes(self, routes: dict[tuple[str, ...], dict[str, Route]]) -> None:
        """Make a tally for each route."""
        for pattern, methods in routes.items():
            for method, route in methods.items():
                self.tallies[id(route)] = Tally(f"{method} /{'/'.join(pattern)}")

    def tally(self, route: Route | None) -> Tally:
        """Where the requests of a route are counted."""
        return self.tallies.get(id(route), self.unrouted)

    def answered(self) -> int:
        """Requests that were answered, but for long polls."""
        return sum(sum(tally.buckets) for tally in self.tallies.values())

    def refused(self, error: TopicsError) -> None:
        """Count who had to wait, by why."""
        if error.code is Code.THROTTLED:
            self.throttled[str((error.detail or {}).get("limit", "pressure"))] += 1

    def sync_began(self, shard: int) -> None:
        """A sync is handed to its thread."""
        self._syncs_began_ns[shard] = time.perf_counter_ns()

    def sync_done(self, shard: int) -> None:
        """It is back."""
        began_ns = self._syncs_began_ns.pop(shard, None)
        if began_ns is not None:
            self.syncs.note(time.perf_counter_ns() - began_ns)

    def tick(self, lag_s: float) -> None:
        """The coarse timer: how late it was, and who was touched since."""
        self.lags.append(lag_s)
        if self.touched or self.reads:
            self.recent_names()

    def recent_names(self) -> list[str]:
        """The names touched last, up to now."""
        recent = self.recent
        for name in [*islice(self.reads, RECENT_MAX), *(slot.name for slot in islice(self.touched, RECENT_MAX))]:
            recent.pop(name, None)
            recent[name] = None
        self.reads.clear()
        self.touched.clear()
        for name in list(islice(recent, max(0, len(recent) - RECENT_MAX))):
            del recent[name]
        return list(recent)
