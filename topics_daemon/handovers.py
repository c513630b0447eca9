"""Topics on their way to or from other daemons (docs/adr/0044): who drives the steps of `engine.move`.

Steps wait for the loop's tickets and for work that may block, on a place that hangs, say: that is done by threads of
their own. One command a topic at a time. What is cut off by a stop is done again by the same command, or by nobody:
until the offer is in the log, a topic that was about to leave is simply here.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from engine.checkpoint.pin import Below, export_dir
from engine.clock import OsClock
from engine.core import Core, Ticket
from engine.errors import Code, Refused, StoreError, TopicsError, Unavailable, invalid
from engine.formats.moving import MoveBody, MoveState
from engine.fs import Fs
from engine.move.place import Place
from engine.move.steps import FAILURES, Attach, Detach, Steps, Work, attach, cancel, detach, look
from engine.segment.tiers import TieredFs
from engine.types import TopicPut
from topics_daemon.exports import ID_BYTES
from topics_daemon.worker import Worker
from topics_objects.place import open_place

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

THREADS: Final = 4
"""A place that hangs holds one; others are not held up by it."""
STOP_S: Final = 0.05
LOOK_S: Final = 2.0
LOOK_S_MAX: Final = 60.0
"""How often it is looked whether an offer was taken; doubled while its place does not answer."""

Answer = Callable[[Any], None]


class _Job:
    """One piece of work; what came of it."""

    def __init__(self, work: Work, done: Callable[[Any, Exception | None], None]) -> None:
        self._work = work
        self._done = done
        self._result: Any = None
        self._error: Exception | None = None

    def run(self, fs: Fs) -> None:
        try:
            self._result = self._work.run()
        except FAILURES as error:
            self._error = error

    def finish(self) -> None:
        """Hand it on, in the loop's thread."""
        self._done(self._result, self._error)


class Handovers:
    """All of one daemon."""

    def __init__(self, daemon: Daemon, core: Core, fs: Fs, tiered: TieredFs | None) -> None:
        self.requests = {"detach": 0, "cancel": 0, "attach": 0}
        """Commands that ended well, by what was asked."""
        self.failed = {"detach": 0, "cancel": 0, "attach": 0}
        self._daemon = daemon
        self._core = core
        self._fs = fs
        self._tiered = tiered
        self._worker = Worker("handover", daemon.loop, fs, self._done, daemon.job_bug, THREADS)
        self._running: dict[str, Steps] = {}
        self._places: dict[str, Place] = {}
        self._offered: dict[str, tuple[float, float]] = {
            name: (0.0, LOOK_S)
            for name, slot in core.catalog.visible.items()
            if slot.moved is not None and slot.moved.state is MoveState.OFFERED
        }
        """By topic: when it is to be looked at next, and the pause behind that."""
        self._stopped = False

    @property
    def offered(self) -> int:
        """How many topics wait for somebody to take them."""
        return len(self._offered)

    @property
    def under_way(self) -> int:
        """How many commands are being worked on."""
        return len(self._running)

    # -- commands ----------------------------------------------------------------------------------------------------

    def detach(self, topic: str, to: str, url: str | None, answer: Answer) -> None:
        """Offer a topic; `answer` gets a `MoveBody` or an error."""
        asked = Detach(topic, to, url, secrets.token_hex(ID_BYTES), time.time_ns() // 1_000_000)
        self._begin("detach", topic, detach(self._core, lambda: self._place(to), self._pinned, asked), answer)

    def cancel(self, topic: str, answer: Answer) -> None:
        """Take an offer back; `answer` gets None or an error."""
        move = self._core.handover.move_of(topic)
        to = "" if move is None else move.to
        steps = cancel(self._core, lambda: self._place(to), topic, time.time_ns() // 1_000_000)
        self._begin("cancel", topic, steps, answer)

    def attach(self, topic: str, place: str, token: str | None, url: str | None, answer: Answer) -> None:
        """Take a topic over; `answer` gets a `TopicPut` or an error."""
        asked = Attach(topic, token, url)
        steps = attach(self._core, lambda: self._place(place), self._fs, OsClock(), asked)
        self._begin("attach", topic, steps, answer)

    def look(self) -> None:
        """See whether somebody has taken what was offered, now and then."""
        now = self._daemon.loop.time()
        for name, (due, pause) in list(self._offered.items()):
            if now < due or name in self._running or self._stopped:
                continue
            slot = self._core.catalog.visible.get(name)
            move = None if slot is None else slot.moved
            if move is None or move.state is not MoveState.OFFERED:
                del self._offered[name]
                continue
            self._offered[name] = (now + pause, pause)
            self._start(name, look(self._core, self._opener(move.to), name), partial(self._saw, name))

    def stop(self) -> None:
        """End the threads; what hangs in a place is left there."""
        self._stopped = True
        self._worker.stop(STOP_S)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _opener(self, where: str) -> Callable[[], Place]:
        return lambda: self._place(where)

    def _place(self, where: str) -> Place:
        """The place, opened by the first who needs it; in a thread."""
        place = self._places.get(where)
        if place is None:
            try:
                place = self._places[where] = open_place(where)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise invalid(f"{where} is no directory; make it first, or mount what it is on", "place") from error
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise invalid(f"{where} cannot be used: {error.strerror}", "place") from error
        return place

    def _pinned(self, export_id: str) -> Fs:
        below = Below(self._fs, export_dir(export_id))
        return below if self._tiered is None else TieredFs(below, self._tiered.tier)

    def _begin(self, kind: str, topic: str, steps: Steps, answer: Answer) -> None:
        if topic in self._running:
            steps.close()
            detail = {"topic": topic, "state": "busy"}
            raise Unavailable(
                Code.TOPIC_MOVING, f"topic {topic!r} is being moved by another command; try again", detail
            )
        began = self._daemon.loop.time()

        def ended(found: Any) -> None:
            took_ms = int((self._daemon.loop.time() - began) * 1000)
            if isinstance(found, TopicsError):
                self.failed[kind] += 1
                self._daemon.log.warning(f"{kind} failed", topic=topic, error=found.message, took_ms=took_ms)
            else:
                self.requests[kind] += 1
                self._daemon.log.info(f"{kind} done", topic=topic, took_ms=took_ms)
            if isinstance(found, MoveBody) and found.state is MoveState.OFFERED:
                self._offered[topic] = (self._daemon.loop.time() + LOOK_S, LOOK_S)
            answer(found)

        self._start(topic, steps, ended)

    def _start(self, topic: str, steps: Steps, answer: Answer) -> None:
        self._running[topic] = steps
        self._go_on(topic, steps, answer, None, None)

    def _go_on(self, topic: str, steps: Steps, answer: Answer, result: Any, error: Exception | None) -> None:
        """Let steps go on with what came of the last one."""
        if self._stopped:
            return
        try:
            asked = steps.send(result) if error is None else steps.throw(error)
        except StopIteration as done:
            del self._running[topic]
            answer(done.value)
            return
        except FAILURES as failure:
            del self._running[topic]
            if isinstance(failure, OSError):
                self._places.clear()  # perhaps it was mounted elsewhere since
            answer(_told(failure))
            return
        if isinstance(asked, Work):
            self._worker.submit(_Job(asked, lambda found, failed: self._go_on(topic, steps, answer, found, failed)))
            return
        self._daemon.follow(asked, lambda ticket: self._go_on_later(topic, steps, answer, ticket))
        self._daemon.look_at_checkpoints()

    def _go_on_later(self, topic: str, steps: Steps, answer: Answer, ticket: Ticket[Any]) -> None:
        """A ticket is done, perhaps in the middle of the engine's turn."""
        self._daemon.loop.call_soon(self._go_on, topic, steps, answer, ticket.result, ticket.error)

    def _done(self, job: Any, error: OSError | None) -> None:
        job.finish()

    def _saw(self, name: str, found: Any) -> None:
        if isinstance(found, TopicsError):
            _, pause = self._offered.get(name, (0.0, LOOK_S))
            pause = min(2 * pause, LOOK_S_MAX)
            self._offered[name] = (self._daemon.loop.time() + pause, pause)
            self._daemon.log.warning("an offer cannot be looked at", topic=name, error=found.message)
        elif isinstance(found, MoveBody) and found.state is MoveState.TAKEN:
            self._offered.pop(name, None)
            self._daemon.log.info("topic has moved", topic=name, to=found.url or found.to)


def _told(failure: Exception) -> TopicsError:
    """A failure as it is answered."""
    if isinstance(failure, TopicsError):
        return failure
    if isinstance(failure, StoreError):
        return Refused(Code.TOPIC_DAMAGED, str(failure))
    assert isinstance(failure, OSError)
    why = failure.strerror or str(failure)
    return Unavailable(Code.COLD_UNAVAILABLE, f"the place, or the disk, does not do what it is asked: {why}")


def shown(topic: str, move: MoveBody | None, head_seq: int, epoch: int) -> dict[str, Any]:
    """Where a topic is, as it is answered."""
    answer: dict[str, Any] = {"topic": topic, "state": "here", "last_seq": head_seq, "epoch": epoch}
    if move is not None:
        answer |= {"state": move.state.value, "to": move.url or move.to, "place": move.to, "token": move.token}
    return answer


def attached(put: TopicPut, core: Core) -> dict[str, Any]:
    """What an attach answers, but for the configuration."""
    topic = core.catalog.reader(put.topic).topic
    return {"topic": put.topic, "created": put.created, "epoch": put.epoch, "head_seq": topic.head}
