"""Jobs that the daemon pushes: the client's end of a work stream, with patience.

The leases of its jobs end with the connection, so whoever is killed holds nobody up. A connection that is lost is made
anew; what was leased over it is free by then, and comes again if nobody else was faster. `drain` asks for no further
jobs; the stream ends by itself when what it brought is settled.

Where the daemon has no such stream to give (an older one, or all are taken), `NoStream` is raised, and jobs have to be
claimed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from topics_cli import exits
from topics_cli.client import ANSWER_S_MAX, Call, quote, topic_path
from topics_cli.exits import ApiError, Failure
from topics_cli.launch import Job
from topics_cli.wire import Answer, Lost

if TYPE_CHECKING:
    from topics_cli.session import Session

EVENTS = "text/event-stream"
GOODBYE_S = 1.0
"""How long a daemon may take to end a stream that is drained."""
_NO_ROOM = b'"limit":"max_sse_connections'


class NoStream(Exception):
    """Jobs have to be claimed."""


class StreamCall(Call):
    """A request whose answer comes bit by bit."""

    __slots__ = ()

    def step(self) -> Answer | None:
        """Move on; the answer only when the stream has ended. Raises `NoStream` as well."""
        try:
            return super().step()
        except ApiError as error:
            if error.status in (404, 405) and error.code != "topic_not_found":
                raise NoStream from None
            raise

    def _refused(self, answer: Answer) -> None:
        if answer.status == 429 and _NO_ROOM in answer.body:
            raise NoStream
        super()._refused(answer)

    def _check(self, body: bytes) -> None:
        """The rest of a stream is no object."""

    def take(self) -> bytes:
        """What has come of the stream since it was last taken."""
        channel = self.channel
        if channel.status != 200:
            return b""
        if self.failing_since or not self.client.was_answered:
            self.failing_since = 0.0
            self.client.was_answered = True
        data = channel.taken()
        if data:
            self._until = time.monotonic() + ANSWER_S_MAX
        return data

    def again(self, why: str) -> None:
        """The stream has ended, and should not have: plan the next try. Raises `Failure` when patience is over."""
        self._lost(Lost(why))


class JobStream:
    """One work stream."""

    def __init__(self, session: Session, queue: str, node: str, most: int, values: dict[str, Any]) -> None:
        client = session.client
        query = f"?node={quote(node)}&max={most}"
        if values["lease"] is not None:
            query += f"&lease_ms={values['lease']}"
        if values["tag"] is not None:
            query += f"&match={quote(values['tag'])}"
        self._session = session
        self._queue = queue
        self._node = node
        self._channel = client.channel()
        request = client.request("GET", topic_path(queue) + "/work" + query, accept=EVENTS)
        self._call = StreamCall(client, self._channel, request)
        self._input = bytearray()
        self._drain: Call | None = None
        self._drain_channel = client.channel()
        self._drains = False
        self._close_at = 0.0
        self.was_lost = False
        """Whether the connection broke since this was last looked at: then its leases are nobody's."""
        self.has_ended = False

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for before the next step."""
        return [item for call in (self._call, self._drain) if call is not None for item in call.watch]

    @property
    def timeout_s(self) -> float:
        """How long to wait at most before the next step."""
        times = [call.timeout_s for call in (self._call, self._drain) if call is not None]
        if self._close_at:
            times.append(max(self._close_at - time.monotonic(), 0.0))
        return min(times)

    @property
    def is_asking(self) -> bool:
        """Whether something may come."""
        return not self.has_ended

    @property
    def is_midway(self) -> bool:
        """Whether part of a job has come, so that there is more to expect at once."""
        return bool(self._input)

    def step(self) -> list[Job]:
        """Move on; the jobs that came. Raises `Failure` when none will come any more, and `NoStream`."""
        if self.has_ended:
            return []
        if self._drain is not None:
            self._step_drain(self._drain)
        if self._close_at and time.monotonic() >= self._close_at:
            self.close()
            return []
        call = self._call
        was_in_flight = call.in_flight
        ended = call.step()
        data = call.take() if ended is None else ended.body
        jobs = self._parsed(data)
        if ended is not None:
            self._ended()
        elif was_in_flight and not call.in_flight:
            self._broken()
        if call.failing_since:
            self._session.client.show_wait(call)
        return jobs

    def drain(self) -> None:
        """Ask for no further jobs; afterwards `step` goes on until `has_ended`."""
        if self._drains:
            return
        self._drains = True
        if not self._call.in_flight:
            self.close()
            return
        client = self._session.client
        request = client.request("DELETE", f"{topic_path(self._queue)}/work?node={quote(self._node)}")
        self._drain = client.open(request, self._drain_channel)

    def finish(self) -> None:
        """All that came is settled: the daemon ends the stream now, or soon enough we do."""
        if not self._close_at:
            self._close_at = time.monotonic() + GOODBYE_S

    def _step_drain(self, call: Call) -> None:
        try:
            if call.step() is not None:
                self._drain = None
        except Failure:
            # It will not say goodbye: whatever it still sends is freed when we go.
            self._drain = None

    def close(self) -> None:
        """Let go; what was leased over it and is not settled is free."""
        self.has_ended = True
        self._channel.close()
        self._drain_channel.close()

    def _ended(self) -> None:
        if self._drains:
            self.close()
            return
        self._broken()
        self._call.again("the daemon ended the stream")

    def _broken(self) -> None:
        self._input.clear()
        self.was_lost = True
        if self._drains:
            self.close()

    def _parsed(self, data: bytes) -> list[Job]:
        jobs = []
        self._input += data
        while (end := self._input.find(b"\n\n")) >= 0:
            event = bytes(self._input[:end])
            del self._input[: end + 2]
            if event.startswith(b"event: job\n"):
                lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
                entry = b" ".join(lines)
                jobs.append(Job(b"{" + entry[entry.index(b'"$seq":') :]))
            elif event.startswith(b"event: error\n"):
                self._heard_error(event[event.index(b"data: ") + 6 :])
        return jobs

    def _heard_error(self, data: bytes) -> None:
        """The daemon ends the stream: most reasons pass, and it is opened again."""
        import json

        error = json.loads(data)
        if error["code"] in (401, 403):
            raise Failure("this key may not work here any longer", error["error"], "", exits.NOT_ALLOWED)
        if error["code"] in (404, 409):
            raise Failure(f"{self._queue} is a queue no more", error["error"], "", exits.FAILED)
