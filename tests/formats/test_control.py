"""Bodies of control frames."""

from __future__ import annotations

import pytest

from engine.formats.append import BadBody
from engine.formats.control import (
    ConfigBody,
    ControlBody,
    CreateBody,
    CursorPutBody,
    DeleteBody,
    DropBody,
    GapBody,
    MarkBody,
    ReserveBody,
    decode_control_body,
    encode_control_body,
)
from engine.formats.frame import FrameType
from engine.types import Durability, Reason, TopicConfig

BODIES: list[tuple[FrameType, ControlBody]] = [
    (FrameType.CREATE, CreateBody(name="a", epoch=3, config=TopicConfig(durability=Durability.FSYNC, priority=-4))),
    (FrameType.CONFIG, ConfigBody(config=TopicConfig(dead_letter="dead", ttl_ms=2**64 - 1))),
    (FrameType.DROP, DropBody()),
    (FrameType.DELETE, DeleteBody(ranges=[(1, 5), (9, 9)])),
    (FrameType.GAP, GapBody(first=1, last=2**64 - 1, reason=Reason.CRASH)),
    (FrameType.MARK, MarkBody(heads=[(1, 5)], quiet=[1, 2])),
    (FrameType.RESERVE, ReserveBody(upto=65536)),
    (FrameType.CURSOR_PUT, CursorPutBody(name="reader", seq=7)),
    (FrameType.CURSOR_PUT, CursorPutBody(name="reader", seq=None)),
]


@pytest.mark.parametrize(("type_", "body"), BODIES)
def test_a_body_comes_back_and_is_never_empty(type_: FrameType, body: ControlBody) -> None:
    encoded = encode_control_body(body)
    assert encoded.startswith(b"{")
    assert b"\0" not in encoded
    assert decode_control_body(type_, encoded) == body


@pytest.mark.parametrize(("type_", "body"), BODIES)
def test_a_member_of_a_later_version_is_passed_over(type_: FrameType, body: ControlBody) -> None:
    encoded = encode_control_body(body)
    more = encoded[:-1] + (b"," if len(encoded) > 2 else b"") + b'"later":[1]}'
    assert decode_control_body(type_, more) == body


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"name":3}', b"\xff", b"{" * 500])
def test_what_is_no_such_body_is_refused(body: bytes) -> None:
    for type_ in (FrameType.CREATE, FrameType.DELETE, FrameType.GAP):
        with pytest.raises(BadBody):
            decode_control_body(type_, body)


@pytest.mark.parametrize("type_", [0, FrameType.APPEND, FrameType.FORWARD, 99])
def test_a_type_without_a_control_body_is_refused(type_: int) -> None:
    with pytest.raises(BadBody):
        decode_control_body(type_, b"{}")
