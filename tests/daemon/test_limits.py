"""Every limit at its edge: what is just within it passes, what is just beyond is told by its name (operations.md)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from engine.limits import EXPORTS_MAX
from tests.daemon.kit import DaemonProcess, Wire, daemon_process, post, request, watch

LIMITS = {
    "--max-batch-records": "5",
    "--max-record-bytes": "200",
    "--max-body-bytes": "1000",
    "--max-meta-bytes": "50",
    "--max-tag-bytes": "8",
    "--max-node-bytes": "8",
    "--max-limit": "7",
    "--max-nesting": "10",
    "--max-header-bytes": "2KiB",
    "--max-headers": "20",
    "--max-url-bytes": "512",
    "--max-watch-topics": "2",
    "--max-watch-sessions": "4",
    "--max-sse-connections": "2",
    "--max-topics": "6",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(*(word for pair in LIMITS.items() for word in pair)) as running:
        yield running


def write(*records: Any, **more: Any) -> bytes:
    return post("/v0/topics/t", {"records": list(records), **more})


def headers(count: int, name: str = "X") -> list[str]:
    return [f"{name}-{number}: 1" for number in range(count)]


def body_of(size: int) -> bytes:
    text = b'{"records":[{"data":1}]}'
    return post("/v0/topics/t", text + b" " * (size - len(text)))


def nested(depth: int) -> bytes:
    return b'{"records":[{"data":' + b"[" * depth + b"]" * depth + b"}]}"


ONE = {"data": 1}
EDGES: dict[str, tuple[bytes, bytes, int, str]] = {
    "records of a batch": (write(*[ONE] * 5), write(*[ONE] * 6), 400, "batch_too_large"),
    "bytes of a record": (write({"data": "x" * 198}), write({"data": "x" * 199}), 400, "record_too_large"),
    "bytes of a body": (body_of(1000), body_of(1001), 413, "payload_too_large"),
    "bytes of meta": (
        write({"data": 1, "meta": {"m": "x" * 41}}),
        write({"data": 1, "meta": {"m": "x" * 42}}),
        400,
        "invalid_request",
    ),
    "bytes of a tag": (
        write({"data": 1, "tag": "é" * 4}),
        write({"data": 1, "tag": "é" * 4 + "x"}),
        400,
        "invalid_request",
    ),
    "bytes of a node": (
        write({"data": 1, "node": "n" * 8}),
        write({"data": 1, "node": "n" * 9}),
        400,
        "invalid_request",
    ),
    "depth of JSON": (
        post("/v0/topics/t", nested(10)),
        post("/v0/topics/t", nested(11)),
        400,
        "invalid_request",
    ),
    "lines of a head": (
        request("GET", "/v0/health", None, *headers(19)),
        request("GET", "/v0/health", None, *headers(20)),
        431,
        "headers_too_large",
    ),
    "bytes of a head": (
        request("GET", "/v0/health", None, *[f"X-{n}: " + "x" * 400 for n in range(4)]),
        request("GET", "/v0/health", None, *[f"X-{n}: " + "x" * 400 for n in range(5)]),
        431,
        "headers_too_large",
    ),
    "bytes of a request line": (
        request("GET", "/v0/health?a=" + "x" * 486),
        request("GET", "/v0/health?a=" + "x" * 487),
        414,
        "uri_too_long",
    ),
    "topics of a watch": (
        post("/v0/watch?lenient=true", {"topics": {"a": {}, "b": {}}}),
        post("/v0/watch?lenient=true", {"topics": {"a": {}, "b": {}, "c": {}}}),
        400,
        "invalid_request",
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_S07_S10_S11_what_is_within_passes_and_what_is_beyond_is_refused(daemon: DaemonProcess, name: str) -> None:
    within, beyond, status, code = EDGES[name]
    accepted = daemon.ask(within)
    assert accepted.status in (200, 201), accepted
    refused = daemon.ask(beyond)
    assert (refused.status, refused.code) == (status, code)
    daemon.is_well()


def test_a_page_is_clamped_to_its_limit(daemon: DaemonProcess) -> None:
    for _ in range(3):
        daemon.write("page", 1, 2, 3, 4)
    assert len(daemon.read("page", limit=100)["records"]) == 7


def test_S22_caps_on_topics_streams_and_sessions_name_themselves_and_pass_what_exists(daemon: DaemonProcess) -> None:
    made = 0
    while (answer := daemon.ask(request("PUT", f"/v0/topics/cap{made}", {}))).status == 201:
        made += 1
    assert answer.status == 429
    assert answer.json["error"]["detail"] == {"limit": "max_topics", "max": 6}
    assert answer.headers["retry-after"]
    assert daemon.ask(request("PUT", "/v0/topics/cap0", {"ttl_ms": 1000})).status == 200
    urls = [watch(daemon, {"cap0": {}})]
    while (answer := daemon.ask(post("/v0/watch", {"topics": {"cap0": {}}}))).status == 200:
        urls.append(answer.json["stream_url"])
    assert answer.json["error"]["detail"] == {"limit": "max_watch_sessions", "max": 4}
    with daemon.wire() as one, daemon.wire() as two, daemon.wire() as three:
        for wire, url in ((one, urls[0]), (two, urls[1])):
            wire.send(request("GET", url))
            wire.until(b"retry")
        three.send(request("GET", urls[2]))
        refused = three.answer()
        assert refused.json["error"]["detail"] == {"limit": "max_sse_connections", "max": 2}
        again = daemon.wire()
        again.send(request("GET", urls[0]))
        assert b"200 OK" in again.until(b"\r\n\r\n"), "a takeover needs no room"
        again.close()


@pytest.mark.slow
def test_S22_pins_are_counted_and_one_that_goes_makes_room() -> None:
    with daemon_process() as running, running.wire() as wire:

        def pin() -> Any:
            wire.send(post("/v0/admin/exports", {"prefix": "none"}))
            return wire.answer()

        made = [pin().json["id"] for _ in range(EXPORTS_MAX)]
        assert len(set(made)) == EXPORTS_MAX
        refused = pin()
        assert refused.status == 429
        assert refused.json["error"]["detail"] == {"limit": "exports_max", "max": EXPORTS_MAX}
        wire.send(post("/v0/admin/exports", {"id": made[0]}))
        assert wire.answer().status == 200, "to renew one takes no room"
        wire.send(request("DELETE", f"/v0/admin/exports/{made[0]}"))
        assert wire.answer().json["deleted"]
        assert pin().status == 201


def test_S06_S22_one_address_cannot_have_all_connections() -> None:
    with daemon_process("--max-connections", "8", "--max-connections-per-peer", "3") as running:

        def connect(source: str) -> Wire:
            address = ("127.0.0.1", running.port)
            return Wire(socket.create_connection(address, 10.0, source_address=(source, 0)))

        def is_served(wire: Wire) -> bool:
            wire.send(request("GET", "/v0/health"))
            return wire.answer().status == 200

        mine = [connect("127.0.0.3") for _ in range(3)]
        assert all(map(is_served, mine))
        with connect("127.0.0.3") as extra:
            answer = extra.answer()
            assert answer.status == 429
            assert answer.json["error"]["detail"] == {"limit": "max_connections_per_peer", "max": 3}
        others = [connect("127.0.0.4"), running.wire(unix=True)]
        assert all(map(is_served, others))
        mine.pop().close()
        deadline = 200
        while deadline:
            with connect("127.0.0.3") as again:
                again.send(request("GET", "/v0/health"))
                if again.answer().status == 200:
                    break
            deadline -= 1
        assert deadline, "its place is free again"
        for wire in (*mine, *others):
            wire.close()
