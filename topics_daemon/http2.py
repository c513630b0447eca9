"""One HTTP/2 connection with prior knowledge: frames in, requests run, answers out as the peer's windows allow.

A connection begins as one of HTTP/1; when the first thing it says is the preface of HTTP/2, its transport is handed to
a `Connection` of this module (so HTTP/1 pays nothing). h2 keeps the protocol; `http2_frames.Inflow` bounds what a peer
may make us do; each request is an `http2_request.Request`, read and answered by the same code as in HTTP/1.

What comes in waits in its bytes, not as requests: whole frames are read off while the connection has no more than its
share in flight (`pipelining`), and for as long as the time of a slice lasts (`shares`), as in HTTP/1. Then reading
pauses, and the peer's windows stay as they are.

What goes out is bounded three times: a stream renders at most `AHEAD_BYTES` (or one frame) ahead, all requests of a
connection together `OUT_BYTES_MAX` (then no request is begun, and its streams pause), and the transport takes no data
while its own buffer is above its mark. A peer that takes nothing is cut, a single request that is not taken is reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from engine.errors import Code, TopicsError, Unavailable
from topics_daemon.exchange import AHEAD_BYTES
from topics_daemon.head import parse
from topics_daemon.http2_frames import FRAME_BYTES_MAX, LITTLE_REQUESTS, Inflow, Unruly
from topics_daemon.http2_head import Fields, as_head
from topics_daemon.http2_protocol import READABLE_HEADS, TABLE_BYTES_MAX, Protocol
from topics_daemon.http2_request import Request, State
from topics_daemon.listen import LINGER_S, abort
from topics_daemon.pipelining import Backlog, room
from topics_daemon.presence import Ending, descriptor_of, ending_of

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon, Door

OUT_BYTES_MAX: Final = 4 * 1024 * 1024
"""What may wait to be sent for all requests of a connection; one answer may exceed it."""
BATCH_BYTES: Final = 256 * 1024
"""Frames that are put together before they are written."""
INPUT_BYTES_MAX: Final = 64 * 1024
"""Input held back while others come first, or earlier requests; beyond it reading pauses."""
CONTROL_BYTES_MAX: Final = 256 * 1024
"""Unsent bytes in the transport beyond which reading pauses: a peer that reads nothing gets no more to answer."""


class Connection(asyncio.Protocol):
    """One client's connection; `door` says which listener it came through."""

    def __init__(self, daemon: Daemon, door: Door, transport: asyncio.Transport, peer: str) -> None:
        self.daemon = daemon
        self.door = door
        self.transport = transport
        self._peer = peer
        self.requests: dict[int, Request] = {}
        self.out_bytes = 0
        """What waits to be sent for all requests."""
        self.is_full = False
        """Whether that is more than may wait."""
        head_bytes = daemon.head_bounds.head_bytes
        self._inflow = Inflow(daemon.loop.time(), READABLE_HEADS * head_bytes)
        self._h2 = Protocol(head_bytes)
        self._sendable: dict[Request, None] = {}
        """Requests with something to send, and a window for it as far as is known."""
        self._todo: dict[Request, None] = {}
        """Requests that are complete, and wait for room, or for answers of earlier ones."""
        self.working: dict[Request, None] = {}
        """Requests that are in flight in the engine, which are no more than the connection's share."""
        self._backlog = Backlog()
        self.in_line = False
        """Whether others come first (`daemon.shares`)."""
        self._held = False
        """Whether whole frames wait to be handled."""
        self._eof = False
        self._noted: dict[Request, None] = {}
        """Requests that something has happened to in this tick."""
        self._ending: dict[Request, None] = {}
        """Streams that end once everything is sent."""
        self._has_said = True
        """Whether something came in since it was last looked for an end behind it: the loop tells both one by one."""
        self._paused = False
        self._reading = True
        self._flush_due = False
        self._draining = False
        self._closing_s: float | None = None
        self.heard = daemon.loop.time()
        self._stuck_bytes = 0
        self._stuck_since = 0.0

    # -- what the loop calls -----------------------------------------------------------------------------------------

    def begin(self, data: bytes | bytearray) -> None:
        """Take the connection over; `data` is what came in so far."""
        self.daemon.connections.add(self)
        self._take(data)

    def data_received(self, data: bytes) -> None:
        if self._closing_s is not None:
            return
        self._has_said = True
        self._take(data)

    def eof_received(self) -> bool:
        """A peer that has sent all it will may still read: what it has sent is handled first."""
        if self._closing_s is not None:
            return False
        self._eof = self._has_said = True
        if not self._held:
            self._end()
            self._let_go()
        return self._held or bool(self.requests)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing_s = self.daemon.loop.time()
        self.daemon.dismiss(self, self._peer)
        for request in list(self.requests.values()):
            request.close()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._settle_reading()
        self.flush()

    # -- in ----------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes | bytearray) -> None:
        """Take what came in; a request that comes alone is run at once, whatever others have sent."""
        now = self.daemon.loop.time()
        self._inflow.feed(data, now)
        self._backlog.heard(len(data), now)
        if self._held:
            self._settle_reading()
        else:
            self._advance(alone=self._inflow.is_small(1))

    def go_on(self) -> None:
        """Others had their turn."""
        self._advance()

    def _advance(self, *, alone: bool = False) -> None:
        """Handle frames as far as that leads for now, with every misdeed answered: nothing may escape into the loop."""
        if self._closing_s is not None:
            return
        now, inflow, shares = self.daemon.loop.time(), self._inflow, self.daemon.shares
        try:
            self._settle()
            while inflow.has_frame and self._may_take():
                # What it has is only counted where the slice is over. A rest may end between the two questions.
                if not alone and shares.spent() and shares.comes_later(self, little=inflow.is_small(LITTLE_REQUESTS)):
                    break
                for event in self._h2.receive_data(inflow.take(now)):
                    handler = _HANDLERS.get(type(event))
                    if handler is not None:
                        handler(self, event)
                if self.is_over:
                    return
                if inflow.leaves:
                    self._draining = True
                self._settle()
        except Unruly as error:
            self._say_goodbye(error.code, str(error))
            return
        except ProtocolError as error:
            self._say_goodbye(None, str(error))
            return
        except Exception as error:  # noqa: BLE001  # a bug costs one connection, not the daemon
            self._fail(error)
            return
        self._held = inflow.has_frame
        self.daemon.pressure.waited(self._backlog.taken(len(inflow), now))
        self._settle_reading()
        if self._eof and not self._held:
            self._end()
        self._let_go()

    def _may_take(self) -> bool:
        """Whether another request may be taken up now."""
        working = self.working
        if not working:
            return True
        head = next(iter(working)).head
        assert head is not None
        return len(working) < room(head.caller.inflight, self.daemon.inflight_max)

    def _end(self) -> None:
        """All that the peer has sent is handled. Who would take something on its behalf had better not."""
        for request in list(self.requests.values()):
            if request.state is State.BODY or (request.stream is not None and not request.stream.heard_all()):
                request.close()
            for exchange in list(request.pending):
                exchange.ended()
        self._look_at_all()
        self.drain()

    def _settle_reading(self) -> None:
        """Stop or go on reading."""
        backlog = self._held and len(self._inflow) > INPUT_BYTES_MAX
        deaf = self._paused and self.transport.get_write_buffer_size() > CONTROL_BYTES_MAX
        may_read = not (backlog or deaf)
        if may_read != self._reading and not self.transport.is_closing():
            self._reading = may_read
            if may_read:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _on_request(self, event: RequestReceived) -> None:
        number = event.stream_id
        self.heard = self.daemon.loop.time()
        if self._draining:
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        request = self.requests[number] = Request(self, number)
        self.daemon.http2_requests += 1
        try:
            self._check_room()
            ended = event.stream_ended is not None
            raw = as_head(cast(Fields, event.headers), ended=ended)
            head = self.door.heads.get(raw) or self.door.learn(raw, parse(raw, self.daemon.head_bounds))
            request.begin(head, ended=ended)
        except TopicsError as error:
            request.refuse(error)

    def _check_room(self) -> None:
        """Raise when too many requests are open: each may cost as much as a connection.

        A connection may have as many as are left, so that nobody has them all; a few until there are twice as many;
        and one in any case.
        """
        maximum: int = self.daemon.config["max_connections"]
        left, others = maximum - self.daemon.http2_requests, len(self.requests) - 1
        if others > max(left, 0) and (others >= LITTLE_REQUESTS or left < -maximum):
            raise Unavailable(
                Code.THROTTLED,
                "too many requests are open over HTTP/2; try again",
                {"limit": "max_connections", "max": maximum},
            )

    def _on_data(self, event: DataReceived) -> None:
        number = event.stream_id
        request = self.requests.get(number)
        if request is not None:
            try:
                request.take_body(event.data)
            except TopicsError as error:
                request.refuse(error)
        size = event.flow_controlled_length
        if size and request is not None and request.held_back(size):
            # The window of the connection stays open for its other requests.
            self._h2.increment_flow_control_window(size)
        elif size:
            self._h2.acknowledge_received_data(size, number)

    def _on_end(self, event: StreamEnded) -> None:
        request = self.requests.get(event.stream_id)
        if request is not None:
            request.complete()

    def _on_reset(self, event: StreamReset) -> None:
        request = self.requests.get(event.stream_id)
        if request is not None:
            request.close()

    def _on_window(self, event: WindowUpdated) -> None:
        if event.stream_id:
            request = self.requests.get(event.stream_id)
            if request is not None and request.out_bytes:
                self._sendable[request] = None
        else:
            self._look_at_all()

    def _on_settings(self, event: RemoteSettingsChanged) -> None:
        if SettingCodes.HEADER_TABLE_SIZE in event.changed_settings:
            wanted = event.changed_settings[SettingCodes.HEADER_TABLE_SIZE].new_value
            self._h2.encoder.header_table_size = min(wanted, TABLE_BYTES_MAX)
        if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            self._look_at_all()

    def _on_goodbye(self, event: ConnectionTerminated) -> None:
        """The peer breaks off. The library sends nothing after that; neither does a peer wait for anything."""
        self._close()

    # -- told by requests --------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether streams may go on rendering, and requests be begun."""
        return not self.is_full and not self._paused

    @property
    def is_over(self) -> bool:
        """Whether nothing that comes is handled any more."""
        return self._closing_s is not None

    @property
    def is_gone(self) -> bool:
        descriptor = self.descriptor()
        if descriptor >= 0 and self._has_said and ending_of(descriptor) is Ending.NONE:
            # An end without further words is told by itself.
            self._has_said = False
        return descriptor < 0 or self._has_said

    def descriptor(self) -> int:
        """The socket, or −1 once it is closed on our side."""
        return -1 if self.is_over else descriptor_of(self.transport)

    @property
    def partial(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._inflow.partial

    def run_soon(self, request: Request) -> None:
        """A request is complete: run it as soon as there is room for it and for its answer."""
        now = self.daemon.loop.time()
        request.came_s = now - self._backlog.waited_s(len(self._inflow), now)
        self._todo[request] = None

    def note(self, request: Request) -> None:
        """Something has happened to a request: look at it at the end of the tick."""
        self._noted[request] = None
        self._look_again()

    def _look_again(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.daemon.join(self)

    def inform(self, number: int) -> None:
        """Say that the body may come."""
        self._h2.send_headers(number, [(b":status", b"100")])

    def say(self, number: int, fields: Fields, over: bool) -> None:
        """Send the head of an answer."""
        self._h2.send_headers(number, fields, end_stream=over)
        self._inflow.earn(8)

    def queued(self, request: Request, size: int) -> None:
        """A request has more to send."""
        self.out_bytes += size
        self._sendable[request] = None
        if not self.is_full and self.out_bytes > OUT_BYTES_MAX:
            self.is_full = True
            for other in list(self.requests.values()):
                if other.stream is not None and not other.paused:
                    other.pause()

    def end_soon(self, request: Request) -> None:
        """A stream ends once everything is sent."""
        self._ending[request] = None
        self.note(request)

    def reopen(self, request: Request, size: int) -> None:
        """A request reads on: give back what it held back of its window."""
        if size and self._closing_s is None and not self._lib_closed(request.id):
            self._h2.increment_flow_control_window(size, request.id)
            self.note(request)

    def reset(self, request: Request, code: ErrorCodes) -> None:
        """End a request on our side."""
        if self._closing_s is None and not self._lib_closed(request.id):
            self._h2.reset_stream(request.id, code)
            self.note(request)

    def _lib_closed(self, number: int) -> bool:
        stream = self._h2.streams.get(number)
        return stream is None or stream.closed

    def closed(self, request: Request, unsent: int) -> None:
        """A request is over."""
        if self.requests.pop(request.id, None) is not None:
            self.daemon.http2_requests -= 1
        self._sendable.pop(request, None)
        self._ending.pop(request, None)
        self._noted.pop(request, None)
        self._todo.pop(request, None)
        if self.working.pop(request, self) is None and self._held:
            self._look_again()
        self.heard = self.daemon.coarse_s
        self._freed(unsent)

    def _freed(self, size: int) -> None:
        self.out_bytes -= size
        if self.is_full and self.out_bytes <= OUT_BYTES_MAX // 2:
            self.is_full = False
            for request in list(self.requests.values()):
                request.may_resume()

    # -- out ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Take the answers that are there, go on with what waited for them, and send as much as may be sent."""
        self._flush_due = False
        if self._held and not self.in_line:
            self._advance()
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Take the answers that are there, begin what there is room for, and send as much as may be sent."""
        if self._closing_s is not None:
            return
        try:
            self._settle()
            self._send()
            self._count_untaken()
        except Exception as error:  # noqa: BLE001  # a bug costs one connection, not the daemon
            self._fail(error)
            return
        if self._draining:
            self.drain()

    def _settle(self) -> None:
        noted, self._noted = self._noted, {}
        for request in noted:
            request.answer_settled()
        while self._todo and self.has_room and self._may_take():
            request = next(iter(self._todo))
            del self._todo[request]
            request.run()

    def _send(self) -> None:
        """Frames of data, one request after the other, until a window or the transport's buffer is full."""
        h2 = self._h2
        batch = bytearray(h2.data_to_send())
        while self._sendable and not self._paused:
            request = next(iter(self._sendable))
            del self._sendable[request]
            if request.out_bytes:
                most = min(h2.local_flow_control_window(request.id), FRAME_BYTES_MAX)
                if most <= 0:
                    # It comes back with the window. Of a peer that has sent all it will, none opens any more.
                    if self._eof and not self._held:
                        request.cut()
                    continue
                piece = request.next_piece(most)
                over = request.last and not request.out_bytes
                h2.send_data(request.id, piece, end_stream=over)
                self._freed(len(piece))
                self._inflow.earn(4)
                if over:
                    request.sent_all()
                elif request.out_bytes:
                    self._sendable[request] = None
                request.may_resume()
            batch += h2.data_to_send()
            if len(batch) >= BATCH_BYTES:
                self.transport.write(bytes(batch))
                batch.clear()
        for request in [one for one in self._ending if not one.out_bytes]:
            h2.end_stream(request.id)
            request.sent_all()
        batch += h2.data_to_send()
        if batch:
            self.transport.write(bytes(batch))
        self._settle_reading()

    def _count_untaken(self) -> None:
        if self.out_bytes > AHEAD_BYTES:
            self.daemon.untaken.note(self, self.unsent())
        else:
            self.daemon.untaken.forget(self)

    def unsent(self) -> int:
        """Bytes of answers that wait to be taken; those of streams are counted by the pump."""
        return sum(request.out_bytes for request in self.requests.values() if request.stream is None)

    def _look_at_all(self) -> None:
        """Windows have changed: who has something to send may be able to."""
        for request in self.requests.values():
            if request.out_bytes:
                self._sendable[request] = None

    # -- the end -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take no more requests (they are reset as refused: nothing was done), and say goodbye after the present ones.

        Not before: clients made with h2 take no answers any more once they have been told goodbye.
        """
        self._draining = True
        if self.daemon.draining:
            for request in list(self.requests.values()):
                if request.stream is not None:
                    request.stream.drain()
        if not self.requests and self._closing_s is None:
            self._h2.close_connection()
            # What the peer still says about windows must not cost it our last words. A stop does not wait for that.
            self._close(linger=not self.daemon.draining)

    def _say_goodbye(self, code: ErrorCodes | None, why: str) -> None:
        """Break off: requests that are open get nothing any more. `code` None: the library has said it."""
        self.daemon.log.debug("connection broken off", why=why)
        try:
            if code is not None:
                self._h2.close_connection(code)
        except ProtocolError:
            # It is closed in the eyes of the library: the peer has heard it before.
            pass
        self._close(linger=True)

    def _fail(self, error: Exception) -> None:
        self.daemon.internal_error(error)
        self._say_goodbye(ErrorCodes.INTERNAL_ERROR, "")

    def _close(self, *, linger: bool = False) -> None:
        """Close once what is in the transport is written. `linger`: after dropping what still comes for a while, so
        that the last words can be read."""
        if self._closing_s is not None:
            return
        self._closing_s = self.daemon.loop.time()
        self._inflow.forget()
        self.transport.write(self._h2.data_to_send())
        for request in list(self.requests.values()):
            request.close()
        self._todo.clear()
        if linger and not self._eof and not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()
            if not self._reading:
                self._reading = True
                self.transport.resume_reading()
        else:
            self.transport.close()

    def cut(self) -> None:
        """Close at once, and drop what the peer has not taken, in the kernel too."""
        abort(self.transport)

    def judge_again(self) -> None:
        """The keys have changed."""
        for request in list(self.requests.values()):
            request.judge_again()

    def check(self, now: float) -> None:
        """Enforce the deadlines; called by the daemon's coarse timer."""
        times = self.daemon.timeouts
        waiting = self.transport.get_write_buffer_size()
        moved = waiting == 0 or waiting != self._stuck_bytes
        if moved:
            self._stuck_bytes, self._stuck_since = waiting, now
        elif now - self._stuck_since > times.stall_s:
            self.cut()
            return
        if self._closing_s is not None:
            if waiting and moved:
                self._closing_s = now
            elif now - self._closing_s > LINGER_S:
                self.cut()
            return
        if self._inflow.awaits_head and not self._held and now - self._inflow.since_s > times.header_s:
            self.cut()
            return
        for request in list(self.requests.values()):
            request.check(now)
        if not self.requests and (self._draining or now - self.heard > times.idle_s):
            self.drain()


_HANDLERS: Final[dict[type, Callable[[Connection, Any], None]]] = {
    RequestReceived: Connection._on_request,
    DataReceived: Connection._on_data,
    StreamEnded: Connection._on_end,
    StreamReset: Connection._on_reset,
    WindowUpdated: Connection._on_window,
    RemoteSettingsChanged: Connection._on_settings,
    ConnectionTerminated: Connection._on_goodbye,
}
