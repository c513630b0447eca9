"""Records in a segment that are damaged, or that the disk does not give."""

from __future__ import annotations

from engine.errors import StoreDamaged
from engine.ranges import Ranges
from engine.segment.segment import Segment


class DamagedSegment(StoreDamaged):
    """Records that do not check, or cannot be read: `rows` are exactly those, as ascending inclusive ranges.

    `unread`: the disk refused bytes that would have been needed to tell, and may give them later.
    """

    def __init__(self, segment: Segment, path: str, rows: Ranges, why: str, *, unread: bool = False) -> None:
        super().__init__(f"{path}: {why}")
        self.segment = segment
        self.path = path
        self.rows = rows
        self.why = why
        self.unread = unread
