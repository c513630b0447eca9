"""Cutting what the daemon rendered, and rendering what it will keep.

A record's bytes have a fixed form (`{"$seq":…,"$ts":…,"$node":…,"data":…,"meta":…,"$tag":…}`), so most of it is found
by searching for bytes that can stand in one place only: inside a JSON string a quote is never bare. Only what follows
`data` needs a parser, and that only when `meta` is there. Answers that are numbers are read the same way.
"""

from __future__ import annotations

from _json import encode_basestring, scanstring

from topics_cli.exits import BadAnswer

_DATA = b'"data":'
_QUOTE = 0x22
_META = b',"meta":{'
_TAG = b',"$tag":"'
_BASE64 = b'{"$base64":"'
ENCODING = "base64"


def number(body: bytes, field: str) -> int | None:
    """The number of the first `"field":` in compact JSON of ours; None when it is not there."""
    mark = b'"' + field.encode() + b'":'
    at = body.find(mark)
    if at < 0:
        return None
    at += len(mark)
    end = at
    while body[end : end + 1].isdigit():
        end += 1
    return int(body[at:end]) if end > at else None


def told(body: bytes, field: str) -> int:
    """The number that an answer has to give; raises `BadAnswer` when it does not."""
    found = number(body, field)
    if found is None:
        raise BadAnswer(f"no {field}")
    return found


def seq_of(line: bytes) -> int:
    """The seq of a rendered record."""
    return int(line[8 : line.index(b",", 8)])


def ts_of(line: bytes) -> int:
    """The time of a rendered record, in milliseconds."""
    at = line.index(b'"$ts":', 8) + 6
    return int(line[at : line.index(b",", at)])


def bare_data(lines: list[bytes]) -> list[bytes]:
    """The data of records that were asked for without meta and tag: all from `"data":` to the last brace."""
    return [line[line.index(_DATA) + 7 : -1] for line in lines]


def texts(lines: list[bytes]) -> list[bytes]:
    """The data of records as text: strings decoded, bytes that were not UTF-8 restored, all else as JSON."""
    whole = b"\n".join(lines)
    if _META not in whole and _TAG not in whole:
        # One search of them all costs a fifth of a search of each.
        return [
            data if data[0] != _QUOTE else data[1:-1] if b"\\" not in data else _string(data)
            for data in bare_data(lines)
        ]
    return [text_of(line, line.index(_DATA) + 7) for line in lines]


def _string(data: bytes) -> bytes:
    """The JSON string that `data` begins with, as text."""
    value: str = scanstring(data[1:].decode(), 0, True)[0]
    return value.encode("utf-8", "backslashreplace")


def text_of(line: bytes, at: int) -> bytes:
    """The data at `at` as text."""
    if line[at] == _QUOTE:
        return line[at + 1 : line.index(b'"', at + 1)] if b"\\" not in line else _string(line[at:])
    if line.startswith(_BASE64, at) and _META in line:
        return _restored(line, at)
    return line[at : end_of(line, at)]


def end_of(line: bytes, at: int) -> int:
    """Where the JSON value ends that begins at `at` of a rendered record."""
    if _META not in line and _TAG not in line:
        return len(line) - 1
    import json

    text = line[at:].decode()
    end = json.JSONDecoder(parse_float=str, parse_int=str).raw_decode(text)[1]
    return at + (end if len(text) == len(line) - at else len(text[:end].encode()))


def _restored(line: bytes, at: int) -> bytes:
    import binascii
    import json

    end = end_of(line, at)
    rest = json.loads(b"{" + line[end + 1 :])
    if rest.get("meta", {}).get("encoding") != ENCODING or line[end - 2 : end] != b'"}':
        return line[at:end]
    try:
        return binascii.a2b_base64(line[at + len(_BASE64) : end - 2])
    except binascii.Error:
        return line[at:end]


def text_to_json(text: bytes) -> tuple[bytes, bool]:
    """The JSON that keeps a text, and whether it had to be base64 because it is not UTF-8."""
    try:
        return encode_basestring(text.decode()).encode(), False
    except UnicodeDecodeError:
        import binascii

        return _BASE64 + binascii.b2a_base64(text, newline=False) + b'"}', True
