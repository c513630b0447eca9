"""Losses in the middle of a topic: sorted ranges with the reason for each.

A gap is a range of seqs that no reader will ever get, for a reason that is not cap or age: the tail lost in a power
failure, damage, records trimmed at a router's source. Gaps that touch and have one reason are one gap. When the
records before a gap are gone too it becomes part of the floor (`floor`), and leaves this list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.types import Reason


class Gap(NamedTuple):
    """Seqs `first … last`, inclusive, are lost for `reason`."""

    first: int
    last: int
    reason: Reason


def _last(gap: Gap) -> int:
    return gap.last


def combined(reasons: set[Reason]) -> Reason:
    """The one reason, or `mixed`."""
    return next(iter(reasons)) if len(reasons) == 1 else Reason.MIXED


class Gaps:
    """The gaps of one topic, ascending and disjoint."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[Gap] = []

    @classmethod
    def of(cls, gaps: Iterable[tuple[int, int, Reason]]) -> Gaps:
        """The gaps that others were, as they iterate."""
        made = cls()
        made._gaps = [Gap(*gap) for gap in gaps]
        return made

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def __len__(self) -> int:
        return len(self._gaps)

    def __iter__(self) -> Iterator[Gap]:
        return iter(self._gaps)

    def add(self, first: int, last: int, reason: Reason) -> None:
        """Add a range that may overlap what is known; where it does the first reason that was known stays."""
        gaps = self._gaps
        position = first
        while position <= last:
            index = bisect_left(gaps, position, key=_last)
            if index == len(gaps) or gaps[index].first > last:
                self._insert(index, Gap(position, last, reason))
                return
            known = gaps[index]
            if known.first > position:
                self._insert(index, Gap(position, known.first - 1, reason))
            position = known.last + 1

    def _insert(self, index: int, gap: Gap) -> None:
        """Insert, joined with neighbours of the same reason that it touches."""
        gaps = self._gaps
        low, high = index, index
        if low > 0 and gaps[low - 1].last + 1 == gap.first and gaps[low - 1].reason is gap.reason:
            low -= 1
            gap = Gap(gaps[low].first, gap.last, gap.reason)
        if high < len(gaps) and gap.last + 1 == gaps[high].first and gaps[high].reason is gap.reason:
            gap = Gap(gap.first, gaps[high].last, gap.reason)
            high += 1
        gaps[low:high] = [gap]

    def at_or_after(self, seq: int) -> Gap | None:
        """The gap that holds `seq`, else the next one, else None."""
        gaps = self._gaps
        if not gaps or gaps[-1].last < seq:
            return None
        return gaps[bisect_left(gaps, seq, key=_last)]

    def holding(self, seq: int) -> Gap | None:
        """The gap that holds `seq`, or None."""
        gap = self.at_or_after(seq)
        return gap if gap is not None and gap.first <= seq else None

    def before(self, seq: int) -> Gap | None:
        """The first gap if it ends below `seq`, else None."""
        return self._gaps[0] if self._gaps and self._gaps[0].last < seq else None

    def between(self, first: int, last: int) -> list[Gap]:
        """The gaps that have a seq in `first … last`."""
        index = bisect_left(self._gaps, first, key=_last)
        found = []
        while index < len(self._gaps) and self._gaps[index].first <= last:
            found.append(self._gaps[index])
            index += 1
        return found

    def outside(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The parts of `first … last` that no gap has a seq of."""
        for gap in self.between(first, last):
            if first < gap.first:
                yield first, gap.first - 1
            first = gap.last + 1
        if first <= last:
            yield first, last

    def pop_first(self) -> Gap:
        """Take the first gap away (it becomes part of the floor)."""
        return self._gaps.pop(0)
