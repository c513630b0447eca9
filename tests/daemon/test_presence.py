"""Clients that have sent all they will: who may still read is answered, at once, and who is gone is given no jobs.

Nothing here waits for as long as it asked to wait: an answer that took so long would be too late for the reader.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.daemon.http2_kit import Client
from tests.daemon.kit import Answer, DaemonProcess, daemon_process, halt, make_queue, post, request
from tests.daemon.socket_kit import Raw, frame
from topics_daemon.listen import NO_LINGER
from topics_daemon.presence import KEPT_MAX, REFUSED_WITHIN_S, Refusals

WAIT_MS = 30_000


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        yield running


def claim(queue: str, wait_ms: int = 0) -> bytes:
    return post(f"/v0/topics/{queue}/claim", {"node": "n", "wait_ms": wait_ms})


def waits(name: str) -> list[bytes]:
    """A request of each kind that waits, of things that have nothing new."""
    return [
        claim(f"{name}-queue", WAIT_MS),
        post(f"/v0/topics/{name}-log/diff", {"from_seq": 1, "wait_ms": WAIT_MS}),
        post("/v0/diff", {"topics": {f"{name}-log": {"from_seq": 1}}, "max_wait_ms": WAIT_MS}),
    ]


def given(answer: Answer) -> Any:
    """What an answer to one of these gives."""
    found = answer.json
    for page in found.get("topics", {}).values():
        found = page
    return found.get("claimed", found.get("records"))


def in_flight(daemon: DaemonProcess, queue: str) -> int:
    count: int = daemon.ask(request("GET", f"/v0/topics/{queue}")).json["queue"]["in_flight"]
    return count


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("when", ["with it", "later", "behind a write"])
@pytest.mark.parametrize("kind", range(3), ids=["claim", "diff", "many"])
def test_who_has_sent_all_is_not_waited_for_and_is_answered(
    daemon: DaemonProcess, kind: int, when: str, unix: bool
) -> None:
    name = f"half-{kind}-{when.replace(' ', '-')}-{unix}"
    make_queue(daemon, f"{name}-queue")
    daemon.write(f"{name}-log", 1)
    with daemon.wire(unix=unix) as wire:
        if when == "behind a write":
            wire.send(post(f"/v0/topics/{name}-other", {"records": [{"data": 1}], "ack": "fsync"}))
        wire.send(waits(name)[kind])
        if when == "later":
            daemon.is_well()
        wire.sock.shutdown(socket.SHUT_WR)
        if when == "behind a write":
            assert wire.answer().status == 201
        answer = wire.answer()
        assert (answer.status, given(answer)) == (200, [])
        assert wire.closed()


@pytest.mark.parametrize("unix", [False, True])
def test_who_has_sent_all_gets_jobs_and_keeps_them(daemon: DaemonProcess, unix: bool) -> None:
    queue = f"kept-{unix}"
    make_queue(daemon, queue, 1)
    with daemon.wire(unix=unix) as wire:
        wire.send(claim(queue, WAIT_MS))
        wire.sock.shutdown(socket.SHUT_WR)
        assert [job["data"] for job in wire.answer().json["claimed"]] == [1]
        assert wire.closed()
    time.sleep(0.2)  # by then it is known whether it was refused
    assert in_flight(daemon, queue) == 1


@pytest.mark.parametrize(
    ("transport", "unix"),
    [("http1", False), ("http1", True), ("http2", False), ("http2", True), ("websocket", False)],
)
def test_F69_who_was_gone_before_it_was_given_a_job_holds_none(
    daemon: DaemonProcess, transport: str, unix: bool
) -> None:
    """The daemon stands still meanwhile, as one that has too much to do: clients give up, and go."""
    queue = f"gone-{transport}-{unix}"
    make_queue(daemon, queue, 1)
    body = b'{"node":"n"}'
    if transport == "http1":
        sock = daemon.wire(unix=unix).sock
        said = claim(queue)
    elif transport == "http2":
        client = Client(daemon, unix=unix)
        sock, said = client.sock, b""
        assert client.answer(client.begin("GET", "/v0/health"))[0] == 200
    else:
        sock = Raw(daemon).wire.sock
        said = frame(b'{"op":"claim","topic":"%b",%b' % (queue.encode(), body[1:]))
    halt(daemon.pid)
    try:
        if transport == "http2":
            client.post(f"/v0/topics/{queue}/claim", body)
        else:
            sock.sendall(said)
        sock.close()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    deadline = time.monotonic() + 10
    while in_flight(daemon, queue):
        assert time.monotonic() < deadline, "a job is leased to who is gone"
        time.sleep(0.01)
    job = daemon.ask(claim(queue, 1000)).json["claimed"][0]
    assert job["deliveries"] == 1, "and it was not delivered"


def test_who_has_read_its_jobs_over_a_unix_socket_and_is_gone_keeps_them(daemon: DaemonProcess) -> None:
    make_queue(daemon, "read")
    daemon.write("read", 1)
    with daemon.wire(unix=True) as wire:
        wire.send(claim("read"))
        wire.sock.shutdown(socket.SHUT_WR)
        assert len(given(wire.answer())) == 1
    time.sleep(3 * REFUSED_WITHIN_S)
    assert in_flight(daemon, "read") == 1


def test_no_more_connections_are_kept_open_than_may_be_and_all_are_let_go() -> None:
    due: list[Any] = []
    loop: Any = SimpleNamespace(call_later=lambda _after_s, call, *args: due.append(partial(call, *args)))
    told: list[int] = []
    refusals = Refusals(loop)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ours, _ = server.accept()
        before = len(os.listdir("/proc/self/fd"))
        with ours:
            for number in range(KEPT_MAX + 5):
                refusals.watch(ours.fileno(), partial(told.append, number))
        assert len(os.listdir("/proc/self/fd")) == before - 1 + KEPT_MAX
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    for look in due:
        look()
    assert told == list(range(KEPT_MAX))
    assert len(os.listdir("/proc/self/fd")) == before - 3
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        ours, _ = server.accept()
        with ours:
            refusals.watch(ours.fileno(), partial(told.append, -1))
    assert len(due) == KEPT_MAX + 1, "there is room again"
    due[-1]()
