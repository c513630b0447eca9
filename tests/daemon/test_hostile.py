"""Requests that mean harm: each has its documented answer, none a 5xx, none hangs, and memory stays bounded.

S-rows of faults.md "Security": request smuggling, header limits, tiny chunks, decompression bombs, body size, deep or
odd JSON, names as paths, DNS rebinding, browser CSRF, cross-protocol.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.daemon.kit import DaemonProcess, NoAnswer, Wire, daemon_process, post, request
from tests.hostile.http1 import (
    BODIES,
    CHUNKED,
    CHUNKS,
    CLOSED,
    GOOD,
    LENGTH,
    MALFORMED,
    MIB,
    REFUSED,
    WRITE,
    head,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process("--max-body-bytes", "2MiB", "--max-request-buffer-bytes", "16MiB") as running:
        running.write("t", 1)
        yield running


def judge(wire: Wire, data: bytes, expected: int) -> None:
    """Send, and demand the documented answer; a sender that is refused early may find the door closed."""
    try:
        wire.send(data)
    except (BrokenPipeError, ConnectionResetError):
        pass
    if expected == CLOSED:
        with pytest.raises(NoAnswer, match=r"closed|reset"):
            wire.answer()
        return
    answer = wire.answer()
    assert answer.status == expected, answer
    assert answer.code
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("name", MALFORMED)
def test_S04_S05_S07_a_malformed_head_gets_its_documented_answer_and_the_connection_closes(
    daemon: DaemonProcess, name: str
) -> None:
    data, expected = MALFORMED[name]
    with daemon.wire() as wire:
        judge(wire, data, expected)
        assert wire.closed()


@pytest.mark.parametrize("name", REFUSED)
def test_S01_S02_S12_a_well_formed_request_that_is_refused_leaves_the_connection_usable(
    daemon: DaemonProcess, name: str
) -> None:
    data, expected = REFUSED[name]
    with daemon.wire() as wire:
        judge(wire, data, expected)
        wire.send(request("GET", "/v0/health"))
        assert wire.answer().status == 200


@pytest.mark.parametrize("name", CHUNKS)
def test_S05_S08_hostile_chunking_gets_its_documented_answer_and_the_connection_closes(
    daemon: DaemonProcess, name: str
) -> None:
    data, expected = CHUNKS[name]
    with daemon.wire() as wire:
        judge(wire, head(*CHUNKED) + data, expected)
        assert wire.closed()


@pytest.mark.parametrize("name", BODIES)
def test_S11_a_hostile_body_gets_400_and_the_connection_lives(daemon: DaemonProcess, name: str) -> None:
    data, expected = BODIES[name]
    with daemon.wire() as wire:
        judge(wire, post("/v0/topics/t", data), expected)
        wire.send(post("/v0/topics/t", GOOD))
        assert wire.answer().status == 200


def gzipped(data: bytes) -> bytes:
    return post("/v0/topics/t", gzip.compress(data), "Content-Encoding: gzip")


def test_S09_a_gzip_bomb_is_413_and_costs_no_more_than_the_bound(daemon: DaemonProcess) -> None:
    bomb = gzipped(b'{"records":[{"data":"' + b"a" * (64 * MIB) + b'"}]}')
    before = daemon.resident_bytes()
    for _ in range(3):
        answer = daemon.ask(bomb)
        assert answer.status == 413
        assert answer.json["error"]["detail"]["limit"] == "max_body_bytes"
    assert daemon.resident_bytes() - before < 32 * MIB


def test_S09_a_body_that_is_inflated_in_steps_keeps_its_place_in_line(daemon: DaemonProcess) -> None:
    large = b'{"records":[{"data":"large"}]%b}' % (b" " * (2 * MIB - 100))
    packed = post("/v0/topics/steps", gzip.compress(large), "Content-Encoding: gzip")
    small = post("/v0/topics/steps", b'{"records":[{"data":"small"}]}')
    with daemon.wire() as wire:
        # All at once: whatever comes behind the large one waits until it is inflated.
        wire.send(packed + small + packed + request("GET", "/v0/topics/steps"))
        assert [wire.answer().json["first_seq"] for _ in range(3)] == [1, 2, 3]
        assert wire.answer().json["head_seq"] == 3
    read = daemon.ask(post("/v0/topics/steps/diff", b'{"from_seq":0}')).json
    assert [record["data"] for record in read["records"]] == ["large", "small", "large"]
    bomb = gzip.compress(b" " * (64 * MIB))
    for _ in range(20):
        # Those who leave in between are forgotten, with what they had inflated.
        with daemon.wire() as wire:
            wire.send(post("/v0/topics/steps", bomb, "Content-Encoding: gzip"))
    assert daemon.ask(packed).status == 200


@pytest.mark.parametrize(
    "data",
    [b"", b"not gzip", gzip.compress(GOOD)[:-4], gzip.compress(GOOD)[:12], gzip.compress(GOOD) + b"rest"],
    ids=["empty", "other", "cut", "only a head", "trailing"],
)
def test_S09_what_is_no_whole_gzip_is_400(daemon: DaemonProcess, data: bytes) -> None:
    assert daemon.ask(post("/v0/topics/t", data, "Content-Encoding: gzip")).status == 400


def test_S09_gzip_in_several_members_is_read_whole_and_bounded_as_a_whole(daemon: DaemonProcess) -> None:
    half = len(GOOD) // 2
    assert daemon.ask(
        post("/v0/topics/t", gzip.compress(GOOD[:half]) + gzip.compress(GOOD[half:]), "Content-Encoding: gzip")
    ).status in (200, 201)
    members = gzip.compress(b" " * MIB) * 3
    assert daemon.ask(post("/v0/topics/t", members, "Content-Encoding: gzip")).status == 413


def test_S08_a_hundred_thousand_tiny_chunks_cost_linear_work(daemon: DaemonProcess) -> None:
    body = b'{"records":[{"data":"' + b"a" * 100_000 + b'"}]}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with daemon.wire() as wire:
        began = time.monotonic()
        wire.send(head(*CHUNKED) + chunks)
        assert wire.answer().status == 200
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["a request", "a chunked request"])
def test_S08_a_request_in_single_bytes_is_understood(daemon: DaemonProcess, name: str) -> None:
    whole = (
        post("/v0/topics/t", GOOD)
        if name == "a request"
        else head(*CHUNKED)
        + b"%x\r\n%b\r\n0\r\nA: b\r\n\r\n"
        % (
            len(GOOD),
            GOOD,
        )
    )
    with daemon.wire() as wire:
        wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in whole:
            wire.send(bytes([byte]))
        assert wire.answer().status == 200


def test_S05_F69_garbage_behind_a_good_request_costs_nobody_its_answer(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t", GOOD) + b"\0garbage" * 1000)
        assert wire.answer().status == 200
        assert wire.closed()
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t", GOOD) + head(*WRITE, LENGTH, LENGTH, body=GOOD))
        assert wire.answer().status == 200
        assert wire.answer().status == 400
        assert wire.closed()


def test_S10_a_413_can_be_read_although_the_body_was_not(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(head(*WRITE, f"Content-Length: {8 * MIB}"))
        wire.send(b"a" * 8 * MIB)
        answer = wire.answer()
        assert answer.status == 413
        assert answer.json["error"]["detail"] == {"limit": "max_body_bytes", "max": 2 * MIB}
        assert wire.closed()


def test_F69_clients_that_vanish_at_every_point_leave_nothing_behind(daemon: DaemonProcess) -> None:
    whole = post("/v0/topics/t", GOOD)
    before = len(daemon.read("t", limit=1000)["records"])
    for cut in range(0, len(whole), 3):
        with daemon.wire() as wire:
            wire.send(whole[:cut])
            if cut % 2:
                wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    poll = post("/v0/topics/t/diff", {"from_seq": daemon.read("t")["head_seq"], "wait_ms": 30000})
    for _ in range(50):
        with daemon.wire() as wire:
            wire.send(poll)
    daemon.is_well()
    assert len(daemon.read("t", limit=1000)["records"]) == before


def test_F14_what_a_client_wrote_that_went_away_at_once_is_there_under_its_key(daemon: DaemonProcess) -> None:
    for number in range(20):
        write = post("/v0/topics/gone-away", {"records": [{"data": number}], "idempotency_key": f"k{number}"})
        with daemon.wire() as wire:
            wire.send(write)
        again = daemon.ask(write).json
        assert (again["first_seq"], again["count"]) == (number + 1, 1), "once, whoever was first"
    page = daemon.ask(post("/v0/topics/gone-away/diff", {})).json
    assert [record["data"] for record in page["records"]] == list(range(20))


def test_F69_a_thousand_pipelined_requests_are_answered_in_order(daemon: DaemonProcess) -> None:
    seqs = []
    with daemon.wire() as wire:
        wire.send(b"".join(post("/v0/topics/pipe", {"records": [{"data": n}]}) for n in range(1000)))
        for _ in range(1000):
            answer = wire.answer()
            assert answer.status in (200, 201)
            seqs.append(answer.json["first_seq"])
    assert seqs == list(range(1, 1001))


def test_S22_unfinished_bodies_of_many_connections_are_bounded_together(daemon: DaemonProcess) -> None:
    part = head(*WRITE, f"Content-Length: {2 * MIB}") + b'{"records":[{"data":"' + b"a" * (MIB + MIB // 2)
    before = daemon.resident_bytes()
    wires = [daemon.wire() for _ in range(40)]
    refused = 0
    try:
        for wire in wires:
            try:
                wire.send(part)
            except ConnectionError:
                continue
        for wire in wires:
            wire.sock.settimeout(0.2)
            try:
                answer = wire.answer()
            except NoAnswer as error:
                refused += "reset" in str(error)
                continue
            assert answer.status == 429
            assert answer.json["error"]["detail"]["limit"] == "max_request_buffer_bytes"
            assert answer.headers["retry-after"]
            refused += 1
        assert refused >= 20
        assert daemon.resident_bytes() - before < 64 * MIB
    finally:
        for wire in wires:
            wire.close()
    assert daemon.ask(post("/v0/topics/t", GOOD)).status == 200


def test_S02_origins_that_are_ours_pass_and_no_answer_invites_other_pages(daemon: DaemonProcess) -> None:
    same = head(*WRITE, LENGTH, "Origin: http://localhost", "Sec-Fetch-Site: same-origin", body=GOOD)
    answer = daemon.ask(same)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = head("OPTIONS /v0/topics/t HTTP/1.1", "Host: localhost", "Access-Control-Request-Method: POST")
    answer = daemon.ask(preflight)
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "127.1.2.3", "[::1]:80"])
def test_S01_names_of_this_machine_are_accepted_whatever_the_port(daemon: DaemonProcess, host: str) -> None:
    assert daemon.ask(head("GET /v0/health HTTP/1.1", f"Host: {host}")).status == 200


def test_S01_S02_the_unix_socket_takes_any_host_but_no_foreign_origin(daemon: DaemonProcess) -> None:
    assert daemon.ask(head("GET /v0/health HTTP/1.1", "Host: anything"), unix=True).status == 200
    foreign = head("GET /v0/health HTTP/1.1", "Host: anything", "Origin: http://evil.example")
    assert daemon.ask(foreign, unix=True).status == 403


def test_S17_nothing_hostile_is_in_the_log_as_it_came(daemon: DaemonProcess) -> None:
    daemon.ask(request("GET", "/v0/topics/a%0a%1b[31m"))
    for line in daemon.log.splitlines():
        json.loads(line)
        assert line.isprintable()


def test_after_all_this_the_daemon_is_well_and_small(daemon: DaemonProcess) -> None:
    daemon.is_well()
    assert daemon.resident_bytes() < 200 * MIB
