"""What a WebSocket hears and says, as bytes: messages of JSON, and the frames that they come and go in. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build of websockets without its extension
    from websockets.utils import apply_mask

MASKED_TEXT: Final = 0x81
"""The first byte of a text frame that is a whole message."""
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


def frame_bytes(size: int) -> int:
    """The bytes that a client's frame takes, at least, with a payload of this size."""
    return size + (6 if size < 126 else 8 if size < 1 << 16 else 14)


def whole_messages(data: bytes, size_max: int) -> tuple[list[bytes], int]:
    """The messages at the beginning of `data` that came as one masked text frame each, as nearly all do, and where
    they end. What is behind is for the protocol's core: other frames, broken ones, what has not come whole.
    """
    messages, at, end = [], 0, len(data)
    while at + 6 <= end and data[at] == MASKED_TEXT:
        size, begin = data[at + 1] - 0x80, at + 6
        if size == 126:
            size, begin = int.from_bytes(data[at + 2 : at + 4]), at + 8
        elif size == 127:
            break
        if not 0 <= size <= size_max or begin + size > end:
            break
        messages.append(apply_mask(data[begin : begin + size], data[begin - 4 : begin]))
        at = begin + size
    return messages, at


def said(op: bytes, request_id: bytes, shown: dict[str, object]) -> bytes:
    """A message; `request_id` is the member of that name, comma last, or empty."""
    return b'{"op":"%b",%b%b' % (op, request_id, msgspec.json.encode(shown)[1:])


def reply(op: bytes, request_id: bytes, answer: bytes) -> bytes:
    """The message that says what an answer of HTTP says."""
    body = answer[answer.index(_BODY) + len(_BODY) :]
    if answer[9:10] == b"2":
        return b'{"op":"%b",%b%b' % (op, request_id, body[1:])
    return b'{"op":"error",%b%b' % (request_id, bytes(_FAILED.decode(body).error)[1:])
