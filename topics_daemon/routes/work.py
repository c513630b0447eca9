"""Opening work streams, and letting them run dry (queues.md, "Work stream")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.errors import Code, Refused, invalid
from engine.queue.commands import Claim
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_holder, check_names
from topics_daemon.head import Head, takes_events
from topics_daemon.routes.asked import heartbeat_of, match_of, number
from topics_daemon.sse import OPENED
from topics_daemon.work import WORK_BYTES, WorkStream

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

_DRAIN_QUERY: Final = frozenset({"node"})
_QUERY: Final = frozenset({"node", "max", "lease_ms", "match", "heartbeat_ms"})


def _node(head: Head) -> str:
    node = head.query.get("node")
    if not node:
        raise invalid("a worker needs a name: node=…", "node")
    return node


def work(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`GET /v0/topics/:q/work?node&max&lease_ms&match&heartbeat_ms`: from here on the connection is a stream.

    `match` is the short form of a tag filter, as a query can hold it: a tag, or a beginning and `*`.
    """
    if not takes_events(head):
        raise Refused(Code.NOT_ACCEPTABLE, "this is a stream: Accept must allow text/event-stream")
    query = head.query
    check_names(query, _QUERY, [])
    claim = Claim(
        node=check_holder(_node(head), daemon.limits),
        max=min(number(query["max"], "max"), daemon.limits.claim) if "max" in query else 1,
        lease_ms=number(query["lease_ms"], "lease_ms") if "lease_ms" in query else None,
        match=match_of(query.get("match"), daemon.limits),
        max_bytes=WORK_BYTES,
    )
    daemon.engine.queues.find(head.name)
    daemon.pump.check_room(head.caller)
    heartbeat_s = heartbeat_of(number(query["heartbeat_ms"], "heartbeat_ms") if "heartbeat_ms" in query else None)
    WorkStream(daemon, connection, head.caller, head.name, claim, heartbeat_s).open()
    head.tally.add(OPENED, started_ns)


def drain(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`DELETE /v0/topics/:q/work?node`: the streams of a worker get no further jobs once this is answered.

    What they hold stays theirs; each ends when its last lease has ended.
    """
    warnings: list[str] = []
    check_names(head.query, _DRAIN_QUERY, warnings)
    count = daemon.engine.queues.drain(head.name, _node(head))
    daemon.wake()
    return json_answer(head, 200, {"topic": head.name, "streams": count}, warnings, started_ns)
