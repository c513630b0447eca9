"""Reading an event stream by its own rules: lines, fields, dispatch at a blank line, comments beside.

`Stream` opens `GET /v0/watch/<wid>` on a connection of its own and hands out `Event`s one at a time, with the raw
lines that made them, so that cases can look at either.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from tests.conformance import rawjson
from tests.conformance.kit import Answer, Api, Failed, holds, same
from tests.conformance.wire import Connection, Response, WireError, render_request

WAIT_S = 8.0


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event, or a comment (`comment` set, nothing else), or a lone `retry`."""

    name: str | None
    raw: bytes
    id: str | None
    comment: str | None
    retry: str | None
    lines: tuple[bytes, ...]

    @property
    def data(self) -> Any:
        """The data as JSON."""
        return rawjson.parse(self.raw)


class Stream:
    """An open event stream."""

    def __init__(self, api: Api, url: str, headers: tuple[tuple[str, str], ...] = (), key: str | None = None) -> None:
        self._connection: Connection = api.connect()
        sent = (("Accept", "text/event-stream"), *api.auth(key), *headers)
        self._connection.send(render_request("GET", url, api.target.host_header, sent))
        status, fields = self._connection.read_head(time.monotonic() + WAIT_S)
        self.head = Response(status, fields, b"")
        self._chunked = self.head.header("transfer-encoding") == "chunked"
        self._text = bytearray()
        self._ended = False
        if status != 200:
            self._connection.close()
            raise Failed(f"GET {url} → {status}")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _more(self, deadline: float) -> bool:
        if self._ended:
            return False
        chunk = self._connection.read_chunk(deadline) if self._chunked else self._connection.read_some(deadline)
        if not chunk:
            self._ended = True
            return False
        self._text += chunk
        return True

    def maybe_next(self, within_s: float = WAIT_S) -> Event | None:
        """The next event, comment or retry; None when the stream has ended."""
        deadline = time.monotonic() + within_s
        while (at := self._text.find(b"\n\n")) < 0:
            if not self._more(deadline):
                if self._text.strip():
                    raise Failed(f"the stream ended inside an event: {bytes(self._text)!r}")
                return None
        block = bytes(self._text[:at])
        del self._text[: at + 2]
        return parse_event(block)

    def next(self, within_s: float = WAIT_S) -> Event:
        """The next event, passing over comments and `retry`."""
        deadline = time.monotonic() + within_s
        while True:
            event = self.maybe_next(deadline - time.monotonic())
            if event is None:
                raise Failed("the stream ended where an event was expected")
            if event.name is not None or event.raw:
                return event

    def next_named(self, name: str, within_s: float = WAIT_S) -> Event:
        """The next event, which must have this name."""
        event = self.next(within_s)
        same(event.name, name, f"event (data {event.raw[:200]!r})")
        return event

    def seek(self, name: str, within_s: float = WAIT_S) -> Event:
        """The next event of this name; others are passed over."""
        deadline = time.monotonic() + within_s
        while (event := self.next(deadline - time.monotonic())).name != name:
            pass
        return event

    def records(self, count: int, within_s: float = WAIT_S) -> list[bytes]:
        """The exact bytes of the next `count` records, over as many events as it takes."""
        found: list[bytes] = []
        deadline = time.monotonic() + within_s
        while len(found) < count:
            event = self.seek("record", deadline - time.monotonic())
            found += rawjson.elements(rawjson.member(event.raw, "records"))
        same(len(found), count, "records seen")
        return found

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def silent_for(self, seconds: float) -> bool:
        """Whether nothing but comments comes for that long."""
        try:
            self.next(seconds)
        except WireError:
            return True
        return False

    def ends(self, within_s: float = WAIT_S) -> bool:
        """Whether the stream ends in time (events before the end are passed over)."""
        deadline = time.monotonic() + within_s
        while self.maybe_next(deadline - time.monotonic()) is not None:
            pass
        return True


def parse_event(block: bytes) -> Event:
    """Cut one block of lines into an event; strict about what this server promises (LF, one space)."""
    holds(b"\r" not in block, f"CR in an event stream: {block!r}")
    name = ident = comment = retry = None
    datas: list[bytes] = []
    lines = block.split(b"\n")
    for line in lines:
        if line.startswith(b":"):
            comment = line[1:].decode()
            continue
        field, colon, value = line.partition(b":")
        holds(colon == b":" and value.startswith(b" "), f"not one space after the colon: {line!r}")
        value = value[1:]
        if field == b"data":
            datas.append(value)
        elif field == b"event":
            name = value.decode()
        elif field == b"id":
            ident = value.decode()
        elif field == b"retry":
            retry = value.decode()
        else:
            raise Failed(f"unknown field in an event stream: {line!r}")
    return Event(name, b"\n".join(datas), ident, comment, retry, tuple(lines))


def create(api: Api, topics: dict[str, Any], query: str = "", **fields: Any) -> dict[str, Any]:
    """Make a watch session; the answer."""
    answer: Answer = api.call("POST", f"/v0/watch{query}", {"topics": topics, **fields}, status=(200, 201))
    made: dict[str, Any] = answer.json
    return made


def watch(api: Api, topics: dict[str, Any], **fields: Any) -> Stream:
    """Make a watch session and open its stream."""
    return Stream(api, create(api, topics, **fields)["stream_url"])


def decoded_id(event: Event) -> dict[str, int]:
    """The topic → seq of an event's id."""
    import base64

    holds(event.id is not None, f"event {event.name} has no id")
    text = event.id or ""
    holds("=" not in text, f"padded id {text}")
    found: dict[str, int] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found
