"""The grammar of names, in one place.

Names of topics and routers are what clients choose; names on disk come from numbers only, so nothing here ever
becomes a path.
"""

from __future__ import annotations

import re
from typing import Final

from engine.errors import invalid

_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")
_ROUTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}\Z")

GRAMMAR: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"


def is_topic_name(name: str) -> bool:
    """Whether `name` may name a topic or a cursor."""
    return _TOPIC.match(name) is not None


def is_router_name(name: str) -> bool:
    """Whether `name` may name a router (topic names, and `>`)."""
    return _ROUTER.match(name) is not None


def check_topic_name(name: str, field: str = "topic") -> str:
    """Return `name`, or raise the 400 that says what a topic name looks like."""
    if not is_topic_name(name):
        raise invalid(f"{field} name must match {GRAMMAR}", field)
    return name
