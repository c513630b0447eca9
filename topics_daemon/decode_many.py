"""The body of a write to several topics → a write body for each of them, still as bytes (http-api.md §4).

A body of 64 MiB cannot be gone through at once: others would wait. So it is taken apart member by member where it
begins with its topics and looks as most do, and else in one go.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

import msgspec
from msgspec import Raw

from engine import scan
from engine.errors import Refused, TopicsError, invalid
from engine.limits import Limits
from topics_daemon.decode import OWN_DEPTH, check_utf8, decode, read_hidden, show_hidden

TOPICS_PER_WRITE_MAX: Final = 1000
"""Topics that one request may write to."""

BEGIN: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"topics"[ \t\r\n]*:[ \t\r\n]*\{[ \t\r\n]*')


class ManyIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v0/write`."""

    topics: dict[str, Raw]
    node: str | None = None


_MANY: Final = msgspec.json.Decoder(ManyIn)


def take_apart(
    body: bytes, limits: Limits, warnings: list[str], into: dict[str, bytes]
) -> Generator[int, None, str | None]:
    """Put the write body for each topic into `into`, and yield how large it is after each; returns the default node.

    Raises the 400 of what cannot be read, or holds too many topics.
    """
    begin = BEGIN.match(body)
    at = len(body) if begin is None else begin.end()
    while (found := scan.member(body, limits.nesting + OWN_DEPTH, at)) is not None:
        name, first, end, at, more = found
        into[name] = body[first:end]
        if len(into) > TOPICS_PER_WRITE_MAX:
            raise wrong_count(TOPICS_PER_WRITE_MAX)
        yield end - first
        if not more:
            assert begin is not None, "there was a member"
            read = _others(body[: begin.end()] + b"}" + body[at:], limits, warnings)
            if read is None:
                break
            return read.node
    into.clear()
    parts, node = decode_many(body, limits, warnings)
    into.update(parts)
    return node


def _others(body: bytes, limits: Limits, warnings: list[str]) -> ManyIn | None:
    """What a body says beside its topics, which were taken out of it; None where it wants to be read as a whole."""
    if b"\\" in body or body.count(b'"topics"') > 1:
        return None
    said: list[str] = []
    try:
        read = decode(_MANY, body, limits, said, depth=_depth(limits))
    except TopicsError:
        return None  # what is wrong, and where, is said of the whole
    warnings += said
    return read


def wrong_count(most: int) -> Refused:
    """The 400 of a body that is about no topic, or about more than it may be."""
    return invalid(f"topics must hold 1 to {most} topics", "topics")


def _depth(limits: Limits) -> int:
    return limits.nesting + OWN_DEPTH + 2


def decode_many(body: bytes, limits: Limits, warnings: list[str]) -> tuple[dict[str, bytes], str | None]:
    """The same in one go."""
    check_utf8(body)
    try:
        read = read_hidden(lambda part: decode(_MANY, part, limits, warnings, depth=_depth(limits), checked=True), body)
    except UnicodeDecodeError as error:
        raise invalid("names of topics and node must not hold lone surrogates", "topics") from error
    if not 1 <= len(read.topics) <= TOPICS_PER_WRITE_MAX:
        raise wrong_count(TOPICS_PER_WRITE_MAX)
    if b"\\u" not in body:
        return {name: bytes(raw) for name, raw in read.topics.items()}, read.node
    return {name: show_hidden(bytes(raw)) for name, raw in read.topics.items()}, read.node
