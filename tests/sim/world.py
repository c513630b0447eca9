"""One process on one disk, driven by hand: the engine, its clients, and what they were told.

A scenario calls `append`, `put`, `drop`, `delete`, `settle`, `stop`, `kill`, `power_off` …; the world submits them,
steps the engine, and tells the oracle and the monitor what was answered. Syncs do not have to be prompt: `lag` says how
many steps lie between the begin of a sync, its work on the disk and its end, so that groups are written meanwhile.
Whoever wants to look at crashes hangs a function into `probe`; it is called after every change of the disk and after
every step of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.jobs import outcome
from engine.core.keeper import SLICE_NS
from engine.core.reads import until_read
from engine.errors import Refused, StoreError, TopicsError, Unavailable
from engine.fs import Fs
from engine.limits import EngineSettings, Limits
from engine.segment.tiers import TieredFs
from engine.types import AppendResult, ConfigChanges, Durability, Match, PageRequest, TopicPut, configured
from tests.sim.clock import ManualClock
from tests.sim.cold import Tier
from tests.sim.disk import FakeDisk
from tests.sim.media import ALL, Cut
from tests.sim.model import Append, Configure, Create, Delete, Drop, Op, Record, selected
from tests.sim.monitor import MARK, OrderMonitor
from tests.sim.oracle import Crash, Oracle, Step
from tests.sim.view import View, look

TINY = EngineSettings(
    wal_file_bytes=16 * 1024,
    wal_fill_bytes=4 * 1024,
    wal_reserve_bytes=4 * 1024,
    disk_reserve_bytes=48 * 1024,
    sync_interval_ms=2,
    quiet_ms=20,
    cache_bytes=64 * 1024,
)
"""Sizes at which rotation, filling and marks happen within a few operations."""

T = TypeVar("T")

STEPS_MAX = 400
"""Steps that an answer may take before it counts as never coming; the later ones are long, so that deadlines pass."""


class WrongError(AssertionError):
    """The engine did something that it must not do; the message says what."""


@dataclass(slots=True)
class _Work:
    """A job of a checkpoint, or of the mover, under way."""

    job: Any
    age: int = 0
    error: OSError | None = None
    ran: bool = False
    runs: bool = False
    """It is being run: whatever happens now happens between two of its calls."""


class _Intruded:
    """The file system of a job, in between whose calls clients do what `World.between` holds."""

    def __init__(self, below: Fs, world: World) -> None:
        self._below = below
        self._world = world

    def __getattr__(self, name: str) -> object:
        if self._world.between:
            self._world.between.pop(0)()
        return getattr(self._below, name)


@dataclass(slots=True)
class _Sync:
    """A sync under way."""

    job: Any
    fs: Fs
    covers: dict[str, int]
    age: int = 0
    error: OSError | None = None
    ran: bool = False


def unprobed(_world: World, _what: str) -> None:
    """Nobody looks at crashes."""


class World:
    """A store, its process and its clients."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        settings: EngineSettings = TINY,
        clock: ManualClock | None = None,
        oracle: Oracle | None = None,
        lag: int = 0,
        wrap: Callable[[Fs], Fs] = lambda fs: fs,
        limits: Limits | None = None,
    ) -> None:
        self.disk = disk if disk is not None else FakeDisk()
        self.settings = settings
        self.clock = clock if clock is not None else ManualClock()
        self.oracle = oracle if oracle is not None else Oracle()
        self.lag = lag
        self.wrap = wrap
        self.limits = limits if limits is not None else Limits()
        self.monitor = OrderMonitor(self.disk)
        self.monitor.alive = self._marks_alive
        self.probe: Callable[[World, str], None] = unprobed
        self.watched = True
        """Whether crashes are looked at now."""
        self.crash = Crash.NONE
        """How the process before this one ended."""
        self.alive: Core | None = None
        self.failures: list[TopicsError] = []
        self.tolerant = False
        """Failures are what is being tried: commands that fail are noted and passed over."""
        self._syncs: dict[int, _Sync] = {}
        self._work: _Work | None = None
        self._move: _Work | None = None
        self.tier = Tier()
        """The way to the cold tier, where the settings have one."""
        self.hangs = False
        """The tier does not answer: the job of the mover that is under way stays so."""
        self.between: list[Callable[[], object]] = []
        """What clients do while a job of a checkpoint or of the mover runs: one of them before each of its calls."""
        self.sliced = lag > 0
        """Whether a checkpoint does only one slice a step, of one topic, so that clients do something between two."""
        self._serial = 0
        self._ticks_known = True
        self._wrapped: Fs | None = None

    @property
    def core(self) -> Core:
        """The running engine."""
        assert self.alive is not None, "the process is not running"
        return self.alive

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> World:
        """Open the store; a view that the oracle does not allow is an error."""
        self.disk.on_step = self._stepped
        self.monitor.started(self.disk)
        self._syncs.clear()
        self._work = self._move = None
        self._ticks_known = True
        self._wrapped = self.wrap(self.disk)
        self.tier, self.hangs = Tier(), False
        core = self.begun(lambda fs: Core.open(fs, self.clock, self.settings, self.limits), self._wrapped, self.tier)
        self.alive = core
        if self.crash is not Crash.NONE:
            view = look(core)
            wrong = self.oracle.check(view, self.crash)
            if wrong:
                raise WrongError(f"after {self.crash.value}: " + "; ".join(wrong))
            self.oracle.settle(view, self.crash)
            self.crash = Crash.NONE
        return self

    def begun(self, make: Callable[[Fs], T], fs: Fs, tier: Tier | None = None) -> T:
        """What `make` makes of a file system; one with the cold tier behind it, where there is one, which it must not
        touch."""
        if not self.settings.cold_tier or isinstance(fs, TieredFs):
            return make(fs)  # without one, or with one of the test's own
        tier = tier if tier is not None else Tier()
        with tier.closed("a start"):
            return make(tier.over(fs))

    def without_tier(self, why: str) -> AbstractContextManager[None]:
        """Meanwhile nothing may touch the cold tier."""
        return self.tier.closed(why) if self.settings.cold_tier else nullcontext()

    def stop(self) -> World:
        """Stop cleanly."""
        self._finish_syncs()
        if self._work is not None:
            self._work.age = self.lag
            self._keep()
        with self.without_tier("a stop"):
            self.core.close()
        self._ended(Crash.STOP, self.disk.killed())
        return self

    def kill(self, wrote: int | None = None) -> World:
        """SIGKILL."""
        self._ended(Crash.KILL, self.disk.killed(wrote))
        return self

    def power_off(self, cut: Cut | None = None) -> World:
        """A power failure that let `cut` through (None: nothing that was pending)."""
        boot = f"boot-{int(self.disk.boot.rpartition('-')[2]) + 1}"
        disk = self.disk.powered_off(cut if cut is not None else Cut(0), boot)
        self.oracle.power_failures += 1
        self._ended(Crash.POWER, disk)
        self.clock = self.clock.reboot()
        return self

    def lose_nothing(self) -> World:
        """A power failure after which everything had reached the disk by luck."""
        return self.power_off(Cut(ALL))

    def _ended(self, crash: Crash, disk: FakeDisk) -> None:
        self.disk.on_step = None
        self.alive = None
        self.disk = disk
        self.crash = crash
        self.clock = self.clock.restart()

    def _stepped(self, disk: FakeDisk, what: str) -> None:
        self.monitor.stepped(disk, what)
        self.probe(self, what)

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, ms: float = 0.25) -> None:
        """Let a little time pass and the engine do one turn, with whatever work it hands out."""
        self.clock.tick(ms)
        core = self.core
        with self.without_tier("a turn"):
            core.advance()
            core.turn()
        self.work()
        core.fresh.clear()
        self.probe(self, "turn")

    def work(self) -> None:
        """Run background work: chores at once, syncs as `lag` says."""
        core = self.core
        for index, sync in list(self._syncs.items()):
            sync.age += 1
            self._advance_sync(index, sync)
        while (job := core.sync_job()) is not None:
            self.monitor.sync_begins(job.shard)
            sync = _Sync(job, self._sync_fs(), self.oracle.sync_began())
            self._syncs[job.shard] = sync
            self._advance_sync(job.shard, sync)
        while (chore := core.chore()) is not None:
            core.chore_done(chore, outcome(chore, self._fs))
        with self.without_tier("a checkpoint"), self.clock.working(SLICE_NS if self.sliced else 0):
            while core.keep_step() and not self.sliced:
                pass
            self._keep()
        if self.settings.cold_tier and not isinstance(self._fs, TieredFs):
            self._mind_mover()

    def _keep(self) -> None:
        """A checkpoint's job: run when half of `lag` has gone by, given back when all of it has."""
        core = self.core
        work = self._work
        if work is None:
            job = core.keep_job()
            if job is None:
                return
            work = self._work = _Work(job)
        elif work.runs:
            return  # this is a step in the middle of it
        else:
            work.age += 1
        if not work.ran and work.age >= self.lag // 2:
            work.ran, work.runs = True, True
            fs = cast(Fs, _Intruded(self._fs, self)) if self.between else self._fs
            work.error = outcome(work.job, fs)
            work.runs = False
        if work.ran and work.age >= self.lag:
            self._work = None
            core.keep_done(work.job, work.error)

    def _mind_mover(self) -> None:
        """A job of the mover, as `_keep` does those of a checkpoint; while the tier hangs it stays under way."""
        mover = self.core.keeper.mover
        work = self._move
        if work is None:
            job = mover.job(self.core.now())
            if job is None:
                return
            work = self._move = _Work(job)
        elif work.runs or self.hangs:
            return
        else:
            work.age += 1
        if not work.ran and work.age >= self.lag // 2 and not self.hangs:
            work.ran, work.runs = True, True
            fs = cast(Fs, _Intruded(self._fs, self)) if self.between else self._fs
            work.error = outcome(work.job, self.tier.over(fs))
            work.runs = False
        if work.ran and work.age >= self.lag:
            self._move = None
            mover.done(work.job, work.error, self.core.now())

    @property
    def _fs(self) -> Fs:
        assert self._wrapped is not None
        return self._wrapped

    def _sync_fs(self) -> Fs:
        if not self.lag:
            return self._fs
        return self.wrap(self.disk.begin_sync())

    def _advance_sync(self, index: int, sync: _Sync) -> None:
        if not sync.ran and sync.age >= self.lag // 2:
            sync.ran = True
            sync.error = outcome(sync.job, sync.fs)
        if sync.ran and sync.age >= self.lag:
            del self._syncs[index]
            self.core.sync_done(sync.job, sync.error)
            if sync.error is None and self.settings.wal_shards == 1:
                self.oracle.sync_ended(sync.covers)

    def _finish_syncs(self) -> None:
        for index, sync in list(self._syncs.items()):
            sync.age = self.lag
            self._advance_sync(index, sync)

    def settle(self) -> World:
        """Silence: everything is synced, and topics become quiet."""
        for _ in range(12):
            self.step(5)
        for _ in range(STEPS_MAX):
            if (not self.core.busy or self.core.read_only is not None) and not self._syncs:
                break
            self.step(5)
        else:
            raise WrongError("the engine never comes to rest")
        self._ticks_known = not self.core.parking
        if self.settings.wal_shards == 1 and not self.failures and self.core.read_only is None:
            self.oracle.now_quiet()
        self.probe(self, "settled")
        return self

    def wait(self, ticket: Ticket[Any]) -> None:
        """Step until a ticket is answered."""
        for count in range(STEPS_MAX):
            if ticket.done:
                return
            self.step(0.25 if count < STEPS_MAX // 2 else 100)
        raise WrongError("an answer never comes")

    def _marks_alive(self) -> set[bytes]:
        """The texts of all records that the oracle holds for live now."""
        alive: set[bytes] = set()
        for name in self.oracle.lines:
            model = self.oracle.tip(name)
            if model is not None:
                for record in model.live.values():
                    alive.update(MARK.findall(record.data))
        return alive

    def checkpoint(self) -> None:
        """Make a checkpoint, and let it be tidied up after."""
        ticket = self.core.checkpoint()
        self.wait(ticket)
        if not self.tolerant:
            ticket.value()
        for _ in range(2 * self.lag + 2):
            self.step()

    # -- commands -----------------------------------------------------------------------------------------------------

    def records(self, count: int, size: int = 24, **columns: Any) -> tuple[Record, ...]:
        """New records, each with a text that occurs nowhere else."""
        made = []
        for _ in range(count):
            self._serial += 1
            mark = f"mk{id_of(self)}-{self._serial}."
            data = msgspec.json.encode({"m": mark, "p": "x" * max(size - len(mark), 0)})
            made.append(Record(data, **columns))
        return tuple(made)

    def append(
        self,
        name: str,
        count: int = 1,
        *,
        size: int = 24,
        key: str | None = None,
        records: tuple[Record, ...] | None = None,
        ack_fsync: bool = False,
        config: ConfigChanges | None = None,
        wait: bool = True,
        **columns: Any,
    ) -> tuple[Record, ...]:
        """Write records; returns them. Raises `Refused` as the engine does."""
        records = records if records is not None else self.records(count, size, **columns)
        now = self.core.now()
        existing = self.oracle.tip(name)
        retry = existing is not None and key is not None and key in existing.keys
        ticket = self.core.append(
            name, _batch(records), key=None if key is None else key.encode(), ack_fsync=ack_fsync, config=config
        )
        taken: list[Step] = []
        if existing is None:
            created = Create(config if config is not None else ConfigChanges())
            taken.append(self.oracle.asked(name, created, now, needs_sync=True, turn=self._tick()))
        model = self.oracle.tip(name)
        assert model is not None
        waits = ack_fsync or model.config.durability is Durability.FSYNC
        if not retry:
            turn = -1 if model.config.durability is Durability.EPHEMERAL else self._tick()
            taken.append(self.oracle.asked(name, Append(records, key), now, needs_sync=waits, turn=turn))
        self._watch(name, ticket, taken, records, retry)
        if wait:
            self.wait(ticket)
        return records

    def put(self, name: str, *, wait: bool = True, **changes: Any) -> None:
        """Create or configure a topic."""
        wanted = msgspec.convert(changes, ConfigChanges)
        now = self.core.now()
        old = self.oracle.tip(name)
        op: Op = Configure(wanted) if old is not None else Create(wanted)
        # What changes nothing needs no frame, so its answer promises nothing about the disk.
        needs_sync = old is None or configured(name, old.config, wanted) != old.config
        ticket = self.core.put_topic(name, wanted)
        step = self.oracle.asked(name, op, now, needs_sync=needs_sync, turn=self._tick())
        self._watch(name, ticket, [step])
        if wait:
            self.wait(ticket)

    def drop(self, name: str, *, wait: bool = True) -> None:
        """Drop a topic."""
        there = self.oracle.tip(name) is not None
        self.oracle.placed(name, None)
        now = self.core.now()
        ticket = self.core.drop_topic(name)
        if there:
            self._watch(name, ticket, [self.oracle.asked(name, Drop(), now, needs_sync=True, turn=self._tick())])
        if wait:
            self.wait(ticket)

    def delete(
        self,
        name: str,
        *,
        before_seq: int | None = None,
        match: Match | None = None,
        seqs: tuple[int, ...] | None = None,
        wait: bool = True,
    ) -> None:
        """Delete records."""
        selector = DeleteSelector(before_seq=before_seq, match=match, seqs=seqs)
        head = self.core.state(name).head_seq
        model = self.oracle.tip(name)
        assert model is not None
        now = self.core.now()
        model = model.copy()
        model.expire(now)
        op = Delete(tuple(seq for seq in selected(model, selector) if seq <= head))
        with self.without_tier(""):
            ticket = until_read(self.core, partial(self.core.delete, name, selector), self.wait)
        waits = model.config.durability is Durability.FSYNC
        self._watch(name, ticket, [self.oracle.asked(name, op, now, needs_sync=waits)])
        if wait:
            self.wait(ticket)

    def _tick(self) -> int:
        """The tick that what was just asked of a topic will be written in.

        −1 from the moment that a command of this process had to wait for room: it is written together with later ones.
        """
        if self.core.parking:
            self._ticks_known = False
        if not self._ticks_known:
            self.oracle.forget_ticks(self.core.wal.tick)
            return -1
        return self.core.wal.tick

    def _watch(
        self,
        name: str,
        ticket: Ticket[Any],
        steps: list[Step],
        records: tuple[Record, ...] = (),
        retry: bool = False,
    ) -> None:
        """Tell the oracle what the ticket's answer says, when it comes."""

        def done(ticket: Ticket[Any]) -> None:
            if ticket.error is not None:
                self.failures.append(ticket.error)
                detail = ticket.error.detail or {}
                if detail.get("outcome") != "unknown":
                    for step in reversed(steps):
                        self.oracle.refused(name, step)
                return
            result = ticket.result
            for step in steps:
                self.oracle.acked(name, step)
            if steps and not isinstance(steps[-1].op, Drop):
                if isinstance(result, AppendResult | TopicPut):
                    self.oracle.answered_epoch(name, result.epoch)
                    if self.settings.wal_shards > 1:
                        self.oracle.placed(name, self.core.catalog.tip[name].shard)
                self._check_answer(name, result, steps[-1], records)
            if retry and not (isinstance(result, AppendResult) and result.deduped):
                raise WrongError(f"{name}: a retry with the same key was not deduplicated")
            self.monitor.acked(self.disk, records, any(step.synced for step in steps), self._is_volatile(name))

        if ticket.done:
            done(ticket)
        else:
            ticket.on_done = done

    def _is_volatile(self, name: str) -> bool:
        model = self.oracle.tip(name)
        return model is None or model.config.durability is Durability.EPHEMERAL

    def _check_answer(self, name: str, result: Any, step: Step, records: tuple[Record, ...]) -> None:
        """The answer to a write names the seqs that the model gives; the bytes are noted for later."""
        if not isinstance(step.op, Append) or result.deduped:
            return
        line = self.oracle.line(name)
        index = next((at for at, other in enumerate(line.steps, 1) if other is step), None)
        model = None if index is None else line.model(index)
        if model is None:
            return
        if (result.first_seq, result.last_seq) != (model.head - len(records) + 1, model.head):
            raise WrongError(f"{name}: the answer says {result}, the model's head is {model.head}")
        if index != len(line.steps):
            return
        request = PageRequest(from_seq=result.first_seq - 1, limit=1000, include_tags=True)
        with self.without_tier(""):
            page = until_read(self.core, partial(self.core.page, name, request), self.wait)
        if not page.count:
            return
        for raw in msgspec.json.decode(b"[" + b"".join(page.pieces) + b"]", type=list[msgspec.Raw]):
            seq = int(bytes(raw)[8 : bytes(raw).index(b",")])
            wrong = self.oracle.read(name, seq, bytes(raw))
            if wrong is not None:
                raise WrongError(wrong)

    def check(self) -> View:
        """The live store shows exactly what it was asked for."""
        with self.without_tier(""):
            view = look(self.core)
        for name in self.oracle.lines:
            assert self.tolerant or all(step.acked for step in self.oracle.lines[name].steps), "check only at rest"
        wrong = self.oracle.check(view, Crash.NONE)
        if wrong:
            raise WrongError("live: " + "; ".join(wrong))
        return view


def id_of(world: World) -> str:
    """A short text that keeps marks of one store apart from those of another run."""
    return f"{world.disk.boot.rpartition('-')[2]}"


def _batch(records: tuple[Record, ...]) -> Batch:
    tags = [record.tag for record in records]
    nodes = [record.node for record in records]
    metas = [record.meta for record in records]
    return Batch(
        [record.data for record in records],
        tags=tags if any(tag is not None for tag in tags) else None,
        nodes=nodes if any(node is not None for node in nodes) else None,
        metas=metas if any(meta is not None for meta in metas) else None,
    )


__all__ = ["TINY", "Crash", "Refused", "StoreError", "Unavailable", "World", "WrongError"]
