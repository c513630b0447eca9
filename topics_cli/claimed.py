"""Claimed jobs as lines, and who holds them.

A claimed entry is a record with its lease in front of its data:
`{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,"$ts":…,"$tag":…,"$node":…,"data":…,"meta":…}`. It is cut out of the
answer as it stands, because its data must come back byte for byte.
"""

from __future__ import annotations

import os

from topics_cli.cut import number
from topics_cli.exits import BadAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIST = b'"claimed":['
_FIRST = b'{"$seq":'
_NEXT = b"}," + _FIRST


def claimed_lines(body: bytes) -> list[bytes]:
    """The entries of an answer to a claim, each as it stands."""
    lines = _cut(body)
    if not all(line.startswith(_FIRST) for line in lines):
        raise BadAnswer("a claim whose jobs are none")
    return lines


def _cut(body: bytes) -> list[bytes]:
    begin = body.find(_LIST)
    count = _count(body)
    if begin < 0 or count is None:
        raise BadAnswer("a claim without its jobs")
    if not count:
        return []
    begin += len(_LIST)
    end = body.rfind(b'],"count":')
    pieces = body[begin:end].split(_NEXT)
    if len(pieces) != count:
        # What divides the entries stands in somebody's data as well: now it takes a parser.
        return _parsed(body)
    last = len(pieces) - 1
    return [(_FIRST if place else b"") + piece + (b"}" if place < last else b"") for place, piece in enumerate(pieces)]


def _count(body: bytes) -> int | None:
    """The count behind the entries: whatever they hold, it comes last."""
    at = body.rfind(b'],"count":')
    return number(body[at:], "count") if at >= 0 else None


def _parsed(body: bytes) -> list[bytes]:
    from topics_cli.rawjson import elements, members

    return [element.encode() for element in elements(members(body.decode())["claimed"])]


def holder(values: dict[str, Any]) -> str:
    """The name that leases are held under: `--node`, TOPICS_NODE, else USER@HOST, the same in every command."""
    given: str | None = values["node"] or os.environ.get("TOPICS_NODE")
    if given:
        return given
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())
    return f"{user}@{os.uname().nodename}"
