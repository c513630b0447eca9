"""What the disk has refused to give: for how long already, and whether it may still be nothing.

    refused (EIO) ─► on probation: readers get 503, nothing is told ─► was it read since? ─► then there was nothing
                                                                   └─► refused again after `UNREADABLE_MS`: lost

A cable or a controller that fails for a second must not cost records for good (docs/adr/0057). What is learnt of one
stretch is good for all of its segment, or of its topic's part of the log, as long as nothing of that can be read: a
reader of a large one waits once. As soon as something else of it was read, what is refused anew has its own time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from engine.segment.segment import Segment
from engine.topic.rangeset import RangeSet

UNREADABLE_MS: Final = 60_000
"""So long the disk has to refuse bytes before they count as lost."""
STALE_MS: Final = 600_000
"""What nobody has asked for in so long is begun anew when it is refused again: two short faults are not a long one."""
PLACES_MAX: Final = 4096
"""Places that are remembered; of more the first ones are begun anew."""

Place: TypeAlias = Segment | int
"""A segment, or the log's part of the topic with this id."""


class _Refusal:
    """Since when (and when last) which seqs were refused, and whether something else of the place was read since."""

    __slots__ = ("last_ms", "others_read", "seqs", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = self.last_ms = now_ms
        self.seqs = RangeSet()
        self.others_read = False


class Refusals:
    """The places of one running store of which the disk has refused something."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[Place, _Refusal] = {}

    def __len__(self) -> int:
        return len(self._places)

    def refused(self, place: Place, seqs: Iterable[tuple[int, int]], now_ms: int) -> tuple[bool, bool]:
        """The disk has refused these: whether they are on probation now, and whether that is new of this place."""
        known = self._places.get(place)
        is_new = known is None or now_ms - known.last_ms > STALE_MS
        if known is None or is_new:
            while len(self._places) >= PLACES_MAX:
                del self._places[next(iter(self._places))]
            known = self._places[place] = _Refusal(now_ms)
        for first, last in seqs:
            if known.others_read and known.seqs.between(first, last) != [(first, last)]:
                known.since_ms, known.others_read = now_ms, False
            known.seqs.add(first, last)
        known.last_ms = now_ms
        return now_ms - known.since_ms < UNREADABLE_MS, is_new

    def was_read(self, place: Place, first: int, last: int) -> None:
        """The disk has given these."""
        known = self._places.get(place)
        if known is None:
            return
        if known.seqs.between(first, last):
            del self._places[place]
        else:
            known.others_read = True
