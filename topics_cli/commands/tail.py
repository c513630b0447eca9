"""`topics tail`: one topic or several merged by time, from a place on, followed or not.

Several topics are merged by `$ts`, ties by name: a record is shown once every topic has either an older one waiting
or is known to have none (it is caught up). Everything shown is flushed before anything is waited for, and the cursor
file moves only after that.
"""

from __future__ import annotations

import time

from topics_cli import exits
from topics_cli.cursor import CursorFile, ServerCursor
from topics_cli.cut import seq_of, ts_of
from topics_cli.exits import ApiError, Failure, Stopped, usage
from topics_cli.framing import framing_of
from topics_cli.pages import PAGE_RECORDS, Gap, Page, Reader, Wanted, last_from_seq
from topics_cli.render import Render
from topics_cli.session import Session, check_name
from topics_cli.signals import is_gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any

    from topics_cli.sink import Sink
else:
    from _collections import deque  # the C half alone: `collections` is slow to import

LAST_DEFAULT = 10
SAVE_S = 0.2
"""Under load the cursor file is replaced this often; at rest, after every flush."""
_SHAPING = ("tag", "node", "until", "exec", "exec_batch", "speed", "output", "template", "fields", "null", "length")
"""Options that say what is read and what becomes of it: who goes on without them gets something else."""


def tail(session: Session, values: dict[str, Any]) -> int:
    """Show records."""
    topics = [check_name(name) for name in dict.fromkeys(values["topic"])]
    if sum(values[name] is not None for name in ("last", "from_seq", "since")) > 1:
        raise usage("-n, --from and --since are places to start", "give one of them")
    if values["idle_exit"] is not None and not values["follow"]:
        raise usage("--idle-exit goes with -f")
    if values["cursor"] is not None and values["server_cursor"] is not None:
        raise usage("--cursor and --server-cursor both say where the place is kept", "give one of them")
    if values["exec"] is not None and values["exec_batch"] is not None:
        raise usage("--exec and --exec-batch both say what to run", "give one of them")
    run = Tail(session, topics, values)
    try:
        return run.run()
    except Failure as failure:
        if failure.exit_code in (exits.NO_DAEMON, exits.TRY_AGAIN) and run.readers:
            failure.hint = f"{run.resume_hint()}; {failure.hint}"
        raise
    except Stopped:
        if not values["quiet"]:
            session.talk.say(f"topics: stopped; {run.resume_hint()}")
        raise
    finally:
        session.talk.clear()
        for reader in run.readers:
            reader.close()


class Lane:
    """A topic among several: what waits to be shown, oldest first. A gap stands before the record that follows it."""

    __slots__ = ("items", "reader")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.items: deque[tuple[int, bytes | Gap, int]] = deque()
        """(time, line or gap, seq up to which all is done once this is shown)."""

    def fill(self) -> None:
        """Take pages that came, as long as there is room: a topic that is far ahead waits for the others."""
        reader = self.reader
        while reader.pages and len(self.items) < PAGE_RECORDS:
            page = reader.pages.popleft()
            if page.gap is not None:
                self.items.append((ts_of(page.lines[0]) if page.lines else 0, page.gap, page.gap.resume_seq))
            self.items.extend((ts_of(line), line, seq_of(line)) for line in page.lines)
            if self.items:
                ts, item, _ = self.items[-1]
                self.items[-1] = (ts, item, page.next_from_seq)
            else:
                reader.passed_seq = page.next_from_seq

    @property
    def is_known(self) -> bool:
        """Whether the next record of this topic is known, or known not to be there yet."""
        return bool(self.items) or self.reader.finished or self.reader.at_head


class Tail:
    """One run of `tail`."""

    def __init__(self, session: Session, topics: list[str], values: dict[str, Any]) -> None:
        self._session = session
        self._values = values
        self._follow: bool = values["follow"]
        self._max: int | None = values["max"]
        self._until = _time(values["until"])
        self._render = _render(session, values, len(topics) > 1)
        self._speed: float | None = values["speed"]
        self._is_single = self._speed is not None or values["exec"] is not None
        """Whether records are shown one by one, each done before the next is begun."""
        self._played: tuple[float, int] | None = None
        """With a speed: when the first record was shown, and its time."""
        tag, nodes = values["tag"], values["node"]
        shown = self._render
        self._wanted = Wanted(
            tag=tag, nodes=nodes, tags=shown.needs_tags, meta=shown.needs_meta, exact=shown.needs_exact
        )
        self._probe = Wanted(tag=tag, nodes=nodes, meta=False, data=False)
        self._is_filtered = values["tag"] is not None or bool(values["node"])
        self._shown: dict[str, int] = {}
        """For each topic, the seq up to which all was written out."""
        self._cursor: CursorFile | ServerCursor | None = None
        if values["cursor"]:
            self._cursor = CursorFile(values["cursor"])
        elif values["server_cursor"]:
            self._cursor = ServerCursor(session.client, check_name(values["server_cursor"]), topics)
        self._saved_at = 0.0
        self._is_unsaved = False
        self._topics = topics
        self.readers: list[Reader] = []
        self.shown = 0
        self._came_at = time.monotonic()

    def run(self) -> int:
        """Read until the end, whatever it is; returns the exit code."""
        self.readers = [self._start(topic) for topic in self._topics]
        lanes = [Lane(reader) for reader in self.readers]
        try:
            with self._session.understood():
                self._read_on(lanes)
        except _GapMet as met:
            self._render.end()
            self._checkpoint(last=True)
            hint = f"go on behind it with: topics tail {met.topic} --from {met.gap.resume_seq}"
            what = f"records {met.gap.first}-{met.gap.last} of {met.topic} were lost ({met.gap.reason})"
            raise Failure(what, "gap", hint, exits.GAP) from None
        except (Failure, Stopped):
            self._render.end()
            self._checkpoint(last=True)
            raise
        self._render.end()
        self._checkpoint(last=True)
        return exits.DONE

    def _read_on(self, lanes: list[Lane]) -> None:
        session = self._session
        while not self._is_over():
            session.stop.check()
            moved = self._move()
            if len(lanes) == 1:
                self._show_pages(lanes[0].reader)
            else:
                if moved:
                    # An older record may have come to a topic that was looked at before this one's.
                    self._move()
                self._merge(lanes)
            if not moved and not self._is_over():
                self._rest()

    # -- where to begin --------------------------------------------------------------------------------------------

    def _start(self, topic: str) -> Reader:
        values, client = self._values, self._session.client
        from_seq, epoch, from_ts = 0, None, None
        if self._cursor is not None and topic in self._cursor.places:
            from_seq, epoch = self._cursor.places[topic]
        elif values["from_seq"] is not None:
            from_seq = values["from_seq"]
        elif values["since"] is not None:
            from_ts = _time(values["since"])
        elif values["last"] is not None or self._until is None:
            last = values["last"]
            if last is None:
                last = LAST_DEFAULT if self._max is None else min(LAST_DEFAULT, self._max)
            from_seq, epoch = last_from_seq(client, topic, self._probe, last, self._is_filtered)
        reader = Reader(client, topic, self._wanted, from_seq, follow=self._follow)
        reader.epoch, reader.from_ts = epoch, from_ts
        return reader

    # -- showing ---------------------------------------------------------------------------------------------------

    def _left(self) -> int:
        """How many records may still be shown."""
        return PAGE_RECORDS if self._max is None else self._max - self.shown

    def _move(self) -> bool:
        """Take answers and ask for more; whether anything came."""
        moved = False
        for reader in self.readers:
            try:
                moved |= reader.step()
            except ApiError as error:
                self._meet(reader, error)
            waiting = sum(len(page.lines) for page in reader.pages)
            reader.ask(self._left() - waiting)
        return moved

    def _meet(self, reader: Reader, error: ApiError) -> None:
        """A followed topic was dropped, which ends it; or all of it was read that was here before it moved: then it is
        followed where it is now. Raises any other `error`, and one that names no daemon."""
        if error.code == "topic_not_found" and self._follow and reader.epoch is not None:
            self._session.talk.note(f"topics: topic {reader.topic} was dropped")
            reader.finished = True
            reader.close()
            return
        if error.code != "topic_moved" or not self._follow:
            raise error
        from topics_cli.moved import client_at

        client = client_at(self._session.client, error)
        self._session.talk.note(f"topics: topic {reader.topic} has moved; going on at {client.where.label}")
        reader.go_to(client)
        if isinstance(self._cursor, ServerCursor):
            self._cursor.go_to(reader.topic, client)

    def _show_pages(self, reader: Reader) -> None:
        """The short way, for one topic: page by page."""
        while reader.pages:
            page = reader.pages.popleft()
            if page.gap is not None:
                self._meet_gap(reader, page.gap)
                reader.passed_seq = page.gap.resume_seq
            lines = self._before_until(reader, page)
            self._put(reader, lines)
            reader.passed_seq = page.next_from_seq if len(lines) == len(page.lines) else _last_seq(lines, reader)
            if self._cursor is not None and time.monotonic() - self._saved_at > SAVE_S:
                self._checkpoint()

    def _before_until(self, reader: Reader, page: Page) -> list[bytes]:
        lines = page.lines
        if self._until is None or not lines or ts_of(lines[-1]) <= self._until:
            return lines
        reader.finished = True
        return [line for line in lines if ts_of(line) <= self._until]

    def _merge(self, lanes: list[Lane]) -> None:
        """The long way, for several topics: the oldest record first, as long as it is known which that is."""
        for lane in lanes:
            lane.fill()
        while self._left() > 0 and all(lane.is_known for lane in lanes):
            waiting = [(lane.items[0][0], lane.reader.topic, lane) for lane in lanes if lane.items]
            if not waiting:
                return
            waiting.sort(key=lambda entry: entry[:2])
            self._show_run(waiting[0][2], waiting[1][:2] if len(waiting) > 1 else None)

    def _show_run(self, lane: Lane, before: tuple[int, str] | None) -> None:
        """Show what stands first in a lane, up to where another topic's next record comes `before` it."""
        reader, items, lines = lane.reader, lane.items, list[bytes]()
        left, passed_seq = self._left(), lane.reader.passed_seq
        while items and len(lines) < left and (before is None or (items[0][0], reader.topic) < before):
            ts, item, done_seq = items[0]
            if self._until is not None and ts > self._until:
                items.clear()
                reader.finished = True
                break
            if isinstance(item, Gap):
                if not lines:
                    items.popleft()
                    self._meet_gap(reader, item)
                    passed_seq = done_seq
                break
            items.popleft()
            lines.append(item)
            passed_seq = done_seq
        self._put(reader, lines)
        reader.passed_seq = passed_seq

    def _put(self, reader: Reader, lines: list[bytes]) -> None:
        """Show records of one topic."""
        if not self._is_single:
            self._render.records(reader.topic, lines)
            self._count(len(lines))
            return
        for line in lines:
            self._wait_for_turn(ts_of(line))
            self._render.records(reader.topic, [line])
            reader.passed_seq = seq_of(line)
            self._count(1)
            if self._cursor is not None and time.monotonic() - self._saved_at > SAVE_S:
                self._checkpoint()
            self._session.stop.check()

    def _wait_for_turn(self, ts: int) -> None:
        """With `--speed`: let as much time pass between records as there was, divided by it."""
        if self._speed is None:
            return
        if self._played is None:
            self._played = time.monotonic(), ts
        begun, first_ts = self._played
        due = begun + (ts - first_ts) / 1000 / self._speed
        while (left_s := due - time.monotonic()) > 0:
            self._checkpoint()
            self._session.stop.wait(self._session.out.watch, left_s)
            self._session.stop.check()

    def _meet_gap(self, reader: Reader, gap: Gap) -> None:
        topic, talk = reader.topic, self._session.talk
        talk.note(f"gap {topic} {gap.first}-{gap.last} {gap.reason}")
        if reader.passed_seq == self._values["from_seq"] > gap.last:
            # Who has seen that seq has seen it of a topic that was dropped since; or it was mistyped.
            talk.note(
                f"topics: {topic} ends at seq {gap.last}, before {reader.passed_seq}: it is read from its beginning"
            )
        self._render.gap(topic, gap.line)
        if self._values["fail_on_gap"]:
            raise _GapMet(topic, gap)

    def _count(self, count: int) -> None:
        self.shown += count
        if count:
            self._came_at = time.monotonic()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self._max is not None and self.shown >= self._max:
            return True
        if any(reader.pages for reader in self.readers):
            return False
        if all(reader.finished for reader in self.readers):
            return True
        return self._deadline_s() == 0.0

    def _deadline_s(self) -> float | None:
        """Seconds until a time that was set for us is over, None when there is none."""
        found = []
        idle_ms = self._values["idle_exit"]
        if idle_ms is not None and not self._is_failing():
            found.append(self._came_at + idle_ms / 1000 - time.monotonic())
        if self._until is not None and self._follow and all(reader.at_head for reader in self.readers):
            from topics_cli.times import now_ms

            found.append((self._until - now_ms()) / 1000)
        return max(0.0, min(found)) if found else None

    def _is_failing(self) -> bool:
        return any(reader.call is not None and reader.call.failing_since for reader in self.readers)

    def _rest(self) -> None:
        """Bring everything out, then wait for the daemon, a deadline, a signal, or our reader's going away."""
        session = self._session
        self._checkpoint()
        calls = [reader.call for reader in self.readers if reader.call is not None]
        for call in calls:
            session.client.show_wait(call)
        timeouts = [min(call.timeout_s, 0.25) if call.failing_since else call.timeout_s for call in calls]
        deadline_s = self._deadline_s()
        if deadline_s is not None:
            timeouts.append(deadline_s)
        if self._is_unsaved and self._cursor is not None:
            timeouts.append(max(0.0, self._saved_at + self._cursor.pause_s - time.monotonic()))
        watch = [item for call in calls for item in call.watch]
        ready = session.stop.wait(watch + session.out.watch, min(timeouts) if timeouts else None)
        if is_gone(ready.get(session.out.handle, 0)):
            raise exits.OutputClosed
        if session.talk.is_live and not self._is_failing():
            session.talk.clear()

    def _checkpoint(self, last: bool = False) -> None:
        """Write everything out, and only then move the cursor."""
        self._session.out.flush()
        self._shown = {reader.topic: reader.passed_seq for reader in self.readers}
        if self._cursor is None:
            return
        self._is_unsaved = not last and time.monotonic() - self._saved_at < self._cursor.pause_s
        if self._is_unsaved:
            return
        for reader in self.readers:
            if reader.epoch is not None:
                self._cursor.places[reader.topic] = (reader.passed_seq, reader.epoch)
        self._cursor.save(sync=last)
        self._saved_at = time.monotonic()

    def resume_hint(self) -> str:
        """How to go on after an interruption."""
        follow = " -f" if self._follow else ""
        if self._cursor is not None:
            return "the same command goes on where this one stopped"
        if len(self._topics) > 1:
            return "at " + ", ".join(f"{topic} {seq}" for topic, seq in self._shown.items())
        start = f" --from {self._shown[self._topics[0]]}" if self._shown else ""
        more = ", and the other options" if any(self._values[name] for name in _SHAPING) else ""
        return f"go on with: topics tail {self._topics[0]}{follow}{start}{more}"


def _render(session: Session, values: dict[str, Any], many: bool) -> Render | Sink:
    """What records go to: standard output, or a command."""
    framing = framing_of(values)
    if values["exec"] is None and values["exec_batch"] is None:
        return Render(session.out, values, framing, many)
    from topics_cli.sink import sink_of

    return sink_of(session.out, session.stop, values, framing)


class _GapMet(Exception):
    """A loss, where `--fail-on-gap` was given."""

    def __init__(self, topic: str, gap: Gap) -> None:
        super().__init__(topic)
        self.topic = topic
        self.gap = gap


def _last_seq(lines: list[bytes], reader: Reader) -> int:
    return seq_of(lines[-1]) if lines else reader.passed_seq


def _time(word: str | None) -> int | None:
    if word is None:
        return None
    from topics_cli.times import now_ms, read_time

    try:
        return read_time(word, now_ms())
    except ValueError as error:
        raise usage(str(error)) from error
