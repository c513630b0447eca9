"""Ready jobs that are known by name, in the order in which they are to be given out: a sorted list of keys.

Nearly every key is added at the end, because time does not fall, and nearly every one leaves at the front. What leaves
elsewhere is not looked for: the job says that it is not in line any more (`holds` is asked), and dead keys are swept
out once they are the larger part.

A claim with a tag filter passes over jobs that are not meant for it. How far it came is remembered for the filter, so
that the same jobs are not looked at again by the next claim with the same one; a job that comes into line before that
place takes the memory back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from engine.types import Match

FILTERS_MAX: Final = 64
"""Filters whose place is remembered; beyond that the oldest one starts from the front again."""
_SLACK: Final = 64


class Places:
    """For each filter, the key up to which nothing passes it."""

    __slots__ = ("_by_filter",)

    def __init__(self) -> None:
        self._by_filter: dict[Match, int] = {}

    def after(self, match: Match | None) -> int:
        """The key after which to look; 0 for the front."""
        return 0 if match is None else self._by_filter.get(match, 0)

    def note(self, match: Match | None, key: int) -> None:
        """Nothing up to `key` passes `match`."""
        if match is None:
            return
        places = self._by_filter
        places[match] = key
        if len(places) > FILTERS_MAX:
            del places[next(iter(places))]

    def came(self, key: int) -> None:
        """Something came in at `key`: no filter may have passed it."""
        for match, place in self._by_filter.items():
            if place >= key:
                self._by_filter[match] = key - 1


class Line:
    """Keys in order. `holds(key)` says whether a key is still in this line, `passes(key, match)` filters."""

    __slots__ = ("_dead", "_holds", "_keys", "_passes", "_places", "_start")

    def __init__(self, holds: Callable[[int], bool], passes: Callable[[int, Match], bool]) -> None:
        self._keys: list[int] = []
        self._start = 0
        self._dead = 0
        self._holds = holds
        self._passes = passes
        self._places = Places()

    def __len__(self) -> int:
        """Entries, dead ones included."""
        return len(self._keys) - self._start

    def add(self, key: int) -> None:
        """A job comes into line."""
        keys = self._keys
        self._places.came(key)
        if not keys or key > keys[-1]:
            keys.append(key)
            return
        index = bisect_left(keys, key, self._start)
        if index < len(keys) and keys[index] == key:
            self._dead -= 1  # The same job left and came back within one millisecond: its old entry holds again.
        else:
            keys.insert(index, key)

    def add_all(self, keys: list[int]) -> None:
        """Jobs come into line; `keys` ascend."""
        own = self._keys
        if keys and (not own or keys[0] > own[-1]):
            self._places.came(keys[0])
            own += keys
        else:
            for key in keys:
                self.add(key)

    def drop(self, count: int = 1) -> None:
        """Jobs have left the line: their keys do not hold any more."""
        self._dead += count
        if self._dead > _SLACK and 2 * self._dead > len(self):
            self._keys = [key for key in self._keys[self._start :] if self._holds(key)]
            self._start = self._dead = 0

    def first(self) -> int | None:
        """The first key in line, or None."""
        keys = self._keys
        while self._start < len(keys):
            if self._holds(keys[self._start]):
                return keys[self._start]
            self._start += 1
            self._dead -= 1
        keys.clear()
        self._start = self._dead = 0
        return None

    def walk(self, match: Match | None) -> Iterator[int]:
        """The keys in line that pass `match`, in order; the line must not change meanwhile."""
        if self.first() is None:
            return
        keys, found = self._keys, False
        start = max(self._start, bisect_right(keys, self._places.after(match), self._start))
        for index in range(start, len(keys)):
            key = keys[index]
            if not self._holds(key):
                continue
            if match is None or self._passes(key, match):
                if not found:
                    found = True
                    self._places.note(match, key - 1)
                yield key
        if not found:
            self._places.note(match, keys[-1])
