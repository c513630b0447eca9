"""Writes to several topics at once: each is whole or not at all by itself (http-api.md §4).

All of it is read before anything is done, since one part that is forbidden refuses the whole request. A thousand topics
take twenty milliseconds to read, stage and answer, so that goes in slices, as requests in bulk do (`shares`):

    take apart ─► read each part ─► stage each ─► (the engine answers) ─► show each ─► the answer

What a slice has staged is one group of the log, and so is most of what is ever sent here. Others are not asked whether
they come first while there is little to do (`AT_ONCE_BYTES`): a small request is one step from its body to its staging.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from engine.commands import Batch
from engine.core import Ticket
from engine.errors import TopicsError
from engine.names import check_topic_name
from engine.types import AppendResult
from topics_daemon.answers import error_shown, respond, warnings_tail
from topics_daemon.decode import Write, check_key, check_names, decode_write
from topics_daemon.decode_many import take_apart
from topics_daemon.head import Head
from topics_daemon.keys import Scope
from topics_daemon.routes.write import DISK_TIMES, check_config, result_members
from topics_daemon.shares import ALONE_BYTES_MAX
from topics_daemon.stepping import Stepping

if TYPE_CHECKING:
    from topics_daemon.answers import Repeated
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

TOPIC_BYTES: Final = 1024
"""What a topic costs beside its records, in the time of bytes: 2 to 20 µs, most where it is created."""
SEQ_BYTES: Final = 8
"""What a seq takes in an answer."""
AT_ONCE_BYTES: Final = ALONE_BYTES_MAX
"""What is gone through before others are looked at."""

_NOTHING: Final = Write(Batch([]))
"""Stands for a write that could not be decoded."""


class ManyExchange(Stepping):
    """A write to several topics on its way."""

    __slots__ = ("_daemon", "_done_bytes", "_left", "answers", "warnings")

    def __init__(self, daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
        super().__init__(connection, head, started_ns, self._run(body))
        self.warnings: list[str] = []
        self.answers: dict[str, tuple[Write, Ticket[AppendResult]]] = {}
        self._daemon = daemon
        self._done_bytes = 0
        self._left = 0
        """Topics that are not answered yet."""

    def _run(self, body: bytes) -> Iterator[None]:
        """All of it; others may come first at each `yield`."""
        head, daemon = self.head, self._daemon
        assert head is not None
        check_names(head.query, frozenset(), self.warnings)
        texts: dict[str, bytes] = {}
        taking = take_apart(body, daemon.limits, self.warnings, texts)
        while True:
            try:
                size = next(taking)
            except StopIteration as end:
                node: str | None = end.value
                break
            if self._is_much(size):
                yield
        for name in texts:
            head.caller.check(check_topic_name(name, "topics"))
        # A key is the topic's, so the one of the header stands for every part that has none of its own.
        key = None if head.idempotency_key is None else check_key(head.idempotency_key, daemon.limits)
        pressed = daemon.pressure.refusal(self.connection.waited_s()) if daemon.governor.refusing else None
        parts: dict[str, Write | TopicsError] = {}
        for name, text in texts.items():
            parts[name] = _read_part(daemon, head, text, node, key, pressed)
            if self._is_much(len(text)):
                yield
        # The keys may be others by now; from here on it is done.
        head.caller.require(Scope.WRITE)
        for name in parts:
            head.caller.check(name)
        self._left = len(parts)
        for name, part in parts.items():
            size = self._stage(name, part)
            if self._is_much(size):
                yield
        while self._left:
            self._waits = True
            yield
        yield from self._show()

    def _is_much(self, size: int) -> bool:
        """Whether so much more is as much as may be done before others are looked at."""
        self._done_bytes += TOPIC_BYTES + size
        if self._done_bytes < AT_ONCE_BYTES:
            return False
        self._done_bytes = 0
        return True

    def _stage(self, name: str, part: Write | TopicsError) -> int:
        """Hand the write to one topic to the engine; how large it is."""
        write = _NOTHING
        ticket: Ticket[AppendResult] = Ticket()
        try:
            if isinstance(part, TopicsError):
                raise part.anew()
            write = part
            ticket = self._daemon.engine.append(
                name,
                part.batch,
                key=part.key,
                create=part.create,
                config=part.config,
                ack_fsync=part.ack_fsync,
            )
        except TopicsError as error:
            ticket.fail(error)
        self.answers[name] = write, ticket
        self._daemon.follow(ticket, self._answered)
        return write.batch.bytes

    def _answered(self, _: Ticket[AppendResult]) -> None:
        """One topic is answered."""
        self._left -= 1
        if self._waits and not self._left:
            self.go_on()

    def _show(self) -> Iterator[None]:
        """Everything is answered or refused: make the answer."""
        encode, head = msgspec.json.encode, self.head
        assert head is not None
        shown: list[bytes] = []
        errors: list[TopicsError] = []
        write_ns = sync_ns = 0
        for name, (write, ticket) in self.answers.items():
            size = 0
            if ticket.error is not None:
                errors.append(head.caller.masked(ticket.error))
                shown.append(encode(name) + b":" + encode({"error": error_shown(errors[-1])}))
            else:
                result = ticket.value()
                write_ns, sync_ns = max(write_ns, ticket.write_ns), max(sync_ns, ticket.sync_ns)
                members = result_members(result, write.return_seqs), warnings_tail(write.warnings)
                shown.append(b"%b:{%b%b}" % (encode(name), *members))
                size = SEQ_BYTES * result.count if write.return_seqs else 0
            if self._is_much(size):
                yield
        statuses = {error.status for error in errors}
        common = b""
        status = 207 if errors else 200
        if len(errors) == len(shown) and len(statuses) == 1:
            common = b'"error":%b,' % encode(error_shown(errors[0]))
            (status,) = statuses
        body = b'{%b"topics":{%b},"ok":%d,"failed":%d%b,"performance":{"server_total_ms":%.3f,%b}}' % (
            common,
            b",".join(shown),
            len(shown) - len(errors),
            len(errors),
            warnings_tail(self.warnings),
            (time.perf_counter_ns() - self.started_ns) / 1e6,
            DISK_TIMES.shown(write_ns, sync_ns),
        )
        self.finish(respond(head, status, body))


def write_topics(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/write`."""
    ManyExchange(daemon, connection, head, body, started_ns).go_on()


def _read_part(
    daemon: Daemon, head: Head, text: bytes, node: str | None, key: bytes | None, pressed: Repeated | None
) -> Write | TopicsError:
    """The write to one of several topics, or why it cannot be read; raises what refuses the whole request."""
    try:
        write = decode_write(text, daemon.limits, node)
    except TopicsError as error:
        return error.anew()
    if pressed is not None and not write.insists:
        return pressed.error.anew()
    if write.config is not None:
        check_config(head.caller, write.config)
    if write.key is None:
        write.key = key
    return write
