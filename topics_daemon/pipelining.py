"""Requests that a client sends without waiting for answers: how many of them are taken up, and how long others wait.

Half of what a key may have in flight is for requests that wait for no other one of their connection. Each connection
gets a share of what is left of the other half, the dynamic threshold of switches: so those that pipeline most do not
have it all, and what is beyond waits in its connection instead of being refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections import deque

    from topics_daemon.exchange import Exchange

PENDING_MAX: Final = 64
"""Pipelined requests of one connection that may wait for their answers."""
SHARE: Final = 8
"""A connection may have one part in so many of what is left."""


def may_pipeline(pending: deque[Exchange], inflight_max: int) -> bool:
    """Whether a connection that waits for these answers may have another request taken up."""
    if not pending:
        return True
    head = pending[0].head
    left = inflight_max // 2 - (head.caller.inflight if head is not None else 0)
    return len(pending) < min(PENDING_MAX, left // SHARE)


class Backlog:
    """What a connection has sent that is not taken up, and how long that takes: of one byte at a time."""

    __slots__ = ("_heard_bytes", "_marked_bytes", "_marked_s")

    def __init__(self) -> None:
        self._heard_bytes = self._marked_bytes = 0
        self._marked_s = 0.0

    def heard(self, size: int, now: Callable[[], float], *, waits: bool) -> None:
        """So many bytes came; `waits` says whether they stand behind requests that are not answered."""
        self._heard_bytes += size
        if waits and not self._marked_s:
            self._marked_s, self._marked_bytes = now(), self._heard_bytes

    def left(self, size: int, now: Callable[[], float]) -> float:
        """So many bytes are left; returns how long the marked one has waited if it is not among them, else 0."""
        if not self._marked_s or self._heard_bytes - size < self._marked_bytes:
            return 0.0
        began_s, self._marked_s = self._marked_s, 0.0
        return now() - began_s
