"""§1, the row HTTP: keep-alive, pipelining, framing; and what a hostile client gets for bad framing (faults.md).

These cases write their own bytes: heads that no library would send, two requests in one packet, one request in many.
"""

from __future__ import annotations

import time

from tests.conformance import rawjson
from tests.conformance.kit import JSON, Answer, Api, Needs, case, check_error, each, holds, same
from tests.conformance.wire import Connection


def head(api: Api, line: str, *headers: str) -> bytes:
    """A request head with a good `Host` and the full key."""
    auth = [f"{name}: {value}" for name, value in api.auth()]
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {api.target.host_header}", *auth, *headers, "", ""]).encode(
        "latin-1"
    )


def answers(connection: Connection, count: int) -> list[Answer]:
    """The next answers of a connection."""
    return [Answer(connection.read_response()) for _ in range(count)]


@case("1 http")
def a_connection_is_kept(api: Api) -> None:
    """HTTP 1.1 with keep-alive: many requests over one connection, refusals among them."""
    topic = api.topic()
    with api.connect() as connection:
        for turn in range(20):
            body = {"records": [{"data": turn}]} if turn % 3 else b"{"
            connection.send(api.bytes_of("POST", f"/v0/topics/{topic}", body))
            status = answers(connection, 1)[0].status
            holds(status in ((200, 201) if turn % 3 else (400,)), f"turn {turn}: {status}")


@case("1 http")
def connection_close_is_kept_to(api: Api) -> None:
    """`Connection: close` closes after the answer."""
    with api.connect() as connection:
        connection.send(head(api, "GET /v0/health", "Connection: close"))
        same(answers(connection, 1)[0].status, 200, "status")
        holds(connection.is_closed(), "the connection stays open")


@case("1 http")
def pipelined_requests_are_answered_in_order(api: Api) -> None:
    """HTTP/1.1 with pipelining: answers come in the order of the requests, each sees what was before it."""
    topic = api.topic()
    requests = []
    for turn in range(25):
        requests.append(api.bytes_of("POST", f"/v0/topics/{topic}", {"records": [{"data": turn}]}))
        requests.append(api.bytes_of("POST", f"/v0/topics/{topic}/diff", {"from_seq": turn}))
    with api.connect() as connection:
        connection.send(b"".join(requests))
        for turn in range(25):
            written, page = answers(connection, 2)
            same(written.json["first_seq"], turn + 1, "first_seq")
            same([one["data"] for one in page.json["records"]], [turn], f"page {turn}")


@case("1 http")
def pipelining_passes_over_refusals(api: Api) -> None:
    """A refusal inside a pipeline concerns its request alone."""
    topic = api.topic()
    with api.connect() as connection:
        connection.send(
            api.bytes_of("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]})
            + api.bytes_of("POST", f"/v0/topics/{topic}", b"{")
            + api.bytes_of("GET", "/v0/nope")
            + api.bytes_of("PATCH", "/v0/health")
            + api.bytes_of("POST", f"/v0/topics/{topic}", {"records": [{"data": 2}]})
        )
        same([answer.status for answer in answers(connection, 5)], [201, 400, 404, 405, 200], "statuses")


@case("1 http")
def a_slow_request_does_not_let_others_overtake(api: Api) -> None:
    """A long poll in a pipeline is answered before what came after it."""
    topic = api.topic()
    api.put(topic)
    with api.connect() as connection:
        connection.send(
            api.bytes_of("POST", f"/v0/topics/{topic}/diff", {"wait_ms": 300}) + api.bytes_of("GET", "/v0/health")
        )
        first, second = answers(connection, 2)
        same(first.json["records"], [], "the long poll's records")
        same(second.json["status"], "ok", "health")


@case("1 http")
def a_request_may_come_byte_by_byte(api: Api) -> None:
    """Where packets are cut does not matter."""
    topic = api.topic()
    request = api.bytes_of("POST", f"/v0/topics/{topic}", '{"records":[{"data":"é→🚀"}]}'.encode())
    with api.connect() as connection:
        for index in range(len(request)):
            connection.send(request[index : index + 1])
        same(answers(connection, 1)[0].status, 201, "status")
    same(api.datas(topic), ["é→🚀"], "data")


@each("1 http", [(str(size), size) for size in (1, 7, 4096)])
def a_body_may_be_chunked(api: Api, size: int) -> None:
    """HTTP 1.1: a body may come in chunks of any size, with extensions and trailers."""
    topic = api.topic()
    body = b'{"records":[{"data":"' + b"x" * 600 + b'"},{"data":1.10}]}'
    chunks = b"".join(
        b"%x;ext=1\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
    )
    with api.connect() as connection:
        connection.send(head(api, f"POST /v0/topics/{topic}", f"Content-Type: {JSON}", "Transfer-Encoding: chunked"))
        connection.send(chunks + b"0\r\nX-Trailer: 1\r\n\r\n")
        connection.send(head(api, "GET /v0/health"))
        written, health = answers(connection, 2)
    same((written.status, health.status), (201, 200), "statuses")
    same(api.datas(topic), ["x" * 600, 1.1], "data")


@case("1 http")
def expect_100_continue_is_answered(api: Api) -> None:
    """HTTP 1.1: who expects `100-continue` gets it before the body has to be sent."""
    topic = api.topic()
    body = b'{"records":[{"data":1}]}'
    with api.connect() as connection:
        lines = (f"Content-Type: {JSON}", f"Content-Length: {len(body)}", "Expect: 100-continue")
        connection.send(head(api, f"POST /v0/topics/{topic}", *lines))
        same(connection.read_response(skip_continue=False).status, 100, "status before the body")
        connection.send(body)
        same(answers(connection, 1)[0].status, 201, "status after the body")


@case("1 http")
def header_names_have_no_case(api: Api) -> None:
    """HTTP 1.1: header names have no case, values may be padded."""
    topic = api.topic()
    body = b'{"records":[{"data":1}]}'
    lines = ("cOnTeNt-TyPe:application/json", f"CONTENT-LENGTH: \t{len(body)} \t", "idempotency-KEY:  k1 ")
    with api.connect() as connection:
        for _ in range(2):
            connection.send(head(api, f"POST /v0/topics/{topic}", *lines) + body)
        first, second = answers(connection, 2)
    same((first.status, second.json["deduped"]), (201, True), "status, deduped")


@case("1 http")
def a_half_closed_client_gets_its_answer(api: Api) -> None:
    """A client that has said all it has to say still gets its answer."""
    with api.connect() as connection:
        connection.send(head(api, "GET /v0/health"))
        connection.half_close()
        same(answers(connection, 1)[0].status, 200, "status")


@case("1 http")
def query_strings_are_read_like_forms(api: Api) -> None:
    """Query parameters: percent-decoded, in any order, unknown ones do no harm."""
    topic = api.topic(":q")
    api.write(topic, 1)
    state = api.state(topic, "?x=1&touch=%66alse&y")
    same(state["last_read_ts"], None, "last_read_ts")
    quoted = topic.replace(":", "%3A")
    listed = api.call("GET", f"/v0/topics?page_size=1&prefix={quoted}", status=200).json["topics"]
    same([one["topic"] for one in listed], [topic], "list by an encoded prefix")


BAD_HEADS: list[tuple[str, tuple[str, ...], bytes]] = [
    ("CL and TE", ("Content-Length: 4", "Transfer-Encoding: chunked"), b"0\r\n\r\n"),
    ("two lengths that differ", ("Content-Length: 2", "Content-Length: 3"), b"{}\n"),
    ("list of lengths", ("Content-Length: 2, 3",), b"{}\n"),
    ("length with plus", ("Content-Length: +2",), b"{}"),
    ("length with underscore", ("Content-Length: 1_0",), b"{}        "),
    ("hex length", ("Content-Length: 0x2",), b"{}"),
    ("negative length", ("Content-Length: -2",), b"{}"),
    ("length in other digits", ("Content-Length: \xb2",), b"{}"),
    ("TE gzip", ("Transfer-Encoding: gzip",), b""),
    ("TE xchunked", ("Transfer-Encoding: xchunked",), b"0\r\n\r\n"),
    ("TE chunked twice", ("Transfer-Encoding: chunked, chunked",), b"0\r\n\r\n"),
    ("TE chunked not last", ("Transfer-Encoding: chunked, gzip",), b"0\r\n\r\n"),
    ("blank before the colon", ("Content-Length : 2",), b"{}"),
    ("folded header", ("X-Folded: a", " b"), b""),
    ("header without a colon", ("no colon here",), b""),
    ("empty header name", (": x",), b""),
    ("NUL in a value", ("X-Nul: a\x00b",), b""),
    ("bare CR in a value", ("X-Cr: a\rb",), b""),
    ("bad chunk size", ("Transfer-Encoding: chunked",), b"zz\r\n{}\r\n0\r\n\r\n"),
    ("chunk size with minus", ("Transfer-Encoding: chunked",), b"-2\r\n{}\r\n0\r\n\r\n"),
    ("chunk without CRLF", ("Transfer-Encoding: chunked",), b"2\r\n{}xx0\r\n\r\n"),
    ("huge chunk size", ("Transfer-Encoding: chunked",), b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
]


@each("1 http", [(name, (lines, body)) for name, lines, body in BAD_HEADS])
def bad_framing_is_400_and_close(api: Api, shape: tuple[tuple[str, ...], bytes]) -> None:
    """CL+TE, two CLs, TE not exactly chunked, obs-fold → 400 and close; nothing after it is a request."""
    lines, body = shape
    topic = api.topic()
    smuggled = api.bytes_of("PUT", f"/v0/topics/{topic}", {})
    with api.connect() as connection:
        connection.send(head(api, f"POST /v0/topics/{topic}/diff", f"Content-Type: {JSON}", *lines) + body + smuggled)
        answer = Answer(connection.read_response())
        same(answer.status, 400, f"status ({answer.raw[:200]!r})")
        same(check_error(answer)["code"], "invalid_request", "code")
        holds(connection.is_closed(), "the connection stays open")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


BAD_STARTS = [
    ("bare LF", b"GET /v0/health HTTP/1.1\nHost: localhost\n\n"),
    ("no version", b"GET /v0/health\r\n\r\n"),
    ("bad version", b"GET /v0/health HTTP/9.9\r\nHost: localhost\r\n\r\n"),
    ("blank in the path", b"GET /v0/health x HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("control character in the path", b"GET /v0/\x01health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("no host", b"GET /v0/health HTTP/1.1\r\n\r\n"),
    ("two hosts", b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300),
    ("redis", b"*1\r\n$4\r\nPING\r\n"),
    ("smtp", b"EHLO localhost\r\nMAIL FROM:<a@b>\r\n\r\n"),
]


@each("1 http", BAD_STARTS)
def what_is_not_http_is_refused_and_closed(api: Api, data: bytes) -> None:
    """Non-HTTP bytes close the connection at once, with a 400 where an answer can be given."""
    with api.connect() as connection:
        connection.send(data)
        got = connection.read_to_end(time.monotonic() + 5)
    holds(got == b"" or got.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 ")), f"got {got[:200]!r}")
    holds(got.count(b"HTTP/1.1 4") <= 1, f"more than one answer: {got[:400]!r}")


@case("1 http")
def a_long_url_is_414(api: Api) -> None:
    """414 `uri_too_long`."""
    for path in ("/v0/topics/" + "x" * 9000, "/v0/topics?prefix=" + "y" * 20_000):
        api.refused("GET", path, status=414, code="uri_too_long")


@case("1 http")
def many_or_large_headers_are_431(api: Api) -> None:
    """431 `headers_too_large`."""
    many = tuple((f"X-{index}", "v") for index in range(150))
    api.refused("GET", "/v0/health", headers=many, status=431, code="headers_too_large")
    large = tuple((f"X-{index}", "v" * 6000) for index in range(12))
    api.refused("GET", "/v0/health", headers=large, status=431, code="headers_too_large")


@case("1 http")
def a_413_is_readable_though_the_body_was_not_read(api: Api) -> None:
    """A 413 is readable although the body was not read; `detail.limit` and `detail.max` say the bound."""
    topic = api.topic()
    length = (64 << 20) + 1
    with api.connect() as connection:
        connection.send(
            head(api, f"POST /v0/topics/{topic}", f"Content-Type: {JSON}", f"Content-Length: {length}")
            + b'{"records":['
            + b" " * 300_000
        )
        answer = Answer(connection.read_response())
    same(answer.status, 413, "status")
    error = check_error(answer)
    same(error["code"], "payload_too_large", "code")
    same(error.get("detail", {}).get("limit"), "max_body_bytes", "detail.limit")
    same(error.get("detail", {}).get("max"), 64 << 20, "detail.max")


@case("1 http")
def a_post_without_a_length_has_no_body(api: Api) -> None:
    """A POST without `Content-Length` (as `curl -X POST` sends it) is a request without a body."""
    topic = api.topic()
    api.write(topic, 1)
    with api.connect() as connection:
        connection.send(head(api, f"POST /v0/topics/{topic}/diff"))
        same(answers(connection, 1)[0].status, 200, "status of a diff without a body")
    detail = api.call("POST", f"/v0/topics/{topic}", media=None, status=(400, 411)).json["error"]
    holds(detail["code"] in ("invalid_request", "length_required"), f"code {detail['code']}")


FOREIGN_HOSTS = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:4000",
    "169.254.1.1",
    "0.0.0.0",
    "0.0.0.0:4000",
    "[::2]",
    "[::]",
]


@each("1 hosts", [(name, name) for name in FOREIGN_HOSTS], Needs.TCP)
def a_foreign_host_is_421(api: Api, name: str) -> None:
    """421 `misdirected` (`Host` not accepted), before routing."""
    for path in ("/v0/topics", "/v0/nope", "/v0/health"):
        with api.connect() as connection:
            connection.send(f"GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            answer = Answer(connection.read_response())
            same(answer.status, 421, f"status of {path}")
            same(check_error(answer)["code"], "misdirected", "code")


LOCAL_HOSTS = ["localhost", "localhost:1", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:4000", "LOCALHOST"]


@each("1 hosts", [(name, name) for name in LOCAL_HOSTS])
def a_loopback_host_is_taken(api: Api, name: str) -> None:
    """Accepted hosts: `localhost`, `127.0.0.0/8`, `[::1]`, any port."""
    with api.connect() as connection:
        connection.send(f"GET /v0/health HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        same(Answer(connection.read_response()).status, 200, "status")


@each("1 hosts", [(name, name) for name in ("https://evil.example", "null", "http://localhost.evil.example")])
def a_foreign_origin_is_403(api: Api, origin: str) -> None:
    """An `Origin` header that is not allowed is refused on state-changing requests; no CORS headers are sent."""
    topic = api.topic()
    answer = api.call("PUT", f"/v0/topics/{topic}", {}, headers=(("Origin", origin),), status=403)
    same(answer.json["error"]["code"], "forbidden", "code")
    cors = [name for name, _ in answer.response.headers if name.startswith("access-control-")]
    same(cors, [], "CORS headers")
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")


@case("1 hosts")
def a_preflight_gets_no_permission(api: Api) -> None:
    """No CORS headers are sent by default: a preflight is just a wrong method."""
    topic = api.topic()
    headers = (("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST"))
    answer = api.call("OPTIONS", f"/v0/topics/{topic}", headers=headers, status=(403, 405))
    cors = [name for name, _ in answer.response.headers if name.startswith("access-control-")]
    same(cors, [], "CORS headers")


@case("1 http")
def a_vanishing_client_harms_nobody(api: Api) -> None:
    """A client that vanishes in the middle of a request leaves nothing behind."""
    topic = api.topic()
    request = api.bytes_of("POST", f"/v0/topics/{topic}", {"records": [{"data": "x" * 2000}]})
    for cut in (10, len(request) - 1500, len(request) - 1):
        with api.connect() as connection:
            connection.send(request[:cut])
    api.refused("GET", f"/v0/topics/{topic}", status=404, code="topic_not_found")
    api.write(topic, 1)
    with api.connect() as connection:
        connection.send(api.bytes_of("POST", f"/v0/topics/{topic}/diff", {"from_seq": 1, "wait_ms": 20_000}))
    same(api.state(topic)["head_seq"], 1, "head")


@case("1 http")
def answers_have_a_length_and_the_type(api: Api) -> None:
    """Answers say `Content-Length` and `Content-Type: application/json`; JSON is UTF-8."""
    answer = api.call("GET", "/v0/health", status=200).response
    same(answer.header("content-length"), str(len(answer.body)), "Content-Length")
    media = (answer.header("content-type") or "").replace(" ", "").lower()
    holds(media in ("application/json", "application/json;charset=utf-8"), f"Content-Type {media}")
    rawjson.parse(answer.body)
