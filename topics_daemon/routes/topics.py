"""Topics themselves: create and change, show, list, drop (http-api.md §3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from engine.core import Ticket
from engine.names import is_topic_name
from engine.types import TopicDropped, TopicPut, TopicState
from topics_daemon.answers import json_answer, list_answer
from topics_daemon.decode import check_names, decode_changes
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.routes.asked import check_config_names, flag, list_cursor, page_size, read_list_cursor

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester
    from topics_daemon.pump import Pump

LIST_PAGE_DEFAULT: Final = 100
_LISTED: Final = (
    "topic",
    "type",
    "head_seq",
    "earliest_seq",
    "count",
    "bytes",
    "durable",
    "durability",
    "effective_priority",
)


class PutExchange(Exchange):
    """A create or change on its way to the disk."""

    __slots__ = ("pump", "warnings")

    pump: Pump
    warnings: list[str]

    def answered(self, ticket: Ticket[TopicPut]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        put = ticket.value()
        self.pump.configured(put.topic)
        assert self.head is not None
        config = self.head.caller.shown(put.config)
        answer: dict[str, Any] = {"topic": put.topic, "created": put.created, "config": config, "epoch": put.epoch}
        answer["performance"] = {"fsync_ms": ticket.sync_ns / 1e6}
        self.finish(json_answer(self.head, 201 if put.created else 200, answer, self.warnings, self.started_ns))


class DropExchange(Exchange):
    """A drop on its way to the disk."""

    __slots__ = ("warnings",)

    warnings: list[str]

    def answered(self, ticket: Ticket[TopicDropped]) -> None:
        """Give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        dropped = ticket.value()
        assert self.head is not None
        answer = {
            "topic": dropped.topic,
            "deleted": dropped.deleted,
            "routers_removed": [name for name in dropped.routers_removed if self.head.caller.allows(name)],
            "performance": {"fsync_ms": ticket.sync_ns / 1e6},
        }
        self.finish(json_answer(self.head, 200, answer, self.warnings, self.started_ns))


def put_topic(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`PUT /v0/topics/:t`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    changes = decode_changes(body, daemon.limits, warnings)
    check_config_names(head.caller, changes)
    ticket = daemon.engine.put_topic(head.name, changes)
    exchange = PutExchange(connection, head, started_ns)
    exchange.pump, exchange.warnings = daemon.pump, warnings
    daemon.follow(ticket, exchange.told)


_DROP_QUERY: Final = frozenset({"if_empty"})


def drop_topic(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`DELETE /v0/topics/:t[?if_empty=true]`."""
    warnings: list[str] = []
    check_names(head.query, _DROP_QUERY, warnings)
    if_empty = flag(head.query, "if_empty", False)
    if if_empty:
        daemon.drain(head.name)
    ticket = daemon.engine.drop_topic(head.name, if_empty=if_empty)
    exchange = DropExchange(connection, head, started_ns)
    exchange.warnings = warnings
    daemon.follow(ticket, exchange.told)


_STATE_QUERY: Final = frozenset({"touch"})


def get_topic(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/topics/:t[?touch=false]`."""
    warnings: list[str] = []
    check_names(head.query, _STATE_QUERY, warnings)
    daemon.drain(head.name)
    daemon.reading()
    touch = flag(head.query, "touch", True)
    state = daemon.engine.state(head.name, touch=touch)
    if touch:
        daemon.touch(head.name)
    answer: dict[str, Any] = {name: getattr(state, name) for name in TopicState.__struct_fields__}
    answer["config"] = head.caller.shown(state.config)
    damage, queue, moved = answer.pop("damage"), answer.pop("queue"), answer.pop("moved")
    if queue is not None:
        if answer["config"] is not state.config and "dead_letter_problem" in queue:
            # What is wrong with a topic that the key may not use may name it.
            queue["dead_letter_problem"] = "the dead_letter topic takes nothing"
        answer["queue"] = queue
    if moved:
        answer["moved"] = moved
    if damage:
        answer["damage"] = [{"from": first, "to": last} for first, last in damage]
    return json_answer(head, 200, answer, warnings, started_ns)


_LIST_QUERY: Final = frozenset({"prefix", "page_size", "cursor"})


def list_topics(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/topics?prefix&page_size&cursor`."""
    warnings: list[str] = []
    query = head.query
    check_names(query, _LIST_QUERY, warnings)
    size = page_size(query, daemon.limits)
    after = read_list_cursor(query["cursor"], is_topic_name) if "cursor" in query else ""
    daemon.reading()
    ranges = head.caller.ranges(query.get("prefix", ""))
    states, following = _listed(daemon, ranges, size, after)
    daemon.drain(*(state.topic for state in states))
    states, following = _listed(daemon, ranges, size, after)
    rows = [_row(state) for state in states]
    cursor = None if following is None else list_cursor(following)
    return list_answer(head, {"topics": rows}, cursor, warnings, started_ns)


def _listed(daemon: Daemon, ranges: Sequence[str], size: int, after: str) -> tuple[list[TopicState], str | None]:
    """A page of the topics whose names begin with one of `ranges` (ascending), and its last name when more follow."""
    states: list[TopicState] = []
    for prefix in ranges:
        states += daemon.engine.list_topics(prefix, size + 1 - len(states), after)[0]
        if len(states) > size:
            return states[:size], states[size - 1].topic
    return states, None


def _row(state: TopicState) -> dict[str, Any]:
    row = {name: getattr(state, name, None) for name in _LISTED}
    row["durable"], row["durability"] = state.config.durable, state.config.durability
    return row
