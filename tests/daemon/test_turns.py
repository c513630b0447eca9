"""Large answers take turns: who asks for little is answered between two of them, however many are asked for."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.daemon.kit import DaemonProcess, daemon_process, post, request

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
        # What was counted in the same look at the sockets; the small one is of the first route, too.
        assert answered(lone.answer().body, route) - before <= 2
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
        assert told <= 2, "they were answered in the tick of the write"
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
