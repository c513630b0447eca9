"""Walking JSON without changing it: members, elements and paths as the bytes that stand there.

What goes in or comes out verbatim must never pass through Python's numbers, so values are sliced out of the text.
`json` checks and skips them; it is imported only when something has to be looked into.
"""

from __future__ import annotations

from _json import scanstring
from json import JSONDecoder

_DECODER = JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_SPACE = " \t\r\n"


class NotJson(ValueError):
    """The text is not a JSON value."""


def check(text: str) -> None:
    """Raise `NotJson` unless `text` is one JSON value, white space around it allowed."""
    end = _skip(text, _space(text, 0))
    if _space(text, end) != len(text):
        raise NotJson(f"more follows after the value at character {end + 1}")


def members(text: str) -> dict[str, str]:
    """The members of an object, each value as it stands; of a name that comes twice, the last."""
    found: dict[str, str] = {}
    at = _space(text, 0)
    if text[at : at + 1] != "{":
        raise NotJson("it is not an object")
    at = _space(text, at + 1)
    if text[at : at + 1] == "}":
        return found
    while True:
        if text[at : at + 1] != '"':
            raise NotJson(f"a name is missing at character {at + 1}")
        try:
            name, at = scanstring(text, at + 1, True)
        except ValueError as error:
            raise NotJson(_why(error)) from error
        at = _space(text, at)
        if text[at : at + 1] != ":":
            raise NotJson(f"':' is missing at character {at + 1}")
        start = _space(text, at + 1)
        at = _skip(text, start)
        found[name] = text[start:at]
        at = _space(text, at)
        if text[at : at + 1] == "}":
            if _space(text, at + 1) != len(text):
                raise NotJson(f"more follows after the value at character {at + 2}")
            return found
        if text[at : at + 1] != ",":
            raise NotJson(f"',' is missing at character {at + 1}")
        at = _space(text, at + 1)


def elements(text: str) -> list[str]:
    """The elements of an array, each as it stands."""
    found: list[str] = []
    at = _space(text, 0)
    if text[at : at + 1] != "[":
        raise NotJson("it is not an array")
    at = _space(text, at + 1)
    if text[at : at + 1] == "]":
        return found
    while True:
        start = at
        at = _skip(text, start)
        found.append(text[start:at])
        at = _space(text, at)
        if text[at : at + 1] != ",":
            return found
        at = _space(text, at + 1)


def maybe_pick(text: str, path: list[str]) -> str | None:
    """The value at a path of names and places, as it stands; None when there is none."""
    for step in path:
        text = text.strip(_SPACE)
        if text.startswith("{"):
            inner = members(text).get(step)
        elif text.startswith("[") and step.isascii() and step.isdigit():
            listed = elements(text)
            inner = listed[int(step)] if len(step) < 10 and int(step) < len(listed) else None
        else:
            return None
        if inner is None:
            return None
        text = inner
    return text.strip(_SPACE)


def read_pointer(pointer: str) -> list[str]:
    """The steps of a JSON pointer (RFC 6901); ValueError when it is none."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer such as /user/id")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def plain(value: str) -> str:
    """A value as text: a string without its quotes, everything else as it stands."""
    if value.startswith('"'):
        text: str = scanstring(value, 1, True)[0]
        return text
    return value


def _space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _skip(text: str, at: int) -> int:
    try:
        end: int = _DECODER.raw_decode(text, at)[1]
    except RecursionError as error:
        raise NotJson("it nests too deep") from error
    except ValueError as error:
        raise NotJson(_why(error)) from error
    return end


def _why(error: ValueError) -> str:
    """What the parser said, without its line and column (a record is one line)."""
    message = getattr(error, "msg", str(error))
    place = getattr(error, "pos", None)
    return f"{message} at character {place + 1}" if place is not None else str(message)
