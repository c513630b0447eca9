"""Reading what a request asks for: query parameters, clamps, and the shape of a page, shared by the routes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from engine.errors import invalid
from engine.limits import PAGE_BYTES_DEFAULT, PAGE_RECORDS_DEFAULT, Limits
from engine.types import U64_MAX, ConfigChanges, Match, PageRequest, parse_match
from topics_daemon.auth import Caller
from topics_daemon.decode_many import wrong_count
from topics_daemon.unknown import has_more

_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_NUMBER: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
HEARTBEAT_MS_DEFAULT: Final = 15_000
HEARTBEAT_MS_MIN: Final = 1000
HEARTBEAT_MS_MAX: Final = 60_000
LIST_PAGE_DEFAULT: Final = 100
MatchIn: TypeAlias = str | list[str] | None
"""A filter as bodies have it; lists of anything else are not gone through."""
NODES_MAX: Final = 256
"""Nodes that one reader may leave out."""


def flag(query: dict[str, str], name: str, default: bool) -> bool:
    """A query parameter that is true or false."""
    text = query.get(name)
    if text is None:
        return default
    if text not in _FLAGS:
        raise invalid(f"{name} must be true or false", name)
    return _FLAGS[text]


def number(text: str, name: str, low: int = 0, high: int = U64_MAX) -> int:
    """Plain digits in a range; `int()` alone would take signs, spaces, underscores and other alphabets."""
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise invalid(f"{name} must be a number from {low} to {high}", name)
    return int(text)


def in_range(value: int | None, name: str, default: int, low: int = 0, high: int = U64_MAX) -> int:
    """A number of a body, or its default; outside of its range it is refused."""
    if value is None:
        return default
    if not low <= value <= high:
        raise invalid(f"{name} must be between {low} and {high}", name)
    return value


def heartbeat_of(heartbeat_ms: int | None) -> float:
    """After how many seconds of silence a stream shows life, clamped."""
    asked = in_range(heartbeat_ms, "heartbeat_ms", HEARTBEAT_MS_DEFAULT)
    return min(max(asked, HEARTBEAT_MS_MIN), HEARTBEAT_MS_MAX) / 1000


def page_size(query: dict[str, str], limits: Limits) -> int:
    """How many entries one page of a list has."""
    size = number(query["page_size"], "page_size") if "page_size" in query else LIST_PAGE_DEFAULT
    return min(size or LIST_PAGE_DEFAULT, limits.list_page)


def list_cursor(name: str) -> str:
    """Where the next page of a list begins: behind this name."""
    return base64.urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


def read_list_cursor(text: str, is_name: Callable[[str], bool]) -> str:
    """The name in a list cursor, or the 400 of what none can be."""
    try:
        name = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError as error:
        # Of base64, or of a text that is not ASCII, on either side.
        raise invalid("cursor is not one that a list has given", "cursor") from error
    # A name is given as one text only: padded, or with other last bits, it is not what a list has given.
    if not is_name(name) or list_cursor(name) != text:
        raise invalid("cursor is not one that a list has given", "cursor")
    return name


def check_config_names(caller: Caller, changes: ConfigChanges) -> None:
    """Raise the 403 for a name in a configuration that the caller may not use."""
    if isinstance(changes.dead_letter, str):
        caller.check(changes.dead_letter)


class ReadIn(msgspec.Struct, kw_only=True):
    """The body of a diff."""

    from_seq: int | None = None
    limit: int | None = None
    max_bytes: int | None = None
    node: str | list[str] | None = None
    match: MatchIn = None
    from_ts: int | None = None
    to_seq: int | None = None
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    wait_ms: int | None = None
    epoch: int | None = None


class StrictReadIn(ReadIn, kw_only=True, forbid_unknown_fields=True):
    """The same, failing at what is unknown."""


READ: Final = msgspec.json.Decoder(StrictReadIn)


def nodes_of(node: str | list[str] | None, limits: Limits) -> frozenset[str]:
    """The nodes whose records a reader does not want to see. Names that no record can have are refused: readers that
    wait hold them."""
    if node is None:
        return frozenset()
    found = frozenset((node,) if isinstance(node, str) else node)
    if len(found) > NODES_MAX:
        raise invalid(f"node may list {NODES_MAX} names", "node")
    if max((len(name.encode()) for name in found), default=0) > limits.node_bytes:
        raise invalid(f"node may hold {limits.node_bytes} bytes", "node")
    return found


def match_of(value: object, limits: Limits, field: str = "match") -> Match | None:
    """A filter, or None for none; one for longer tags than there may be is refused: readers that wait hold it."""
    if value is None:
        return None
    match = parse_match(value, field)
    if len(match.value.encode()) > limits.tag_bytes:
        raise invalid(f"{field} may hold a tag of {limits.tag_bytes} bytes", field)
    return match


def check_topics(body: bytes, most: int) -> None:
    """Raise the 400 of a body whose `topics` are more than there may be, before all of them are decoded."""
    if has_more(body, "topics", most):
        raise wrong_count(most)


def check_topics_count(count: int, most: int) -> None:
    """The same for so many that were decoded, or none."""
    if not 1 <= count <= most:
        raise wrong_count(most)


def page_limit(limit: int | None, limits: Limits) -> int:
    """Records of a page: 0 is the default, everything else is clamped."""
    return min(max(limit or PAGE_RECORDS_DEFAULT, 1), limits.page_records)


def page_bytes(max_bytes: int | None, default: int, limits: Limits) -> int:
    """Bytes of a page, clamped."""
    return min(max(max_bytes or default, 1), limits.page_bytes)


_EMPTY: Final = PageRequest()


def page_request(read: ReadIn, limits: Limits, *, lines: bool = False) -> PageRequest:
    """What a diff asks for, checked and clamped."""
    from_seq = read.from_seq or 0
    if not 0 <= from_seq <= U64_MAX:
        raise invalid(f"from_seq must be between 0 and {U64_MAX}", "from_seq")
    if read.from_ts is not None or read.to_seq is not None or read.epoch is not None:
        for name in ("from_ts", "to_seq", "epoch"):
            in_range(getattr(read, name), name, 0)
    return PageRequest(
        from_seq=from_seq,
        limit=page_limit(read.limit, limits),
        max_bytes=page_bytes(read.max_bytes, PAGE_BYTES_DEFAULT, limits),
        nodes=nodes_of(read.node, limits) if read.node is not None else _EMPTY.nodes,
        match=match_of(read.match, limits),
        from_ts=read.from_ts,
        to_seq=read.to_seq,
        include_tags=read.include_tags,
        include_meta=read.include_meta,
        include_data=read.include_data,
        epoch=read.epoch,
        lines=lines,
    )
