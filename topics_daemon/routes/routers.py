"""Routers on the wire (http-api.md §9): made, changed, shown, listed and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from engine.core import Ticket
from engine.core.forwarded import RouterPut
from engine.core.routers import RouterState, check_router_name
from engine.names import is_router_name
from engine.routers.router import RouterSpec, filter_shown
from topics_daemon.answers import json_answer, list_answer
from topics_daemon.auth import forbidden_name
from topics_daemon.decode import check_names, decode
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.routers import routers_of, shows_router
from topics_daemon.routes.asked import MatchIn, list_cursor, match_of, page_size, read_list_cursor
from topics_daemon.routes.gone import GoneExchange

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class RouterIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body that makes a router, or changes one: what is left out is as it was.

    A new one preserves node and tag, makes its dest, has no filter, closes no cycle, and starts now.
    """

    source: str
    dest: str
    preserve_node: bool | UnsetType = UNSET
    preserve_tag: bool | UnsetType = UNSET
    create_dest: bool | UnsetType = UNSET
    filter: MatchIn | UnsetType = UNSET
    allow_cycle: bool | UnsetType = UNSET
    guarantee: Literal["at_least_once", "exactly_once"] | UnsetType = UNSET
    start: Literal["now", "earliest"] | UnsetType = UNSET


ROUTER: Final = msgspec.json.Decoder(RouterIn)
_SPEC: Final = RouterSpec.__struct_fields__


def shown(found: RouterState | RouterPut) -> dict[str, Any]:
    """A router's definition."""
    spec = found.spec
    definition = {"source": found.source, "dest": found.dest, **msgspec.structs.asdict(spec)}
    definition["filter"] = filter_shown(spec.filter)
    return definition


def state_shown(state: RouterState) -> dict[str, Any]:
    """A router, and how far it is."""
    return {
        "router": state.router,
        **shown(state),
        "forwarded_total": state.forwarded_total,
        "cursor": state.cursor,
        "lag": state.lag,
        "blocked": state.blocked,
    }


class PutRouterExchange(Exchange):
    """A router on its way to the disk."""

    __slots__ = ("warnings",)

    warnings: list[str]

    def answered(self, ticket: Ticket[RouterPut]) -> None:
        """Give the answer of the engine."""
        assert self.head is not None
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        put = ticket.value()
        answer: dict[str, Any] = {
            "router": put.router,
            "created": put.created,
            **shown(put),
            "performance": {"fsync_ms": ticket.sync_ns / 1e6},
        }
        self.finish(json_answer(self.head, 201 if put.created else 200, answer, self.warnings, self.started_ns))


def put_router(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`PUT /v0/routers/:r`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    read = decode(ROUTER, body, daemon.limits, warnings)
    caller = head.caller
    caller.check(check_router_name(head.param))
    for name in (read.source, read.dest):
        caller.check(name)
    said = {name: value for name in _SPEC if (value := getattr(read, name)) is not UNSET}
    if "filter" in said:
        said["filter"] = match_of(read.filter, daemon.limits, "filter")
    _check_known(daemon, head)
    ticket = daemon.engine.routers.put(head.param, read.source, read.dest, RouterSpec(**said), said)
    exchange = PutRouterExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.follow(ticket, exchange.told)


def _check_known(daemon: Daemon, head: Head) -> None:
    """Raise the 403 for a router that is there already between topics which the caller may not use."""
    router = daemon.engine.catalog.routers.by_name.get(head.param)
    if router is not None and not shows_router(head.caller, daemon.engine.routers.shown(router)):
        raise forbidden_name()


def drop_router(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`DELETE /v0/routers/:r`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    head.caller.check(check_router_name(head.param))
    _check_known(daemon, head)
    ticket = daemon.engine.routers.drop(head.param)
    exchange = GoneExchange(connection, head, started_ns)
    exchange.member, exchange.warnings = "router", warnings
    daemon.follow(ticket, exchange.told)


def get_router(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/routers/:r`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    head.caller.check(check_router_name(head.param))
    _check_known(daemon, head)
    state = daemon.engine.routers.get(head.param)
    daemon.drain(state.dest)
    return json_answer(head, 200, state_shown(daemon.engine.routers.get(head.param)), warnings, started_ns)


_LIST_QUERY: Final = frozenset({"prefix", "source", "dest", "page_size", "cursor"})


def list_routers(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/routers?prefix&source&dest&page_size&cursor`."""
    warnings: list[str] = []
    query, caller = head.query, head.caller
    check_names(query, _LIST_QUERY, warnings)
    size = page_size(query, daemon.limits)
    after = read_list_cursor(query["cursor"], is_router_name) if "cursor" in query else ""
    source, dest = query.get("source"), query.get("dest")
    for name in (source, dest):
        if name is not None:
            caller.check(name)
    core, prefix = daemon.engine, query.get("prefix", "")
    found, _ = routers_of(core, caller, prefix, size, after, source=source, dest=dest)
    daemon.drain(*(state.dest for state in found))
    states, more = routers_of(core, caller, prefix, size, after, source=source, dest=dest)
    following = list_cursor(states[-1].router) if more else None
    return list_answer(head, {"routers": [state_shown(state) for state in states]}, following, warnings, started_ns)
