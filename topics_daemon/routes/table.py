"""Paths and methods → routes: the one list of what the daemon answers.

The order of checks is that of http-api.md §1: unknown path 404, method 405, then who is asking, then names and bodies.
All of it depends on the head alone, so it is done once for each distinct head; a refusal found here is kept in the
head and raised for every request that begins with it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from engine.errors import Code, Refused
from engine.limits import Limits
from engine.names import check_topic_name
from topics_daemon.auth import Gate, forbidden_name, unauthorized
from topics_daemon.body import payload_too_large
from topics_daemon.head import Content, Head, unescape
from topics_daemon.keys import Scope, digest_of
from topics_daemon.routes import (
    admin,
    append,
    cursors,
    delete,
    diff,
    exports,
    health,
    many,
    metrics,
    moves,
    openapi,
    queue,
    records,
    routers,
    topics,
    watch,
    work,
    write,
    ws,
)

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

Handler = Callable[["Daemon", "Requester", Head, bytes, int], bytes | None]
"""(daemon, connection, head, body, started_ns) → the whole answer, or None when an `Exchange` will give it later."""


class Body(Enum):
    """What a route does with a body."""

    IGNORED = "ignored"
    OPTIONAL = "optional"
    REQUIRED = "required"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    handler: Handler
    scope: Scope
    """What the caller's key must be good for."""
    body: Body = Body.IGNORED
    kinds: frozenset[Content] = frozenset({Content.JSON})
    pipelines: bool = False
    """Whether it may run before the answers of earlier requests like it are there (writes, which then share a tick)."""
    probe: bool = False
    """Whether it is answered while the daemon is not ready, and without a key."""
    early: bool = False
    """Whether it is answered while the daemon is not ready, with a key."""
    whole: bool = False
    """Whether it is about the whole store, so that a key which is limited to some names may not use it."""
    late: bool = False
    """Whether the handler itself asks who is there, because something comes before it (an unknown watch id)."""
    bulk: bool = False
    """Whether its body holds records, or as many names as there are topics; that of others is much smaller."""
    streams_body: bool = False
    """Whether its handler is asked before the body is there, which may have no end."""
    stream: bool = False
    """Whether it is opened by a browser's EventSource or WebSocket, which cannot set headers: the key may come as
    `?token=`."""


_WRITE_KINDS: Final = frozenset({Content.JSON, Content.NDJSON, Content.LINES})
_LINE_KINDS: Final = frozenset({Content.NDJSON, Content.LINES})
_BOTH: Final = Scope.READ | Scope.WRITE
_ANY_NAME: Final = ":topic"
_ANY_PARAM: Final = ":param"

ROUTES: Final[dict[tuple[str, ...], dict[str, Route]]] = {
    ("healthz",): {"GET": Route(handler=health.health, scope=Scope.NONE, probe=True)},
    ("readyz",): {"GET": Route(handler=health.ready, scope=Scope.NONE, probe=True)},
    ("v0", "health"): {"GET": Route(handler=health.health, scope=Scope.NONE, probe=True)},
    ("v0", "ready"): {"GET": Route(handler=health.ready, scope=Scope.NONE, probe=True)},
    ("v0", "metrics"): {"GET": Route(handler=metrics.get_metrics, scope=Scope.READ, early=True)},
    ("v0", "openapi.json"): {"GET": Route(handler=openapi.get_document, scope=Scope.NONE, early=True)},
    ("v0", "admin", "checkpoint"): {"POST": Route(handler=admin.checkpoint, scope=Scope.ADMIN, whole=True)},
    ("v0", "admin", "store"): {"GET": Route(handler=admin.store, scope=Scope.ADMIN, whole=True)},
    ("v0", "admin", "exports"): {
        "POST": Route(handler=exports.pin, scope=Scope.ADMIN, body=Body.OPTIONAL, bulk=True),
        "GET": Route(handler=exports.list_pins, scope=Scope.ADMIN, whole=True),
    },
    ("v0", "admin", "exports", _ANY_PARAM): {"DELETE": Route(handler=exports.unpin, scope=Scope.ADMIN, whole=True)},
    ("v0", "admin", "attach"): {"POST": Route(handler=moves.attach, scope=Scope.ADMIN, body=Body.REQUIRED)},
    ("v0", "routers"): {"GET": Route(handler=routers.list_routers, scope=Scope.READ)},
    ("v0", "routers", _ANY_PARAM): {
        "GET": Route(handler=routers.get_router, scope=Scope.READ),
        "PUT": Route(handler=routers.put_router, scope=Scope.ADMIN, body=Body.REQUIRED),
        "DELETE": Route(handler=routers.drop_router, scope=Scope.DELETE),
    },
    ("v0", "topics"): {"GET": Route(handler=topics.list_topics, scope=Scope.READ)},
    ("v0", "topics", _ANY_NAME): {
        "GET": Route(handler=topics.get_topic, scope=Scope.READ),
        "PUT": Route(handler=topics.put_topic, scope=Scope.ADMIN, body=Body.OPTIONAL),
        "DELETE": Route(handler=topics.drop_topic, scope=Scope.DELETE),
        "POST": Route(
            handler=write.write_topic,
            scope=Scope.WRITE,
            body=Body.REQUIRED,
            kinds=_WRITE_KINDS,
            pipelines=True,
            bulk=True,
        ),
    },
    ("v0", "topics", _ANY_NAME, "diff"): {"POST": Route(handler=diff.diff_topic, scope=Scope.READ, body=Body.OPTIONAL)},
    ("v0", "topics", _ANY_NAME, "delete"): {
        "POST": Route(handler=delete.delete_records, scope=Scope.DELETE, body=Body.OPTIONAL)
    },
    ("v0", "topics", _ANY_NAME, "detach"): {
        "POST": Route(handler=moves.detach, scope=Scope.ADMIN, body=Body.REQUIRED),
        "DELETE": Route(handler=moves.cancel, scope=Scope.ADMIN),
    },
    ("v0", "topics", _ANY_NAME, "claim"): {"POST": Route(handler=queue.claim, scope=_BOTH, body=Body.REQUIRED)},
    ("v0", "topics", _ANY_NAME, "ack"): {"POST": Route(handler=queue.ack, scope=Scope.WRITE, body=Body.REQUIRED)},
    ("v0", "topics", _ANY_NAME, "nack"): {"POST": Route(handler=queue.nack, scope=Scope.WRITE, body=Body.REQUIRED)},
    ("v0", "topics", _ANY_NAME, "extend"): {"POST": Route(handler=queue.extend, scope=Scope.WRITE, body=Body.REQUIRED)},
    ("v0", "topics", _ANY_NAME, "requeue"): {"POST": Route(handler=queue.requeue, scope=_BOTH, body=Body.REQUIRED)},
    ("v0", "topics", _ANY_NAME, "work"): {
        "GET": Route(handler=work.work, scope=_BOTH, stream=True),
        "DELETE": Route(handler=work.drain, scope=_BOTH),
    },
    ("v0", "topics", _ANY_NAME, "leases"): {"GET": Route(handler=queue.leases, scope=Scope.READ)},
    ("v0", "topics", _ANY_NAME, "cursors"): {"GET": Route(handler=cursors.list_cursors, scope=Scope.READ)},
    ("v0", "topics", _ANY_NAME, "cursors", _ANY_PARAM): {
        "GET": Route(handler=cursors.get_cursor, scope=Scope.READ),
        "PUT": Route(handler=cursors.put_cursor, scope=Scope.WRITE, body=Body.REQUIRED),
        "DELETE": Route(handler=cursors.drop_cursor, scope=Scope.DELETE),
    },
    ("v0", "topics", _ANY_NAME, "records"): {
        "POST": Route(
            handler=append.append_stream, scope=Scope.WRITE, body=Body.REQUIRED, kinds=_LINE_KINDS, streams_body=True
        )
    },
    ("v0", "topics", _ANY_NAME, "records", _ANY_PARAM): {"GET": Route(handler=records.get_record, scope=Scope.READ)},
    ("v0", "write"): {
        "POST": Route(handler=many.write_topics, scope=Scope.WRITE, body=Body.REQUIRED, pipelines=True, bulk=True)
    },
    ("v0", "diff"): {"POST": Route(handler=diff.diff_topics, scope=Scope.READ, body=Body.REQUIRED)},
    ("v0", "watch"): {"POST": Route(handler=watch.open_session, scope=Scope.READ, body=Body.REQUIRED)},
    ("v0", "watch", _ANY_PARAM): {"GET": Route(handler=watch.open_stream, scope=Scope.READ, late=True, stream=True)},
    ("v0", "ws"): {"GET": Route(handler=ws.open_socket, scope=Scope.NONE, stream=True)},
}


def _not_found() -> Refused:
    return Refused(Code.NOT_FOUND, "there is nothing at this path; GET /v0/openapi.json lists what there is")


def _find(path: str) -> tuple[dict[str, Route], list[str]]:
    """The methods of a path, and its variable segments still percent-encoded."""
    segments = path.split("/")[1:]
    exact = ROUTES.get(tuple(segments))
    if exact is not None:
        return exact, []
    for pattern, methods in ROUTES.items():
        if len(pattern) != len(segments):
            continue
        values = []
        for expected, segment in zip(pattern, segments, strict=True):
            if expected[0] == ":" and segment:
                values.append(segment)
            elif expected != segment:
                break
        else:
            return methods, values
    raise _not_found()


def assign(head: Head, gate: Gate, trusted: bool, limits: Limits) -> None:
    """Give `head` its route, caller and variables; raises the refusal that depends on the head and the keys alone."""
    if not head.path.startswith("/"):
        raise _not_found()
    methods, values = _find(head.path)
    route = methods.get(head.method)
    if route is None:
        allowed = sorted(methods)
        raise Refused(
            Code.METHOD_NOT_ALLOWED, f"this path takes {', '.join(allowed)}", {"method": head.method, "allow": allowed}
        )
    head.route = route
    head.streams = route.streams_body
    head.body_bytes_max = limits.body_bytes if route.bulk else min(limits.body_bytes, limits.command_bytes)
    # Its body is never there with it, as the hot path has it.
    head.unique = head.unique or head.streams
    _admit(head, route, gate, trusted)
    if values and len(head.path.split("/")) > 3 and head.path.startswith("/v0/topics/"):
        head.name = check_topic_name(unescape(values[0]))
        head.name_bytes = head.name.encode("ascii")
        head.caller.check(head.name)
        values = values[1:]
    if values:
        head.param = unescape(values[0])
    _check_body(head, route)


def _admit(head: Head, route: Route, gate: Gate, trusted: bool) -> None:
    """Find out who asks: 401, then the 403 of scopes."""
    credential = head.credential
    if route.stream:
        token = head.query.pop("token", None)
        if token is not None and credential is None:
            credential = digest_of(token.encode())
    caller = gate.find(credential, trusted=trusted)
    if route.late or (route.probe and not gate.probe_auth):
        head.caller = caller or gate.nobody
        return
    if caller is None:
        raise unauthorized()
    head.caller = caller
    caller.require(route.scope)
    if route.whole and caller.prefixes:
        raise forbidden_name()


def _check_body(head: Head, route: Route) -> None:
    if head.length > head.body_bytes_max and not route.streams_body:
        raise payload_too_large(head.body_bytes_max)
    if not head.framed:
        if route.body is Body.REQUIRED:
            raise Refused(Code.LENGTH_REQUIRED, "this request needs a body, and a Content-Length that says how long")
        return
    if not head.has_body and (head.content is Content.NONE or route.body is Body.IGNORED):
        return
    if head.content not in route.kinds:
        names = ", ".join(NAMES[kind] for kind in sorted(route.kinds))
        raise Refused(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"the Content-Type of this body must be one of: {names} (for curl -d: -H 'Content-Type: application/json')",
        )
    if head.coding not in ("identity", "gzip"):
        raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, "a body may be compressed with gzip only")


NAMES: Final = {
    Content.JSON: "application/json",
    Content.NDJSON: "application/x-ndjson",
    Content.LINES: "text/x-lines",
}
