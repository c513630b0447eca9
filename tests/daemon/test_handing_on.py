"""A stream is given what its client has sent in the order in which it came, whatever the loop does in between."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from topics_daemon.http1 import Connection


class Loop:
    """What is to be called soon, by hand."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        self.soon.append((call, arguments))

    def go_on(self) -> None:
        soon, self.soon = self.soon, []
        for call, arguments in soon:
            call(*arguments)


class Reader:
    """A stream, as far as it listens."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.whole = False

    def heard(self, data: bytes) -> None:
        assert data
        assert not self.whole, "it was told that this was all"
        self.said.append(data)

    def heard_all(self) -> bool:
        self.whole = True
        return True


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def connection(loop: Loop) -> Connection:
    """One whose request has just been run, by somebody else than who reads: the body's beginning had come with it."""
    daemon: Any = SimpleNamespace(loop=loop, coarse_s=0.0, serving=True)
    door: Any = SimpleNamespace(heads={}, inner=None)
    made = Connection(daemon, door)
    transport: Any = SimpleNamespace(
        set_write_buffer_limits=lambda **_: None, get_extra_info=lambda _: None, is_closing=lambda: False
    )
    made.transport = transport
    made._inbuf += b"1\n2"
    return made


def test_what_comes_before_the_beginning_is_handed_on_follows_it(connection: Connection, loop: Loop) -> None:
    """The loop had read more before the request was run, in the same round of calls."""
    reader: Any = Reader()
    connection.become_stream(reader)
    assert not reader.said, "whoever becomes a stream is not spoken to before it is one"
    connection.data_received(b"3\n4")
    loop.go_on()
    connection.data_received(b"5\n")
    assert b"".join(reader.said) == b"1\n23\n45\n"


def test_the_beginning_is_handed_on_where_nothing_follows(connection: Connection, loop: Loop) -> None:
    reader: Any = Reader()
    connection.become_stream(reader)
    loop.go_on()
    loop.go_on()
    assert reader.said == [b"1\n2"]


def test_the_end_does_not_overtake_the_beginning(connection: Connection, loop: Loop) -> None:
    reader: Any = Reader()
    connection.become_stream(reader)
    connection.eof_received()
    loop.go_on()
    assert reader.said == [b"1\n2"]
    assert reader.whole
