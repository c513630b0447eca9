"""Answers that were given and are not taken: the bound on all of them together.

An answer is in memory until the other side has taken it, a page of 8 MiB perhaps, and who asks for one and never reads
it is cut only after the stall time. So all that waits is counted, from the moment in which a connection is told to
write no more until it may write again (small answers never come so far, and cost nothing). Beyond the bound those are
cut off that have taken nothing since they were last looked at, the longest waiting first; only where all others take
something, however little, whoever has waited longest. What streams hold is bounded by the pump: they wait instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topics_daemon.exchange import Link
    from topics_daemon.log import Log

UNTAKEN_BYTES_MAX: Final = 256 * 1024 * 1024
"""What may wait to be taken of all answers."""


class Untaken:
    """Whose answers wait, and how much of them."""

    __slots__ = ("_holders", "_log", "held_bytes", "on_taken")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._holders: dict[Link, tuple[int, int]] = {}
        """Bytes in memory, and bytes that were not taken at the last look."""
        self.held_bytes = 0
        self.on_taken: Callable[[], None] | None = None
        """Told when something is taken to its end, or given up."""

    def note(self, whose: Link, held_bytes: int) -> None:
        """Answers on this connection are not taken, and so many bytes are in memory for that."""
        self.held_bytes += held_bytes - self._holders.get(whose, (0, 0))[0]
        self._holders[whose] = held_bytes, whose.unsent()
        if self.held_bytes > UNTAKEN_BYTES_MAX:
            self._make_room(whose)

    def forget(self, whose: Link) -> None:
        """What waited is taken, or its connection is gone."""
        self.held_bytes -= self._holders.pop(whose, (0, 0))[0]
        if self.on_taken is not None:
            self.on_taken()

    def _make_room(self, newest: Link) -> None:
        for all_take_some in (False, True):
            for whose in [one for one in self._holders if one is not newest]:
                held_bytes, before = self._holders[whose]
                left = whose.unsent()
                if left < before and not all_take_some:
                    self._holders[whose] = held_bytes, left
                    continue
                self._log.warning("answer not taken", bytes=left, max=UNTAKEN_BYTES_MAX)
                self.forget(whose)
                whose.cut()
                if self.held_bytes <= UNTAKEN_BYTES_MAX:
                    return
