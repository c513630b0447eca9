"""One HTTP/1.1 connection: bytes in, requests run, answers out in order.

The hot path is `data_received`: a chunk that is exactly one request, whose head is in the memo, is run with no
parsing, no task, no future. Everything else goes through `_advance`, a loop over the phases of a connection:

    HEAD ──head complete──► BODY / GATHER ──body complete──► [INFLATE ──►] run ──► HEAD
      │                                                    └─► WAIT (an earlier answer has to come first) ──► run
      ├─► STREAM   an SSE stream or a WebSocket owns the connection, and is given what the client sends
      └─► LINGER   the last answer is out, the rest of an unread body is dropped, then the connection closes

Requests may be pipelined; answers leave in order. A request whose answer comes later is an `Exchange` in `pending`.
Writes may run while earlier writes are pending, so that they share a tick; anything else waits until `pending` is
empty, so that it sees what the requests before it did.

Deadlines are kept by one coarse timer of the daemon, which calls `check` now and then.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from engine.errors import Code, Refused, TopicsError
from engine.topic.history import NotCached
from topics_daemon import http2
from topics_daemon.answers import CONTINUE, error_answer
from topics_daemon.body import (
    DRAIN_BODY_BYTES_MAX,
    Chunked,
    Framing,
    Gathering,
    Sized,
    Unpacking,
    check_budget,
    gathering,
    is_slow,
    take_first,
)
from topics_daemon.exchange import AHEAD_BYTES, Exchange, Streaming
from topics_daemon.head import PLAUSIBLE_START, Head, check_begun, opens, parse, says_http
from topics_daemon.http2_frames import PREFACE_HEAD
from topics_daemon.listen import LINGER_S, TURNED_AWAY_MAX, Stuck, abort, hold_little, is_own_user, peer_of
from topics_daemon.phase import BODY, CLOSED, GATHER, HEAD, INFLATE, LINGER, STREAM, WAIT
from topics_daemon.pipelining import INBUF_BYTES_MAX, Backlog, may_pipeline, take_answers
from topics_daemon.presence import descriptor_of
from topics_daemon.shares import ALONE_BYTES_MAX

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon, Door


class Connection(asyncio.Protocol):
    """One client's connection; `door` says which listener it came through."""

    __slots__ = (
        "_backlog",
        "_daemon_waits",
        "_eof",
        "_first",
        "_gathered",
        "_head",
        "_inbuf",
        "_packed",
        "_received",
        "_scan",
        "_since",
        "_stuck",
        "_waiting",
        "daemon",
        "door",
        "fast",
        "heads",
        "heard",
        "in_line",
        "only_pipelined",
        "paused",
        "peer",
        "pending",
        "phase",
        "reading",
        "stream",
        "transport",
        "write",
    )

    transport: asyncio.Transport
    write: Callable[[bytes], None]
    """The transport's own: what streams write goes through no method of ours."""

    def __init__(self, daemon: Daemon, door: Door) -> None:
        self.daemon = daemon
        self.door = door
        self.heads = door.heads
        self.pending: deque[Exchange] = deque()
        self.only_pipelined = True
        self.phase = HEAD
        self.fast = True
        """Whether the next chunk may take the hot path: nothing is buffered, pending or closing."""
        self._first = True
        """Whether no request was read yet: the first words say which version of HTTP is spoken."""
        self.paused = False
        self.reading = True
        self.heard = 0.0
        self.peer = ""
        self.stream: Streaming | None = None
        self._inbuf = bytearray()
        self.in_line = False
        """Whether others come first (`daemon.shares`): nothing is read off the buffer meanwhile."""
        self._scan = 0
        self._backlog: Backlog | None = None
        self._head: Head | None = None
        self._gathered: Gathering | None = None
        self._packed: Unpacking | None = None
        self._received = 0
        self._eof = False
        self._since = 0.0
        self._stuck: Stuck | None = None
        self._daemon_waits = False
        self._waiting = b""

    # -- what the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write
        daemon = self.daemon
        self.heard = daemon.coarse_s
        if self.door.inner is not None and is_own_user(transport.get_extra_info("socket")):
            self.door = self.door.inner
            self.heads = self.door.heads
        self.peer = peer_of(transport)
        refusal = daemon.admit(self.peer)
        daemon.connections.add(self)
        if refusal is not None:
            self.peer = ""
            self._refuse(None, refusal, time.perf_counter_ns())
            if daemon.turned_away > TURNED_AWAY_MAX:
                transport.close()

    def data_received(self, data: bytes) -> None:
        daemon = self.daemon
        if self.fast and daemon.serving:
            end = data.find(b"\r\n\r\n") + 4
            head = self.heads.get(data[:end])
            if head is not None and len(data) == end + head.length <= ALONE_BYTES_MAX and head.coding == "identity":
                self.heard = daemon.coarse_s
                self._first = False
                self._run(head, data[end:])
                return
        self.heard = daemon.coarse_s
        if self.phase < STREAM:
            self.fast = False
            self._inbuf += data
            self._backlog = self._backlog or Backlog()
            self._backlog.heard(len(data), daemon.loop.time())
            if self.phase is BODY or self.phase is GATHER:
                self._received += len(data)
                daemon.buffered_bytes += len(data)
            self.go_on()
        elif self.phase is STREAM:
            assert self.stream is not None
            # What came before there was a stream is its beginning, also where this is called before that is handed on.
            data, self._inbuf = bytes(self._inbuf) + data, bytearray()
            if data:
                self.stream.heard(data)

    def eof_received(self) -> bool:
        """A client that has sent all it will may still read: what is pending is answered first. A stream ends here,
        before the write of the same tick is served: it may reach nobody, and the session's cursor must not pass it."""
        self._eof = True
        for exchange in list(self.pending):
            exchange.ended()
        if self.stream is not None:
            self.data_received(b"")
            return self.stream.heard_all()
        return self._has_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self.phase = CLOSED
        self.fast = False
        self.daemon.dismiss(self, self.peer)
        self._forget_body()
        if self.stream is not None:
            self.stream.gone()
            self.stream = None
        for exchange in self.pending:
            exchange.gone()
        self.pending.clear()

    def pause_writing(self) -> None:
        self.paused = True
        self.fast = False
        if self.stream is not None:
            self.stream.pause()

    def resume_writing(self) -> None:
        self.paused = False
        self.daemon.untaken.forget(self)
        if self.stream is not None:
            self.stream.resume()
        elif self.phase < STREAM:
            self.go_on()

    # -- requests --------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """`_advance`, with every refusal answered: nothing may escape into the loop."""
        try:
            self._advance()
        except TopicsError as error:
            self._refuse(self._head, error, time.perf_counter_ns())
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            self._refuse(self._head, self.daemon.internal_error(error), time.perf_counter_ns())

    def _advance(self) -> None:
        """Go on with what is buffered as far as it leads, and as the time of this slice lasts."""
        shares = self.daemon.shares
        while not self.in_line:
            if self.phase is HEAD:
                if not opens(self._inbuf) or not self._may_start() or shares.comes_later(self) or not self._take_head():
                    break
            elif self.phase is BODY:
                assert self._head is not None
                if len(self._inbuf) < self._head.length:
                    check_budget(self.daemon, self._received)
                    break
                if shares.comes_later(self):
                    break
                self._body_complete(take_first(self._inbuf, self._head.length))
            elif self.phase is GATHER:
                assert self._gathered is not None
                if not self._gathered.feed(self._inbuf):
                    check_budget(self.daemon, self._received)
                    break
                if shares.comes_later(self):
                    break
                self._body_complete(self._gathered.body())
            elif self.phase is INFLATE:
                assert self._packed is not None
                if shares.comes_later(self, first=self._packed.begun):
                    break
                if self._packed.step():
                    self._whole(self._packed.content())
            elif self.phase is not WAIT or not self._start_waiting():
                break
        if self._backlog is not None:
            self.daemon.pressure.waited(self._backlog.taken(len(self._inbuf), self.daemon.loop.time()))
        self._settle_reading()

    def waited_s(self) -> float:
        """How long the request that is being run has waited in what was sent."""
        return 0.0 if self._backlog is None else self._backlog.waited_s(len(self._inbuf), self.daemon.loop.time())

    def _may_start(self) -> bool:
        """Whether another request may be taken up now."""
        return not (self.paused or self.transport.is_closing()) and may_pipeline(self.pending, self.daemon.inflight_max)

    def _has_more(self) -> bool:
        """Whether what has come in leads to answers that are not written yet, though nothing else comes in."""
        unread = self.paused and self.phase is HEAD and self._inbuf
        return self.in_line or self.phase is WAIT or bool(self.pending or unread)

    def _settle_reading(self) -> None:
        """Stop or go on reading, and say whether the next chunk may take the hot path. Close after the last answer."""
        if self.phase >= STREAM:
            return
        if self._eof and not self._has_more():
            self._close()
            return
        stuck = self.phase is WAIT or (self.phase is HEAD and not self._may_start())
        self.read(not (stuck or self.in_line) or len(self._inbuf) <= INBUF_BYTES_MAX)
        self.fast = self.phase is HEAD and not self._inbuf and not self.pending and not self.paused

    def _take_head(self) -> bool:
        """Read a head off the buffer, if it is all there; False when more has to come."""
        inbuf = self._inbuf
        bounds = self.daemon.head_bounds
        end = inbuf.find(b"\r\n\r\n", self._scan) + 4
        if end < 4:
            if self._scan == 0:
                self._since = self.daemon.loop.time()
            if not says_http(inbuf):
                return self._hang_up()
            check_begun(inbuf, self._scan, bounds)
            self._scan = max(len(inbuf) - 3, 0)
            return False
        raw = bytes(inbuf[:end])
        head = self.heads.get(raw)
        if head is None:
            if raw == PREFACE_HEAD and self._first:
                return self._become_http2()
            if PLAUSIBLE_START.match(raw) is None:
                return self._hang_up()
            head = self.door.learn(raw, parse(raw, bounds))
        del inbuf[:end]
        self._scan = 0
        self._first = False
        self._head = head
        self._head_complete(head)
        return True

    def _become_http2(self) -> bool:
        """The first words were those of HTTP/2: somebody else goes on with the connection."""
        self.phase = CLOSED
        self.daemon.connections.discard(self)
        link = http2.Connection(self.daemon, self.door, self.transport, self.peer)
        self.transport.set_protocol(link)
        link.begin(self._inbuf)
        return False

    def _hang_up(self) -> bool:
        """Whoever talks like this does not speak HTTP: there is nobody to answer, but for earlier requests."""
        if self.pending:
            raise Refused(Code.INVALID_REQUEST, "this is not HTTP")
        self.phase = LINGER
        self.cut()
        return False

    def _head_complete(self, head: Head) -> None:
        """Decide what happens to the body of a request whose head is there."""
        refusal = head.refusal
        if not head.has_body or (head.streams and refusal is None):
            self._body_complete(b"")
            return
        small = 0 < head.length <= DRAIN_BODY_BYTES_MAX and not head.expects_continue
        if refusal is not None and (not small or refusal.code is Code.PAYLOAD_TOO_LARGE):
            raise refusal.anew()
        if small and head.length <= len(self._inbuf):
            self._body_complete(take_first(self._inbuf, head.length))
            return
        self._received = len(self._inbuf)
        self.daemon.buffered_bytes += self._received
        self._since = self.daemon.loop.time()
        self._gathered = gathering(head.length, head.body_bytes_max, chunked=head.chunked)
        self.phase = BODY if self._gathered is None else GATHER
        if head.expects_continue and len(self._inbuf) < max(head.length, 1) and not self.pending:
            self.transport.write(CONTINUE)

    def _forget_body(self) -> None:
        self.daemon.buffered_bytes -= self._received
        self._received = 0
        self._gathered = None
        if self._packed is not None:
            self._packed.forget()
            self._packed = None

    def _body_complete(self, body: bytes) -> None:
        """A whole request is there; its body may have to be inflated."""
        self._forget_body()
        assert self._head is not None
        if body and self._head.coding == "gzip" and self._head.refusal is None:
            self.phase = INFLATE
            self._packed = Unpacking(self.daemon, body, self._head.body_bytes_max)
        else:
            self._whole(body)

    def _whole(self, body: bytes) -> None:
        """Run a request, or make it wait for its turn."""
        self._forget_body()
        head = self._head
        assert head is not None
        pipelines = head.route is not None and head.route.pipelines
        if self.pending and not (pipelines and self.only_pipelined and not self.pending[-1].in_line):
            self.phase = WAIT
            self._waiting = body
            return
        self.phase = HEAD
        self._head = None
        self._run(head, body)

    def _start_waiting(self) -> bool:
        """Run the request that waited, if what it waited for is done."""
        if self.pending or not self._may_start():
            return False
        head, body = self._head, self._waiting
        assert head is not None
        self._head, self._waiting, self.phase = None, b"", HEAD
        self._run(head, body)
        return True

    def _run(self, head: Head, body: bytes) -> None:
        """Answer a request, or let its handler do so later."""
        started_ns = time.perf_counter_ns()
        daemon = self.daemon
        try:
            refusal = head.refusal
            if refusal is None:
                route = head.route
                assert route is not None
                if not daemon.serving or head.caller.inflight >= daemon.inflight_max:
                    daemon.check_serving(route, head.caller)
                answer = route.handler(daemon, self, head, body, started_ns)
                if answer is None:
                    if len(self.pending) == 1:
                        self.only_pipelined = route.pipelines
                    return
            else:
                daemon.metrics.refused(refusal)
                answer = error_answer(head, refusal, started_ns)
        except NotCached as lack:
            daemon.answer_late(self, head, body, started_ns, lack.job)
            return
        except TopicsError as error:
            if head.streams and head.has_body:
                self._refuse(head, error, started_ns)
                return
            daemon.metrics.refused(error)
            answer = error_answer(head, error, started_ns)
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            answer = error_answer(head, daemon.internal_error(error), started_ns)
        head.tally.add(answer, started_ns)
        if self.pending or (self._inbuf and head.keep_alive and head.route is not None and head.route.pipelines):
            # What is refused leaves together, as what is written does: one by one it costs more than writes.
            self.only_pipelined = True
            Exchange(self, head, started_ns, counted=False).finish(answer)
            return
        self._give(answer)
        if not head.keep_alive or daemon.draining:
            self._close()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _give(self, answer: bytes) -> None:
        """Write an answer. One that is not taken at once is in memory as a whole until its last byte is."""
        self.transport.write(answer)
        if self.paused:
            self.transport.set_write_buffer_limits(high=AHEAD_BYTES, low=0)
            self.daemon.untaken.note(self, max(len(answer), self.unsent()))

    def settle(self) -> None:
        """An exchange has its answer: let go what may leave, joined with what else this tick brings.

        This may be inside of the engine's turn, so requests that waited for this answer must not run here: whenever
        there is more to do than to write one answer, it is left to the end of the tick.
        """
        pending = self.pending
        if len(pending) == 1 and self.phase is HEAD and not self._inbuf and self.reading and not self._eof:
            # The usual case by far: one request, one answer, nothing else.
            exchange = pending.popleft()
            self._give(exchange.answer or b"")
            if exchange.last or self.daemon.draining:
                self._close()
            else:
                self.fast = not self.paused
            return
        if self.phase is CLOSED:
            return
        if len(pending) > 1 or self._inbuf or self.phase is WAIT or not self.reading:
            if not self._daemon_waits:
                self._daemon_waits = True
                self.daemon.join(self)
            return
        self.flush()

    def flush(self) -> None:
        """Write the answers at the front of the line, and go on with what waited for them."""
        self._daemon_waits = False
        pending = self.pending
        answers, last = take_answers(pending)
        if self.phase is CLOSED or not answers:
            return
        self._give(answers[0] if len(answers) == 1 else b"".join(answers))
        if self.phase is LINGER:
            if last:
                self._linger()
        elif last or (not pending and self.daemon.draining):
            self._close()
        elif self._inbuf or self.phase is WAIT or not self.reading or self._eof:
            self.go_on()
        elif not pending:
            self.fast = self.phase is HEAD and not self.paused

    def _refuse(self, head: Head | None, error: TopicsError, started_ns: int) -> None:
        """Answer a request that is not read to its end, behind those before it; then close once the answer is read."""
        self._forget_body()
        self._inbuf = bytearray()
        self._head = None
        self.fast = False
        self.phase = LINGER
        self._since = self.daemon.loop.time()
        metrics = self.daemon.metrics
        metrics.refused(error)
        answer = error_answer(head, error, started_ns, close=True)
        (metrics.unrouted if head is None else head.tally).add(answer, started_ns)
        exchange = Exchange(self, head, started_ns, counted=False)
        exchange.last = True
        exchange.finish(answer)

    def _linger(self) -> None:
        """The last answer is written: end our side, and drop what still comes until the other side has read it."""
        self._since = self.daemon.loop.time()
        if self._eof:
            self._close()
        elif not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()

    def _close(self) -> None:
        """Close once everything is written."""
        self.phase = LINGER
        self.fast = False
        self._since = self.daemon.loop.time()
        self.transport.close()

    # -- streams and deadlines -------------------------------------------------------------------------------------

    def become_stream(self, stream: Streaming) -> None:
        """Hand the connection over for the rest of its life."""
        self.phase = STREAM
        self.fast = False
        self.stream = stream
        self.read(True)
        if self._inbuf:
            self.daemon.loop.call_soon(self.data_received, b"")
        self.transport.set_write_buffer_limits(high=AHEAD_BYTES, low=AHEAD_BYTES // 4)
        hold_little(self.transport, AHEAD_BYTES)

    def framing(self, head: Head) -> Framing:
        """Where the body of a request ends, for a stream that is given the body as it comes."""
        return Chunked() if head.chunked else Sized(head.length)

    def invite(self) -> None:
        """Say that the body may come."""
        self.transport.write(CONTINUE)

    def read(self, more: bool) -> None:
        """Go on reading what the other side sends, or stop."""
        if self.reading is not more and not self.transport.is_closing():
            self.reading = more
            (self.transport.resume_reading if more else self.transport.pause_reading)()

    def unsent(self) -> int:
        """Bytes that were written, and not taken yet."""
        return self.transport.get_write_buffer_size()

    def end(self) -> None:
        """End a stream once everything is written."""
        self.transport.close()

    def finish(self) -> None:
        """The last words are written: end our side, and drop what still comes until the other side has read them."""
        self.phase = LINGER
        self.read(True)
        self._linger()

    def descriptor(self) -> int:
        """The socket, or −1 once it is closed on our side."""
        return descriptor_of(self.transport)

    def judge_again(self) -> None:
        """The keys have changed: what was decided about the request that is coming in may not hold any more."""
        if self._head is not None and self._head.refusal is None:
            # A copy: requests with the same head may be in flight, and are counted for whom it says.
            self._head = copy.copy(self._head)
            self.door.judge(self._head)
        elif self.phase is STREAM and self.stream is not None:
            self.stream.judge_again()

    def cut(self) -> None:
        """Close at once, and drop what the other side has not taken, in the kernel too."""
        abort(self.transport)

    def drain(self) -> None:
        """The daemon stops: close now if nothing is going on, else after what is."""
        if self.stream is None and not self.pending and self.phase is HEAD and not self._inbuf:
            self._close()
        elif self.phase is STREAM and self.stream is not None:
            self.stream.drain()

    def check(self, now: float) -> None:
        """Enforce the deadlines; called by the daemon's coarse timer."""
        times = self.daemon.timeouts
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            self._stuck = self._stuck or Stuck()
        if self._stuck is not None and self._stuck.lasts(unsent, now, times.stall_s):
            if self.stream is not None:
                self.stream.stalled()
            else:
                self.cut()
        elif self.phase is HEAD:
            if self._inbuf:
                if not (self.in_line or self.pending or self.paused) and now - self._since > times.header_s:
                    self.cut()
            elif not self.pending and not self.paused and now - self.heard > times.idle_s:
                self._close()
        elif self.phase is BODY or self.phase is GATHER:
            if not self.in_line and is_slow(self._received, now - self._since, times.body_s):
                self.cut()
        elif self.phase is STREAM and self.stream is not None:
            self.stream.check(now)
        elif self.phase is LINGER:
            if unsent:
                # What is written is still being taken, however slowly; only then the time of lingering begins.
                self._since = now
            elif now - self._since > LINGER_S:
                self.cut()
