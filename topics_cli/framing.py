"""Where a record ends in a stream of bytes.

    line      a record a line (a last one without line feed counts)
    null      each ends in NUL (a last one without counts)
    length    `<n>` LF `<n bytes>`: for anything

`Cutter` takes bytes as they come and gives whole records; `frame` is the way back. What one makes the other reads,
byte for byte.
"""

from __future__ import annotations

from topics_cli.exits import Failure, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE, NULL, LENGTH = "line", "null", "length"
LENGTH_DIGITS_MAX = 12


class Cutter:
    """Cuts a stream into records; holds at most one unfinished record, of at most `record_bytes_max`."""

    __slots__ = ("_failure", "_framing", "_mark", "_missing", "_rest", "record_bytes_max")

    def __init__(self, framing: str, record_bytes_max: int) -> None:
        self._framing = framing
        self._mark = b"\n" if framing == LINE else b"\0"
        self._rest: list[bytes] = []
        self._missing = 0
        self._failure: Failure | None = None
        """What is wrong with the stream behind the records that were given."""
        self.record_bytes_max = record_bytes_max

    @property
    def held(self) -> bool:
        """Whether part of a record waits for its end."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The records that `data` completes; raises `Failure` where it is wrong, once those before are given."""
        if self._failure is not None:
            raise self._failure
        if self._framing == LENGTH:
            return self._feed_lengths(data)
        records = data.split(self._mark)
        last = records.pop()
        if records and self._rest:
            self._rest.append(records[0])
            records[0] = b"".join(self._rest)
            self._rest = []
            self._missing = 0
        if last:
            self._rest.append(last)
            self._missing += len(last)
            if self._missing > self.record_bytes_max:
                return self._wrong(_too_long(self.record_bytes_max), records)
        return records

    def _wrong(self, failure: Failure, records: list[bytes]) -> list[bytes]:
        if not records:
            raise failure
        self._failure = failure
        return records

    def end(self) -> list[bytes]:
        """What is left at the end of the stream."""
        if self._failure is not None:
            raise self._failure
        rest = b"".join(self._rest)
        self._rest = []
        self._missing = 0
        if self._framing == LENGTH and rest:
            raise Failure("the input ends inside a record", "bad_framing", "--length wants <n>, a line feed, n bytes")
        return [rest] if rest else []

    def _feed_lengths(self, data: bytes) -> list[bytes]:
        if self._missing > len(data):
            self._rest.append(data)
            self._missing -= len(data)
            return []
        data = b"".join([*self._rest, data])
        self._rest = []
        self._missing = 0
        records, at = list[bytes](), 0
        while at < len(data):
            end = data.find(b"\n", at, at + LENGTH_DIGITS_MAX + 1)
            digits = data[at : end if end >= 0 else len(data)]
            if not (digits.isdigit() and digits.isascii()) or len(digits) > LENGTH_DIGITS_MAX:
                what, hint = "the input is not framed by --length", "it wants <n>, a line feed, n bytes"
                return self._wrong(Failure(what, "bad_framing", hint), records)
            if end < 0:
                break
            size = int(digits)
            if size > self.record_bytes_max:
                return self._wrong(_too_long(self.record_bytes_max), records)
            if end + 1 + size > len(data):
                self._missing = end + 1 + size - len(data)
                break
            records.append(data[end + 1 : end + 1 + size])
            at = end + 1 + size
        if at < len(data):
            self._rest = [data[at:]]
        return records


def _too_long(bytes_max: int) -> Failure:
    return Failure(
        f"a record is longer than {bytes_max} bytes", "record_too_large", "is the framing right (lines, -0, --length)?"
    )


def frame(records: list[bytes], framing: str) -> bytes:
    """The records as a stream."""
    if not records:
        return b""
    if framing == LENGTH:
        return b"".join([b"%d\n%b" % (len(record), record) for record in records])
    mark = b"\n" if framing == LINE else b"\0"
    return mark.join(records) + mark


def framing_of(values: dict[str, Any]) -> str:
    """The framing that the options ask for."""
    if values["null"] and values["length"]:
        raise usage("-0 and --length are two framings", "give one of them")
    return NULL if values["null"] else LENGTH if values["length"] else LINE
