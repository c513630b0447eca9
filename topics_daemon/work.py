"""Work streams: jobs of a queue, leased to a connection and sent over it (queues.md, "Work stream"): as events here, as
messages of a WebSocket in `websocket_work.py`.

    claim that stands (engine.core.standing) ─► leased ─► read ─► `job` events ─► … acked elsewhere ─► the next ones
    connection lost, cut, ended by us ─► its leases end at once
    its worker asks to be drained     ─► no further jobs; the stream ends when what it holds is settled

At most `max` jobs are leased to the connection at a time: that is all the backpressure there is for a reader that
works. One that does not even take what was sent gets no further jobs until it has, and after `stall_timeout_ms`
without progress none at all. Jobs whose events were never written do not count as delivered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from engine.core.standing import Standing
from engine.errors import Code, TopicsError
from engine.queue.commands import Claim
from engine.queue.events import Leased
from engine.topic.history import NotCached
from topics_daemon.answers import RETRY_AFTER_S
from topics_daemon.auth import forbidden_name
from topics_daemon.claimed import claimed_entries
from topics_daemon.exchange import OneWay
from topics_daemon.keys import Scope
from topics_daemon.readers import Asking
from topics_daemon.sse import STREAM_HEAD, data_lines, heartbeat, json_data
from topics_daemon.streams import ABORT_AFTER_S

if TYPE_CHECKING:
    from topics_daemon.auth import Caller
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester

WORK_BYTES: Final = 256 * 1024
"""Bytes of records that are leased to a stream in one go, if it is more than one: what it renders ahead."""
FULL_AGAIN_S: Final = 0.25
"""When to look again whether all streams together hold less than they may."""
WORKER: Final = Scope.READ | Scope.WRITE
_SEQ: Final = b'"$seq":'


class Work:
    """Jobs of one queue that are leased to a connection, read, and sent over it by whatever it is."""

    __slots__ = ("_asking", "_daemon", "_name", "_standing", "_unsent", "ended", "paused")

    def __init__(self, daemon: Daemon, name: str, claim: Claim) -> None:
        """Ask for jobs; raises why there are none to be had, with nothing written."""
        self._daemon = daemon
        self._name = name
        self.ended = False
        self.paused = False
        self._unsent: deque[Leased] = deque()
        """Jobs that are leased, and that are not written yet."""
        self._asking: Asking | None = None
        self._standing: Standing = daemon.engine.queues.stand(name, claim, self)

    # -- jobs ------------------------------------------------------------------------------------------------------

    def take(self, leased: Leased) -> None:
        """Jobs are leased to this connection: send them, in order."""
        self._unsent.append(leased)
        self._daemon.touch(self._name)
        if len(self._unsent) == 1:
            self.again()
        if self._standing.room > 0:
            self._daemon.wake()

    def again(self) -> None:
        """Read and send what is leased, as far as it can be read now."""
        daemon = self._daemon
        daemon.reading()
        while self._unsent and not self.ended:
            leased = self._unsent[0]
            if self._asking is not None:
                self._asking.refresh()
            try:
                found = daemon.engine.queues.records(self._name, leased)
            except NotCached as lack:
                self._asking = self._asking or Asking(daemon.readers)
                self._asking.wait(lack.job, self)
                return
            except TopicsError as error:
                self.fail(error)
                return
            self._unsent.popleft()
            if entries := claimed_entries(found, leased):
                name = self._name.encode("ascii")
                self.send_jobs([b'"topic":"%b",%b' % (name, entry[1:]) for entry in entries])
        self._settle()

    def send_jobs(self, jobs: list[bytes]) -> None:
        """Write jobs: each is the inside of an object, from its topic to the closing brace."""
        raise NotImplementedError

    def fail(self, error: TopicsError) -> None:
        """Jobs cannot be read now: whoever comes back may have more luck."""
        self.refused(error)

    def refused(self, error: TopicsError) -> None:
        """Nothing comes any more: say why, and leave."""
        raise NotImplementedError

    def drained(self) -> None:
        """Its worker has asked for the end, and all that it held is settled."""
        raise NotImplementedError

    @property
    def lags(self) -> bool:
        """Whether it has something that it could not send yet."""
        return bool(self._unsent) or self.paused

    def pause(self) -> None:
        """More than may be rendered ahead waits to be sent."""
        self.paused = True
        self._standing.pause()

    def resume(self) -> None:
        """What was written has drained."""
        self.paused = False
        self._take_again()

    def _take_again(self) -> None:
        if self.ended or self.paused:
            return
        if self._daemon.pump.is_full:
            self._daemon.loop.call_later(FULL_AGAIN_S, self._take_again)
            return
        self._standing.resume()
        self._daemon.wake()

    def stop(self) -> None:
        """End the leases: what was never written does not count as delivered."""
        if self.ended:
            return
        self.ended = True
        self._settle()
        while self._unsent:
            self._standing.undeliver(self._unsent.popleft())
        self._standing.leave()
        self._daemon.wake()

    def _settle(self) -> None:
        if self._asking is not None:
            self._asking.done()
            self._asking = None


class WorkStream(Work, OneWay):
    """The open work stream of one connection."""

    __slots__ = ("caller", "connection", "heartbeat_s", "held_bytes", "wrote_s")

    def __init__(
        self, daemon: Daemon, connection: Requester, caller: Caller, name: str, claim: Claim, heartbeat_s: float
    ) -> None:
        self.caller = caller
        self.heartbeat_s = heartbeat_s
        self.connection = connection
        self.held_bytes = 0
        self.wrote_s = daemon.loop.time()
        super().__init__(daemon, name, claim)

    def open(self) -> None:
        """Answer the request with the head of the stream; jobs follow."""
        self.connection.become_stream(self)
        self.connection.write(STREAM_HEAD)
        self._daemon.pump.admit(self)
        self._daemon.wake()

    # -- jobs ------------------------------------------------------------------------------------------------------

    def send_jobs(self, jobs: list[bytes]) -> None:
        events = []
        for job in jobs:
            begin = job.index(_SEQ) + len(_SEQ)
            events.append(b"event: job\nid: %b\n%b\n" % (job[begin : job.index(b",", begin)], data_lines(b"{" + job)))
        self.wrote_s = self._daemon.loop.time()
        self.connection.write(b"".join(events))

    def drained(self) -> None:
        if not self.ended:
            self.stop()
            self.connection.end()
            self._daemon.loop.call_later(ABORT_AFTER_S, self.connection.cut)

    def refused(self, error: TopicsError) -> None:
        """Nothing comes any more; a queue that was dropped has stopped being one."""
        shown: dict[str, Any] = {"code": error.status, "error": error.code.value, "topic": self._name}
        if error.code is Code.TOPIC_NOT_FOUND:
            shown |= {"code": 409, "error": Code.NOT_A_QUEUE.value, "reason": "deleted"}
        if (wait_s := RETRY_AFTER_S.get(error.code)) is not None:
            shown["retry_after_ms"] = wait_s * 1000
        self._end(shown)

    # -- told by the connection and the pump -----------------------------------------------------------------------

    def pause(self) -> None:
        self._daemon.pump.hold(self, self.connection.unsent())
        super().pause()

    def resume(self) -> None:
        self._daemon.pump.released(self)
        super().resume()

    def beat(self, now: float, now_ms: int) -> None:
        """Show life after a silence."""
        if not self.ended and not self.paused:
            self.wrote_s = now
            self.connection.write(heartbeat(now_ms))

    def refusal(self) -> TopicsError | None:
        """Why its caller may not work here any longer, now that the keys are others."""
        return self.caller.lacks(WORKER) or (None if self.caller.allows(self._name) else forbidden_name())

    def gone(self) -> None:
        """The connection is lost."""
        self.stop()

    def stalled(self) -> None:
        """The reader has taken nothing for too long."""
        if self.ended:
            self.connection.cut()
        else:
            self.end(410, "slow_reader")

    def end(self, code: int, error: str) -> None:
        """Say why, and close."""
        self._end({"code": code, "error": error})

    def _end(self, shown: dict[str, Any]) -> None:
        if self.ended:
            return
        self.connection.write(b"event: error\n%b\n" % json_data(shown))
        self.stop()
        self.connection.end()
        self._daemon.loop.call_later(ABORT_AFTER_S, self.connection.cut)

    def stop(self) -> None:
        if not self.ended:
            super().stop()
            self._daemon.pump.dismiss(self)
