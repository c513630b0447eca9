"""What happens at a time: deadlines and ends of delays as a heap of keys, the nearest first.

An entry is never taken out of the middle. It is dead once the job says another time or state (`holds` is asked), and
falls out when it comes to the top, or when more than half of the heap would be dead: then what holds is kept. So the
heap has at most twice as many entries as there are times to wait for, and a push or a pop costs O(log n) on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from engine.queue.job import ms_of

SLACK: Final = 64
"""Dead entries that nobody minds."""


class Timers:
    """Keys by time. `holds(key)` says whether a key still means something."""

    __slots__ = ("_heap", "_holds")

    def __init__(self, holds: Callable[[int], bool]) -> None:
        self._heap: list[int] = []
        self._holds = holds

    def __len__(self) -> int:
        """Entries, dead ones included."""
        return len(self._heap)

    def push(self, keys: Iterable[int], waiting: int) -> None:
        """Wait for these keys; `waiting` is how many hold now, they included."""
        for key in keys:
            heappush(self._heap, key)
        if len(self._heap) > 2 * waiting + SLACK:
            self._heap = list({key for key in self._heap if self._holds(key)})
            heapify(self._heap)

    def pop_due(self, now_ms: int) -> int | None:
        """Take out the nearest key that holds, if its time has come: at that millisecond exactly it has."""
        heap = self._heap
        while heap and ms_of(heap[0]) <= now_ms:
            key = heappop(heap)
            if self._holds(key):
                return key
        return None

    def next_ms(self) -> int | None:
        """The nearest time that anything waits for; None when nothing does."""
        heap = self._heap
        while heap and not self._holds(heap[0]):
            heappop(heap)
        return ms_of(heap[0]) if heap else None
