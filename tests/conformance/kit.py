"""What cases are made of: the registry, an `Api` for each case, and checks that say what was wrong.

A case is a function with a section, and the sentence of http-api.md that it shows as its docstring. It gets an `Api`
of its own: a connection, topic names that nobody else has, and cleaning up afterwards. Every answer from 400 up is
checked against the error body of §1 on its way through `Api.call`, so no case needs to repeat that.

Sections are a plain dictionary: a file of cases registers itself by being imported in `sections.py`.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.conformance import rawjson
from tests.conformance.wire import Connection, Response, Target, render_request
from tests.conformance.wire2 import connect

JSON = "application/json"
NDJSON = "application/x-ndjson"
LINES = "text/x-lines"
U64_MAX = 2**64 - 1

CODES: dict[int, frozenset[str]] = {
    400: frozenset({"invalid_request", "batch_too_large", "record_too_large"}),
    401: frozenset({"unauthorized"}),
    403: frozenset({"forbidden"}),
    404: frozenset({"topic_not_found", "router_not_found", "not_found"}),
    405: frozenset({"method_not_allowed"}),
    406: frozenset({"not_acceptable"}),
    409: frozenset(
        {
            "cursor_conflict",
            "topic_moved",
            "topic_exists_incompatible",
            "topic_not_empty",
            "router_cycle",
            "not_a_queue",
            "topic_damaged",
        }
    ),
    411: frozenset({"length_required"}),
    413: frozenset({"payload_too_large"}),
    414: frozenset({"uri_too_long"}),
    415: frozenset({"unsupported_media_type"}),
    421: frozenset({"misdirected"}),
    422: frozenset({"topic_full", "idempotency_mismatch"}),
    429: frozenset({"throttled"}),
    431: frozenset({"headers_too_large"}),
    500: frozenset({"internal"}),
    503: frozenset({"not_ready", "shutting_down", "cold_unavailable", "read_only"}),
    507: frozenset({"disk_full"}),
}


class Failed(Exception):
    """What was seen is not what the sentence says."""


class Needs(Enum):
    """What a case needs of the server beside its address."""

    NOTHING = "nothing"
    TCP = "a TCP listener"
    NO_KEYS = "a server without keys"
    KEYS = "keys of several scopes (--read-key, --write-key, --prefix-key)"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a server with authentication: everything, read only, write only, everything on `prefix` names."""

    full: str | None = None
    read: str | None = None
    write: str | None = None
    prefixed: str | None = None
    prefix: str = ""

    @property
    def are_all_there(self) -> bool:
        """Whether cases about scopes can be run."""
        return None not in (self.full, self.read, self.write, self.prefixed)


@dataclass(frozen=True, slots=True)
class Case:
    """One sentence of the specification and how it is shown."""

    section: str
    name: str
    sentence: str
    run: Callable[[Api], None]
    needs: Needs

    def missing(self, target: Target, keys: Keys) -> str | None:
        """Why this case cannot be run against that server, or None."""
        lacks = {
            Needs.NOTHING: False,
            Needs.TCP: not target.is_tcp,
            Needs.NO_KEYS: keys.full is not None,
            Needs.KEYS: not keys.are_all_there,
        }[self.needs]
        return f"needs {self.needs.value}" if lacks else None


CASES: list[Case] = []
Run = Callable[["Api"], None]


def case(section: str, needs: Needs = Needs.NOTHING) -> Callable[[Run], Run]:
    """Register the function below as a case of `section` (`4 write`); its docstring is the sentence."""

    def register(run: Run) -> Run:
        sentence = " ".join((run.__doc__ or "").split())
        if not sentence:
            raise ValueError(f"{run.__name__} shows no sentence")
        _add(Case(section, run.__name__, sentence, run, needs))
        return run

    return register


def each(
    section: str, values: Iterable[tuple[str, Any]], needs: Needs = Needs.NOTHING
) -> Callable[[Callable[[Api, Any], None]], Callable[[Api, Any], None]]:
    """Register a case for each `(label, value)`; the function gets the value as its second argument."""

    def register(run: Callable[[Api, Any], None]) -> Callable[[Api, Any], None]:
        sentence = " ".join((run.__doc__ or "").split())
        if not sentence:
            raise ValueError(f"{run.__name__} shows no sentence")
        for label, value in values:
            _add(Case(section, f"{run.__name__}[{label}]", sentence, _bound(run, value), needs))
        return run

    return register


def _bound(run: Callable[[Api, Any], None], value: Any) -> Run:
    return lambda api: run(api, value)


def _add(new: Case) -> None:
    if any(old.section == new.section and old.name == new.name for old in CASES):
        raise ValueError(f"two cases are called {new.section} {new.name}")
    CASES.append(new)


def same(got: object, want: object, what: str) -> None:
    """Fail unless both are equal, of the same type where it matters (`True` is not 1)."""
    if got != want or isinstance(got, bool) != isinstance(want, bool):
        raise Failed(f"{what}: got {_short(got)}, want {_short(want)}")


def holds(condition: bool, what: str) -> None:
    """Fail with `what` unless the condition holds."""
    if not condition:
        raise Failed(what)


def has(mapping: dict[str, Any], fields: Iterable[str], what: str) -> None:
    """Fail unless all fields are there."""
    missing = [name for name in fields if name not in mapping]
    if missing:
        raise Failed(f"{what}: fields {missing} are missing in {_short(mapping)}")


def part(mapping: dict[str, Any], want: dict[str, Any], what: str) -> None:
    """Fail unless the mapping has these fields with these values (others may be there)."""
    for name, value in want.items():
        if name not in mapping:
            raise Failed(f"{what}: field {name} is missing in {_short(mapping)}")
        same(mapping[name], value, f"{what}: {name}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]} … {text[-80:]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, with its JSON."""

    response: Response

    @property
    def status(self) -> int:
        """The status code."""
        return self.response.status

    @property
    def raw(self) -> bytes:
        """The body's exact bytes."""
        return self.response.body

    @property
    def json(self) -> Any:
        """The body as JSON, which it must be by type and content."""
        media = (self.response.header("content-type") or "").partition(";")[0].strip()
        same(media, JSON, "content type")
        return rawjson.parse(self.response.body)

    @property
    def lines(self) -> list[bytes]:
        """The lines of an NDJSON body, which must each end in LF."""
        media = (self.response.header("content-type") or "").partition(";")[0].strip()
        same(media, NDJSON, "content type")
        holds(self.raw == b"" or self.raw.endswith(b"\n"), f"the last line does not end in LF: {self.raw[-80:]!r}")
        return self.raw.split(b"\n")[:-1]


def check_error(answer: Answer) -> dict[str, Any]:
    """Fail unless the body is the one error body with a code that goes with the status; returns `error`."""
    body = answer.json
    holds(isinstance(body, dict) and isinstance(body.get("error"), dict), f"{answer.status} without error: {body!r}")
    error: dict[str, Any] = body["error"]
    has(error, ("code", "message"), f"error of a {answer.status}")
    holds(set(error) <= {"code", "message", "detail"}, f"error holds other fields: {sorted(error)}")
    holds(error["code"] in CODES.get(answer.status, ()), f"{answer.status} does not go with code {error['code']}")
    holds(isinstance(error["message"], str) and error["message"] != "", "error without a message")
    holds(isinstance(error.get("detail", {}), dict), "detail is not an object")
    return error


@dataclass
class Api:
    """The server as one case sees it."""

    target: Target
    keys: Keys
    _names: list[str] = field(default_factory=list)
    _connection: Connection | None = None

    def topic(self, suffix: str = "") -> str:
        """A topic name that no other case has; dropped at the end."""
        name = f"{self.keys.prefix}conf-{secrets.token_hex(6)}{suffix}"
        self._names.append(name)
        return name

    def also_drop(self, name: str) -> str:
        """Have a topic of another name dropped at the end too."""
        self._names.append(name)
        return name

    def close(self) -> None:
        """Drop the case's topics and close its connection."""
        for name in self._names:
            self.call("DELETE", f"/v0/topics/{name}")
        self.leave()

    def leave(self) -> None:
        """Close the case's connection and leave its topics where they are."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self) -> Connection:
        """A fresh connection for raw bytes (the caller closes it)."""
        return connect(self.target)

    def later(self, delay_s: float, action: Callable[[Api], object]) -> threading.Thread:
        """Start a thread that waits and then acts over a connection of its own; the caller joins it."""

        def act() -> None:
            time.sleep(delay_s)
            other = Api(self.target, self.keys)
            try:
                action(other)
            finally:
                other.close()

        thread = threading.Thread(target=act)
        thread.start()
        return thread

    def auth(self, key: str | None = None) -> tuple[tuple[str, str], ...]:
        """The header that presents a key (the full one by default), if the server has keys."""
        shown = key or self.keys.full
        return (("Authorization", f"Bearer {shown}"),) if shown else ()

    def bytes_of(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: tuple[tuple[str, str], ...] = (),
        media: str | None = JSON,
        key: str | None = None,
    ) -> bytes:
        """The bytes of a request; `body` is bytes as they are, or a value to encode."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if raw is not None and media is not None:
            headers = (("Content-Type", media), *headers)
        return render_request(method, path, self.target.host_header, (*self.auth(key), *headers), raw)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        status: int | tuple[int, ...] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        media: str | None = JSON,
        key: str | None = None,
    ) -> Answer:
        """One request on this case's connection; fails if the status is not (one of) the wanted."""
        return self.exchange(self.bytes_of(method, path, body, headers, media, key), status)

    def exchange(self, request: bytes, status: int | tuple[int, ...] | None = None) -> Answer:
        """Send the bytes of one request, read one answer."""
        if self._connection is None:
            self._connection = self.connect()
        self._connection.send(request)
        answer = Answer(self._connection.read_response())
        if (answer.response.header("connection") or "").lower() == "close":
            self._connection.close()
            self._connection = None
        if status is not None and answer.status not in ((status,) if isinstance(status, int) else status):
            head = request.split(b"\r\n", 1)[0].decode("latin-1")
            raise Failed(f"{head} → {answer.status}, want {status}: {answer.raw[:300]!r}")
        if answer.status >= 400:
            check_error(answer)
        return answer

    def refused(
        self, method: str, path: str, body: object = None, *, status: int, code: str, **how: Any
    ) -> dict[str, Any]:
        """A request that must be refused with this status and code; returns the error's detail."""
        error = check_error(self.call(method, path, body, status=status, **how))
        same(error["code"], code, "code")
        detail: dict[str, Any] = error.get("detail", {})
        return detail

    def put(self, topic: str, **config: Any) -> dict[str, Any]:
        """PUT a topic; the answer."""
        answer: dict[str, Any] = self.call("PUT", f"/v0/topics/{topic}", config, status=(200, 201)).json
        return answer

    def write(self, topic: str, *datas: Any, **fields: Any) -> dict[str, Any]:
        """Write plain data values; the answer."""
        return self.write_records(topic, [{"data": data} for data in datas], **fields)

    def write_records(self, topic: str, records: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """Write whole records; the answer."""
        body = {"records": records, **fields}
        answer: dict[str, Any] = self.call("POST", f"/v0/topics/{topic}", body, status=(200, 201)).json
        return answer

    def write_raw(self, topic: str, raw_datas: list[bytes]) -> dict[str, Any]:
        """Write data values given as exact bytes."""
        body = b'{"records":[' + b",".join(b'{"data":' + raw + b"}" for raw in raw_datas) + b"]}"
        answer: dict[str, Any] = self.call("POST", f"/v0/topics/{topic}", body, status=(200, 201)).json
        return answer

    def diff(self, topic: str, **fields: Any) -> dict[str, Any]:
        """One page; the answer."""
        answer: dict[str, Any] = self.call("POST", f"/v0/topics/{topic}/diff", fields, status=200).json
        return answer

    def datas(self, topic: str, **fields: Any) -> list[Any]:
        """The data values of one page."""
        return [record["data"] for record in self.diff(topic, **fields)["records"]]

    def seqs(self, topic: str, **fields: Any) -> list[int]:
        """The seqs of one page."""
        return [record["$seq"] for record in self.diff(topic, **fields)["records"]]

    def state(self, topic: str, query: str = "") -> dict[str, Any]:
        """The topic's state."""
        answer: dict[str, Any] = self.call("GET", f"/v0/topics/{topic}{query}", status=200).json
        return answer

    def delete(self, topic: str, **fields: Any) -> dict[str, Any]:
        """Delete records; the answer."""
        answer: dict[str, Any] = self.call("POST", f"/v0/topics/{topic}/delete", fields, status=200).json
        return answer
