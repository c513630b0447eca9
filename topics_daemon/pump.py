"""From "this topic has something new" to the readers that wait for it: long polls, and streams.

After each turn the engine names its fresh topics. Waiters (long polls) are poked at once; streams are served behind the
answers of the tick, a page each, round and round, for at most `SLICE_S` before other work of the loop gets its turn.
Watchers that stand at the same place with the same options share one page and its rendering (`Frames`), which lives as
long as one pass: nothing can change in between. A stream that is `steady` costs a delivery little more than its write.

Which topic is next is `engine.delivery.Ready`'s to say: bands by priority, turns of a bounded time and size.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from engine.core.priority import effective_priority
from engine.delivery import Governor, Ready
from engine.delivery.bands import TURN_BYTES
from engine.errors import Code, Refused, TopicsError
from engine.topic.history import NotCached
from engine.types import Page
from topics_daemon.sse import data_lines, newest_payload, record_payload
from topics_daemon.straight import AT_ONCE_MAX, give
from topics_daemon.streams import Stream

if TYPE_CHECKING:
    from engine.core.slot import Slot
    from topics_daemon.auth import Caller
    from topics_daemon.daemon import Daemon
    from topics_daemon.sessions import Place, Session

SLICE_S: Final = 0.002
"""How long streams are served before the loop sees to its sockets again."""
LOOK_MASK: Final = 7
"""Streams served between two looks at the clock, less one: a power of two."""
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
"""What may wait to be sent for all streams together."""


class Waiter(Protocol):
    """Whoever wants to look again when a topic has something new."""

    def poke(self) -> None: ...

    def expire(self) -> None: ...

    def gone(self) -> None: ...

    def fail(self, error: TopicsError) -> None: ...

    def refusal(self) -> TopicsError | None: ...


class Open(Protocol):
    """An open stream of any kind: what it costs, and what may be asked of it."""

    @property
    def caller(self) -> Caller: ...

    @property
    def heartbeat_s(self) -> float: ...

    @property
    def ended(self) -> bool: ...

    @property
    def lags(self) -> bool: ...

    held_bytes: int
    """What it holds against the daemon's bound for all streams."""
    wrote_s: float
    """When it last wrote something."""

    def beat(self, now: float, now_ms: int) -> None: ...

    def end(self, code: int, error: str) -> None: ...

    def refusal(self) -> TopicsError | None: ...


class Frame:
    """Records as they were rendered for whoever stands there; what few want is made when it is wanted."""

    __slots__ = ("_lines", "alone", "message", "payload", "size", "to_seq")

    def __init__(self, to_seq: int, payload: bytes | None) -> None:
        self.to_seq = to_seq
        self.size = 0 if payload is None else len(payload)
        self.payload = payload
        """What is said of the records, or None when there are none."""
        self._lines: bytes | None = None
        self.alone: bytes | None = None
        """The whole SSE event for sessions of this one topic, whose id is the same for all of them."""
        self.message: bytes | None = None
        """The whole message of a WebSocket."""

    def lines(self) -> bytes:
        """The payload as the data of an SSE event."""
        if self._lines is None:
            assert self.payload is not None
            self._lines = data_lines(self.payload)
        return self._lines


class PageFrame(Frame):
    """A page, and its records."""

    __slots__ = ("is_live", "page")

    def __init__(self, page: Page, payload: bytes | None) -> None:
        super().__init__(page.next_from_seq, payload)
        self.page = page
        self.is_live = page.next_from_seq == page.head_seq and page.tombstone is None
        """Whether there is nothing behind it, nor lost before it."""


class Frames:
    """Pages of one pass, read and rendered once for all who stand at the same place with the same options."""

    __slots__ = ("_daemon", "_live", "_made", "bytes")

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._made: dict[tuple[str, int, int, int | None, int], PageFrame] = {}
        self._live: dict[tuple[str, int, int, int], Frame | None] = {}
        self.bytes = 0
        """What was handed out, counted for each who got it."""

    def live(self, session: Session, place: Place) -> Frame | None:
        """What a live stream is told next, the same for all who stand there: what is new up to the head. None when it
        is not that simple, and each of them has to be served by itself."""
        key = (place.name, place.cursor, place.epoch, session.shape_id)
        if key not in self._live:
            self._live[key] = self._read_live(session, place)
        return self._live[key]

    def _read_live(self, session: Session, place: Place) -> Frame | None:
        engine, name, cursor = self._daemon.engine, place.name, place.cursor
        try:
            found = engine.newest(name, session.shape, cursor, place.epoch) if session.whole else None
            if found is not None:
                return Frame(found[1], newest_payload(name.encode("ascii"), found[0], cursor, found[1]))
            frame = self.read(session, place)
        except (NotCached, TopicsError):
            return None
        return frame if frame.is_live else None

    def read(self, session: Session, place: Place) -> PageFrame:
        """The next page at a place."""
        key = (place.name, place.cursor, place.epoch, place.from_ts, session.shape_id)
        frame = self._made.get(key)
        if frame is None:
            request = msgspec.structs.replace(
                session.shape, from_seq=place.cursor, epoch=place.epoch, from_ts=place.from_ts
            )
            page = self._daemon.engine.page(place.name, request)
            payload = record_payload(place.name.encode("ascii"), page) if page.count else None
            frame = self._made[key] = PageFrame(page, payload)
        return frame


class Pump:
    """Who waits for what."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self._followers: dict[str, dict[Stream, None]] = {}
        self._sleepers: dict[str, dict[Stream, None]] = {}
        """Followers that wait for their readers and know that there is more: they cost a write nothing."""
        self._strict: dict[str, dict[Stream, None]] = {}
        """Those that want only what is synced."""
        self._fresh: list[str] = []
        """Topics whose followers have not been told yet what this tick brought."""
        self._streams: dict[Open, None] = {}
        self.ready: Ready[str] = Ready()
        """Topics that have something for streams."""
        self._lines: dict[str, dict[Stream, None]] = {}
        """The streams that each of them is for."""
        self._held: dict[Stream, None] = {}
        """Streams that wait for the bound on all of them."""
        self.gather_s = 0.0
        """How long delivery waits for more records, while the daemon is pressed."""
        self._held_bytes = 0
        self._pass_due = False
        self._beats: list[tuple[float, int, Open]] = []
        self._beat_number = 0

    def now(self) -> float:
        """The loop's time."""
        return self.daemon.loop.time()

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    @property
    def lagging(self) -> int:
        """Streams that have something which they could not send yet."""
        return sum(1 for stream in self._streams if stream.lags)

    @property
    def is_full(self) -> bool:
        """Whether all streams together hold what they may."""
        return self._held_bytes >= HELD_BYTES_MAX

    # -- long polls ------------------------------------------------------------------------------------------------

    def await_topics(self, waiter: Waiter, names: Iterable[str]) -> None:
        """Poke `waiter` whenever one of the topics has something new, until it is forgotten."""
        for name in names:
            self._waiters.setdefault(name, {})[waiter] = None

    def forget(self, waiter: Waiter, names: Iterable[str]) -> None:
        """Stop poking."""
        for name in names:
            waiters = self._waiters.get(name)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[name]

    # -- streams ---------------------------------------------------------------------------------------------------

    def open(self, session: Session, stream: Stream) -> None:
        """Begin to serve a stream; the session's earlier one is told and closed."""
        if session.stream is not None:
            session.stream.end(410, "taken_over")
        session.stream = stream
        self.admit(stream)
        self.follow(stream)

    def follow(self, stream: Stream) -> None:
        """Let a stream begin, and tell it what is new in its topics."""
        for name, place in stream.session.places.items():
            if not place.gone:
                self._followers.setdefault(name, {})[stream] = None
                if stream.session.shape.strong:
                    self._strict.setdefault(name, {})[stream] = None
        stream.open()
        self.enqueue(stream)

    def admit(self, stream: Open) -> None:
        """Count a stream, and see to its heartbeats."""
        stream.caller.streams += 1
        self._streams[stream] = None
        self._plan_beat(stream)

    def check_room(self, caller: Caller) -> None:
        """Raise the 429 of a cap on streams."""
        own_max: int = self.daemon.config["max_sse_connections_per_key"]
        if own_max and caller.keyed and caller.streams >= own_max:
            detail = {"limit": "max_sse_connections_per_key", "max": own_max}
            raise Refused(Code.THROTTLED, "too many open streams of this key", detail)
        maximum: int = self.daemon.config["max_sse_connections"]
        if maximum and len(self._streams) >= maximum:
            raise Refused(Code.THROTTLED, "too many open streams", {"limit": "max_sse_connections", "max": maximum})

    def remove(self, stream: Stream) -> None:
        """A stream has ended; its session waits for the next one."""
        if not self.dismiss(stream):
            return
        for name in stream.session.places:
            self.unfollow(stream, name)
        if stream.session.stream is stream:
            stream.session.stream = None
            stream.session.idle_since = self.now()

    def dismiss(self, stream: Open) -> bool:
        """A stream has ended; False when that is known already."""
        if self._streams.pop(stream, self) is self:
            return False
        stream.caller.streams -= 1
        self.released(stream)
        return True

    def unfollow(self, stream: Stream, name: str) -> None:
        """A stream is not interested in a topic any more."""
        _take_out(self._followers, stream, name)
        _take_out(self._sleepers, stream, name)
        _take_out(self._strict, stream, name)

    def heed(self, stream: Stream) -> None:
        """A stream goes on: tell it again what is new."""
        for name in stream.session.places:
            if _take_out(self._sleepers, stream, name):
                self._followers.setdefault(name, {})[stream] = None

    def enqueue(self, stream: Stream, name: str | None = None, *, first: bool = False) -> None:
        """Put a stream in the line of a topic (of all that it has ready, without a name), if it can be served now.

        `first`: the topic goes before the others of its band, for it had its turn already.
        """
        if stream.paused or stream.ended:
            return
        for wanted in stream.ready if name is None else (name,):
            line = self._lines.get(wanted)
            if line is None:
                line = self._lines[wanted] = {}
                self._make_ready(wanted, first)
                self._ask_for_pass(self.gather_s)
            if wanted in self.ready.aside and stream not in line:
                self._advise(stream, wanted)
            line[stream] = None

    def _make_ready(self, name: str, first: bool = False) -> None:
        self.ready.add(name, self._priority(name), self.now(), first=first)

    def _priority(self, name: str) -> int:
        slot = self.daemon.engine.catalog.visible.get(name)
        if slot is None:
            return 0
        topic = slot.topic
        return effective_priority(topic.config, topic.last_write_ts, topic.last_read_ts, self.daemon.engine.now())

    def configured(self, name: str) -> None:
        """A topic was configured: if it waits for its turn, its priority may be another now."""
        was_aside = name in self.ready.aside
        self.ready.change(name, self._priority(name), self.now())
        if name in self.ready.aside and not was_aside:
            for stream in self._lines[name]:
                self._advise(stream, name)
        self._ask_for_pass()

    def _ask_for_pass(self, delay_s: float = 0.0) -> None:
        if self._lines and not self._pass_due and self.ready:
            self._pass_due = True
            if delay_s:
                self.daemon.loop.call_later(delay_s, self._pass)
            else:
                self.daemon.loop.call_soon(self._pass)

    def press(self, governor: Governor) -> None:
        """The pressure was looked at: push negative priorities or not, and gather records for longer or not."""
        self.gather_s = governor.gather_s
        if governor.refusing != self.ready.paused:
            self.ready.pause(governor.refusing, self.now())
            self._ask_for_pass()
            for name in self.ready.aside:
                for stream in self._lines[name]:
                    self._advise(stream, name)

    def _advise(self, stream: Stream, name: str) -> None:
        """Tell a reader that a topic is not pushed for a while; it can be read."""
        if not stream.ended and not stream.paused:
            stream.advise(name, int(self.daemon.governor.retry_s * 1000))

    def hold(self, stream: Open, waiting: int) -> None:
        """A stream has rendered ahead of its reader: count it against the bound of all."""
        self._held_bytes += waiting - stream.held_bytes
        stream.held_bytes = waiting

    def released(self, drained: Open) -> None:
        """What a stream held is sent, or dropped."""
        self._held_bytes -= drained.held_bytes
        drained.held_bytes = 0
        while self._held and not self.is_full:
            stream = next(iter(self._held))
            del self._held[stream]
            self.enqueue(stream)

    # -- the pass --------------------------------------------------------------------------------------------------

    def wake(self, fresh: Iterable[Slot]) -> None:
        """Topics have something new: poke who waits; `deliver` sees to the streams."""
        if not self._waiters and not self._followers and not self._sleepers:
            return
        for slot in fresh:
            name = slot.topic.name
            if self._waiters:
                self._poke_all(name)
            if slot.dropped:
                for stream in (*self._followers.get(name, ()), *self._sleepers.get(name, ())):
                    self._dropped(stream, slot)
            elif name in self._followers:
                self._fresh.append(name)

    def wake_strict(self, synced: Iterable[Slot]) -> None:
        """More of these topics is synced, which only some readers wait for."""
        if self._waiters or self._strict:
            for slot in synced:
                name = slot.topic.name
                self._poke_all(name)
                if name in self._strict and name not in self._fresh:
                    self._note(name, self._strict[name])

    def deliver(self) -> None:
        """The end of a tick, behind its answers: streams get what is new, at once if nobody waits before them."""
        fresh = self._fresh
        if fresh:
            self._fresh = []
            if len(fresh) == 1 and not (self._lines or self._pass_due or self.gather_s or self.ready.paused):
                self._pass(fresh[0])
                return
            for name in fresh:
                if name in self._followers:
                    self._note(name, self._followers[name])
        if self._lines and not self._pass_due and self.ready:
            if self.gather_s:
                self._ask_for_pass(self.gather_s)
            else:
                self._pass()

    def _note(self, name: str, followers: dict[Stream, None]) -> None:
        """Put those who follow a topic in line, for it has something new."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = {}
            self._make_ready(name)
        is_pushed = name not in self.ready.aside
        for stream in list(followers):
            if stream.steady is not None and is_pushed:
                line[stream] = None
            else:
                self._tell(stream, name)

    def _tell(self, stream: Stream, name: str) -> None:
        """Tell one of them; who cannot take it now is not told again before it can."""
        stream.note(name)
        if stream.paused and name in stream.ready:
            _take_out(self._followers, stream, name)
            self._sleepers.setdefault(name, {})[stream] = None

    def _poke_all(self, name: str) -> None:
        for waiter in list(self._waiters.get(name, ())):
            self._poke(waiter)

    def _poke(self, waiter: Waiter) -> None:
        """A bug in one answer costs that answer, and nobody else's."""
        try:
            waiter.poke()
        except Exception as error:  # noqa: BLE001  # logged under an id, which the client gets
            waiter.gone()
            waiter.fail(self.daemon.internal_error(error))

    def _serve(self, stream: Stream, name: str, frames: Frames) -> None:
        """Give one stream what one topic has for it."""
        if stream.ended or stream.paused or name not in stream.ready:
            return
        if self.is_full:
            self._held[stream] = None
            return
        try:
            stream.serve(frames, name)
        except Exception as error:  # noqa: BLE001  # logged under an id; the reader comes back and goes on
            self.daemon.internal_error(error)
            stream.end(500, "internal")
        if name in stream.ready:
            self.enqueue(stream, name)

    def _dropped(self, stream: Stream, slot: Slot) -> None:
        place = stream.session.places[slot.topic.name]
        if place.epoch == slot.topic.epoch:
            place.head = slot.topic.head
            stream.tell(stream.topic_deleted(place))

    def _pass(self, first: str = "") -> None:
        """Give topics their turns for one slice; `first` has one though nobody of its followers is in line yet."""
        self.daemon.reading()
        frames = Frames(self.daemon)
        now = self.now()
        until = now + SLICE_S
        self._pass_due = True
        try:
            if first:
                self._turn(first, list(self._followers.get(first, ())), frames, until)
                now = self.now() if self._lines else now
            while self._lines and now <= until and (name := self.ready.take(now)) is not None:
                self._turn(name, self._lines.pop(name), frames, now + self.ready.turn_s)
                now = self.now()
        finally:
            self._pass_due = False
            self._ask_for_pass()

    def _turn(self, name: str, line: Collection[Stream], frames: Frames, until: float) -> None:
        """Serve the streams of a topic, until all are or its turn is over."""
        bytes_until = frames.bytes + TURN_BYTES
        time = self.daemon.loop.time
        now_s = time()
        served = given = 0
        frame: Frame | None = None
        data = b""
        cursor = epoch = shape_id = 0
        straight: list[Stream] = []
        sockets: list[int] = []
        for stream in line:
            place = stream.steady
            outlet = stream.outlet
            is_straight = place is not None and stream.socket >= 0 and not outlet.get_write_buffer_size()
            if not is_straight and outlet.is_closing():
                # Its end comes later in this tick: the session's cursor must not pass what reaches nobody.
                stream.gone()
            elif place is None:
                if name in stream.ready:
                    self._serve(stream, name, frames)
                else:
                    self._tell(stream, name)
            else:
                try:
                    if place.cursor != cursor or stream.shape_id != shape_id or place.epoch != epoch:
                        if sockets:
                            give(self.daemon, straight, sockets, data, cursor)
                        frame = frames.live(stream.session, place)
                        cursor, epoch, shape_id = place.cursor, place.epoch, stream.shape_id
                        data = b"" if frame is None or frame.payload is None else stream.event(frame)
                    if frame is None or self._held_bytes >= HELD_BYTES_MAX:
                        self._tell(stream, name)
                    else:
                        place.cursor = place.head = frame.to_seq
                        if data:
                            stream.wrote_s = now_s
                            given += frame.size
                            if is_straight:
                                straight.append(stream)
                                sockets.append(stream.socket)
                            else:
                                outlet.write(data)
                except Exception as error:  # noqa: BLE001  # as in `_serve`
                    self.daemon.internal_error(error)
                    stream.end(500, "internal")
            served += 1
            if len(sockets) == AT_ONCE_MAX:
                give(self.daemon, straight, sockets, data, cursor)
            if frames.bytes + given >= bytes_until or (not served & LOOK_MASK and time() > until):
                break
        if sockets:
            give(self.daemon, straight, sockets, data, cursor)
        frames.bytes += given
        if served < len(line):
            # The others come at the next turn, before those that have had theirs.
            left = dict.fromkeys(islice(line, served, None))
            left.update(self._lines.get(name) or ())
            if name not in self._lines:
                self._make_ready(name)
            self._lines[name] = left

    # -- time ------------------------------------------------------------------------------------------------------

    def _plan_beat(self, stream: Open) -> None:
        self._beat_number += 1
        due = stream.wrote_s + stream.heartbeat_s
        heapq.heappush(self._beats, (due, self._beat_number, stream))

    def beat(self, now: float) -> None:
        """Send the heartbeats that are due; called by the coarse timer."""
        while self._beats and self._beats[0][0] <= now:
            stream = heapq.heappop(self._beats)[2]
            if stream.ended:
                continue
            if now - stream.wrote_s >= stream.heartbeat_s:
                stream.beat(now, self.daemon.engine.now())
                stream.wrote_s = now
            self._plan_beat(stream)

    def judge_again(self) -> None:
        """The keys have changed: end what waits or streams on the word of a key that may not do so any more."""
        for waiter in {waiter for waiters in self._waiters.values() for waiter in waiters}:
            error = waiter.refusal()
            if error is not None:
                waiter.gone()
                waiter.fail(error)
        for stream in list(self._streams):
            error = stream.refusal()
            if error is not None:
                stream.end(error.status, error.code.value)

    def shut(self) -> None:
        """The daemon stops: long polls get what there is, streams their last event."""
        for waiters in list(self._waiters.values()):
            for waiter in list(waiters):
                waiter.expire()
        for stream in list(self._streams):
            stream.end(503, "server_shutting_down")


def _take_out(streams: dict[str, dict[Stream, None]], stream: Stream, name: str) -> bool:
    """Take a stream out of those of a topic; whether it was among them."""
    there = streams.get(name)
    if there is None or stream not in there:
        return False
    del there[stream]
    if not there:
        del streams[name]
    return True
