"""What a peer of HTTP/2 can do to hurt: each costs it its connection (or the request), memory stays bounded, and
others are served meanwhile. S-rows of faults.md: slowloris, header limits, body size, resource caps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from tests.daemon.http2_kit import JSON, Client, frame
from tests.daemon.kit import DaemonProcess, daemon_process, request

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    flags = ("--max-request-buffer-bytes", "16MiB", "--stall-timeout-ms", "1500", "--header-timeout-ms", "1500")
    with daemon_process(*flags) as running:
        running.write("t", "x" * 500_000)
        yield running


def block(client: Client, *more: tuple[str, str]) -> bytes:
    """A block of headers as the client would send it."""
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v0/topics/t"), *more]
    return bytes(client.h2.encoder.encode(fields))


def resets(client: Client) -> bytes:
    head = block(client)
    return b"".join(frame(HEADERS, 5, n, head) + frame(RST, 0, n, b"\0\0\0\x08") for n in range(1, 20_001, 2))


def bombs(client: Client) -> bytes:
    """A header of 4 KB in the table, then thousands of references to it: 5 MB of fields in a frame of 1 KB."""
    big = block(client, ("x-big", "b" * 3900))
    return frame(HEADERS, 5, 1, big) + frame(HEADERS, 5, 3, block(client) + b"\xbe" * 1300)


def continuations(client: Client) -> bytes:
    head = block(client)
    return frame(HEADERS, 1, 1, head) + frame(CONTINUATION, 0, 1, b"\0\x01a\x01b") * 50_000


def large_continuations(client: Client) -> bytes:
    return frame(HEADERS, 1, 1, block(client)) + frame(CONTINUATION, 0, 1, b"a" * 16_384) * 200


def empty_data(client: Client) -> bytes:
    number = client.begin("GET", "/v0/topics/t", end=False)  # it may be answered on the way
    return frame(DATA, 0, number) * 20_000


def windows(client: Client) -> bytes:
    return frame(WINDOW, 0, 0, b"\0\0\0\x01") * 20_000


CALM, WRONG = ErrorCodes.ENHANCE_YOUR_CALM, ErrorCodes.PROTOCOL_ERROR
FLOODS: dict[str, tuple[Callable[[Client], bytes], set[ErrorCodes]]] = {
    "rapid resets": (resets, {CALM}),
    "a bomb of headers": (bombs, {CALM, WRONG}),
    "continuations": (continuations, {CALM, WRONG}),
    "large continuations": (large_continuations, {CALM}),
    "pings": (lambda _: frame(PING, 0, 0, b"12345678") * 20_000, {CALM}),
    "settings": (lambda _: frame(SETTINGS, 0, 0, b"\0\x04\0\0\x10\0") * 20_000, {CALM}),
    "priorities": (lambda _: frame(PRIORITY, 0, 5, b"\0\0\0\0\x10") * 20_000, {CALM}),
    "frames of no kind": (lambda _: frame(0xEE, 0, 0, b"?") * 20_000, {CALM}),
    "empty data": (empty_data, {CALM}),
    "tiny windows": (windows, {CALM}),
    "a frame too long": (lambda _: b"\xff\xff\xff\0\0\0\0\0\x01" + b"x" * MIB, {ErrorCodes.FRAME_SIZE_ERROR}),
    "a push": (lambda _: frame(PUSH, 4, 1, b"\0\0\0\x02"), {WRONG}),
    "data without a request": (lambda _: frame(DATA, 0, 1, b"x"), {WRONG}),
    "an even number": (lambda c: frame(HEADERS, 5, 2, block(c)), {WRONG}),
    "a window beyond all bounds": (lambda _: frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), {ErrorCodes.FLOW_CONTROL_ERROR}),
    "settings of a wrong size": (lambda _: frame(SETTINGS, 0, 0, b"12345"), {ErrorCodes.FRAME_SIZE_ERROR}),
    "headers that do not unpack": (
        lambda _: frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"),
        {WRONG, ErrorCodes.COMPRESSION_ERROR},
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_it_costs_the_peer_its_connection_and_nobody_else(daemon: DaemonProcess, name: str) -> None:
    made, codes = FLOODS[name]
    before = daemon.resident_bytes()
    with Client(daemon) as client, daemon.wire() as neighbour:
        client.read()
        client.raw(made(client))
        neighbour.send(request("GET", "/v0/health"))
        assert neighbour.answer().status == 200
        assert client.is_ended(20.0)
        # A goodbye may be lost with what we still had on the way when the other side closed.
        assert client.goodbye is None or client.goodbye in codes
    assert daemon.resident_bytes() - before < 48 * MIB
    daemon.is_well()


def test_one_peers_flood_holds_the_loop_for_moments_only() -> None:
    """On a daemon of its own, which is as patient as any: on a busy machine a peer may take nothing for seconds."""
    with daemon_process() as running, Client(running) as client, running.wire() as neighbour:
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/v0/topics/t")]
        for number in range(1, 1601, 2):
            client.h2.send_headers(number, fields, end_stream=True)
        client.flush()
        worst = 0.0
        for _ in range(20):
            began = time.monotonic()
            neighbour.send(request("GET", "/v0/health"))
            assert neighbour.answer().status == 200
            worst = max(worst, time.monotonic() - began)
        deadline = time.monotonic() + 120
        while len(client.ended) < 800 and not client.closed and time.monotonic() < deadline:
            client.read(1.0)
        took = len(client.ended)
    assert took == 800
    assert worst < 5.0, "a slice of a flood is a few frames, not all of them"


def test_answers_that_are_not_taken_are_bounded_and_reset(daemon: DaemonProcess) -> None:
    """A window of nothing, and a hundred pages of half a megabyte: four megabytes are kept, for the stall time."""
    before = daemon.resident_bytes()
    with Client(daemon, window=0) as client:
        pages = [client.post("/v0/topics/t/diff", b"{}") for _ in range(100)]
        deadline = time.monotonic() + 20
        peak = 0
        while len(client.resets) + len(client.ended) < len(pages) and time.monotonic() < deadline:
            client.read(0.1)
            peak = max(peak, daemon.resident_bytes() - before)
        assert set(client.resets) | client.ended == set(pages)
        assert len(client.resets) > 8, "what is not taken for the stall time is given up"
        assert client.goodbye is None, "the connection itself is well"
    assert peak < 40 * MIB
    daemon.is_well()


def test_a_stream_whose_window_stays_shut_is_ended(daemon: DaemonProcess) -> None:
    opened = daemon.ask(request("POST", "/v0/watch", {"topics": {"t": {}}})).json
    with Client(daemon, window=100) as client:
        client.greedy = False
        number = client.begin("GET", opened["stream_url"], ("accept", "text/event-stream"))
        deadline = time.monotonic() + 20
        while number not in client.resets and time.monotonic() < deadline:
            client.read(0.5)
        assert client.resets[number] == ErrorCodes.CANCEL
        assert len(client.bodies[number]) == 100
    with daemon.wire() as wire:
        wire.send(request("GET", opened["stream_url"], None, "Last-Event-ID: eyJ0IjowfQ"))
        wire.until(b"event: record")


def test_bodies_that_are_never_finished_share_one_bound(daemon: DaemonProcess) -> None:
    """Forty halves of bodies of a megabyte, where sixteen megabytes are the bound: the rest is refused with 429."""
    before = daemon.resident_bytes()
    with Client(daemon) as client:
        for _ in range(40):
            number = client.begin("POST", "/v0/topics/half", JSON, ("content-length", str(2 * MIB)), end=False)
            sent = 0
            while sent < MIB and number not in client.statuses:
                room = min(client.h2.local_flow_control_window(number), 16_384)
                if room:
                    client.h2.send_data(number, b"x" * room)
                    client.flush()
                    sent += room
                else:
                    client.read()
        client.read()
        refused = [number for number, status in client.statuses.items() if status == 429]
        assert len(refused) >= 20
        assert b"max_request_buffer_bytes" in client.bodies[refused[0]]
        assert daemon.resident_bytes() - before < 60 * MIB
    assert daemon.ask(request("GET", "/v0/health")).status == 200


@pytest.mark.parametrize(
    "part",
    [b"PRI * HTTP/2.0\r\n\r\nSM", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None],
    ids=["half a preface", "no settings frame", "half a head"],
)
def test_what_is_begun_must_be_finished_in_time(daemon: DaemonProcess, part: bytes | None) -> None:
    if part is None:
        with Client(daemon) as client:
            client.raw(frame(HEADERS, 5, 1, block(client))[:-3])
            assert client.is_ended(15.0)
    else:
        with daemon.wire() as wire:
            wire.send(part)
            assert wire.closed(15.0)


def test_a_preface_that_is_none_closes_at_once(daemon: DaemonProcess) -> None:
    with daemon.wire() as wire:
        wire.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + b"\0" * 30)
        assert wire.closed(5.0)


def test_the_preface_is_for_the_beginning_of_a_connection(daemon: DaemonProcess) -> None:
    for _ in range(2):  # the second time the head is known, and its connection takes a shorter way
        with daemon.wire() as wire:
            wire.send(request("GET", "/v0/health", None, "X-Before: a preface"))
            assert wire.answer().status == 200
            wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert wire.answer().status == 400
            assert wire.closed()


def test_our_table_of_headers_stays_small_whatever_is_allowed(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**31 - 1})
        client.flush()
        for _ in range(50):
            assert client.answer(client.begin("GET", "/v0/health"))[0] == 200
        assert client.h2.decoder.header_table_size <= 4096
