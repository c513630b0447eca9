"""Large answers take turns: who asks for little is answered between two of them, however many are asked for."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.fs import Fs
from tests.daemon.kit import DaemonProcess, daemon_process, post, request
from topics_daemon.readers import TAKEN_WITHIN_S, TAKING_BYTES_MAX, TURN, Asking, Readers

READERS = 24
RECORD = "x" * 1_000_000
DIFF = "POST /v0/topics/:topic/diff"
MANY = "POST /v0/diff"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        for _ in range(4):
            running.write("large", RECORD, RECORD)
        running.write("small", 1)
        yield running


@contextmanager
def paused(daemon: DaemonProcess) -> Iterator[None]:
    """What is sent meanwhile is there when the daemon looks at its sockets."""
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def answered(exposition: bytes, route: str) -> int:
    """How many requests of a route were answered."""
    found = re.findall(rf'topics_requests_total{{route="{re.escape(route)}",[^}}]*}} (\d+)'.encode(), exposition)
    return sum(map(int, found))


ASKS = {
    "one": (DIFF, post("/v0/topics/large/diff", {"max_bytes": 8 << 20})),
    "lines": (DIFF, post("/v0/topics/large/diff", {"max_bytes": 8 << 20}, "Accept: application/x-ndjson")),
    "many": (MANY, post("/v0/diff", {"topics": {"small": {}, "large": {"max_bytes": 8 << 20}}, "max_bytes": 8 << 20})),
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_small_answer_comes_before_the_large_ones_that_were_asked_for_earlier(
    daemon: DaemonProcess, asks: str
) -> None:
    route, ask = ASKS[asks]
    with ExitStack() as stack:
        readers = [stack.enter_context(daemon.wire()) for _ in range(READERS)]
        lone = stack.enter_context(daemon.wire())
        before = answered(daemon.ask(request("GET", "/v0/metrics")).body, route)
        with paused(daemon):
            for reader in readers:
                reader.send(ask)
            lone.send(post("/v0/topics/small/diff", {}) + request("GET", "/v0/metrics"))
        assert lone.answer().json["next_from_seq"] == 1
        assert answered(lone.answer().body, route) - before < READERS // 2, "it waited for all of them"
        bodies = {len(reader.answer().body) // 1_000_000 for reader in readers}
    assert bodies == {8}, "all of them are answered, and in full"
    daemon.is_well()


def test_large_answers_of_long_polls_take_turns_too(daemon: DaemonProcess) -> None:
    daemon.write("polled", 0)
    with ExitStack() as stack:
        polls = [stack.enter_context(daemon.wire()) for _ in range(READERS)]
        for poll in polls:
            poll.send(post("/v0/topics/polled/diff", {"from_seq": 1, "max_bytes": 8 << 20, "wait_ms": 20_000}))
        before = answered(daemon.ask(request("GET", "/v0/metrics")).body, "long poll")  # after this all of them wait
        lone = stack.enter_context(daemon.wire())
        lone.send(post("/v0/topics/polled", {"records": [{"data": RECORD}] * 5}) + request("GET", "/v0/metrics"))
        assert lone.answer().status == 200
        told = answered(lone.answer().body, "long poll") - before
        assert told < READERS // 2, "they were answered in the tick of the write"
        assert {len(poll.answer().body) // 1_000_000 for poll in polls} == {5}
    daemon.is_well()


def test_who_goes_away_leaves_the_line(daemon: DaemonProcess) -> None:
    _, ask = ASKS["one"]
    with ExitStack() as stack:
        readers = [daemon.wire() for _ in range(READERS)]
        last = stack.enter_context(daemon.wire())
        with paused(daemon):
            for reader in readers:
                reader.send(ask)
            last.send(ask)
            for reader in readers:
                reader.close()
        assert len(last.answer().body) > 8_000_000
    daemon.is_well()


class Line:
    """Readers on a loop that is turned by hand."""

    def __init__(self) -> None:
        self.now_s = 1.0
        self.due: list[Any] = []
        self.went_on: list[str] = []
        self.rests = 0
        loop = SimpleNamespace(time=lambda: self.now_s, call_soon=self.due.append, call_later=self._later)
        loop.add_reader = loop.remove_reader = lambda *_: None
        daemon = SimpleNamespace(loop=loop, config={"cold_deadline_ms": 1})
        self.readers = Readers(cast(Any, daemon), cast(Fs, None), cast(Fs, None))

    def _later(self, _after_s: float, call: Any) -> Any:
        self.rests += 1
        self.due.append(call)
        return SimpleNamespace(cancel=lambda: self.due.remove(call))

    def asks(self, name: str) -> None:
        """Somebody waits for a turn."""
        asking = Asking(self.readers)

        def again() -> None:
            asking.done()
            self.went_on.append(name)

        asking.wait(TURN, cast(Any, SimpleNamespace(again=again)))

    def round(self) -> list[str]:
        """Who goes on in the next round of the loop."""
        due, self.due[:], self.went_on = list(self.due), [], []
        for call in due:
            call()
        return self.went_on


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.readers.stop(5.0)


def test_the_next_one_goes_on_when_an_answer_is_taken(line: Line) -> None:
    left = [TAKING_BYTES_MAX + 1]
    taker = SimpleNamespace(descriptor=lambda: 0, unsent=lambda: left[0])
    line.readers.built(cast(Any, taker), bytes(left[0]), 0)
    line.asks("a")
    line.asks("b")
    assert line.readers.busy
    assert line.round() == line.round() == []
    assert line.rests == 2
    left[0] = 0
    line.readers.taken()
    assert line.round() == ["a", "b"]
    assert line.rests == 2, "nothing goes on by itself"


@pytest.mark.parametrize("gone", [False, True])
def test_who_is_slow_or_gone_keeps_nobody_waiting(line: Line, gone: bool) -> None:
    taker = SimpleNamespace(descriptor=lambda: -1 if gone else 0, unsent=lambda: TAKING_BYTES_MAX + 1)
    line.readers.built(cast(Any, taker), bytes(TAKING_BYTES_MAX), 0)
    line.asks("a")
    assert line.round() == (["a"] if gone else [])
    line.now_s += 2 * TAKEN_WITHIN_S
    assert line.round() == ([] if gone else ["a"])


def waited_s(line: Line, take: str) -> float:
    """How long the next one waits for somebody who takes all, some, or nothing of a large answer."""
    began_s, left = line.now_s, [2 * TAKING_BYTES_MAX]
    taker = SimpleNamespace(descriptor=lambda: 0, unsent=lambda: left[0])
    line.readers.built(cast(Any, taker), bytes(TAKING_BYTES_MAX), 0)
    line.asks("a")
    while not line.round():
        line.now_s += TAKEN_WITHIN_S / 100
        left[0] -= take == "some"
        if take == "all" and line.now_s > began_s + TAKEN_WITHIN_S / 40:
            left[0] = 0
    return line.now_s - began_s


def test_those_who_take_nothing_are_waited_for_less_and_less_and_who_takes_all_makes_up_for_it(line: Line) -> None:
    assert waited_s(line, "some") == pytest.approx(TAKEN_WITHIN_S, rel=0.1)
    waits = [waited_s(line, "nothing") for _ in range(20)]
    assert waits[0] == pytest.approx(TAKEN_WITHIN_S, rel=0.1)
    assert sum(waits) < 5 * TAKEN_WITHIN_S
    for _ in range(5):
        waited_s(line, "all")
    assert waited_s(line, "some") == pytest.approx(TAKEN_WITHIN_S, rel=0.1)
