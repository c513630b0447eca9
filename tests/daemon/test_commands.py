"""Bodies that hold no records: how large they may be, however they come, and how far too many names are looked at."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from engine import scan
from engine.errors import Code, Refused
from engine.limits import MIB, Limits
from tests.daemon.http2_kit import Client
from tests.daemon.kit import DaemonProcess, daemon_process, post
from topics_daemon.decode_many import TOPICS_PER_WRITE_MAX, take_apart
from topics_daemon.unknown import COLONS_FREE, _first_names, has_more

COMMANDS = ("/v0/topics/t/diff", "/v0/topics/t/delete", "/v0/topics/t/claim", "/v0/diff", "/v0/watch")
RECORDS = b'{"records":[{"data":1}]}'


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        running.write("t", 1)
        yield running


def padded(body: bytes, size: int) -> bytes:
    return body + b" " * (size - len(body))


def chunked(path: str, body: bytes) -> bytes:
    lines = f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Transfer-Encoding: chunked"
    return "\r\n".join([*lines, "", ""]).encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_may_hold_a_mib_and_a_write_more(daemon: DaemonProcess, path: str) -> None:
    assert daemon.ask(post(path, padded(b"{}", MIB))).status != 413
    answer = daemon.ask(post(path, padded(b"{}", MIB + 1)))
    assert (answer.status, answer.json["error"]["detail"]) == (413, {"limit": "max_body_bytes", "max": MIB})
    assert daemon.ask(post("/v0/topics/t", padded(RECORDS, 2 * MIB))).status == 200
    assert daemon.ask(post("/v0/write", padded(b'{"topics":{"t":%b}}' % RECORDS, 2 * MIB))).status == 200


def test_so_it_is_in_chunks_in_gzip_and_over_http_2(daemon: DaemonProcess) -> None:
    for size, status in ((MIB, 200), (MIB + 1, 413)):
        body, path = padded(b"{}", size), "/v0/topics/t/diff"
        assert daemon.ask(chunked(path, body)).status == status
        assert daemon.ask(post(path, gzip.compress(body), "Content-Encoding: gzip")).status == status
        with Client(daemon) as client:
            assert client.answer(client.upload(path, body))[0] == status


def test_so_it_is_over_a_websocket(daemon: DaemonProcess) -> None:
    with connect(f"ws://127.0.0.1:{daemon.port}/v0/ws", max_size=None) as socket:
        for op, size, said in (
            ('"ping"', MIB, "pong"),
            ('"ping"', MIB + 1, "payload_too_large"),
            ('"claim","x":"publish"', MIB + 1, "payload_too_large"),
        ):
            socket.send(f'{{"op":{op}}}'.ljust(size))
            answer = json.loads(socket.recv())
            assert answer.get("code", answer["op"]) == said
        publish = (
            f'{{"topic":"t","op":"publish","records":[{{"data":"{"x" * 600_000}"}},{{"data":"{"x" * 600_000}"}}]}}'
        )
        socket.send(publish)
        assert json.loads(socket.recv())["op"] == "ack"


@pytest.mark.parametrize("path", ["/v0/diff", "/v0/watch"])
def test_too_many_topics_are_refused(daemon: DaemonProcess, path: str) -> None:
    for part in (b"{}", b"null", b'{"colour":1}'):
        parts = b",".join(b'"t%d":%b' % (number, part) for number in range(20_000))
        answer = daemon.ask(post(path, b'{"topics":{%b}}' % parts))
        assert (answer.status, answer.json["error"]["detail"]) == (400, {"field": "topics"})


def test_no_more_names_are_looked_at_than_there_may_be() -> None:
    assert _first_names(b'{"a":1,"b":2,"a":3,"c":4,!', 3) == ["a", "b", "a", "c"]
    many = b'{"topics":{%b},"x":1}' % b",".join(b'"t%d":{}' % number for number in range(COLONS_FREE * 10))
    assert has_more(many, "topics", 10)
    assert not has_more(many, "x", 10)
    assert not has_more(many, "others", 10)
    assert not has_more(many[:-1], "topics", 10), "what is broken is refused as that"
    assert not has_more(many, "topics", COLONS_FREE * 10)


@pytest.mark.skipif(not scan.is_built(), reason="what goes through it member by member is not compiled")
def test_a_write_to_too_many_topics_is_refused_at_the_first_too_many() -> None:
    parts = b",".join(b'"t%d":{}' % number for number in range(TOPICS_PER_WRITE_MAX + 1))
    with pytest.raises(Refused, match="1 to 1000 topics") as caught:
        list(take_apart(b'{"topics":{%b,!' % parts, Limits(), [], {}))
    assert caught.value.code is Code.INVALID_REQUEST
