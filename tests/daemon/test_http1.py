"""One connection: keep-alive, pipelining, what is answered when, and how it ends."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.daemon.kit import DaemonProcess, NoAnswer, daemon_process, post, request


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        running.write("t", 1)
        yield running


def test_a_connection_serves_one_request_after_the_other_over_tcp_and_the_socket(daemon: DaemonProcess) -> None:
    for unix in (False, True):
        with daemon.wire(unix=unix) as wire:
            for _ in range(5):
                wire.send(request("GET", "/v0/health"))
                assert wire.answer().json["status"] == "ok"


def test_pipelined_requests_see_what_the_ones_before_them_did(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        for number in range(1, 20):
            wire.send(
                post("/v0/topics/order", {"records": [{"data": number}]})
                + request("GET", "/v0/topics/order")
                + post("/v0/topics/order/diff", {"from_seq": number - 1})
            )
            assert wire.answer().json["last_seq"] == number
            assert wire.answer().json["head_seq"] == number
            assert [record["data"] for record in wire.answer().json["records"]] == [number]


def test_an_answer_that_is_ready_waits_for_the_ones_before_it(daemon: DaemonProcess) -> None:
    head = daemon.read("t")["head_seq"]
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t/diff", {"from_seq": head, "wait_ms": 300}) + request("GET", "/v0/health"))
        assert wire.answer().json["next_from_seq"] == head
        assert wire.answer().json["status"] == "ok"


def test_a_refused_request_in_a_pipeline_of_writes_keeps_its_place(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        good, bad = post("/v0/topics/t", {"records": [{"data": 1}]}), post("/v0/topics/t", {"records": []})
        wire.send(good + bad + good + post("/v0/nothing", {}) + good)
        assert [wire.answer().status for _ in range(5)] == [200, 400, 200, 404, 200]


def test_connection_close_is_honoured(daemon: DaemonProcess) -> None:
    for ask in (
        request("GET", "/v0/health", None, "Connection: close"),
        post("/v0/topics/t", {"records": [{"data": 1}]}, "Connection: close"),
        request("GET", "/v0/nothing", None, "Connection: close"),
    ):
        with daemon.wire() as wire:
            wire.send(ask)
            assert wire.answer().headers["connection"] == "close"
            assert wire.closed()


@pytest.mark.slow
def test_a_last_answer_is_not_cut_short_for_a_reader_who_takes_his_time(daemon: DaemonProcess) -> None:
    for _ in range(8):
        daemon.write("big", "x" * 1_000_000)
    with daemon.wire() as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.send(post("/v0/topics/big/diff", {"max_bytes": 8 << 20}, "Connection: close"))
        received = bytearray()
        pause_until = time.monotonic() + 4.5
        while part := wire.sock.recv(1 << 16):
            received += part
            if time.monotonic() < pause_until:
                time.sleep(0.05)
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        assert b"content-length: %d" % len(body) in head
        assert len(body) > 7_000_000


def test_what_is_sent_behind_connection_close_is_not_done(daemon: DaemonProcess) -> None:
    """It has no answer, so whoever sent it would not know of it."""
    write = {"records": [{"data": 1}]}
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/closes", write, "Connection: close") + post("/v0/topics/closes", write))
        assert wire.answer().json["last_seq"] == 1
        assert wire.closed()
    assert daemon.read("closes")["head_seq"] == 1


def test_http_1_0_is_answered_and_closed_unless_it_asks_to_be_kept(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(b"GET /v0/health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert wire.answer().headers["connection"] == "close"
        assert wire.closed()
    with daemon.wire() as wire:
        for _ in range(2):
            wire.send(b"GET /v0/health HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
            assert wire.answer().headers["connection"] == "keep-alive"


def test_head_gets_405_without_a_body(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(request("HEAD", "/v0/topics/t"))
        answer = wire.answer("HEAD")
        assert answer.status == 405
        assert answer.headers["allow"] == "DELETE, GET, POST, PUT"
        wire.send(request("GET", "/v0/health"))
        assert wire.answer().status == 200


def test_a_client_that_asks_first_is_told_to_continue_or_refused_without_sending(daemon: DaemonProcess) -> None:
    body = b'{"records":[{"data":1}]}'
    lines = b"Host: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    with daemon.wire() as wire:
        wire.send(b"POST /v0/topics/t HTTP/1.1\r\n" + lines + b"Content-Length: %d\r\n\r\n" % len(body))
        assert wire.answer().status == 100
        wire.send(body)
        assert wire.answer().status == 200
    for path, length, status in ((b"/v0/nothing", 24, 404), (b"/v0/topics/t", 10**10, 413)):
        with daemon.wire() as wire:
            wire.send(b"POST " + path + b" HTTP/1.1\r\n" + lines + b"Content-Length: %d\r\n\r\n" % length)
            assert wire.answer().status == status
            assert wire.closed()


def test_a_client_that_has_sent_all_and_half_closed_still_gets_its_answers(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t", {"records": [{"data": 1}]}) * 3)
        wire.sock.shutdown(socket.SHUT_WR)
        assert [wire.answer().status for _ in range(3)] == [200, 200, 200]
        assert wire.closed()


def test_a_chunked_body_is_read_and_the_next_request_follows(daemon: DaemonProcess) -> None:
    body = json.dumps({"records": [{"data": "chunked"}]}).encode()
    with daemon.wire() as wire:
        wire.send(
            b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
            + b"".join(b"%x;ext=1\r\n%b\r\n" % (len(part), part) for part in (body[:10], body[10:]))
            + b"0\r\nTrailer: x\r\n\r\n"
            + request("GET", "/v0/health")
        )
        assert wire.answer().status == 200
        assert wire.answer().status == 200


def test_a_gzip_body_is_read_and_an_answer_is_compressed_only_when_asked(daemon: DaemonProcess) -> None:
    body = gzip.compress(json.dumps({"records": [{"data": "z" * 5000}]}).encode())
    assert daemon.ask(post("/v0/topics/zipped", body, "Content-Encoding: gzip")).status == 201
    plain = daemon.ask(post("/v0/topics/zipped/diff", {}))
    assert "content-encoding" not in plain.headers
    refused = daemon.ask(post("/v0/topics/zipped/diff", {}, "Accept-Encoding: gzip;q=0, identity"))
    assert "content-encoding" not in refused.headers
    packed = daemon.ask(post("/v0/topics/zipped/diff", {}, "Accept-Encoding: br, gzip"))
    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body))["records"] == plain.json["records"]
    small = daemon.ask(request("GET", "/v0/health", None, "Accept-Encoding: gzip"))
    assert "content-encoding" not in small.headers


def test_the_absolute_form_of_our_own_name_is_understood(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(b"GET http://localhost:1/v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.answer().status == 200


def test_an_offer_to_speak_another_protocol_is_ignored(daemon: DaemonProcess) -> None:
    upgrade = request("GET", "/v0/health", None, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
    with daemon.wire() as wire:
        wire.send(upgrade + upgrade)
        assert wire.answer().status == 200
        assert wire.answer().status == 200


def test_more_distinct_heads_than_are_remembered_are_all_answered(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        for number in range(2500):
            wire.send(request("GET", "/v0/health", None, f"X-Number: {number}"))
            assert wire.answer().status == 200


def test_a_write_whose_client_is_gone_is_done_all_the_same(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/gone", {"records": [{"data": 1}], "idempotency_key": "k"}))
    answer = daemon.write("gone", 1, idempotency_key="k")
    assert answer["first_seq"] == 1


def test_a_request_in_two_parts_is_put_together_wherever_it_is_cut(daemon: DaemonProcess) -> None:
    whole = post("/v0/topics/cut", {"records": [{"data": "abc"}]})
    for position in range(1, len(whole), 7):
        with daemon.wire() as wire:
            wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.send(whole[:position])
            daemon.ask(request("GET", "/v0/health"))
            wire.send(whole[position:])
            assert wire.answer().status in (200, 201)


def test_empty_lines_in_front_of_a_request_are_passed_over(daemon: DaemonProcess) -> None:
    one = post("/v0/topics/empty", {"records": [{"data": 1}]})
    for unix in (False, True):
        with daemon.wire(unix=unix) as wire:
            for whole in (b"\r\n" + one, one + b"\r\n", b"\r\n\r\n" + one):
                wire.send(whole)
                assert wire.answer().status in (200, 201)
            for byte in b"\r\n" + one:
                wire.send(bytes((byte,)))
            assert wire.answer().status == 200
            wire.send(one + b"\r\n" + one + b"\r")
            assert [wire.answer().status for _ in range(2)] == [200, 200]
            wire.send(b"\n" + one)
            assert wire.answer().status == 200


def test_nothing_is_said_to_a_client_that_says_nothing(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.sock.settimeout(0.2)
        with pytest.raises(NoAnswer, match="in time"):
            wire.answer()
