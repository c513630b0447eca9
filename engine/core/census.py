"""What is counted over all topics while they change, so that telling it costs the same however many there are.

Totals count from the start of the process. Everything here is bumped where a change is applied or a page is read; on
the hot path that is one addition to a write and one to a page.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.core.slot import Slot
from engine.types import Durability, Reason


class Census:
    """The counts of one store."""

    __slots__ = ("by_class", "damaged", "forwarded", "read", "told", "written")

    def __init__(self) -> None:
        self.written = 0
        """Records of writes that were applied."""
        self.forwarded = 0
        """Copies that routers have made."""
        self.read = 0
        """Records of pages that were read (one that several watchers share counts once)."""
        self.told: dict[Reason, int] = dict.fromkeys(Reason, 0)
        """Tombstones of pages that were read."""
        self.by_class: dict[Durability, int] = dict.fromkeys(Durability, 0)
        """Visible topics."""
        self.damaged: set[Slot] = set()
        """Visible topics with ranges that are known to be damaged."""

    @property
    def damage_ranges(self) -> int:
        """Ranges known to be lost to corruption, over all topics."""
        return sum(len(slot.topic.lost) for slot in self.damaged)

    def recount(self, visible: Iterable[Slot]) -> None:
        """Begin with these: replay makes topics without telling of every step."""
        self.by_class = dict.fromkeys(Durability, 0)
        self.damaged.clear()
        for slot in visible:
            self.enter(slot)

    def enter(self, slot: Slot) -> None:
        """A topic has become visible, as it is now."""
        self.by_class[slot.topic.config.durability] += 1
        if slot.topic.lost:
            self.damaged.add(slot)

    def leave(self, slot: Slot) -> None:
        """A visible topic is about to change, or to be seen no more."""
        self.by_class[slot.topic.config.durability] -= 1
        self.damaged.discard(slot)
