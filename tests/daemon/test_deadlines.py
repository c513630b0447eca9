"""Clients that are slow, idle, or take nothing: each meets its deadline, and nobody else notices.

S-row "slowloris" and F69. The deadlines are short by configuration; the timer that keeps them is the real one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.daemon.kit import DaemonProcess, daemon_process, post, request
from topics_daemon.body import BODY_GRACE_S

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
FLAGS = {
    "--header-timeout-ms": "300",
    "--body-timeout-ms": "800",
    "--idle-timeout-ms": "1500",
    "--stall-timeout-ms": "700",
    "--max-connections": "24",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(*(word for pair in FLAGS.items() for word in pair)) as running:
        running.write("t", 1)
        yield running


def test_S06_a_head_that_comes_too_slowly_is_cut_off(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        began = time.monotonic()
        try:
            for byte in b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 100:
                wire.send(bytes([byte]))
                time.sleep(0.02)
        except ConnectionError:
            pass
        assert wire.closed()
        assert 0.25 < time.monotonic() - began < 8


def test_S06_a_body_that_does_not_end_is_cut_off(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        wire.send(b"Content-Length: 1000\r\n\r\n{")
        began = time.monotonic()
        assert wire.closed()
        assert 0.5 < time.monotonic() - began < 8


def test_S06_a_body_that_trickles_is_cut_off_long_before_its_deadline() -> None:
    """At least a KiB a second, after a few seconds of grace."""
    with daemon_process("--body-timeout-ms", "600s") as running, running.wire() as slow, running.wire() as steady:
        began = time.monotonic()
        for wire in (slow, steady):
            wire.send(post("/v0/topics/t", b"").replace(b"Content-Length: 0", b"Content-Length: 1000000"))
        over = 0.0
        while not over and time.monotonic() - began < 60:
            steady.send(b" " * 4096)
            try:
                slow.send(b" ")
            except ConnectionError:
                over = time.monotonic() - began
            time.sleep(0.2)
        assert BODY_GRACE_S <= over < 60
        steady.send(b" ")


def test_S06_an_idle_connection_is_closed_but_one_that_asks_now_and_then_is_not(daemon: DaemonProcess) -> None:
    with daemon.wire() as idle, daemon.wire() as busy:
        for _ in range(8):
            busy.send(request("GET", "/v0/health"))
            assert busy.answer().status == 200
            time.sleep(0.25)
        assert idle.closed(5)


def test_S06_a_long_poll_is_not_idle(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t/diff", {"from_seq": daemon.read("t")["head_seq"], "wait_ms": 2500}))
        began = time.monotonic()
        assert wire.answer().json["records"] == []
        assert time.monotonic() - began > 2.4


def test_F69_S22_a_reader_that_takes_nothing_is_cut_off_and_memory_stays_bounded(daemon: DaemonProcess) -> None:
    for _ in range(8):
        daemon.write("big", "x" * (MIB - 100))
    before = daemon.resident_bytes()
    with daemon.wire() as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = post("/v0/topics/big/diff", {"max_bytes": 8 * MIB, "limit": 8})
        wire.sock.settimeout(2)
        try:
            for _ in range(200):
                wire.send(ask)
        except (TimeoutError, ConnectionError):
            pass
        time.sleep(0.3)
        assert daemon.resident_bytes() - before < 40 * MIB
        time.sleep(1.5)
        daemon.is_well()
        assert wire.closed(1)


def test_S06_S22_connections_beyond_the_cap_are_told_so_and_room_comes_back(daemon: DaemonProcess) -> None:
    time.sleep(0.3)
    wires = [daemon.wire() for _ in range(24)]
    try:
        for wire in wires:
            wire.send(request("GET", "/v0/health"))
            assert wire.answer().status == 200
        with daemon.wire() as extra:
            answer = extra.answer()
            assert answer.status == 429
            assert answer.json["error"]["detail"] == {"limit": "max_connections", "max": 24}
            assert answer.headers["retry-after"]
            assert extra.closed()
    finally:
        for wire in wires:
            wire.close()
    time.sleep(0.2)
    daemon.is_well()
