"""A request on its way to its answer, and whoever asked it: what is the same for every transport.

Handlers, exchanges and event streams know a `Requester`: a connection of HTTP/1 (`http1.Connection`), or one stream of
a connection of HTTP/2 (`http2.Request`). An answer is always the bytes of an HTTP/1.1 response; who speaks something
else says the same in its own frames.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from engine.errors import TopicsError
from engine.topic.history import NotCached
from topics_daemon.answers import error_answer

if TYPE_CHECKING:
    from topics_daemon.body import Framing
    from topics_daemon.daemon import Daemon
    from topics_daemon.head import Head
    from topics_daemon.routes.table import Handler

AHEAD_BYTES: Final = 64 * 1024
"""What of a stream may wait to be sent before it stops rendering; one frame may exceed it."""


class Streaming(Protocol):
    """What a requester has become once its answer is not one answer: an event stream, a WebSocket, or an intake."""

    def pause(self) -> None:
        """More than may be written ahead waits to be sent."""
        ...

    def resume(self) -> None:
        """What was written has been taken."""
        ...

    def heard(self, data: bytes) -> None:
        """The other side has sent something."""
        ...

    def check(self, now: float) -> None:
        """Look at the deadlines; called by the coarse timer."""
        ...

    def stalled(self) -> None:
        """The other side has taken nothing for too long."""
        ...

    def judge_again(self) -> None:
        """The keys have changed."""
        ...

    def drain(self) -> None:
        """The daemon stops: end as soon as what is going on is done."""
        ...

    def heard_all(self) -> bool:
        """The other side has sent all it will; returns whether it is still answered. Who would take something on its
        behalf had better not."""
        ...

    def gone(self) -> None:
        """The connection is lost."""
        ...


class OneWay:
    """What a stream of events has to say to what only a WebSocket is told."""

    __slots__ = ()

    def heard(self, data: bytes) -> None:
        """What a client sends after its request is dropped."""

    def check(self, now: float) -> None:
        """There are no deadlines but that of a stall."""

    def judge_again(self) -> None:
        """The pump does it, together with what waits."""

    def drain(self) -> None:
        """The pump has ended it already."""

    def heard_all(self) -> bool:
        """Who hangs up takes no more events."""
        self.gone()
        return False

    def gone(self) -> None:
        """The connection is lost."""


class Outlet(Protocol):
    """Where bytes leave, with nothing in between: a transport, or who stands for one."""

    def write(self, data: bytes) -> None:
        """Write them."""
        ...

    def is_closing(self) -> bool:
        """Whether what is written now reaches nobody."""
        ...

    def get_write_buffer_size(self) -> int:
        """What waits to be sent, and has to leave before anything that does not come this way."""
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

    def waited_s(self) -> float:
        """How long the request that is being run has waited behind others in what its connection had sent."""
        ...

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

    @property
    def transport(self) -> Outlet:
        """The way out for parts of a stream that are many streams' as well, behind its first."""
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

    def descriptor(self) -> int:
        """The socket on whose other side it is, or −1 once it is closed on ours (`presence` says what that tells)."""
        ...


class Sender(Requester, Protocol):
    """A requester that sends its body as it likes: a request of HTTP, not a command of a WebSocket."""

    def framing(self, head: Head) -> Framing:
        """Where the body of a request ends, for a stream that is given the body as it comes."""
        ...

    def invite(self) -> None:
        """Say that the body may come, to a client that waits for it."""
        ...

    def read(self, more: bool) -> None:
        """Go on reading what the other side sends to a stream, or stop: a little may still come then."""
        ...

    def finish(self) -> None:
        """End a stream once everything is written, and drop what still comes until the other side has read it."""
        ...


class Joins(Protocol):
    """Whoever lets what one tick brings leave together."""

    def flush(self) -> None:
        """The tick ends: let go what it brought."""
        ...


class Link(Joins, Protocol):
    """A connection of any version of HTTP, as the daemon sees it."""

    @property
    def transport(self) -> asyncio.Transport: ...

    heard: float
    """When it last sent anything, in the loop's time (that of the last tick before it will do)."""

    def check(self, now: float) -> None:
        """Enforce the deadlines; called by the daemon's coarse timer."""
        ...

    def judge_again(self) -> None:
        """The keys have changed."""
        ...

    def drain(self) -> None:
        """The daemon stops: close after what is going on."""
        ...

    def cut(self) -> None:
        """Close at once, and drop what the other side has not taken."""
        ...

    def unsent(self) -> int:
        """Bytes of answers that were written, and not taken yet."""
        ...


class Exchange:
    """A request whose answer is not there yet: it holds its place in the order of answers."""

    __slots__ = ("answer", "connection", "counted", "head", "last", "started_ns")

    takes_long: ClassVar = False
    """Whether it waits for more than the engine's turn and a sync: no other request of its connection has to, as far as
    the protocol lets them pass."""
    in_line: bool = False
    """Whether it is still being read while others come first (`shares`): what follows on its connection comes after."""

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

    def told(self, found: Any) -> None:
        """What was asked for is done, or refused, and this may be inside of the engine's turn: a bug in what makes an
        answer of that costs this one. Whether it was done is not said then, for it may have been."""
        try:
            self.answered(found)
        except TopicsError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  # logged under an id, which the client gets
            bug = self.connection.daemon.internal_error(error, outcome="unknown")
            if self.answer is None:
                self.fail(bug)
            else:
                self.connection.cut()

    def answered(self, found: Any) -> None:
        """Make an answer of what there is: a ticket of the engine's, or what a handler's callback is given."""
        raise NotImplementedError

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


def run(
    daemon: Daemon, asking: Requester, head: Head, body: bytes, started_ns: int, handler: Handler | None = None
) -> bytes | None:
    """Ask a request's handler, and count the answer; None when an exchange gives it later.

    `handler` stands in for that of the route, for who has read the body already; it needs no reads of the disk. Every
    refusal is an answer, and so is a bug: it costs one answer, not the daemon.
    """
    route = head.route
    assert route is not None
    try:
        daemon.check_serving(route, head.caller)
        answer = (handler or route.handler)(daemon, asking, head, body, started_ns)
        if answer is None:
            return None
    except NotCached as lack:
        daemon.answer_late(asking, head, body, started_ns, lack.job)
        return None
    except TopicsError as error:
        daemon.metrics.refused(error)
        answer = error_answer(head, error, started_ns)
    except Exception as error:  # noqa: BLE001  # logged under an id, which the client gets
        answer = error_answer(head, daemon.internal_error(error), started_ns)
    head.tally.add(answer, started_ns)
    return answer
