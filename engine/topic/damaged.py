"""Records in the log that are damaged, found while a block of a topic is read back, and what stands in for them then.

a frame does not check ─► DamagedFrames ─► told as lost, like damage in segments (engine/core/damage.py)
                                              └─► nobody's any more: `stand_in` keeps the place of its records
"""

from __future__ import annotations

from array import array

from engine.errors import StoreDamaged
from engine.fragment import Rendered
from engine.ranges import Ranges


class DamagedFrames(StoreDamaged):
    """Records in the log that do not check, or cannot be read.

    ranges   seqs of those that were live, or of all
    frames   (shard, lsn) of the frames, where a block is read back from that stays as it is
    unread   the disk refused some of them, and may give them later
    """

    def __init__(
        self,
        topic_id: int,
        ranges: Ranges,
        why: str,
        frames: tuple[tuple[int, int], ...] = (),
        *,
        unread: bool = False,
    ) -> None:
        super().__init__(why)
        self.topic_id = topic_id
        self.ranges = ranges
        self.why = why
        self.frames = frames
        self.unread = unread


def stand_in(first_seq: int, count: int, ts: int) -> Rendered:
    """Records that nobody gets to see, in place of such that are gone from the middle of a block."""
    parts = [b'{"$seq":%d,"$ts":%d,"data":null}' % (seq, ts) for seq in range(first_seq, first_seq + count)]
    return Rendered(b",".join(parts), array("I", [len(part) + 1 for part in parts]))
