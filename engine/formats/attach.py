"""The body of an Attach frame: a topic that came from another store, whole but for its records.

JSON of the image that a snapshot would have of it, standing at the frame. Its segments lie in files of their own with
number 0, which no checkpoint has, and are on disk before the frame is written; its deletions are all in the image.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.formats.append import BadBody
from engine.formats.snapshot import BadSnapshot, TopicImage, check_image
from engine.types import TopicConfig

ATTACHED_NUMBER: Final = 0
"""In the names of segments that came with a topic, where others have the number of their checkpoint."""


class AttachBody(msgspec.Struct, frozen=True, kw_only=True):
    """A topic began here that has a history; its new id is in the header."""

    token: str
    """Of the offer that was taken."""
    image: TopicImage
    config: TopicConfig


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(AttachBody)


def encode_attach_body(body: AttachBody) -> bytes:
    """The body's JSON. Raises `BadSnapshot` for an image that does not add up, so that no start ever meets one."""
    check_image(body.image)
    return _encoder.encode(body)


def decode_attach_body(body: bytes) -> AttachBody:
    """The opposite. Raises `BadBody`."""
    try:
        attach = _decoder.decode(body)
        check_image(attach.image)
    except (msgspec.DecodeError, BadSnapshot) as error:
        raise BadBody(f"the body of an ATTACH frame: {error}") from error
    return attach
