"""A body without end, written as it comes: batches cut off the front, an answer of a line for each as it commits.

    bytes ─► framing ─► [gzip] ─► whole lines ─► a batch ─► the engine ─► a line of the answer
                                   the next one is filled meanwhile; when it is full, nothing more is read

A batch is due when there is enough for one, when its first line has waited for `LINGER_S`, or when the body is over.
One is in flight at a time, so batches commit in the order of their lines, and what a client can make us hold is two
batches and the longest line, whatever it sends. A client that does not read its answer may send on: results that cannot
be written are added up into one line until it takes some.

What goes wrong ends the stream with an error line that says which batch and line, and how much is in; before the first
batch it is an ordinary answer. A batch in flight is always answered first, also when the daemon stops. Pressure and
bounds that others share are waited for, with nothing read meanwhile, as long as a body may be silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.commands import Batch, check_batch
from engine.core import Ticket
from engine.errors import Code, Refused, TopicsError, Unavailable
from engine.types import AppendResult
from topics_daemon.answers import PHRASES, error_answer, error_shown, warnings_tail
from topics_daemon.auth import forbidden_name
from topics_daemon.body import DRAIN_BODY_BYTES_MAX, Inflating
from topics_daemon.keys import Scope
from topics_daemon.lines import Lines

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Sender
    from topics_daemon.head import Head

BATCH_BYTES: Final = 256 * 1024
"""Bytes of lines that make a batch, if it is more than one: decoding and staging them holds the loop for some 3 ms."""
INFLATE_BYTES: Final = 64 * 1024
"""What is inflated at a time."""
LINGER_S: Final = 0.05
"""How long the first line of a batch waits for more of them, when they come slowly."""
AGAIN_S: Final = 0.1
"""When to look again whether what others hold or do leaves room."""

_HEAD: Final = (
    b"HTTP/1.1 %d %b\r\ncontent-type: application/x-ndjson\r\ncache-control: no-store\r\n"
    b"x-accel-buffering: no\r\nconnection: close\r\n\r\n"
)
_RESULT: Final = (
    b'{"batch":%d,"batches":%d,"first_seq":%d,"last_seq":%d,"count":%d,"lines":%d,"created":%b,"epoch":%d%b}\n'
)
_BOOL: Final = (b"false", b"true")


class Asked(msgspec.Struct, frozen=True):
    """What the head of the request asks for."""

    decode: Callable[[bytes, int], list[bytes]]
    """Whole lines and the number of the first one → the values in them."""
    batch: Callable[[list[bytes]], Batch]
    """Values → the records that are written."""
    skips_blanks: bool
    create: bool | None
    ack_fsync: bool
    warnings: list[str]


class _Said:
    """Results that were not written: one, or several added up."""

    __slots__ = ("batches", "count", "created", "first_seq", "last")

    def __init__(self, result: AppendResult) -> None:
        self.batches = 1
        self.count = result.count
        self.created = result.created
        self.first_seq = result.first_seq
        self.last = result

    def add(self, result: AppendResult) -> None:
        """One more."""
        self.batches += 1
        self.count += result.count
        self.last = result


class Intake:
    """One request whose body is a stream of lines."""

    __slots__ = (
        "_again",
        "_asked",
        "_batches",
        "_caller",
        "_charged",
        "_connection",
        "_count",
        "_cut_off",
        "_daemon",
        "_due",
        "_ended",
        "_flight_bytes",
        "_flight_lines",
        "_framing",
        "_gzip",
        "_head",
        "_heard_s",
        "_line_s",
        "_lines",
        "_lines_in",
        "_paused",
        "_reading",
        "_said",
        "_started_ns",
        "_ticket",
        "_verdict",
        "_waits_s",
        "_written",
    )

    def __init__(self, daemon: Daemon, connection: Sender, head: Head, asked: Asked, started_ns: int) -> None:
        self._daemon = daemon
        self._connection = connection
        self._head = head
        self._caller = head.caller
        self._asked = asked
        self._started_ns = started_ns
        self._framing = connection.framing(head)
        self._gzip = Inflating() if head.coding == "gzip" else None
        self._lines = Lines(daemon.limits.record_bytes, skips_blanks=asked.skips_blanks)
        self._lines_in = self._batches = self._count = 0
        """Lines of the body that are dealt with, batches and records that are in."""
        self._ticket: Ticket[AppendResult] | None = None
        """The batch in flight."""
        self._flight_bytes = self._flight_lines = 0
        self._charged = 0
        """What it counts among the bodies of all requests."""
        self._said: _Said | None = None
        self._verdict: TopicsError | None = None
        """What it ends with as soon as the batch in flight is answered."""
        self._cut_off = False
        """Whether nothing more comes although the body is not over."""
        self._written = self._paused = self._ended = self._due = False
        self._reading = True
        self._heard_s = self._line_s = daemon.loop.time()
        """When something came, and when the line that is not complete began."""
        self._waits_s: float | None = None
        """Since when it waits for what others hold or do."""
        self._again: asyncio.TimerHandle | None = None

    def open(self, body: bytes) -> None:
        """Begin, with what has come of the body."""
        self._connection.become_stream(self)
        if self._head.expects_continue and not body:
            self._connection.invite()
        self.heard(body)

    # -- in ----------------------------------------------------------------------------------------------------------

    def heard(self, data: bytes) -> None:
        """Some more of the body came, or its end."""
        if self._ended or self._cut_off:
            return
        self._heard_s = self._daemon.coarse_s
        try:
            piece = self._framing.feed(data)
        except TopicsError as error:
            self._end_with(error)
            return
        if b"\n" in piece or not len(self._lines):
            self._line_s = self._heard_s
        if self._gzip is not None:
            self._gzip.feed(piece)
        else:
            self._lines.feed(piece)
        self._go_on()

    def heard_all(self) -> bool:
        """The other side sends nothing any more; what it has sent is answered, if it can be."""
        if not self._ended and not self._framing.over:
            self._cut_off = True
            self._go_on()
        return True

    def _go_on(self) -> None:
        """Write a batch if one is due, end if there is nothing left to do, and stop or go on reading."""
        if self._ended:
            return
        if self._ticket is None:
            try:
                if self._verdict is not None:
                    raise self._verdict
                self._step()
            except TopicsError as error:
                self._refuse(error, self._lines_in + 1)
            except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
                self._refuse(self._daemon.internal_error(error), self._lines_in + 1)
        self._settle()

    def _step(self) -> None:
        """With no batch in flight: cut the next one, if it is due."""
        comes = self._inflate()
        if self._gzip is not None and self._gzip.rests:
            self._daemon.loop.call_soon(self._go_on)
            return
        whole = self._framing.over and (self._gzip is None or self._gzip.is_whole)
        if self._lines.has_line() or (whole and not comes and len(self._lines)):
            if len(self._lines) < BATCH_BYTES and not self._due and not self._nothing_comes:
                self._look_again(LINGER_S)
            elif (lack := self._lack()) is not None:
                self._wait(lack)
            else:
                self._submit(last=whole and not comes)
        elif self._nothing_comes:
            if not whole:
                raise _truncated(self._lines_in + 1)
            self._finish(None, 0)

    @property
    def _nothing_comes(self) -> bool:
        """Whether all that will ever come is there."""
        return self._framing.over or self._cut_off

    def _inflate(self) -> bool:
        """Inflate until there is enough for a batch; returns whether there may be more."""
        if self._gzip is None:
            return False
        while len(self._lines) < BATCH_BYTES or not self._lines.has_line():
            piece = self._gzip.take(INFLATE_BYTES)
            if not piece:
                return False
            self._lines.feed(piece)
        return True

    def _submit(self, *, last: bool) -> None:
        """Hand the next batch to the engine."""
        if self._waits_s is not None:
            # Silence did not count meanwhile.
            self._waits_s = None
            self._heard_s = self._line_s = self._daemon.coarse_s
        self._due = False
        run, count = self._lines.cut(BATCH_BYTES, self._daemon.limits.batch_records, last=last)
        first = self._lines_in + 1
        try:
            blank = self._asked.skips_blanks and run.isspace()
            datas = [] if blank else self._asked.decode(run, first)
            if not datas:
                # Blank lines alone. Others come before whoever sends a world of them.
                self._lines_in += count
                self._daemon.loop.call_soon(self._go_on)
                return
            self._ticket = ticket = self._daemon.engine.append(
                self._head.name,
                self._asked.batch(datas),
                # Whoever drops the topic meanwhile is not to find it again.
                create=self._asked.create if not self._batches else False,
                ack_fsync=self._asked.ack_fsync,
            )
        except TopicsError as error:
            self._refuse(*self._at_fault(run, first, error))
            return
        self._flight_bytes, self._flight_lines = len(run), count
        self._caller.inflight += 1
        self._daemon.follow(ticket, self._answered)

    def _at_fault(self, run: bytes, first: int, error: TopicsError) -> tuple[TopicsError, int]:
        """Which line of a batch it is that cannot be written, and why; else the batch's first."""
        for number, line in enumerate(run.split(b"\n"), first):
            try:
                datas = self._asked.decode(line + b"\n", number) if line else []
                if datas:
                    check_batch(self._asked.batch(datas), self._daemon.limits)
            except TopicsError as found:
                return found, number
        return error, first

    def _answered(self, ticket: Ticket[AppendResult]) -> None:
        """The engine has answered the batch, in the midst of its turn: what follows waits for the end of the tick."""
        self._caller.inflight -= 1
        if not self._ended:
            self._daemon.join(self)

    def flush(self) -> None:
        """The tick ends in which the batch was answered."""
        ticket = self._ticket
        if self._ended or ticket is None or not ticket.done:
            return
        self._ticket = None
        self._flight_bytes = 0
        try:
            self._note(ticket.value())
        except TopicsError as error:
            self._refuse(error, self._lines_in + 1)
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            self._refuse(self._daemon.internal_error(error, outcome="unknown"), self._lines_in + 1)
        else:
            self._go_on()

    def _note(self, result: AppendResult) -> None:
        """A batch is written: it belongs to the next results, which are told now if they may be."""
        self._batches += 1
        self._count += result.count
        self._lines_in += self._flight_lines
        if self._said is None:
            self._said = _Said(result)
        else:
            self._said.add(result)
        if not self._paused:
            self._write(self._results())

    # -- bounds ------------------------------------------------------------------------------------------------------

    def _lack(self) -> TopicsError | None:
        """Why the next batch may not be written just now, or None."""
        daemon = self._daemon
        if (pressed := daemon.pressure.refusal(0.0)) is not None:
            return pressed.error.anew()
        if self._caller.inflight >= daemon.inflight_max:
            return _throttled("too many requests are in flight", "max_inflight_per_key", daemon.inflight_max)
        return None

    def _is_over_budget(self) -> bool:
        """Whether the bodies of all requests together take too much memory, and this one a part of it."""
        return self._daemon.buffered_bytes > self._daemon.buffer_bytes_max and self._charged > DRAIN_BODY_BYTES_MAX

    def _wait(self, lack: TopicsError) -> None:
        """Others hold or do too much: wait, but not for ever."""
        now = self._daemon.loop.time()
        if self._waits_s is None:
            self._waits_s = now
        if now - self._waits_s > self._daemon.timeouts.body_s:
            raise lack
        self._look_again(AGAIN_S)

    def _look_again(self, after_s: float) -> None:
        if self._again is None:
            self._again = self._daemon.loop.call_later(after_s, self._now_due)

    def _now_due(self) -> None:
        self._again = None
        self._due = True
        self._go_on()

    def _settle(self) -> None:
        """Count what is held, and stop or go on reading."""
        if self._ended:
            return
        held = len(self._lines) + self._flight_bytes + (len(self._gzip) if self._gzip is not None else 0)
        self._daemon.buffered_bytes += held - self._charged
        self._charged = held
        full = held - self._flight_bytes >= BATCH_BYTES and (self._gzip is not None or self._has_line())
        more = not (full or self._verdict is not None or self._nothing_comes or self._is_over_budget())
        if more != self._reading:
            self._reading = more
            if more:
                # Silence counts from here on.
                self._heard_s = self._line_s = self._daemon.coarse_s
            self._connection.read(more)

    def _has_line(self) -> bool:
        try:
            return self._lines.has_line()
        except TopicsError:
            return True  # the next step says so

    def check(self, now: float) -> None:
        """Look at the deadlines: of silence, of a line that is never complete, of room that others do not leave."""
        if self._ended or self._verdict is not None:
            return
        patience_s = self._daemon.timeouts.body_s
        if self._reading and not self._nothing_comes and self._waits_s is None:
            if now - self._heard_s > patience_s:
                self._end_with(_late("nothing has come", patience_s))
            elif len(self._lines) and self._ticket is None and now - self._line_s > patience_s:
                self._end_with(_late("no line was completed", patience_s))
        elif self._is_over_budget() and self._ticket is None:
            if now - self._heard_s > patience_s:
                maximum = self._daemon.buffer_bytes_max
                self._end_with(_throttled("too many large requests at once", "max_request_buffer_bytes", maximum))
        else:
            self._settle()

    # -- out ---------------------------------------------------------------------------------------------------------

    def _results(self) -> bytes:
        """The line that says what is in since the last one."""
        said, self._said = self._said, None
        if said is None:
            return b""
        last = said.last
        return _RESULT % (
            self._batches,
            said.batches,
            said.first_seq,
            last.last_seq,
            said.count,
            self._lines_in,
            _BOOL[said.created],
            last.epoch,
            b"" if self._written else warnings_tail(self._asked.warnings),
        )

    def _write(self, lines: bytes) -> None:
        if not self._written:
            status = 201 if lines.find(b'"created":true') >= 0 else 200
            self._written = True
            lines = _HEAD % (status, PHRASES[status]) + lines
            self._head.tally.add(lines, self._started_ns)
        self._connection.write(lines)

    def pause(self) -> None:
        """The client does not take what was written: results are added up from here on."""
        self._paused = True

    def resume(self) -> None:
        """It takes some."""
        self._paused = False
        if self._said is not None and not self._ended:
            self._write(self._results())

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end_with(self, error: TopicsError) -> None:
        """End with this error, once the batch in flight is answered."""
        if self._verdict is None:
            self._verdict = error
        self._go_on()

    def _refuse(self, error: TopicsError, line: int) -> None:
        self._daemon.metrics.refused(error)
        self._finish(error, line)

    def _finish(self, error: TopicsError | None, line: int) -> None:
        """Write the last line, or the only answer there is, and end."""
        if error is not None and not self._written and self._said is None:
            answer = error_answer(self._head, error, self._started_ns, close=True)
            self._head.tally.add(answer, self._started_ns)
            self._connection.write(answer)
        else:
            totals: dict[str, Any] = {"batches": self._batches, "count": self._count, "lines": self._lines_in}
            if error is None:
                totals = {"done": True, **totals}
                if self._asked.warnings and not self._written and self._said is None:
                    totals["warnings"] = self._asked.warnings
            else:
                totals = {"error": error_shown(error), "batch": self._batches + 1, "line": line, **totals}
            self._write(self._results() + msgspec.json.encode(totals) + b"\n")
        self.gone()
        if self._framing.over:
            self._connection.end()
        else:
            self._connection.finish()

    def gone(self) -> None:
        """The connection is lost, or nothing more is taken: what was handed to the engine is not taken back."""
        if self._ended:
            return
        self._ended = True
        if self._again is not None:
            self._again.cancel()
        self._daemon.buffered_bytes -= self._charged
        self._charged = 0
        self._lines.clear()
        self._gzip = None

    def stalled(self) -> None:
        """The client takes nothing of its answer. As long as it sends it may."""
        if self._ended:
            self._connection.cut()
        else:
            self.check(self._daemon.coarse_s)

    def judge_again(self) -> None:
        """The keys have changed."""
        refusal = self._caller.lacks(Scope.WRITE)
        if refusal is None and not self._caller.allows(self._head.name):
            refusal = forbidden_name()
        if refusal is not None and not self._ended:
            self._end_with(refusal)

    def drain(self) -> None:
        """The daemon stops: the batch in flight is answered."""
        if not self._ended and self._verdict is None:
            self._end_with(Unavailable(Code.SHUTTING_DOWN, "the daemon is stopping"))


def _truncated(line: int) -> Refused:
    return Refused(Code.INVALID_REQUEST, f"the body was cut off in line {line}", {"why": "truncated"})


def _late(what: str, after_s: float) -> Refused:
    return Refused(Code.INVALID_REQUEST, f"{what} for {after_s:g} s", {"why": "timeout", "limit": "body_timeout_ms"})


def _throttled(what: str, limit: str, maximum: int) -> Unavailable:
    return Unavailable(Code.THROTTLED, f"{what}; try again", {"limit": limit, "max": maximum})
