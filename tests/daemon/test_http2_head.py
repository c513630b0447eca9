"""Fields of HTTP/2 become the head of HTTP/1.1 that says the same, and answers become fields."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Refused
from topics_daemon.answers import respond
from topics_daemon.head import Bounds, parse
from topics_daemon.http2_head import as_fields, as_head

BOUNDS = Bounds(32_768, 8192, 100)
GET = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"localhost:4000"), (b":path", b"/v0/topics?x=1")]


def test_a_request_without_a_body() -> None:
    raw = as_head([*GET, (b"accept", b"text/html")], ended=True)
    assert raw == b"GET /v0/topics?x=1 HTTP/1.1\r\nhost: localhost:4000\r\naccept: text/html\r\n\r\n"
    head = parse(raw, BOUNDS)
    assert (head.method, head.path, head.query, head.host) == ("GET", "/v0/topics", {"x": "1"}, "localhost:4000")
    assert not head.framed
    assert head.keep_alive


def test_a_body_is_framed_by_its_length_or_by_what_comes() -> None:
    assert parse(as_head([*GET, (b"content-length", b"3")], ended=False), BOUNDS).length == 3
    assert parse(as_head(GET, ended=False), BOUNDS).chunked
    assert parse(as_head([*GET, (b"content-length", b"0")], ended=True), BOUNDS).framed


def test_host_stands_in_for_an_authority_and_may_repeat_it() -> None:
    bare = [field for field in GET if field[0] != b":authority"]
    assert parse(as_head([*bare, (b"host", b"a")], ended=True), BOUNDS).host == "a"
    assert parse(as_head([*GET, (b"host", b"localhost:4000")], ended=True), BOUNDS).host == "localhost:4000"
    with pytest.raises(Refused, match="Host"):
        parse(as_head(bare, ended=True), BOUNDS)


@pytest.mark.parametrize(
    "fields",
    [
        [*GET, (b"host", b"evil")],
        [*GET, (b"host", b"localhost:4000"), (b"host", b"localhost:4000")],
        [*GET, (b"x", b"a\r\nb: c")],
        [*GET, (b"x", b"a\nb")],
        [*GET, (b"x", b"\0")],
        [*GET, (b"x: y", b"z")],
        [*GET, (b"", b"z")],
        [*GET, (b"x y", b"z")],
        [*GET, (b"transfer-encoding", b"chunked")],
        [(b":method", b"GET"), (b":authority", b"a"), (b":path", b"http://b/")],
        [(b":method", b"CONNECT"), (b":authority", b"a")],
        [(b":method", b"GET\r\nx: y"), (b":authority", b"a"), (b":path", b"/")],
    ],
)
def test_what_could_mean_something_else_is_refused(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Refused):
        as_head(fields, ended=True)


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=4), st.booleans())
def test_whatever_the_fields_are_one_request_comes_of_it_or_a_refusal(
    fields: list[tuple[bytes, bytes]], ended: bool
) -> None:
    """No fields can make a head that holds two, or a body that the frames do not say."""
    try:
        raw = as_head([*GET, *fields], ended=ended)
        head = parse(raw, BOUNDS)
    except Refused:
        return
    assert raw.find(b"\r\n\r\n") == len(raw) - 4
    assert raw.count(b"\r\n") == raw.count(b"\n") == raw.count(b"\r")
    assert (head.method, head.path) == ("GET", "/v0/topics")
    assert head.chunked == (not ended and not head.framed) or head.chunked == (not ended and head.length < 0)


def test_an_answer_in_fields() -> None:
    answer = respond(None, 429, b'{"a":1}', extra=b"retry-after: 1\r\n", close=True)
    fields, at = as_fields(answer)
    assert fields == [
        (b":status", b"429"),
        (b"content-type", b"application/json"),
        (b"content-length", b"7"),
        (b"retry-after", b"1"),
    ]
    assert answer[at:] == b'{"a":1}'
