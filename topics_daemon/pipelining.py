"""Requests that a client sends without waiting for answers: how many of them are taken up, and how long others wait.

Half of what a key may have in flight is for requests that wait for no other one of their connection. Each connection
gets a share of what is left of the other half, the dynamic threshold of switches: so those that pipeline most do not
have it all, and what is beyond waits in its connection instead of being refused.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topics_daemon.exchange import Exchange

INBUF_BYTES_MAX: Final = 256 * 1024
"""Input held back while a connection cannot go on; then reading pauses."""
PENDING_MAX: Final = 64
"""Pipelined requests of one connection that may wait for their answers."""
SHARE: Final = 8
"""A connection may have one part in so many of what is left."""
STEP_S: Final = 0.01
"""What comes within it came at once…"""
STEPS_MAX: Final = 64
"""…and beyond so many steps the newest bytes alone say when it was: memory is bounded, and no wait is overstated."""


def room(inflight: int, inflight_max: int) -> int:
    """How many requests one connection may have in flight when those of its key have so many."""
    return min(PENDING_MAX, (inflight_max // 2 - inflight) // SHARE)


def may_pipeline(pending: deque[Exchange], inflight_max: int) -> bool:
    """Whether a connection that waits for these answers may have another request taken up."""
    if not pending:
        return True
    if pending[-1].last:
        return False  # nobody would be told what became of it
    head = pending[0].head
    return len(pending) < room(head.caller.inflight if head is not None else 0, inflight_max)


def take_answers(pending: deque[Exchange]) -> tuple[list[bytes], bool]:
    """Take the answers off the front of the line, up to the first that is not there; and whether one is the last."""
    answers: list[bytes] = []
    last = False
    while pending and (answer := pending[0].answer) is not None and not last:
        last = pending.popleft().last
        answers.append(answer)
    return answers, last


class Backlog:
    """What a connection has sent that is not taken up, and when it came."""

    __slots__ = ("_came", "_heard_bytes", "_taken_bytes")

    def __init__(self) -> None:
        self._heard_bytes = self._taken_bytes = 0
        self._came: deque[tuple[int, float]] = deque()
        """Steps: what had been heard at the end of each, and when it began."""

    def heard(self, size: int, now_s: float) -> None:
        """So many bytes came."""
        self._heard_bytes += size
        came = self._came
        if came and now_s - came[-1][1] < STEP_S:
            now_s = came.pop()[1]
        elif len(came) >= STEPS_MAX:
            came.pop()
        came.append((self._heard_bytes, now_s))

    def waited_s(self, left: int, now_s: float) -> float:
        """All but so many bytes are taken up; returns how long ago the last of these came, 0 if nothing is known."""
        taken, came = self._heard_bytes - left, self._came
        while came and came[0][0] < taken:
            came.popleft()
        return now_s - came[0][1] if came else 0.0

    def taken(self, left: int, now_s: float) -> float:
        """The same, 0 if it is no more than the last time. What comes next stands behind nothing if none is left."""
        waited_s, taken = 0.0, self._heard_bytes - left
        if taken > self._taken_bytes:
            self._taken_bytes = taken
            waited_s = self.waited_s(left, now_s)
        if not left:
            self._came.clear()
        return waited_s
