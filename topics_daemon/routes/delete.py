"""Deleting records for good (http-api.md §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from engine.commands import DeleteSelector, LargeDelete
from engine.core import Ticket
from engine.errors import TopicsError, invalid, topic_not_found
from engine.topic.history import NotCached
from engine.types import U64_MAX, DeleteResult
from topics_daemon.answers import json_answer
from topics_daemon.decode import check_names, decode
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head
from topics_daemon.readers import Asking
from topics_daemon.routes.asked import MatchIn, match_of

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


class DeleteIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a delete."""

    before_seq: int | None = None
    match: MatchIn = None
    seqs: list[int] | None = None


STEP_RECORDS: Final = 1024
"""Records found by their tags that are deleted at once: 2 to 3 µs each, in a turn of the engine."""
_DELETE: Final = msgspec.json.Decoder(DeleteIn)


class DeleteExchange(Exchange):
    """A delete on its way to the log: one step of it, or one after the other.

    What is found by tag may be all that a topic holds: each `STEP_RECORDS` of it are a delete of their own, in a turn
    of their own. The head at its beginning bounds them all, and they end with the topic that they began in.
    """

    __slots__ = ("_asking", "_deleted", "_selector", "_sync_ns", "_topic", "_until", "_write_ns", "in_line", "warnings")

    def __init__(
        self, connection: Requester, head: Head, started_ns: int, selector: DeleteSelector, warnings: list[str]
    ) -> None:
        """Begin. Raises what refuses the delete, and `NotCached`."""
        daemon = connection.daemon
        self._topic = daemon.engine.catalog.reader(head.name).topic
        self._selector = selector
        ticket = self._step(daemon, head.name)
        super().__init__(connection, head, started_ns)
        self.in_line = False
        self.warnings = warnings
        self._asking = Asking(daemon.readers)
        self._deleted = self._write_ns = self._sync_ns = 0
        daemon.follow(ticket, self.told)

    def _step(self, daemon: Daemon, name: str) -> Ticket[DeleteResult]:
        """Delete what is left, or the first of it where that is much."""
        try:
            self._until: int | None = None
            return daemon.engine.delete(name, self._selector)
        except LargeDelete as large:
            before = self._selector.before_seq
            self._until = large.until
            self._selector = replace(
                self._selector, before_seq=self._topic.head + 1 if before is None else min(before, self._topic.head + 1)
            )
            return daemon.engine.delete(name, replace(self._selector, before_seq=large.until + 1))

    def answered(self, ticket: Ticket[DeleteResult]) -> None:
        """A step is done: go on, or give the answer of the engine."""
        if ticket.error is not None:
            self.fail(ticket.error)
            return
        result = ticket.value()
        self._deleted += result.deleted
        self._write_ns += ticket.write_ns
        self._sync_ns += ticket.sync_ns
        if self._until is not None:
            self._selector = replace(self._selector, after_seq=self._until)
            # Not here: this may be inside of the engine's turn.
            self.connection.daemon.loop.call_soon(self.go_on)
            return
        self._asking.done()
        answer = msgspec.structs.asdict(result)
        answer["deleted"] = self._deleted
        answer["performance"] = {"wal_append_ms": self._write_ns / 1e6, "fsync_ms": self._sync_ns / 1e6}
        self.finish(json_answer(self.head, 200, answer, self.warnings, self.started_ns))

    def go_on(self) -> None:
        """The next step, when it is its turn."""
        if not self.connection.daemon.shares.comes_later(self):
            self.again()

    def again(self) -> None:
        """The next step, now that what it lacks is read."""
        daemon, head = self.connection.daemon, self.head
        assert head is not None
        self._asking.refresh()
        try:
            if daemon.engine.catalog.reader(head.name).topic is not self._topic:
                raise topic_not_found(head.name)
            ticket = self._step(daemon, head.name)
        except NotCached as lack:
            self._asking.wait(lack.job, self)
        except TopicsError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            self.fail(daemon.internal_error(error))
        else:
            self._asking.forget()
            daemon.follow(ticket, self.told)

    def fail(self, error: TopicsError) -> None:
        self._asking.done()
        super().fail(error)


def delete_records(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> None:
    """`POST /v0/topics/:t/delete`."""
    warnings: list[str] = []
    check_names(head.query, frozenset(), warnings)
    read = decode(_DELETE, body, daemon.limits, warnings)
    if read.before_seq is None and read.match is None and read.seqs is None:
        raise invalid("a delete needs at least one of before_seq, match, seqs")
    if read.before_seq is not None and not 0 <= read.before_seq <= U64_MAX:
        raise invalid(f"before_seq must be between 0 and {U64_MAX}", "before_seq")
    if read.seqs is not None:
        if len(read.seqs) > daemon.limits.delete_seqs:
            raise invalid(f"seqs may list {daemon.limits.delete_seqs} seqs; split the delete", "seqs")
        if not all(0 <= seq <= U64_MAX for seq in read.seqs):
            raise invalid(f"seqs must be between 0 and {U64_MAX}", "seqs")
    selector = DeleteSelector(
        before_seq=read.before_seq,
        match=match_of(read.match, daemon.limits),
        seqs=None if read.seqs is None else tuple(read.seqs),
        most=STEP_RECORDS,
    )
    daemon.drain(head.name)  # who deletes what there is means the copies of what was acked too
    DeleteExchange(connection, head, started_ns, selector, warnings)
