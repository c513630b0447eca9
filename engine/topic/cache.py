"""The memory of all hot tails together, and who has to give some back.

Blocks queue up in the order in which they were made. When they hold more than the bound, the block at the front gives
up its payload, unless somebody read or wrote it since it was last looked at: then it goes to the back once (the clock
algorithm, "second chance"; it costs a flag a read, not a list operation). What a block gives up can be read again from
the log, through `load`. A read that walks over cold blocks gives back what it brought in before it takes more, so that
it neither needs memory without bound nor drives out what others read. Blocks of ephemeral topics are in no log; they
may hold half of the bound, and beyond that the oldest of them are lost for good, as `cap` losses.

Sealed blocks are never hot; what was read of them (`History`) counts as well, and gives way first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from engine.errors import StoreDamaged
from engine.fragment import Rendered, ts_of
from engine.segment.segment import Segment
from engine.topic.block import DERIVED, NOT_LOGGED, Block
from engine.topic.damaged import stand_in
from engine.topic.history import History
from engine.topic.refusals import Refusals
from engine.types import Reason

if TYPE_CHECKING:
    from engine.topic.state import Topic
    from engine.topic.tail import Tail

HISTORY_SHARE: Final = 4
"""What was read of sealed blocks may hold one part in so many of the bound when others want it too."""
SLACK: Final = 8
"""When it has to give way, one part in so many of the bound is given back at once."""
VISITORS: Final = 1024
"""Blocks read back by one turn's reads that are remembered to leave first."""

Load = Callable[[int, int], Rendered]
"""Reads the Append frame at (shard, lsn) back; raises what reading raises."""


def _no_log(shard: int, lsn: int) -> Rendered:
    raise LookupError(f"nobody said how to read shard {shard} lsn {lsn} back")


class Cache:
    """The blocks of one store. `bytes_max` 0 means no bound."""

    __slots__ = (
        "_peeked",
        "_queue",
        "_visitors",
        "_volatile",
        "bad",
        "bytes_held",
        "bytes_max",
        "derived_held",
        "derived_total",
        "history",
        "load",
        "lost",
        "refusals",
        "retired",
        "volatile_held",
    )

    def __init__(self, bytes_max: int = 0, load: Load = _no_log) -> None:
        self.bytes_max = bytes_max
        self.load = load
        self.bytes_held = 0
        """Payload and arrays of all hot blocks, and what is kept of sealed ones."""
        self.lost: dict[Reason, int] = dict.fromkeys(Reason, 0)
        """Live records that topics have lost to their caps and to age, in all."""
        self.derived_held = 0
        """The part of it that the log has in other words (copies), and that stays until a checkpoint seals it."""
        self.derived_total = 0
        """As many bytes of that have ever come."""
        self.volatile_held = 0
        """The part of it that is in no log."""
        self.refusals = Refusals()
        self.history = History(self)
        self.bad: set[tuple[int, int]] = set()
        """Frames, as (shard, lsn), that are damaged, and all of whose records are told as lost."""
        self.retired: list[Segment] = []
        """Segments whose topics have dropped them; whoever looks after their files takes them from here."""
        self._queue: OrderedDict[Block, Tail] = OrderedDict()
        """The hot blocks of logged topics. One leaves at once, wherever it stands: there is never much to tidy up."""
        self._visitors: deque[Block] = deque(maxlen=VISITORS)
        """Blocks that were read back since memory was last looked after."""
        self._peeked: tuple[int, int, Block] | None = None
        """The last single frame that was read back."""
        self._volatile: OrderedDict[Block, Topic] = OrderedDict()

    @property
    def over(self) -> bool:
        """Whether `shrink` has something to do."""
        return 0 < self.bytes_max < self.bytes_held

    def hold(self, block: Block, tail: Tail) -> None:
        """A block of a logged topic has become hot: it holds `block.weight` bytes."""
        self.bytes_held += block.weight
        block.touched = True
        self._queue[block] = tail

    def hold_again(self, block: Block, tail: Tail) -> None:
        """The same for one that was read back: older visitors leave first when there is no room."""
        self.hold(block, tail)
        while self.over and self._visitors:
            visitor = self._visitors.popleft()
            if visitor.data is not None and visitor is not block:
                self.cool(visitor)
        self._visitors.append(block)

    def frame(self, shard: int, lsn: int, first_seq: int, count: int, ts: int) -> Rendered:
        """The records of one frame, read back; at `ts` those of one that is known to be damaged. Raises `StoreDamaged`
        and `OSError`."""
        if (shard, lsn) in self.bad:
            return stand_in(first_seq, count, ts)
        rendered = self.load(shard, lsn)
        if len(rendered.strides) != count:
            raise StoreDamaged(
                f"the log gives {len(rendered.strides)} records where seqs from {first_seq} on are {count}"
            )
        return rendered

    def peek(self, shard: int, lsn: int, first_seq: int, count: int, ts: int) -> Block:
        """One frame as a block of its own, which nobody keeps."""
        if self._peeked is not None and self._peeked[:2] == (shard, lsn):
            return self._peeked[2]
        rendered = self.frame(shard, lsn, first_seq, count, ts)
        block = Block(first_seq, rendered, ts_of(rendered.fragments, 0), shard, lsn, 0)
        self._peeked = (shard, lsn, block)
        return block

    def hold_volatile(self, block: Block, topic: Topic) -> None:
        """The same for a block that is in no log."""
        self.bytes_held += block.weight
        self.volatile_held += block.weight
        self._volatile[block] = topic

    def hold_derived(self, block: Block) -> None:
        """The same for a block of copies, which keeps its payload until it is sealed."""
        self.bytes_held += block.weight
        self.derived_held += block.weight
        self.derived_total += block.weight

    def grow_kept(self, shard: int, weight: int) -> None:
        """A block of these, which `bytes_held` knows of already, holds so much more."""
        if shard == NOT_LOGGED:
            self.volatile_held += weight
        elif shard == DERIVED:
            self.derived_held += weight
            self.derived_total += weight

    def grow(self, block: Block, weight: int) -> None:
        """A hot block holds so much more."""
        block.weight += weight
        self.bytes_held += weight
        if block.shard < 0:
            self.grow_kept(block.shard, weight)

    def remove(self, block: Block) -> None:
        """A block is no topic's any more."""
        if block.data is None:
            if block.segment is not None:
                self.history.forget(block.segment)
                self.retired.append(block.segment)
            return
        self._give_back(block)
        block.clear()

    def forget(self, segment: Segment) -> None:
        """The files of a segment are going to be removed."""
        self.history.forget(segment)

    def cool(self, block: Block) -> None:
        """A block of a logged topic drops its payload."""
        self._give_back(block)
        block.cool()

    def _give_back(self, block: Block) -> None:
        self.bytes_held -= block.weight
        if block.shard == NOT_LOGGED:
            self.volatile_held -= block.weight
            self._volatile.pop(block, None)
        elif block.shard == DERIVED:
            self.derived_held -= block.weight
        else:
            self._queue.pop(block, None)

    def shrink(self) -> tuple[int, int]:
        """Give back memory until the bound holds; (records, bytes) that ephemeral topics have lost by it."""
        records = size = 0
        chances = len(self._queue)
        while self.over:
            history = self.history
            if history.held and (history.held > self.bytes_max // HISTORY_SHARE or not self._queue):
                history.give_back()
                while history.held and self.bytes_held > self.bytes_max - self.bytes_max // SLACK:
                    history.give_back()  # the next few reads find room
            elif self._volatile and (self.volatile_held > self.bytes_max // 2 or not self._queue):
                block, topic = self._volatile.popitem(last=False)
                lost = topic.shed(block)
                records, size = records + lost[0], size + lost[1]
            elif self._queue:
                block = next(iter(self._queue))
                tail = self._queue[block]
                if block.touched and chances > 0:
                    chances -= 1
                    block.touched = False
                    self._queue.move_to_end(block)
                else:
                    self.cool(block)
                    tail.join_cold(block)
            else:
                break
        self._visitors.clear()
        self._peeked = None
        return records, size
