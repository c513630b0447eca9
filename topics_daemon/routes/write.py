"""Writes to one topic, in three kinds of body (http-api.md §4).

The hot path of the daemon. A write's answer is formatted straight into bytes when its ticket completes; nothing is
made in between but the batch, the ticket and the `Exchange`.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

import msgspec

from engine.commands import Batch
from engine.core import Ticket
from engine.errors import TopicsError, invalid
from engine.types import AppendResult, ConfigChanges
from topics_daemon.answers import CREATED_JSON, ok_head, respond, warnings_tail
from topics_daemon.decode import (
    Write,
    check_key,
    check_names,
    decode_ndjson,
    decode_text_lines,
    decode_write,
)
from topics_daemon.exchange import Exchange
from topics_daemon.head import Content, Head
from topics_daemon.keys import Scope
from topics_daemon.routes.asked import check_config_names, flag

if TYPE_CHECKING:
    from topics_daemon.answers import Repeated
    from topics_daemon.auth import Caller
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

_BOOL: Final = (b"false", b"true")
_JSON: Final = int(Content.JSON)
"""Kinds up to here are JSON, or nothing."""
_JSON_QUERY: Final = frozenset({"return_seqs"})
_LINES_QUERY: Final = frozenset({"return_seqs", "tag", "node", "meta", "idempotency_key", "create"})


LARGE_BYTES: Final = 1024 * 1024
"""A body from here on is gone through in steps: one that is smaller takes two milliseconds."""

_INSISTS: Final = re.compile(rb"disable_backpressure|\\")
"""What is in each body that is not to be refused for pressure; a backslash may stand for anything."""

_MEMBERS: Final = (
    b'"topic":"%b","first_seq":%d,"last_seq":%d%b,"head_seq":%d,"count":%d,"created":%b,"deduped":%b,"epoch":%d'
)
"""A write answer, but `warnings` and `performance`. Names need no escaping: their grammar."""
_ANSWER: Final = b"{" + _MEMBERS + b'%b,"performance":{"server_total_ms":%.3f,%b}}'


class WriteExchange(Exchange):
    """A write on its way to the log."""

    __slots__ = ("return_seqs", "warnings")

    return_seqs: bool
    warnings: list[str] | None

    def answered(self, ticket: Ticket[AppendResult]) -> None:
        """Give the answer of the engine."""
        result = ticket.result
        if result is None:
            self.fail(ticket.error or _unanswered())
            return
        head = self.head
        assert head is not None
        first = result.first_seq
        if first == result.last_seq:
            seqs = b',"seqs":[%d]' % first if self.return_seqs else b""
        else:
            seqs = seqs_member(result) if self.return_seqs else b""
        body = _ANSWER % (
            head.name_bytes,
            first,
            result.last_seq,
            seqs,
            result.head_seq,
            result.count,
            _BOOL[result.created],
            _BOOL[result.deduped],
            result.epoch,
            warnings_tail(self.warnings) if self.warnings else b"",
            (time.perf_counter_ns() - self.started_ns) / 1e6,
            DISK_TIMES.shown(ticket.write_ns, ticket.sync_ns),
        )
        if head.plain:
            self.finish(CREATED_JSON % (len(body), body) if result.created else ok_head(len(body)) + body)
        else:
            self.finish(respond(head, 201 if result.created else 200, body))


class LargeWrite(Exchange):
    """A write with so large a body that others are looked at between its steps: it has come, is decoded, is staged. Its
    answer is another exchange's, as of any write."""

    __slots__ = ("_body", "_pressed", "_write", "in_line")

    def __init__(
        self, connection: Requester, head: Head, body: bytes, started_ns: int, pressed: Repeated | None
    ) -> None:
        super().__init__(connection, head, started_ns)
        self.in_line = False
        self._body = body
        self._pressed = pressed
        self._write: Write | None = None

    def go_on(self) -> None:
        """Take the next steps, as far as the time of this slice lasts; before others, for the memory that it takes."""
        daemon, head = self.connection.daemon, self.head
        assert head is not None
        try:
            while not daemon.shares.comes_later(self, first=True):
                if self._write is not None:
                    self._submit(daemon, head, self._write)
                    return
                self._write, self._body = _decoded(daemon, head, self._body), b""
        except TopicsError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            self.fail(daemon.internal_error(error))

    def _submit(self, daemon: Daemon, head: Head, write: Write) -> None:
        # The keys may be others by now.
        head.caller.require(Scope.WRITE)
        head.caller.check(head.name)
        answer = submit(daemon, self.connection, head, write, self.started_ns, self._pressed)
        if answer is not None:
            self.finish(answer)
            return
        self.abandon()
        if self in self.connection.pending:  # else the client has hung up meanwhile
            self.connection.pending.remove(self)


class _DiskTimes:
    """How the times of the disk are shown; all writes of a tick share them, so the last ones are kept."""

    __slots__ = ("_shown", "_sync_ns", "_write_ns", "throttle_wait_ms")

    def __init__(self) -> None:
        self._write_ns = self._sync_ns = -1
        self._shown = b""
        self.throttle_wait_ms = 0.0
        """How long writes wait for others to join their group, while the daemon is pressed."""

    def shown(self, write_ns: int, sync_ns: int) -> bytes:
        """The two members of `performance`."""
        if write_ns != self._write_ns or sync_ns != self._sync_ns:
            self._write_ns, self._sync_ns = write_ns, sync_ns
            self._shown = b'"wal_append_ms":%.3f,"fsync_ms":%.3f' % (write_ns / 1e6, sync_ns / 1e6)
            if self.throttle_wait_ms:
                self._shown += b',"throttle_wait_ms":%.3f' % self.throttle_wait_ms
        return self._shown


DISK_TIMES: Final = _DiskTimes()


def note_pacing(window_s: float) -> None:
    """Say in the answers of writes how long they wait for their group."""
    DISK_TIMES.throttle_wait_ms = window_s * 1000


def _unanswered() -> TopicsError:
    raise AssertionError("a ticket completes with a result or an error")


def seqs_member(result: AppendResult) -> bytes:
    """The `seqs` of a write answer, comma first."""
    return b',"seqs":%b' % msgspec.json.encode(list(range(result.first_seq, result.last_seq + 1)))


def result_members(result: AppendResult, return_seqs: bool) -> bytes:
    """The members of a write answer, but `warnings` and `performance`."""
    return _MEMBERS % (
        result.topic.encode("ascii"),
        result.first_seq,
        result.last_seq,
        seqs_member(result) if return_seqs else b"",
        result.head_seq,
        result.count,
        _BOOL[result.created],
        _BOOL[result.deduped],
        result.epoch,
    )


def write_topic(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes | None:
    """`POST /v0/topics/:t`."""
    pressed = daemon.pressure.refusal(connection.waited_s()) if daemon.governor.refusing else None
    if pressed is not None and _INSISTS.search(body) is None:
        return _refused(daemon, head, pressed, started_ns)
    if len(body) >= LARGE_BYTES:
        LargeWrite(connection, head, body, started_ns, pressed).go_on()
        return None
    return submit(daemon, connection, head, _decoded(daemon, head, body), started_ns, pressed)


def _decoded(daemon: Daemon, head: Head, body: bytes) -> Write:
    """What a body of any kind asks for."""
    if head.content > _JSON:
        return _decode_lines(daemon, head, body)
    write = decode_write(body, daemon.limits)
    if head.query:
        _take_json_query(head, write)
    return write


def _refused(daemon: Daemon, head: Head, pressed: Repeated, started_ns: int) -> bytes:
    """The answer of a write that is refused for pressure. Nothing is raised: what a refusal costs, others wait for."""
    daemon.metrics.refused(pressed.error)
    return pressed.answer(head, started_ns)


def submit(
    daemon: Daemon, connection: Requester, head: Head, write: Write, started_ns: int, pressed: Repeated | None
) -> bytes | None:
    """Hand a write to the engine; its answer comes with the turn, but for who does not insist while it is pressed."""
    if pressed is not None and not write.insists:
        return _refused(daemon, head, pressed, started_ns)
    if write.config is not None:
        check_config(head.caller, write.config)
    if write.key is None and head.idempotency_key is not None:
        write.key = check_key(head.idempotency_key, daemon.limits)
    ticket = daemon.engine.append(
        head.name,
        write.batch,
        key=write.key,
        create=write.create,
        config=write.config,
        ack_fsync=write.ack_fsync,
    )
    exchange = WriteExchange(connection, head, started_ns)
    exchange.return_seqs = write.return_seqs
    exchange.warnings = write.warnings
    daemon.follow(ticket, exchange.told)
    return None


def check_config(caller: Caller, changes: ConfigChanges) -> None:
    """A configuration inside a write is a matter of admin, and so are the names in it."""
    caller.require(Scope.ADMIN)
    check_config_names(caller, changes)


def _take_json_query(head: Head, write: Write) -> None:
    if head.options is None:
        warnings: list[str] = []
        check_names(head.query, _JSON_QUERY, warnings)
        head.options = (flag(head.query, "return_seqs", True) if "return_seqs" in head.query else None, warnings)
    return_seqs, warnings = head.options
    if return_seqs is not None:
        write.return_seqs = return_seqs
    if warnings:
        write.warnings = [*(write.warnings or ()), *warnings]


def _decode_lines(daemon: Daemon, head: Head, body: bytes) -> Write:
    """A body of lines, NDJSON or text; what a JSON body says in fields is in the query here."""
    limits = daemon.limits
    warnings: list[str] = []
    query = head.query
    check_names(query, _LINES_QUERY, warnings)
    datas = (decode_ndjson if head.content is Content.NDJSON else decode_text_lines)(body, limits)
    key = query.get("idempotency_key")
    return Write(
        batch_of_lines(query, datas),
        None if key is None else check_key(key, limits),
        flag(query, "create", True) if "create" in query else None,
        return_seqs=flag(query, "return_seqs", True),
        warnings=warnings or None,
    )


def batch_of_lines(query: dict[str, str], datas: list[bytes]) -> Batch:
    """Values of lines as records; tag, node and meta are in the query, the same for all of them."""
    batch = Batch(datas)
    count = len(datas)
    if "tag" in query:
        batch.tags = [query["tag"]] * count
    if "node" in query:
        batch.nodes = [query["node"]] * count
    if "meta" in query:
        batch.metas = [_meta(query["meta"])] * count
    return batch


def _meta(text: str) -> bytes:
    """A `meta` from the query: JSON, whose being an object the engine checks. Line breaks between tokens go."""
    try:
        return bytes(msgspec.json.decode(text.encode(), type=msgspec.Raw))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise invalid("meta must be a JSON object", "meta") from error
