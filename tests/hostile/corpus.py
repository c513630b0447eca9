"""Every hostile request and connection there is: the tables of this directory, and what follows from the routes.

A `Case` is what one connection sends, and which outcomes are right: statuses of the first answer, `CLOSED` for an end
without one, or the code of a WebSocket's closing. Cases that follow from the routes are made from the OpenAPI table, so
that a new route is attacked as soon as it is there: each member of each body with values of the wrong kind, bodies that
are no object, names and numbers that none can be, queries with digits of other alphabets.
"""

from __future__ import annotations

import functools
import gzip
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tests.daemon.kit import post, request
from tests.daemon.socket_kit import frame, handshake
from tests.hostile import http1, websocket
from tests.hostile.http1 import CLOSED, GOOD, JSON, LENGTH, WRITE, head
from topics_daemon.openapi_routes import OPERATIONS

MIB = 1024 * 1024
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Case:
    """One connection that means harm."""

    name: str
    data: bytes
    right: frozenset[int]
    kind: str = "http"
    """How the outcome is read: `http`, `websocket` (after the handshake), or `any` (whatever ends, or is answered)."""


def _case(group: str, name: str, data: bytes, *right: int, kind: str = "http") -> Case:
    return Case(f"{group}: {name}", data, frozenset(right), kind)


def tables() -> Iterator[Case]:
    """What is written out by hand."""
    for name, (data, status) in {**http1.MALFORMED, **http1.REFUSED}.items():
        yield _case("http1", name, data, status)
    for name, (data, status) in http1.CHUNKS.items():
        yield _case("chunks", name, head(*http1.CHUNKED) + data, status)
    for name, (data, status) in http1.BODIES.items():
        yield _case("bodies", name, post("/v0/topics/t", data), status)
    for name, (text, status) in websocket.HANDSHAKES.items():
        yield _case("handshake", name, text.encode(), status)
    for name, (data, code) in websocket.FRAMES.items():
        yield _case("frames", name, data, code, kind="websocket")


NAMES = (
    *("", ".", "..", ".a", "-a", "_a", ":a", "a/b", "a b", "a+b", "a*", "a?b", "a#b", "a%", "a\\b", "a|b", "a;b"),
    *('a"b', "a'b", "a<b", "a>b", "a,b", "a=b", "a@b", "a!b", "a$b", "a&b", "a(b", "a~b", "a^b", "a{b", "a`b"),
    *("é", "а", "ａ", "a\u200bb", "a\u202eb", "٣", "a\x7f", "a\x00", "a\n", "a\r\nX: y", "\ufeff" + "a", "a" * 256),
    *("../../etc/passwd", "con\x1b[31m", "a\t", "💥", "%00", "%2e%2e"),
)


def names() -> Iterator[Case]:
    """Names that are none: percent-encoded in paths, as they are in bodies."""
    for name in NAMES:
        encoded = "".join(f"%{byte:02x}" for byte in name.encode())
        yield _case("name in a path", repr(name), request("GET", f"/v0/topics/{encoded}"), 400, 404)
        body = json.dumps({"topics": {name: {}}})
        yield _case("name in a body", repr(name), post("/v0/diff", body), 400)


WRONG = {
    "a string": '"x"',
    "an object": '{"a":1}',
    "a list of lists": "[[[]]]",
    "a number of 400 digits": "9" * 400,
    "minus one": "-1",
}


def members() -> Iterator[Case]:
    """Each member of each body with values of other kinds, most of which it cannot have."""
    for (method, path), operation in OPERATIONS.items():
        if operation.takes is None:
            continue
        target = path.replace(":topic", "t").replace(":param", "x")
        for text in ("[]", "7", '"x"', "null", "{", '{"a":1}}', '{"a"', "\ufeff{}", "{'a':1}", "{} {}"):
            yield _case(f"{method} {path}", f"body {text}", request(method, target, text), 400, 404, 409)
        for field in msgspec.structs.fields(operation.takes):
            example = operation.example if isinstance(operation.example, dict) else {}
            for what, value in WRONG.items():
                rest = {name: given for name, given in example.items() if name != field.name}
                body = json.dumps(rest)[:-1] + (", " if rest else "") + f'"{field.name}":{value}}}'
                yield _case(f"{method} {path}", f"{field.name} is {what}", request(method, target, body), *ANSWERED)


ANSWERED = (200, 201, 207, 400, 404, 409, 422, 429)
"""What is not refused was taken for what it is (a string is a good node), or comes while the daemon is pressed; a 5xx
and a silence are never right."""

DIGITS = ("-1", "+5", "1_0", "٥", "1e3", "0x10", " 5", "5 ", "", "NaN", "9" * 400, "1.0", "５")


def queries() -> Iterator[Case]:
    """Query parameters that are no numbers, no flags, no cursors."""
    for (method, path), operation in OPERATIONS.items():
        if path.endswith("/work"):
            continue
        target = path.replace(":topic", "t").replace(":param", "x")
        for one in operation.query:
            kind = one.schema["type"]
            values = DIGITS if kind == "integer" else ("yes", "TRUE", "", "２") if kind == "boolean" else ("%ff", "é%")
            for value in values:
                encoded = value if value.startswith("%") else "".join(f"%{byte:02x}" for byte in value.encode())
                url = f"{target}?{one.name}={encoded}"
                if (method, path) == ("POST", "/v0/topics/:topic/records"):
                    asked = request(method, url, "1\n", kind="application/x-ndjson")
                else:
                    asked = request(method, url, "{}" if operation.takes else None)
                yield _case(f"{method} {path}", f"{one.name}={value[:20]!r}", asked, *ANSWERED)
    for cursor in ("é", "!!!!", "====", "AAAA", "_" * 9000, "JSVF", "gA", "Li4"):
        encoded = "".join(f"%{byte:02x}" for byte in cursor.encode())
        for path in ("/v0/topics", "/v0/topics/t/cursors", "/v0/topics/t/leases"):
            yield _case(
                "list cursor", f"{path} {cursor[:10]}", request("GET", f"{path}?cursor={encoded}"), 400, 409, 414
            )


HEADERS = {
    "Accept": ("*" * 4000, ";;;", "q=", "application/json;q=٥", ", , ,", "text/html;q=1e400", "a/b;q=nan", "\x80\xff"),
    "Accept-Encoding": ("gzip;q=x", "gzip;q=-1", ",gzip,,", "gzip;q=0.0001;q=0", "*" * 4000, "gzip;" * 500),
    "Content-Encoding": ("gzip, gzip", "deflate", "", "x-gzip", "identity, gzip", "gzip;q=1"),
    "Content-Type": ("application/json; charset=", "application", "/", ";", "application/json\x0b", "text/xml", "*/*"),
    "Expect": ("200-ok", "100-continue, 100-continue", "x" * 4000),
    "Authorization": ("Bearer", "Bearer  ", "bearer x", "Basic !!!", "x" * 7000, "Negotiate \xff"),
    "Origin": ("null", "http://", "localhost", "http://localhost@evil.example", "file://", "http://localhost:99999999"),
    "Sec-Fetch-Site": ("cross-site", "CROSS-SITE", "same-site, cross-site", "none"),
    "Connection": ("upgrade", "close, keep-alive", "x" * 4000, "Host", "\xff"),
    "Upgrade": ("h2c", "websocket", "TLS/1.0, HTTP/2.0"),
    "Transfer-Encoding": ("chunked;q=1", " chunked", "chunked,", ",chunked", "Chunked", "chunke\u0064 ", "gzip"),
    "Content-Length": ("24;", "24 24", "٢٤", "24.0", "0x18", " 24 ", "18446744073709551640", "-0"),
    "Idempotency-Key": ("\xff\xfe", "k" * 300, "\x01", ""),
    "Range": ("bytes=0-0,0-0,0-0",),
    "X-Forwarded-For": ("127.0.0.1\x00",),
    "Host": ("localhost:", "localhost:x", "[::1", "::1", "127.1", "0x7f000001", "2130706433", "localhost.", "a" * 300),
}


def headers() -> Iterator[Case]:
    """Header values that mean something else to somebody."""
    answered = (200, 201, 400, 401, 403, 411, 413, 415, 421, 431)
    for name, values in HEADERS.items():
        for value in values:
            lines = [line for line in (*WRITE, LENGTH) if not line.startswith(f"{name}:")]
            text = "\r\n".join([*lines, f"{name}: {value}"]).encode(
                "utf-8" if "٢" in value or "٥" in value else "latin-1"
            )
            yield _case("header", f"{name}: {value[:30]!r}", text + b"\r\n\r\n" + GOOD, *answered)


def spaces_packed(mib: int) -> bytes:
    """A gzip member of so many MiB of spaces: one MiB again and again, since to compress them all takes a second."""
    squeeze, spaces = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS), b" " * MIB
    packed = squeeze.compress(spaces) + squeeze.flush(zlib.Z_FULL_FLUSH)
    check = functools.reduce(lambda check, _: zlib.crc32(spaces, check), range(mib), 0)
    end = squeeze.flush() + struct.pack("<II", check, mib * MIB)
    return gzip.compress(b"")[:10] + packed * mib + end


def packed() -> Iterator[Case]:
    """Bodies that are compressed, or say so."""
    whole, bomb = gzip.compress(GOOD), spaces_packed(100)
    bodies = {
        "a bomb of 100 MB": bomb,
        "a bomb in a bomb": gzip.compress(bomb, 9),
        "ten thousand empty members": gzip.compress(b"") * 10_000,
        "a wrong check": whole[:-8] + b"\0\0\0\0" + whole[-4:],
        "a wrong length": whole[:-4] + b"\0\0\0\1",
        "zlib instead": zlib.compress(GOOD),
        "a reserved flag": whole[:3] + b"\xe0" + whole[4:],
        "another method": whole[:2] + b"\7" + whole[3:],
        "a name without end": whole[:3] + b"\x08" + whole[4:10] + b"n" * 5000,
        "extra of 64 KiB that is not there": whole[:3] + b"\x04" + whole[4:10] + b"\xff\xff",
        "a stored block that lies": whole[:10] + b"\x01\xff\xff\x00\x00",
        "random bytes behind the head": whole[:10] + bytes(range(256)) * 4,
    }
    for name, data in bodies.items():
        yield _case("gzip", name, post("/v0/topics/t", data, "Content-Encoding: gzip"), 400, 413)
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
        chunked = head(*WRITE, "Transfer-Encoding: chunked", "Content-Encoding: gzip") + chunks
        yield _case("gzip in chunks", name, chunked, 400, 413)


def frame2(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame of HTTP/2."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def http2() -> Iterator[Case]:
    """Frames of HTTP/2 that break its rules; each ends the connection, or is answered in frames."""
    settings = frame2(4, 0, 0)
    frames = {
        "no settings first": frame2(6, 0, 0, b"\0" * 8),
        "a frame of 16 MiB": settings + frame2(0, 0, 1, b"x" * 100, 0xFFFFFF),
        "data on stream 0": settings + frame2(0, 0, 0, b"x"),
        "data on an idle stream": settings + frame2(0, 0, 1, b"x"),
        "headers on stream 0": settings + frame2(1, 4, 0, b"\x82"),
        "headers on an even stream": settings + frame2(1, 4, 2, b"\x82"),
        "headers of garbage": settings + frame2(1, 5, 1, b"\xff" * 50),
        "padding longer than the frame": settings + frame2(1, 0xD, 1, b"\xff\x82"),
        "a continuation of nothing": settings + frame2(9, 4, 1, b"\x82"),
        "data between headers and continuation": settings + frame2(1, 1, 1, b"\x82") + frame2(0, 0, 1, b"x"),
        "a ping of 7 bytes": settings + frame2(6, 0, 0, b"\0" * 7),
        "a ping on a stream": settings + frame2(6, 0, 1, b"\0" * 8),
        "settings of 5 bytes": frame2(4, 0, 0, b"\0" * 5),
        "settings on a stream": frame2(4, 0, 1),
        "a settings ack with a payload": settings + frame2(4, 1, 0, b"\0" * 6),
        "a window of 0": settings + frame2(8, 0, 0, b"\0" * 4),
        "a window that overflows": settings + frame2(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
        "a window for an idle stream": settings + frame2(8, 0, 5, b"\0\0\0\1"),
        "a reset of an idle stream": settings + frame2(3, 0, 5, b"\0" * 4),
        "a reset of 3 bytes": settings + frame2(3, 0, 1, b"\0" * 3),
        "a push": settings + frame2(5, 4, 1, b"\0\0\0\2\x82"),
        "goodbye with garbage": settings + frame2(7, 0, 0, b"\0" * 8 + b"x" * 100),
        "priority of itself": settings + frame2(2, 0, 1, b"\0\0\0\1\0"),
        "half a frame": settings + b"\0\0",
    }
    for name, data in frames.items():
        yield _case("http2", name, PREFACE + data, kind="any")
    yield _case("http2", "half a preface", PREFACE[:-3], kind="any")
    yield _case("http2", "a preface and HTTP/1", PREFACE + request("GET", "/v0/health"), kind="any")


def connections() -> Iterator[Case]:
    """Connections that stop, or say too much, at every point."""
    whole = post("/v0/topics/t", GOOD)
    for cut in range(1, len(whole), 9):
        yield _case("cut", f"after {cut} bytes", whole[:cut], kind="any")
    upgrade = handshake(key="AAAAAAAAAAAAAAAAAAAAAA==")
    for cut in range(10, len(upgrade), 40):
        yield _case("cut handshake", f"after {cut} bytes", upgrade[:cut], kind="any")
    subscribe = upgrade + frame('{"op":"subscribe","topic":"t"}')
    for cut in range(len(upgrade) + 1, len(subscribe), 5):
        yield _case("cut subscribe", f"after {cut} bytes", subscribe[:cut], kind="any")
    yield _case("flood", "pipelined garbage behind a request", whole + b"\xff" * 100_000, kind="any")
    yield _case("flood", "1000 pipelined requests, nothing read", request("GET", "/v0/topics/t") * 1000, kind="any")
    yield _case("flood", "a stream that talks", request("GET", "/v0/watch/wid_" + "A" * 22) * 100, kind="any")
    yield _case("nothing", "no byte at all", b"", kind="any")


def corpus() -> list[Case]:
    """All cases."""
    made = (tables(), names(), members(), queries(), headers(), packed(), http2(), connections())
    return [case for group in made for case in group]


__all__ = ["CLOSED", "JSON", "Case", "corpus"]
