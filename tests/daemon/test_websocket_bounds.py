"""What waits to be sent over a WebSocket, and silence: a socket with a connection that does as it is told."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.limits import Limits
from tests.daemon.socket_kit import CONT, PING, PONG, frame, handshake
from topics_daemon.head import Bounds, parse
from topics_daemon.websocket import MESSAGES_WAITING_MAX, SILENCE_S, Socket, shake_hands
from topics_daemon.websocket_commands import Commands
from topics_daemon.websocket_frames import text_frame


class Connection:
    """Takes everything, or nothing: `blocked` is what a full socket buffer does."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.blocked = False
        self.told = False
        self.socket: Socket = cast(Socket, None)
        self.reads: bool = True
        self.was_cut: bool = False
        self.transport = SimpleNamespace(
            set_write_buffer_limits=lambda **_: None,
            pause_reading=self._pause,
            resume_reading=self._resume,
            is_closing=lambda: False,
        )

    def _pause(self) -> None:
        self.reads = False

    def _resume(self) -> None:
        self.reads = True

    def become_stream(self, socket: Socket) -> None:
        self.socket = socket

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if self.blocked and not self.told:
            self.told = True
            self.socket.pause()

    def unsent(self) -> int:
        return 1 if self.blocked else 0

    def cut(self) -> None:
        self.was_cut = True

    def drained(self) -> None:
        self.blocked = self.told = False
        self.socket.resume()


class Subscription:
    """Notes whether delivery is on."""

    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def stop(self) -> None:
        """Follow nothing any more."""


def reads(connection: Connection) -> bool:
    return connection.reads


def is_paused(subscription: Subscription) -> bool:
    return subscription.paused


@pytest.fixture
def opened() -> tuple[Socket, Connection, Subscription]:
    later: list[Any] = []
    pump = SimpleNamespace(hold=lambda *_: None, released=lambda *_: None)
    timeouts = SimpleNamespace(body_s=60.0)
    loop = SimpleNamespace(time=lambda: 0.0, call_soon=lambda *call: later.append(call))
    engine = SimpleNamespace(now=lambda: 0)
    daemon: Any = SimpleNamespace(
        coarse_s=0.0,
        pump=pump,
        timeouts=timeouts,
        loop=loop,
        buffered_bytes=0,
        buffer_bytes_max=1 << 30,
        engine=engine,
        limits=Limits(),
        join=lambda _: None,
        shares=SimpleNamespace(comes_later=lambda _: False),
        pressure=SimpleNamespace(waited=lambda _: None),
    )
    connection = Connection()
    lines = parse(handshake(), Bounds(32768, 8192, 100)).upgrade
    assert lines is not None
    socket = Socket(daemon, cast(Any, connection), cast(Any, SimpleNamespace(scopes=1)), shake_hands(lines, 1000))
    subscription = Subscription()
    socket.commands._subscriptions["t"] = cast(Any, subscription)
    socket.open()
    assert connection.written.pop().startswith(b"HTTP/1.1 101")
    return socket, connection, subscription


def test_at_most_four_messages_wait_then_delivery_pauses_until_all_are_taken(
    opened: tuple[Socket, Connection, Subscription],
) -> None:
    socket, connection, subscription = opened
    for _ in range(100):
        socket.send_frames(text_frame(b"{}"), 1)
    assert not is_paused(subscription), "a client that takes everything is not held up"
    connection.blocked = True
    for waiting in range(1, MESSAGES_WAITING_MAX + 1):
        assert not is_paused(subscription), waiting
        socket.send_frames(text_frame(b"{}"), 1)
    assert is_paused(subscription)
    connection.drained()
    assert not is_paused(subscription)


def test_several_messages_in_one_write_count_as_several(opened: tuple[Socket, Connection, Subscription]) -> None:
    socket, connection, subscription = opened
    connection.blocked = True
    socket.send_frames(text_frame(b"{}") * 3, 3)
    assert not subscription.paused
    socket.send_frames(text_frame(b"{}"), 1)
    assert subscription.paused


def test_nothing_more_is_read_from_a_client_that_takes_no_answers(
    opened: tuple[Socket, Connection, Subscription],
) -> None:
    socket, connection, _ = opened
    connection.blocked = True
    socket.heard(frame('{"op":"ping"}') * 20)
    assert reads(connection) is False
    assert [written.count(b"pong") for written in connection.written] == [20], "what came at once is answered at once"
    socket.heard(frame('{"op":"ping"}') * 20)
    assert len(connection.written) == 1
    connection.drained()
    socket.go_on()
    socket.flush()
    assert [written.count(b"pong") for written in connection.written] == [20, 20]
    assert reads(connection) is True


def test_once_a_client_takes_nothing_only_four_messages_wait(opened: tuple[Socket, Connection, Subscription]) -> None:
    socket, connection, _ = opened
    connection.blocked = True
    socket.heard(frame('{"op":"ping"}'))
    socket.heard(frame('{"op":"ping"}') * 20)
    assert sum(written.count(b"pong") for written in connection.written) == MESSAGES_WAITING_MAX
    assert reads(connection) is False


def test_answers_leave_together_in_front_of_records_and_of_the_goodbye(
    opened: tuple[Socket, Connection, Subscription],
) -> None:
    socket, connection, _ = opened
    for number in range(3):
        socket.send(b'{"answer":%d}' % number)
    assert connection.written == []
    socket.send_frames(text_frame(b'{"record":1}'), 1)
    assert connection.written == [
        b"".join(text_frame(text) for text in (b'{"answer":0}', b'{"answer":1}', b'{"answer":2}', b'{"record":1}'))
    ]
    socket.flush()
    assert len(connection.written) == 1, "nothing is left"
    socket.commands._subscriptions.clear()
    socket.send(b'{"answer":4}')
    socket.end(410, "policy")
    assert connection.written[1] == text_frame(b'{"answer":4}')
    assert connection.written[2][0] == 0x88, "the closing comes last"
    socket.send(b'{"answer":5}')
    socket.flush()
    assert len(connection.written) == 3


def test_silence_is_broken_by_a_ping_and_ended_when_that_has_no_answer(
    opened: tuple[Socket, Connection, Subscription],
) -> None:
    socket, connection, _ = opened
    socket.check(SILENCE_S - 1)
    assert connection.written == []
    socket.check(SILENCE_S + 1)
    assert connection.written == [bytes([0x80 | PING, 0])]
    socket.check(2 * SILENCE_S)
    assert [connection.was_cut] == [False]
    cast(Any, socket.daemon.loop).time = lambda: 2 * SILENCE_S
    socket.heard(frame(b"", PONG))
    socket.check(3 * SILENCE_S - 1)
    assert len(connection.written) == 1
    socket.check(3 * SILENCE_S + 1)
    assert len(connection.written) == 2
    socket.check(4 * SILENCE_S + 2)
    assert connection.was_cut


UNMASKED = "Á" * 100
"""In the middle of a frame whose mask is zero, this looks like the beginning of a masked text frame."""


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 8, 13, 21, 64, 200, 10_000])
def test_messages_are_the_same_however_their_bytes_come(
    opened: tuple[Socket, Connection, Subscription], monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    socket, connection, _ = opened
    taken: list[str] = []

    def take(_: Commands, message: bytes) -> bool:
        taken.append(message.decode())
        return True

    monkeypatch.setattr(Commands, "take", take)
    unmasked = b"\x81\xfe" + len(UNMASKED.encode()).to_bytes(2) + bytes(4) + UNMASKED.encode()
    data = b"".join(
        [
            frame("one") + frame("two" * 60) + frame("p", PING) + unmasked,
            frame("three, ", fin=False) + frame("q", PING) + frame("in parts", CONT) + frame("four"),
            unmasked + frame("x" * 125) + frame("y" * 126) + frame("", PONG) + frame("last"),
        ]
    )
    for at in range(0, len(data), piece):
        socket.heard(data[at : at + piece])
    assert taken == [
        *("one", "two" * 60, UNMASKED, "three, in parts", "four"),
        *(UNMASKED, "x" * 125, "y" * 126, "last"),
    ]
    assert b"".join(connection.written) == b"\x8a\x01p\x8a\x01q", "each ping has its pong"
    assert socket.daemon.buffered_bytes == 0


def test_the_protocol_of_a_socket_that_is_gone_does_not_wait_for_the_collector(
    opened: tuple[Socket, Connection, Subscription],
) -> None:
    """It takes 6 KiB, and what lived for long is looked through seldom."""
    socket, _, _ = opened
    kept = weakref.ref(socket._protocol)
    gc.disable()
    try:
        socket.heard(frame("x" * 100)[:50])
        socket.gone()
        assert kept() is None
    finally:
        gc.enable()
