"""The second reader's part for routers: what a Forward says, and what a copy looks like, from FORMATS.md alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.sim.second_history import demand

HOPS_MAX = 31
_DEFAULTS: dict[str, Any] = {
    "preserve_node": True,
    "preserve_tag": True,
    "create_dest": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
    "start": "now",
}
_BEGINNING = re.compile(rb'\{"\$seq":(\d+),"\$ts":(\d+),("\$node":"(?:[^"\\]|\\.)*",)?', re.DOTALL)
_TAG = re.compile(rb',"\$tag":"(?:[^"\\]|\\.)*"\}\Z', re.DOTALL)


@dataclass(slots=True)
class ReadRouter:
    """A router as an image or a RouterPut has it, and how far it has come."""

    number: int
    name: str
    source: int
    dest: int
    cursor: int = 0
    forwarded: int = 0
    definition: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(told: dict[str, Any], dest: int) -> ReadRouter:
        """From its object, into this topic."""
        router = ReadRouter(
            told["number"], told["name"], told["source"], dest, told.get("cursor", 0), told.get("forwarded", 0)
        )
        router.define(told)
        return router

    def define(self, told: dict[str, Any]) -> None:
        """It copies like this from here on."""
        self.definition = {name: told.get(name, default) for name, default in _DEFAULTS.items()}


class Landing(NamedTuple):
    """Where a router's copies begin, and the least time that they get."""

    number: int
    first: int
    floor: int


class Group(NamedTuple):
    """One group of a Forward."""

    to: int
    lost: int
    seqs: list[tuple[int, int]]
    """Each seq of its ranges, and how often that record had been forwarded."""
    landings: list[Landing]


def read_forward(body: bytes, ts: int) -> tuple[list[Group], bytes]:
    """The groups of a Forward whose header has this time, and what is behind them."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            demand(at < len(body), "a Forward ends inside a number")
            byte = body[at]
            demand(byte != 0, "a byte of a number of a Forward is zero")
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - 1

    groups = []
    for _ in range(number()):
        to, lost = number(), number()
        seqs: list[tuple[int, int]] = []
        last = 0
        for _ in range(number()):
            first = last + number()
            demand(first > last, "the ranges of a Forward do not ascend")
            last = first + number() - 1
            demand(last >= first, "a range of a Forward is empty")
            hops = number()
            seqs += [(seq, hops) for seq in range(first, last + 1)]
        landings = []
        for _ in range(number()):
            router, first, back = number(), number(), number()
            landings.append(Landing(router, first, ts + 1 - back if back else 0))
        groups.append(Group(to, lost, seqs, landings))
    return groups, body[at:]


def seq_of(fragment: bytes) -> int:
    """The seq that a record says it has."""
    return int(_begin(fragment)[1])


def copy_of(fragment: bytes, seq: int, least_ts: int, definition: dict[str, Any]) -> tuple[bytes, int]:
    """A router's copy of a record, and the time that it has."""
    begin = _begin(fragment)
    ts = max(int(begin[2]), least_ts)
    node = begin[3] if begin[3] and definition["preserve_node"] else b""
    rest = fragment[begin.end() :]
    tag = _TAG.search(rest)
    if tag is not None and not definition["preserve_tag"]:
        rest = rest[: tag.start()] + b"}"
    return b'{"$seq":%d,"$ts":%d,%b%b' % (seq, ts, node, rest), ts


def _begin(fragment: bytes) -> re.Match[bytes]:
    begin = _BEGINNING.match(fragment)
    demand(begin is not None, "a record does not begin as one")
    assert begin is not None
    return begin
