"""Every code of http-api.md §1 is reached by a request, with its status, its body and the headers that go with it.

`ELSEWHERE` are the codes that need a disk, a start or a bug of a certain kind, and the tests that reach them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.errors import STATUS, Code
from tests.daemon.kit import DaemonProcess, Wire, clean_environment, daemon_process, request, start
from tests.daemon.socket_kit import handshake

FULL, READER = "Authorization: Bearer full", "Authorization: Bearer reader"
ELSEWHERE = {
    Code.INTERNAL: "tests/daemon/test_readers.py",
    Code.SHUTTING_DOWN: "tests/daemon/test_lifecycle.py",
    Code.COLD_UNAVAILABLE: "tests/daemon/test_cold.py",
    Code.READ_ONLY: "tests/daemon/test_disk_faults.py",
    Code.DISK_FULL: "tests/daemon/test_disk_faults.py",
    Code.TOPIC_DAMAGED: "tests/core/test_damage.py",
    Code.TOPIC_MOVING: "tests/daemon/test_moves.py",
    Code.TOPIC_MOVED: "tests/daemon/test_moves.py",
}


def ask(method: str, path: str, body: Any = None, *headers: str, kind: str = "application/json") -> bytes:
    return request(method, path, body, FULL, *headers, kind=kind)


def plain(method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


ONE = {"records": [{"data": 1}]}
REACHED: dict[Code, bytes] = {
    Code.INVALID_REQUEST: ask("POST", "/v0/topics/log", {"records": "x"}),
    Code.BATCH_TOO_LARGE: ask("POST", "/v0/topics/log", {"records": [{"data": 1}] * 11}),
    Code.RECORD_TOO_LARGE: ask("POST", "/v0/topics/log", {"records": [{"data": "x" * 5000}]}),
    Code.UNAUTHORIZED: request("GET", "/v0/topics/log"),
    Code.FORBIDDEN: request("PUT", "/v0/topics/log", {}, READER),
    Code.TOPIC_NOT_FOUND: ask("GET", "/v0/topics/none"),
    Code.ROUTER_NOT_FOUND: ask("GET", "/v0/routers/none"),
    Code.NOT_FOUND: ask("GET", "/v0/nothing"),
    Code.METHOD_NOT_ALLOWED: ask("PATCH", "/v0/topics/log"),
    Code.NOT_ACCEPTABLE: ask("GET", "/v0/topics/queue/work?node=n", None, "Accept: text/html"),
    Code.LENGTH_REQUIRED: plain("POST", "/v0/topics/log", "Host: localhost", FULL, "Content-Type: application/json"),
    Code.PAYLOAD_TOO_LARGE: ask("POST", "/v0/topics/log", b" " * 70_000),
    Code.URI_TOO_LONG: plain("GET", "/" + "a" * 9000, "Host: localhost"),
    Code.UNSUPPORTED_MEDIA_TYPE: ask("POST", "/v0/topics/log", ONE, kind="text/plain"),
    Code.HEADERS_TOO_LARGE: plain("GET", "/", "Host: localhost", *(f"A{number}: b" for number in range(200))),
    Code.CURSOR_CONFLICT: ask("PUT", "/v0/topics/log/cursors/c", {"seq": 1, "if_seq": 7}),
    Code.TOPIC_EXISTS_INCOMPATIBLE: ask("PUT", "/v0/topics/log", {"type": "queue"}),
    Code.TOPIC_NOT_EMPTY: ask("DELETE", "/v0/topics/log?if_empty=true"),
    Code.ROUTER_CYCLE: ask("PUT", "/v0/routers/back", {"source": "copy", "dest": "log"}),
    Code.NOT_A_QUEUE: ask("POST", "/v0/topics/log/claim", {"node": "n"}),
    Code.MISDIRECTED: plain("GET", "/v0/topics", "Host: evil.example", FULL),
    Code.TOPIC_FULL: ask("POST", "/v0/topics/full", ONE),
    Code.IDEMPOTENCY_MISMATCH: ask("POST", "/v0/topics/log", {"records": [{"data": 9}], "idempotency_key": "k"}),
    Code.THROTTLED: ask("PUT", "/v0/topics/one-too-many", {}),
}
HEADERS = {
    Code.UNAUTHORIZED: ("www-authenticate", "Bearer"),
    Code.METHOD_NOT_ALLOWED: ("allow", "DELETE, GET, POST, PUT"),
    Code.THROTTLED: ("retry-after", "1"),
}
DETAIL: dict[Code, dict[str, Any]] = {
    Code.TOPIC_NOT_FOUND: {"topic": "none"},
    Code.ROUTER_NOT_FOUND: {"router": "none"},
    Code.THROTTLED: {"limit": "max_topics", "max": 4},
    Code.PAYLOAD_TOO_LARGE: {"limit": "max_body_bytes", "max": 65536},
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    flags = [
        "--max-topics",
        "4",
        "--max-batch-records",
        "10",
        "--max-record-bytes",
        "4KiB",
        "--max-body-bytes",
        "64KiB",
    ]
    with daemon_process(*flags, environ=clean_environment(TOPICS_API_KEYS="full,reader:read")) as running:
        made = [
            ("PUT", "/v0/topics/log", {}),
            ("PUT", "/v0/topics/queue", {"type": "queue"}),
            ("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"}),
            ("POST", "/v0/topics/full", ONE),
            ("POST", "/v0/topics/log", {"records": [{"data": 8}], "idempotency_key": "k"}),
            ("PUT", "/v0/routers/there", {"source": "log", "dest": "copy"}),
        ]
        for method, path, body in made:
            answer = running.ask(ask(method, path, body))
            assert answer.status in (200, 201), answer
        yield running


def test_every_code_is_reached_here_or_elsewhere() -> None:
    assert {*REACHED, *ELSEWHERE, Code.NOT_READY} == set(Code)
    root = Path(__file__).parents[2]
    for code, path in ELSEWHERE.items():
        text = (root / path).read_text(encoding="utf-8")
        assert code.value in text or f"Code.{code.name}" in text, f"{path} says nothing of {code.value}"


@pytest.mark.parametrize("code", REACHED)
def test_a_code_has_its_status_body_and_headers(daemon: DaemonProcess, code: Code) -> None:
    answer = daemon.ask(REACHED[code])
    assert (answer.status, answer.code) == (STATUS[code], code.value), answer
    assert answer.headers["content-type"] == "application/json"
    body = answer.json
    assert set(body) == {"error", "performance"}
    assert body["error"]["message"]
    name, value = HEADERS.get(code, ("content-type", "application/json"))
    assert answer.headers[name] == value
    for key, wanted in DETAIL.get(code, {}).items():
        assert body["error"]["detail"][key] == wanted
    if code is Code.ROUTER_CYCLE:
        cycle = body["error"]["detail"]["cycle"]
        assert cycle[0] == cycle[-1] == "copy"


@pytest.mark.slow
def test_requests_during_recovery_are_503_with_progress_and_health_is_200(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    launcher = Path(__file__).with_name("held.py")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, tmp_path, environ=clean_environment(HELD=str(held)), launcher=launcher)
        try:
            deadline = time.monotonic() + 20
            while not (tmp_path / "port").exists():
                assert time.monotonic() < deadline, "the daemon does not listen while it recovers"
                time.sleep(0.01)
            port = int((tmp_path / "port").read_text())
            for asked, status in (
                (request("POST", "/v0/topics/t", ONE), 503),
                (request("GET", "/v0/topics"), 503),
                (request("GET", "/v0/ready"), 503),
                (handshake(), 503),
                (request("GET", "/v0/health"), 200),
                (request("GET", "/v0/openapi.json"), 200),
            ):
                with Wire(socket.create_connection(("127.0.0.1", port), 10)) as wire:
                    wire.send(asked)
                    answer = wire.answer()
                assert answer.status == status, (asked, answer)
                if status == 503:
                    assert answer.code == "not_ready"
                    assert 0 <= answer.json["error"]["detail"]["replay_progress"] <= 1
                    assert answer.headers["retry-after"]
        finally:
            held.unlink()
            daemon = starting.result()
    assert daemon.ask(request("POST", "/v0/topics/t", ONE)).status == 201
    assert daemon.stop() == 0
