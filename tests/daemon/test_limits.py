"""Every limit at its edge: what is just within it passes, what is just beyond is told by its name (operations.md)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.limits import CURSORS_PER_TOPIC_MAX, EXPORTS_MAX
from tests.daemon.kit import (
    Answer,
    DaemonProcess,
    Events,
    NoAnswer,
    Wire,
    clean_environment,
    daemon_process,
    post,
    request,
    watch,
)

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
    "--max-watch-sessions": "5",
    "--max-sse-connections": "2",
    "--max-topics": "6",
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(*(word for pair in LIMITS.items() for word in pair)) as running:
        yield running


def write(*records: Any, **more: Any) -> bytes:
    return post("/v0/topics/t", {"records": list(records), **more})


def body_of(size: int) -> bytes:
    text = b'{"records":[{"data":1}]}'
    return post("/v0/topics/t", text + b" " * (size - len(text)))


def head_of(size: int) -> bytes:
    lines = [f"X-{number}: " + "x" * 300 for number in range(5)]
    lines.append("X-5: " + "x" * (size - len(request("GET", "/v0/health", None, *lines, "X-5: "))))
    return request("GET", "/v0/health", None, *lines)


ONE = {"data": 1}
EDGES: dict[str, tuple[Callable[[int], bytes], int, int, str]] = {
    "records of a batch": (lambda n: write(*[ONE] * n), 5, 400, "batch_too_large"),
    "bytes of a record": (lambda n: write({"data": "x" * (n - 2)}), 200, 400, "record_too_large"),
    "bytes of a body": (body_of, 1000, 413, "payload_too_large"),
    "bytes of meta": (lambda n: write({"data": 1, "meta": {"m": "x" * (n - 9)}}), 50, 400, "invalid_request"),
    "bytes of a tag": (lambda n: write({"data": 1, "tag": "é" + "x" * (n - 2)}), 8, 400, "invalid_request"),
    "bytes of a node": (lambda n: write({"data": 1, "node": "n" * n}), 8, 400, "invalid_request"),
    "depth of JSON": (
        lambda n: post("/v0/topics/t", b'{"records":[{"data":' + b"[" * n + b"]" * n + b"}]}"),
        10,
        400,
        "invalid_request",
    ),
    "lines of a head": (
        lambda n: request("GET", "/v0/health", None, *[f"X-{number}: 1" for number in range(n - 1)]),
        20,
        431,
        "headers_too_large",
    ),
    "bytes of a head": (head_of, 2048, 431, "headers_too_large"),
    "bytes of a header line": (
        lambda n: request("GET", "/v0/health", None, "X: " + "x" * (n - 3)),
        512,
        431,
        "headers_too_large",
    ),
    "bytes of a request line": (
        lambda n: request("GET", "/v0/health?a=" + "x" * (n - len("GET /v0/health?a= HTTP/1.1"))),
        512,
        414,
        "uri_too_long",
    ),
    "topics of a watch": (
        lambda n: post("/v0/watch?lenient=true", {"topics": {f"w{number}": {} for number in range(n)}}),
        2,
        400,
        "invalid_request",
    ),
    "bytes of a key": (
        lambda n: write(ONE, idempotency_key="k" * n),
        256,
        400,
        "invalid_request",
    ),
    "bytes of a key in a header": (
        lambda n: post("/v0/topics/t", {"records": [ONE]}, f"Idempotency-Key: {'h' * n}"),
        256,
        400,
        "invalid_request",
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_S07_S10_S11_what_is_within_passes_and_what_is_beyond_is_refused(daemon: DaemonProcess, name: str) -> None:
    make, edge, status, code = EDGES[name]
    for size in (edge - 1, edge):
        accepted = daemon.ask(make(size))
        assert accepted.status in (200, 201), (size, accepted)
    refused = daemon.ask(make(edge + 1))
    assert (refused.status, refused.code) == (status, code)
    daemon.is_well()


@pytest.fixture(scope="module")
def ordinary() -> Iterator[DaemonProcess]:
    with daemon_process("--max-claim", "3") as running:
        assert running.ask(request("PUT", "/v0/topics/q", {"type": "queue"})).status == 201
        running.write("q", *range(20))
        running.write("t", *range(3))
        yield running


FIXED: dict[str, tuple[Callable[[int], bytes], int]] = {
    "keys of meta": (lambda n: write({"data": 1, "meta": {f"k{number}": 1 for number in range(n)}}), 64),
    "seqs of a delete": (lambda n: post("/v0/topics/t/delete", {"seqs": list(range(10, 10 + n))}), 1000),
    "seqs of an ack": (lambda n: post("/v0/topics/q/ack", {"node": "n", "seqs": list(range(100, 100 + n))}), 1000),
    "bytes of a name": (lambda n: request("PUT", f"/v0/topics/{'n' * n}", {}), 255),
    "nodes left out": (lambda n: post("/v0/topics/t/diff", {"node": [f"n{number}" for number in range(n)]}), 256),
    "bytes of a reason": (
        lambda n: post("/v0/topics/q/nack", {"node": "n", "seqs": [1], "reason": "r" * n}),
        256,
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_bounds_that_are_no_settings_have_their_edges_too(ordinary: DaemonProcess, name: str) -> None:
    make, edge = FIXED[name]
    for size in (edge - 1, edge):
        assert ordinary.ask(make(size)).status in (200, 201), size
    assert ordinary.ask(make(edge + 1)).status == 400
    ordinary.is_well()


def test_a_claim_is_clamped_to_its_limit(ordinary: DaemonProcess) -> None:
    for wanted, given in ((2, 2), (3, 3), (4, 3)):
        claim = post("/v0/topics/q/claim", {"node": "n", "max": wanted})
        assert ordinary.ask(claim).json["count"] == given
    with Events(ordinary, "/v0/topics/q/work?node=w&max=4") as events:
        held = 0
        while held < 3:
            name, data, _ = events.next()
            assert name == "job", data
            held += 1
        claim = post("/v0/topics/q/claim", {"node": "n", "max": 3})
        assert ordinary.ask(claim).json["claimed"][0]["$seq"] == 12, "the stream holds three, and no more"


def test_clamps_that_are_promises_have_their_edges(ordinary: DaemonProcess) -> None:
    for body, got in (
        ({"lease_ms": 99}, 100),
        ({"lease_ms": 100}, 100),
        ({"lease_ms": 86_400_000}, 86_400_000),
        ({"lease_ms": 86_400_001}, 86_400_000),
        ({"claim_jitter_ms": 5001}, 5000),
        ({"priority": 1001}, 1000),
        ({"priority": -1001}, -1000),
    ):
        put = ordinary.ask(request("PUT", "/v0/topics/clamped", {"type": "queue", **body}))
        (name,) = body
        assert put.json["config"][name] == got, body
    ordinary.write("many", *range(1001))
    for asked, given in ((999, 999), (1000, 1000), (1001, 1000)):
        assert len(ordinary.read("many", limit=asked)["records"]) == given
    assert ordinary.read("many", limit=0)["next_from_seq"] == 256, "0 is the default"


@pytest.mark.slow
def test_S22_live_bytes_have_a_bound_that_deletes_give_back() -> None:
    with daemon_process("--max-total-bytes", "100") as running:

        def put(topic: str, size: int) -> Answer:
            return running.ask(post(f"/v0/topics/{topic}", {"records": [{"data": "x" * (size - 2)}]}))

        assert put("a", 60).status == 201
        assert put("b", 39).status == 201
        refused = put("b", 2)
        assert refused.status == 429
        assert refused.json["error"]["detail"] == {"limit": "max_total_bytes", "max": 100}
        assert running.ask(post("/v0/topics/b", {"records": [{"data": 1}]})).status == 200, "exactly as much as may be"
        assert running.ask(post("/v0/topics/a", {"records": [{"data": 1}]})).status == 429
        assert running.ask(request("GET", "/v0/topics/c")).status == 404
        assert running.ask(request("PUT", "/v0/topics/a", {"ttl_ms": 0})).status == 200, "what exists may change"
        assert running.ask(post("/v0/topics/b/delete", {"seqs": [2]})).status == 200
        assert running.ask(post("/v0/topics/a", {"records": [{"data": 1}]})).status == 200


KEYS = """
import sys
sys.path.insert(0, {root!r})
import msgspec
from topics_daemon.config import Config
really = Config.limits
Config.limits = lambda self: msgspec.structs.replace(really(self), idempotency_keys=3)
from topics_daemon.main import main
sys.exit(main())
"""


@pytest.mark.slow
def test_S22_live_idempotency_keys_have_a_bound_and_known_ones_always_pass(tmp_path: Path) -> None:
    """The bound of a million, set to three: it is no setting."""
    launcher = tmp_path / "few.py"
    launcher.write_text(KEYS.format(root=str(Path(__file__).resolve().parents[2])))
    with daemon_process(launcher=launcher) as running:
        assert running.ask(request("PUT", "/v0/topics/t", {"idempotency_window_ms": 1000})).status == 201
        running.ask(request("PUT", "/v0/topics/u", {}))

        def keyed(topic: str, key: str) -> Answer:
            return running.ask(post(f"/v0/topics/{topic}", {"records": [{"data": key}], "idempotency_key": key}))

        assert [keyed("t", key).status for key in ("1", "2")] == [200, 200]
        assert keyed("u", "1").status == 200, "the third is the last one, over all topics"
        refused = keyed("u", "2")
        assert refused.status == 429
        assert refused.json["error"]["detail"] == {"limit": "idempotency_keys", "max": 3}
        assert keyed("u", "1").json["deduped"]
        running.write("u", "without a key")
        deadline = time.monotonic() + 20
        while keyed("u", "2").status == 429:
            assert time.monotonic() < deadline, "keys whose window has passed make room"
            time.sleep(0.1)


@pytest.mark.slow
def test_S22_requests_in_flight_are_counted_exactly(tmp_path: Path) -> None:
    """Writes that wait for a sync which hangs are in flight; long polls are not."""
    launcher = Path(__file__).with_name("faulty.py")
    environ = clean_environment(FAULTS=str(tmp_path), TOPICS_MAX_INFLIGHT_PER_KEY="2", TOPICS_API_KEYS="a,b")
    with daemon_process(environ=environ, launcher=launcher) as running:
        a, b = "Authorization: Bearer a", "Authorization: Bearer b"
        synced = {"records": [{"data": 1}], "ack": "fsync"}
        assert running.ask(post("/v0/topics/t", synced, a)).status == 201
        (tmp_path / "hang").touch()
        wires = [running.wire() for _ in range(5)]
        try:
            for wire in wires[:2]:
                wire.send(post("/v0/topics/t/diff", {"from_seq": 100, "wait_ms": 20_000, "epoch": 0}, a))
            for wire in wires[2:4]:
                wire.send(post("/v0/topics/t", synced, a))
            deadline = time.monotonic() + 20
            while (refused := running.ask(request("GET", "/v0/topics/t", None, a))).status == 200:
                assert time.monotonic() < deadline, "the writes never arrive"
            assert refused.status == 429
            assert refused.json["error"]["detail"] == {"limit": "max_inflight_per_key", "max": 2}
            assert running.ask(request("GET", "/v0/topics/t", None, b)).status == 200, "another key has its own"
            (tmp_path / "hang").unlink()
            assert [wire.answer().status for wire in wires[2:4]] == [200, 200]
            assert running.ask(request("GET", "/v0/topics/t", None, a)).status == 200
        finally:
            (tmp_path / "hang").unlink(missing_ok=True)
            for wire in wires:
                wire.close()


@pytest.mark.slow
def test_S22_bodies_in_flight_together_have_a_bound() -> None:
    bound = 1024 * 1024
    flags = ("--max-request-buffer-bytes", "1MiB", "--max-body-bytes", "1MiB")
    with daemon_process(*flags) as running, running.wire() as one, running.wire() as two:
        length = f"Content-Length: {bound}"
        head = post("/v0/topics/t", b"").replace(b"Content-Length: 0", length.encode())
        one.send(head + b" " * (bound // 2))
        two.send(head + b" " * (bound - bound // 2))
        two.sock.settimeout(0.5)
        with pytest.raises(NoAnswer, match="in time"):
            two.answer()
        two.send(b" ")
        two.sock.settimeout(20)
        refused = two.answer()
        assert refused.status == 429
        assert refused.json["error"]["detail"] == {"limit": "max_request_buffer_bytes", "max": bound}
        running.is_well()


def test_S22_a_topic_keeps_so_many_cursors_and_what_is_there_moves(ordinary: DaemonProcess) -> None:
    with ordinary.wire() as wire:

        def put(number: int, seq: int = 1) -> Answer:
            wire.send(request("PUT", f"/v0/topics/t/cursors/c{number}", {"seq": seq}))
            return wire.answer()

        assert {put(number).status for number in range(CURSORS_PER_TOPIC_MAX)} == {201}
        refused = put(CURSORS_PER_TOPIC_MAX)
        assert refused.status == 429
        assert refused.json["error"]["detail"] == {"limit": "cursors_per_topic", "max": CURSORS_PER_TOPIC_MAX}
        assert put(0, 2).status == 200
        wire.send(request("DELETE", "/v0/topics/t/cursors/c0"))
        assert wire.answer().json["deleted"]
        assert put(CURSORS_PER_TOPIC_MAX).status == 201


@pytest.mark.slow
def test_zero_turns_a_resource_cap_off() -> None:
    off = ("topics", "routers", "total-bytes", "inflight-per-key", "watch-sessions", "sse-connections")
    more = ("sse-connections-per-key", "connections-per-peer")
    with daemon_process(*(word for name in (*off, *more) for word in (f"--max-{name}", "0"))) as running:
        running.write("a", "x" * 100)
        ends = {"source": "a", "dest": "b"}
        assert running.ask(request("PUT", "/v0/routers/a%3Eb", ends)).status == 201
        with Events(running, watch(running, {"a": {}})) as events:
            assert events.next()[0] == "record"


def test_a_page_is_clamped_to_its_limit(daemon: DaemonProcess) -> None:
    for _ in range(3):
        daemon.write("page", 1, 2, 3, 4)
    assert len(daemon.read("page", limit=100)["records"]) == 7


@pytest.mark.slow
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
    assert answer.json["error"]["detail"] == {"limit": "max_watch_sessions", "max": 5}
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


@pytest.mark.slow
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
