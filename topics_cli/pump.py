"""From a stream of records to writes, one batch in flight.

While a batch is on its way the next one is read and gathered; a batch goes out when it is full, when the source ends,
or when nothing more came for a moment, so that a slow producer's line is there at once and a fast one's lines travel
together. Each batch has its own idempotency key: however often it has to be sent, through however many restarts, its
records are there once.

A refused batch is halved until the record at fault stands alone: everything before it is in, and it is named by its
line. This needs no opinion of ours on what the daemon takes.
"""

from __future__ import annotations

import os
import time

from topics_cli import exits
from topics_cli.client import Call, Client, topic_path
from topics_cli.encode import BadRecord, Common, Encoder, Record, body_of
from topics_cli.exits import ApiError, Failure, Stopped
from topics_cli.intake import Intake, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from topics_cli.wire import Answer
else:
    from _collections import deque  # the C half alone: `collections` is slow to import

BATCH_RECORDS = 1000
BATCH_BYTES = 1 << 20
IDLE_S = 0.01
"""Silence of the source after which a batch goes out, full or not."""
AGE_S = 0.03
"""Longest time that a record waits for company."""
DRAW_S = 0.2
"""How often the progress line is drawn: a batch may take a few milliseconds."""
GRACE_S = 1.0
"""How long a batch in flight may take after a signal."""
BAD_SHOWN_MAX = 20
PACE_S = 0.05

_COMMON_FIELDS = frozenset({"topic", "create", "config", "ack", "idempotency_key"})


class Batch:
    """Records that are written together."""

    __slots__ = ("key", "records", "source")

    def __init__(self, source: Source, records: list[Record], key: str) -> None:
        self.source = source
        self.records = records
        self.key = key


class Bad:
    """A record that cannot be written, and why."""

    __slots__ = ("code", "reason", "record", "source")

    def __init__(self, source: Source, record: Record, code: str, reason: str) -> None:
        self.source = source
        self.record = record
        self.code = code
        self.reason = reason


class Plan:
    """How to write: what the command line asked for."""

    __slots__ = ("batch_records", "common", "each_alone", "keep_bad", "key", "on_error", "rate", "topic")

    def __init__(
        self,
        topic: str,
        common: Common,
        *,
        batch_records: int,
        key: str | None,
        each_alone: bool,
        rate: float | None,
        on_error: str,
        keep_bad: Callable[[bytes], None] | None,
    ) -> None:
        self.topic = topic
        self.common = common
        self.batch_records = batch_records if rate is None else max(1, min(batch_records, int(rate * PACE_S)))
        self.key = key
        """The key that was given; batches are then cut by size alone, so that they are the same the next time."""
        self.each_alone = each_alone
        self.rate = rate
        self.on_error = on_error
        self.keep_bad = keep_bad


class Pump:
    """Moves records from an intake to the daemon. `answered` hears each answer."""

    def __init__(
        self, client: Client, intake: Intake | None, encoder: Encoder, plan: Plan, answered: Callable[[Answer], None]
    ) -> None:
        self._client = client
        self._intake = intake
        self._encoder = encoder
        self._plan = plan
        self._answered = answered
        self._run = plan.key or os.urandom(9).hex()
        self._batches = 0
        self._gathered: list[Record] = []
        self._gathered_bytes = 0
        self._gathered_at = 0.0
        self._read_at = 0.0
        self._ready: deque[Batch | Bad] = deque()
        self._broken: Failure | None = None
        """Why nothing more can be read; it is raised once what was read before is in."""
        self._call: Call | None = None
        self._sent: Batch | None = None
        self._send_at = 0.0
        self._begun = time.monotonic()
        self._drawn_at = 0.0
        self.written = 0
        self.refused = 0
        self.done_to = ""
        """The place of the last record that is in."""
        self.done_number = 0
        self._source = intake.source if intake is not None else None

    def add(self, source: Source, pieces: list[bytes]) -> None:
        """Take records that were given at once (arguments)."""
        for number, raw in enumerate(pieces, 1):
            self._gather(source, number, raw)
        self._cut(source)

    def run(self) -> None:
        """Move everything; raises `Failure` or `Stopped` where it cannot go on."""
        try:
            self._run_on()
        except Failure as failure:
            if self.refused == 0 and (self.done_to or (self._intake is not None and self._batches > 1)):
                failure.hint = f"{self.how_far()}; {failure.hint}".rstrip("; ")
            raise

    def how_far(self) -> str:
        """What is in, and what may be."""
        done = f"in up to {self.done_to}" if self.done_to else "nothing is in"
        if self._call is None or self._sent is None:
            return done
        return f"{done}; whether up to {self._sent.source.place(self._sent.records[-1].number)} is in is not known"

    def _run_on(self) -> None:
        stop = self._client.stop
        while True:
            if stop.signum:
                self._end_early()
            self._advance()
            if self._call is None and not self._ready and not self._gathered and not self._more():
                return
            self._wait()

    def _more(self) -> bool:
        """Whether the sources may give more."""
        intake = self._intake
        if self._broken is not None:
            raise self._broken
        if intake is None:
            return False
        if not intake.at_end or intake.next_source():
            return True
        self._intake = None
        return False

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def _wants_input(self) -> bool:
        plan = self._plan
        full = len(self._gathered) >= plan.batch_records or self._gathered_bytes >= BATCH_BYTES
        return self._intake is not None and not self._intake.at_end and not self._ready and not full

    def _read(self, intake: Intake) -> None:
        try:
            pieces = intake.read()
        except Failure as failure:
            self._broken, intake.at_end, pieces = failure, True, []
        self._read_at = time.monotonic()
        source, number = intake.source, intake.count
        for raw in pieces:
            number += 1
            self._gather(source, number, raw)
        intake.count = number
        if intake.at_end:
            self._cut(source)

    def _gather(self, source: Source, number: int, raw: bytes) -> None:
        try:
            record = self._encoder.maybe_record(number, raw)
        except BadRecord as error:
            self._cut(source)
            self._ready.append(Bad(source, Record(number, raw, b""), "invalid_record", str(error)))
            return
        if record is None:
            return
        size = len(record.data) + (len(record.meta) if record.meta else 0)
        if self._gathered and self._gathered_bytes + size > BATCH_BYTES:
            self._cut(source)
        if not self._gathered:
            self._gathered_at = time.monotonic()
        self._gathered.append(record)
        self._gathered_bytes += size
        if self._plan.each_alone or len(self._gathered) >= self._plan.batch_records:
            self._cut(source)

    def _cut(self, source: Source) -> None:
        """Make a batch of what was gathered."""
        if not self._gathered:
            return
        self._batches += 1
        if self._plan.each_alone:
            key = self._gathered[0].key or ""
        elif self._plan.key is not None and self._batches == 1:
            key = self._run
        else:
            key = f"{self._run}-{self._batches}"
        self._ready.append(Batch(source, self._gathered, key))
        self._gathered = []
        self._gathered_bytes = 0

    # -- writing ---------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do what can be done now: take the answer, deal with bad records, send the next batch."""
        if self._call is not None:
            self._take_answer(self._call)
        while self._call is None:
            now = time.monotonic()
            if not self._ready and self._gathered and self._is_due(now) and self._intake is not None:
                self._cut(self._intake.source)
            if not self._ready or (self._plan.rate is not None and now < self._send_at):
                return
            item = self._ready.popleft()
            if isinstance(item, Bad):
                self._meet_bad(item)
            else:
                self._send(item)

    def _is_due(self, now: float) -> bool:
        if self._plan.key is not None:
            return False
        return now - self._read_at >= IDLE_S or now - self._gathered_at >= AGE_S

    def _send(self, batch: Batch) -> None:
        from topics_cli.client import quote

        plan = self._plan
        try:
            query, body, kind = body_of(batch.records, plan.common)
        except BadRecord as error:
            self._refuse(batch, "invalid_record", str(error))
            return
        if plan.rate is not None:
            self._send_at = max(self._send_at, time.monotonic()) + len(batch.records) / plan.rate
        key = batch.key if batch.key.isascii() and batch.key.isprintable() else quote(batch.key)
        request = self._client.request(
            "POST", topic_path(plan.topic) + query, body, content_type=kind, headers=f"Idempotency-Key: {key}\r\n"
        )
        self._sent = batch
        self._call = self._client.open(request)

    def _take_answer(self, call: Call) -> None:
        batch = self._sent
        assert batch is not None
        try:
            answer = call.step()
        except ApiError as error:
            self._call = None
            if not self._is_about_records(error):
                raise
            self._refuse(batch, error.code, error.what)
            return
        if answer is None:
            return
        self._call = None
        self.written += len(batch.records)
        self.done_number = batch.records[-1].number
        self.done_to = batch.source.place(self.done_number)
        self._answered(answer)
        self._show_progress()

    def _is_about_records(self, error: ApiError) -> bool:
        """Whether a refusal may be a record's fault; what is the same for all of them is not."""
        import json

        if self._plan.each_alone and error.code == "idempotency_mismatch":
            return True
        if error.status not in (400, 413):
            return False
        try:
            field = json.loads(error.body)["error"]["detail"]["field"]
        except (ValueError, LookupError, TypeError):
            return True
        if self._plan.each_alone and field == "idempotency_key":
            return True
        common = self._plan.common
        given = {"tag": common.tag, "node": common.node, "meta": common.meta or None}
        return field not in _COMMON_FIELDS and given.get(field) is None

    def _refuse(self, batch: Batch, code: str, reason: str) -> None:
        """Halve a refused batch, or name the record at fault."""
        records = batch.records
        if len(records) == 1:
            self._ready.appendleft(Bad(batch.source, records[0], code, reason))
            return
        middle = len(records) // 2
        self._ready.appendleft(Batch(batch.source, records[middle:], batch.key + ".2"))
        self._ready.appendleft(Batch(batch.source, records[:middle], batch.key + ".1"))

    def _meet_bad(self, bad: Bad) -> None:
        self.refused += 1
        place = bad.source.place(bad.record.number)
        reason = bad.reason.removeprefix("line 1 is ")  # Alone in its batch, but not where it came from.
        if self._plan.on_error == "stop":
            raise Failure(f"{place}: {reason}", bad.code, "everything before it is in; --on-error skip goes on")
        if self.refused <= BAD_SHOWN_MAX:
            self._client.talk.say(f"topics: {place}: {reason} ({bad.code})")
        elif self.refused == BAD_SHOWN_MAX + 1:
            self._client.talk.say("topics: more refused lines follow, which are only counted")
        if self._plan.keep_bad is not None:
            self._plan.keep_bad(bad.record.raw)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        client, watch, timeout_s = self._client, [], None
        now = time.monotonic()
        if self._call is not None:
            watch += self._call.watch
            timeout_s = min(self._call.timeout_s, 0.25)
            client.show_wait(self._call)
        elif self._ready:
            timeout_s = max(0.0, self._send_at - now)
        elif self._gathered and self._plan.key is None:
            timeout_s = max(0.0, min(self._read_at + IDLE_S, self._gathered_at + AGE_S) - now)
        intake = self._intake
        if intake is not None and self._wants_input:
            watch += intake.watch
        elif self._call is None and not self._ready and timeout_s is None:
            timeout_s = 0.0
        ready = client.stop.wait(watch, timeout_s)
        if client.stop.signum:
            return  # what came together with the signal stays where it is
        if intake is not None and self._wants_input and intake.source.handle in ready:
            self._read(intake)

    def _end_early(self) -> None:
        """A signal came: let what was read go out while the daemon answers, and say where to go on."""
        client = self._client
        over = time.monotonic() + GRACE_S
        if self._intake is not None:
            self._cut(self._intake.source)
            self._intake = None
        while self._call is not None or self._ready:
            self._advance()
            if self._call is None:
                if self._ready and self._plan.rate is not None:
                    break
                continue
            if not self._call.in_flight or time.monotonic() > over:
                break
            client.stop.wait(self._call.watch, max(0.0, over - time.monotonic()))
        client.talk.say(f"topics: stopped; {self.how_far()}")
        if self.done_to and self._source is not None:
            name = self._source.name or "INPUT"
            client.talk.say(f"  the rest of it: tail -n +{self.done_number + 1} {name}")
        raise Stopped(client.stop.signum)

    def _show_progress(self) -> None:
        talk, intake = self._client.talk, self._intake
        if not talk.is_live or intake is None or not intake.size:
            return
        now = time.monotonic()
        took_s = now - self._begun
        if took_s < 0.5 or now - self._drawn_at < DRAW_S:
            return
        self._drawn_at = now
        done = min(intake.read_bytes / intake.size, 1.0) or 1e-9
        left_s = int(took_s * (1 - done) / done)
        talk.progress(
            f"{done:4.0%}  {self.written} records  {self.written / took_s:.0f}/s  {left_s // 60}:{left_s % 60:02} left"
        )


def exit_code(pump: Pump) -> int:
    """How a write that came to its end ends."""
    return exits.FAILED if pump.refused else exits.DONE
