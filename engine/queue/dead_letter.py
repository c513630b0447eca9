"""What a dead letter says about itself, and which topics may be each other's dead letters (queues.md, rule 6).

The copy has the job's data, tag and node, byte for byte, and its meta with these members more:

    $dead_letter_from        the queue that it comes from
    $dead_letter_src_seq     its seq there
    $dead_letter_deliveries  how many deliveries it had there
    $dead_letter_first_ts    when it was first written, in milliseconds; kept when a dead letter moves on
    $dead_letter_trail       its last eight deliveries, oldest first: {node, claimed, ended, how, reason?}

Numbers are decimal strings. A job that is requeued keeps its trail and first time, and adds to the trail if it fails
again. Other members of the meta keep their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from engine.errors import Code, Refused
from engine.queue.events import Move
from engine.queue.trail import TRAIL_MAX, Delivery, End
from engine.types import ConfigChanges, TopicConfig, TopicType

FROM: Final = "$dead_letter_from"
SRC_SEQ: Final = "$dead_letter_src_seq"
DELIVERIES: Final = "$dead_letter_deliveries"
FIRST_TS: Final = "$dead_letter_first_ts"
TRAIL: Final = "$dead_letter_trail"
_OF_ONE_STAY: Final = (FROM, SRC_SEQ, DELIVERIES)


class _Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A delivery as meta shows it."""

    node: str
    claimed: int
    ended: int
    how: End
    reason: str | None = None


_meta_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_trail_decoder: Final = msgspec.json.Decoder(list[_Shown])
_text_decoder: Final = msgspec.json.Decoder(str)
_encoder: Final = msgspec.json.Encoder()


def dead_letter_meta(meta: bytes | None, source: str, move: Move, ts: int) -> bytes:
    """The meta of a dead letter; `meta` is the job's, `ts` when it was written."""
    members: dict[str, object] = dict(_members(meta))
    trail = [*_trail_of(members.get(TRAIL)), *map(_shown, move.trail)][-TRAIL_MAX:]
    members[FROM] = source
    members[SRC_SEQ] = str(move.seq)
    members[DELIVERIES] = str(move.deliveries)
    members.setdefault(FIRST_TS, str(ts))
    members[TRAIL] = trail
    return _encoder.encode(members)


def requeued_meta(meta: bytes | None) -> bytes | None:
    """The meta of a job that goes back into a queue; None when nothing is left."""
    members = {name: value for name, value in _members(meta).items() if name not in _OF_ONE_STAY}
    return _encoder.encode(members) if members else None


def origin_of(meta: bytes | None) -> str | None:
    """The queue that a dead letter comes from; None when its meta does not say."""
    raw = _members(meta).get(FROM)
    try:
        return None if raw is None else _text_decoder.decode(raw)
    except msgspec.DecodeError:
        return None


def dead_letter_config(source: TopicConfig) -> ConfigChanges:
    """What a missing dead-letter topic is made with: a queue of the source's class."""
    return ConfigChanges(type=TopicType.QUEUE, durability=source.durability)


def check_chain(topic: str, target: str, dead_letter_of: Callable[[str], str | None]) -> None:
    """Raise the 400 of a configuration that would bring a job back: chains are fine, circles are not.

    `dead_letter_of(name)` is what another topic is configured with; None also for one that does not exist.
    """
    chain = [topic]
    following: str | None = target
    while following is not None:
        chain.append(following)
        if following == topic:
            raise Refused(
                Code.INVALID_REQUEST,
                f"dead letters would go round in a circle: {' → '.join(chain)}; give one of them another dead_letter",
                {"field": "dead_letter", "cycle": chain},
            )
        if following in chain[:-1]:
            return  # A circle that is there already is not this topic's to answer for.
        following = dead_letter_of(following)


def _members(meta: bytes | None) -> dict[str, msgspec.Raw]:
    return {} if meta is None else _meta_decoder.decode(meta)


def _trail_of(raw: object) -> list[_Shown]:
    """The trail that a meta holds; empty when somebody else wrote that member and it is none."""
    if not isinstance(raw, msgspec.Raw):
        return []
    try:
        return _trail_decoder.decode(raw)
    except msgspec.DecodeError:
        return []


def _shown(delivery: Delivery) -> _Shown:
    return _Shown(delivery.node, delivery.claimed, delivery.ended, delivery.how, delivery.reason)
