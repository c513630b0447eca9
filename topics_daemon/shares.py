"""How long requests that come in bulk may hold the loop before everybody else is looked at again.

A connection may have sent megabytes of requests at once, and many connections a large one each. What is read off
buffers between two looks at the sockets shares one slice of time; who has more stands in line, and goes on after the
turn of the engine in which what was taken is written. So a lone request waits for a slice at most, however much others
send, and those who send much still get all the time that is left.

While writes run ahead of checkpoints, what comes in bulk rests after each slice (`pace`): a thread that writes segments
gets that time, and the senders wait in their connections. Otherwise the log would grow for as long as they send.

A small request that comes alone never stands in line (`http1.Connection.data_received`).
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

SLICE_NS: Final = 1_000_000
"""Time for all of them together between two looks at the sockets; the request that is under way then is finished."""
ALONE_SLICE_NS: Final = 2_000_000
"""The same while only one connection was heard of lately, which need not pay for others that are not there: each slice
costs a turn of the engine, and a thread that builds a segment takes the interpreter's lock in between."""
PACE_MAX: Final = 0.97
"""Share of its time that bulk rests at most…"""
PACE_FULL_AT: Final = 0.75
"""…when so much of what writes may run ahead of checkpoints is used up (`Keeper.behind`)."""
REST_NS_MAX: Final = 200_000_000
"""Longest rest after one slice."""
ALONE_BYTES_MAX: Final = 32 * 1024
"""A request that comes alone, and is no larger, is run at once whatever others have sent: it takes 0.2 ms at most.
But what is large to answer takes turns with its like (`readers`)."""


class Waits(Protocol):
    """Whoever has more than was taken; while `in_line` says so, others come first."""

    in_line: bool

    def go_on(self) -> None:
        """It is your turn; ask before each thing that you do whether it comes later."""
        ...


class Shares:
    """The line, and what is left of the slice."""

    __slots__ = (
        "_began_ns",
        "_daemon",
        "_line",
        "_little",
        "_little_next",
        "_looked_s",
        "_planned",
        "_rests_until_ns",
        "_slice_ns",
        "_until_ns",
        "_used",
        "bulk",
        "pace",
    )

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._line: deque[Waits] = deque()
        self._little: deque[Waits] = deque()
        """Those in line who have little. They take turns with the others: who has little waits for few who have as
        little, not for all who have much, and those get half of the time however many have little."""
        self._little_next = False
        self._planned = False
        self._until_ns = 0
        """When the slice that has begun is over; 0 when none has."""
        self._slice_ns = SLICE_NS
        self._began_ns = 0
        """When the last slice began, until the engine has had its turn; 0 then."""
        self._rests_until_ns = 0
        self.pace = 0.0
        """Share of its time that bulk rests, up to `PACE_MAX`."""
        self.bulk = False
        """Whether anybody sent in bulk of late."""
        self._used = False
        """Whether a slice has begun since the last look."""
        self._looked_s = 0.0

    def spent(self) -> bool:
        """Whether the slice is over; the first one to ask begins it."""
        now_ns = time.perf_counter_ns()
        if self._until_ns:
            return now_ns >= self._until_ns
        if now_ns < self._rests_until_ns:
            return True
        self._began_ns = now_ns
        self._until_ns = now_ns + self._slice_ns
        self._used = True
        self._daemon.loop.call_soon(self._pass)
        return False

    def comes_later(self, who: Waits, *, first: bool = False, little: bool = False) -> bool:
        """Whether others come before what somebody has next; then it goes on in a later slice (`go_on`).

        `first`: before all who stand in line, because it has begun something that takes memory until it is done.
        `little`: all that it has is done within a slice or so.
        """
        if not self.spent():
            return False
        who.in_line = True
        (self._line.appendleft if first else (self._little if little else self._line).append)(who)
        self._plan()
        return True

    def slow_down(self, behind: float) -> None:
        """Writes have run so far ahead of checkpoints."""
        self.pace = PACE_MAX * min(behind / PACE_FULL_AT, 1.0)

    def look(self) -> None:
        """Every now and then: see whether there is more than one connection that sends anything."""
        since_s, self._looked_s = self._looked_s, self._daemon.coarse_s
        self._slice_ns = SLICE_NS
        self.bulk, self._used = self._used, False
        if self.bulk and sum(connection.heard >= since_s for connection in self._daemon.connections) < 2:
            self._slice_ns = ALONE_SLICE_NS

    def _pass(self) -> None:
        """The sockets are looked at next, once the engine has had its turn if anything has asked for one."""
        if not self._daemon.turn_due:
            self.renew()

    def renew(self) -> None:
        """The engine has had its turn: the next slice may begin, and begins with those who stand in line."""
        if self.pace and self._began_ns:
            now_ns = time.perf_counter_ns()
            rest_ns = (now_ns - self._began_ns) * self.pace / (1 - self.pace)
            self._rests_until_ns = now_ns + min(int(rest_ns), REST_NS_MAX)
        self._began_ns = 0
        if not (self._line or self._little):
            self._until_ns = 0

    def _serve(self) -> None:
        self._planned = False
        if self._rests_until_ns:
            rest_ns = self._rests_until_ns - time.perf_counter_ns()
            if rest_ns > 0:
                self._planned = True
                self._daemon.loop.call_later(rest_ns / 1e9, self._serve)
                return
            self._rests_until_ns = 0
        self._until_ns = 0  # whoever is first begins the slice by asking, so at least one request is taken
        while self._line or self._little:
            self._little_next = not self._little_next
            line = self._little if self._little and (self._little_next or not self._line) else self._line
            who = line.popleft()
            who.in_line = False
            who.go_on()
            if self.spent():
                break
        if self._line or self._little:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._daemon.wake()  # before the line goes on: what this slice takes is written first
            self._daemon.loop.call_soon(self._serve)
