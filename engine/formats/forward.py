"""Routers in the log and in snapshots, and the body of a Forward frame: what was copied where, as positions.

    varints:  groups, then of each group
        to                          everything of the source up to this seq is examined
        lost                        so many seqs of the source were lost in front: as many are a gap in each dest
        ranges, then of each        seqs skipped since the range before (of the first: its first seq), length, hops
        dests, then of each         router's number, first seq in the dest, floor of the copies' times
    [an Append body: the copied records as they are in the source, where the header's count is not 0]

A varint is LEB128 of the value plus one, so no byte of it is zero. A floor is 0 for none, else 1 for the frame's own
time, 2 for a millisecond before, and so on: a copy's `$ts` is its source's, or the floor if that is later. A hop count
is how often the record had been forwarded when it came into the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from engine.formats.append import BadBody

_VARINT_BYTES_MAX: Final = 10


class RouterBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router: the body of a RouterPut, whose header names the dest, and an entry in the dest's image."""

    number: int
    """No other router ever has it."""
    name: str
    source: int
    """The topic's id."""
    cursor: int = 0
    """Everything of the source up to this seq is examined (in a RouterPut of a router that exists: passed over)."""
    forwarded: int = 0
    """How many copies it has made."""
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: str = "at_least_once"
    start: str = "now"


class RouterDropBody(msgspec.Struct, frozen=True, kw_only=True):
    """A router is gone."""

    number: int


class Range(NamedTuple):
    """Source seqs in a row that were copied, and how often their records had been forwarded before."""

    first: int
    last: int
    hops: int


class Landing(NamedTuple):
    """Where copies begin in a dest, and the least `$ts` that they have there (0: any)."""

    number: int
    first_seq: int
    floor: int


class Group(NamedTuple):
    """What one pass has done for routers that stood at the same place and copied the same."""

    to: int
    lost: int
    ranges: tuple[Range, ...]
    landings: list[Landing]


_encoder: Final = msgspec.json.Encoder()
_put: Final = msgspec.json.Decoder(RouterBody)
_drop: Final = msgspec.json.Decoder(RouterDropBody)


def encode_router_body(body: RouterBody | RouterDropBody) -> bytes:
    """The body's JSON."""
    return _encoder.encode(body)


def decode_router_put(body: bytes) -> RouterBody:
    """The opposite. Raises `BadBody`."""
    try:
        return _put.decode(body)
    except msgspec.DecodeError as error:
        raise BadBody(f"the body of a ROUTER_PUT frame: {error}") from error


def decode_router_drop(body: bytes) -> RouterDropBody:
    """As `decode_router_put`."""
    try:
        return _drop.decode(body)
    except msgspec.DecodeError as error:
        raise BadBody(f"the body of a ROUTER_DROP frame: {error}") from error


def _varints(values: Iterable[int]) -> bytes:
    out = bytearray()
    for value in values:
        value += 1
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def encode_forward_head(groups: list[Group], ts: int) -> bytes:
    """The varints of a Forward frame that is made at `ts`; no floor is later."""
    values = [len(groups)]
    for group in groups:
        values += (group.to, group.lost, len(group.ranges))
        before = 0
        for first, last, hops in group.ranges:
            values += (first - before, last - first + 1, hops)
            before = last
        values.append(len(group.landings))
        for number, first_seq, floor in group.landings:
            values += (number, first_seq, ts - floor + 1 if floor else 0)
    return _varints(values)


class _Reader:
    """Varints of a body, one after the other."""

    __slots__ = ("_body", "at")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def __call__(self) -> int:
        value = shift = 0
        body = self._body
        for at in range(self.at, min(self.at + _VARINT_BYTES_MAX, len(body))):
            byte = body[at]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.at = at + 1
                if not value:
                    break
                return value - 1
        raise BadBody("a Forward ends inside a number, or holds one that cannot be")


def decode_forward(body: bytes, ts: int) -> tuple[list[Group], bytes]:
    """The groups of a Forward frame, and the rest of its body. Raises `BadBody`."""
    read = _Reader(body)
    groups = []
    for _ in range(read()):
        to, lost = read(), read()
        ranges = tuple(_ranges(read))
        landings = []
        for _ in range(read()):
            number, first_seq, back = read(), read(), read()
            if not first_seq or back > ts:
                raise BadBody("a Forward whose copies begin nowhere")
            landings.append(Landing(number, first_seq, ts - back + 1 if back else 0))
        groups.append(Group(to, lost, ranges, landings))
    return groups, body[read.at :]


def _ranges(read: _Reader) -> Iterator[Range]:
    before = 0
    for _ in range(read()):
        skipped, length, hops = read(), read(), read()
        if not skipped or not length:
            raise BadBody("the ranges of a Forward do not ascend")
        first = before + skipped
        before = first + length - 1
        yield Range(first, before, hops)
