"""WebSocket handshakes and frames that mean harm, or break the rules: each has its answer, none hangs or crashes.

S-rows of faults.md "Security": cross-site WebSocket, DNS rebinding, decompression bomb, body size, slowloris, resource
caps.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.kit import DaemonProcess, clean_environment, daemon_process, post, request
from tests.daemon.socket_kit import CLOSE, CONT, PING, PONG, TEXT, Client, Raw, frame, handshake
from tests.hostile.websocket import FRAMES, HANDSHAKES, PING_OP

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    flags = ("--max-body-bytes", "1MiB", "--max-request-buffer-bytes", "4MiB", "--body-timeout-ms", "1500")
    with daemon_process(*flags) as running:
        running.write("t", 1)
        yield running


@pytest.fixture(scope="module")
def closed() -> Iterator[DaemonProcess]:
    keys = "full,reader:read,writer:write,worker:read+write,mine:read+write+admin:tenant42:,remover:delete"
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS=keys)) as running:
        for name in ("tenant42:log", "other:log"):
            body = {"records": [{"data": 1}]}
            assert running.ask(post(f"/v0/topics/{name}", body, "Authorization: Bearer full")).status == 201
        for name in ("tenant42:queue", "other:queue"):
            put = request("PUT", f"/v0/topics/{name}", {"type": "queue"}, "Authorization: Bearer full")
            assert running.ask(put).status == 201
        yield running


# -- the handshake ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HANDSHAKES)
def test_S03_a_handshake_that_is_wrong_is_refused(daemon: DaemonProcess, name: str) -> None:
    text, status = HANDSHAKES[name]
    answer = daemon.ask(text.encode(), method=text.split(" ")[0])
    assert answer.status == status, answer
    daemon.is_well()


def test_the_same_origin_may_come_in(daemon: DaemonProcess) -> None:
    with Raw(daemon, "Origin: http://localhost", "Sec-Fetch-Site: same-origin") as raw:
        raw.send(frame(PING_OP))
        assert raw.message()["op"] == "pong"


def test_S09_no_extension_and_no_subprotocol_is_taken(daemon: DaemonProcess) -> None:
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    with Raw(daemon, offer, "Sec-WebSocket-Protocol: chat") as raw:
        assert "extensions" not in raw.head.lower()
        assert "protocol:" not in raw.head.lower()
        assert "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" not in raw.head
    with daemon.wire() as wire:
        wire.send(handshake(key="dGhlIHNhbXBsZSBub25jZQ=="))
        # The example of RFC 6455, 1.3.
        assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in wire.until(b"\r\n\r\n")


def test_frames_behind_the_handshake_are_not_lost(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(request("GET", "/v0/health") + handshake() + frame(PING_OP))
        assert wire.answer().status == 200
        wire.until(b"\r\n\r\n")
        assert b'"pong"' in wire.until(b"}")


@pytest.mark.parametrize(("token", "status"), [("", 401), ("wrong", 401), ("full", 101), ("remover", 101)])
def test_S03_opening_needs_a_known_key_in_a_header_or_the_query(closed: DaemonProcess, token: str, status: int) -> None:
    for asked in (
        handshake(f"Authorization: Bearer {token}") if token else handshake(),
        handshake(path=f"/v0/ws?token={token}"),
    ):
        with closed.wire() as wire:
            wire.send(asked)
            assert int(wire.until(b"\r\n").split(b" ")[1]) == status
    assert "full" not in closed.log


# -- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("how", ["whole", "byte by byte", "with more behind"])
def test_S03_a_frame_that_breaks_the_rules_closes_with_its_code(daemon: DaemonProcess, name: str, how: str) -> None:
    data, code = FRAMES[name]
    with Raw(daemon) as raw:
        if how == "byte by byte" and len(data) < 1000:
            for at in range(len(data)):
                raw.send(data[at : at + 1])
        else:
            raw.send(data + (frame(PING_OP) * 3 if how == "with more behind" else b""))
        assert raw.closing() == code
        if name != next(iter(FRAMES)):  # That one is cut off by the daemon alone, after a while.
            raw.wire.sock.shutdown(socket.SHUT_WR)
        assert raw.wire.closed()


@pytest.mark.parametrize(
    "data",
    [
        frame("", fin=False) * 500 + frame(PING_OP, CONT),
        b"".join([frame('{"op"', fin=False), frame(":", CONT, fin=False), frame('"ping"}', CONT)]),
        b"".join([frame('{"op"', fin=False), frame("x", PING), frame("y", PONG), frame(':"ping"}', CONT)]),
        frame("x" * 125, PING) * 100 + frame(PING_OP),
        frame("unasked", PONG) * 100 + frame(PING_OP),
        frame('{"op":"ping","request_id":"' + "é" * 100 + '"}'),
        frame(PING_OP + " " * 70_000),
    ],
    ids=["empty fragments", "fragments", "control frames between", "pings", "pongs", "UTF-8", "white space"],
)
def test_what_is_allowed_but_odd_is_taken(daemon: DaemonProcess, data: bytes) -> None:
    if data.startswith(frame("", fin=False)[:2]):
        # A fragment that begins a message comes once; empty ones continue it.
        data = frame("", fin=False) + frame("", CONT, fin=False) * 500 + frame(PING_OP, CONT)
    for pieces in ([data], [data[at : at + 7] for at in range(0, min(len(data), 5000), 7)] + [data[5005:]]):
        with Raw(daemon) as raw:
            for piece in pieces:
                raw.send(piece)
            while True:
                opcode, payload = raw.frame()
                if opcode == TEXT:
                    break
                assert opcode == PONG
            assert b'"pong"' in payload


def test_a_message_that_never_ends_is_cut_off(daemon: DaemonProcess) -> None:
    """Slowloris by frames: a header that announces a lot, then a byte now and then."""
    with Raw(daemon) as raw:
        raw.send(frame("x" * 500_000)[:20])
        began = time.monotonic()
        deadline = began + 30
        raw.wire.sock.settimeout(0.2)
        while True:
            assert time.monotonic() < deadline, "it waits for ever"
            try:
                raw.send(b"x")
                data = raw.wire.sock.recv(100)
            except TimeoutError:
                continue
            except ConnectionError:
                data = b""
            assert not data or (data[0] & 0x0F == CLOSE and struct.unpack("!H", data[2:4])[0] == 1008)
            break
    daemon.is_well()


def test_many_large_messages_at_once_stay_within_the_bound(daemon: DaemonProcess) -> None:
    before = daemon.resident_bytes()
    almost = frame("x" * 1_000_000)[:-1]
    sockets = [Raw(daemon) for _ in range(12)]
    try:
        for raw in sockets:
            raw.send(almost)
        codes = []
        for raw in sockets:
            raw.wire.sock.settimeout(5)
            codes.append(raw.closing())
        # Those over the bound are told at once, the others when their time is over.
        assert set(codes) == {1008}
        assert daemon.resident_bytes() - before < 24 * 1024 * 1024
    finally:
        for raw in sockets:
            raw.wire.close()
    daemon.is_well()


def test_a_flood_of_commands_from_one_socket_leaves_room_for_others(daemon: DaemonProcess) -> None:
    flood = frame('{"op":"publish","topic":"flood","records":[{"data":1}]}') * 2000
    with Raw(daemon) as raw, Client(daemon) as other:
        raw.wire.sock.settimeout(0.1)
        for _ in range(5):
            try:
                raw.wire.sock.sendall(flood)
            except TimeoutError:
                break
            took = time.monotonic()
            assert other.ask("ping")["op"] == "pong"
            assert time.monotonic() - took < 5
    daemon.is_well()


def test_a_client_that_vanishes_gives_back_what_it_held(daemon: DaemonProcess) -> None:
    daemon.ask(request("PUT", "/v0/topics/jobs", {"type": "queue"}))
    daemon.write("jobs", "a")
    for number in range(5):
        with Raw(daemon) as raw:
            raw.send(frame('{"op":"subscribe","topic":"t"}') + frame("x" * 1000)[:500])
            raw.message()
            raw.send(frame('{"op":"claim","topic":"jobs","node":"n","wait_ms":30000}'))
            if number % 2:
                raw.send(frame("{", fin=False))
    daemon.is_well()


# -- scopes and names ------------------------------------------------------------------------------------------------

WRITE = {"records": [{"data": 1}]}
COMMANDS: list[tuple[str, dict[str, Any], set[str], str]] = [
    ("subscribe", {}, {"read"}, "log"),
    ("publish", WRITE, {"write"}, "log"),
    ("publish", {**WRITE, "config": {"cap_records": 1000}}, {"write", "admin"}, "log"),
    ("claim", {"node": "n", "match": "none"}, {"read", "write"}, "queue"),
    ("ack", {"node": "n", "seqs": [9]}, {"write"}, "queue"),
    ("nack", {"node": "n", "seqs": [9]}, {"write"}, "queue"),
    ("extend", {"node": "n", "seqs": [9]}, {"write"}, "queue"),
]
KEYS = {
    "full": ({"read", "write", "delete", "admin"}, ""),
    "reader": ({"read"}, ""),
    "writer": ({"write"}, ""),
    "worker": ({"read", "write"}, ""),
    "mine": ({"read", "write", "admin"}, "tenant42:"),
    "remover": ({"delete"}, ""),
}


@pytest.mark.parametrize("key", KEYS)
def test_every_command_is_judged_by_scope_and_name(closed: DaemonProcess, key: str) -> None:
    scopes, prefix = KEYS[key]
    with Client(closed, ("Authorization", f"Bearer {key}")) as client:
        assert client.ask("ping")["op"] == "pong"
        for op, members, needed, kind in COMMANDS:
            for name in (f"tenant42:{kind}", f"other:{kind}", "other:none"):
                allowed = needed <= scopes and name.startswith(prefix)
                client.say(op, topic=name, request_id=f"{op} {name}", **members)
                answer = client.next()
                while "request_id" not in answer:
                    answer = client.next()
                cell = f"{op} on {name} with {key}: {answer}"
                if not allowed:
                    # Whether or not the name exists.
                    assert (answer["op"], answer["code"]) == ("error", "forbidden"), cell
                elif name != "other:none":
                    assert answer["op"] != "error", cell
            client.say("unsubscribe", topics=["tenant42:log", "other:log"])
            client.until("unsubscribed")
        if prefix:
            answer = client.ask("subscribe", topics=[f"{prefix}log", "other:log"], lenient=True)
            assert answer["code"] == "forbidden"
    assert "Bearer" not in closed.log
