"""Answers on their way out: status lines, headers, error bodies, and the `performance` object.

JSON of ours is compact, and on the hot path it is formatted straight into bytes (measured: `bytes %` 0.7 µs for a
write answer, an f-string that is then encoded 1.2). No value that a client gave ever becomes a header: what goes
there comes from the tables in this file.
"""

from __future__ import annotations

import os
import time
import zlib
from functools import lru_cache
from typing import Any, Final

import msgspec

from engine.errors import STATUS, Code, TopicsError
from topics_daemon.head import Head, wants_lines

JSON: Final = b"application/json"
NDJSON: Final = b"application/x-ndjson"

PHRASES: Final[dict[int, bytes]] = {
    200: b"OK",
    201: b"Created",
    207: b"Multi-Status",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    409: b"Conflict",
    411: b"Length Required",
    413: b"Payload Too Large",
    414: b"URI Too Long",
    415: b"Unsupported Media Type",
    421: b"Misdirected Request",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    507: b"Insufficient Storage",
}
assert set(STATUS.values()) <= set(PHRASES)

CREATED_JSON: Final = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

RETRY_AFTER_S: Final[dict[Code, int]] = {
    Code.THROTTLED: 1,
    Code.NOT_READY: 1,
    Code.TOPIC_MOVING: 1,
    Code.SHUTTING_DOWN: 2,
    Code.COLD_UNAVAILABLE: 5,
    Code.READ_ONLY: 30,
    Code.DISK_FULL: 10,
}
"""`Retry-After` in seconds for what may succeed later: a start takes a second, an operator longer."""

GZIP_BYTES_MIN: Final = 1024
"""Smaller answers are sent as they are: compressing them costs more than it saves."""
GZIP_BYTES_MAX: Final = 1024 * 1024
"""Larger ones too: compressing holds the loop, 8 ms for this many bytes."""
GZIP_LEVEL: Final = 1

_STATUS_LINES: Final = {
    status: b"HTTP/1.1 %d %b\r\ncontent-type: " % (status, phrase) for status, phrase in PHRASES.items()
}


@lru_cache(maxsize=4096)
def ok_head(length: int) -> bytes:
    """What stands before a body of JSON in the hot path's whole answer, where `Head.plain` allows it."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length


def respond(
    head: Head | None,
    status: int,
    body: bytes,
    content_type: bytes = JSON,
    extra: bytes = b"",
    *,
    close: bool = False,
) -> bytes:
    """A whole answer. `extra` are complete header lines; `head` is None when the request could not be read."""
    if head is not None and head.gzip and GZIP_BYTES_MIN <= len(body) <= GZIP_BYTES_MAX:
        packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
        body = packer.compress(body) + packer.flush()
        extra += b"content-encoding: gzip\r\nvary: accept-encoding\r\n"
    if close or (head is not None and not head.keep_alive):
        extra += b"connection: close\r\n"
    elif head is not None and head.minor == 0:
        extra += b"connection: keep-alive\r\n"
    top = b"%b%b\r\ncontent-length: %d\r\n%b\r\n" % (_STATUS_LINES[status], content_type, len(body), extra)
    return top if head is not None and head.method == "HEAD" else top + body


def elapsed_ms(started_ns: int) -> float:
    """Milliseconds since `started_ns`, with three digits."""
    return (time.perf_counter_ns() - started_ns) // 1000 / 1000


def error_shown(error: TopicsError) -> dict[str, Any]:
    """An error as the wire shows it."""
    shown: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.detail is not None:
        shown["detail"] = error.detail
    return shown


def error_body(error: TopicsError, started_ns: int) -> bytes:
    """The one body of every answer from 400 up."""
    return msgspec.json.encode(
        {"error": error_shown(error), "performance": {"server_total_ms": elapsed_ms(started_ns)}}
    )


def error_answer(head: Head | None, error: TopicsError, started_ns: int, *, close: bool = False) -> bytes:
    """The whole answer that says `error`, as far as who asked may hear it."""
    if head is not None and head.caller is not None:
        error = head.caller.masked(error)
    return respond(head, error.status, error_body(error, started_ns), JSON, _lines_of(error), close=close)


def _lines_of(error: TopicsError) -> bytes:
    """The lines of an answer's head that say `error`."""
    if error.code is Code.UNAUTHORIZED:
        return b"www-authenticate: Bearer\r\n"
    if error.code is Code.METHOD_NOT_ALLOWED and error.detail is not None:
        return b"allow: %b\r\n" % ", ".join(error.detail["allow"]).encode("ascii")
    seconds = RETRY_AFTER_S.get(error.code)
    if error.detail is not None and "retry_after_ms" in error.detail:
        seconds = -(-error.detail["retry_after_ms"] // 1000)
    return b"" if seconds is None else b"retry-after: %d\r\n" % seconds


class Repeated:
    """An error that many are answered with: all but the time that each took is made once (2.1 µs, then 0.6).

    Its details name nothing that anybody must not hear. It is never raised itself, but `error.anew()`.
    """

    __slots__ = ("_body", "_rest", "_top", "error")

    def __init__(self, error: TopicsError) -> None:
        self.error = error
        self._top = _STATUS_LINES[error.status] + JSON + b"\r\ncontent-length: "
        self._rest = b"\r\n" + _lines_of(error) + b"\r\n"
        self._body = b'{"error":' + msgspec.json.encode(error_shown(error)) + b',"performance":{"server_total_ms":'

    def answer(self, head: Head, started_ns: int) -> bytes:
        """The whole answer to a request that is not a HEAD; it is too small to be compressed."""
        if not head.keep_alive or head.minor == 0:
            return error_answer(head, self.error, started_ns)
        body = b"%b%.3f}}" % (self._body, (time.perf_counter_ns() - started_ns) / 1e6)
        return b"%b%d%b%b" % (self._top, len(body), self._rest, body)


def path_shown(path: str) -> str:
    """A path as text that JSON can hold: bytes of it that are no UTF-8 become `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def json_answer(
    head: Head | None, status: int, value: dict[str, Any], warnings: list[str] | None, started_ns: int
) -> bytes:
    """A whole answer for what is not hot: the value, `warnings` if there are any, and `performance`."""
    if warnings:
        value["warnings"] = warnings
    value.setdefault("performance", {})["server_total_ms"] = elapsed_ms(started_ns)
    return respond(head, status, msgspec.json.encode(value))


def list_answer(
    head: Head, shown: dict[str, Any], following: str | None, warnings: list[str], started_ns: int
) -> bytes:
    """A page of a list, whose rows are the last member of `shown`; for who wants NDJSON they are a line each.

    `following` is the cursor of the next page, if there is one.
    """
    page: dict[str, Any] = {} if following is None else {"next_cursor": following}
    if not wants_lines(head):
        return json_answer(head, 200, {**shown, **page}, warnings, started_ns)
    if warnings:
        page["warnings"] = warnings
    *_, rows = shown.values()
    lines = [msgspec.json.encode(row) for row in (*rows, {"$page": page})]
    return respond(head, 200, b"\n".join(lines) + b"\n", NDJSON)


def warnings_tail(warnings: list[str] | None) -> bytes:
    """The member that a formatted body appends for its warnings, comma first; empty without any."""
    return b',"warnings":' + msgspec.json.encode(warnings) if warnings else b""
