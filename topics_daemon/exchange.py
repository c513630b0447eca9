"""A request on its way to its answer, and whoever asked it: what is the same for every transport.

Handlers, exchanges and event streams know a `Requester`: a connection of HTTP/1 (`http1.Connection`), or one stream of
a connection of HTTP/2 (`http2.Request`). An answer is always the bytes of an HTTP/1.1 response; who speaks something
else says the same in its own frames.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from engine.errors import TopicsError
from topics_daemon.answers import error_answer

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.head import Head

AHEAD_BYTES: Final = 64 * 1024
"""What of a stream may wait to be sent before it stops rendering; one frame may exceed it."""


class Streaming(Protocol):
    """A stream, as its requester knows it."""

    def pause(self) -> None:
        """More than `AHEAD_BYTES` wait to be sent."""
        ...

    def resume(self) -> None:
        """They have drained."""
        ...

    def gone(self) -> None:
        """Nobody is there any more."""
        ...

    def stalled(self) -> None:
        """The reader has taken nothing for too long."""
        ...


class Requester(Protocol):
    """Whoever asked: takes answers in the order of their requests, or one stream."""

    daemon: Daemon
    pending: deque[Exchange]
    """Requests whose answers are not there yet, in the order in which they must leave."""
    fast: bool
    """Whether the next request may be run at once: nothing is pending."""
    only_pipelined: bool
    """Whether all that is pending is of routes that pipeline."""

    def settle(self) -> None:
        """An exchange has its answer: let go what may leave. This may be inside of the engine's turn."""
        ...

    def become_stream(self, stream: Streaming) -> None:
        """The answer is a stream, which writes by itself from here on, and is told `pause`, `resume`, `gone`,
        `stalled`."""
        ...

    def write(self, data: bytes) -> None:
        """Write a part of a stream; its first part begins with the head of the answer."""
        ...

    def unsent(self) -> int:
        """Bytes of a stream that were written, and not taken yet."""
        ...

    def end(self) -> None:
        """End a stream once everything is written."""
        ...

    def cut(self) -> None:
        """End it now, and drop what is unsent."""
        ...

    def is_gone(self) -> bool:
        """Whether what is written now reaches nobody."""
        ...


class Exchange:
    """A request whose answer is not there yet: it holds its place in the order of answers."""

    __slots__ = ("answer", "connection", "counted", "head", "last", "started_ns")

    def __init__(self, connection: Requester, head: Head | None, started_ns: int, *, counted: bool = True) -> None:
        self.connection = connection
        self.head = head
        self.started_ns = started_ns
        self.answer: bytes | None = None
        self.last = head is None or not head.keep_alive
        """Whether the connection ends with this answer."""
        self.counted = counted
        """Whether it counts as in flight (long polls do not)."""
        if counted:
            assert head is not None
            head.caller.inflight += 1
        connection.pending.append(self)
        connection.fast = False

    def finish(self, answer: bytes) -> None:
        """Give the answer; it leaves when the ones before it have."""
        if self.answer is not None:
            return
        self.answer = answer
        if self.counted:
            assert self.head is not None
            self.head.caller.inflight -= 1
            self.head.tally.add(answer, self.started_ns)
        self.connection.settle()

    def fail(self, error: TopicsError) -> None:
        """Give an error as the answer."""
        self.connection.daemon.metrics.refused(error)
        self.finish(error_answer(self.head, error, self.started_ns, close=self.last))

    def abandon(self) -> None:
        """There will be no answer, or another exchange gives it."""
        if self.answer is None:
            self.answer = b""
            if self.counted:
                assert self.head is not None
                self.head.caller.inflight -= 1

    def gone(self) -> None:
        """The client is gone; whoever waits on its behalf may stop."""

    def ended(self) -> None:
        """The client has sent all it will; who would take something on its behalf had better not."""
