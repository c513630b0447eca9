"""A router: from where to where, what it lets pass, and how far it is (http-api.md §9).

Its place is its dest's business: the cursor moves with the copies, is taken down with the dest's image, and comes back
with it. So content and cursor are always of one moment, and nothing is copied twice or skipped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from engine.formats.forward import RouterBody
from engine.types import Match, parse_match

if TYPE_CHECKING:
    from collections.abc import Hashable


class RouterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is wished of a router. All but `start` may change while it lives."""

    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Match | None = None
    allow_cycle: bool = False
    guarantee: str = "at_least_once"
    start: str = "now"
    """Where it began: `earliest`, with what the source held, or `now`, with what came behind it."""


def filter_shown(match: Match | None) -> list[str] | None:
    """A filter as the wire shows it."""
    return None if match is None else ["tag", match.op, match.value + ("*" if match.op == "Glob" else "")]


class Router:
    """One router.

    cursor     everything of the source up to here is examined, and what was to be copied is in the dest
    tip        the same as of what is staged
    spec       its definition, as is shown
    next_spec  the same as of what is staged: passes go by it, for a start reads it before the frames behind it
    forwarded  copies made, in all
    blocked    why it waits, or None
    active     whether its definition is on disk and it may copy
    gone       whether it was dropped, or one of its topics
    """

    __slots__ = (
        "active",
        "blocked",
        "cursor",
        "dest",
        "forwarded",
        "gone",
        "name",
        "next_spec",
        "number",
        "source",
        "spec",
        "tip",
    )

    def __init__(self, number: int, name: str, source: int, dest: int, spec: RouterSpec, cursor: int) -> None:
        self.number = number
        self.name = name
        self.source = source
        self.dest = dest
        self.spec = self.next_spec = spec
        self.cursor = self.tip = cursor
        self.forwarded = 0
        self.blocked: str | None = None
        self.active = self.gone = False

    @classmethod
    def of(cls, body: RouterBody, dest: int) -> Router:
        """A router out of the log or an image."""
        router = cls(body.number, body.name, body.source, dest, spec_of(body), body.cursor)
        router.forwarded = body.forwarded
        router.active = True
        return router

    def body(self, spec: RouterSpec) -> RouterBody:
        """What the log and images hold of it."""
        fields: dict[str, Any] = {name: getattr(spec, name) for name in RouterSpec.__struct_fields__}
        fields["filter"] = filter_shown(spec.filter)
        return RouterBody(
            number=self.number,
            name=self.name,
            source=self.source,
            cursor=self.cursor,
            forwarded=self.forwarded,
            **fields,
        )


def spec_of(body: RouterBody) -> RouterSpec:
    """The wishes in a definition."""
    fields: dict[str, Any] = {name: getattr(body, name) for name in RouterSpec.__struct_fields__}
    fields["filter"] = None if body.filter is None else parse_match(body.filter)
    return RouterSpec(**fields)


class Outlets:
    """The routers of one source, and whether they are in line for a pass."""

    __slots__ = ("_line", "key", "queued", "routers")

    def __init__(self, key: Hashable, line: deque[Any]) -> None:
        self.key = key
        self.routers: list[Router] = []
        self.queued = False
        self._line = line

    def note(self) -> None:
        """There may be something to copy."""
        if not self.queued:
            self.queued = True
            self._line.append(self.key)
