"""The window of a group ends with its time, or with as many as share a turn well; a return with one look at sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from topics_daemon.window import GROUP_MAX, Return, Window


class Loop:
    """A loop that runs for as long as it is told to, and a window on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.turns = 0
        self.window = Window(self.loop, self._turn)

    def _turn(self) -> None:
        self.turns += 1

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture
def bench() -> Iterator[Loop]:
    bench = Loop()
    yield bench
    bench.loop.close()


def test_a_turn_comes_once_when_the_time_is_over(bench: Loop) -> None:
    bench.window.length_s = 0.01
    bench.window.open()
    for _ in range(GROUP_MAX - 2):
        bench.window.join()
    bench.run(0)
    assert (bench.turns, bench.window.is_open) == (0, True)
    bench.run(0.02)
    assert (bench.turns, bench.window.is_open) == (1, False)


def test_it_comes_at_once_when_as_many_ask_as_share_it_well(bench: Loop) -> None:
    bench.window.length_s = 3600.0
    for turns in (1, 2):
        bench.window.open()
        for _ in range(GROUP_MAX - 1):
            bench.window.join()
        assert not bench.window.is_open
        bench.run(0)
        assert bench.turns == turns


def test_a_return_ends_once_when_what_had_been_sent_before_it_is_read(bench: Loop) -> None:
    order: list[str] = []
    back = Return(bench.loop, lambda: order.append("end"))
    one, other = socket.socketpair()
    with one, other:
        bench.loop.add_reader(one, lambda: order.append(one.recv(9).decode()))

        def answered() -> None:
            back.open()
            back.open()
            assert back.is_open
            other.send(b"again")

        bench.loop.call_soon(answered)
        bench.run(0.02)
        bench.loop.remove_reader(one)
    assert (order, back.is_open) == (["again", "end"], False)
