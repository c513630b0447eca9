"""Bodies: chunked framing whole, byte by byte and with bytes behind; gzip within its bound."""

from __future__ import annotations

import gzip

import pytest

from engine.errors import Code, Refused
from topics_daemon.body import Chunks, inflate

GOOD = [
    (b"0\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"5;a=b;c\r\nhello\r\n00\r\n\r\n", b"hello"),
    (b"A\r\n0123456789\r\n1\r\n!\r\n0\r\nTrailer: x\r\nAnother: y\r\n\r\n", b"0123456789!"),
    (b"2 \r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
]


@pytest.mark.parametrize(("wire", "body"), GOOD)
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
@pytest.mark.parametrize("rest", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_chunked_body_is_the_same_however_it_arrives_and_leaves_what_follows(
    wire: bytes, body: bytes, step: int, rest: bytes
) -> None:
    chunks, buffer, done = Chunks(100), bytearray(), False
    data = wire + rest
    position = 0
    while not done:
        buffer += data[position : position + step]
        position += step
        done = chunks.feed(buffer)
    assert chunks.body() == body
    assert bytes(buffer) + data[position:] == rest


BROKEN = [
    *(b"x\r\n", b"\r\n", b"5\n", b"-1\r\n", b"0x5\r\n", b"1_0\r\n", b"5\r\nhelloX\r\n", b"5 5\r\n", b";a\r\n"),
    *(b"1" * 17 + b"\r\n", b"5;" + b"a" * 300, b"0\r\n" + b"A: b\r\n" * 2000, b"5;a\x00\r\n"),
]


@pytest.mark.parametrize("wire", BROKEN)
@pytest.mark.parametrize("step", [1, 1000])
def test_broken_framing_is_400(wire: bytes, step: int) -> None:
    chunks, buffer = Chunks(100), bytearray()

    def feed_all() -> None:
        for position in range(0, len(wire), step):
            buffer.extend(wire[position : position + step])
            chunks.feed(buffer)

    with pytest.raises(Refused) as caught:
        feed_all()
    assert caught.value.code is Code.INVALID_REQUEST


def test_more_than_the_bound_is_413_as_soon_as_it_is_announced() -> None:
    for wire in (b"65\r\n", b"64\r\n" + b"a" * 100 + b"\r\n1\r\n"):
        with pytest.raises(Refused) as caught:
            Chunks(100).feed(bytearray(wire))
        assert caught.value.code is Code.PAYLOAD_TOO_LARGE


def test_inflation_stops_at_the_bound() -> None:
    assert inflate(gzip.compress(b"a" * 1000), 1000) == b"a" * 1000
    with pytest.raises(Refused) as caught:
        inflate(gzip.compress(b"a" * 1001), 1000)
    assert caught.value.code is Code.PAYLOAD_TOO_LARGE


def test_members_are_one_body_under_one_bound() -> None:
    members = gzip.compress(b"a" * 600) + gzip.compress(b"b" * 400)
    assert inflate(members, 1000) == b"a" * 600 + b"b" * 400
    with pytest.raises(Refused):
        inflate(members, 999)


@pytest.mark.parametrize(
    "data",
    [b"x", gzip.compress(b"abc", mtime=0)[:-1], gzip.compress(b"abc", mtime=0) + b"x"],
    ids=["plain", "cut", "more"],
)
def test_what_is_not_whole_gzip_is_400(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        inflate(data, 1000)
    assert caught.value.code is Code.INVALID_REQUEST
