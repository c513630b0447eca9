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

MIB = 1024 * 1024
CLOSED = 0
"""Stands for: closed without an answer."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process("--max-body-bytes", "2MiB", "--max-request-buffer-bytes", "16MiB") as running:
        running.write("t", 1)
        yield running


def head(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


JSON = "Content-Type: application/json"
WRITE = ("POST /v0/topics/t HTTP/1.1", "Host: localhost", JSON)
GOOD = b'{"records":[{"data":1}]}'
LENGTH = f"Content-Length: {len(GOOD)}"

MALFORMED = {
    "length and chunked": (head(*WRITE, LENGTH, "Transfer-Encoding: chunked", body=GOOD), 400),
    "chunked and length": (head(*WRITE, "Transfer-Encoding: chunked", LENGTH, body=b"0\r\n\r\n"), 400),
    "two equal lengths": (head(*WRITE, LENGTH, LENGTH, body=GOOD), 400),
    "two different lengths": (head(*WRITE, LENGTH, "Content-Length: 0", body=GOOD), 400),
    "a list of lengths": (head(*WRITE, "Content-Length: 24, 24", body=GOOD), 400),
    "a length with a plus": (head(*WRITE, "Content-Length: +24", body=GOOD), 400),
    "a negative length": (head(*WRITE, "Content-Length: -1", body=GOOD), 400),
    "a length with an underscore": (head(*WRITE, "Content-Length: 2_4", body=GOOD), 400),
    "a hexadecimal length": (head(*WRITE, "Content-Length: 0x18", body=GOOD), 400),
    "a length of other digits": (head(*WRITE)[:-4] + "\r\nContent-Length: ٢٤\r\n\r\n".encode(), 400),
    "an empty length": (head(*WRITE, "Content-Length:", body=GOOD), 400),
    "a length of 400 digits": (head(*WRITE, "Content-Length: " + "9" * 400), 400),
    "gzip, chunked": (head(*WRITE, "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 400),
    "chunked, chunked": (head(*WRITE, "Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"), 400),
    "chunked twice": (
        head(*WRITE, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
    ),
    "xchunked": (head(*WRITE, "Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 400),
    "identity": (head(*WRITE, "Transfer-Encoding: identity", body=GOOD), 400),
    "a coding with a vertical tab": (head(*WRITE, "Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"), 400),
    "a space before the colon": (head(*WRITE, "Transfer-Encoding : chunked", body=b"0\r\n\r\n"), 400),
    "chunked in HTTP/1.0": (
        head("POST /v0/topics/t HTTP/1.0", "Host: localhost", JSON, "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
    ),
    "bare line feeds": (b"GET /v0/health HTTP/1.1\nHost: localhost\n\n", 400),
    "one bare line feed": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n", 400),
    "a bare carriage return": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nA: b\rC: d\r\n\r\n", 400),
    "a folded header": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: b", " c: d"), 400),
    "a header folded by a tab": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: b", "\tc"), 400),
    "a NUL in a header": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: b\0c"), 400),
    "a NUL in the path": (head("GET /v0/topics/a\0b HTTP/1.1", "Host: localhost"), 400),
    "a header without a colon": (head("GET /v0/health HTTP/1.1", "Host: localhost", "nonsense"), 400),
    "a header without a name": (head("GET /v0/health HTTP/1.1", "Host: localhost", ": x"), 400),
    "two hosts": (head("GET /v0/health HTTP/1.1", "Host: localhost", "Host: localhost"), 400),
    "no host": (head("GET /v0/health HTTP/1.1", "A: b"), 400),
    "HTTP/0.9": (b"GET /v0/health\r\n\r\n", 400),
    "HTTP/2.0 in words": (head("GET /v0/health HTTP/2.0", "Host: localhost"), 400),
    "two spaces in the request line": (head("GET  /v0/health HTTP/1.1", "Host: localhost"), 400),
    "a space in the path": (head("GET /v0/hea lth HTTP/1.1", "Host: localhost"), 400),
    "a fragment in the path": (head("GET /v0/health#x HTTP/1.1", "Host: localhost"), 400),
    "a request line of 10 KiB": (head(f"GET /v0/topics/{'a' * 10240} HTTP/1.1", "Host: localhost"), 414),
    "a request line without end": (b"GET /" + b"a" * 20000, 414),
    "a header line of 10 KiB": (head("GET /v0/health HTTP/1.1", "Host: localhost", "A: " + "b" * 10240), 431),
    "200 headers": (head("GET /v0/health HTTP/1.1", "Host: localhost", *(f"A{n}: b" for n in range(200))), 431),
    "64 KiB of headers": (
        head("GET /v0/health HTTP/1.1", "Host: localhost", *(f"A{n}: {'b' * 1000}" for n in range(64))),
        431,
    ),
    "headers without end": (b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20000, 431),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64, CLOSED),
    "RESP": (b"*1\r\n$4\r\nPING\r\n", CLOSED),
    "binary": (bytes(range(256)), CLOSED),
    "a NUL first": (b"\0GET / HTTP/1.1\r\n\r\n", CLOSED),
    "an empty line first": (b"\r\nGET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n", CLOSED),
    "an invented method": (head("BREW /v0/health HTTP/1.1", "Host: localhost"), 400),
    "a parameter given twice": (request("GET", "/v0/topics/t?touch=true&touch=false"), 400),
    "a length beyond the bound": (head(*WRITE, "Content-Length: 2097153"), 413),
    "a length of exabytes": (head(*WRITE, "Content-Length: 999999999999999999"), 413),
}

REFUSED = {
    "a bad percent escape": (head("GET /v0/topics/a%zz HTTP/1.1", "Host: localhost"), 400),
    "a path that is not UTF-8": (head("GET /v0/topics/%ff HTTP/1.1", "Host: localhost"), 400),
    "CONNECT": (head("CONNECT localhost:80 HTTP/1.1", "Host: localhost"), 404),
    "TRACE": (head("TRACE /v0/health HTTP/1.1", "Host: localhost"), 405),
    "a rebound name": (head("GET /v0/health HTTP/1.1", "Host: evil.example"), 421),
    "a rebound name with our port": (head("GET /v0/health HTTP/1.1", "Host: evil.example:4000"), 421),
    "a name that begins like ours": (head("GET /v0/health HTTP/1.1", "Host: localhost.evil.example"), 421),
    "an address that begins like ours": (head("GET /v0/health HTTP/1.1", "Host: 127.0.0.1.evil.example"), 421),
    "credentials in the host": (head("GET /v0/health HTTP/1.1", "Host: localhost@evil.example"), 421),
    "an empty host": (head("GET /v0/health HTTP/1.1", "Host:"), 421),
    "the absolute form of another host": (head("GET http://evil.example/v0/health HTTP/1.1", "Host: localhost"), 421),
    "a rebound name on an unknown path": (head("GET /nothing HTTP/1.1", "Host: evil.example"), 421),
    "a foreign origin": (head(*WRITE, LENGTH, "Origin: http://evil.example", body=GOOD), 403),
    "a foreign origin on a read": (head("GET /v0/topics HTTP/1.1", "Host: localhost", "Origin: https://a.b"), 403),
    "the null origin": (head(*WRITE, LENGTH, "Origin: null", body=GOOD), 403),
    "an origin of another port": (head(*WRITE, LENGTH, "Origin: http://localhost:3000", body=GOOD), 403),
    "a cross-site fetch": (head("GET /v0/topics HTTP/1.1", "Host: localhost", "Sec-Fetch-Site: cross-site"), 403),
    "a form of a page": (
        head("POST /v0/topics/t HTTP/1.1", "Host: localhost", "Content-Type: text/plain", LENGTH, body=GOOD),
        415,
    ),
    "a form": (
        head(
            "POST /v0/topics/t HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/x-www-form-urlencoded",
            LENGTH,
            body=GOOD,
        ),
        415,
    ),
    "a body without a type": (head("POST /v0/topics/t HTTP/1.1", "Host: localhost", LENGTH, body=GOOD), 415),
    "another charset": (
        head("POST /v0/topics/t HTTP/1.1", "Host: localhost", JSON + "; charset=utf-16", LENGTH, body=GOOD),
        415,
    ),
    "another coding": (head(*WRITE, LENGTH, "Content-Encoding: br", body=GOOD), 415),
    "a path upwards": (request("GET", "/v0/topics/..%2f..%2fetc%2fpasswd"), 400),
    "a path upwards, encoded twice": (request("GET", "/v0/topics/%252e%252e%252f"), 400),
    "a name with a line break": (request("GET", "/v0/topics/a%0d%0aSet-Cookie:x"), 400),
    "a name with a NUL": (request("GET", "/v0/topics/a%00"), 400),
    "a name of 256 bytes": (request("GET", "/v0/topics/" + "a" * 256), 400),
    "a seq of other digits": (request("GET", "/v0/topics/t/records/%D9%A1"), 400),
    "a seq beyond 64 bits": (request("GET", "/v0/topics/t/records/18446744073709551616"), 400),
}

CHUNKED = (*WRITE, "Transfer-Encoding: chunked")
CHUNKS = {
    "a chunk size with a sign": (b"+5\r\nhello\r\n0\r\n\r\n", 400),
    "a chunk size with 0x": (b"0x5\r\nhello\r\n0\r\n\r\n", 400),
    "a chunk size with an underscore": (b"1_0\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n", 400),
    "an empty chunk size": (b"\r\nhello\r\n0\r\n\r\n", 400),
    "a chunk size of 20 digits": (b"f" * 20 + b"\r\n", 400),
    "a chunk of exabytes": (b"7fffffffffffffff\r\n", 413),
    "a chunk size ended by a bare line feed": (b"5\nhello\r\n0\r\n\r\n", 400),
    "a chunk that is longer than it says": (b"5\r\nhello!\r\n0\r\n\r\n", 400),
    "a chunk ended by a bare line feed": (b"5\r\nhello\n0\r\n\r\n", 400),
    "a chunk extension without end": (b"5;" + b"a" * 4096, 400),
    "chunk extensions that outweigh the data": ((b"1;" + b"a" * 200 + b"\r\n1\r\n") * 400, 400),
    "a chunk extension with a control character": (b"5;\x01\r\nhello\r\n0\r\n\r\n", 400),
    "trailers without end": (b"0\r\n" + b"A: b\r\n" * 4000, 400),
    "chunks beyond the bound": (b"100000\r\n" + b"a" * MIB + b"\r\n100000\r\n" + b"a" * MIB + b"\r\n1\r\n", 413),
}

BODIES = {
    "an array 100,000 deep": (b'{"records":[{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", 400),
    "an array 100,000 deep without end": (b'{"records":[{"data":' + b"[" * 100_000, 400),
    "objects 10,000 deep": (b'{"records":[{"data":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}]}", 400),
    "records 10,000 deep": (b'{"records":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
    "a deep unknown field": (b'{"x":' + b"[" * 5000 + b"]" * 5000 + b',"records":[{"data":1}]}', 400),
    "a deep config": (b'{"config":' + b"[" * 5000 + b"]" * 5000 + b',"records":[{"data":1}]}', 400),
    "NaN": (b'{"records":[{"data":NaN}]}', 400),
    "Infinity": (b'{"records":[{"data":-Infinity}]}', 400),
    "bad UTF-8 in data": (b'{"records":[{"data":"\xff"}]}', 400),
    "overlong UTF-8": (b'{"records":[{"data":"\xc0\x80"}]}', 400),
    "a raw surrogate": (b'{"records":[{"data":"\xed\xa0\x80"}]}', 400),
    "a NUL in a string": (b'{"records":[{"data":"\x00"}]}', 400),
    "a raw line break in a string": (b'{"records":[{"data":"a\nb"}]}', 400),
    "a lone surrogate in a tag": (b'{"records":[{"data":1,"tag":"\\ud800"}]}', 400),
    "a lone surrogate in a field's name": (b'{"records":[{"data":1,"\\ud800":2}]}', 400),
    "UTF-16": ('{"records":[{"data":1}]}'.encode("utf-16"), 400),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, 400),
    "two values": (GOOD + GOOD, 400),
    "a number with a leading zero": (b'{"records":[{"data":01}]}', 400),
    "an empty body": (b"", 400),
    "null": (b"null", 400),
    "no records": (b'{"records":[]}', 400),
    "100,000 records": (b'{"records":[' + b",".join([b'{"data":1}'] * 100_000) + b"]}", 400),
    "a record of 1.5 MiB": (b'{"records":[{"data":"' + b"a" * (MIB + MIB // 2) + b'"}]}', 400),
    "meta with 10,000 keys": (
        b'{"records":[{"data":1,"meta":{' + b",".join(b'"%d":1' % n for n in range(10_000)) + b"}}]}",
        400,
    ),
    "meta that is a list": (b'{"records":[{"data":1,"meta":[]}]}', 400),
    "a key of 10 KiB": (b'{"idempotency_key":"' + b"k" * 10240 + b'","records":[{"data":1}]}', 400),
    "a negative config": (b'{"config":{"ttl_ms":-1},"records":[{"data":1}]}', 400),
    "a config beyond 64 bits": (b'{"config":{"ttl_ms":99999999999999999999},"records":[{"data":1}]}', 400),
}


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
def test_s01_a_malformed_head_gets_its_documented_answer_and_the_connection_closes(
    daemon: DaemonProcess, name: str
) -> None:
    data, expected = MALFORMED[name]
    with daemon.wire() as wire:
        judge(wire, data, expected)
        assert wire.closed()


@pytest.mark.parametrize("name", REFUSED)
def test_s04_a_well_formed_request_that_is_refused_leaves_the_connection_usable(
    daemon: DaemonProcess, name: str
) -> None:
    data, expected = REFUSED[name]
    with daemon.wire() as wire:
        judge(wire, data, expected)
        wire.send(request("GET", "/v0/health"))
        assert wire.answer().status == 200


@pytest.mark.parametrize("name", CHUNKS)
def test_s02_hostile_chunking_gets_its_documented_answer_and_the_connection_closes(
    daemon: DaemonProcess, name: str
) -> None:
    data, expected = CHUNKS[name]
    with daemon.wire() as wire:
        judge(wire, head(*CHUNKED) + data, expected)
        assert wire.closed()


@pytest.mark.parametrize("name", BODIES)
def test_s03_a_hostile_body_gets_400_and_the_connection_lives(daemon: DaemonProcess, name: str) -> None:
    data, expected = BODIES[name]
    with daemon.wire() as wire:
        judge(wire, post("/v0/topics/t", data), expected)
        wire.send(post("/v0/topics/t", GOOD))
        assert wire.answer().status == 200


def gzipped(data: bytes) -> bytes:
    return post("/v0/topics/t", gzip.compress(data), "Content-Encoding: gzip")


def test_s05_a_gzip_bomb_is_413_and_costs_no_more_than_the_bound(daemon: DaemonProcess) -> None:
    bomb = gzipped(b'{"records":[{"data":"' + b"a" * (64 * MIB) + b'"}]}')
    before = daemon.resident_bytes()
    for _ in range(3):
        answer = daemon.ask(bomb)
        assert answer.status == 413
        assert answer.json["error"]["detail"]["limit"] == "max_body_bytes"
    assert daemon.resident_bytes() - before < 32 * MIB


@pytest.mark.parametrize(
    "data",
    [b"", b"not gzip", gzip.compress(GOOD)[:-4], gzip.compress(GOOD)[:12], gzip.compress(GOOD) + b"rest"],
    ids=["empty", "other", "cut", "only a head", "trailing"],
)
def test_s05_what_is_no_whole_gzip_is_400(daemon: DaemonProcess, data: bytes) -> None:
    assert daemon.ask(post("/v0/topics/t", data, "Content-Encoding: gzip")).status == 400


def test_s05_gzip_in_several_members_is_read_whole_and_bounded_as_a_whole(daemon: DaemonProcess) -> None:
    half = len(GOOD) // 2
    assert daemon.ask(
        post("/v0/topics/t", gzip.compress(GOOD[:half]) + gzip.compress(GOOD[half:]), "Content-Encoding: gzip")
    ).status in (200, 201)
    members = gzip.compress(b" " * MIB) * 3
    assert daemon.ask(post("/v0/topics/t", members, "Content-Encoding: gzip")).status == 413


def test_s06_a_hundred_thousand_tiny_chunks_cost_linear_work(daemon: DaemonProcess) -> None:
    body = b'{"records":[{"data":"' + b"a" * 100_000 + b'"}]}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with daemon.wire() as wire:
        began = time.monotonic()
        wire.send(head(*CHUNKED) + chunks)
        assert wire.answer().status == 200
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", ["a request", "a chunked request"])
def test_s06_a_request_in_single_bytes_is_understood(daemon: DaemonProcess, name: str) -> None:
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


def test_s07_garbage_behind_a_good_request_costs_nobody_its_answer(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t", GOOD) + b"\0garbage" * 1000)
        assert wire.answer().status == 200
        assert wire.closed()
    with daemon.wire() as wire:
        wire.send(post("/v0/topics/t", GOOD) + head(*WRITE, LENGTH, LENGTH, body=GOOD))
        assert wire.answer().status == 200
        assert wire.answer().status == 400
        assert wire.closed()


def test_s07_a_413_can_be_read_although_the_body_was_not(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(head(*WRITE, f"Content-Length: {8 * MIB}"))
        wire.send(b"a" * 8 * MIB)
        answer = wire.answer()
        assert answer.status == 413
        assert answer.json["error"]["detail"] == {"limit": "max_body_bytes", "max": 2 * MIB}
        assert wire.closed()


def test_s08_clients_that_vanish_at_every_point_leave_nothing_behind(daemon: DaemonProcess) -> None:
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


def test_s08_a_thousand_pipelined_requests_are_answered_in_order(daemon: DaemonProcess) -> None:
    seqs = []
    with daemon.wire() as wire:
        wire.send(b"".join(post("/v0/topics/pipe", {"records": [{"data": n}]}) for n in range(1000)))
        for _ in range(1000):
            answer = wire.answer()
            assert answer.status in (200, 201)
            seqs.append(answer.json["first_seq"])
    assert seqs == list(range(1, 1001))


def test_s09_unfinished_bodies_of_many_connections_are_bounded_together(daemon: DaemonProcess) -> None:
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


def test_s10_origins_that_are_ours_pass_and_no_answer_invites_other_pages(daemon: DaemonProcess) -> None:
    same = head(*WRITE, LENGTH, "Origin: http://localhost", "Sec-Fetch-Site: same-origin", body=GOOD)
    answer = daemon.ask(same)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = head("OPTIONS /v0/topics/t HTTP/1.1", "Host: localhost", "Access-Control-Request-Method: POST")
    answer = daemon.ask(preflight)
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "127.1.2.3", "[::1]:80"])
def test_s11_names_of_this_machine_are_accepted_whatever_the_port(daemon: DaemonProcess, host: str) -> None:
    assert daemon.ask(head("GET /v0/health HTTP/1.1", f"Host: {host}")).status == 200


def test_s11_the_unix_socket_takes_any_host_but_no_foreign_origin(daemon: DaemonProcess) -> None:
    assert daemon.ask(head("GET /v0/health HTTP/1.1", "Host: anything"), unix=True).status == 200
    foreign = head("GET /v0/health HTTP/1.1", "Host: anything", "Origin: http://evil.example")
    assert daemon.ask(foreign, unix=True).status == 403


def test_s12_nothing_hostile_is_in_the_log_as_it_came(daemon: DaemonProcess) -> None:
    daemon.ask(request("GET", "/v0/topics/a%0a%1b[31m"))
    for line in daemon.log.splitlines():
        json.loads(line)
        assert line.isprintable()


def test_s13_after_all_this_the_daemon_is_well_and_small(daemon: DaemonProcess) -> None:
    daemon.is_well()
    assert daemon.resident_bytes() < 200 * MIB
