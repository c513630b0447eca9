"""Fields of a body that we do not know: they are ignored, but said (http-api.md §1).

A body may hold a hundred thousand of them. No more are looked at than there is any use for, and no member is kept but
those that are known.
"""

from __future__ import annotations

import heapq
from contextlib import suppress
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

WARNINGS_MAX: Final = 16
"""Unknown fields that are named in one answer."""
NAMES_MAX: Final = 1000
"""Names of one object that are looked at for that: more than are named, and known, by far."""
COLONS_FREE: Final = 16
"""So many colons for each member that there may be are decoded in 3 ms, as members or not."""
FIELD_CHARS_MAX: Final = 64
"""Characters of an unknown field's name that are shown."""


class _Name(str):
    """The name of a member, as it is decoded by `names_of`."""

    __slots__ = ()


class _Enough(Exception):
    """So many names were seen."""


def names_of(body: bytes) -> set[str]:
    """The names of the members of an object; of a great many only the first."""
    found = _first_names(body, NAMES_MAX)
    if len(found) > NAMES_MAX and len(set(found)) < NAMES_MAX // 2:
        return set(msgspec.json.decode(body, type=dict[str, Raw]))  # the same ones again and again
    return set(found)


def has_more(body: bytes, name: str, most: int) -> bool:
    """Whether the object that is this member of an object has more members than so many; where it is no such thing it
    has none. Quick where it cannot."""
    if body.count(b":") <= COLONS_FREE * most:
        return False
    try:
        member = getattr(members_of((name,)).decode(body), name)
        return member is not UNSET and len(_first_names(member, most)) > most
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False  # what is wrong is said by whoever decodes it


def _first_names(body: bytes | Raw, most: int) -> list[str]:
    """The names of the members of an object, each as often as it is there, up to one more than so many."""
    found: list[str] = []

    def note(_: type, name: str) -> _Name:
        found.append(name)
        if len(found) > most:
            raise _Enough
        return _Name(name)

    with suppress(_Enough):
        msgspec.json.decode(body, type=dict[_Name, Raw], dec_hook=note)
    return found


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
