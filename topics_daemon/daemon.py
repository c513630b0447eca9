"""The daemon while it runs: everything that connections and routes share, and the drive of the engine.

One loop iteration is one tick. Requests that arrive in it are submitted to the engine as they are read; `wake` has
asked for one `_turn` after all of them, which writes what they staged with one system call, completes their tickets
(and so their answers), starts the sync that is due in its own thread, and wakes who waits for new records.

What is not here: how a process starts and stops (`lifecycle`), sockets (`listen`), the protocol (`http1`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from engine.core import Core, Ticket
from engine.delivery import Governor
from engine.errors import Code, TopicsError, Unavailable
from engine.fs import Fs
from engine.queue.commands import Claim
from engine.segment.tiers import TieredFs
from engine.topic.history import ReadJob
from engine.types import PageRequest
from topics_daemon.auth import Caller, Gate
from topics_daemon.config import Config
from topics_daemon.deadlines import Deadlines
from topics_daemon.exchange import Joins, Link, Requester
from topics_daemon.exports import Exports
from topics_daemon.guard import Hosts
from topics_daemon.guard import check as check_guard
from topics_daemon.handovers import Handovers
from topics_daemon.head import Bounds, Head
from topics_daemon.keeping import Keeping
from topics_daemon.log import Log, describe
from topics_daemon.metrics import Metrics
from topics_daemon.moving import Moving
from topics_daemon.presence import Refusals
from topics_daemon.pressure import Pressure
from topics_daemon.pump import Pump
from topics_daemon.readers import Late, Readers
from topics_daemon.routes.table import ROUTES, Route, assign
from topics_daemon.routing import Routing
from topics_daemon.sessions import Sessions
from topics_daemon.shares import Shares
from topics_daemon.telling import Telling
from topics_daemon.untaken import Untaken
from topics_daemon.window import Return, Window
from topics_daemon.worker import Worker
from topics_objects.place import parse_prices, tier_at

T = TypeVar("T")

HEADS_MAX: Final = 2048
"""Distinct heads that a door remembers; the oldest is forgotten first."""
HEAD_BYTES_KEPT_MAX: Final = 2048
"""Longer heads are not remembered: they are rarely sent twice, and memory is bounded by the product."""
TURNS_PER_CHORE: Final = 8
"""Turns between two looks for background work, which prepares space well ahead; who waits for space looks at once."""
READERS_STOP_S: Final = 0.5
"""How long a stop waits for reads that nobody is going to get an answer from."""
TICK_MS_MAX: Final = 500
"""Longest time between two looks at the deadlines."""


class Door:
    """A listener's side of a request: whose `Host` it accepts, and the heads that it has learned."""

    __slots__ = ("_daemon", "_hosts", "_trusted", "heads", "inner")

    def __init__(
        self, daemon: Daemon, hosts: Hosts | None, *, trusted: bool = False, inner: Door | None = None
    ) -> None:
        self._daemon = daemon
        self._hosts = hosts
        self._trusted = trusted
        """Whether all who come through it are the daemon's own user, and need no key."""
        self.inner = inner
        """The door for connections of the daemon's own user, where it is another one."""
        self.heads: dict[bytes, Head] = {}
        daemon.doors.append(self)

    def learn(self, raw: bytes, head: Head) -> Head:
        """Judge and route a head that was just parsed, and remember it (but not for strangers: they could fill it)."""
        self.judge(head)
        known = head.refusal is None or head.refusal.code is not Code.UNAUTHORIZED
        if known and not head.unique and len(raw) <= HEAD_BYTES_KEPT_MAX:
            if len(self.heads) >= HEADS_MAX:
                del self.heads[next(iter(self.heads))]
            self.heads[raw] = head
        return head

    def judge(self, head: Head) -> None:
        """Give a head its route and caller, or the refusal of every request with it."""
        daemon = self._daemon
        head.body_bytes_max = daemon.limits.body_bytes  # of what is refused, too
        try:
            check_guard(head, self._hosts)
            assign(head, daemon.gate, self._trusted, daemon.limits)
        except TopicsError as error:
            head.refusal = error.anew()
        head.tally = daemon.metrics.tally(head.route)


class Daemon:
    """Shared state of one running daemon; owned by the loop's thread."""

    drained = False
    """Whether the handler that runs has waited for routers already."""
    _admitted = 0
    """How many connections there are from all addresses, those left out that were turned away."""
    turned_away = 0
    """Connections beyond a cap that are still open."""
    handovers: Handovers
    """For handlers; they only run once there are any."""

    def __init__(self, config: Config, log: Log, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.log = log
        self.loop = loop
        self.limits = config.limits()
        self.gate = Gate(config.keys, closed=config.wants_keys, probe_auth=config["probe_auth"])
        self.doors: list[Door] = []
        self.metrics = Metrics()
        self.telling = Telling(log, self.metrics)
        self.metrics.name_routes(ROUTES)
        self.touch = self.metrics.reads.add
        """Told of each topic that is read."""
        self.started_s = time.monotonic()
        self.core: Core | None = None
        self.engine: Core = cast(Core, None)
        """The same, for handlers: they only run once there is one."""
        self.serving = False
        """Whether requests are taken: recovered, and not stopping."""
        self.draining = False
        self.progress = 0.0
        """How far recovery is, 0 … 1."""
        self.connections: set[Link] = set()
        self._deadlines = Deadlines(loop, self.connections)
        self.peers: dict[str, int] = {}
        """How many of them there are from each address."""
        self._admitted_max: int = config["max_connections"]
        self._peer_max: int = config["max_connections_per_peer"] or sys.maxsize
        self.http2_requests = 0
        """Requests of all connections of HTTP/2 that are open."""
        self.unsettled: list[Joins] = []
        """Who has several answers to join at the end of the tick."""
        self.coarse_s = loop.time()
        """The loop's time as of the last look at the deadlines."""
        self.read_memo: dict[bytes, tuple[PageRequest, int]] = {}
        self.claim_memo: dict[bytes, tuple[Claim, int]] = {}
        """Bodies of reads and of claims, and what they ask for (`routes.diff`, `routes.queue`)."""
        self.inflight_max: int = config["max_inflight_per_key"] or sys.maxsize
        self.buffered_bytes = 0
        self.buffer_bytes_max: int = config["max_request_buffer_bytes"]
        self.head_bounds = Bounds(config["max_header_bytes"], config["max_url_bytes"], config["max_headers"])
        self.timeouts = config.timeouts()
        self.governor = Governor()
        self.pump = Pump(self)
        self.readers: Readers = cast(Readers, None)
        """For handlers too."""
        self.sessions = Sessions(self)
        self.shares, self.refusals = Shares(self), Refusals(loop)
        self.untaken = Untaken(log)
        self.turn_due = self._turning = self._reads_due = False
        self._window = Window(loop, self._turn)
        self._return = Return(loop, self._look_at_syncs)
        self.pressure = Pressure(self, self._window)
        self._turns_to_chore, self._chore_runs = 0, False
        self._syncer: Worker | None = None
        self._filler: Worker | None = None
        self._keeping: Keeping | None = None
        self._routing: Routing | None = None
        self.exports: Exports = cast(Exports, None)
        """For handlers too."""
        self._moving: Moving | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._claims: asyncio.TimerHandle | None = None
        self._claims_due: int | None = None
        least = min(self.timeouts.header_s, self.timeouts.body_s, self.timeouts.idle_s, self.timeouts.stall_s)
        self._tick_s = min(TICK_MS_MAX, max(20, int(least * 250))) / 1000
        self._tick_due_s = loop.time() + self._tick_s
        self._ticker = loop.call_later(self._tick_s, self._tick)

    # -- what requests need ----------------------------------------------------------------------------------------

    def check_serving(self, route: Route, caller: Caller) -> None:
        """Raise why this request is not taken now; probes and metrics always are."""
        if route.probe or route.early:
            return
        if self.draining:
            raise Unavailable(Code.SHUTTING_DOWN, "the daemon is stopping")
        if not self.serving:
            raise self.not_ready()
        if caller.inflight >= self.inflight_max:
            raise Unavailable(
                Code.THROTTLED,
                "too many requests are in flight; try again",
                {"limit": "max_inflight_per_key", "max": self.inflight_max},
            )

    def not_ready(self) -> Unavailable:
        """The 503 of a daemon that is still recovering."""
        return Unavailable(
            Code.NOT_READY, "the daemon is replaying its log", {"replay_progress": round(self.progress, 4)}
        )

    def admit(self, peer: str) -> TopicsError | None:
        """Count a new connection from an address; returns why it is turned away, or None. `dismiss` is its end."""
        there = self.peers.get(peer, 0)
        if self._admitted < self._admitted_max and there < self._peer_max:
            self.peers[peer] = there + 1
            self._admitted += 1
            return None
        limit, maximum = "max_connections", self._admitted_max
        if self._admitted < maximum:
            limit, maximum = "max_connections_per_peer", self._peer_max
        self.turned_away += 1
        self.log.warning("connection refused", limit=limit, max=maximum, peer=peer)
        return Unavailable(Code.THROTTLED, "too many connections; try again", {"limit": limit, "max": maximum})

    def dismiss(self, connection: Link, peer: str) -> None:
        """A connection from an address has ended; "" stands for one that was turned away."""
        self.connections.discard(connection)
        self.untaken.forget(connection)
        if not peer:
            self.turned_away -= 1
            return
        self._admitted -= 1
        left = self.peers[peer] - 1
        if left:
            self.peers[peer] = left
        else:
            del self.peers[peer]

    def internal_error(self, error: BaseException, **detail: str) -> TopicsError:
        """Log a bug under an id, and make the 500 that carries nothing but this id, and `detail`."""
        incident = secrets.token_hex(8)
        self.log.error("internal error", id=incident, **describe(error))
        said = "a bug in the daemon; its log has more under this id"
        return Unavailable(Code.INTERNAL, said, {"id": incident, **detail})

    def change_keys(self, config: Config) -> int:
        """Take other keys over: judge anew what was judged, and end what is open on the word of a key that is gone.

        Returns how many keys are gone. Requests that the engine has already taken get their answers.
        """
        gone = self.gate.change(config.keys)
        for door in self.doors:
            door.heads.clear()
        for connection in list(self.connections):
            connection.judge_again()
        self.pump.judge_again()
        return gone

    # -- the drive -------------------------------------------------------------------------------------------------

    def adopt(self, core: Core, fs: Fs) -> None:
        """Take over a recovered engine, and begin to serve."""
        self.core = self.engine = core
        self.metrics.adopt(core)
        self._syncer = Worker("sync", self.loop, fs, self._sync_done, self.job_bug)
        self._filler = Worker("chores", self.loop, fs, self._chore_done, self.job_bug)
        cold = self.config.cold_place
        tiered = TieredFs(fs, tier_at(cold, core.store.store_id)) if cold else None
        self.cold_requests = None if tiered is None else tiered.tier.requests
        self.cold_prices = parse_prices(self.config["cold_prices"])
        self.readers = Readers(self, fs, tiered or fs)
        self.untaken.on_taken = self.readers.taken
        self._keeping = Keeping(self, core, fs)
        self._routing = Routing(self, core)
        self.exports = Exports(self, core, os.path.abspath(self.config["data_dir"]))
        self._moving = Moving(self, core, tiered) if tiered is not None else None
        self.handovers = Handovers(self, core, fs, tiered)
        self.serving = True
        self.wake()

    def follow(self, ticket: Ticket[T], on_done: Callable[[Ticket[T]], None]) -> None:
        """Call `on_done` when the ticket completes, perhaps at once; and see to it that it will."""
        if ticket.done:
            on_done(ticket)
        else:
            ticket.on_done = on_done
        self.wake()

    def answer_late(self, connection: Requester, head: Head, body: bytes, started_ns: int, job: ReadJob) -> None:
        """A request needs a read that has to be waited for: answer it after that."""
        Late(self, connection, head, body, started_ns, job)

    def wake(self) -> None:
        """Ask for a turn after everything that this loop iteration brings."""
        if not self.turn_due:
            self.turn_due = True
            if self._window.length_s:
                self._window.open()
            else:
                self.loop.call_soon(self._turn)
        elif self._window.is_open:
            self._window.join()

    def join(self, whose: Joins) -> None:
        """Let go at the end of this tick what somebody has brought together until then."""
        self.unsettled.append(whose)
        if not self._turning:
            self.wake()

    def drain(self, *names: str) -> None:
        """These topics are about to be shown: routers bring in first what their sources have acked. Raises `Behind`."""
        if not self.drained and self.engine.catalog.routers.by_name:
            self.engine.catching.check(names)

    def reading(self) -> None:
        """Something is about to be read: see to it that what reads before it brought into memory is let go again."""
        if not self._reads_due and self.engine.catalog.cache.over:
            self._reads_due = True
            self.loop.call_soon(self._end_of_reads)

    def _end_of_reads(self) -> None:
        """What a tick of reads alone asks for; a turn does it as well, and much that reads do not need."""
        self._reads_due = False
        if self.core is None:
            return
        cache = self.core.catalog.cache
        if cache.history.damaged or cache.volatile_held:
            self.wake()  # the log has to be told what is lost
            return
        try:
            self.core.end_of_reads()
        except Exception as error:  # noqa: BLE001  # whatever it is, the process must end
            self.bug(error)

    def _turn(self) -> None:
        self.turn_due = False
        self.shares.renew()
        core = self.core
        if core is None or self._syncer is None:
            return
        try:
            self._turning = True
            core.turn()
            self._turning = False
            self._go_on(core)
        except Exception as error:  # noqa: BLE001  # whatever it is, the process must end
            self.bug(error)

    def moved(self) -> None:
        """The engine has moved in between two turns."""
        if self.core is not None and self._syncer is not None:
            self._go_on(self.core)

    def _go_on(self, core: Core) -> None:
        """After the engine has moved: start what is due, plan when to look again, and tell who waits."""
        self._start_jobs(core)
        if self._routing is not None and (core.catching.waiting or core.forwarding.line):
            self._routing.look()
        if self._pulse is None:
            self._plan_pulse(core)
        due_ms = core.queues.due_ms if core.queues.waiting else None
        if due_ms is not None and (self._claims_due is None or due_ms < self._claims_due):
            self._plan_claims(core, due_ms)
        fresh = core.fresh
        if fresh:
            self.metrics.touched.update(fresh)
            self.pump.wake(fresh)
            fresh.clear()
        if core.commit.synced:
            self.pump.wake_strict(core.commit.synced)
            core.commit.synced.clear()
        self._flush()
        self._turning = True
        self.pump.deliver()
        self._turning = False
        self._flush()  # streams of HTTP/2 join what they write

    def _flush(self) -> None:
        """Let go what was joined in this tick."""
        if self.unsettled:
            unsettled, self.unsettled = self.unsettled, []
            for connection in unsettled:
                connection.flush()

    def _plan_pulse(self, core: Core) -> None:
        """One timer for the next background sync; marks and deadlines come with the coarse timer."""
        due_ms = core.sync_due_ms
        if due_ms is not None:
            self._pulse = self.loop.call_later(max(due_ms - core.commit.now_ms, 1) / 1000, self._beat)

    def _plan_claims(self, core: Core, due_ms: int) -> None:
        """One timer for claims that wait: for a lease that runs out, or for their own end.

        When that is done before, the timer stays: it looks, and is planned anew. With a lease a job and a job a
        millisecond that is far cheaper than to move it each time.
        """
        if self._claims is not None:
            self._claims.cancel()
        self._claims_due = due_ms
        self._claims = self.loop.call_later(max(due_ms - core.now(), 1) / 1000, self._look_at_claims)

    def _look_at_claims(self) -> None:
        self._claims = self._claims_due = None
        self._advance()
        self.wake()

    def _start_jobs(self, core: Core) -> None:
        """Hand out the syncs and the chore that are due."""
        commit = core.commit
        while not self._return.is_open and (job := commit.sync_job(commit.now_ms)) is not None:
            assert self._syncer is not None
            self.metrics.sync_began(job.shard)
            self._syncer.submit(job)
        self._turns_to_chore -= 1
        if (self._turns_to_chore <= 0 or core.parking.entries) and not self._chore_runs:
            self._turns_to_chore = TURNS_PER_CHORE
            if (chore := core.chore()) is not None:
                assert self._filler is not None
                self._chore_runs = True
                self._filler.submit(chore)

    def _sync_done(self, job: Any, error: OSError | None) -> None:
        assert self.core is not None
        self.metrics.sync_done(job.shard)
        if error is not None:
            self.log.error("sync failed", shard=job.shard, error=error)
        try:
            self._turning = self._syncer is not None
            self.core.sync_done(job, error)
            self._turning = False
            if self.core.commit.waits(job.shard):
                self._return.open()
            if self.core.parking:
                self.wake()
            if self._syncer is not None:
                self._go_on(self.core)
            self.look_at_checkpoints()
        except Exception as bug:  # noqa: BLE001  # whatever it is, the process must end
            self.bug(bug)

    def _look_at_syncs(self) -> None:
        """Who was answered by the last sync may have come back: begin the next one, unless a turn is about to."""
        if not self.turn_due or self._window.is_open:
            self.moved()

    def _chore_done(self, chore: Any, error: OSError | None) -> None:
        assert self.core is not None
        self._chore_runs = False
        self._turns_to_chore = 0
        if error is not None:
            self.telling.unprepared(error)
        try:
            self.core.chore_done(chore, error)
            self.look_at_checkpoints()
        except Exception as bug:  # noqa: BLE001  # whatever it is, the process must end
            self.bug(bug)
        self.wake()

    def wake_for_log(self) -> None:
        """Somebody may wait for a sync, or for a log file."""
        self._turns_to_chore = 0
        self.wake()

    def look_at_checkpoints(self) -> None:
        """See whether one is due, or can go on."""
        if self._keeping is not None:
            self._keeping.look()
        if self._moving is not None:
            self._moving.look()

    def _beat(self) -> None:
        """A background sync is due."""
        self._pulse = None
        self._turns_to_chore = 0
        self._advance()
        if not self.turn_due:
            self._turn()

    def _advance(self) -> None:
        if self.core is not None:
            try:
                self.core.advance()
            except Exception as error:  # noqa: BLE001  # whatever it is, the process must end
                self.bug(error)

    def bug(self, error: BaseException) -> None:
        """The engine's state can no longer be trusted: end at once, recovery knows what was acked (faults.md F15)."""
        self.log.error("ended by an internal error of the engine", code=74, **describe(error))
        self.die(74)

    def job_bug(self, _job: Any, error: BaseException) -> None:
        self.bug(error)

    die: Any = sys.exit

    def _tick(self) -> None:
        """The coarse timer: deadlines of connections, heartbeats, sessions, engine time."""
        now = self.coarse_s = self.loop.time()
        self.metrics.tick(max(0.0, now - self._tick_due_s))
        self._deadlines.look()
        self.shares.look()
        self.pump.beat(now)
        self.sessions.collect(now)
        if self.core is not None:
            self._turns_to_chore = 0
            self._advance()
            self.telling.look(self.core)
            self.exports.look()
            self.handovers.look()
            self.look_at_checkpoints()
            self.wake()
        self._tick_due_s = self.loop.time() + self._tick_s
        self._ticker = self.loop.call_later(self._tick_s, self._tick)

    def halt(self, timeout_s: float) -> list[str]:
        """Stop the timers and threads; what they did is taken back first. Names the threads that hang in a disk."""
        self._ticker.cancel()
        self.pressure.stop()
        if self._pulse is not None:
            self._pulse.cancel()
        if self._claims is not None:
            self._claims.cancel()
        if self.core is not None:
            self.readers.stop(READERS_STOP_S)
            self.handovers.stop()
        if self._moving is not None:
            self._moving.stop()
            self._moving = None
        workers = (self._keeping, self._syncer, self._filler)
        # What they bring back begins nothing new: nobody would run it.
        self._keeping = self._syncer = self._filler = None
        return [worker.name for worker in workers if worker is not None and not worker.stop(timeout_s)]
