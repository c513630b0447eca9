"""Between the two versions of HTTP: a list of fields as the head that says the same in HTTP/1.1, and back.

A request of HTTP/2 is written as a head of HTTP/1.1 and then read, judged, routed and remembered by the code that does
so for HTTP/1, so that both get the same answers; answers are made as HTTP/1.1 and said in fields. What could mean
something else once it is written down (line ends in a value, a name that is no name, two authorities) is refused here.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.errors import Code, Refused

Fields = Iterable[tuple[bytes, bytes]]

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]{1,256}")
_BREAKS: Final = re.compile(rb"[\r\n\0]")
_CONNECTION: Final = b"connection"


def _bad(message: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, message)


def as_head(fields: Fields, *, ended: bool) -> bytes:
    """The head of HTTP/1.1 that says what the fields of a request say. `ended`: whether no body follows.

    Raises the 400 of fields that say nothing which HTTP/1.1 could.
    """
    method = path = authority = host = b""
    lines: list[bytes] = []
    framed = False
    for name, value in fields:
        if _BREAKS.search(value) is not None:
            raise _bad("a header must not hold line ends")
        if name == b":method":
            method = value
        elif name == b":path":
            path = value
        elif name == b":authority":
            authority = value
        elif name == b":scheme":
            continue
        elif _NAME.fullmatch(name) is None:
            raise _bad("this is not the name of a header")
        elif name == b"host":
            if host:
                raise _bad("more than one host header")
            host = value
        elif name == b"transfer-encoding":
            raise _bad("HTTP/2 frames bodies by itself")
        else:
            framed = framed or name == b"content-length"
            lines.append(b"%b: %b\r\n" % (name, value))
    if authority and host and authority != host:
        raise _bad(":authority and host must be the same")
    if not path.startswith(b"/") and path != b"*":
        raise _bad(":path must begin with a slash")
    if authority or host:
        lines.insert(0, b"host: %b\r\n" % (authority or host))
    if not ended and not framed:
        lines.append(b"transfer-encoding: chunked\r\n")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, path, b"".join(lines))


def as_fields(answer: bytes) -> tuple[list[tuple[bytes, bytes]], int]:
    """The fields of an answer of ours, and where its body begins."""
    end = answer.index(b"\r\n\r\n")
    fields = [(b":status", answer[9:12])]
    for line in answer[:end].split(b"\r\n")[1:]:
        name, _, value = line.partition(b": ")
        if name != _CONNECTION:
            fields.append((name, value))
    return fields, end + 4
