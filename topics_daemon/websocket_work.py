"""Jobs of a queue over a WebSocket: a `subscribe` with `work` (queues.md, "Work stream").

The same as the stream of events: at most `max` jobs at a time are leased to the socket, each is a message `job` with
what a claim would have given and its topic, and whatever ends the subscription or the socket ends its leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from engine.errors import Code, Refused, TopicsError, invalid
from engine.names import check_topic_name
from engine.queue.commands import Claim
from topics_daemon.answers import error_shown
from topics_daemon.decode import check_holder, decode
from topics_daemon.routes.asked import MatchIn, match_of
from topics_daemon.websocket_frames import said
from topics_daemon.work import WORK_BYTES, Work

if TYPE_CHECKING:
    from engine.limits import Limits
    from topics_daemon.websocket import Socket


class WorkIn(msgspec.Struct, forbid_unknown_fields=True):
    """What `work` says."""

    max: int = 1
    lease_ms: int | None = None


class SubscribeWorkIn(msgspec.Struct, forbid_unknown_fields=True):
    """A `subscribe` to the jobs of a queue."""

    topic: str
    node: str
    work: Raw
    match: MatchIn = None


_SUBSCRIBE_WORK: Final = msgspec.json.Decoder(SubscribeWorkIn)
_WORK: Final = msgspec.json.Decoder(WorkIn)


def read_work(members: dict[str, Raw], limits: Limits, warnings: list[str]) -> tuple[str, Claim]:
    """The queue that a `subscribe` with `work` names, and what it wants of it."""
    if "topic" not in members:
        raise invalid("a subscribe with work needs topic, the name of one queue", "topic")
    read = decode(_SUBSCRIBE_WORK, msgspec.json.encode(members), limits, warnings)
    found: list[str] = []
    try:
        work = decode(_WORK, bytes(read.work), limits, found)
    except Refused as error:
        field = (error.detail or {}).get("field", "work")
        raise invalid("work is an object of max and lease_ms, whole numbers", field) from error
    warnings.extend(text.replace("unknown field ", "unknown field work.", 1) for text in found)
    if work.lease_ms is not None and work.lease_ms < 0:
        raise invalid("lease_ms must not be negative", "lease_ms")
    claim = Claim(
        node=check_holder(read.node, limits),
        max=min(work.max, limits.claim),
        lease_ms=work.lease_ms,
        match=match_of(read.match, limits),
        max_bytes=WORK_BYTES,
    )
    return check_topic_name(read.topic), claim


class SocketWork(Work):
    """What one `subscribe` with `work` gets."""

    __slots__ = ("_socket",)

    def __init__(self, socket: Socket, name: str, claim: Claim) -> None:
        self._socket = socket
        super().__init__(socket.daemon, name, claim)

    def send_jobs(self, jobs: list[bytes]) -> None:
        for job in jobs:
            self._socket.send(b'{"op":"job",' + job)

    def drained(self) -> None:
        self._socket.send(said(b"unsubscribed", b"", {"topic": self._name, "topics": [self._name]}))
        self.stop()

    def refused(self, error: TopicsError) -> None:
        """Nothing comes any more; a queue that was dropped has stopped being one."""
        if error.code is Code.TOPIC_NOT_FOUND:
            detail = {"topic": self._name, "reason": "deleted"}
            error = Refused(Code.NOT_A_QUEUE, f"queue '{self._name}' was deleted", detail)
        self._socket.send(said(b"error", b"", {"topic": self._name, **error_shown(error)}))
        self.stop()

    def stop(self) -> None:
        if not self.ended:
            super().stop()
            self._socket.commands.worked(self._name, self)
