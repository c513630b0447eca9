"""Claims that are served together (queues.md, rule 5): a window of time as plain data.

The first claim opens a window of `claim_jitter_ms`; what comes before it ends joins; when it has ended all of them are
dealt jobs in one decision (`Queue.claim`), in proportion to what each asked for. Who waits here is the host's business.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Cohort(Generic[T]):
    """The window of one queue, open or not."""

    __slots__ = ("_joined", "due_ms")

    def __init__(self) -> None:
        self.due_ms: int | None = None
        """When the window that is open ends; None when none is."""
        self._joined: list[T] = []

    def __len__(self) -> int:
        """How many have joined."""
        return len(self._joined)

    def join(self, claimer: T, now: int, jitter_ms: int) -> None:
        """Be served when the window ends; the first one opens it."""
        if self.due_ms is None:
            self.due_ms = now + jitter_ms
        self._joined.append(claimer)

    def leave(self, claimer: T) -> None:
        """A claimer has gone away before it was served; the window stays."""
        if claimer in self._joined:
            self._joined.remove(claimer)

    def take(self, now: int) -> list[T]:
        """Everybody who joined, in order, once the window has ended; nobody before."""
        if self.due_ms is None or now < self.due_ms:
            return []
        joined, self._joined, self.due_ms = self._joined, [], None
        return joined
