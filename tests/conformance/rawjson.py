"""JSON that is looked at without being understood: the exact bytes of members and elements.

Comparing parsed values would hide what the suite is about (`1.10` and `1.1` are the same float), so answers are cut
into pieces here, by a scanner that only knows strings and brackets. It trusts nothing: what is not JSON by the strict
grammar of the standard library is refused first.
"""

from __future__ import annotations

import json
import re
from typing import Any

_WHITE = b" \t\r\n"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PLAIN = re.compile(rb'[^"\[\]{},: \t\r\n]+')


class NotJson(Exception):
    """The bytes are not one JSON value."""


def _refuse(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


def parse(raw: bytes) -> Any:
    """The value of strict JSON: UTF-8, no NaN, nothing after the end."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"{error}: {raw[:200]!r}") from error


def value_end(raw: bytes, at: int) -> int:
    """Where the value that starts at `at` ends."""
    depth = 0
    while at < len(raw):
        byte = raw[at]
        if byte == 0x22:
            at = _string_end(raw, at)
            if depth == 0:
                return at
            continue
        if byte in b"[{":
            depth += 1
        elif byte in b"]}":
            if depth == 0:
                return at
            depth -= 1
            if depth == 0:
                return at + 1
        elif depth == 0 and (byte in _WHITE or byte in b",:"):
            return at
        plain = _PLAIN.match(raw, at)
        at = plain.end() if plain else at + 1
    return at


def _string_end(raw: bytes, at: int) -> int:
    found = _STRING.match(raw, at)
    if found is None:
        raise NotJson(f"a string without an end at {at}")
    return found.end()


def _skip(raw: bytes, at: int) -> int:
    while at < len(raw) and raw[at] in _WHITE:
        at += 1
    return at


def members(raw: bytes) -> list[tuple[str, bytes]]:
    """The members of an object in order: name and the exact bytes of the value."""
    at = _skip(raw, 0)
    if raw[at : at + 1] != b"{":
        raise NotJson(f"not an object: {raw[:80]!r}")
    found = []
    at = _skip(raw, at + 1)
    while raw[at : at + 1] != b"}":
        end = _string_end(raw, at)
        name = json.loads(raw[at:end])
        at = _skip(raw, _skip(raw, end) + 1)
        end = value_end(raw, at)
        found.append((name, raw[at:end]))
        at = _skip(raw, end)
        if raw[at : at + 1] == b",":
            at = _skip(raw, at + 1)
    return found


def elements(raw: bytes) -> list[bytes]:
    """The exact bytes of an array's elements."""
    at = _skip(raw, 0)
    if raw[at : at + 1] != b"[":
        raise NotJson(f"not an array: {raw[:80]!r}")
    found = []
    at = _skip(raw, at + 1)
    while raw[at : at + 1] != b"]":
        end = value_end(raw, at)
        found.append(raw[at:end])
        at = _skip(raw, end)
        if raw[at : at + 1] == b",":
            at = _skip(raw, at + 1)
    return found


def member(raw: bytes, name: str) -> bytes:
    """The exact bytes of one member, which must be there once."""
    values = [value for key, value in members(raw) if key == name]
    if len(values) != 1:
        raise NotJson(f"member {name!r} is there {len(values)} times in {raw[:200]!r}")
    return values[0]


def has_white(raw: bytes) -> bool:
    """Whether there is white space between tokens."""
    at = 0
    while at < len(raw):
        if raw[at] == 0x22:
            at = _string_end(raw, at)
        elif raw[at] in _WHITE:
            return True
        else:
            at += 1
    return False
