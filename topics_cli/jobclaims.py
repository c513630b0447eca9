"""Jobs that are asked for: claims, one at a time, each for as many jobs as there is room.

Their leases hold until their deadlines, whatever becomes of us. `drain` gives a claim that waits up, in such a way that
what the daemon had given by then still arrives.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from topics_cli.claimed import claimed_lines
from topics_cli.client import Call, topic_path
from topics_cli.commands.claim import claim_body
from topics_cli.cut import number
from topics_cli.launch import Job

if TYPE_CHECKING:
    from topics_cli.session import Session

CLAIM_MAX: Final = 1000
HANG_UP_S: Final = 1.0
"""How long a daemon may take to notice that a waiting claim was given up."""


class JobClaims:
    """One claim after the other."""

    is_midway = False

    def __init__(self, session: Session, queue: str, node: str, values: dict[str, Any], wait_ms: int) -> None:
        self._session = session
        self._queue = queue
        self._node = node
        self._values = values
        self._wait_ms = wait_ms
        self._channel = session.client.channel()
        self._call: Call | None = None
        self._hang_up_at = 0.0
        self._drains = False
        self.answered = 0
        """Claims that have been answered."""
        self.ready: int | None = None
        """Jobs that were left in the queue."""
        self.was_lost = False
        """Whether the connection broke since this was last looked at."""

    @property
    def is_asking(self) -> bool:
        """Whether a claim is in flight."""
        return self._call is not None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can come."""
        return self._drains and self._call is None

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for before the next step."""
        return [] if self._call is None else self._call.watch

    @property
    def timeout_s(self) -> float:
        """How long to wait at most before the next step."""
        assert self._call is not None, "only who asks waits"
        left_s = self._call.timeout_s
        return min(left_s, max(self._hang_up_at - time.monotonic(), 0.0)) if self._hang_up_at else left_s

    def ask(self, room: int) -> None:
        """Claim, unless a claim is in flight."""
        if self._call is None and not self._drains:
            body = claim_body(self._values, self._node, min(room, CLAIM_MAX), self._wait_ms)
            client = self._session.client
            request = client.request("POST", topic_path(self._queue) + "/claim", body, lingers_s=self._wait_ms / 1000)
            self._call = client.open(request, self._channel)

    def step(self) -> list[Job]:
        """Move on; the jobs that came. Raises `Failure`."""
        call = self._call
        if call is None or (self._drains and not self._may_bring(call)):
            return []
        answer = call.step()
        if answer is None:
            self._session.client.show_wait(call)
            return []
        self._call = None
        self.was_lost = self.was_lost or bool(call.failing_since)
        self.answered += 1
        self._session.warn(answer.body)
        self.ready = number(answer.body[answer.body.rfind(b'],"count":') :], "ready")
        return [Job(line) for line in claimed_lines(answer.body)]

    def drain(self) -> None:
        """Claim no more, and give up a claim that waits."""
        if self._drains:
            return
        self._drains = True
        self._hang_up_at = time.monotonic() + HANG_UP_S
        self._channel.hang_up()
        self._channel.reused = False  # A connection that ends now is no reason to send the claim again.

    def _may_bring(self, call: Call) -> bool:
        """Whether a claim that was given up may still bring something; else it is let go."""
        if call.in_flight and not call.failing_since and time.monotonic() <= self._hang_up_at:
            return True
        self.close()
        return False

    def finish(self) -> None:
        """We are done: nothing is waited for but what is on its way."""

    def close(self) -> None:
        """Let go."""
        self._drains = True
        self._call = None
        self._channel.close()
