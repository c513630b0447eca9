"""HTTP/2 with prior knowledge: real clients, a thousand requests at once, windows both ways, goodbyes."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from h2.errors import ErrorCodes

from tests.daemon.http2_kit import JSON, Client, frame
from tests.daemon.kit import DaemonProcess, daemon_process, request, watch

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        yield running


def body_of(answer: tuple[int, bytes], status: int = 200) -> dict[str, Any]:
    assert answer[0] == status, answer
    read = json.loads(answer[1])
    assert isinstance(read, dict)
    return read


def program(name: str) -> str:
    """Where a client is, or why the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


# -- clients that exist --------------------------------------------------------------------------------------------


def test_curl_speaks_it_over_tcp_and_over_the_socket(daemon: DaemonProcess) -> None:
    curl = [program("curl"), "-sS", "--http2-prior-knowledge", "-m", "10", "-w", "\n%{http_version} %{http_code}"]
    write = ["-H", "content-type: application/json", "-d", '{"records":[{"data":[1,2]}]}']
    for door, topic in ((["--unix-socket", daemon.socket_path], "curl-u"), ([], "curl-t")):
        url = f"http://127.0.0.1:{daemon.port}/v0/topics/{topic}"
        done = subprocess.run([*curl, *door, *write, url], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "2 201"
        assert json.loads(done.stdout.splitlines()[0])["first_seq"] == 1


def test_httpx_speaks_it(daemon: DaemonProcess) -> None:
    with httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{daemon.port}", trust_env=False) as client:
        answer = client.post("/v0/topics/httpx", json={"records": [{"data": "x" * 200_000}]})
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 201)
        page = client.post("/v0/topics/httpx/diff", json={})
        assert page.json()["records"][0]["data"] == "x" * 200_000


def test_gzip_bodies_are_inflated_in_steps_each_for_its_request(daemon: DaemonProcess) -> None:
    packed = gzip.compress(b'{"records":[{"data":"large"}]%b}' % (b" " * (8 * MIB)))
    coding = ("content-encoding", "gzip")
    with Client(daemon) as client:
        numbers = [client.post("/v0/topics/packed", packed, coding) for _ in range(3)]
        wrong = client.post("/v0/topics/packed", packed[:-1], coding)
        gone = client.post("/v0/topics/packed", packed, coding)
        client.h2.reset_stream(gone)
        client.flush()
        assert sorted(
            body_of(client.answer(one), 201 if one == numbers[0] else 200)["first_seq"] for one in numbers
        ) == [*(1, 2, 3)]
        assert client.answer(wrong)[0] == 400
    assert daemon.ask(request("GET", "/v0/topics/packed")).json["head_seq"] in (3, 4)


@pytest.mark.slow
def test_nghttp_and_h2load_speak_it(daemon: DaemonProcess) -> None:
    url = f"http://127.0.0.1:{daemon.port}/v0/health"
    shown = subprocess.run([program("nghttp"), url], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["status"] == "ok"
    load = [program("h2load"), "-n", "2000", "-c", "4", "-m", "50", url]
    done = subprocess.run(load, capture_output=True, text=True, check=True)
    assert "2000 succeeded, 0 failed" in done.stdout


# -- requests --------------------------------------------------------------------------------------------------------


def test_every_byte_may_come_by_itself(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        body = b'{"records":[{"data":1}]}'
        number = client.h2.get_next_available_stream_id()
        fields = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v0/topics/bytes")]
        client.h2.send_headers(number, [*fields, JSON])
        client.h2.send_data(number, body, end_stream=True)
        for byte in client.h2.data_to_send():
            client.raw(bytes([byte]))
        assert client.answer(number)[0] == 201


def test_S01_S02_authority_counts_as_host(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        assert client.answer(client.begin("GET", "/v0/topics/x", host="evil.example"))[0] == 421
        assert client.answer(client.begin("GET", "/v0/topics/x", ("origin", "http://evil.example")))[0] == 403
        assert client.answer(client.begin("GET", "/v0/health", host=f"127.0.0.1:{daemon.port}"))[0] == 200
        client.begin("GET", "/v0/topics/x", ("host", "evil.example"))
        assert client.is_ended()
        assert client.goodbye == ErrorCodes.PROTOCOL_ERROR
    with Client(daemon, unix=True) as client:
        assert client.answer(client.begin("GET", "/v0/health", host="whatever"))[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        ("x-a", "1\r\ntransfer-encoding: chunked"),
        ("x-a", "1\nhost: evil.example"),
        ("x-a", "1\0"),
        ("x-a: b\r\nhost", "evil.example"),
        ("x a", "1"),
        ("X-A", "1"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("upgrade", "websocket"),
        ("content-length", "+3"),
        ("content-length", "1_0"),
    ],
)
def test_S05_what_would_be_smuggled_into_a_head_is_refused(daemon: DaemonProcess, header: tuple[str, str]) -> None:
    with Client(daemon) as client:
        number = client.begin("GET", "/v0/health", header)
        while number not in client.ended and client.read(5.0):
            pass
        assert client.statuses.get(number, 400) == 400
        assert client.statuses or client.goodbye == ErrorCodes.PROTOCOL_ERROR
    daemon.is_well()


@pytest.mark.slow
def test_a_thousand_long_polls_on_one_connection_are_answered_by_one_write(daemon: DaemonProcess) -> None:
    daemon.write("polled", 0)
    with Client(daemon) as client:
        body = b'{"from_seq":1,"wait_ms":30000}'
        polls = [client.post("/v0/topics/polled/diff", body) for _ in range(1023)]
        write = client.post("/v0/topics/polled", b'{"records":[{"data":"new"}]}')
        body_of(client.answer(write))
        for number in polls:
            assert len(body_of(client.answer(number, 30.0))["records"]) == 1
        assert client.goodbye is None


@pytest.mark.slow
def test_bodies_and_answers_larger_than_any_window_pass(daemon: DaemonProcess) -> None:
    records = [{"data": "x" * 900_000} for _ in range(8)]
    with Client(daemon) as client:
        number = client.upload("/v0/topics/large", json.dumps({"records": records}).encode())
        body_of(client.answer(number), 201)
        page = body_of(client.answer(client.post("/v0/topics/large/diff", b'{"max_bytes":8388608}')))
        assert [record["data"] for record in page["records"]] == ["x" * 900_000] * 8


def test_small_answers_pass_a_large_one_that_waits_for_its_window(daemon: DaemonProcess) -> None:
    daemon.write("waits", "y" * 500_000)
    with Client(daemon, window=1000, greedy=False) as client:
        large = client.post("/v0/topics/waits/diff", b"{}")
        small = client.begin("GET", "/v0/health")
        assert client.answer(small)[0] == 200
        assert len(client.bodies[large]) == 1000
        client.h2.increment_flow_control_window(600_000)
        client.h2.increment_flow_control_window(600_000, large)
        client.flush()
        assert len(client.answer(large)[1]) > 500_000


def test_a_refused_upload_is_answered_before_it_is_whole(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        number = client.begin("POST", "/v0/topics/big", JSON, ("content-length", str(65 * MIB)), end=False)
        deadline = time.monotonic() + 10
        while number not in client.resets and time.monotonic() < deadline:
            client.read(1.0)
        assert client.statuses[number] == 413
        assert client.resets[number] == ErrorCodes.NO_ERROR
        assert client.answer(client.begin("GET", "/v0/health"))[0] == 200


def test_a_client_that_asks_for_it_is_told_to_continue(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        number = client.begin("POST", "/v0/topics/told", JSON, ("expect", "100-continue"), end=False)
        client.read()
        client.h2.send_data(number, b'{"records":[{"data":1}]}', end_stream=True)
        client.flush()
        assert client.answer(number)[0] == 201


# -- streams -------------------------------------------------------------------------------------------------------


def test_many_event_streams_share_a_connection(daemon: DaemonProcess) -> None:
    for index in range(20):
        daemon.write(f"sse{index}", index)
    urls = [watch(daemon, {f"sse{index}": {}}) for index in range(20)]
    with Client(daemon) as client:
        streams = [client.begin("GET", url, ("accept", "text/event-stream")) for url in urls]
        for index, number in enumerate(streams):
            said = client.until(number, b"event: caught-up")
            assert f'"data":{index}}}'.encode() in said
        assert client.headers[streams[0]]["content-type"] == "text/event-stream"
        daemon.write("sse7", "live")
        assert b'"live"' in client.until(streams[7], b'"live"')
        assert b'"live"' not in client.bodies[streams[8]]
        # A stream that the client resets leaves the others alone, and its session can be opened again.
        client.h2.reset_stream(streams[7], ErrorCodes.CANCEL)
        again = client.begin("GET", urls[7], ("accept", "text/event-stream"))
        daemon.write("sse7", "later")
        assert b'"later"' in client.until(again, b'"later"')
        daemon.write("sse8", "other")
        assert b'"other"' in client.until(streams[8], b'"other"')


def test_a_stream_over_http2_is_taken_over_by_one_over_http1(daemon: DaemonProcess) -> None:
    daemon.write("over", 1)
    url = watch(daemon, {"over": {}})
    with Client(daemon) as client:
        number = client.begin("GET", url)
        client.until(number, b"caught-up")
        with daemon.wire() as wire:
            wire.send(request("GET", url))
            wire.until(b"caught-up")
            assert b'"error":"taken_over"' in client.answer(number)[1]


# -- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stop_says_goodbye_and_finishes_what_is_open() -> None:
    with daemon_process() as running:
        running.write("t", 1)
        url = watch(running, {"t": {}})
        with Client(running) as client:
            poll = client.post("/v0/topics/t/diff", b'{"from_seq":1,"wait_ms":30000}')
            stream = client.begin("GET", url)
            client.until(stream, b"caught-up")
            stopped = threading.Thread(target=running.stop)
            stopped.start()
            assert body_of(client.answer(poll))["records"] == []
            assert b'"error":"server_shutting_down"' in client.answer(stream)[1]
            assert client.is_ended()
            assert client.goodbye == ErrorCodes.NO_ERROR
            stopped.join()


@pytest.mark.slow
def test_an_idle_connection_is_told_goodbye_and_closed() -> None:
    with daemon_process("--idle-timeout-ms", "300") as running, Client(running) as client:
        assert client.answer(client.begin("GET", "/v0/health"))[0] == 200
        assert client.is_ended()
        assert client.goodbye == ErrorCodes.NO_ERROR


def test_a_client_that_stops_sending_still_gets_what_it_asked_for(daemon: DaemonProcess) -> None:
    daemon.write("half", 1)
    with Client(daemon) as client:
        poll = client.post("/v0/topics/half/diff", b'{"from_seq":1,"wait_ms":500}')
        client.sock.shutdown(1)
        assert client.answer(poll)[0] == 200
        assert client.is_ended()


def test_a_client_that_says_goodbye_still_gets_what_it_asked_for(daemon: DaemonProcess) -> None:
    daemon.write("bye", 1)
    polite, angry = (frame(7, 0, 0, bytes(7) + bytes([code])) for code in (0, 2))
    with Client(daemon) as client:
        poll = client.post("/v0/topics/bye/diff", b'{"from_seq":1,"wait_ms":500}')
        write = client.begin("POST", "/v0/topics/bye", JSON, end=False)
        client.raw(polite)
        late = client.begin("GET", "/v0/health")
        client.h2.send_data(write, b'{"records":[{"data":2}]}', end_stream=True)
        client.flush()
        assert body_of(client.answer(write))["first_seq"] == 2
        assert len(body_of(client.answer(poll))["records"]) == 1
        assert client.is_ended()
        assert client.goodbye == ErrorCodes.NO_ERROR
        assert late in client.ended or client.resets[late] == ErrorCodes.REFUSED_STREAM
    for begins in (False, True):
        with Client(daemon) as client:
            if begins:
                client.post("/v0/topics/bye/diff", b'{"from_seq":2,"wait_ms":30000}')
            client.raw(angry if begins else polite)
            assert client.is_ended(), "one that is idle, or breaks off, is not waited for"


@pytest.mark.slow
def test_keys_count_and_a_key_that_goes_ends_its_streams(tmp_path: Path) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text("secret-one\nsecret-two\n")
    key_file.chmod(0o600)
    one, two = (("authorization", f"Bearer secret-{name}") for name in ("one", "two"))
    with daemon_process("--api-keys-file", str(key_file)) as running, Client(running) as client:
        assert client.answer(client.begin("GET", "/v0/topics/t"))[0] == 401
        assert client.answer(client.post("/v0/topics/t", b'{"records":[{"data":1}]}', one))[0] == 201
        opened = body_of(client.answer(client.post("/v0/watch", b'{"topics":{"t":{}}}', one)))
        url = str(opened["stream_url"])
        assert client.answer(client.begin("GET", url, two))[0] == 403
        stream = client.begin("GET", url, one)
        client.until(stream, b"caught-up")
        key_file.write_text("secret-two\n")
        running.process.send_signal(signal.SIGHUP)
        assert b'"error":"unauthorized"' in client.answer(stream)[1]
        assert client.answer(client.begin("GET", "/v0/topics/t", one))[0] == 401
        assert client.answer(client.begin("GET", "/v0/topics/t", two))[0] == 200
