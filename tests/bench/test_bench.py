"""The bench measures what it says: the floor answers each request once, pumps count replies, rows have their goals."""

from __future__ import annotations

import json
import socket
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.bench import report, rows_held, servers
from tests.bench.figures import Row, Spread, Turn, by_chance, spread_of
from tests.bench.floor import answer_of, request_length
from tests.bench.load import pump_turn
from tests.bench.peers import resp
from tests.bench.profile import short, tables
from tests.bench.pump import done_by
from tests.bench.rows_http import all_rows, goal_of, is_large, payload

REQUEST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"


def test_a_request_is_as_long_as_its_head_and_body() -> None:
    assert request_length(REQUEST) == len(REQUEST)
    assert request_length(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") == len(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")


@pytest.mark.parametrize("syncs", [False, True])
def test_the_floor_answers_every_request_once_however_packets_are_cut(syncs: bool, tmp_path: Path) -> None:
    answer = answer_of(30)
    sync = tmp_path if syncs else None
    with servers.floor(30, sync=sync) as floor, socket.create_connection(("127.0.0.1", floor.port), timeout=5) as sock:
        for part in (REQUEST, REQUEST * 3, REQUEST[:50] + b"", REQUEST[50:] + REQUEST[:60], REQUEST[60:]):
            sock.sendall(part)
        seen = b""
        while len(seen) < 6 * len(answer):
            seen += sock.recv(65536)
        assert seen == answer * 6
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)


def _heard(sock: socket.socket, end: bytes) -> bytes:
    """What comes until these bytes do."""
    seen = b""
    while not seen.endswith(end):
        data = sock.recv(65536)
        assert data, f"closed after {seen[-100:]!r}"
        seen += data
    return seen


def test_in_a_crowd_those_who_stay_are_answered_and_the_others_once() -> None:
    answer = answer_of(30)
    write = b"POST /v0/topics/%s?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    with servers.floor(30, crowd=("live", "steady")) as floor:
        staying, watcher, writer, other = (
            socket.create_connection(("127.0.0.1", floor.port), timeout=5) for _ in range(4)
        )
        with staying, watcher, writer, other:
            requests = write % b"steady" * 3
            for part in (requests[: len(requests) // 3 + 2], requests[len(requests) // 3 + 2 :]):
                staying.sendall(part)
            assert _heard(staying, answer * 3) == answer * 3
            watcher.sendall(b"GET /7 HTTP/1.1\r\nHost: h\r\n\r\n")
            _heard(watcher, b"caught-up\n\n")
            writer.sendall(write % b"live")
            assert _heard(writer, answer) == answer
            assert b"data: hello" in _heard(watcher, b"\n\n")
            other.sendall(b"GET /v0/watch/7 HTTP/1.1\r\n" + requests)
            assert _heard(other, answer) == answer
            assert other.recv(1) == b"", "who comes and goes is closed"


def test_a_pump_counts_what_the_server_answered() -> None:
    with servers.floor(30) as floor:
        turn = pump_turn(floor, REQUEST, 2, 0.2)
        assert turn.count > 10
        assert 0 < turn.p50_us <= turn.p99_us <= turn.p999_us
        assert turn.rate > 50


@pytest.mark.parametrize(
    ("rule", "whole"), [("http", answer_of(7)), ("lines:4", b"$5\r\nhello\r\n" * 2), ("bytes:9", b"123456789")]
)
def test_a_reply_is_complete_at_its_last_byte(rule: str, whole: bytes) -> None:
    is_done = done_by(rule)
    assert [is_done(bytearray(whole[:end])) for end in range(len(whole))] == [False] * len(whole)
    assert is_done(bytearray(whole))


def test_cpu_is_spread_over_the_parts_of_an_operation() -> None:
    turns = [Turn(100, cpu, 1.0, 1, 2, 3, 0.1) for cpu in (0.1, 0.3, 0.2)]
    assert spread_of(turns) == Spread(2000.0, 1000.0, 3000.0)
    assert spread_of(turns, 100).median == pytest.approx(20.0)


def test_every_row_has_a_name_of_its_own_and_a_goal() -> None:
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        goal, met = goal_of(row, 10.0, 45.0, 1000.0, 0.001)
        assert goal
        assert met is (None if row.kind == "GET" or is_large(row) else True)
        assert goal_of(row, 10.0, 45.0, 1000.0, 1e9)[1] in (None, False)


def test_a_sync_a_group_is_allowed_beside_the_multiple_of_the_floor() -> None:
    row = next(row for row in all_rows() if row.kind == "POST 1" and row.durability == "fsync")
    assert [goal_of(row, 10.0, 45.0, 1000.0, figure)[1] for figure in (60.0, 60.1)] == [True, False]


def test_payloads_have_their_size_with_quotes() -> None:
    assert [len(json.dumps(payload(size))) for size in (100, 200, 206, 1024)] == [100, 200, 206, 1024]


def test_commands_of_redis_are_framed() -> None:
    assert resp(b"PING", b"x") == b"*2\r\n$4\r\nPING\r\n$1\r\nx\r\n"


def test_the_report_shows_every_row(tmp_path: Path) -> None:
    one = Spread(2.0, 1.0, 3.0)
    rows = [
        Row("a < b", "CPU µs / record", one, "≤ 3", True, floor=Spread(1.0, 1.0, 1.0), peers={"Peer": one}, rate=one),
        Row("missed", "s", one, "≤ 1", False, note="why"),
        Row("without a goal", "s", one, "none", None),
    ]
    report.save(rows, tmp_path, [10.0, 12.0])
    text = (tmp_path / "README.md").read_text()
    assert all(row.name in text and row.goal in text for row in rows)
    assert "1 of 2 goals met" in text
    assert len(json.loads((tmp_path / "results.json").read_text())["rows"]) == 3
    drawing = ET.fromstring((tmp_path / "cpu.svg").read_text())
    assert "a < b" in [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "NOT MET" in report.line_of(rows[1])
    assert "×2.00" in report.line_of(rows[0])


def test_a_profile_counts_a_function_once_in_a_stack() -> None:
    outer, inner = "run (/x/engine/a.py:1)", "work (/x/engine/a.py:9)"
    assert short(outer) == "run (engine/a.py)"
    text = tables([([outer, inner, inner], 3), ([outer], 1)], 5)
    assert "4 samples" in text
    assert "75.0%  work (engine/a.py)" in text
    assert "100.0%  run (engine/a.py)" in text
    assert "75.0%  work (engine/a.py) line 9" in text


def test_pairs_differ_by_chance_as_often_as_their_sides_could_be_swapped() -> None:
    assert by_chance([2.0] * 6) == 2 / 2**6
    assert by_chance([2.0, 0.5]) == 1.0
    assert by_chance([1.1, 1.3, 0.9]) == 6 / 8
    assert by_chance([1.0, 1.0]) == 1.0


@pytest.mark.slow
def test_what_a_request_holds_of_the_loop_is_noted(tmp_path: Path) -> None:
    out = tmp_path / "rounds"
    server = servers.spawn_topicsd(tmp_path / "daemon", held=out)
    try:
        large, *_ = rows_held.requests()
        assert rows_held.rounds_of(server, large, out) > rows_held.rounds_of(
            server, rows_held.Asked("health", "GET", "/v0/health"), out
        )
    finally:
        server.stop()


@pytest.mark.slow
def test_the_dearest_requests_have_names_of_their_own() -> None:
    names = [asked.name for asked in rows_held.requests()]
    assert len(set(names)) == len(names) > 30
    assert {asked.is_small for asked in rows_held.requests()} == {True, False}
