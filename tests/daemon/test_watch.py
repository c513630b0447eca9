"""Streams: takeover, resume, slow readers, deletion, strong readers, the end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import ws
from tests.daemon import socket_kit
from tests.daemon.http2_kit import Client, frame
from tests.daemon.kit import DaemonProcess, Events, daemon_process, halt, post, request, start, watch

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(
        *("--watch-session-ttl-ms", "3s", "--max-sse-connections", "40"),
        *("--max-watch-sessions", "80"),
    ) as running:
        yield running


def seen(events: Events, count: int) -> list[object]:
    """The data of the next `count` records."""
    found: list[object] = []
    while len(found) < count:
        name, data, _ = events.next()
        if name == "record":
            found += [record["data"] for record in data["records"]]
    return found


def test_backlog_then_caught_up_then_live_in_this_order(daemon: DaemonProcess) -> None:
    daemon.write("order", 1, 2, 3)
    with Events(daemon, watch(daemon, {"order": {}}, limit=2)) as events:
        assert "text/event-stream" in events.head
        assert "cache-control: no-store" in events.head
        names = [events.next()[0] for _ in range(3)]
        assert names == ["record", "record", "caught-up"]
        daemon.write("order", 4)
        name, data, _ = events.next()
        assert name == "record"
        assert (data["from_seq"], data["to_seq"], data["head_seq"]) == (3, 4, 4)


def end_abruptly(sock: socket.socket) -> None:
    """What a client does that closes with something unread: the connection is reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def end_with_words(sock: socket.socket) -> None:
    """What a client of HTTP/2 does that gives the window of the last frame back: its end stands behind something."""
    sock.sendall(frame(8, 0, 0, b"\0\0\0\1"))
    sock.close()


@pytest.mark.parametrize(
    ("http2", "hang_up"),
    [
        (False, socket.socket.close),
        (False, end_abruptly),
        (True, socket.socket.close),
        (True, end_abruptly),
        (True, end_with_words),
    ],
)
@pytest.mark.parametrize("first", ["write", "hang up"])
def test_what_is_written_as_a_reader_hangs_up_waits_for_its_next_stream(
    daemon: DaemonProcess, first: str, http2: bool, hang_up: Callable[[socket.socket], None]
) -> None:
    """The daemon stands still meanwhile, so it meets the write and the end of the stream in one turn of its loop."""
    name = f"{first.replace(' ', '-')}-{hang_up.__name__}-{http2}"
    daemon.write(name, 1)
    url = watch(daemon, {name: {}})
    for number in range(2, 12):
        with daemon.wire() as wire, contextlib.ExitStack() as stack:
            if http2:
                client = stack.enter_context(Client(daemon))
                client.until(client.begin("GET", url), b"event: caught-up")
                reader = client.sock
            else:
                events = stack.enter_context(Events(daemon, url))
                while events.next()[0] != "caught-up":
                    pass
                reader = events.wire.sock
            halt(daemon.process.pid)
            if first == "write":
                wire.send(post(f"/v0/topics/{name}", {"records": [{"data": number}]}))
            hang_up(reader)
            if first != "write":
                wire.send(post(f"/v0/topics/{name}", {"records": [{"data": number}]}))
            os.kill(daemon.process.pid, signal.SIGCONT)
            assert wire.answer("POST").status == 200
        with Events(daemon, url) as events:
            assert seen(events, 1) == [number]


def test_a_second_stream_takes_over_and_the_first_is_told(daemon: DaemonProcess) -> None:
    daemon.write("take", 1)
    url = watch(daemon, {"take": {}})
    with Events(daemon, url) as first:
        assert seen(first, 1) == [1]
        with Events(daemon, url) as second:
            while (event := first.next())[0] != "error":
                pass
            assert event[1]["code"] == 410
            assert first.wire.closed()
            daemon.write("take", 2)
            assert seen(second, 1) == [2]


def test_an_id_rewinds_and_never_skips(daemon: DaemonProcess) -> None:
    daemon.write("ids", 1, 2, 3, 4)
    url = watch(daemon, {"ids": {}}, limit=1)
    with Events(daemon, url) as events:
        ids = [events.next()[2] for _ in range(4)]
    with Events(daemon, url, f"Last-Event-ID: {ids[1]}") as events:
        assert seen(events, 2) == [3, 4]
    with Events(daemon, url, f"Last-Event-ID: {ids[3]}") as events:
        assert events.next()[0] == "caught-up"


def test_a_slow_reader_costs_a_frame_and_catches_up_when_it_reads_on(daemon: DaemonProcess) -> None:
    before = daemon.resident_bytes()
    with Events(daemon, watch(daemon, {"slow": {}} if daemon.write("slow", 0) else {})) as events:
        for _ in range(20):
            daemon.write("slow", *["x" * 1000] * 1000)
        assert daemon.resident_bytes() - before < 60 * MIB
        assert len(seen(events, 20_001)) == 20_001


def test_a_reader_that_is_slow_with_one_topic_hears_of_all_of_them(daemon: DaemonProcess) -> None:
    daemon.write("much", 0)
    daemon.write("other", 0)
    daemon.write("doomed", 0)
    with Events(daemon, watch(daemon, {"much": {}, "other": {}, "doomed": {}}, limit=1000)) as events:
        for number in range(8):
            daemon.write("much", *["x" * 1000] * 1000)
            daemon.write("other", number)
            daemon.write("doomed", number)
        assert daemon.ask(request("DELETE", "/v0/topics/doomed")).json["deleted"] is True
        records: dict[str, list[object]] = {"much": [], "other": [], "doomed": []}
        told = False
        while len(records["much"]) < 8001 or len(records["other"]) < 9 or not told:
            name, data, _ = events.next()
            if name == "record":
                records[data["topic"]] += [record["data"] for record in data["records"]]
            told = told or (name == "topic-deleted" and data["topic"] == "doomed")
        assert records["other"] == [0, *range(8)]
        assert records["doomed"] == [0, *range(8)][: len(records["doomed"])]
        daemon.write("much", "live")
        while records["much"][-1] != "live":
            name, data, _ = events.next()
            if name == "record":
                records[data["topic"]] += [record["data"] for record in data["records"]]


def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    with daemon_process("--stall-timeout-ms", "1000") as daemon:
        daemon.write("stuck", 0)
        url = watch(daemon, {"stuck": {}})
        with daemon.wire() as wire:
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send(request("GET", url, None, "Accept: text/event-stream"))
            for _ in range(10):
                daemon.write("stuck", *["x" * 1000] * 1000)
            time.sleep(3)
            assert wire.closed(20)
        daemon.is_well()


def test_a_deleted_topic_ends_alone(daemon: DaemonProcess) -> None:
    daemon.write("dead", 1)
    daemon.write("alive", 1)
    with Events(daemon, watch(daemon, {"dead": {}, "alive": {}})) as events:
        assert len(seen(events, 2)) == 2
        assert daemon.ask(request("DELETE", "/v0/topics/dead")).json["deleted"] is True
        while (event := events.next())[0] != "topic-deleted":
            pass
        assert event[1] == {"topic": "dead", "head_seq": 1, "reason": "deleted"}
        daemon.write("dead", "again")
        daemon.write("alive", 2)
        name, data, _ = events.next()
        assert (name, data["topic"]) == ("record", "alive")


def test_a_topic_that_was_deleted_between_two_streams_is_told_at_the_next(daemon: DaemonProcess) -> None:
    daemon.write("between", 1)
    url = watch(daemon, {"between": {}})
    with Events(daemon, url) as events:
        assert seen(events, 1) == [1]
    daemon.ask(request("DELETE", "/v0/topics/between"))
    with Events(daemon, url) as events:
        assert events.next()[0] == "topic-deleted"


def test_a_recreated_topic_is_a_tombstone(daemon: DaemonProcess) -> None:
    daemon.write("again", 1, 2, 3)
    url = watch(daemon, {"again": {}})
    with Events(daemon, url) as events:
        assert len(seen(events, 3)) == 3
    daemon.ask(request("DELETE", "/v0/topics/again"))
    daemon.write("again", "new")
    with Events(daemon, url) as events:
        name, data, _ = events.next()
        assert (name, data["reason"]) == ("tombstone", "recreated")
        assert seen(events, 1) == ["new"]


def test_a_strong_reader_sees_what_is_synced_soon_after(daemon: DaemonProcess) -> None:
    daemon.write("strong", 0)
    with Events(daemon, watch(daemon, {"strong": {}}, consistency="strong")) as events:
        assert seen(events, 1) == [0]
        for number in range(1, 20):
            daemon.write("strong", number)
        assert seen(events, 19) == list(range(1, 20))


def test_readers_of_all_kinds_at_one_place_are_told_the_same_as_it_is_written(daemon: DaemonProcess) -> None:
    """Live readers share what they are told: each kind gets it in its own form, and as it asked for it."""
    daemon.write("kinds", 0)
    daemon.write("kinds-aside", 0)
    others: list[dict[str, Any]] = [{}, {}, {"consistency": "strong"}, {"match": "even"}, {"include_data": False}]
    with contextlib.ExitStack() as stack:
        plain, same, strong, even, bare = (
            stack.enter_context(Events(daemon, watch(daemon, {"kinds": {}}, **more))) for more in others
        )
        both = stack.enter_context(Events(daemon, watch(daemon, {"kinds": {}, "kinds-aside": {}})))
        h2 = stack.enter_context(Client(daemon))
        numbers = [h2.begin("GET", watch(daemon, {"kinds": {}})) for _ in range(2)]
        ws = [stack.enter_context(socket_kit.Client(daemon)) for _ in range(2)]
        for reader in ws:
            reader.say("subscribe", topic="kinds", limit=256, max_batch_bytes=262144)
            reader.until("caught_up")
        for events in (plain, same, strong, even, bare):
            while events.next()[0] != "caught-up":
                pass
        for _ in range(2):
            while both.next()[0] != "caught-up":
                pass
        for number in numbers:
            h2.until(number, b"caught-up")
        for seq in range(2, 12):
            tag = "even" if seq % 2 == 0 else "odd"
            data = {"n": seq}
            body = b'{"records":[{"data":{\r\n"n":%d},"tag":"%s"}]}' % (seq, tag.encode())
            assert daemon.ask(post("/v0/topics/kinds", body)).status == 200
            first = plain.next()
            assert same.next() == first
            for events in (plain, strong, both):
                name, told, _ = first if events is plain else events.next()
                place = (told["from_seq"], told["to_seq"], told["head_seq"])
                assert (name, told["topic"], place) == ("record", "kinds", (seq - 1, seq, seq))
                assert [record["data"] for record in told["records"]] == [data]
            assert "data" not in bare.next()[1]["records"][0]
            if tag == "even":
                assert even.next()[1]["records"][0]["data"] == data
            for reader in ws:
                message = reader.next()
                assert (message["op"], message["from_seq"], message["to_seq"]) == ("record", seq - 1, seq)
                assert message["records"][0]["data"] == data
            for number in numbers:
                h2.until(number, b'"to_seq":%d,' % seq)
        for number in numbers:
            assert h2.bodies[number].count(b"event: record") == 11
            assert h2.bodies[number].endswith(b"\n\n")


def test_S18_a_payload_with_line_breaks_is_put_together_again(daemon: DaemonProcess) -> None:
    daemon.ask(post("/v0/topics/lines", b'{"records":[{"data":{"a":\r\n[1,\r2,\n3]}}]}'))
    with Events(daemon, watch(daemon, {"lines": {}})) as events:
        assert seen(events, 1) == [{"a": [1, 2, 3]}]


def test_a_session_without_a_stream_is_forgotten_after_its_time(daemon: DaemonProcess) -> None:
    daemon.write("ttl", 1)
    url = watch(daemon, {"ttl": {}})
    time.sleep(4.5)
    assert daemon.ask(request("GET", url, None, "Accept: text/event-stream")).code == "not_found"


def test_silence_is_filled_with_comments_that_have_no_id(daemon: DaemonProcess) -> None:
    daemon.write("silent", 1)
    with Events(daemon, watch(daemon, {"silent": {"tail": True}}, heartbeat_ms=1000)) as events:
        assert events.next()[0] == "caught-up"
        fields = events.block()
        assert len(fields) == 1
        assert re.fullmatch(r"hb [0-9]{13}", fields[0][1])
        assert fields[0][0] == ""


def test_caps_on_sessions_and_streams_are_429(daemon: DaemonProcess) -> None:
    daemon.write("caps", 1)
    streams = []
    try:
        for _ in range(40):
            streams.append(Events(daemon, watch(daemon, {"caps": {}})))
            assert streams[-1].head.startswith("HTTP/1.1 200")
        url = watch(daemon, {"caps": {}})
        answer = daemon.ask(request("GET", url, None, "Accept: text/event-stream"))
        assert answer.status == 429
        assert answer.json["error"]["detail"] == {"limit": "max_sse_connections", "max": 40}
    finally:
        for stream in streams:
            stream.close()
    time.sleep(0.2)
    for _ in range(81):
        answer = daemon.ask(post("/v0/watch", {"topics": {"caps": {}}}))
        if answer.status != 200:
            break
    assert answer.status == 429
    assert answer.json["error"]["detail"]["limit"] == "max_watch_sessions"
    time.sleep(4.5)
    assert watch(daemon, {"caps": {}})


def test_many_watchers_get_every_record_in_order(daemon: DaemonProcess) -> None:
    daemon.write("many", 0)
    streams = [Events(daemon, watch(daemon, {"many": {}})) for _ in range(30)]
    try:
        for number in range(1, 50):
            daemon.write("many", number)
        for stream in streams:
            assert seen(stream, 50) == list(range(50))
    finally:
        for stream in streams:
            stream.close()


def test_a_stop_ends_streams_with_an_event_whose_id_resumes(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("stop")
    daemon = start(directory)
    daemon.write("stop", 1, 2)
    with Events(daemon, watch(daemon, {"stop": {}})) as events:
        assert seen(events, 2) == [1, 2]
        with daemon.wire() as poll:
            poll.send(post("/v0/topics/stop/diff", {"from_seq": 2, "wait_ms": 30000}))
            time.sleep(0.2)
            assert daemon.stop() == 0
            assert poll.answer().json["records"] == []
        while (event := events.next())[0] != "error":
            pass
        assert event[1]["error"] == "server_shutting_down"
        assert event[2]
        assert events.wire.closed()


@pytest.mark.parametrize("pure", ["0", "1"])
@pytest.mark.parametrize("way", ["stream", "socket"])
def test_what_goes_straight_into_a_socket_never_overtakes_what_waits(way: str, pure: str) -> None:
    """A reader that takes a little at a time: there is room in its socket again and again while more waits behind."""
    with daemon_process(environ={"TOPICS_PURE": pure}) as daemon, daemon.wire() as writer, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(10)
        reader.connect(("127.0.0.1", daemon.port))
        daemon.write("t", 0)
        if way == "stream":
            url = watch(daemon, {"t": {"tail": True}})
            reader.sendall(request("GET", url, None, "Accept: text/event-stream"))
        else:
            reader.sendall(ws.handshake() + ws.frame('{"op":"subscribe","topic":"t","tail":true}'))
        told = bytearray()
        while b"caught-up" not in told and b"caught_up" not in told:
            told += reader.recv(4096)
        text = "x" * 50_000
        for number in range(200):
            writer.send(post("/v0/topics/t", {"records": [{"data": f"{number:03}{text}"}]}))
            assert writer.answer("POST").status == 200
            told += reader.recv(30_000)
        while b'"199' + text.encode() not in told[-60_000:]:
            told += reader.recv(1 << 20)
        found = re.findall(rb'"data":"(\d{3})(x+)"', told)
        assert [int(number) for number, _ in found] == list(range(200))
        assert {len(data) for _, data in found} == {len(text)}
