"""Reads that have to wait for a disk: whoever lacks something waits here until it is in memory, then asks again.

    asks ─ NotCached(job) ─► Asking.wait ─► pool: job.run ─► Core.read_done ─► its owner's `again` ─► asks ─► answered
                                  │                                                    └─ NotCached(another job) ─┐
                                  ◄───────────────────────────────────────────────────────────────────────────────┘

Whoever wants the same shares one read. What was read stays with all who asked for it until they are answered
(`Asking.refresh` puts it back before they ask again), so that everybody gets on, however little memory there is and
whoever else reads. What nobody waits for any more is not begun.

Who has what it lacked goes on in a slice of time between two looks at the sockets. So does what is large to answer
though it is in memory, while others come first (`Readers.busy`): a page of 8 MiB holds the loop for two milliseconds,
and many may ask for one at the same time. Small answers are given at once, however many wait for large ones. Which they
are is known before anything is read (`Core.weighs`).

There are two pools: reads of the cold tier have threads of their own, so that one which hangs takes none from the
disk's. Who waits for the cold tier waits for at most TOPICS_COLD_DEADLINE_MS, then gets 503 `cold_unavailable`; the
read goes on, for those who come later. A local disk has no deadline, as for everything else that is asked of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from engine.core import Ticket
from engine.core.catching import PATIENCE_MS, CatchUp
from engine.errors import TopicsError, cold_unavailable
from engine.fs import Fs
from engine.topic.history import NotCached, ReadJob
from engine.topic.page import RECORD_FIXED
from engine.types import PageRequest
from topics_daemon.exchange import Exchange
from topics_daemon.worker import Worker

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester
    from topics_daemon.head import Head

THREADS: Final = 4
"""Reads of each pool that run at the same time: what a disk answers at once, and few stacks."""
READS_MAX: Final = 10_000
"""Reads that one answer may need one after the other (a page examines at most 100,000 records, 256 at a time): more
than that is a bug, which must not turn into a loop."""
SLICE_S: Final = 0.002
"""How long those who wait are answered before the loop sees to its sockets again."""
TAKING_BYTES_MAX: Final = 1024 * 1024
"""While so much of large answers is still to be sent the next one waits: each round of the loop sends on with all of
them, a megabyte or two of each. And the memory of one that is sent serves for the next, so the kernel has less to do.
"""
TAKEN_WITHIN_S: Final = 0.01
"""Who has not taken an answer after this is slow, and keeps nobody waiting. It is half of that after one that has taken
nothing, a third after two…"""
IDLE_MAX: Final = 15
"""…and a sixteenth from so many on: there are clients that never take what they ask for."""
LOOK_AGAIN_S: Final = 0.002
"""When it is looked at again who has taken something, though nobody has taken all."""
LARGE_BYTES: Final = 64 * 1024
"""An answer that takes no more to build comes at once: some 20 µs."""
BUILT_BYTES_MAX: Final = 4 * 1024 * 1024
"""What large answers may bring at once between two looks at the sockets, and one more: half a millisecond."""


class Owner(Protocol):
    """Whoever asks the engine for something."""

    def again(self) -> None:
        """What was lacking is there: ask again."""
        ...

    def fail(self, error: TopicsError) -> None:
        """It cannot be had."""
        ...


class _Turn(ReadJob):
    """What a request waits for that lacks nothing but its turn."""

    __slots__ = ()

    def __init__(self) -> None:
        self.asked = []


TURN: Final = _Turn()


class Asking:
    """One owner's reads, from the first that it waits for until it is answered.

    It knows its owner only until then: two that know each other stay in memory until garbage is looked for, and so does
    the answer, which may be a megabyte each time.
    """

    __slots__ = ("_error", "_have", "_in_line", "_owner", "_read", "_readers", "_timer")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._owner: Owner | None = None
        self._have: list[ReadJob] = []
        self._read: _Read | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: TopicsError | None = None
        self._in_line = False

    @property
    def waits(self) -> bool:
        """Whether there is no use in asking again yet."""
        return self._in_line or self._read is not None

    def wait(self, job: ReadJob, owner: Owner) -> None:
        """Call the owner's `again` (or `fail`) when the job is done, or when it is its turn."""
        assert not self.waits, "who waits does not ask"
        self._owner = owner
        if job is TURN:
            self._in_line = True
            self._readers.line_up(self)
            return
        if len(self._have) >= READS_MAX:
            raise RuntimeError("an answer does not get on, whatever is read for it")
        if job.cold and self._timer is None:
            self._timer = self._readers.daemon.loop.call_later(self._readers.cold_deadline_s, self._expire)
        self._read = self._readers.join(self, job)

    def refresh(self) -> None:
        """Just before asking again: put back into memory what others have driven out since."""
        for job in self._have:
            self._readers.daemon.engine.read_again(job)

    def forget(self) -> None:
        """What was read so far is not needed for what is asked next."""
        self._have.clear()

    def done(self) -> None:
        """The owner is answered, or gone: let go of everything."""
        self._owner = None
        self.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._read is not None:
            read, self._read = self._read, None
            self._readers.leave(self, read)
        elif self._in_line:
            self._in_line = False
            self._readers.step_out(self)

    def arrived(self, job: ReadJob, error: TopicsError | None) -> None:
        """The read that it waits for is done, or cannot be; `resume` follows."""
        self._have.append(job)
        self._error = error

    def resume(self) -> None:
        """Go on, now that the loop has time for it."""
        self._read, self._in_line = None, False
        error, self._error = self._error, None
        owner = self._owner
        assert owner is not None, "who waits no longer is not called"
        if error is not None:
            self._fail(owner, error)
            return
        try:
            owner.again()
        except Exception as bug:  # noqa: BLE001  # logged under an id; costs one answer
            self._fail(owner, self._readers.daemon.internal_error(bug))

    def _fail(self, owner: Owner, error: TopicsError) -> None:
        """End it with an error."""
        self.done()
        owner.fail(error)

    def _expire(self) -> None:
        self._timer = None
        assert self._owner is not None, "who is done has no deadline"
        self._fail(self._owner, cold_unavailable())


class _Read:
    """One job, and all who wait for it."""

    __slots__ = ("asking", "began", "job", "key")

    def __init__(self, job: ReadJob, key: object, began: float) -> None:
        self.job = job
        self.key = key
        self.began = began
        self.asking: dict[Asking, None] = {}

    def run(self, fs: Fs) -> None:
        self.job.run(fs)


class _Taker:
    """Who got a large answer."""

    __slots__ = ("at_s", "first", "whose")

    def __init__(self, whose: Requester, at_s: float) -> None:
        self.whose = whose
        self.at_s = at_s
        self.first = 0
        """What of it waited at the first look, or 0."""

    def look(self) -> int:
        """What of it waits to be taken, or −1 if nobody is there to take it."""
        left = self.whose.unsent() if self.whose.descriptor() >= 0 else -1
        self.first = self.first or max(left, 0)
        return left


class Readers:
    """The reads that are on their way."""

    def __init__(self, daemon: Daemon, fs: Fs, cold_fs: Fs) -> None:
        """`cold_fs` is what the reads of the cold tier go through."""
        self.daemon = daemon
        self.cold_deadline_s = daemon.config["cold_deadline_ms"] / 1000
        """How long one request, or one page of a stream, waits for the cold tier."""
        self.cold_reads = 0
        self.cold_failures = 0
        self.cold_seconds = 0.0
        """Of reads of the cold tier that are done: how many, how many of them failed, and how long all took."""
        self._local = Worker("read", daemon.loop, fs, self._done, self._failed, THREADS)
        self._cold = Worker("read-cold", daemon.loop, cold_fs, self._done, self._failed, THREADS)
        self._reads: dict[object, _Read] = {}
        self._ready: dict[Asking, None] = {}
        """Those who can go on, in the order in which their reads were done."""
        self._line: dict[Asking, None] = {}
        """Those who wait for their turn with what is large to answer."""
        self._was_in_line = False
        """Whether the last one who went on was in the line: both have their turns."""
        self._resume_due = self._resuming = False
        self._rest: asyncio.TimerHandle | None = None
        """Until when the line rests, for others take what they got."""
        self._built_bytes = 0
        """What large answers brought since the last look at the sockets."""
        self._taking: list[_Taker] = []
        """Who got a large answer of late."""
        self._idle = 0
        """How many of them have taken nothing in time, halved by each that has taken all."""

    def __len__(self) -> int:
        """How many reads are on their way."""
        return len(self._reads)

    def join(self, asking: Asking, job: ReadJob) -> _Read:
        """Wait for a job, together with whoever wants the same."""
        key = job.key
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = _Read(job, key, self.daemon.loop.time())
            (self._cold if job.cold else self._local).submit(read)
        read.asking[asking] = None
        return read

    @property
    def busy(self) -> bool:
        """Whether others come before what is large to answer; never for who has its turn."""
        if self._resuming:
            return False
        return self._built_bytes > BUILT_BYTES_MAX or bool(self._line) or (bool(self._taking) and self._is_crowded())

    def _is_crowded(self) -> bool:
        """Whether as much as may be is on its way to readers that take it as it comes."""
        since_s = self.daemon.loop.time() - TAKEN_WITHIN_S / (1 + self._idle)
        waiting, waits_for = 0, []
        for taker in self._taking:
            left = taker.look()
            if left > 0 and taker.at_s > since_s:
                waiting += left
                waits_for.append(taker)
            elif left > 0:
                self._idle = min(self._idle + (left == taker.first), IDLE_MAX)
            elif not left and taker.first:
                self._idle //= 2
        self._taking = waits_for
        return waiting > TAKING_BYTES_MAX

    def takes_turns(self, requests: Iterable[tuple[str, PageRequest]]) -> bool:
        """Whether pages wait for their turn: others come before what is large, and together they are."""
        if not self.busy:
            return False
        weighs = self.daemon.engine.weighs
        left = LARGE_BYTES
        for name, request in requests:
            left -= weighs(name, request, left) + RECORD_FIXED
            if left < 0:
                return True
        return False

    def built(self, whose: Requester, answer: bytes, scanned: int) -> None:
        """An answer was built, for which so many records were examined."""
        cost = len(answer) + scanned * RECORD_FIXED
        if cost > LARGE_BYTES:
            if not self._built_bytes:
                self.daemon.loop.call_soon(self._look)
            self._built_bytes += cost
            self._taking.append(_Taker(whose, self.daemon.loop.time()))

    def taken(self) -> None:
        """Somebody has taken an answer to its end, or never will: whoever waited for that may go on."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
            self._resume_due = False
            self._resume_soon()

    def _look(self) -> None:
        """The sockets are looked at next."""
        self._built_bytes = 0

    def line_up(self, asking: Asking) -> None:
        """Let somebody go on when it is its turn."""
        self._line[asking] = None
        self._resume_soon()

    def step_out(self, asking: Asking) -> None:
        """It waits no longer."""
        self._line.pop(asking, None)

    def leave(self, asking: Asking, read: _Read) -> None:
        """Wait no longer; what nobody waits for is not begun."""
        read.asking.pop(asking, None)
        self._ready.pop(asking, None)
        if not read.asking and (self._cold if read.job.cold else self._local).withdraw(read):
            del self._reads[read.key]

    def stop(self, timeout_s: float) -> None:
        """End the threads; what hangs in a disk is left there, for a read changes nothing."""
        self._local.stop(timeout_s)
        self._cold.stop(timeout_s)

    def _done(self, read: _Read, error: OSError | None) -> None:
        """A job is back from its thread."""
        daemon = self.daemon
        if read.job.cold:
            self.cold_reads += 1
            self.cold_failures += error is not None
            self.cold_seconds += daemon.loop.time() - read.began
        if error is not None:
            daemon.log.error("a segment cannot be read", error=error)
        try:
            ticket = daemon.engine.read_done(read.job, error)
        except Exception as bug:  # noqa: BLE001  # logged under an id, which those who asked get
            self._failed(read, bug)
            return
        # Where damage was found, its records become a gap first, which takes a turn of the engine.
        daemon.follow(ticket, partial(self._settled, read))

    def _failed(self, read: _Read, bug: BaseException) -> None:
        """A bug in a read costs the answers that need it, and no others."""
        self._wake(read, self.daemon.internal_error(bug))

    def _settled(self, read: _Read, ticket: Ticket[Any]) -> None:
        self._wake(read, ticket.error)

    def _wake(self, read: _Read, error: TopicsError | None) -> None:
        del self._reads[read.key]
        for asking in read.asking:
            asking.arrived(read.job, error)
            self._ready[asking] = None
        read.asking.clear()
        self._resume_soon()

    def _resume_soon(self) -> None:
        if not self._resume_due and (self._ready or self._line):
            # Not here: this may be inside of the engine's turn.
            self._resume_due = True
            self.daemon.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Let those go on whose reads are done, and whose turn it is, for one slice."""
        self._resume_due, self._rest = False, None
        loop = self.daemon.loop
        until = loop.time() + SLICE_S
        self._resuming = True
        try:
            while (asking := self._next()) is not None:
                asking.resume()
                if self._built_bytes > BUILT_BYTES_MAX or loop.time() > until:
                    break
        finally:
            self._resuming = False
        if not self._ready and self._line and self._is_crowded():
            self._resume_due = True
            self._rest = loop.call_later(LOOK_AGAIN_S, self._resume)
        else:
            self._resume_soon()

    def _next(self) -> Asking | None:
        """Who goes on next."""
        line = self._ready
        if self._line and (not line or not self._was_in_line) and not self._is_crowded():
            line = self._line
        self._was_in_line = line is self._line
        asking = next(iter(line), None)
        if asking is not None:
            del line[asking]
        return asking


class Late(Exchange):
    """A request that waits for a read: its handler, which has done nothing yet, is called again after it."""

    __slots__ = ("_asking", "_body", "_catching", "_timer")

    takes_long = True

    def __init__(
        self, daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int, job: ReadJob
    ) -> None:
        super().__init__(connection, head, started_ns)
        # What the client sends after it must see what it does, as if there were no wait.
        connection.only_pipelined = False
        self._body = body
        self._asking = Asking(daemon.readers)
        self._catching: CatchUp | None = None
        self._timer: asyncio.TimerHandle | None = None
        if isinstance(job, CatchUp):
            # Not the disk: copies that routers are about to make.
            self._catching = job
            self._timer = daemon.loop.call_later(PATIENCE_MS / 1000, self._caught_up)
            job.ticket.on_done = self._soon
            daemon.wake()
        else:
            self._asking.wait(job, self)

    def _soon(self, _: object) -> None:
        # Not here: this may be inside of the engine's turn.
        self.connection.daemon.loop.call_soon(self._caught_up)

    def _caught_up(self) -> None:
        """The copies are there, or have been waited for long enough."""
        job, self._catching = self._catching, None
        if job is not None:
            job.ticket.complete(True)
            if self._timer is not None:
                self._timer.cancel()
            self.again()

    def again(self) -> None:
        """Call the handler again: it answers, lacks something else, or leaves the answer to an exchange of its own."""
        daemon = self.connection.daemon
        was, daemon.drained = daemon.drained, True
        try:
            self._again()
        except Exception as error:  # noqa: BLE001  # a bug costs one answer, not the daemon
            self._asking.done()
            self.fail(daemon.internal_error(error))
        finally:
            daemon.drained = was

    def _again(self) -> None:
        connection, head = self.connection, self.head
        assert head is not None
        assert head.route is not None
        self._asking.refresh()
        try:
            # The keys may be others by now (SIGHUP), and the handler takes it that they allow what the head asks for.
            head.caller.require(head.route.scope)
            if head.name:
                head.caller.check(head.name)
            answer = head.route.handler(connection.daemon, connection, head, self._body, self.started_ns)
        except NotCached as lack:
            self._asking.wait(lack.job, self)
            return
        except TopicsError as error:
            self._asking.done()
            self.fail(error)
            return
        self._asking.done()
        if answer is not None:
            self.finish(answer)
            return
        self.abandon()
        connection.pending.remove(self)

    def gone(self) -> None:
        if self._catching is not None:
            job, self._catching = self._catching, None
            job.ticket.complete(True)
        if self._timer is not None:
            self._timer.cancel()
        self._asking.done()
        self.abandon()
