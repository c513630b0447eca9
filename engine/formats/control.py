"""The bodies of control frames: compact JSON, one structure a type (FORMATS.md, "Control bodies").

They are rare and small, so they are readable; the frame's checks guard them. Members that a version does not know are
passed over, members that it needs and misses are an error: a new member is therefore always optional.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from engine.formats.append import BadBody
from engine.formats.frame import FrameType
from engine.formats.moving import MoveBody
from engine.types import Reason, TopicConfig


class CreateBody(msgspec.Struct, frozen=True, kw_only=True):
    """A topic began; its id is in the header."""

    name: str
    epoch: int
    config: TopicConfig


class ConfigBody(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's configuration from here on, whole."""

    config: TopicConfig


class DropBody(msgspec.Struct, frozen=True, kw_only=True):
    """A topic ended."""


class DeleteBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records deleted on purpose, as inclusive ranges of seqs: resolved when it was decided."""

    ranges: list[tuple[int, int]]
    acked: bool = False
    """The holder of their leases was done with them."""
    moved: bool = False
    """They went to the dead letters, in a topic whose records are in no log or from one."""


class GapBody(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "last": "to"}):
    """A loss that became known: an inclusive range of seqs that no reader gets, and why."""

    first: int
    last: int
    reason: Reason


class MarkBody(msgspec.Struct, frozen=True, kw_only=True):
    """Heads of topics that changed since the last mark, and which topics are quiet; the header has `durable_lsn`."""

    heads: list[tuple[int, int]] = []
    quiet: list[int] = []


class ReserveBody(msgspec.Struct, frozen=True, kw_only=True):
    """An ephemeral topic may have used every seq up to this one."""

    upto: int


class CursorPutBody(msgspec.Struct, frozen=True, kw_only=True):
    """A reader's place was set; `seq` null: it was taken away."""

    name: str
    seq: int | None


ControlBody: TypeAlias = (
    CreateBody | ConfigBody | DropBody | DeleteBody | GapBody | MarkBody | ReserveBody | CursorPutBody | MoveBody
)

_encoder: Final = msgspec.json.Encoder()
_DECODERS: Final[dict[int, msgspec.json.Decoder[ControlBody]]] = {
    FrameType.CREATE: msgspec.json.Decoder(CreateBody),
    FrameType.CONFIG: msgspec.json.Decoder(ConfigBody),
    FrameType.DROP: msgspec.json.Decoder(DropBody),
    FrameType.DELETE: msgspec.json.Decoder(DeleteBody),
    FrameType.GAP: msgspec.json.Decoder(GapBody),
    FrameType.MARK: msgspec.json.Decoder(MarkBody),
    FrameType.RESERVE: msgspec.json.Decoder(ReserveBody),
    FrameType.CURSOR_PUT: msgspec.json.Decoder(CursorPutBody),
    FrameType.MOVE: msgspec.json.Decoder(MoveBody),
}


def encode_control_body(body: ControlBody) -> bytes:
    """The body's JSON."""
    return _encoder.encode(body)


def decode_control_body(type_: int, body: bytes) -> ControlBody:
    """The opposite. Raises `BadBody` for a type without such a body, or JSON that is not one."""
    decoder = _DECODERS.get(type_)
    if decoder is None:
        raise BadBody(f"frame type {type_} has no control body that this version knows")
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BadBody(f"the body of a {FrameType(type_).name} frame: {error}") from error
