"""Routers as a graph: a dest has one source, so what lies behind a topic is a chain (pure)."""

from __future__ import annotations

from collections.abc import Callable

from engine.limits import MAX_HOPS
from engine.routers.hops import HOPS_KEPT_MAX

SourceOf = Callable[[int], int | None]
"""From a topic's id to that of the topic which is copied into it."""


def ancestors(topic: int, source_of: SourceOf) -> list[int]:
    """The topics that are copied into this one, the nearest first; a cycle is walked once."""
    found: list[int] = []
    seen = {topic}
    source = source_of(topic)
    while source is not None and source not in seen:
        found.append(source)
        seen.add(source)
        source = source_of(source)
    return found


def cycle(source: int, dest: int, source_of: SourceOf) -> list[int] | None:
    """The topics that a record would come through if `source` were copied into `dest`: from `source` on, and back to
    it. None when it never comes back."""
    chain = [source, *ancestors(source, source_of)]
    if dest not in chain:
        return None
    return [source, *reversed(chain[: chain.index(dest) + 1])]


def hops_limit(chain: list[int], dest: int, allow_cycle: bool) -> int:
    """How often a record may have been forwarded and still go into `dest`, where it must not have been; `chain` are the
    ancestors of the topic that it is in.

    The path of a record that was forwarded *h* times are the last *h* topics that are copied one into the next.
    """
    limit = chain.index(dest) if dest in chain else HOPS_KEPT_MAX
    return min(limit, MAX_HOPS - 1) if allow_cycle or dest in chain else limit
