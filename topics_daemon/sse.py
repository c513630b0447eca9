"""The bytes of server-sent events, and the ids with which a reader comes back (http-api.md §7).

Pure. An event is three lines and an empty one; a payload with raw line breaks in it (JSON allows them between tokens)
becomes several `data:` lines, which a reader puts together again. Ids say where a session stands in every one of its
topics: readable JSON for up to 64 topics, packed numbers beyond.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from engine.types import Page

STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n"
    b"x-accel-buffering: no\r\nconnection: close\r\n\r\nretry: 2000\n\n"
)
OPENED: Final = STREAM_HEAD[:12]
"""How the answer to the opening of a stream begins, for who counts it."""
JSON_ID_TOPICS_MAX: Final = 64
"""Sessions with more topics have packed ids."""
_PACKED: Final = 0x01
"""First byte of a packed id; a JSON one begins with a brace."""


def data_lines(payload: bytes) -> bytes:
    """`data:` lines of a payload, the last line feed included."""
    if b"\n" in payload or b"\r" in payload:
        payload = payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"data: %b\n" % payload


def event(name: bytes, data: bytes, position: bytes) -> bytes:
    """A whole event; `data` is what `data_lines` made."""
    return b"event: %b\nid: %b\n%b\n" % (name, position, data)


def record_payload(topic: bytes, page: Page) -> bytes:
    """The data of a `record` event, before it is cut into lines."""
    return b"".join(
        [
            b'{"topic":"%b","records":[' % topic,
            *page.pieces,
            b'],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (page.from_seq, page.next_from_seq, page.head_seq),
        ]
    )


def newest_payload(topic: bytes, records: bytes, from_seq: int, head_seq: int) -> bytes:
    """The same for records behind `from_seq` up to the head, joined by commas."""
    return b'{"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
        topic,
        records,
        from_seq,
        head_seq,
        head_seq,
    )


def tombstone_shown(topic: str, page: Page) -> dict[str, object]:
    """What a `tombstone` event says; the page has one."""
    tombstone = page.tombstone
    assert tombstone is not None
    return {
        "topic": topic,
        "reason": tombstone.reason,
        "gap_from": tombstone.gap_from,
        "gap_to": tombstone.gap_to,
        "missed_estimate": tombstone.missed_estimate,
        "earliest_seq": tombstone.earliest_seq,
        "head_seq": tombstone.head_seq,
    }


def json_data(value: dict[str, Any]) -> bytes:
    """The data of any other event."""
    return data_lines(msgspec.json.encode(value))


def heartbeat(now_ms: int) -> bytes:
    """A comment that shows life; never an id."""
    return b": hb %d\n\n" % now_ms


def pack_position(cursors: Mapping[str, int]) -> bytes:
    """The id for where a session stands, its topics in the session's order."""
    if len(cursors) > JSON_ID_TOPICS_MAX:
        raw = bytes([_PACKED]) + b"".join(_varint(seq) for seq in cursors.values())
    else:
        raw = msgspec.json.encode(cursors)
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_POSITIONS: Final = msgspec.json.Decoder(dict[str, int])


def unpack_position(text: str, topics: Sequence[str]) -> dict[str, int]:
    """What an id says; `topics` are those of the session. Empty for what is no id of this session."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return {}
    if raw[:1] == bytes([_PACKED]):
        values = _unpack_varints(raw[1:])
        return dict(zip(topics, values, strict=True)) if len(values) == len(topics) else {}
    try:
        cursors = _POSITIONS.decode(raw)
    except msgspec.MsgspecError:
        return {}
    return {name: seq for name, seq in cursors.items() if seq >= 0}


def _unpack_varints(raw: bytes) -> list[int]:
    values: list[int] = []
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values
