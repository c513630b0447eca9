"""What a WebSocket says, as bytes: messages of JSON, and the frames that they go in. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

_BODY: Final = b"\r\n\r\n"


class _Failed(msgspec.Struct):
    """The body of an answer from 400 up."""

    error: Raw


_FAILED: Final = msgspec.json.Decoder(_Failed)


def text_frame(payload: bytes) -> bytes:
    """A message as it goes over the wire; the same for every client (RFC 6455 §5.2: one text frame, not masked)."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), payload)


def said(op: bytes, request_id: bytes, shown: dict[str, object]) -> bytes:
    """A message; `request_id` is the member of that name, comma last, or empty."""
    return b'{"op":"%b",%b%b' % (op, request_id, msgspec.json.encode(shown)[1:])


def reply(op: bytes, request_id: bytes, answer: bytes) -> bytes:
    """The message that says what an answer of HTTP says."""
    body = answer[answer.index(_BODY) + len(_BODY) :]
    if answer[9:10] == b"2":
        return b'{"op":"%b",%b%b' % (op, request_id, body[1:])
    return b'{"op":"error",%b%b' % (request_id, bytes(_FAILED.decode(body).error)[1:])
