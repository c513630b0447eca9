"""Many streams at once over HTTP/2: beyond a share they wait in their connection, and others are served."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Final

import pytest
from h2.errors import ErrorCodes
from hpack import Encoder

from tests.daemon.http2_kit import JSON, Client, frame
from tests.daemon.kit import DaemonProcess, check_order, daemon_process, post, watch
from topics_daemon.http2_frames import FRAME_HEAD_BYTES, PREFACE

pytestmark = pytest.mark.slow

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS = 1, 4
_WIDE: Final = (2**31 - 65_536).to_bytes(4, "big")
HELLO: Final = PREFACE + frame(SETTINGS, 0, 0, b"\0\4" + _WIDE) + frame(WINDOW, 0, 0, _WIDE)
"""The first words of a peer whose windows are open for good."""
ONE: Final = b'{"records":[{"data":1}]}'
INSISTING: Final = b'{"records":[{"data":1}],"disable_backpressure":true}'
"""A write that is refused by the cap alone: where tests get a tenth of a processor, these press the daemon."""


def write_heads(path: str) -> bytes:
    """The block of headers of a write, the same for each stream: nothing of it is remembered by either side."""
    encoder = Encoder()
    encoder.header_table_size = 0
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", path), JSON]
    encoder.encode(fields)
    return bytes(encoder.encode(fields))


def writes(heads: bytes, body: bytes, first: int, count: int) -> bytes:
    """So many writes, from this stream on."""
    return b"".join(
        frame(HEADERS, END_HEADERS, number, heads) + frame(DATA, END_STREAM, number, body)
        for number in range(first, first + 2 * count, 2)
    )


def test_writes_of_a_connection_are_done_in_their_order_and_none_is_refused_for_another() -> None:
    """The cap is for requests that wait for nobody; what is complete beyond its connection's share waits there."""
    heads = write_heads("/v0/topics/t")
    with daemon_process("--max-inflight-per-key", "100") as running:
        running.write("t", 0)
        connections = [Answers(running) for _ in range(20)]
        for answers in connections:
            answers.sock.sendall(HELLO + writes(heads, INSISTING, 1, 300))
        for answers in connections[::2]:
            answers.sock.shutdown(socket.SHUT_WR)
        taken: list[list[int]] = []
        for answers in connections:
            while len(answers.bodies) < 300:
                answers.read()
                assert not answers.is_over
            own = [json.loads(body).get("first_seq") for _, body in sorted(answers.bodies.items())]
            assert None not in own, answers.bodies
            taken.append(own)
            answers.sock.close()
        check_order(taken, range(2, 6002))
        running.is_well()


class Answers:
    """One connection, and the frames that come: which streams are over, and what they were answered."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.sock = daemon.wire().sock
        self._heard = b""
        self._parts: dict[int, bytes] = {}
        self.bodies: dict[int, bytes] = {}
        self.goodbye: int | None = None
        self.is_over = False

    def read(self) -> None:
        """Take what is there."""
        data = self.sock.recv(1 << 18)
        self.is_over = not data
        self._heard += data
        at, heard = 0, self._heard
        while len(heard) - at >= FRAME_HEAD_BYTES:
            end = at + FRAME_HEAD_BYTES + int.from_bytes(heard[at : at + 3], "big")
            if len(heard) < end:
                break
            kind, flags, number = heard[at + 3], heard[at + 4], int.from_bytes(heard[at + 5 : at + 9], "big")
            payload = heard[at + FRAME_HEAD_BYTES : end]
            assert kind != RST, payload
            if kind == GOAWAY:
                self.goodbye = int.from_bytes(payload[4:8], "big")
            elif kind == DATA:
                self._parts[number] = self._parts.get(number, b"") + payload
                if flags & END_STREAM:
                    self.bodies[number] = self._parts.pop(number)
            at = end
        self._heard = heard[at:]


class Flood:
    """Connections with a hundred writes each at any time, which heed nothing that they are answered."""

    STREAMS = 100

    def __init__(self, daemon: DaemonProcess, connections: int) -> None:
        self._heads = write_heads("/v0/topics/t?return_seqs=false")
        self._body = json.dumps({"records": [{"data": "x" * 200}] * 4}).encode()
        self.acked = self.refused = 0
        first = HELLO + writes(self._heads, self._body, 1, self.STREAMS)
        self._unsent = {Answers(daemon): first for _ in range(connections)}
        self._next: dict[Answers, int] = {}
        for one in self._unsent:
            one.sock.setblocking(False)
            self._next[one] = 1 + 2 * self.STREAMS

    def go_on(self) -> None:
        for one in self._unsent:
            try:
                one.read()
            except BlockingIOError:
                pass
            assert not one.is_over, one.goodbye
            over = len(one.bodies)
            refused = sum(b'"throttled"' in body for body in one.bodies.values())
            one.bodies.clear()
            self.refused += refused
            self.acked += over - refused
            unsent = self._unsent[one] + writes(self._heads, self._body, self._next[one], over)
            self._next[one] += 2 * over
            try:
                unsent = unsent[one.sock.send(unsent) :]
            except BlockingIOError:
                pass
            self._unsent[one] = unsent

    def close(self) -> None:
        for one in self._unsent:
            one.sock.close()


def test_F69_a_flood_of_streams_is_refused_and_writers_that_wait_for_answers_are_served() -> None:
    """128 connections with a hundred streams each ask for more than can be done. That held the loop for so long that
    the governor refused everybody."""
    with daemon_process() as running:
        running.write("t", 0)
        polite, client = running.wire(), Client(running)
        flood = Flood(running, 128)
        deadline = time.monotonic() + 180  # a daemon that gets a tenth of a processor takes long to count as pressed
        while not flood.refused:
            assert time.monotonic() < deadline, f"{flood.acked} writes, and none is refused"
            flood.go_on()
        acked, refused = flood.acked, flood.refused
        over1: list[int] = []
        over2: list[int] = []
        polite.send(post("/v0/topics/polite", ONE))
        number = client.post("/v0/topics/polite", ONE)
        while flood.acked + flood.refused < acked + refused + 10_000 or min(len(over1), len(over2)) < 20:
            assert time.monotonic() < deadline, f"{flood.acked - acked} of {flood.refused - refused}, {over1} {over2}"
            flood.go_on()
            ready = select.select([polite.sock, client.sock], [], [], 0)[0]
            if polite.sock in ready:
                over1.append(polite.answer().status)
                polite.send(post("/v0/topics/polite", ONE))
            if client.sock in ready:
                client.read()
                if number in client.ended:
                    over2.append(client.statuses[number])
                    number = client.post("/v0/topics/polite", ONE)
        for statuses in (over1, over2):
            assert sum(status < 300 for status in statuses) > len(statuses) / 2, statuses
        assert flood.acked - acked > 2_500, "what is refused leaves time for others"
        flood.close()
        head = running.read("t", from_seq=0, limit=1)["head_seq"]
        assert head >= 1 + 4 * flood.acked, "what was acked is there"


def test_what_takes_long_holds_up_nothing_else_of_its_connection() -> None:
    """Where the connection's share is one request, a checkpoint in flight was all of it: nothing else was read."""
    with daemon_process("--max-inflight-per-key", "8") as running, Client(running) as client:
        running.write("t", 0)
        numbers = {}
        for path, method in (("/v0/admin/checkpoint", "POST"), ("/v0/health", "GET")):
            numbers[path] = number = client.h2.get_next_available_stream_id()
            fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
            client.h2.send_headers(number, fields, end_stream=True)
        client.flush()  # both at once
        assert client.answer(numbers["/v0/admin/checkpoint"])[0] == 200
        assert list(client.statuses) == [*numbers.values()][::-1], "in the order in which they were answered"


def test_nobody_has_all_requests_that_may_be_open() -> None:
    """Bodies that do not come keep their requests open: of what one connection has, as much is left for others."""
    with daemon_process("--max-connections", "64") as running, Client(running) as greedy, Client(running) as other:
        halves = [greedy.begin("POST", "/v0/topics/t", JSON, end=False) for _ in range(100)]
        last = greedy.begin("GET", "/v0/health")
        refused = greedy.answer(last)
        assert refused[0] == 429
        assert b'"max_connections"' in refused[1]
        assert 30 <= len(set(halves) - set(greedy.statuses)) <= 34
        more = [other.begin("POST", "/v0/topics/t", JSON, end=False) for _ in range(10)]
        for number in more:
            other.h2.send_data(number, ONE, end_stream=True)
        other.flush()
        for number in more:
            assert other.answer(number)[0] < 300
        crowd = [Client(running) for _ in range(20)]
        statuses = []
        for client in crowd:
            for _ in range(7):
                client.begin("POST", "/v0/topics/t", JSON, end=False)
            statuses.append(client.answer(client.begin("GET", "/v0/health"))[0])
        assert set(statuses[:8]) == {200}, "a few are taken"
        assert statuses[-1] == 429, "up to a bound"
        with Client(running) as late:
            assert late.answer(late.post("/v0/topics/t", ONE))[0] < 300, "one is always taken"
        for client in crowd:
            client.sock.close()


def test_what_waits_behind_an_end_is_handled_and_a_misdeed_in_it_ends_the_connection() -> None:
    heads = write_heads("/v0/topics/t")
    with daemon_process() as running:
        connections = [Answers(running) for _ in range(20)]
        for answers in connections:
            answers.sock.sendall(HELLO + writes(heads, ONE, 1, 500) + frame(PING, 0, 0, bytes(8)) * 5000)
            answers.sock.shutdown(socket.SHUT_WR)
        for answers in connections:
            while not answers.is_over:
                answers.read()
            assert answers.goodbye == ErrorCodes.ENHANCE_YOUR_CALM
        assert running.read("t", from_seq=0, limit=1)["head_seq"] > 10_000 - 64 * 20


def test_requests_that_are_reset_while_they_wait_are_not_done() -> None:
    """A connection that takes no answers has enough of them after four megabytes: what it asks for then waits."""
    with daemon_process() as running:
        running.write("t", "x" * 500_000)
        with Client(running, window=0) as client:
            pages = [client.post("/v0/topics/t/diff", b"{}") for _ in range(10)]
            while len(client.statuses) < 9:
                assert client.read()
            waiting = [client.post("/v0/topics/w", ONE) for _ in range(20)]
            for number in waiting[:-1]:
                client.h2.reset_stream(number, ErrorCodes.CANCEL)
            for number in pages[:6]:
                client.h2.reset_stream(number, ErrorCodes.CANCEL)
            client.flush()
            while waiting[-1] not in client.statuses:
                assert client.read()
        assert running.read("w")["head_seq"] == 1


def test_a_peer_that_ends_with_its_windows_shut_is_not_waited_for() -> None:
    """No window opens any more, so what it does not allow is given up; what it does allow is sent, at a stop too."""
    with daemon_process("--drain-ms", "600000") as running:
        running.write("t", "x" * 500_000)
        url = watch(running, {"t": {}})
        with Client(running, window=1000) as client, Client(running) as open_wide:
            client.greedy = False
            page = client.post("/v0/topics/t/diff", b"{}")
            stream = client.begin("GET", url)
            while min(len(client.bodies[page]), len(client.bodies[stream])) < 1000:
                assert client.read()
            client.sock.shutdown(socket.SHUT_WR)
            assert client.is_ended()
            assert client.resets[page] == ErrorCodes.CANCEL
            poll = open_wide.post("/v0/topics/t/diff", b'{"from_seq":1,"wait_ms":600000}')
            shut = Client(running, window=0)
            late = shut.post("/v0/topics/t/diff", b'{"from_seq":1,"wait_ms":600000}')
            open_wide.answer(open_wide.begin("GET", "/v0/health"))
            shut.answer(shut.begin("HEAD", "/v0/health"))
            open_wide.sock.shutdown(socket.SHUT_WR)
            shut.sock.shutdown(socket.SHUT_WR)
            assert running.stop() == 0
            assert open_wide.answer(poll)[0] == 200
            assert shut.is_ended()
            assert shut.statuses[late] == 200
