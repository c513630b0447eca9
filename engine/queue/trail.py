"""What became of a job's deliveries: the last eight, packed, because a job that failed once may wait by the million.

An entry takes some thirty bytes instead of the two hundred of an object. The packing is MessagePack of arrays; it goes
into snapshots as it is, and never onto the wire: dead letters show it as JSON (`dead_letter.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

TRAIL_MAX: Final = 8
"""Deliveries that a trail remembers (queues.md, rule 6)."""


class End(StrEnum):
    """How a delivery ended, short of an ack."""

    EXPIRED = "expired"
    """The deadline came."""
    NACKED = "nacked"
    RELEASED = "released"
    """The connection that held the lease ended."""
    RESTARTED = "restarted"
    """The daemon stopped, and the lease was only in its memory."""


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One delivery that has ended: which one, to whom, from when to when (engine time, ms), how, and why if somebody
    said."""

    number: int
    node: str
    claimed: int
    ended: int
    how: End
    reason: str | None = None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Delivery])


def extended(trail: bytes | None, delivery: Delivery) -> bytes:
    """The trail with one more delivery, if it is new; the oldest goes when there are more than `TRAIL_MAX`."""
    known = deliveries_of(trail)
    if delivery not in known:  # It is there when a log is applied to a snapshot that was made a little later.
        known.append(delivery)
    return _encoder.encode(known[-TRAIL_MAX:])


def deliveries_of(trail: bytes | None) -> list[Delivery]:
    """The deliveries of a trail, oldest first."""
    return [] if trail is None else _decoder.decode(trail)
