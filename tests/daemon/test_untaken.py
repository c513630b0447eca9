"""Answers that nobody takes: bounded all together, and those go first whose readers take nothing."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.http2_kit import Client
from tests.daemon.kit import DaemonProcess, daemon_process, post
from topics_daemon import untaken
from topics_daemon.log import Log
from topics_daemon.untaken import UNTAKEN_BYTES_MAX, Untaken

MIB = 1024 * 1024
SLACK_BYTES = 64 * MIB
"""What else a daemon takes that gives pages of 8 MiB: the one that is made, and its parts."""
READERS = 100
PAGE = {"limit": 1000, "max_bytes": 8 * MIB}


class Reader:
    """A connection as far as it is looked at here."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.cut_off = False

    def unsent(self) -> int:
        return self.size

    def cut(self) -> None:
        self.cut_off = True


def links(*sizes: int) -> list[Any]:
    return [Reader(size) for size in sizes]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Untaken:
    """A bound of 100 bytes."""
    monkeypatch.setattr(untaken, "UNTAKEN_BYTES_MAX", 100)
    return Untaken(Log(io.StringIO()))


def test_within_the_bound_nobody_is_cut_and_what_is_taken_does_not_count(bound: Untaken) -> None:
    one, two = links(60, 40)
    for reader in (one, two, one):
        bound.note(reader, reader.size)
    assert bound.held_bytes == 100
    bound.forget(one)
    bound.forget(one)
    assert bound.held_bytes == 40
    assert not one.cut_off
    assert not two.cut_off


def test_who_takes_nothing_goes_before_who_takes_some(bound: Untaken) -> None:
    slow, stalled, new = links(50, 40, 30)
    bound.note(slow, 50)
    bound.note(stalled, 40)
    slow.size = 1
    bound.note(new, 30)
    assert [slow.cut_off, stalled.cut_off, new.cut_off] == [False, True, False]
    assert bound.held_bytes == 80, "all of an answer is in memory until the last byte is taken"
    bound.note(new, 60)
    assert slow.cut_off, "it has taken nothing since"


def test_where_all_take_some_the_one_that_waits_longest_goes_and_not_who_has_just_come(bound: Untaken) -> None:
    readers = links(40, 40, 40)
    for reader in readers[:2]:
        bound.note(reader, 40)
        reader.size -= 1
    bound.note(readers[2], 40)
    assert [reader.cut_off for reader in readers] == [True, False, False]
    assert bound.held_bytes == 80


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        for _ in range(9):
            running.write("t", "x" * 1_000_000)
        yield running


@pytest.mark.slow
def test_pages_that_nobody_reads_are_bounded_together_and_others_get_theirs(daemon: DaemonProcess) -> None:
    before = daemon.resident_bytes()
    ask = post("/v0/topics/t/diff", PAGE)
    stalled: list[socket.socket] = []
    try:
        peak = 0
        for _ in range(READERS):
            sock = socket.socket()
            stalled.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", daemon.port))
            sock.sendall(ask)
            answer = daemon.ask(post("/v0/topics/t/diff", {"limit": 1}))
            assert len(answer.json["records"]) == 1
            peak = max(peak, daemon.resident_bytes() - before)
        assert peak > UNTAKEN_BYTES_MAX * 3 / 4, "that much would wait"
        assert peak < UNTAKEN_BYTES_MAX + SLACK_BYTES, f"{peak >> 20} MiB"
        assert len(daemon.ask(ask).json["records"]) == 8, "who reads has the whole page, whatever others hold"
        assert "answer not taken" in daemon.log
    finally:
        for sock in stalled:
            sock.close()
    daemon.is_well()


@pytest.mark.slow
def test_all_but_the_last_bytes_is_not_all(daemon: DaemonProcess) -> None:
    """Over HTTP/2 a reader says how much it takes: of page after page all but a hundred bytes."""
    before = daemon.resident_bytes()
    with Client(daemon, window=0) as client:
        client.greedy = False
        client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        client.flush()
        peak = 0
        for _ in range(16):
            number = client.post("/v0/topics/t/diff", b'{"limit":1000,"max_bytes":8388608}')
            while number not in client.headers:
                client.read()
            length = int(client.headers[number]["content-length"])
            client.h2.increment_flow_control_window(length - 100, number)
            client.flush()
            while len(client.bodies[number]) < length - 100:
                client.read()
            client.bodies[number] = b""
            peak = max(peak, daemon.resident_bytes() - before)
        for number in client.headers:
            client.h2.reset_stream(number)
        client.flush()
    assert peak < SLACK_BYTES, f"{peak >> 20} MiB"
    daemon.is_well()


@pytest.mark.slow
def test_over_http2_as_well(daemon: DaemonProcess) -> None:
    before = daemon.resident_bytes()
    clients: list[Client] = []
    try:
        peak = 0
        for _ in range(READERS):
            client = Client(daemon, window=0)
            clients.append(client)
            client.post("/v0/topics/t/diff", b'{"limit":1000,"max_bytes":8388608}')
            time.sleep(0.01)
            peak = max(peak, daemon.resident_bytes() - before)
        assert peak < UNTAKEN_BYTES_MAX + SLACK_BYTES, f"{peak >> 20} MiB"
        assert len(daemon.ask(post("/v0/topics/t/diff", PAGE)).json["records"]) == 8
    finally:
        for client in clients:
            client.__exit__(None, None, None)
    daemon.is_well()
