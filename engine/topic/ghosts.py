"""Records that damage took, and that go on counting for the caps.

A write that cannot be read any more has evicted others while it could. If it counted for nothing at the next replay,
what it evicted would be there again, and a record that was gone must never come back (reliability.md, promise 4). So
the damaged batch counts on, as a ghost: its records exactly, its bytes as an upper bound, until nothing live is left
in front of it; from then on it cannot protect anything. What was deleted of it no longer counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Ghost:
    """What one damaged batch still counts for."""

    first: int
    last: int
    records: int
    bytes: int


class Ghosts:
    """The damaged batches of one topic that still count, ascending."""

    __slots__ = ("_ghosts", "bytes", "records")

    def __init__(self) -> None:
        self._ghosts: list[Ghost] = []
        self.records = 0
        self.bytes = 0

    @classmethod
    def of(cls, ghosts: Iterable[tuple[int, int, int, int]]) -> Ghosts:
        """The ghosts that others were, from (first, last, records, bytes) of each."""
        made = cls()
        made._ghosts = [Ghost(*ghost) for ghost in sorted(ghosts)]
        made._sum()
        return made

    def __bool__(self) -> bool:
        return bool(self._ghosts)

    def __iter__(self) -> Iterator[Ghost]:
        return iter(self._ghosts)

    @property
    def first(self) -> int:
        """The first seq of the first one."""
        return self._ghosts[0].first

    def add(self, first: int, last: int, size: int, records: int | None = None) -> None:
        """Records that counted for at most `size` bytes are damaged: all of `first … last`, or so many of them."""
        self._ghosts.append(Ghost(first, last, last - first + 1 if records is None else records, size))
        self._ghosts.sort(key=lambda ghost: ghost.first)
        self._sum()

    def delete(self, first: int, last: int) -> None:
        """Records between two seqs were deleted; nobody knows which bytes went with them, so those count to the end."""
        for ghost in self._ghosts:
            ghost.records -= max(0, min(last, ghost.last) - max(first, ghost.first) + 1)
        self._sum()

    def forget_below(self, seq: int) -> None:
        """Nothing is live below `seq` any more."""
        self._ghosts = [ghost for ghost in self._ghosts if ghost.last >= seq]
        self._sum()

    def _sum(self) -> None:
        self._ghosts = [ghost for ghost in self._ghosts if ghost.records > 0]
        self.records = sum(ghost.records for ghost in self._ghosts)
        self.bytes = sum(ghost.bytes for ghost in self._ghosts)
