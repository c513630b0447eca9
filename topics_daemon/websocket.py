"""One WebSocket: messages in, commands run, answers and what is new out (http-api.md §8).

websockets' protocol core does the framing: masks, fragments, control frames, closing (messages of one frame that came
whole, which nearly all are, are taken in front of it: that costs a fifth). What stands around it here is
what keeps a socket within bounds.

- **In.** Messages are taken one after the other, in bulk for as long as slices last (`shares`); while too many
  commands are on their way, or the client does not take its answers, nothing more is read. A message that does not
  become whole in time, or too many large ones at once in the daemon, end the socket.
- **Out.** Answers to commands that one tick brings leave with one write, in front of any record. What subscriptions
  deliver is queued as positions, not as messages: when `MESSAGES_WAITING_MAX` messages (or `AHEAD_BYTES`) wait to be
  sent, delivery pauses until the client has taken them, and goes on from the log.
- **Life.** After `SILENCE_S` without a word in either direction the server pings; a client that then says nothing for
  as long again, or takes nothing of what waits for it, is cut.

Close codes of ours: 1009 too big, 1008 policy (key gone, too slow, too much), 1012 the daemon stops, 1003 not text,
1007 not UTF-8, 1002 not WebSocket, 1011 a bug.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from engine.errors import STATUS, Code, Refused, TopicsError
from topics_daemon.exchange import AHEAD_BYTES
from topics_daemon.pipelining import room
from topics_daemon.shares import ALONE_BYTES_MAX
from topics_daemon.websocket_commands import Command, Commands
from topics_daemon.websocket_frames import frame_bytes, text_frame, whole_messages

if TYPE_CHECKING:
    from topics_daemon.auth import Caller
    from topics_daemon.daemon import Daemon
    from topics_daemon.http1 import Connection

MESSAGES_WAITING_MAX: Final = 4
"""Messages that may wait to be sent; then delivery pauses."""
COMMANDS_MAX: Final = 64
"""Commands of one socket that may wait for their answers."""
SILENCE_S: Final = 15.0
"""How long nothing may be said in either direction before the server pings, and how long it then waits."""
CLOSING_S: Final = 3.0
"""How long a client may take to answer a closing."""
PARTIAL_BYTES_FREE: Final = 64 * 1024
"""Up to this size a message that is coming in is taken even when the daemon has too many large ones."""
PARTIAL_GRACE_S: Final = 5.0
"""A message may start slowly: the floor on its rate counts from here on."""
PARTIAL_RATE_MIN: Final = 1024
"""Bytes a second that a message has to bring on average."""
OVERHEAD_BYTES: Final = 4096
"""What a message may hold beside the body that a request could have: op, topic, request_id."""


def shake_hands(lines: bytes, body_bytes_max: int) -> ServerProtocol:
    """The protocol of a socket whose opening headers are these; raises the 400 for those that do not add up."""
    protocol = ServerProtocol(max_size=body_bytes_max + OVERHEAD_BYTES)
    protocol.receive_data(b"GET /v0/ws HTTP/1.1\r\n%b\r\n" % lines)
    request = next(iter(protocol.events_received()), None)
    if isinstance(request, Request):
        response = protocol.accept(request)
        if response.status_code == 101:
            del response.headers["Date"]
            protocol.send_response(response)
            return protocol
    raise Refused(Code.INVALID_REQUEST, f"this is not how a WebSocket is opened: {protocol.handshake_exc}")


class Socket:
    """A connection that has become a WebSocket."""

    __slots__ = (
        "_announced",
        "_buffered",
        "_closing_since",
        "_frame_bytes_max",
        "_inbox",
        "_inbox_bytes",
        "_out",
        "_owed",
        "_partial",
        "_partial_since",
        "_pinged_s",
        "_planned",
        "_protocol",
        "_reading",
        "_waiting",
        "_waits_s",
        "caller",
        "commands",
        "connection",
        "daemon",
        "held_bytes",
        "in_line",
        "wrote_s",
    )

    def __init__(self, daemon: Daemon, connection: Connection, caller: Caller, protocol: ServerProtocol) -> None:
        self.daemon = daemon
        self.connection = connection
        self.caller = caller
        self.commands = Commands(self)
        self.wrote_s = daemon.loop.time()
        """When something was last said in either direction."""
        self.held_bytes = 0
        """What it holds against the daemon's bound for all streams."""
        self._protocol = protocol
        self._inbox: deque[bytes] = deque()
        """Messages that are not taken yet."""
        self._inbox_bytes = 0
        self._waits_s = 0.0
        """Since when they wait, or 0; nothing more is read meanwhile, so all have come at once."""
        self.in_line = False
        """Whether others come first (`daemon.shares`)."""
        self._owed = 0
        """Bytes that the protocol has taken of a frame that is not whole yet."""
        self._frame_bytes_max = protocol.max_message_size or 0
        """The largest message."""
        self._partial: bytearray | None = None
        """The fragments of a message so far."""
        self._partial_since = 0.0
        self._buffered = 0
        """What it counts among the bodies of all requests."""
        self._out: list[bytes] = []
        """Messages, framed, that leave together at the end of the tick."""
        self._waiting = 0
        """Messages written since the connection is not taking them at once."""
        self._pinged_s = 0.0
        """When it was pinged without an answer so far, or 0."""
        self._planned = False
        """Whether it will look at its inbox again by itself."""
        self._reading = True
        self._announced = False
        """Whether it has ended for whoever counts and serves it."""
        self._closing_since = 0.0

    def open(self) -> None:
        """Answer the request, and begin."""
        connection = self.connection
        connection.become_stream(self)
        # Told of the first byte that does not leave at once: only so the messages that wait can be counted.
        connection.transport.set_write_buffer_limits(high=0)
        self._write_own()

    # -- in --------------------------------------------------------------------------------------------------------

    def heard(self, data: bytes) -> None:
        """The client has sent something."""
        self.wrote_s = self.daemon.loop.time()
        self._pinged_s = 0.0
        protocol = self._protocol
        try:
            if not self._owed and self._partial is None and protocol.state is State.OPEN and not self._closing_since:
                messages, end = whole_messages(data, self._frame_bytes_max)
                if messages:
                    data = data[end:]
                    for message in messages:
                        self._take_in(message)
            if data:
                protocol.receive_data(data)
                self._owed += len(data)
                self._collect()
            self._advance()
            self.flush()
            if data:
                self._write_own()
        except Exception as error:  # noqa: BLE001  # a bug costs one socket, not the daemon
            self.daemon.internal_error(error)
            self.close(CloseCode.INTERNAL_ERROR, "a bug in the daemon")

    def _collect(self) -> None:
        """Put together the messages that have become whole."""
        for frame in self._protocol.events_received():
            if isinstance(frame, Frame):
                self._owed -= frame_bytes(len(frame.data))
            if not isinstance(frame, Frame) or frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                continue
            if self._closing_since:
                continue
            if frame.opcode is Opcode.BINARY:
                self.close(CloseCode.UNSUPPORTED_DATA, "messages are text")
                return
            if frame.fin and self._partial is None:
                message = bytes(frame.data)
            else:
                self._partial = bytearray() if self._partial is None else self._partial
                self._partial += frame.data
                if not frame.fin:
                    continue
                message, self._partial = bytes(self._partial), None
            self._take_in(message)
        self._count_buffered()

    def _take_in(self, message: bytes) -> None:
        """A message has become whole."""
        if self._closing_since:
            return
        if not message.isascii() and not _is_utf8(message):
            self.close(CloseCode.INVALID_DATA, "messages are UTF-8")
            return
        self._inbox.append(message)
        self._inbox_bytes += len(message)

    def _count_buffered(self) -> None:
        """Count what is held against the bound on the bodies of all requests."""
        if self._announced:
            return
        daemon = self.daemon
        partial = len(self._protocol.reader.buffer) + len(self._partial or b"")
        if not partial:
            self._partial_since = 0.0
        elif not self._partial_since:
            self._partial_since = daemon.coarse_s
        held = partial + self._inbox_bytes
        daemon.buffered_bytes += held - self._buffered
        self._buffered = held
        if daemon.buffered_bytes > daemon.buffer_bytes_max and partial > PARTIAL_BYTES_FREE:
            self.close(CloseCode.POLICY_VIOLATION, "too many large messages at once")

    def _advance(self) -> None:
        """Take messages as far as that leads for now."""
        inbox, shares = self._inbox, self.daemon.shares
        is_bulk = self._inbox_bytes > ALONE_BYTES_MAX or len(inbox) > 1
        count = len(inbox)
        while inbox and not self.in_line and self._may_take() and not (is_bulk and shares.comes_later(self)):
            if not self.commands.take(inbox[0]):
                break
            self._inbox_bytes -= len(inbox.popleft())
        if self._waits_s and len(inbox) < count:
            self.daemon.pressure.waited(self.waited_s())
        if not inbox:
            self._waits_s = 0.0
        elif not self._waits_s:
            self._waits_s = self.daemon.loop.time()
        self._count_buffered()
        self._look_at_reading()

    def _look_at_reading(self) -> None:
        """Read from the client, or not: not while what it has sent waits, or what it was answered."""
        reads = not self._inbox and self._waiting < MESSAGES_WAITING_MAX
        if reads is not self._reading and not self.is_closing():
            self._reading = reads
            if reads:
                self.connection.transport.resume_reading()
            else:
                self.connection.transport.pause_reading()

    def _may_take(self) -> bool:
        waiting = self._waiting + len(self._out) if self._waiting else 0
        if waiting >= MESSAGES_WAITING_MAX or len(self.commands) >= COMMANDS_MAX or self._closing_since:
            return False
        writing = self.commands.writing
        return not writing or writing < room(self.caller.inflight, self.daemon.inflight_max)

    def waited_s(self) -> float:
        """How long the message that is being taken has waited."""
        return self.daemon.loop.time() - self._waits_s if self._waits_s else 0.0

    def look_again(self) -> None:
        """Look at the inbox again, but not here: this may be inside of the engine's turn."""
        if not self._planned and (self._inbox or not self._reading):
            self._planned = True
            self.daemon.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Take what waits, unless others come first."""
        self._planned = False
        if not self._announced:
            self._advance()

    # -- out -------------------------------------------------------------------------------------------------------

    def send(self, payload: bytes) -> None:
        """Write one message, at the end of the tick."""
        if self._closing_since or self._announced:
            return
        if not self._out:
            self.daemon.join(self)
        self._out.append(text_frame(payload))

    def flush(self) -> None:
        """The tick ends: write the messages that it brought."""
        if self._out:
            out, self._out = self._out, []
            self._write(out[0] if len(out) == 1 else b"".join(out), len(out))

    def write(self, frame: bytes) -> None:
        """Write one message, framed already, that other sockets are told as well."""
        if self._out or self._waiting or self._closing_since or self._announced:
            self.send_frames(frame, 1)
        else:
            self.wrote_s = self.daemon.loop.time()
            self.connection.write(frame)

    def is_closing(self) -> bool:
        """Whether what is written now reaches nobody."""
        return self.connection.transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """What waits to be sent, or stands for it; asked before a record is written past this."""
        if self._out or self._waiting or self._closing_since or self._announced:
            return 1
        self.wrote_s = self.daemon.loop.time()
        return self.connection.transport.get_write_buffer_size()

    def send_frames(self, frames: bytes, count: int) -> None:
        """Write messages that are framed already, behind those that wait for the end of the tick."""
        if self._out:
            out, self._out = self._out, []
            frames, count = b"".join([*out, frames]), len(out) + count
        self._write(frames, count)

    def _write(self, frames: bytes, count: int) -> None:
        if self._closing_since or self._announced:
            return
        self.wrote_s = self.daemon.loop.time()
        waited = self._waiting
        self.connection.write(frames)
        if self._waiting:
            self._waiting = waited + count
            self._look_at_waiting()

    def _write_own(self) -> None:
        """Write what the protocol has to say by itself: the opening, pongs, closings."""
        for data in self._protocol.data_to_send():
            if data:
                self.connection.write(data)
                if self._waiting:
                    self._waiting += 1
            else:
                self._over()

    def pause(self) -> None:
        """What was just written does not leave at once."""
        self._waiting = max(self._waiting, 1)
        self._look_at_waiting()

    def _look_at_waiting(self) -> None:
        unsent = self.connection.unsent()
        self.daemon.pump.hold(self, unsent)
        if self._waiting >= MESSAGES_WAITING_MAX or unsent >= AHEAD_BYTES:
            self.commands.pause()
            self._look_at_reading()

    def resume(self) -> None:
        """All that was written has been taken."""
        self._waiting = 0
        self.daemon.pump.released(self)
        self.commands.resume()
        self.look_again()

    # -- life ------------------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Look at the deadlines."""
        if self._closing_since:
            if now - self._closing_since > CLOSING_S:
                self.connection.cut()
            return
        if self._partial_since and self._reading:
            took = now - self._partial_since
            body_s = self.daemon.timeouts.body_s
            if took > body_s or (took > min(PARTIAL_GRACE_S, body_s) and self._buffered < PARTIAL_RATE_MIN * took):
                self.close(CloseCode.POLICY_VIOLATION, "a message takes too long to arrive")
                return
        if self._pinged_s:
            if now - self._pinged_s > SILENCE_S:
                self.connection.cut()
        elif now - self.wrote_s > SILENCE_S and not self._waiting:
            self._pinged_s = now
            self._protocol.send_ping(b"")
            self._write_own()

    def stalled(self) -> None:
        """The client has taken nothing for too long: nor would it take a word of goodbye."""
        self.connection.cut()

    def judge_again(self) -> None:
        """The keys have changed: whoever has none any more leaves."""
        if not self.caller.scopes:
            self.close(CloseCode.POLICY_VIOLATION, "unauthorized")

    def drain(self) -> None:
        """The daemon stops: what was taken is answered first."""
        if not self.commands:
            self.close(CloseCode.SERVICE_RESTART, "the daemon is stopping")

    def close(self, code: CloseCode, reason: str) -> None:
        """Say why, and close once the client has said goodbye, or has had its time."""
        if self._closing_since or self._announced:
            return
        self.flush()
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
        self._write_own()
        self._closing_since = self.daemon.loop.time()
        self._end()
        if not self._reading:
            # Its goodbye can be heard only behind what it has sent before.
            self._reading = True
            self.connection.transport.resume_reading()

    def _over(self) -> None:
        """The protocol has come to its end: nothing more will be written."""
        self._closing_since = self._closing_since or self.daemon.loop.time()
        self._end()
        self.connection.finish()

    def heard_all(self) -> bool:
        """A client that hangs up without a goodbye gets none."""
        self._end()
        return False

    def gone(self) -> None:
        """The connection is lost."""
        self._end()
        # It refers to itself by its parser, and would stay, with what came of a message, until garbage is looked for.
        self._protocol.parser.close()
        del self._protocol

    def _end(self) -> None:
        """Leave whoever serves and counts it."""
        if self._announced:
            return
        self._announced = True
        self.commands.end()
        self._inbox.clear()
        self._out.clear()
        self._inbox_bytes = 0
        self._partial = None
        self.daemon.buffered_bytes -= self._buffered
        self._buffered = 0
        self.daemon.pump.released(self)

    # -- told by the pump, while something is followed ---------------------------------------------------------------

    @property
    def heartbeat_s(self) -> float:
        """How often the pump may look; `check` sees to silence."""
        return SILENCE_S

    @property
    def ended(self) -> bool:
        """Whether nothing that is said now reaches the client."""
        return self._announced

    @property
    def lags(self) -> bool:
        """Whether the client takes what is new more slowly than it comes."""
        return bool(self._waiting) or self.commands.lag

    def beat(self, now: float, now_ms: int) -> None:
        """Silence is what `check` looks at."""

    def refusal(self) -> TopicsError | None:
        """Why its caller may not follow its topics, or work, any longer."""
        return self.commands.refusal()

    def end(self, code: int, error: str) -> None:
        """End the socket, unless the daemon stops, where what was taken is answered first."""
        if code != STATUS[Code.SHUTTING_DOWN]:
            self.close(CloseCode.INTERNAL_ERROR if code == STATUS[Code.INTERNAL] else CloseCode.POLICY_VIOLATION, error)

    def replied(self, command: Command, payload: bytes) -> None:
        """A command has its answer."""
        self.send(payload)
        command.over()
        self.look_again()


def _is_utf8(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True
