"""One request of an HTTP/2 connection (what HTTP/2 calls a stream): its body on the way in, its answer on the way out.

To handlers it is a `Requester` like a connection of HTTP/1. What it has to send waits in `_out` and is taken from
there by the connection, as the peer's windows allow:

    BODY ──complete──► READY (waits for room on the connection) ──► ASKED ──answer──► SENDING ──all sent──► CLOSED
      └──refused─────────────────────────────────────────────────────────────────────────┘
    and from anywhere ──reset, by either side──► CLOSED
"""

from __future__ import annotations

import copy
import time
from collections import deque
from enum import IntEnum
from io import BytesIO
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes

from engine.errors import Code, Refused, TopicsError
from topics_daemon.answers import error_answer
from topics_daemon.body import (
    DRAIN_BODY_BYTES_MAX,
    Framing,
    Unpacking,
    check_budget,
    is_slow,
    payload_too_large,
)
from topics_daemon.exchange import AHEAD_BYTES, Exchange, run
from topics_daemon.http2_head import as_fields

if TYPE_CHECKING:
    from topics_daemon.exchange import Outlet, Streaming
    from topics_daemon.head import Head
    from topics_daemon.http2 import Connection

SMALL_ANSWER_BYTES: Final = 4096
"""Answers up to this size are given even when the connection has too much to send already."""


class State(IntEnum):
    """Where a request is."""

    BODY = 0
    READY = 1
    ASKED = 2
    SENDING = 3
    CLOSED = 4


class Request:
    """One request, and whoever waits for its answer."""

    __slots__ = (
        "_body",
        "_body_since",
        "_expects",
        "_framing",
        "_gathered",
        "_held_back",
        "_moved_s",
        "_out",
        "_packed",
        "_received",
        "_started_ns",
        "came_s",
        "daemon",
        "fast",
        "head",
        "id",
        "in_line",
        "last",
        "line",
        "only_pipelined",
        "out_bytes",
        "paused",
        "peer_ended",
        "pending",
        "state",
        "stream",
    )

    def __init__(self, line: Connection, number: int) -> None:
        self.line = line
        self.daemon = line.daemon
        self.id = number
        self.head: Head | None = None
        self.state = State.BODY
        self.pending: deque[Exchange] = deque()
        self.fast = False
        self.in_line = False
        """Whether others come first (`daemon.shares`)."""
        self.only_pipelined = True
        self.came_s = 0.0
        """When the last byte came that it was complete with."""
        self.stream: Streaming | None = None
        self.paused = False
        """Whether its stream must not render ahead any more."""
        self.last = False
        """Whether nothing follows what waits to be sent."""
        self.peer_ended = False
        """Whether the peer has sent all of its request."""
        self.out_bytes = 0
        """Bytes that wait to be sent."""
        self._out: deque[memoryview] = deque()
        self._expects = False
        """Whether the head of the answer comes with the next write of its stream."""
        self._framing: Framing | None = None
        """Of a body that its stream is given as it comes."""
        self._held_back = -1
        """What of its window is not given back to the peer while its stream does not read; −1 while it does."""
        self._body = b""
        """The first of it that came…"""
        self._gathered: BytesIO | None = None
        """…and all of it, where there is more: it grows in its place, and is not copied once it is there."""
        self._packed: Unpacking | None = None
        """The body while it is inflated."""
        self._received = 0
        """What it counts among the bodies of all requests."""
        self._started_ns = 0
        self._body_since = self._moved_s = self.daemon.loop.time()

    # -- its body ----------------------------------------------------------------------------------------------------

    def begin(self, head: Head, *, ended: bool) -> None:
        """Its head is there; raises the refusal of what need not be read to its end.

        `ended`: whether no body follows.
        """
        self.head = head
        if ended:
            return
        refusal = head.refusal
        small = 0 <= head.length <= DRAIN_BODY_BYTES_MAX and not head.expects_continue
        if refusal is not None and (not small or refusal.code is Code.PAYLOAD_TOO_LARGE):
            raise refusal.anew()
        if head.streams and refusal is None:
            self.state = State.READY
            self.line.run_soon(self)
        elif head.expects_continue:
            self.line.inform(self.id)

    def take_body(self, data: bytes) -> None:
        """Some of its body is there; raises the refusal of what is too large."""
        if self.stream is not None:
            self.stream.heard(data)
            return
        if self.head is None or (
            self.state is not State.BODY and not (self.state is State.READY and self.head.streams)
        ):
            return
        daemon = self.daemon
        self._received += len(data)
        daemon.buffered_bytes += len(data)
        if self._gathered is not None:
            self._gathered.write(data)
        elif self._body:
            self._gathered = BytesIO()
            self._gathered.writelines((self._body, data))
        else:
            self._body = data
        if self._received > self.head.body_bytes_max:
            raise payload_too_large(self.head.body_bytes_max)
        check_budget(daemon, self._received)

    def complete(self) -> None:
        """The peer has sent all of it: run it as soon as there is room for an answer."""
        self.peer_ended = True
        if self._framing is not None and self.stream is not None:
            self._framing.over = True
            self.stream.heard(b"")
        if self.state is State.BODY and self.head is not None:
            self.state = State.READY
            self.line.run_soon(self)

    def _forget_body(self) -> bytes:
        self.daemon.buffered_bytes -= self._received
        self._received = 0
        if self._packed is not None:
            self._packed.forget()
            self._packed = None
        body = self._body if self._gathered is None else self._gathered.getvalue()
        self._body, self._gathered = b"", None
        return body

    # -- its answer --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Answer it, or let its handler do so later."""
        if self.state is not State.READY:
            return
        daemon, head = self.daemon, self.head
        assert head is not None
        self.state = State.ASKED
        self._started_ns = time.perf_counter_ns()
        try:
            body = self._forget_body()
            if head.refusal is not None:
                raise head.refusal.anew()
        except TopicsError as error:
            self.refuse(error)
            return
        if body and head.coding == "gzip" and not head.streams:
            self._packed = Unpacking(daemon, body, head.body_bytes_max)
            self._unpack()
        else:
            self._answer(body)

    def go_on(self) -> None:
        """Others had their turn: unpack on."""
        if self._packed is not None:
            self._unpack()
            self.line.note(self)

    def _unpack(self) -> None:
        """Inflate the body for as long as nobody else has to be looked at, and answer when that was all."""
        packed = self._packed
        assert packed is not None
        try:
            while not self.daemon.shares.comes_later(self, first=packed.begun):
                if packed.step():
                    body = packed.content()
                    self._forget_body()
                    self._answer(body)
                    return
        except TopicsError as error:
            self.refuse(error)

    def _answer(self, body: bytes) -> None:
        assert self.head is not None
        answer = run(self.daemon, self, self.head, body, self._started_ns)
        if answer is not None:
            self._send_answer(answer)
        elif self.pending and self.pending[-1].counted and not self.pending[-1].takes_long:
            self.line.working[self] = None

    def refuse(self, error: TopicsError) -> None:
        """Answer what is not read to its end, or has no head that could be read."""
        self._started_ns = started_ns = time.perf_counter_ns()
        self._forget_body()
        self.state = State.ASKED
        metrics = self.daemon.metrics
        metrics.refused(error)
        answer = error_answer(self.head, error, started_ns)
        (metrics.unrouted if self.head is None else self.head.tally).add(answer, started_ns)
        self._send_answer(answer)

    def waited_s(self) -> float:
        """How long it has waited in what its connection had sent."""
        return self.daemon.loop.time() - self.came_s

    def settle(self) -> None:
        """An exchange has its answer; what follows is left to the end of the tick."""
        self.line.note(self)

    def answer_settled(self) -> None:
        """Take the answer of the exchange, if it is there (an abandoned one leaves it to the next)."""
        pending = self.pending
        while pending and pending[0].answer is not None:
            answer = pending.popleft().answer
            self.line.working.pop(self, None)
            if answer and self.state is State.ASKED:
                self._send_answer(answer)

    def _send_answer(self, answer: bytes) -> None:
        line = self.line
        if len(answer) > SMALL_ANSWER_BYTES and line.is_full:
            error = Refused(
                Code.THROTTLED,
                "this connection takes its answers more slowly than it asks for them",
                {"retry_after_ms": 1000},
            )
            self.daemon.metrics.refused(error)
            answer = error_answer(self.head, error, self._started_ns)
        self.last = True
        self._say(answer)

    def _say(self, answer: bytes) -> None:
        """Send the head of an answer, and queue what follows it."""
        self.state = State.SENDING
        fields, at = as_fields(answer)
        over = self.last and at == len(answer)
        self.line.say(self.id, fields, over)
        self._moved_s = self.daemon.coarse_s
        if over:
            self.sent_all()
        elif at < len(answer):
            self._queue(memoryview(answer)[at:])

    def _queue(self, data: memoryview) -> None:
        self._out.append(data)
        self.out_bytes += len(data)
        self.line.queued(self, len(data))

    def next_piece(self, most: int) -> memoryview:
        """Take at most `most` bytes of what waits to be sent."""
        first = self._out[0]
        if len(first) > most:
            piece, rest = first[:most], first[most:]
            # A view keeps all of an answer in memory: once half is taken, the rest is one of its own.
            self._out[0] = memoryview(bytes(rest)) if len(rest) * 2 < memoryview(first.obj).nbytes else rest
        else:
            piece = self._out.popleft()
        self.out_bytes -= len(piece)
        self._moved_s = self.daemon.coarse_s
        return piece

    def sent_all(self) -> None:
        """The answer is sent to its end; what the peer still wants to send of the request is not needed."""
        if not self.peer_ended:
            self.line.reset(self, ErrorCodes.NO_ERROR)
        self.close()

    def close(self) -> None:
        """It is over, whoever ended it: let go of everything."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._forget_body()
        self.line.closed(self, self.out_bytes)
        self._out.clear()
        self.out_bytes = 0
        if self.stream is not None:
            self.stream.gone()
            self.stream = None
        for exchange in list(self.pending):
            exchange.gone()
        self.pending.clear()

    # -- as a stream -------------------------------------------------------------------------------------------------

    def become_stream(self, stream: Streaming) -> None:
        """The answer is an event stream, which writes by itself from here on."""
        self.stream = stream
        self._expects = True

    def framing(self, head: Head) -> Framing:
        """Where the body ends: the frames say so."""
        self._framing = Framing(over=self.peer_ended)
        return self._framing

    def invite(self) -> None:
        """Say that the body may come."""
        self.line.inform(self.id)

    def read(self, more: bool) -> None:
        """Go on reading what the peer sends to the stream, or stop: what it may send already comes all the same."""
        if more:
            held_back, self._held_back = self._held_back, -1
            self.line.reopen(self, max(held_back, 0))
        else:
            self._held_back = max(self._held_back, 0)

    def held_back(self, size: int) -> bool:
        """Whether what came is not to be given back to the window before the stream reads on."""
        if self._held_back < 0 or self.state is State.CLOSED:
            return False
        self._held_back += size
        return True

    def write(self, data: bytes) -> None:
        """Write a part of the stream."""
        if self.state is State.CLOSED:
            return
        if self._expects:
            self._expects = False
            self._say(data)
        else:
            self._queue(memoryview(data))
        if not self.paused and (self.out_bytes > AHEAD_BYTES or self.line.is_full):
            self.pause()
        self.line.note(self)

    def pause(self) -> None:
        """More than may be rendered ahead waits to be sent, here or on the connection."""
        self.paused = True
        if self.stream is not None:
            self.stream.pause()

    def may_resume(self) -> None:
        """Some of what waited is sent."""
        if self.paused and self.out_bytes <= AHEAD_BYTES // 4 and self.line.has_room:
            self.paused = False
            if self.stream is not None:
                self.stream.resume()

    def unsent(self) -> int:
        """Bytes that were written and are not sent."""
        return self.out_bytes

    get_write_buffer_size = unsent

    def end(self) -> None:
        """End the stream once everything is sent."""
        if self.state is not State.CLOSED:
            self.last = True
            self.line.end_soon(self)

    def finish(self) -> None:
        """The same: the peer is told to send nothing more."""
        self.end()

    def cut(self) -> None:
        """End it now."""
        if self.state is not State.CLOSED:
            self.line.reset(self, ErrorCodes.CANCEL)
            self.close()

    def descriptor(self) -> int:
        """The socket of its connection, or −1 once it is closed on our side."""
        return -1 if self.state is State.CLOSED else self.line.descriptor()

    def is_closing(self) -> bool:
        """Whether what is written now reaches nobody."""
        return self.state is State.CLOSED or self.line.is_gone

    @property
    def transport(self) -> Outlet:
        """Frames of its own."""
        return self

    # -- time --------------------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Enforce the deadlines of its body and of its answer."""
        times = self.daemon.timeouts
        if self.state is State.BODY:
            waits = self.line.in_line  # for others: what has come of it is not looked at yet
            if not waits and is_slow(self._received + self.line.partial, now - self._body_since, times.body_s):
                self.cut()
        elif self.out_bytes and now - self._moved_s > times.stall_s:
            if self.stream is not None:
                self._moved_s = now
                self.stream.stalled()
            else:
                self.cut()
        elif self.stream is not None:
            self.stream.check(now)

    def judge_again(self) -> None:
        """The keys have changed: what was decided about a request that is coming in may not hold any more."""
        if self.state <= State.READY and self.head is not None and self.head.refusal is None:
            self.head = copy.copy(self.head)
            self.line.door.judge(self.head)
        elif self.stream is not None:
            self.stream.judge_again()
