"""How long things took, as a histogram that many processes can add up.

Buckets are 1/32 of a power of two wide, so a quantile is at most 3 % above what was measured, whatever the range, and a
histogram of a million values has a few hundred numbers. (The scheme is HdrHistogram's, with five bits.)
"""

from __future__ import annotations

from typing import Final

_BITS: Final = 5
_PART: Final = 1 << _BITS


class Latencies:
    """Counts of durations, in nanoseconds."""

    __slots__ = ("count", "counts", "largest", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        """Sum of all, in nanoseconds."""
        self.largest = 0

    def add(self, ns: int) -> None:
        """Count one duration."""
        place = _place(ns)
        self.counts[place] = self.counts.get(place, 0) + 1
        self.count += 1
        self.total += ns
        self.largest = max(self.largest, ns)

    def merge(self, counts: dict[int, int], total: int, largest: int) -> None:
        """Add what another one counted."""
        for place, count in counts.items():
            self.counts[place] = self.counts.get(place, 0) + count
            self.count += count
        self.total += total
        self.largest = max(self.largest, largest)

    def quantile(self, part: float) -> float:
        """Milliseconds that so many (0 … 1) did not exceed; 0 when nothing was counted."""
        wanted, seen = part * self.count, 0
        for place in sorted(self.counts):
            seen += self.counts[place]
            if seen >= wanted:
                return min(_end(place), self.largest) / 1e6
        return 0.0

    @property
    def mean(self) -> float:
        """Milliseconds on average; 0 when nothing was counted."""
        return self.total / self.count / 1e6 if self.count else 0.0

    def doubling(self) -> list[tuple[float, int]]:
        """Coarse buckets for people: each one's upper bound in milliseconds, twice the one before, and its count."""
        if not self.counts:
            return []
        found: dict[int, int] = {}
        for place, count in self.counts.items():
            power = (_end(place) - 1).bit_length()
            found[power] = found.get(power, 0) + count
        return [((1 << power) / 1e6, found.get(power, 0)) for power in range(min(found), max(found) + 1)]


def _place(ns: int) -> int:
    shift = max(0, ns.bit_length() - _BITS - 1)
    return (shift << (_BITS + 1)) + (ns >> shift)


def _end(place: int) -> int:
    """The first duration beyond a bucket."""
    return ((place & (2 * _PART - 1)) + 1) << (place >> (_BITS + 1))
