"""Reading pages: one topic, several topics, and waiting for what is not there yet (http-api.md §5).

A page is a list of slices of bytes that were rendered when they were written; its answer is these slices between two
formatted ends. A reader that is caught up and gave `wait_ms` becomes a waiter of the pump, which looks again whenever
one of its topics has something new.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from engine.errors import Code, Refused, TopicsError
from engine.limits import WAIT_MS_MAX
from engine.names import check_topic_name
from engine.topic.history import NotCached, ReadJob
from engine.types import Page, PageRequest, Tombstone
from topics_daemon.answers import NDJSON, error_shown, respond, warnings_tail
from topics_daemon.decode import check_names, decode, remember
from topics_daemon.exchange import Exchange
from topics_daemon.head import Head, wants_lines
from topics_daemon.presence import Ending, ending_of
from topics_daemon.readers import TURN, Asking
from topics_daemon.routes.asked import (
    READ,
    ReadIn,
    StrictReadIn,
    check_topics,
    check_topics_count,
    in_range,
    page_request,
)

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

_BOOL: Final = (b"false", b"true")
_NO_QUERY: Final[frozenset[str]] = frozenset()
TOPICS_PER_DIFF_MAX: Final = 1000
"""Topics that one request may read."""
TOPICS_AT_ONCE: Final = 32
"""Topics that are read before others are looked at: 5 µs each, some 35 where they are in segments."""


def tombstone_json(tombstone: Tombstone | None) -> bytes:
    """A tombstone as the wire shows it, or null."""
    return b"null" if tombstone is None else msgspec.json.encode(tombstone)


def page_ends(name: bytes, page: Page) -> tuple[bytes, bytes]:
    """What stands before and after the records of a page in a JSON answer, without the closing brace."""
    caught_up = page.next_from_seq == page.head_seq
    return (
        b'{"topic":"%b","epoch":%d,"records":[' % (name, page.epoch),
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":%b,"lag":%d'
        % (
            page.next_from_seq,
            page.head_seq,
            page.earliest_seq,
            _BOOL[caught_up],
            tombstone_json(page.tombstone),
            page.head_seq - page.next_from_seq,
        ),
    )


def page_answer(head: Head, name: bytes, page: Page, warnings: list[str], started_ns: int) -> bytes:
    """The whole JSON answer for a page."""
    top, tail = page_ends(name, page)
    tail = b'%b%b,"performance":{"server_total_ms":%.3f,"records_scanned":%d}}' % (
        tail,
        warnings_tail(warnings) if warnings else b"",
        (time.perf_counter_ns() - started_ns) / 1e6,
        page.scanned,
    )
    pieces = page.pieces
    if not head.plain:
        return respond(head, 200, b"".join([top, *pieces, tail]))
    size = len(top) + len(tail) + sum(map(len, pieces))
    first = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (size, top)
    return b"".join([first, *pieces, tail])


def lines_answer(head: Head, page: Page, warnings: list[str]) -> bytes:
    """The whole NDJSON answer for a page: tombstone, records, and where they end."""
    first = b"" if page.tombstone is None else b'{"$tombstone":%b}\n' % tombstone_json(page.tombstone)
    last = b'{"$page":{"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"lag":%d,"epoch":%d%b}}\n' % (
        page.next_from_seq,
        page.head_seq,
        page.earliest_seq,
        _BOOL[page.caught_up],
        page.lag,
        page.epoch,
        warnings_tail(warnings),
    )
    return respond(head, 200, b"".join([first, *page.pieces, last]), NDJSON)


def wait_of(read: ReadIn) -> int:
    """The wait of a long poll in milliseconds, clamped."""
    return min(in_range(read.wait_ms, "wait_ms", 0), WAIT_MS_MAX)


class LongPoll(Exchange):
    """An answer that waits because it was asked to: counted apart, or its wait would hide how fast the others are."""

    __slots__ = ()

    def expire(self) -> None:
        """Wait no longer: answer with what there is."""
        raise NotImplementedError

    def ended(self) -> None:
        if self.answer is None:
            self.expire()

    def finish(self, answer: bytes) -> None:
        if self.answer is None and not self.counted:
            self.connection.daemon.metrics.long_polls.add(answer, self.started_ns)
        super().finish(answer)


def may_wait(daemon: Daemon, connection: Requester) -> bool:
    """Whether a request may wait for what is not there yet: not while the daemon stops, nor for who has hung up."""
    return not daemon.draining and ending_of(connection.descriptor()) is Ending.NONE


class Poll(LongPoll):
    """A reader that waits for something new in one topic."""

    __slots__ = ("_asking", "_daemon", "_final", "_name", "_request", "_timer", "_warnings")

    def __init__(
        self,
        daemon: Daemon,
        connection: Requester,
        head: Head,
        request: PageRequest,
        warnings: list[str],
        wait_ms: int,
        started_ns: int,
    ) -> None:
        super().__init__(connection, head, started_ns, counted=False)
        self._daemon = daemon
        self._name = head.name
        self._request = request
        self._warnings = warnings
        self._asking: Asking | None = None
        self._final = False
        """Whether it is answered with whatever there is."""
        self._timer: asyncio.TimerHandle = daemon.loop.call_later(wait_ms / 1000, self.expire)
        daemon.pump.await_topics(self, (self._name,))

    def poke(self) -> None:
        """The topic has changed: answer if there is anything to say."""
        if self._asking is None or not self._asking.waits:
            readers = self._daemon.readers
            if readers.takes_turns(((self._name, self._request),)):
                self._asking = self._asking or Asking(readers)
                self._asking.wait(TURN, self)
            else:
                self.again()

    def expire(self) -> None:
        """Answer with what there is."""
        self._final = True
        self.poke()

    def again(self) -> None:
        """Look."""
        assert self.head is not None
        self._daemon.reading()
        if self._asking is not None:
            self._asking.refresh()
        try:
            page = self._daemon.engine.page(self._name, self._request)
        except NotCached as lack:
            self._asking = self._asking or Asking(self._daemon.readers)
            self._asking.wait(lack.job, self)
            return
        except TopicsError as error:
            self.fail(error)
            return
        if not self._final and _has_nothing(page):
            return
        self._stop()
        if self._request.lines:
            answer = lines_answer(self.head, page, self._warnings)
        else:
            answer = page_answer(self.head, self._name.encode("ascii"), page, self._warnings, self.started_ns)
        self._daemon.readers.built(self.connection, answer, page.scanned)
        self.finish(answer)

    def refusal(self) -> TopicsError | None:
        """Why its caller may not wait any longer, now that the keys are others."""
        assert self.head is not None
        return self.head.caller.refusal((self._name,))

    def fail(self, error: TopicsError) -> None:
        self._stop()
        super().fail(error)

    def gone(self) -> None:
        self._stop()

    def _stop(self) -> None:
        self._timer.cancel()
        self._daemon.pump.forget(self, (self._name,))
        if self._asking is not None:
            self._asking.done()


def _has_nothing(page: Page) -> bool:
    return page.count == 0 and page.tombstone is None and page.caught_up


def _read_body(daemon: Daemon, head: Head, body: bytes, lines: bool) -> tuple[PageRequest, int, list[str]]:
    """What a diff asks for; short bodies without anything odd are remembered, since readers repeat themselves."""
    warnings: list[str] = []
    if head.query:
        check_names(head.query, _NO_QUERY, warnings)
    read = decode(READ, body, daemon.limits, warnings)
    request = page_request(read, daemon.limits, lines=lines)
    wait_ms = wait_of(read)
    if not warnings and not lines:
        remember(daemon.read_memo, body, (request, wait_ms))
    return request, wait_ms, warnings


def diff_topic(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes | None:
    """`POST /v0/topics/:t/diff`."""
    lines = wants_lines(head) if head.accept else False
    known = None if head.query or lines else daemon.read_memo.get(body)
    if known is not None:
        request, wait_ms = known
        warnings: list[str] = []
    else:
        request, wait_ms, warnings = _read_body(daemon, head, body, lines)
    daemon.drain(head.name)
    readers = daemon.readers
    if readers.takes_turns(((head.name, request),)):
        raise NotCached(TURN)
    daemon.reading()
    page = daemon.engine.page(head.name, request)
    daemon.touch(head.name)
    if wait_ms and _has_nothing(page) and may_wait(daemon, connection):
        Poll(daemon, connection, head, request, warnings, wait_ms, started_ns)
        return None
    if lines:
        answer = lines_answer(head, page, warnings)
    else:
        answer = page_answer(head, head.name_bytes, page, warnings, started_ns)
    readers.built(connection, answer, page.scanned)
    return answer


# -- several topics ------------------------------------------------------------------------------------------------


class ManyDiffIn(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v0/diff`."""

    topics: dict[str, StrictReadIn]
    min_bytes: int | None = None
    max_bytes: int | None = None
    max_wait_ms: int | None = None
    node: str | list[str] | None = None


class LenientManyDiffIn(ManyDiffIn):
    """The same, where a topic's part may hold unknown fields."""

    topics: dict[str, ReadIn]  # type: ignore[assignment]  # widens the element, which only the decoder sees


_MANY: Final = msgspec.json.Decoder(ManyDiffIn)
_LENIENT_MANY: Final = msgspec.json.Decoder(LenientManyDiffIn)


class ManyPages:
    """What several topics have for one reader, read one after the other within a bound of bytes."""

    __slots__ = ("_daemon", "_left", "_max_bytes", "_parts", "bytes", "scanned", "telling")

    def __init__(self, daemon: Daemon, requests: dict[str, PageRequest], max_bytes: int) -> None:
        self._daemon = daemon
        self._max_bytes = max_bytes
        self._left = list(reversed(requests.items()))
        self._parts: list[bytes] = []
        self.bytes = 0
        self.scanned = 0
        self.telling = False
        """Whether there is something that a waiting reader should know at once: a tombstone, an error."""

    @property
    def left(self) -> int:
        """How many topics are not read yet."""
        return len(self._left)

    def read(self) -> None:
        """Read the topics. Raises `NotCached`, also where others come first, and goes on from there when it is called
        again."""
        until = len(self._left) - TOPICS_AT_ONCE
        while self._left:
            if len(self._left) <= until:
                raise NotCached(TURN)
            name, request = self._left[-1]
            left = max(self._max_bytes - self.bytes, 1)
            if request.max_bytes > left:
                request = msgspec.structs.replace(request, max_bytes=left)
            try:
                page = self._daemon.engine.page(name, request)
            except Refused as error:
                self.refuse(error)
                continue
            self._daemon.touch(name)
            self._left.pop()
            encoded = name.encode("ascii")
            top, tail = page_ends(encoded, page)
            self.telling = self.telling or page.tombstone is not None
            self.bytes += sum(map(len, page.pieces))
            self.scanned += page.scanned
            self._parts.append(b"".join([b'"%b":%b' % (encoded, top), *page.pieces, tail, b"}"]))

    def refuse(self, error: TopicsError) -> None:
        """The next topic cannot be read: that is what its part of the answer says."""
        name, _ = self._left.pop()
        self.telling = True
        shown = msgspec.json.encode({"error": error_shown(error)})
        self._parts.append(b'"%b":%b' % (name.encode("ascii"), shown))

    def answer(self, whose: Requester, head: Head, warnings: list[str], started_ns: int) -> bytes:
        """The whole answer."""
        tail = b'},"performance":{"server_total_ms":%.3f,"records_scanned":%d}%b}' % (
            (time.perf_counter_ns() - started_ns) / 1e6,
            self.scanned,
            warnings_tail(warnings),
        )
        answer = respond(head, 200, b"".join([b'{"topics":{', b",".join(self._parts), tail]))
        self._daemon.readers.built(whose, answer, self.scanned)
        return answer


class ManyPoll(LongPoll):
    """A reader that waits until several topics together have enough for it, or for what it lacks to be read.

    A topic that cannot be read, or not in time, is an error in its place in the answer, and takes nothing from others.
    """

    __slots__ = (
        "_asking",
        "_awaited",
        "_daemon",
        "_final",
        "_lacking",
        "_late",
        "_max_bytes",
        "_min_bytes",
        "_pages",
        "_poked",
        "_requests",
        "_timer",
        "_warnings",
    )

    def __init__(
        self,
        daemon: Daemon,
        connection: Requester,
        head: Head,
        requests: dict[str, PageRequest],
        bounds: tuple[int, int, int],
        warnings: list[str],
        started_ns: int,
    ) -> None:
        self._min_bytes, self._max_bytes, wait_ms = bounds
        super().__init__(connection, head, started_ns, counted=not wait_ms)
        self._daemon = daemon
        self._requests = requests
        self._warnings = warnings
        self._asking: Asking | None = None
        self._pages: ManyPages | None = None
        """What has been read while something is lacking."""
        self._lacking = 0
        """How many topics were left when something was lacking."""
        self._late: TopicsError | None = None
        """The cold tier did not answer in time: nothing of it is waited for any more."""
        self._poked = False
        """Whether a topic has changed since they were begun."""
        self._final = not wait_ms
        self._timer: asyncio.TimerHandle = daemon.loop.call_later(wait_ms / 1000, self.expire)
        self._awaited = list(requests)[: None if wait_ms else 1]
        """The topics by which the pump knows it; where it waits for reads alone one is enough."""
        daemon.pump.await_topics(self, self._awaited)

    def poke(self) -> None:
        """One of the topics has changed: answer if there is enough."""
        if self._pages is not None:
            self._poked = True
            return
        pages = ManyPages(self._daemon, self._requests, self._max_bytes)
        readers = self._daemon.readers
        if readers.takes_turns(self._requests.items()):
            self._pages = pages
            self._asking = self._asking or Asking(readers)
            self._asking.wait(TURN, self)
        else:
            self._look(pages)

    def expire(self) -> None:
        """Answer with what there is."""
        self._final = True
        if self._pages is None:
            self.poke()

    def lack(self, pages: ManyPages, job: ReadJob) -> None:
        """Go on with `pages` when the job is done."""
        self._pages = pages
        self._asking = self._asking or Asking(self._daemon.readers)
        if pages.left != self._lacking:
            self._lacking = pages.left
            self._asking.forget()
        self._asking.wait(job, self)

    def again(self) -> None:
        """What was lacking is there."""
        pages, self._pages = self._pages, None
        assert pages is not None
        assert self._asking is not None
        self._asking.refresh()
        self._look(pages)

    def fail(self, error: TopicsError) -> None:
        pages, self._pages = self._pages, None
        if pages is None or error.code is Code.INTERNAL or self.answer is not None:
            self.gone()
            super().fail(error)
            return
        if error.code is Code.COLD_UNAVAILABLE:
            self._late = error
        pages.refuse(error)
        self._look(pages)

    def _look(self, pages: ManyPages) -> None:
        self._daemon.reading()
        while True:
            try:
                pages.read()
                break
            except NotCached as lack:
                if self._late is None or not lack.job.cold:
                    self.lack(pages, lack.job)
                    return
                pages.refuse(self._late)
        if self._asking is not None:
            self._asking.done()
        if self._final or pages.telling or pages.bytes >= self._min_bytes:
            self._answer(pages)
        elif self._poked:
            self._poked = False
            self.poke()

    def _answer(self, pages: ManyPages) -> None:
        assert self.head is not None
        self.gone()
        self.finish(pages.answer(self.connection, self.head, self._warnings, self.started_ns))

    def refusal(self) -> TopicsError | None:
        """Why its caller may not wait any longer, now that the keys are others."""
        assert self.head is not None
        return self.head.caller.refusal(self._requests)

    def gone(self) -> None:
        self._timer.cancel()
        self._daemon.pump.forget(self, self._awaited)
        self._pages = None
        if self._asking is not None:
            self._asking.done()


def diff_topics(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes | None:
    """`POST /v0/diff`."""
    warnings: list[str] = []
    check_names(head.query, _NO_QUERY, warnings)
    check_topics(body, TOPICS_PER_DIFF_MAX)
    read = decode(_MANY, body, daemon.limits, warnings, lenient=_LENIENT_MANY, part_fields=ReadIn.__struct_fields__)
    check_topics_count(len(read.topics), TOPICS_PER_DIFF_MAX)
    requests: dict[str, PageRequest] = {}
    for name, part in read.topics.items():
        head.caller.check(check_topic_name(name, "topics"))
        if part.node is None:
            part.node = read.node
        requests[name] = page_request(part, daemon.limits)
    if any(part.wait_ms is not None for part in read.topics.values()):
        warnings.append("unknown field topics[].wait_ms")
    max_bytes = min(max(read.max_bytes or daemon.limits.page_bytes, 1), daemon.limits.page_bytes)
    min_bytes = min(in_range(read.min_bytes, "min_bytes", 1), max_bytes)
    wait_ms = min(in_range(read.max_wait_ms, "max_wait_ms", 0), WAIT_MS_MAX)
    if wait_ms and not may_wait(daemon, connection):
        wait_ms = 0
    daemon.drain(*requests)
    if daemon.readers.takes_turns(requests.items()):
        raise NotCached(TURN)
    daemon.reading()
    pages = ManyPages(daemon, requests, max_bytes)
    bounds = (min_bytes, max_bytes, wait_ms)
    try:
        pages.read()
    except NotCached as lack:
        ManyPoll(daemon, connection, head, requests, bounds, warnings, started_ns).lack(pages, lack.job)
        return None
    if wait_ms and not pages.telling and pages.bytes < min_bytes:
        ManyPoll(daemon, connection, head, requests, bounds, warnings, started_ns)
        return None
    return pages.answer(connection, head, warnings, started_ns)
