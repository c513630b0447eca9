"""Commands that were taken but cannot be staged yet: the log has no room prepared, or the disk is too far behind.

They wait in order: a later command of the same topic never overtakes an earlier one. What waits too long is refused;
nothing of it was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from engine.core.ticket import Ticket
from engine.errors import Code, TopicsError, Unavailable

PARK_MS: Final = 10_000
"""How long a command waits before it gets a 503."""


class Parked(NamedTuple):
    """One waiting command; `attempt` stages it, raises what it refuses, or returns False for "not yet"."""

    name: str
    ticket: Ticket[Any]
    attempt: Callable[[], bool]
    deadline_ms: int


class Parking:
    """All waiting commands of one store."""

    __slots__ = ("_names", "entries")

    def __init__(self) -> None:
        self.entries: list[Parked] = []
        self._names: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def blocks(self, name: str) -> bool:
        """Whether a command of this topic is waiting, so that a new one has to wait behind it."""
        return bool(self.entries) and self._names[name] > 0

    def add(self, name: str, ticket: Ticket[Any], attempt: Callable[[], bool], now_ms: int) -> None:
        """Let a command wait."""
        self.entries.append(Parked(name, ticket, attempt, now_ms + PARK_MS))
        self._names[name] += 1

    def retry(self, now_ms: int) -> None:
        """Try everything once, in order."""
        if not self.entries:
            return
        entries, self.entries = self.entries, []
        blocked: set[str] = set()
        waiting: list[Parked] = []
        for entry in entries:
            if entry.name in blocked or not self._try(entry, now_ms):
                blocked.add(entry.name)
                waiting.append(entry)
            else:
                self._names[entry.name] -= 1
        self.entries = waiting + self.entries
        self._names += Counter()

    def clear(self, error: TopicsError) -> None:
        """Refuse everything that waits."""
        entries, self.entries = self.entries, []
        self._names.clear()
        for entry in entries:
            entry.ticket.fail(error)

    @staticmethod
    def _try(entry: Parked, now_ms: int) -> bool:
        """Whether the command has got its place or its answer."""
        if now_ms >= entry.deadline_ms:
            entry.ticket.fail(Unavailable(Code.NOT_READY, "the disk is too far behind; nothing was written"))
            return True
        try:
            return entry.attempt()
        except TopicsError as error:
            entry.ticket.fail(error)
            return True
