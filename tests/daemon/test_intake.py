"""Streams of lines: one request, many batches, an answer of a line for each as it commits."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.http2_kit import Client
from tests.daemon.intake_kit import END, TEXT, Stream, begin2, chunk, head, lines2, send2, whole
from tests.daemon.kit import (
    Answer,
    DaemonProcess,
    clean_environment,
    daemon_process,
    make_queue,
    records_of,
    request,
    start,
)

pytestmark = pytest.mark.slow

BATCH = 100
"""Records of a batch here."""
NUMBERS = b"".join(b'{"n": %d.0}\n' % n for n in range(1000))
FAULTY = Path(__file__).with_name("faulty.py")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(environ=clean_environment(TOPICS_MAX_BATCH_RECORDS=str(BATCH))) as running:
        yield running


def state(daemon: DaemonProcess, topic: str) -> Any:
    return daemon.ask(request("GET", f"/v0/topics/{topic}")).json


def values(daemon: DaemonProcess, topic: str) -> list[bytes]:
    """The data of all records, as their bytes came."""
    found: list[bytes] = []
    seq = 0
    while True:
        answer = daemon.ask(
            request(
                "POST", f"/v0/topics/{topic}/diff", {"from_seq": seq, "limit": 1000}, "Accept: application/x-ndjson"
            )
        )
        *lines, page = answer.body.splitlines()
        found += [line[line.index(b'"data":') + 7 : -1] for line in lines]
        seq = json.loads(page)["$page"]["next_from_seq"]
        if json.loads(page)["$page"]["caught_up"]:
            return found


def check_whole(lines: list[Any], count: int, *, first: int = 1) -> None:
    """The answer to a stream that went in, with nobody else writing: batches without gaps, then their sums."""
    *results, last = lines
    at = first
    for number, one in enumerate(results, 1):
        assert (one["batch"], one["batches"]) == (number, 1)
        assert one["first_seq"] == at
        assert one["last_seq"] == at + one["count"] - 1
        assert one["count"] <= BATCH
        at += one["count"]
    assert at == first + count
    assert last == {"done": True, "batches": len(results), "count": count, "lines": results[-1]["lines"]}


# -- every way in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_body_of_known_length(daemon: DaemonProcess, unix: bool, coding: str) -> None:
    topic = f"length-{unix}-{coding}"
    body = gzip.compress(NUMBERS) if coding == "gzip" else NUMBERS
    check_whole(whole(daemon, topic, body, f"Content-Encoding: {coding}", unix=unix), 1000)
    assert values(daemon, topic) == NUMBERS.splitlines()


def test_members_of_gzip_without_anything_in_them_are_passed_over(daemon: DaemonProcess) -> None:
    body = gzip.compress(b"") * 200 + gzip.compress(NUMBERS) + gzip.compress(b"") * 200
    check_whole(whole(daemon, "members", body, "Content-Encoding: gzip"), 1000)
    assert values(daemon, "members") == NUMBERS.splitlines()


@pytest.mark.parametrize("size", [1, 7, 5000])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_body_in_chunks(daemon: DaemonProcess, size: int, coding: str) -> None:
    topic = f"chunks-{size}-{coding}"
    text = b"\n".join(NUMBERS.splitlines()[: 20 if size == 1 else 1000])  # without a last line feed
    body = gzip.compress(text) if coding == "gzip" else text
    framed = b"".join(chunk(body[at : at + size]) for at in range(0, len(body), size)) + END
    with Stream(daemon, head(topic, f"Content-Encoding: {coding}") + framed) as stream:
        check_whole(stream.rest(), len(text.splitlines()))
        assert stream.status == 201
    assert values(daemon, topic) == text.splitlines()


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_http_2(daemon: DaemonProcess, coding: str) -> None:
    with Client(daemon) as client:
        number = begin2(client, f"two-{coding}", ("content-encoding", coding))
        send2(client, number, gzip.compress(NUMBERS) if coding == "gzip" else NUMBERS, end=True)
        check_whole(lines2(client, number), 1000)
        assert client.statuses[number] == 201
        again = begin2(client, f"two-{coding}")
        send2(client, again, b"1\n", end=True)
        assert lines2(client, again)[0]["first_seq"] == 1001, "the connection goes on"
    assert values(daemon, f"two-{coding}")[:1000] == NUMBERS.splitlines()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_curl_and_a_pipe(daemon: DaemonProcess, version: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    url = f"http://127.0.0.1:{daemon.port}/v0/topics/curl{version}/records?stream=true"
    send = [curl, "-sS", version, "-m", "20", "-T", "-", "-X", "POST", "-H", f"content-type: {TEXT}", url]
    done = subprocess.run(send, input=b'a "b"\r\n\nc', capture_output=True, check=True)
    *_, last = map(json.loads, done.stdout.splitlines())
    assert last == {"done": True, "batches": 1, "count": 3, "lines": 3}
    assert values(daemon, f"curl{version}") == [rb'"a \"b\""', b'""', b'"c"']


def test_what_records_have_in_common_is_in_the_query(daemon: DaemonProcess) -> None:
    query = "&tag=a&node=n&meta=%7B%22m%22%3A1%7D&ack=fsync&what=else"
    first, last = whole(daemon, "common", b"1\n2\n", query=query)
    assert first["warnings"] == ["unknown field what"]
    assert last["count"] == 2
    page = daemon.read("common", include_tags=True)["records"]
    assert [(one["$tag"], one["$node"], one["meta"]) for one in page] == [("a", "n", {"m": 1})] * 2


def test_nothing_is_an_answer_too(daemon: DaemonProcess) -> None:
    for body in (b"", b"\n \n\r\n"):
        assert whole(daemon, "nothing", body)[-1] == {
            "done": True,
            "batches": 0,
            "count": 0,
            "lines": body.count(b"\n"),
        }
    assert daemon.ask(request("GET", "/v0/topics/nothing")).status == 404
    with Stream(daemon, head("nothing") + END) as stream:
        assert stream.rest() == [{"done": True, "batches": 0, "count": 0, "lines": 0}]
    with Client(daemon) as client:
        number = begin2(client, "nothing")
        client.h2.send_data(number, b"", end_stream=True)
        client.flush()
        assert lines2(client, number)[-1]["done"]


def test_jobs_of_a_queue(daemon: DaemonProcess) -> None:
    make_queue(daemon, "jobs")
    check_whole(whole(daemon, "jobs", NUMBERS), 1000)
    claimed = daemon.ask(request("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 3})).json
    assert [one["$seq"] for one in claimed["claimed"]] == [1, 2, 3]
    assert state(daemon, "jobs")["queue"]["ready"] == 997


def test_two_streams_and_a_write_share_a_topic(daemon: DaemonProcess) -> None:
    with Stream(daemon, head("shared")) as one, Stream(daemon, head("shared"), unix=True) as other:
        for turn in range(3):
            one.send(chunk(b'"one"\n'))
            assert one.line()["first_seq"] == 3 * turn + 1
            other.send(chunk(b'"other"\n'))
            assert other.line()["first_seq"] == 3 * turn + 2
            assert daemon.write("shared", "write")["first_seq"] == 3 * turn + 3
        for stream in (one, other):
            stream.send(END)
            assert stream.rest() == [{"done": True, "batches": 3, "count": 3, "lines": 3}]
    assert records_of(daemon.read("shared")) == ["one", "other", "write"] * 3


# -- while it goes ---------------------------------------------------------------------------------------------------


def test_each_line_of_a_slow_client_is_answered_before_the_next(daemon: DaemonProcess) -> None:
    with Stream(daemon, head("slow")) as stream:
        for n in range(5):
            for byte in b'{"n":%d}\n' % n:
                stream.send(chunk(bytes([byte])))
            assert stream.line()["lines"] == n + 1
        stream.send(END)
        assert stream.rest()[-1]["count"] == 5


def test_a_client_that_reads_when_it_has_sent_everything_gets_results_that_are_added_up(daemon: DaemonProcess) -> None:
    """A batch for each line would be a megabyte of answer; what fits nowhere is one line."""
    with daemon_process("--max-batch-records", "1") as small, small.wire(unix=True) as wire:
        count = 12_000
        wire.send(head("t", f"Content-Length: {count * 2}"))
        wire.sock.settimeout(60)
        wire.send(b"1\n" * count)
        deadline = time.monotonic() + 60
        while state(small, "t").get("head_seq") != count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        stream = Stream.__new__(Stream)
        stream.wire, stream.status = wire, 0
        *results, last = stream.rest()
        assert last == {"done": True, "batches": count, "count": count, "lines": count}
        assert sum(one["count"] for one in results) == count
        assert sum(one["batches"] for one in results) == count
        assert max(one["batches"] for one in results) > 1000, "some of them were added up"
        assert len(results) < 8000
        at = 1
        for one in results:
            assert (one["first_seq"], one["batch"], one["lines"]) == (at, one["last_seq"], one["last_seq"])
            at = one["last_seq"] + 1


def test_what_is_asked_before_on_the_same_connection_is_answered_before(daemon: DaemonProcess) -> None:
    write = request("POST", "/v0/topics/piped", {"records": [{"data": 0}], "ack": "fsync"})
    with daemon.wire() as wire:
        wire.send(write + request("GET", "/v0/health") + head("piped") + chunk(b"1\n") + END)
        assert [wire.answer().status for _ in range(2)] == [201, 200]
        stream = Stream.__new__(Stream)
        stream.wire, stream.status = wire, 0
        check_whole(stream.rest(), 1, first=2)


def test_a_client_that_asks_whether_it_may_send_is_told(daemon: DaemonProcess) -> None:
    with Stream(daemon, head("asks", "Expect: 100-continue")) as stream:
        assert stream.wire.answer().status == 100
        stream.send(chunk(b"1\n") + END)
        assert stream.rest()[-1]["count"] == 1
    for wrong, status in (("&ack=never", 400), ("&meta=1", 400), ("&create=maybe", 400)):
        with Stream(daemon, head("asks", "Expect: 100-continue", query=wrong)) as stream:
            assert stream.wire.answer().status == status
            assert stream.wire.closed()


# -- what is refused -------------------------------------------------------------------------------------------------


def refusal(daemon: DaemonProcess, first: bytes) -> Answer:
    with daemon.wire() as wire:
        wire.send(first)
        return wire.answer()


def test_what_is_no_stream_is_refused_before_anything_is_written(daemon: DaemonProcess) -> None:
    path = "/v0/topics/no/records"
    body = {"records": [{"data": 1}]}
    assert refusal(daemon, request("POST", path, b"1\n", kind="application/x-ndjson")).code == "invalid_request"
    assert refusal(daemon, request("POST", f"{path}?stream=true", body)).status == 415
    assert refusal(daemon, request("POST", f"{path}?stream=true", None)).status == 411
    assert refusal(daemon, request("GET", f"{path}?stream=true")).headers["allow"] == "POST"
    for more in ("&idempotency_key=k", "&ack=disk", "&stream=true"):
        assert refusal(daemon, head("no", query=more) + END).status == 400
    keyed = refusal(daemon, head("no", "Idempotency-Key: k") + chunk(b"1\n") + END)
    assert keyed.json["error"]["detail"] == {"field": "idempotency_key"}
    assert refusal(daemon, head("no", query="&create=false") + chunk(b"1\n") + END).status == 404
    assert refusal(daemon, head("no", query="&tag=" + "x" * 257) + chunk(b"1\n") + END).status == 400
    assert refusal(daemon, head("no") + chunk(b"nonsense\n") + END).status == 400
    with Client(daemon) as client:
        number = begin2(client, "no", ("idempotency-key", "k"))
        assert client.answer(number)[0] == 400
    assert daemon.ask(request("GET", "/v0/topics/no")).status == 404
    daemon.is_well()


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b'{"n":', "invalid_request"),
        (b"1 2", "invalid_request"),
        (b'"\xff"', "invalid_request"),
        (b"[" * 200 + b"]" * 200, "invalid_request"),
        (b'"' + b"x" * (1 << 20) + b'"', "record_too_large"),
    ],
    ids=["half", "two", "utf8", "deep", "large"],
)
def test_a_line_that_is_no_record_ends_the_stream_and_is_named(
    daemon: DaemonProcess, bad: bytes, code: str, request: pytest.FixtureRequest
) -> None:
    topic = f"bad-{request.node.callspec.id}"
    with Stream(daemon, head(topic)) as stream:
        stream.send(chunk(b"1\n" * 10))
        assert stream.line()["last_seq"] == 10
        stream.send(chunk(b"2\n\n" + bad + b"\n3\n") + END)
        last = stream.rest()[-1]
    assert (last["error"]["code"], last["line"]) == (code, 13)
    if code == "record_too_large":
        # What stands before it makes a batch of its own.
        assert (last["batch"], last["batches"], last["count"], last["lines"]) == (3, 2, 11, 12)
    else:
        assert (last["batch"], last["batches"], last["count"], last["lines"]) == (2, 1, 10, 10)
    assert state(daemon, topic)["head_seq"] == last["count"], "its batch is not in, not even what stands before it"


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_line_without_end_is_refused_when_it_is_too_long(daemon: DaemonProcess, coding: str) -> None:
    endless = b'"' + b"x" * 3_000_000
    body = gzip.compress(endless) if coding == "gzip" else endless
    with Stream(daemon, head("endless", f"Content-Encoding: {coding}") + chunk(body)) as stream:
        answer = stream.wire.answer()
    assert answer.code == "record_too_large"
    assert answer.json["error"]["detail"] == {"limit": "max_record_bytes", "max": 1 << 20}


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_body_that_is_cut_in_the_middle_of_a_line_is_in_up_to_there(daemon: DaemonProcess, coding: str) -> None:
    body = NUMBERS + b'{"n": 1'
    if coding == "gzip":
        packer = zlib.compressobj(wbits=31)
        body = packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH)
    with Stream(daemon, head(f"cut-{coding}", f"Content-Encoding: {coding}") + chunk(body)) as stream:
        stream.wire.sock.shutdown(1)
        *results, last = stream.rest()
    assert last["error"]["detail"] == {"why": "truncated"}
    assert (last["line"], last["lines"], last["count"]) == (1001, 1000, 1000)
    assert sum(one["count"] for one in results) == 1000
    assert state(daemon, f"cut-{coding}")["head_seq"] == 1000


def test_framing_that_breaks_ends_the_stream(daemon: DaemonProcess) -> None:
    with Stream(daemon, head("framing") + chunk(b"1\n")) as stream:
        assert stream.line()["count"] == 1
        stream.send(b"zz\r\n")
        assert stream.rest()[-1]["error"]["code"] == "invalid_request"
    with Stream(daemon, head("framing", "Content-Encoding: gzip") + chunk(b"no gzip")) as stream:
        assert stream.wire.answer().status == 400


def test_a_topic_that_is_full_or_dropped_ends_the_stream(daemon: DaemonProcess) -> None:
    daemon.ask(request("PUT", "/v0/topics/full", {"cap_records": 15, "discard": "reject"}))
    with Stream(daemon, head("full")) as stream:
        stream.send(chunk(b"1\n" * 10))
        assert stream.line()["count"] == 10
        stream.send(chunk(b"1\n" * 10))
        last = stream.rest()[-1]
    assert (last["error"]["code"], last["count"]) == ("topic_full", 10)
    with Stream(daemon, head("dropped")) as stream:
        stream.send(chunk(b"1\n"))
        assert stream.line()["created"] is True
        daemon.ask(request("DELETE", "/v0/topics/dropped"))
        stream.send(chunk(b"2\n"))
        last = stream.rest()[-1]
    assert last["error"]["code"] == "topic_not_found"
    assert daemon.ask(request("GET", "/v0/topics/dropped")).status == 404, "who dropped it does not find it again"


def test_a_client_that_goes_away_leaves_what_was_answered(daemon: DaemonProcess) -> None:
    for unix in (False, True):
        with Stream(daemon, head("away"), unix=unix) as stream:
            stream.send(chunk(NUMBERS))
            while stream.line()["lines"] < 1000:
                pass
            stream.send(chunk(b"[1,\n"[:3]))
    with Client(daemon) as client:
        number = begin2(client, "away")
        send2(client, number, NUMBERS)
        client.until(number, b'"lines":1000')
        client.h2.reset_stream(number)
        client.flush()
        assert client.answer(client.begin("GET", "/v0/health"))[0] == 200
    assert state(daemon, "away")["head_seq"] == 3000
    daemon.is_well()


# -- bounds ----------------------------------------------------------------------------------------------------------


def push(stream: Stream, data: bytes, silence_s: float = 1.0) -> int:
    """Send data again and again until nothing more is taken; returns how much was."""
    sent = 0
    stream.wire.sock.settimeout(silence_s)
    while sent < 200_000_000:
        try:
            sent += stream.wire.sock.send(data)
        except TimeoutError:
            break
    stream.wire.sock.settimeout(20)
    return sent


def test_a_disk_that_hangs_stops_the_reading_and_others_of_the_connection_go_on(tmp_path: Path) -> None:
    environ = clean_environment(FAULTS=str(tmp_path))
    with daemon_process(environ=environ, launcher=FAULTY) as daemon:
        line = b'"' + b"x" * 998 + b'"\n'
        block = line * 1000
        daemon.write("else", 0)
        (tmp_path / "hang").touch()
        with Stream(daemon, head("h1", f"Content-Length: {10**12}", query="&ack=fsync"), unix=True) as stream:
            taken = push(stream, line)
            assert taken < 4_000_000, "a batch in flight, one that waits, and what sockets hold"
            with Client(daemon) as client:
                numbers = [begin2(client, f"h2-{n}", query="&ack=fsync") for n in range(3)]
                ats: dict[int, int] = {}
                for number in numbers:
                    at = 0
                    while client.h2.local_flow_control_window(number) > 0 or client.read(0.5):
                        size = min(client.h2.local_flow_control_window(number), 16_384)
                        client.h2.send_data(number, block[at % len(line) : at % len(line) + size])
                        client.flush()
                        at += size
                    assert at < 2_000_000
                    ats[number] = at % len(line)
                assert client.h2.outbound_flow_control_window > 0, "the window of the connection is open"
                assert client.answer(client.post("/v0/topics/else/diff", b"{}"))[0] == 200
                (tmp_path / "hang").unlink()
                for number in numbers:
                    client.until(number, b'"last_seq"')
                    send2(client, number, line[ats[number] :] + line * 600)
                    client.until(number, b'"batch":3,')
            assert stream.line()["batch"] == 1
            assert push(stream, line, 0.3) > 0, "and it goes on"
        daemon.is_well()


def test_pressure_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    environ = clean_environment(FAULTS=str(tmp_path))
    launcher = Path(__file__).with_name("pressed.py")
    write = request("POST", "/v0/topics/t", {"records": [{"data": 0}]})
    with daemon_process("--body-timeout-ms", "5000", environ=environ, launcher=launcher) as daemon:
        with Stream(daemon, head("t") + chunk(b"1\n")) as stream:
            assert stream.line()["count"] == 1
            for count in (2, 3):
                (tmp_path / "pressed").touch()
                while refusal(daemon, write).status != 429:
                    time.sleep(0.1)
                assert refusal(daemon, head("t") + chunk(b"1\n") + END).status == 429
                stream.send(chunk(b"%d\n" % count))
                if count == 2:
                    stream.wire.sock.settimeout(0.3)
                    with pytest.raises(AssertionError, match="nothing came in time"):
                        stream.line()
                    stream.wire.sock.settimeout(20)
                    (tmp_path / "pressed").unlink()
                    assert stream.line()["lines"] == 2
            (last,) = stream.rest()
            assert (last["error"]["code"], last["count"], last["line"]) == ("throttled", 2, 3)
        daemon.is_well()


def test_silence_and_a_line_that_is_never_complete_end_the_stream_but_slowness_does_not() -> None:
    with daemon_process("--body-timeout-ms", "700") as daemon:
        with Stream(daemon, head("silent") + chunk(b"1\n2")) as silent:
            first, last = silent.rest()
            assert (first["count"], last["error"]["detail"]["why"], last["line"]) == (1, "timeout", 2)
        with Stream(daemon, head("dribble") + chunk(b"1\n")) as dribble:
            began = time.monotonic()
            assert dribble.line()["count"] == 1
            dribble.wire.sock.settimeout(0.1)
            answer = b""
            while not answer:
                assert time.monotonic() < began + 20
                dribble.send(chunk(b"2"))
                try:
                    answer = dribble.wire.sock.recv(1000)
                except TimeoutError:
                    continue
            assert b"no line was completed" in answer
        with Stream(daemon, head("slow")) as slow:
            began = time.monotonic()
            while time.monotonic() < began + 2:
                slow.send(chunk(b"1\n"))
                assert slow.line()["count"] == 1
            slow.send(END)
            assert "done" in slow.rest()[-1]


def test_bodies_of_all_requests_together_are_bounded_and_what_was_held_is_given_back() -> None:
    with daemon_process("--max-request-buffer-bytes", "1048576", "--body-timeout-ms", "1500") as daemon:
        half = b'"' + b"x" * 700_000
        with Stream(daemon, head("a") + chunk(half)) as one, Stream(daemon, head("b") + chunk(half)) as other:
            lasts = [other.rest()[-1], one.rest()[-1]]
        assert {last["error"]["code"] for last in lasts} <= {"throttled", "invalid_request"}
        large = request("POST", "/v0/topics/c", b'{"records":[{"data":"' + b"x" * 900_000 + b'"}]}')
        assert refusal(daemon, large).status == 201, "nothing is held any more"


def test_several_hundred_megabytes_leave_the_memory_as_it_was() -> None:
    size = 400 << 20
    with daemon_process(environ=clean_environment(TOPICS_CACHE_BYTES=str(8 << 20))) as daemon:
        daemon.ask(request("PUT", "/v0/topics/large", {"durability": "ephemeral", "cap_records": 10}))
        whole(daemon, "large", b'"' + b"x" * 500_000 + b'"\n')
        before = most = daemon.resident_bytes()
        line = b'"' + b"x" * ((1 << 18) - 3) + b'"\n'
        with Stream(daemon, head("large", f"Content-Length: {size}"), unix=True) as stream:
            for n in range(size // len(line)):
                stream.send(line)
                if n % 32 == 0:
                    most = max(most, daemon.resident_bytes())
            lines = stream.rest()
        assert lines[-1]["count"] == size // len(line)
        assert most - before < 24 << 20, f"{(most - before) >> 20} MiB"
        bomb = gzip.compress(b"\n" * (64 << 20) + b"1\n")
        assert whole(daemon, "large", bomb, "Content-Encoding: gzip")[-1]["lines"] == (64 << 20) + 1
        assert daemon.resident_bytes() - before < 32 << 20


# -- keys, stops and crashes -----------------------------------------------------------------------------------------


def test_a_key_that_is_taken_away_ends_the_stream(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("full:read+write+delete+admin\nmine:write:mine\nreads:read\n")
    keys.chmod(0o600)
    with daemon_process("--api-keys-file", str(keys)) as daemon:
        mine = "Authorization: Bearer mine"
        assert refusal(daemon, head("mine") + END).status == 401
        assert refusal(daemon, head("mine", "Authorization: Bearer reads") + END).code == "forbidden"
        assert refusal(daemon, head("other", mine) + END).code == "forbidden"
        with Stream(daemon, head("mine-h1", mine) + chunk(b"1\n")) as stream, Client(daemon) as client:
            assert stream.line()["count"] == 1
            number = begin2(client, "mine-h2", ("authorization", "Bearer mine"))
            send2(client, number, b"1\n")
            client.until(number, b"last_seq")
            keys.write_text("full:read+write+delete+admin\n")
            os.kill(daemon.pid, signal.SIGHUP)
            for last in (stream.rest()[-1], lines2(client, number)[-1]):
                assert (last["error"]["code"], last["count"]) == ("unauthorized", 1)


def test_a_stop_answers_the_batch_in_flight_and_says_so() -> None:
    with daemon_process() as daemon:
        with (
            Stream(daemon, head("t") + chunk(b"1\n")) as one,
            Stream(daemon, head("t")) as unheard,
            Client(daemon) as two,
        ):
            assert one.line()["count"] == 1
            number = begin2(two, "t")
            send2(two, number, b"2\n")
            two.until(number, b"last_seq")
            os.kill(daemon.pid, signal.SIGTERM)
            for last in (one.rest()[-1], lines2(two, number)[-1]):
                assert (last["error"]["code"], last["batch"], last["line"]) == ("shutting_down", 2, 2)
            answer = unheard.wire.answer()
            assert (answer.status, answer.code) == (503, "shutting_down")
        assert daemon.process.wait(20) == 0


@pytest.mark.parametrize("ack", ["", "&ack=fsync"])
def test_a_killed_daemon_has_what_it_answered_and_whole_batches_only(tmp_path: Path, ack: str) -> None:
    daemon = start(tmp_path, "--max-batch-records", "50")
    numbers = b"".join(b"%d\n" % n for n in range(1, 100_001))
    with Stream(daemon, head("t", f"Content-Length: {len(numbers)}", query=ack) + numbers[:400_000]) as stream:
        acked = 0
        while acked < 1000:
            acked = stream.line()["last_seq"]
        daemon.process.kill()
        daemon.process.wait()
        try:
            while True:
                acked = stream.line()["last_seq"]
        except AssertionError:
            pass  # closed: the rest of it was never said
    again = start(tmp_path, "--max-batch-records", "50")
    try:
        found = values(again, "t")
        assert found == [b"%d" % n for n in range(1, len(found) + 1)]
        assert len(found) - acked in (0, 50), "at most the one in flight is in beside, and it is whole"
    finally:
        assert again.stop() == 0
