"""Heads: what is read from them, and what shapes are refused, whole and with bytes behind."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import Code, Refused
from engine.limits import Limits
from topics_daemon.auth import Gate
from topics_daemon.guard import Hosts, check
from topics_daemon.head import (
    Bounds,
    Content,
    Head,
    opens,
    parse,
    parse_query,
    quality,
    takes_events,
    unescape,
    wants_gzip,
    wants_lines,
)
from topics_daemon.routes.table import ROUTES, assign

BOUNDS = Bounds(32 * 1024, 8 * 1024, 100)


def read(*lines: str, line: str = "GET /v0/health HTTP/1.1") -> Head:
    return parse("\r\n".join([line, "Host: localhost", *lines]).encode("latin-1") + b"\r\n\r\n", BOUNDS)


def refused(*lines: str, line: str = "GET /v0/health HTTP/1.1") -> Refused:
    with pytest.raises(Refused) as caught:
        read(*lines, line=line)
    return caught.value


def test_a_head_is_read_into_its_parts() -> None:
    head = read(
        *("Content-Type: Application/JSON; charset=UTF-8", "Content-Length: 12", "Accept-Encoding: br, gzip"),
        *("Idempotency-Key: k-1", "Origin: http://localhost", "Last-Event-ID: abc"),
        line="POST /v0/topics/a%2Db?return_seqs=false&x=a+b%21 HTTP/1.1",
    )
    assert (head.method, head.path, head.query) == ("POST", "/v0/topics/a%2Db", {"return_seqs": "false", "x": "a b!"})
    assert (head.content, head.length, head.framed, head.chunked) == (Content.JSON, 12, True, False)
    assert (head.gzip, head.keep_alive, head.minor) == (True, True, 1)
    assert (head.idempotency_key, head.last_event_id, head.origin) == ("k-1", "abc", "http://localhost")
    assert head.unique
    assert not head.plain


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("application/json", Content.JSON),
        ('application/json;charset="utf-8"', Content.JSON),
        ("application/json; charset=utf-16", Content.OTHER),
        ("application/x-ndjson", Content.NDJSON),
        ("text/x-lines; charset=utf-8", Content.LINES),
        ("text/plain", Content.OTHER),
        ("application/jsonp", Content.OTHER),
        ("", Content.OTHER),
    ],
)
def test_content_types_are_told_apart(value: str, kind: Content) -> None:
    assert read(f"Content-Type: {value}").content == kind


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Transfer-Encoding", "Content-Type", "Origin", "Expect"])
def test_what_must_be_said_once_is_refused_twice(name: str) -> None:
    value = {"Content-Length": "0", "Transfer-Encoding": "chunked"}.get(name, "x")
    assert refused(f"{name}: {value}", f"{name}: {value}").code is Code.INVALID_REQUEST


def test_other_headers_given_twice_are_put_together() -> None:
    assert read("Accept: text/html", "Accept: application/x-ndjson").accept == "text/html, application/x-ndjson"


def test_bounds_have_their_own_codes() -> None:
    assert refused(line=f"GET /{'a' * 9000} HTTP/1.1").code is Code.URI_TOO_LONG
    assert refused("A: " + "b" * 9000).code is Code.HEADERS_TOO_LARGE
    assert refused(*["A: b"] * 101).code is Code.HEADERS_TOO_LARGE
    assert refused(*["A: " + "b" * 400] * 90).code is Code.HEADERS_TOO_LARGE
    assert read(*["A: b"] * 99).path == "/v0/health"


def test_the_place_of_a_stream_may_be_longer_than_other_lines() -> None:
    place = "a" * 24_000
    assert read(f"last-event-id: {place}").last_event_id == place
    assert refused(f"last-event-id: {place}", "A: " + "b" * 8200).code is Code.HEADERS_TOO_LARGE
    assert refused(f"X-Last-Event-ID: {place}").code is Code.HEADERS_TOO_LARGE
    assert refused("Last-Event-ID: " + "a" * 40_000).code is Code.HEADERS_TOO_LARGE


class Buffer(bytearray):
    """One that counts how often something is taken off it."""

    taken = 0

    def __delitem__(self, key: Any) -> None:
        self.taken += 1
        super().__delitem__(key)


@pytest.mark.parametrize(
    ("begun", "left"),
    [
        (b"\r\n" * 100_000 + b"GET ", b"GET "),
        (b"\r\n" * 1000, b""),
        (b"\r\n\r", b"\r"),
        (b"GET \r\n", b"GET \r\n"),
        (b"\r", b"\r"),
        (b"", b""),
        (b"\n\r\nGET ", b"\n\r\nGET "),
        (b"\r\n\nGET ", b"\nGET "),
    ],
)
def test_empty_lines_are_dropped_at_once_however_many_there_are(begun: bytes, left: bytes) -> None:
    inbuf = Buffer(begun)
    assert opens(inbuf) == (left != b"")
    assert bytes(inbuf) == left
    assert inbuf.taken <= 1


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "%%20", "%c3%28", "%ff", "%ed%a0%80"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        unescape(text)


def test_an_escape_is_decoded_once() -> None:
    assert unescape("a%252Fb%C3%A9") == "a%2Fbé"
    assert parse_query("a=%26&&b") == {"a": "&", "b": ""}


@pytest.mark.parametrize(
    ("accept", "lines", "events"),
    [
        ("", False, True),
        ("*/*", False, True),
        ("application/x-ndjson", True, False),
        ("application/json, application/x-ndjson;q=0.5", False, False),
        ("application/json;q=0.5, application/x-ndjson", True, False),
        ("application/x-ndjson;q=0", False, False),
        ("text/event-stream", False, True),
        ("text/*;q=0.1", False, True),
        ("text/event-stream;q=0, */*", False, False),
        ("text/event-stream;q=nonsense", False, False),
    ],
)
def test_accept_decides_the_form_of_the_answer(accept: str, lines: bool, events: bool) -> None:
    head = read(f"Accept: {accept}") if accept else read()
    assert wants_lines(head) is lines
    assert takes_events(head) is events


def test_quality_takes_the_exact_name_before_a_wildcard() -> None:
    assert quality("*/*, text/html;q=0.2", ("text/html", "*/*")) == 0.2


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost:4000", "127.0.0.1", "127.255.255.254:1", "[::1]", "[::1]:99999"],
)
def test_our_own_names_are_accepted(host: str) -> None:
    assert Hosts(("localhost", "127.0.0.0/8", "[::1]")).accepts(host)


FOREIGN = [
    *("", "evil.example", "localhost.evil.example", "128.0.0.1", "127.0.0.1.evil.example", "localhost@evil"),
    *("[::2]", "::1", "localhost:", "localhost:x", "127.1", "0x7f.1", "2130706433", "localhost,evil"),
]


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_are_not(host: str) -> None:
    assert not Hosts(("localhost", "127.0.0.0/8", "[::1]")).accepts(host)


def test_a_configured_name_with_a_port_means_that_port_alone() -> None:
    hosts = Hosts(("topics.example:80", "other.example"))
    assert hosts.accepts("topics.example:80")
    assert not hosts.accepts("topics.example:81")
    assert hosts.accepts("other.example:5")
    with pytest.raises(ValueError, match="not a host"):
        Hosts(("a b",))


@pytest.mark.parametrize("origin", ["http://localhost:1", "http://evil.example", "null", "file://", "localhost", ""])
def test_another_origin_is_403(origin: str) -> None:
    with pytest.raises(Refused) as caught:
        check(read(f"Origin: {origin}"), None)
    assert caught.value.code is Code.FORBIDDEN


def test_the_same_origin_passes() -> None:
    check(read("Origin: http://LOCALHOST", "Sec-Fetch-Site: same-origin"), None)
    check(read("Sec-Fetch-Site: none"), None)


def routed(line: str, *lines: str) -> Head:
    head = read(*lines, line=line)
    assign(head, Gate((), closed=False, probe_auth=False), False, Limits(body_bytes=1000))
    return head


def test_every_route_is_found_by_its_path() -> None:
    for pattern, methods in ROUTES.items():
        path = "/" + "/".join({":topic": "t", ":param": "p"}.get(part, part) for part in pattern)
        for method in methods:
            kind = "application/json" if Content.JSON in methods[method].kinds else "application/x-ndjson"
            lines = [] if method == "GET" else [f"Content-Type: {kind}", "Content-Length: 2"]
            head = routed(f"{method} {path} HTTP/1.1", *lines)
            assert head.route is methods[method]
            assert head.name == ("t" if ":topic" in pattern else "")
            assert head.param == ("p" if ":param" in pattern else "")


@pytest.mark.parametrize(
    ("line", "lines", "code"),
    [
        ("BREW /nothing HTTP/1.1", [], Code.INVALID_REQUEST),
        ("PATCH /nothing HTTP/1.1", ["Content-Length: 99999"], Code.NOT_FOUND),
        ("PATCH /v0/topics/a%20b HTTP/1.1", ["Content-Length: 99999"], Code.METHOD_NOT_ALLOWED),
        ("POST /v0/topics/a%20b HTTP/1.1", ["Content-Length: 99999"], Code.INVALID_REQUEST),
        ("POST /v0/topics/a HTTP/1.1", ["Content-Length: 99999"], Code.PAYLOAD_TOO_LARGE),
        ("POST /v0/topics/a HTTP/1.1", [], Code.LENGTH_REQUIRED),
        ("POST /v0/topics/a HTTP/1.1", ["Content-Length: 5"], Code.UNSUPPORTED_MEDIA_TYPE),
        ("GET /v0/topics/ HTTP/1.1", [], Code.NOT_FOUND),
        ("GET /v0/topics/a/ HTTP/1.1", [], Code.NOT_FOUND),
        ("GET //v0/topics HTTP/1.1", [], Code.NOT_FOUND),
        ("OPTIONS * HTTP/1.1", [], Code.NOT_FOUND),
    ],
)
def test_the_checks_come_in_the_order_of_the_page(line: str, lines: list[str], code: Code) -> None:
    with pytest.raises(Refused) as caught:
        routed(line, *lines)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("encodings", "wanted"),
    [
        *[("gzip", True), ("br, gzip", True), ("gzip;q=0.001", True), ("gzip, identity", True), ("gzip;q=1.0", True)],
        *[("", False), ("*", False), ("br", False), ("gzip;q=0", False), ("gzip;q=0.000, *", False)],
        *[("gzip;q=0.1, identity", False), ("gzip;q=x", False), ("gzip;q=-1", False), ("gzip;q=nan", False)],
        *[("xgzip", False), ("gzip2", False), ("gzip, identity;q=0", True)],
    ],
)
def test_gzip_is_given_to_who_asks_for_it_by_name_and_likes_nothing_better(encodings: str, wanted: bool) -> None:
    assert wants_gzip(encodings) is wanted
