"""Fields of a body that we do not know: they are ignored, but said (http-api.md §1).

A body may hold a hundred thousand of them. No more are looked at than there is any use for, and no member is kept but
those that are known.
"""

from __future__ import annotations

import heapq
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

WARNINGS_MAX: Final = 16
"""Unknown fields that are named in one answer."""
NAMES_MAX: Final = 1000
"""Names of one object that are looked at for that: more than are named, and known, by far."""
FIELD_CHARS_MAX: Final = 64
"""Characters of an unknown field's name that are shown."""


class _Name(str):
    """The name of a member, as it is decoded by `names_of`."""

    __slots__ = ()


class _Enough(Exception):
    """So many names were seen."""


def names_of(body: bytes) -> set[str]:
    """The names of the members of an object; of a great many only the first."""
    found: list[str] = []

    def note(_: type, name: str) -> _Name:
        found.append(name)
        if len(found) > NAMES_MAX:
            raise _Enough
        return _Name(name)

    try:
        msgspec.json.decode(body, type=dict[_Name, Raw], dec_hook=note)
    except _Enough:
        if len(set(found)) < NAMES_MAX // 2:
            return set(msgspec.json.decode(body, type=dict[str, Raw]))  # the same ones again and again
    return set(found)


@cache
def members_of(fields: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """What reads these members of an object, each as the bytes that it came in, and skips all others."""
    return msgspec.json.Decoder(
        msgspec.defstruct("Members", [(name, Raw | UnsetType, UNSET) for name in fields], omit_defaults=True)
    )


def note_unknown(names: set[str], fields: tuple[str, ...], where: str, warnings: list[str]) -> None:
    """Say which of these names are not among the fields."""
    found = heapq.nsmallest(WARNINGS_MAX - len(warnings), names.difference(fields))
    warnings.extend(f"unknown field {where}{name[:FIELD_CHARS_MAX]}" for name in found)
