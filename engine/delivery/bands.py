"""The ready set: what has something to deliver, each once, in the order in which it is served.

Five bands by effective priority (`priority + 100 for each second waited, at most 1000`), weights 8 4 2 1 1: a round
gives each band that many turns (deficit round robin with a turn as its unit), first in, first out inside of a band.
What has waited so long that it reaches the next band goes there: its time is known when it is added, so aging costs
only what moves. Whatever has waited for `OVERDUE_S` is served before all bands, oldest first, and turns get shorter
when very many wait (`turn_s`): together they keep every wait below ten seconds.

While `paused`, what has a negative priority of its own is set aside, and comes back when that ends.

Pure: time is given, in seconds of any clock that does not go back.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BANDS: Final = (750, 500, 250, 0)
"""The least effective priority of each band but the last, which has what is negative."""
WEIGHTS: Final = (8, 4, 2, 1, 1)
"""Turns of each band in a round."""
AGE_PER_S: Final = 100
"""What waiting adds to a priority, for each second."""
AGE_MAX: Final = 1000
WAIT_S_MAX: Final = 10.0
"""How long anything may wait for its turn."""
OVERDUE_S: Final = 6.0
"""What has waited for this long is served before all bands; the rest of the ten seconds is for those that are, too."""
TURN_S: Final = 0.002
"""How long one turn may take."""
TURN_S_MIN: Final = 0.00003
TURN_BYTES: Final = 256 * 1024
"""What one turn may deliver."""


def band_of(priority: float) -> int:
    """The band of an effective priority, 0 the first."""
    for band, least in enumerate(BANDS):
        if priority >= least:
            return band
    return len(BANDS)


class _Entry(Generic[Key]):
    """One key that waits."""

    __slots__ = ("band", "key", "number", "priority", "since_s")

    def __init__(self, key: Key, priority: int, since_s: float, number: int) -> None:
        self.key = key
        self.priority = priority
        self.since_s = since_s
        self.number = number
        self.band = band_of(priority)


class Ready(Generic[Key]):
    """The ready set."""

    __slots__ = ("_at", "_bands", "_credit", "_entries", "_moves", "_numbers", "_set_aside", "paused", "waited_s_max")

    def __init__(self) -> None:
        self._entries: OrderedDict[Key, _Entry[Key]] = OrderedDict()
        """All that is not set aside, the oldest first."""
        self._bands: list[OrderedDict[Key, None]] = [OrderedDict() for _ in WEIGHTS]
        # Ordered dictionaries, because taking the first of a plain one looks at all that were taken before it.
        self._moves: list[tuple[float, int, Key]] = []
        """When who reaches the next band: a heap, with some that are gone."""
        self._set_aside: dict[Key, int] = {}
        self._numbers = 0
        self._at = 0
        self._credit = WEIGHTS[0]
        self.paused = False
        """Whether negative priorities wait; set by `pause`."""
        self.waited_s_max = 0.0
        """The longest wait of what was taken since this was set to 0."""

    def __len__(self) -> int:
        """How many wait for a turn; what is set aside does not."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries or key in self._set_aside

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    @property
    def aside(self) -> Mapping[Key, int]:
        """What waits for the pause to end, with its priority."""
        return self._set_aside

    @property
    def turn_s(self) -> float:
        """How long a turn may take now, so that nobody waits for too long."""
        left_s = WAIT_S_MAX - OVERDUE_S
        return max(TURN_S_MIN, min(TURN_S, left_s / (2 * len(self._entries) or 1)))

    def add(self, key: Key, priority: int, now_s: float, *, first: bool = False) -> None:
        """Let a key wait for its turn, unless it does already; `first`: before the others of its band."""
        if key in self._entries or key in self._set_aside:
            return
        if self.paused and priority < 0:
            self._set_aside[key] = priority
            return
        self._numbers += 1
        entry = self._entries[key] = _Entry(key, priority, now_s, self._numbers)
        band = self._bands[entry.band]
        band[key] = None
        if first:
            band.move_to_end(key, last=False)
        self._plan(entry)

    def change(self, key: Key, priority: int, now_s: float) -> None:
        """Give a key another priority, if it waits; that it has waited counts as before."""
        entry = self._entries.get(key)
        if entry is None or (self.paused and priority < 0):
            if key in self:
                self.discard(key)
                self.add(key, priority, now_s)
            return
        del self._bands[entry.band][key]
        self._numbers += 1
        entry.number, entry.priority = self._numbers, priority
        entry.band = band_of(priority + min(AGE_PER_S * (now_s - entry.since_s), AGE_MAX))
        self._bands[entry.band][key] = None
        self._plan(entry)

    def discard(self, key: Key) -> None:
        """A key has nothing to deliver any more."""
        self._set_aside.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._bands[entry.band][key]

    def take(self, now_s: float) -> Key | None:
        """Whose turn it is; None when nobody waits."""
        if not self._entries:
            self._moves.clear()
            return None
        self._age(now_s)
        oldest = next(iter(self._entries.values()))
        key = oldest.key if now_s - oldest.since_s >= OVERDUE_S else self._next()
        entry = self._entries.pop(key)
        del self._bands[entry.band][key]
        self.waited_s_max = max(self.waited_s_max, now_s - entry.since_s)
        return key

    def pause(self, on: bool, now_s: float) -> None:
        """Set aside what has a negative priority, or let it wait for its turn again."""
        if on == self.paused:
            return
        self.paused = on
        if on:
            for key, entry in list(self._entries.items()):
                if entry.priority < 0:
                    self.discard(key)
                    self._set_aside[key] = entry.priority
        else:
            aside, self._set_aside = self._set_aside, {}
            for key, priority in aside.items():
                self.add(key, priority, now_s)

    def _next(self) -> Key:
        """The first of the band whose turn it is; somebody waits."""
        while True:
            band = self._bands[self._at]
            if band and self._credit > 0:
                self._credit -= 1
                return next(iter(band))
            self._at = (self._at + 1) % len(WEIGHTS)
            self._credit = WEIGHTS[self._at]

    def _plan(self, entry: _Entry[Key]) -> None:
        """Note when an entry reaches the next band, if waiting can bring it there."""
        if entry.band == 0:
            return
        lacks = BANDS[entry.band - 1] - entry.priority
        if lacks <= AGE_MAX:
            heapq.heappush(self._moves, (entry.since_s + lacks / AGE_PER_S, entry.number, entry.key))

    def _age(self, now_s: float) -> None:
        """Move what has waited long enough to the next band, behind who is there."""
        moves = self._moves
        while moves and moves[0][0] <= now_s:
            _, number, key = heapq.heappop(moves)
            entry = self._entries.get(key)
            if entry is None or entry.number != number:
                continue
            del self._bands[entry.band][key]
            entry.band -= 1
            self._bands[entry.band][key] = None
            self._plan(entry)
