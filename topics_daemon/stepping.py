"""Answers that are made in steps: whatever takes long is written as a generator, and at each `yield` others may come
first (`shares`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.errors import TopicsError
from topics_daemon.exchange import Exchange

if TYPE_CHECKING:
    from topics_daemon.exchange import Requester
    from topics_daemon.head import Head


class Stepping(Exchange):
    """A request on its way through its steps, the last of which gives the answer; `go_on` begins."""

    __slots__ = ("_steps", "_waits", "in_line")

    def __init__(self, connection: Requester, head: Head, started_ns: int, steps: Iterator[None]) -> None:
        super().__init__(connection, head, started_ns)
        self.in_line = False
        self._waits = False
        """Whether it goes on when something is there that a step waits for, which calls `go_on` then."""
        self._steps = steps

    def go_on(self) -> None:
        """Go on as far as the time of this slice lasts."""
        self._waits = False
        daemon = self.connection.daemon
        try:
            for _ in self._steps:
                if self._waits or daemon.shares.comes_later(self):
                    return
        except TopicsError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            self.fail(daemon.internal_error(error))
