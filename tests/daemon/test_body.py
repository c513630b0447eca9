"""Bodies: chunked framing whole, byte by byte and with bytes behind; gzip within its bound."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from engine.errors import Code, Refused
from topics_daemon.body import (
    EMPTY_MEMBERS,
    STEP_BYTES,
    WHOLE_BYTES_MIN,
    Chunked,
    Chunks,
    Gathering,
    Inflating,
    Sized,
    Unpacking,
    Whole,
    gathering,
)

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

GOOD = [
    (b"0\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"5;a=b;c\r\nhello\r\n00\r\n\r\n", b"hello"),
    (b"A\r\n0123456789\r\n1\r\n!\r\n0\r\nTrailer: x\r\nAnother: y\r\n\r\n", b"0123456789!"),
    (b"2 \r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
]


def arrives(gathering: Gathering, data: bytes, step: int) -> tuple[bytes, bytes]:
    """What is gathered of data that comes `step` bytes at a time, and what is left of all of it."""
    buffer, position, done = bytearray(), 0, False
    while not done:
        buffer += data[position : position + step]
        position += step
        done = gathering.feed(buffer)
    return gathering.body(), bytes(buffer) + data[position:]


@pytest.mark.parametrize(("wire", "body"), GOOD)
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
@pytest.mark.parametrize("rest", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_chunked_body_is_the_same_however_it_arrives_and_leaves_what_follows(
    wire: bytes, body: bytes, step: int, rest: bytes
) -> None:
    assert arrives(Chunks(100), wire + rest, step) == (body, rest)


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
@pytest.mark.parametrize("rest", [b"", b"GET / HTTP/1.1\r\n"])
@pytest.mark.parametrize("wire", [b"0123456789", b"a\r\nb\r\n\r\n0"])
def test_a_whole_body_is_the_same_however_it_arrives_and_leaves_what_follows(
    wire: bytes, step: int, rest: bytes
) -> None:
    assert arrives(Whole(len(wire)), wire + rest, step) == (wire, rest)


def test_who_is_asked_again_takes_nothing_of_what_follows() -> None:
    """A body that is complete may have to wait while the next request comes."""
    cases: list[tuple[Gathering, bytes]] = [(Whole(3), b"abc"), (Chunks(100), b"3\r\nabc\r\n0\r\n\r\n")]
    for body, wire in cases:
        buffer = bytearray(wire)
        assert body.feed(buffer)
        buffer += b"5\r\nhello\r\n"
        assert body.feed(buffer)
        assert (body.body(), bytes(buffer)) == (b"abc", b"5\r\nhello\r\n")


def test_only_large_bodies_and_chunks_are_gathered() -> None:
    assert gathering(WHOLE_BYTES_MIN - 1, 1, chunked=False) is None
    assert isinstance(gathering(WHOLE_BYTES_MIN, 1, chunked=False), Whole)
    assert isinstance(gathering(-1, 1, chunked=True), Chunks)


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


def unpacking(body: bytes, bytes_max: int, buffer_bytes_max: int = 1 << 30) -> tuple[Unpacking, SimpleNamespace]:
    """A body that is about to be unpacked, and what it knows of its daemon."""
    daemon = SimpleNamespace(buffered_bytes=0, buffer_bytes_max=buffer_bytes_max)
    return Unpacking(cast("Daemon", daemon), body, bytes_max), daemon


def inflate(body: bytes, bytes_max: int) -> bytes:
    """All steps of it."""
    packed, daemon = unpacking(body, bytes_max)
    while not packed.step():
        pass
    content = packed.content()
    assert daemon.buffered_bytes == len(content)
    packed.forget()
    assert daemon.buffered_bytes == 0
    return content


def test_a_little_gzip_that_is_much_comes_out_in_steps_and_counts() -> None:
    packed, daemon = unpacking(gzip.compress(b" " * 10_000_000), 1 << 26)
    steps = 1
    while not packed.step():
        steps += 1
        assert daemon.buffered_bytes <= steps * 2 * STEP_BYTES
    assert steps >= 10_000_000 // (2 * STEP_BYTES)
    packed, daemon = unpacking(gzip.compress(b" " * 10_000_000), 1 << 26, buffer_bytes_max=1_000_000)
    with pytest.raises(Refused) as caught:
        [packed.step() for _ in range(steps)]
    assert caught.value.code is Code.PAYLOAD_TOO_LARGE
    assert daemon.buffered_bytes < 1_000_000 + 2 * STEP_BYTES
    packed.forget()
    assert daemon.buffered_bytes == 0


def test_members_of_a_byte_are_steps_too() -> None:
    packed, daemon = unpacking(gzip.compress(b"1") * 1000, 1 << 26)
    assert not packed.step()
    assert 0 < daemon.buffered_bytes < 100


def test_members_without_anything_are_steps_too() -> None:
    packed, _ = unpacking(gzip.compress(b"") * (4 * EMPTY_MEMBERS) + gzip.compress(b"1"), 1 << 20)
    assert [packed.step() for _ in range(4)] == [False] * 3 + [True]
    assert packed.content() == b"1"


def test_inflation_stops_at_the_bound() -> None:
    assert inflate(gzip.compress(b"a" * 1000), 1000) == b"a" * 1000
    with pytest.raises(Refused) as caught:
        inflate(gzip.compress(b"a" * 1001), 1000)
    assert caught.value.code is Code.PAYLOAD_TOO_LARGE


def test_a_gzip_body_that_says_that_it_is_too_large_is_not_inflated() -> None:
    bomb = gzip.compress(b"a" * 100_000)
    packed, daemon = unpacking(bomb, 99_999)
    with pytest.raises(Refused) as caught:
        packed.step()
    assert caught.value.code is Code.PAYLOAD_TOO_LARGE
    assert "it holds 100000" in str(caught.value)
    assert daemon.buffered_bytes == 0


@pytest.mark.parametrize("said", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff"], ids=["too little", "what cannot be"])
def test_what_a_gzip_body_says_of_its_size_is_not_believed_where_it_lies(said: bytes) -> None:
    bomb, small = gzip.compress(b"a" * 100_000)[:-4] + said, gzip.compress(b"a" * 100)[:-4] + said
    for body, code in ((bomb, Code.PAYLOAD_TOO_LARGE), (small, Code.INVALID_REQUEST)):
        with pytest.raises(Refused) as caught:
            inflate(body, 10_000)
        assert caught.value.code is code


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


# -- bodies that are read piece by piece -----------------------------------------------------------------------------


def test_a_sized_body_ends_where_it_was_said_to() -> None:
    framing = Sized(5)
    assert (framing.feed(b"abc"), framing.over) == (b"abc", False)
    assert (framing.feed(b"defg"), framing.over) == (b"de", True)
    assert framing.feed(b"h") == b""
    assert Sized(0).over


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_chunks_are_undone_as_they_come(size: int) -> None:
    framed = b"3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nTrailer: 1\r\n\r\nGET"
    framing, found = Chunked(), b""
    for at in range(0, len(framed), size):
        found += framing.feed(framed[at : at + size])
    assert (found, framing.over) == (b"abcd", True)


def test_broken_chunks_are_refused_in_the_middle() -> None:
    framing = Chunked()
    assert framing.feed(b"3\r\nabc\r\n") == b"abc"
    with pytest.raises(Refused):
        framing.feed(b"zz\r\n")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_members_of_gzip_are_inflated_as_they_come(size: int) -> None:
    text = b"".join(b"%d\n" % n for n in range(2000))
    packed = gzip.compress(text) + gzip.compress(b"") + gzip.compress(b"end")
    inflating, found = Inflating(), b""
    for at in range(0, len(packed), size):
        inflating.feed(packed[at : at + size])
        while piece := inflating.take(100):
            assert len(piece) <= 100
            found += piece
    assert found == text + b"end"
    assert inflating.is_whole


def test_a_little_gzip_that_is_much_comes_out_a_little_at_a_time() -> None:
    inflating = Inflating()
    inflating.feed(gzip.compress(b"\0" * 10_000_000))
    for _ in range(10):
        assert len(inflating.take(1000)) == 1000
    assert len(inflating) < 20_000


def test_gzip_that_ends_early_or_is_none_is_told() -> None:
    packed = gzip.compress(b"hello")
    assert Inflating().is_whole
    inflating = Inflating()
    inflating.feed(packed[:-1])
    while inflating.take(100):
        pass
    assert not inflating.is_whole
    for wrong in (b"no gzip at all", packed + b"more"):
        inflating = Inflating()
        inflating.feed(wrong)
        with pytest.raises(Refused):
            [inflating.take(100) for _ in range(10)]


def test_members_that_hold_nothing_cost_what_they_send_and_are_bounded() -> None:
    """Each gave back a copy of all behind it: a megabyte of empty ones held the loop for a second."""
    with pytest.raises(Refused, match="small members"):
        inflate(gzip.compress(b"") * 200_000, 1 << 26)
    inflating = Inflating()
    inflating.feed(gzip.compress(b"") * 200_000)
    with pytest.raises(Refused, match="small members"):
        [inflating.take(1000) for _ in range(200)]
    inflating = Inflating()
    inflating.feed(gzip.compress(b"") * 1000)
    with pytest.raises(Refused, match="small members"):
        [inflating.take(1000) for _ in range(1000 // EMPTY_MEMBERS)]
    lines = gzip.compress(b"1\n" * 600)
    assert inflate(lines * 10_000, 1 << 26) == b"1\n" * 6_000_000
    assert inflate(gzip.compress(b"1\n") * 4000, 1 << 26) == b"1\n" * 4000
