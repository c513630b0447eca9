"""What a queue asks of its topic: the seam behind which the records lie.

The queue never looks at a record, and never counts on anything but these answers. They have to agree with the events
that it is told (`Appended`, `Removed`): what is live and was not removed is a job. Records that are too old at the
present time but that the topic has not let go of yet are not live.
"""

from __future__ import annotations

from typing import Protocol

from engine.types import Match


class Jobs(Protocol):
    """The live records of one topic, as jobs."""

    def head(self) -> int:
        """The last seq that is visible; 0 when there is none."""
        ...

    def next_live(self, seq: int, match: Match | None) -> int:
        """The first live seq from `seq` on whose tag passes `match`; anything beyond the head when there is none.

        Without a filter this takes O(log n) steps, however many seqs in between are gone.
        """
        ...

    def is_live(self, seq: int) -> bool:
        """Whether the record is there."""
        ...

    def all_live(self, first: int, last: int) -> bool:
        """Whether every record from `first` to `last` is there."""
        ...

    def run(self, seq: int, count: int) -> tuple[int, int]:
        """The last of some live records without a break, at most `count`, that begin with the live `seq`, and the bytes
        that they take in an answer."""
        ...

    def passes(self, seq: int, match: Match) -> bool:
        """Whether the tag of a live record passes `match`."""
        ...

    def size(self, seq: int) -> int:
        """Bytes that a live record takes in an answer."""
        ...

    def ts(self, seq: int) -> int:
        """When a live record was written, in milliseconds."""
        ...
