"""Connections that follow scripts: the one way in which `topics bench` makes load.

A script is a generator. It yields the next request and is sent the answer; or the moment until which it waits; or a
`Stream`, an answer that comes bit by bit, and is sent each bit, and None when the stream is over. One loop (`drive`)
moves all scripts of a process, so a connection costs no thread, and the figures are of the daemon and of HTTP, not of
a scheduler of ours.

A request whose connection breaks, or that is refused with 429 or 503, is sent again until it is answered: whatever is
asked here may be asked twice. Sums and latencies go to the parent as lines of JSON, ten a second.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from topics_cli.client import Client, Request, api_error
from topics_cli.exits import NoDaemon
from topics_cli.latencies import Latencies
from topics_cli.signals import Stop
from topics_cli.wire import Answer, Channel, Lost

REPORT_S: Final = 0.1
RECONNECT_S: Final = 0.05
BUSY_S: Final = 0.05
"""Pause after a 429 or 503 that names none."""
LOST_MAX: Final = 200
"""Connections lost in a row after which a process gives up: ten seconds."""


class Stream:
    """A request whose answer is wanted as it comes; a script yields it again to hear more of it."""

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request = request


Script = Generator[Request | Stream | float, Any, None]


class Tally:
    """What was done since the last report."""

    __slots__ = ("bytes", "latencies", "lost", "records", "refused", "requests")

    def __init__(self) -> None:
        self.requests = self.records = self.bytes = self.refused = self.lost = 0
        self.latencies = Latencies()

    def done(self, begun: float, records: int, size: int) -> None:
        """Count an operation that began at `begun` (monotonic clock) and is done now."""
        self.requests += 1
        self.records += records
        self.bytes += size
        self.latencies.add(max(0, int((time.monotonic() - begun) * 1e9)))

    def values(self) -> dict[str, Any]:
        """As an object for the parent."""
        seen = self.latencies
        return {
            **{name: getattr(self, name) for name in ("requests", "records", "bytes", "refused", "lost")},
            "counts": seen.counts,
            "total": seen.total,
            "largest": seen.largest,
        }


class Reports:
    """What a process tells its parent; `more` gives members that each report has beside its sums."""

    def __init__(self, handle: int, more: Callable[[], dict[str, Any]] = dict) -> None:
        self.tally = Tally()
        self._handle = handle
        self._more = more
        self._lost = 0

    @property
    def lost(self) -> int:
        """Connections lost since the beginning."""
        return self._lost + self.tally.lost

    def tell(self) -> None:
        """Send a report, and begin the next one."""
        values = self.tally.values() | self._more()
        self._lost, self.tally = self.lost, Tally()
        line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._handle, line) :]


def moments(rate: float | None, connections: int, place: int) -> Generator[float, None, None]:
    """When each operation of a connection is due, out of so many a second of all; 0 for now, where there is no rate."""
    if not rate:
        while True:
            yield 0.0
    step = connections / rate
    due = time.monotonic() + step * place / max(1, connections)
    while True:
        yield due
        due += step


class Runner:
    """A connection and its script."""

    __slots__ = ("_lost", "_lost_max", "_reports", "_script", "_wanted", "channel", "is_done", "wake_at")

    def __init__(self, client: Client, script: Script, reports: Reports, lost_max: int = LOST_MAX) -> None:
        self.channel: Channel = client.channel()
        self._script = script
        self._reports = reports
        self._wanted: Request | Stream | None = None
        self._lost = 0
        self._lost_max = lost_max
        self.is_done = False
        self.wake_at = time.monotonic()
        """When it goes on by itself; 0 while it waits for the daemon."""

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for."""
        return [] if self.wake_at or self.is_done else self.channel.watch

    def is_due(self, ready: dict[int, int], now: float) -> bool:
        """Whether there is something to do."""
        if self.is_done:
            return False
        return now >= self.wake_at if self.wake_at else any(handle in ready for handle, _ in self.channel.watch)

    def step(self) -> None:
        """Move on; raises `Failure` when the daemon refuses what is asked, or stays away."""
        if self.wake_at:
            self.wake_at = 0.0
            if self._wanted is None:
                self._go_on(None)
            else:
                self._send()
            return
        try:
            answer = self.channel.step()
        except Lost as lost:
            self._has_lost(lost)
            return
        if isinstance(self._wanted, Stream):
            self._hear(self._wanted, answer)
        elif answer is not None:
            self._heard(answer)

    def _heard(self, answer: Answer) -> None:
        self._lost = 0
        if answer.status in (429, 503):
            self._reports.tally.refused += 1
            wait = answer.headers.get(b"retry-after", b"")
            self.wake_at = time.monotonic() + (float(wait) if wait.isdigit() else BUSY_S)
            return
        if answer.status >= 400:
            raise api_error(answer)
        self._wanted = None
        self._go_on(answer)

    def _hear(self, stream: Stream, ended: Answer | None) -> None:
        if ended is not None:
            data = ended.body if ended.status == 200 else b""
        else:
            data = self.channel.taken() if self.channel.status == 200 else b""
        if data:
            self._lost = 0
            self._go_on(data)
        if ended is not None and self._wanted is stream:
            self.channel.close()
            self._wanted = None
            self._go_on(None)

    def _go_on(self, told: Answer | bytes | None) -> None:
        before = self._wanted
        try:
            wanted = self._script.send(told)
        except StopIteration:
            self.is_done = True
            return
        if before is not None and wanted is before:
            return  # The stream goes on.
        if before is not None:
            self.channel.close()
            self._wanted = None
        if isinstance(wanted, float):
            self.wake_at = max(wanted, 1e-9)
        else:
            self._wanted = wanted
            self._send()

    def _send(self) -> None:
        assert self._wanted is not None
        request = self._wanted.request if isinstance(self._wanted, Stream) else self._wanted
        try:
            self.channel.start(request.head, request.body)
        except Lost as lost:
            self._has_lost(lost)

    def _has_lost(self, lost: Lost) -> None:
        self._reports.tally.lost += 1
        self._lost += 1
        if self._lost > self._lost_max:
            raise NoDaemon(f"the daemon is gone: {lost.why}", "its topics may still be there: topics ls")
        self.channel.close()
        if isinstance(self._wanted, Stream):
            self._wanted = None
            self._go_on(None)
        else:
            self.wake_at = time.monotonic() + RECONNECT_S


def drive(
    runners: Sequence[Runner],
    stop: Stop,
    reports: Reports,
    until: float,
    goes_on: Callable[[dict[int, int]], bool],
    watch: Sequence[tuple[int, int]] = (),
) -> None:
    """Move scripts until all are done, the time is over, a signal comes or `goes_on` says no; reports meanwhile.

    `goes_on` is told which handles, also of `watch`, are ready.
    """
    told_at = time.monotonic() + REPORT_S
    ready: dict[int, int] = {}
    try:
        while not stop.signum and any(not runner.is_done for runner in runners) and goes_on(ready):
            now = time.monotonic()
            if now >= until:
                break
            if now >= told_at:
                reports.tell()
                told_at = now + REPORT_S
            wake_at = min([told_at, until, *(runner.wake_at for runner in runners if runner.wake_at)])
            handles = [item for runner in runners for item in runner.watch]
            ready = stop.wait([*handles, *watch], max(0.0, wake_at - now))
            now = time.monotonic()
            for runner in runners:
                if runner.is_due(ready, now):
                    runner.step()
    finally:
        reports.tell()
        for runner in runners:
            runner.channel.close()
