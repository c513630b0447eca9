"""One SSE stream: a session's places turned into events, as fast as its reader takes them.

A stream keeps positions, not frames. It is told which of its topics may have something (`note`); when it is served it
reads one page of the next such topic, writes it, and goes to the back of the line. It stops as soon as more than
`AHEAD_BYTES` of what it wrote waits to be sent, and goes on when that has drained: a slow reader costs one frame, and
catches up from the log.

A page may need a read that has to be waited for. One such read at a time is on its way for a stream: the topic keeps
its place, the stream's other topics go on as far as they need none, and nothing is asked again before it is there. A
topic that cannot be read now is told as an error, and looked at again after a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from engine.errors import Code, Refused, TopicsError
from engine.topic.history import NotCached, ReadJob
from engine.types import Page, Reason, Tombstone
from topics_daemon.answers import RETRY_AFTER_S
from topics_daemon.exchange import OneWay, Outlet
from topics_daemon.readers import Asking
from topics_daemon.sse import STREAM_HEAD, event, heartbeat, json_data, tombstone_shown

if TYPE_CHECKING:
    from topics_daemon.auth import Caller
    from topics_daemon.exchange import Requester
    from topics_daemon.pump import Frame, Frames, PageFrame, Pump
    from topics_daemon.sessions import Place, Session

ABORT_AFTER_S: Final = 2.0
"""How long a stream that was ended may take to send what it has."""


def _cursor_behind(page: Page, tombstone: Tombstone) -> int:
    """The cursor once a tombstone is told: behind the gap, or where a topic that was made anew is read from."""
    return page.from_seq if tombstone.reason == Reason.RECREATED else min(tombstone.gap_to, page.next_from_seq)


class Stream(OneWay):
    """The open stream of a session."""

    __slots__ = (
        "_asking",
        "_behind",
        "_live",
        "_pump",
        "_reading",
        "connection",
        "ended",
        "held_bytes",
        "outlet",
        "paused",
        "ready",
        "session",
        "shape_id",
        "socket",
        "steady",
        "wrote_s",
    )

    def __init__(self, pump: Pump, session: Session, connection: Requester) -> None:
        self._pump = pump
        self.session = session
        self.shape_id = session.shape_id
        self.connection = connection
        self.outlet: Outlet = connection.transport
        has_frames = self.outlet is cast(object, connection)
        self.socket = -1 if has_frames else connection.descriptor()
        """Where events may be written straight while nothing waits at the outlet; −1 where it has frames of its own."""
        self.ready: dict[str, None] = {}
        """Topics that may have something, in the order in which they are served."""
        self.steady: Place | None = None
        """The place of its only topic, while it is told live and takes what comes: most streams, most of the time.
        Nothing is `ready` then: to be in the topic's line is enough."""
        self.paused = False
        self.ended = False
        self.held_bytes = 0
        """What it holds against the daemon's bound for all streams."""
        self._live: set[str] = set()
        """Topics whose passage from backlog to live has been told."""
        self._reading: str | None = None
        """The topic whose page needs a read that is on its way, or has just come."""
        self._asking: Asking | None = None
        self._behind: dict[str, None] = {}
        """Topics that need one too, after it."""
        self.wrote_s = pump.now()

    @property
    def caller(self) -> Caller:
        """Whose it is."""
        return self.session.caller

    @property
    def heartbeat_s(self) -> float:
        """After which silence it shows life."""
        return self.session.heartbeat_s

    @property
    def lags(self) -> bool:
        """Whether it has something that it could not send yet, perhaps because a page needs a read."""
        return bool(self.ready) or self.paused or self._reading is not None

    def refusal(self) -> TopicsError | None:
        """Why its caller may not follow these topics any longer."""
        return self.caller.refusal(self.session.places)

    def open(self) -> None:
        """Answer the request with the head of the stream, and begin."""
        self.connection.become_stream(self)
        self.connection.write(STREAM_HEAD)
        for name, place in self.session.places.items():
            if not place.gone:
                self.ready[name] = None

    # -- told by the pump and the connection -----------------------------------------------------------------------

    def note(self, name: str) -> None:
        """A topic has something new."""
        place = self.session.places[name]
        if not place.gone and not self.ended and name != self._reading and name not in self._behind:
            self.ready[name] = None
            self.steady = None
            self._pump.enqueue(self, name)

    def pause(self) -> None:
        """More than may be rendered ahead waits to be sent."""
        self.paused = True
        self.steady = None
        self._pump.hold(self, self.connection.unsent())

    def resume(self) -> None:
        """What was written has drained."""
        self.paused = False
        if not self.ended:
            self._pump.heed(self)
        self._pump.released(self)
        if self.ready and not self.ended:
            self._pump.enqueue(self)

    def gone(self) -> None:
        """The connection is lost."""
        self._stop()

    def stalled(self) -> None:
        """The reader has taken nothing for too long."""
        if self.ended:
            self.connection.cut()
            return
        self.end(410, "slow_reader")

    def end(self, code: int, error: str) -> None:
        """Say why, and close; the id lets the reader come back to where it is."""
        if self.ended:
            return
        data = json_data({"code": code, "error": error})
        self.connection.write(event(b"error", data, self.session.position()))
        self._stop()
        self.connection.end()
        self._pump.daemon.loop.call_later(ABORT_AFTER_S, self.connection.cut)

    def _stop(self) -> None:
        self.ended = True
        self.steady = None
        self.ready.clear()
        self._settle()
        self._pump.remove(self)

    def beat(self, now: float, now_ms: int) -> None:
        """Show life after a silence."""
        if not self.ended and not self.paused:
            self.wrote_s = now
            self.connection.write(heartbeat(now_ms))

    # -- served by the pump ----------------------------------------------------------------------------------------

    def serve(self, frames: Frames, name: str) -> None:
        """Write what a topic has; the pump puts the stream back in the topic's line while it has more."""
        del self.ready[name]
        session = self.session
        place = session.places[name]
        asking = self._asking if name == self._reading else None
        if asking is not None:
            asking.refresh()
        try:
            frame = frames.read(session, place)
            frames.bytes += frame.size
        except NotCached as lack:
            self._wait(name, lack.job)
            return
        except TopicsError as error:
            self.tell(self._failed(place, error))
            return
        finally:
            if asking is not None and not asking.waits:
                self._settle()
        if session.alone and name in self._live and frame.is_live:
            # A live reader of one topic, by far the most frequent: everybody gets the same bytes.
            place.cursor = frame.page.next_from_seq
            place.head = frame.page.head_seq
            self.steady = place if self._takes_all(name) else None
            if frame.payload is not None:
                self.wrote_s = self._pump.now()
                self.outlet.write(self.event(frame))
            return
        self.steady = None
        self.tell(self._events(place, frame))

    def _takes_all(self, name: str) -> bool:
        """Whether it is served whatever its one topic has, for nothing is in the way."""
        return not (self.paused or self.ended or self._reading or self._behind or self.session.places[name].gone)

    def event(self, frame: Frame) -> bytes:
        """What is the same for every live reader of this one topic, once its place is behind the frame."""
        if frame.alone is None:
            frame.alone = event(b"record", frame.lines(), self.session.position_at(frame.to_seq))
        return frame.alone

    def _events(self, place: Place, frame: PageFrame) -> list[bytes]:
        """The events of one page of one topic; notes the topic again when there is more."""
        session = self.session
        name = place.name
        page = frame.page
        parts: list[bytes] = []
        place.from_ts = None
        place.epoch = page.epoch
        place.head = page.head_seq
        if page.tombstone is not None:
            place.cursor = _cursor_behind(page, page.tombstone)
            parts.append(self.said(b"tombstone", tombstone_shown(name, page)))
        place.cursor = page.next_from_seq
        if frame.payload is not None:
            parts.append(self._records(frame))
        if page.next_from_seq < page.head_seq:
            if not session.shape.strong:
                self._live.discard(name)
                self.ready[name] = None
            elif page.scanned:
                self.ready[name] = None
        elif name not in self._live:
            self._live.add(name)
            parts.append(self.said(b"caught-up", {"topic": name, "head_seq": page.head_seq}))
        return parts

    def _records(self, frame: Frame) -> bytes:
        """The event of a page's records."""
        return event(b"record", frame.lines(), self.session.position())

    def said(self, name: bytes, shown: dict[str, object]) -> bytes:
        """Any other event."""
        return event(name, json_data(shown), self.session.position())

    def _wait(self, name: str, job: ReadJob) -> None:
        """A page needs a read: go on with this topic when it is done."""
        if self._reading not in (None, name):
            self._behind[name] = None
            return
        self._reading = name
        self.steady = None
        self._asking = self._asking or Asking(self._pump.daemon.readers)
        self._asking.wait(job, self)

    def again(self) -> None:
        """The read is done: it is this topic's turn."""
        name = self._reading
        assert name is not None
        if self.paused:
            # What was read is not kept for a reader that takes nothing.
            self._settle()
        self.ready[name] = None
        self._pump.enqueue(self, name, first=True)

    def fail(self, error: TopicsError) -> None:
        """The read cannot be done."""
        name = self._reading
        self._settle()
        if name is not None:
            self.tell(self._failed(self.session.places[name], error))
        self._pump.enqueue(self)

    def _settle(self) -> None:
        """No read is on its way any more: those that wait behind it may ask for theirs."""
        self._reading = None
        if self._asking is not None:
            self._asking.done()
            self._asking = None
        if self._behind:
            behind, self._behind = self._behind, {}
            if not self.ended:
                self.ready.update(behind)
                self._pump.enqueue(self)

    def _failed(self, place: Place, error: TopicsError) -> list[bytes]:
        """A page could not be read: the topic is gone, or the error passes."""
        if error.code is Code.TOPIC_NOT_FOUND:
            return self.topic_deleted(place)
        shown = {**self._error(error), "topics": [place.name]}
        if error.code is Code.TOPIC_MOVED and error.detail is not None:
            self.leave(place)
            shown["to"] = error.detail["to"]
        wait_s = RETRY_AFTER_S.get(error.code)
        if wait_s is not None:
            shown["retry_after_ms"] = wait_s * 1000
            self._pump.daemon.loop.call_later(wait_s, self.note, place.name)
        return [self.said(b"error", shown)]

    def advise(self, name: str, retry_after_ms: int) -> None:
        """A topic is not pushed for a while, because the daemon is pressed."""
        busy = Refused(Code.THROTTLED, "topics of negative priority are not pushed while the daemon is pressed")
        self.tell([self.said(b"error", {**self._error(busy), "retry_after_ms": retry_after_ms, "topics": [name]})])

    def _error(self, error: TopicsError) -> dict[str, object]:
        """How an error is told."""
        return {"code": error.status, "error": error.code.value}

    def topic_deleted(self, place: Place) -> list[bytes]:
        """End one topic of the session, and say so once."""
        if place.gone:
            return []
        self.leave(place)
        return [self.said(b"topic-deleted", {"topic": place.name, "head_seq": place.head, "reason": "deleted"})]

    def leave(self, place: Place) -> None:
        """Follow one topic of the session no longer."""
        place.gone = True
        self.steady = None
        self.ready.pop(place.name, None)
        self._behind.pop(place.name, None)
        if place.name == self._reading:
            self._settle()
            self._pump.enqueue(self)
        self._pump.unfollow(self, place.name)

    def tell(self, parts: list[bytes]) -> None:
        """Write events."""
        if parts and not self.ended:
            self.wrote_s = self._pump.now()
            self.connection.write(parts[0] if len(parts) == 1 else b"".join(parts))
