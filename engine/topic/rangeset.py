"""Sets of seqs as sorted, disjoint, inclusive ranges.

What was deleted inside a topic is kept this way: two 64-bit numbers a range, whatever its width, and no object a
record. Adjacent ranges are joined, so that a set has one representation only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Seqs as ranges: `starts[i] … ends[i]`, both inclusive, ascending, never touching."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: array[int] = array("Q")
        self._ends: array[int] = array("Q")

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> RangeSet:
        """A set of ranges that may touch or overlap, in any order; quick when they ascend."""
        made = cls()
        for first, last in ranges:
            made.add(first, last)
        return made

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        """How many ranges there are (not how many seqs: that is `count`)."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, seq: int) -> bool:
        index = bisect_left(self._ends, seq)
        return index < len(self._ends) and self._starts[index] <= seq

    @property
    def last(self) -> int:
        """The greatest seq; 0 in an empty set."""
        return self._ends[-1] if self._ends else 0

    def count(self) -> int:
        """How many seqs are in the set."""
        return sum(self._ends) - sum(self._starts) + len(self._starts)

    def add(self, first: int, last: int) -> None:
        """Add every seq from `first` to `last`; what it touches or overlaps becomes one range."""
        starts, ends = self._starts, self._ends
        if not ends or first > ends[-1] + 1:
            starts.append(first)
            ends.append(last)
            return
        left = bisect_left(ends, first - 1 if first else 0)
        right = bisect_right(starts, last + 1)
        if right - left == 1:
            if first < starts[left]:
                starts[left] = first
            if last > ends[left]:
                ends[left] = last
            return
        if left == right:
            starts.insert(left, first)
            ends.insert(left, last)
            return
        first, last = min(first, starts[left]), max(last, ends[right - 1])
        starts[left:right] = array("Q", (first,))
        ends[left:right] = array("Q", (last,))

    def between(self, first: int, last: int) -> list[tuple[int, int]]:
        """The part of the set that lies in `first … last`, as ranges."""
        starts, ends = self._starts, self._ends
        left, right = bisect_left(ends, first), bisect_right(starts, last)
        if left >= right:
            return []
        found = list(zip(starts[left:right], ends[left:right], strict=True))
        found[0] = (max(found[0][0], first), found[0][1])
        found[-1] = (found[-1][0], min(found[-1][1], last))
        return found

    def outside(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The parts of `first … last` of which the set has no seq; it must not change meanwhile."""
        starts, ends = self._starts, self._ends
        for index in range(bisect_left(ends, first), bisect_right(starts, last)):
            if first < starts[index]:
                yield first, starts[index] - 1
            first = ends[index] + 1
        if first <= last:
            yield first, last

    def remove_below(self, seq: int) -> None:
        """Forget every seq below `seq`."""
        if not self._starts or self._starts[0] >= seq:
            return
        index = bisect_left(self._ends, seq)
        del self._starts[:index]
        del self._ends[:index]
        if self._starts and self._starts[0] < seq:
            self._starts[0] = seq

    def next_not_in(self, seq: int) -> int:
        """The first seq from `seq` on that is not in the set."""
        index = bisect_left(self._ends, seq)
        if index < len(self._ends) and self._starts[index] <= seq:
            return self._ends[index] + 1
        return seq

    def previous_not_in(self, seq: int) -> int:
        """The last seq down from `seq` that is not in the set."""
        index = bisect_left(self._ends, seq)
        if index < len(self._ends) and self._starts[index] <= seq:
            return self._starts[index] - 1
        return seq

    def next_in(self, seq: int, otherwise: int) -> int:
        """The first seq from `seq` on that is in the set, or `otherwise`."""
        index = bisect_left(self._ends, seq)
        if index == len(self._ends):
            return otherwise
        return max(self._starts[index], seq)
