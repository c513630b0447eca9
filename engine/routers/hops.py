"""How often the records of a topic were forwarded: 0 for what was written to it, more for copies, and for gaps in their
place.

A short ascending list of ranges, for copies come in long runs; only where they alternate with writes do the ranges get
many, and then the oldest are joined over what lies between, at the higher count: such a record may stop early in a
cycle, but goes round in none.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

RANGES_MAX: Final = 8192
"""Ranges kept for one topic."""
HOPS_KEPT_MAX: Final = 31
"""Higher counts are kept as this one."""


class Hops:
    """Which records are copies."""

    __slots__ = ("_counts", "_firsts", "_lasts")

    def __init__(self, ranges: list[tuple[int, int, int]] | None = None) -> None:
        self._firsts = [first for first, _, _ in ranges or ()]
        self._lasts = [last for _, last, _ in ranges or ()]
        self._counts = [count for _, _, count in ranges or ()]

    def add(self, first: int, last: int, count: int) -> None:
        """Copies came, behind all others."""
        count = min(count, HOPS_KEPT_MAX)
        if self._lasts and self._lasts[-1] + 1 == first and self._counts[-1] == count:
            self._lasts[-1] = last
            return
        self._firsts.append(first)
        self._lasts.append(last)
        self._counts.append(count)
        if len(self._firsts) > RANGES_MAX:
            self._counts[1] = max(self._counts[:2])
            self._firsts[1] = self._firsts[0]
            for column in (self._firsts, self._lasts, self._counts):
                del column[0]

    def at(self, seq: int) -> tuple[int, int]:
        """The count of a record, and the last seq up to which that is so for all."""
        index = bisect_right(self._firsts, seq) - 1
        if index >= 0 and seq <= self._lasts[index]:
            return self._counts[index], self._lasts[index]
        return 0, self._firsts[index + 1] - 1 if index + 1 < len(self._firsts) else 1 << 64

    def among(self, first: int, last: int, count_max: int) -> tuple[int, int]:
        """How many of these seqs have no higher count, and the highest count that one of them has."""
        seqs = most = 0
        while first <= last:
            count, until = self.at(first)
            until = min(until, last)
            if count <= count_max:
                seqs, most = seqs + until - first + 1, max(most, count)
            first = until + 1
        return seqs, most

    def above(self, seq: int) -> list[tuple[int, int, int]]:
        """The ranges that reach beyond a seq: for images, and to forget the others."""
        index = bisect_right(self._lasts, seq)
        for column in (self._firsts, self._lasts, self._counts):
            del column[:index]
        return list(zip(self._firsts, self._lasts, self._counts, strict=True))
