"""A ticket: the promise of an answer to a command that has been taken.

A command that is refused raises at once. One that is taken gives a ticket, which completes when the condition of its
class holds (written, or synced), or fails as *unknown* when its shard stopped. It completes exactly once; what comes
after that is ignored, because the caller may have been told already that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from engine.errors import TopicsError

T = TypeVar("T")


class Ticket(msgspec.Struct, Generic[T], eq=False):
    """The answer to come. `on_done` is called once, from inside the call that completed it."""

    done: bool = False
    result: T | None = None
    error: TopicsError | None = None
    on_done: Callable[[Ticket[T]], None] | None = None
    write_ns: int = 0
    """Nanoseconds that the write of its group took."""
    sync_ns: int = 0
    """Nanoseconds of the sync that its answer waited for; 0 when it waited for none."""

    def complete(self, result: T) -> None:
        """Give the answer."""
        if not self.done:
            self.done = True
            self.result = result
            if self.on_done is not None:
                self.on_done(self)

    def fail(self, error: TopicsError) -> None:
        """Give the failure."""
        if not self.done:
            self.done = True
            self.error = error.anew()
            if self.on_done is not None:
                self.on_done(self)

    def value(self) -> T:
        """The answer of a completed ticket, or its error raised."""
        if self.error is not None:
            raise self.error.anew()
        assert self.result is not None, "the ticket is not completed yet"
        return self.result
