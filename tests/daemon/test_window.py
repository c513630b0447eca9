"""The window of a group ends with its time, or with as many as share a turn well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from topics_daemon.window import GROUP_MAX, Window


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
