"""Forwards that are staged and not applied, as checkpoints have to know of them.

A Forward says where its records are in the source, not what they are. So wherever a start reads it again its source
must be as it was: a source that is taken down later, when records are gone, would have nothing to copy for a dest that
was taken down before. Hence a checkpoint lets all forwards land before it begins to take topics down (`hold`), and from
then on those whose source it has not taken down yet carry their records with them (`carries`).
"""

from __future__ import annotations

from engine.core.slot import Slot


class Forwards:
    """The passes that are on their way."""

    __slots__ = ("_taken", "held", "outstanding")

    def __init__(self) -> None:
        self.outstanding = 0
        """Copies staged in dests and not applied."""
        self.held = False
        """Whether no pass may begin now."""
        self._taken: set[int] | None = None
        """While topics are taken down: those that are."""

    def hold(self) -> bool:
        """Let no pass begin; whether all that had begun have landed."""
        self.held = True
        return not self.outstanding

    def take_down(self) -> None:
        """Topics are taken down from now on, and passes may begin again."""
        self.held = False
        self._taken = set()

    def took(self, slot: Slot) -> None:
        """A topic is taken down."""
        if self._taken is not None:
            self._taken.add(slot.topic.id)

    def release(self) -> None:
        """Everything is taken down, or nothing will be."""
        self.held = False
        self._taken = None

    def carries(self, slot: Slot) -> bool:
        """Whether a Forward out of this topic has to hold its records."""
        return self._taken is not None and slot.topic.id not in self._taken
