"""Checkpoints: everything is taken down, history sealed, and then the log is let go of (storage.md §6).

    IDLE ─due─► LAND ────► TAKE ──────────► SEAL ────────► SYNC ─────────► WRITE ───────────► SWITCH ──────► IDLE
                routers'   every topic's    blocks that    the log up to   tails, .del files, what tails    log
                copies on  image, each at   were full go   all that was    snapshot: one job  hold leaves   trimmed,
                their way  its own place    into segments  taken down                         memory        files gone

The loop's part comes in slices (`step`), the rest as jobs for a thread (`job`, `job_done`); writes go on all the while.
What is written once a topic is taken down is the next checkpoint's, so each ends in a time that follows from what there
was when it began (docs/adr/0051). A segment takes the place of its blocks as soon as it is on disk: it holds the same
records, and the log still has them should no snapshot ever name it. What is left of the log begins where *both* kept
snapshots end, and a file is removed when neither names it, so that one bad snapshot costs time and nothing else.

Any error leaves things as they are: the older snapshots and the log say everything. It is tried again after a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from engine.checkpoint.files import Files, log_starts
from engine.checkpoint.jobs import STOP_NS, Copy, Job, Piece, RemoveJob, SealJob, SnapshotJob, given_up
from engine.checkpoint.pin import PinJob, UnpinJob
from engine.checkpoint.plan import to_tails
from engine.checkpoint.sources import Readers
from engine.clock import Clock
from engine.core.catalog import Catalog
from engine.core.commit import Commit
from engine.core.images import Captured, capture, cut_of, dropped_of
from engine.core.jobs import outcome
from engine.core.mover import Mover
from engine.core.sealing import Sealing, deleted_rows
from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.errors import Code, Unavailable, log_failed
from engine.formats.snapshot import Globals, ShardCut, snapshot_path
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.segment.damaged import DamagedSegment
from engine.segment.segment import Segment
from engine.store.recovery import OpenedStore
from engine.topic.block import Block
from engine.topic.damaged import DamagedFrames
from engine.types import CheckpointDone
from engine.wal.wal import Wal

SLICE_NS: Final = 250_000
"""How long one step works on the loop."""
SWITCHED_AT_ONCE: Final = 8
"""Pieces that take their blocks' places between two looks at the clock."""
RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 300_000
"""Pause after a checkpoint that failed, doubled each time."""


class Phase(Enum):
    """Where a checkpoint is."""

    IDLE = "idle"
    LAND = "land"
    TAKE = "take"
    SEAL = "seal"
    SYNC = "sync"
    WRITE = "write"
    SWITCH = "switch"


class Keeper:
    """The checkpoints of one store; owned by the loop."""

    def __init__(
        self, opened: OpenedStore, wal: Wal, commit: Commit, catalog: Catalog, clock: Clock, settings: EngineSettings
    ) -> None:
        self.phase = Phase.IDLE
        self.problem: str | None = None
        """Why the last attempt failed; None when it did not."""
        self.last: CheckpointDone | None = None
        """The last one that this process made."""
        self.failures = 0
        self.damage: list[DamagedSegment | DamagedFrames] = []
        """What its jobs have met; whoever sees to it that readers are told takes it."""
        self.left: list[str] = []
        """Files that could not be removed, and why; whoever tells it takes it."""
        self._wal = wal
        self._commit = commit
        self._forwards = commit.forwards
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._store_id = opened.store_id
        self.mover = Mover(catalog, settings, opened, self.damage)
        self._gone_cold: list[Segment] = []
        """Segments that were moved to the cold tier, and of which no snapshot says so yet."""
        self._durable: set[str] = set()
        """Directories that are known to be on disk."""
        self._number = self._first = opened.last_number
        self._sweeps = not opened.start.report
        """Whether everything that names files could be read at the start."""
        self._kept: list[tuple[int, list[ShardCut]]] = opened.checkpoints[-2:]
        """The snapshots that are kept: number and cuts, the older one first."""
        self._asked: list[Ticket[CheckpointDone]] = []
        self._answering: list[Ticket[CheckpointDone]] = []
        self._forced = opened.force_checkpoint
        self._holds_log = False
        """Whether only the older snapshot needs some log file: another one lets go of it, also when nothing happens."""
        self._late_ns: int | None = None
        self._next_ms: int | None = None
        self._retry_ms = 0
        self._pause_ms = RETRY_MS_MIN
        self._covered = self._position()
        """How much log there was when the last checkpoint began."""
        self._taken_bytes = 0
        """How much of it that one was the first to cover."""
        self._slots: list[Slot] = []
        self._at = 0
        self._sealing = Sealing(settings)
        self._sealed = 0
        self._cuts: list[ShardCut] = []
        self._taken: list[Captured] = []
        self._taken_slots: list[Slot] = []
        self._pieces: list[Piece] = []
        self._needed: dict[int, int] = {}
        self._began_ns = 0
        self._began_ms = 0
        self._asides: deque[tuple[PinJob | UnpinJob, Ticket[None]]] = deque()
        """Jobs of others that must not meet a job of ours: files are named and removed in one place only."""
        self._written: SnapshotJob | None = None
        """The job of a snapshot that is durable, while its pieces take the place of their blocks."""
        self._topics = 0
        """How many topics it has."""
        self._stuck: list[Copy] = []
        """Segments and pieces that could not."""
        self._job: Job | None = None
        self._running: Job | None = None
        there = [block.segment for slot in catalog.by_id.values() for block in slot.topic.tail.blocks if block.segment]
        newest = self._kept[-1][0] if self._kept else 0
        self._files = Files.at_start(there, catalog.cache.retired, opened.tails, newest)

    # -- when ------------------------------------------------------------------------------------------------------

    def ask(self) -> Ticket[CheckpointDone]:
        """A checkpoint that holds everything up to now."""
        ticket: Ticket[CheckpointDone] = Ticket()
        self._asked.append(ticket)
        return ticket

    def hurry(self) -> None:
        """Begin the next one now; nobody waits for it in particular."""
        self._forced = self._forced or not self.active

    def aside(self, job: PinJob | UnpinJob) -> Ticket[None]:
        """Run a job in between those of checkpoints, when no file is made or removed."""
        ticket: Ticket[None] = Ticket()
        self._asides.append((job, ticket))
        return ticket

    @property
    def has_aside(self) -> bool:
        """Whether such a job waits."""
        return bool(self._asides)

    @property
    def active(self) -> bool:
        """Whether one is under way."""
        return self.phase is not Phase.IDLE

    def is_due(self, now_ms: int) -> bool:
        """Whether one should begin now."""
        if self.active or now_ms < self._retry_ms:
            return False
        if self._asked or self._forced:
            return True
        written = self._position() - self._covered
        if self._next_ms is None or not (written or self.mover.waits or self._holds_log):
            self._next_ms = now_ms + self._settings.checkpoint_ms
            return False
        return written >= self._settings.checkpoint_bytes or now_ms >= self._next_ms

    @property
    def uncovered_bytes(self) -> int:
        """How much log there is that no checkpoint covers."""
        return self._position() - self._covered

    @property
    def behind(self) -> float:
        """How far writes have run ahead of checkpoints: 0 as long as no more log waits to be sealed than makes one due
        (or than one file of it), 1 at twice as much. 0 while they fail: that is an alarm, and the log has room."""
        if self.problem is not None:
            return 0.0
        waits: float = self.uncovered_bytes
        if self.phase in (Phase.TAKE, Phase.SEAL):
            waits += self._taken_bytes * (1.0 - self._sealing.progress)
        settings = self._settings
        return max(0.0, waits / max(settings.checkpoint_bytes, settings.wal_file_bytes) - 1.0)

    def _position(self) -> int:
        return sum(shard.tip_lsn for shard in self._wal.shards) + self._catalog.cache.derived_total

    # -- the drive -------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> bool:
        """Do a slice of what the loop has to do; whether to call again soon."""
        if self.phase is Phase.IDLE:
            if not self.is_due(now_ms):
                return False
            self._begin(now_ms)
        if self._job is not None or self._running is not None:
            return False
        until = self._clock.boot_ns() + SLICE_NS
        if self.phase is Phase.LAND and not self._land():
            return False
        if self.phase is Phase.TAKE:
            self._take_some(until)
        elif self.phase is Phase.SWITCH:
            self._switch_some(now_ms, until)
        if self.phase is Phase.SEAL:
            self._seal_some()
        if self.phase is Phase.SYNC:
            return self._is_synced()
        return self._job is None

    def job(self) -> Job | None:
        """A job to run in a thread, one at a time."""
        if self._running is not None:
            return None
        if self._job is None and self._asides:
            self._running = aside = self._asides[0][0]
            if isinstance(aside, PinJob):
                aside.number = self._kept[-1][0] if self._kept else 0
        else:
            self._running, self._job = self._job, None
        return self._running

    def job_done(self, job: Job, error: OSError | None, now_ms: int) -> None:
        """The outcome of a job."""
        assert job is self._running, "a job that is not in flight"
        self._running = None
        if isinstance(job, PinJob | UnpinJob):
            _, ticket = self._asides.popleft()
            if isinstance(job, UnpinJob):
                self.mover.let_go(job.export_ids)
            elif error is None and job.cold:
                self.mover.hold(job.export_id, job.cold)
            if error is None:
                ticket.complete(None)
            else:
                ticket.fail(Unavailable(Code.NOT_READY, f"the files could not be pinned: {error}"))
            return
        if isinstance(job, RemoveJob):
            self.left += job.left
            return
        self.damage += job.damage
        if isinstance(job, SealJob):
            self._switch_sealed(job.copies)
            if error is None:
                return
        elif error is None:
            self._written, self._at = job, 0
            self._topics = len(self._taken)
            if job.tails_bytes:
                self._files.wrote_tails(self._number, job.tails_bytes)
            self.phase = Phase.SWITCH
            return
        self._fail(error, now_ms)

    def stop_soon(self) -> None:
        """The store is being stopped: give up what is not done within `STOP_NS`."""
        self._late_ns = self._late_ns or self._clock.boot_ns() + STOP_NS

    def _is_late(self) -> bool:
        return self._late_ns is not None and self._clock.boot_ns() >= self._late_ns

    def run_now(self, fs: Fs, now: Callable[[], int], flush: Callable[[], None]) -> None:
        """Make a checkpoint here and now, before a stop; without it the log still says all. `flush` syncs the log."""
        self.stop_soon()
        ticket = self.ask()
        while not ticket.done and self.problem is None:
            if self._is_late():
                self._fail(given_up(), now())
                break
            self.step(now())
            if (job := self.job()) is not None:
                self.job_done(job, outcome(job, fs), now())
            flush()
        if (job := self.job()) is not None:
            self.job_done(job, outcome(job, fs), now())

    def _begin(self, now_ms: int) -> None:
        self._number += 1
        self._gone_cold += self.mover.take()
        for work in self.mover.merges.take():
            failed = self._switch([work.copy])
            for copy in failed:
                self._files.drop(self._number, copy.segment.paths() if copy.segment is not None else [])
            self.mover.switched(work, None if failed else self._number)
        self._answering, self._asked = self._asked, []
        self._forced = False
        self._began_ns, self._began_ms = self._clock.boot_ns(), now_ms
        if self.uncovered_bytes < self._settings.checkpoint_bytes:
            self._wal.begin_anew()
        self._sealing, self._sealed = Sealing(self._settings), 0
        self.phase = Phase.LAND

    def _fail(self, error: OSError | None, now_ms: int) -> None:
        """Nothing has happened; try again later."""
        self.problem = str(error)
        self.failures += 1
        for found in self._taken:
            for segment, _, _ in found.deletes:
                segment.deletes_dirty = True
        self._release()
        self._forced = True
        self._retry_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)
        answering, self._answering = self._answering, []
        for ticket in answering:
            again = Unavailable(Code.NOT_READY, f"the checkpoint failed ({error}); it is tried again")
            ticket.fail(again if (why := self._wal.failure) is None else log_failed(why))

    def _release(self) -> None:
        """Let go of everything that one checkpoint has held."""
        for piece in (*self._sealing.pieces, *self._pieces):
            for block in piece.copy.blocks:
                block.sealing = False
        self.phase = Phase.IDLE
        self._forwards.release()
        self._sealing = Sealing(self._settings)
        self._slots, self._cuts = [], []
        self._taken, self._taken_slots, self._pieces = [], [], []
        self._needed, self._stuck = {}, []

    def _open_readers(self, fs: Fs) -> Readers:
        logs = {shard.index: list(shard.files) for shard in self._wal.shards}
        return Readers(fs, self._store_id, self._wal.seed, logs)

    # -- sealing ---------------------------------------------------------------------------------------------------

    def _seal_some(self) -> None:
        """The next job, or all that was taken down is in segments as far as it is to be."""
        copies = self._sealing.next()
        if not copies:
            self.phase = Phase.SYNC
            return
        now = self._clock.wall_ms()
        self._job = SealJob(copies, self._open_readers, self._store_id, now, self._number, self._durable, self._is_late)

    def _switch_sealed(self, copies: list[Copy]) -> None:
        """Segments are on disk. One that nobody has a place for is the coming snapshot's alone."""
        for copy in self._switch(copies):
            self._stuck.append(copy)
            for block in copy.blocks:
                if block.segment is not None:
                    block.segment.deletes_dirty = True
            if copy.segment is not None:
                self._files.retire(copy.segment, self._number + 1)

    def _land(self) -> bool:
        """Let no copies be on their way when topics begin to be taken down; whether that is so."""
        if self._wal.failure is not None:
            self._fail(OSError("the log takes no writes"), self._began_ms)
            return False
        if not self._forwards.hold():
            for book in self._commit.books:
                book.wanted = True
            return False
        if not self._is_log_ready():
            return False
        self._forwards.take_down()
        self._let_go(self._number)
        self._taken_bytes, self._covered = self.uncovered_bytes, self._position()
        self._cuts = [cut_of(shard) for shard in self._wal.shards]
        self._slots, self._at = list(self._catalog.by_id.values()), 0
        self.phase = Phase.TAKE
        return True

    def _is_log_ready(self) -> bool:
        """Whether the log has gone on in the files in which it is to, and all before them is on disk: it can be cut
        there, so that the older ones go whole."""
        ready = self._wal.is_anew()
        for shard, book in zip(self._wal.shards, self._commit.books, strict=True):
            if shard.retired or shard.cut_lsn < shard.current.log.first_lsn:
                book.wanted, ready = True, False
        return ready

    def _switch(self, copies: Iterable[Copy]) -> list[Copy]:
        """Put what was written in the place of the blocks that it was copied from; those where that cannot be."""
        failed = []
        for copy in copies:
            for block in copy.blocks:
                block.sealing = False
            segment = copy.segment
            if segment is None:
                continue
            if self._replace(copy, segment):
                self._sealed += not segment.in_tails
                if segment.in_tails:
                    self._files.has_piece(segment)
            else:
                failed.append(copy)
        return failed

    def _replace(self, copy: Copy, segment: Segment) -> bool:
        topic, tail = copy.topic, copy.topic.tail
        blocks = tail.blocks
        first = tail.locate(copy.first_seq)
        stop = first
        while stop < len(blocks) and blocks[stop].last_seq <= copy.last_seq:
            stop += 1
        there = blocks[first:stop]
        if not there or there[0].first_seq < copy.first_seq or not {*map(id, there)} <= {*map(id, copy.blocks)}:
            return False
        if stop < len(blocks) and blocks[stop].first_seq <= copy.last_seq:
            return False
        for before in there:
            if before.segment is not None:
                self._retire(before.segment, self._number)
        tail.replace(first, stop - first, Block.sealed(segment, 0, 0, copy.tags))  # it counts what is there now
        # What was dead when it was copied has no row; a start learns from a .del file that it was deleted.
        inside = topic.deleted.between(segment.first_seq, segment.last_seq)
        segment.deletes_dirty = not segment.in_tails and bool(inside)
        return True

    # -- taking everything down ------------------------------------------------------------------------------------

    def _take_some(self, until_ns: int) -> None:
        """Take topics down."""
        while self._at < len(self._slots):
            slot = self._slots[self._at]
            self._at += 1
            if self._catalog.by_id.get(slot.topic.id) is slot:
                self._take(slot)
            if self._clock.boot_ns() >= until_ns:
                return
        for shard in self._wal.shards:
            self._needed.setdefault(shard.index, shard.cut_lsn)
        self._forwards.release()
        self.phase = Phase.SEAL

    def _take(self, slot: Slot) -> None:
        tip = self._wal.shards[slot.shard].tip_lsn
        groups = self._sealing.plan(slot, self._began_ms) if slot.visible else []
        found = capture(slot, tip, self._catalog.routers, groups)
        self._forwards.took(slot)
        if found is None:
            return
        self._sealing.add(slot, found, groups)
        for segment, _, _ in found.deletes:
            segment.deletes_dirty = False
        self._taken.append(found)
        self._taken_slots.append(slot)
        self._needed[slot.shard] = max(self._needed.get(slot.shard, 0), found.image.from_lsn)
        loose = {*map(id, found.loose)}
        # Short islands of records before a hole stay in the tails when what comes after is sealed.
        taken = [block for block in slot.topic.tail.blocks if block.segment is not None or id(block) in loose]
        for group in to_tails(taken, self._settings, self._files.is_worn):
            copy = Copy.of(slot.topic, group)
            live, size = sum(block.live for block in group.blocks), sum(block.live_bytes for block in group.blocks)
            replaces = [block.segment for block in group.blocks if block.segment is not None]
            self._pieces.append(Piece(found, copy, live, size, replaces))

    def _is_synced(self) -> bool:
        """Hand the last job out once the log is on disk as far as it was taken down."""
        shards = self._wal.shards
        if self._wal.failure is not None:
            self._fail(OSError("the log takes no writes"), self._began_ms)
            return False
        waiting = False
        for shard in shards:
            if shard.cut_lsn < self._needed[shard.index]:
                self._commit.books[shard.index].wanted = True
                waiting = True
        if waiting:
            return False
        by_id = self._catalog.by_id
        gone = [slot for slot in self._slots if not slot.visible and by_id.get(slot.topic.id) is not slot]
        if gone:
            dropped = {id(slot.topic) for slot in gone}
            kept = [at for at, slot in enumerate(self._taken_slots) if id(slot.topic) not in dropped]
            self._taken = [self._taken[at] for at in kept]
            self._taken_slots = [self._taken_slots[at] for at in kept]
            self._pieces = [piece for piece in self._pieces if id(piece.copy.topic) not in dropped]
            self._sealing.forget(dropped)
        for cut, shard in zip(self._cuts, shards, strict=True):
            cut.end_lsn = shard.durable_end
        globals_ = Globals(
            number=self._number,
            predecessor=self._kept[-1][0] if self._kept else 0,
            created_ms=self._clock.wall_ms(),
            last_ts=self._commit.now_ms,
            order=self._wal.order,
            tick=self._wal.tick,
            epoch=self._catalog.last_id,
            last_epoch=self._catalog.last_epoch,
            shards=self._wal.active,
            closed_names=sorted(self._catalog.closed_names),
            cuts=self._cuts,
            dropped=[dropped_of(slot) for slot in gone],
            attached=sorted(self._catalog.attached),
        )
        readers, late, sealed = self._open_readers, self._is_late, self._sealing.pieces
        self._job = SnapshotJob(self._taken, self._pieces, globals_, readers, self._store_id, late, sealed)
        self.phase = Phase.WRITE
        return False

    # -- what a snapshot makes superfluous -------------------------------------------------------------------------

    def _switch_some(self, now_ms: int, until_ns: int) -> None:
        """The snapshot is durable: go over to the pieces that it names."""
        job = self._written
        assert job is not None, "pieces are switched once their snapshot is durable"
        pieces = job.pieces
        while self._at < len(pieces):
            copies = [piece.copy for piece in pieces[self._at : self._at + SWITCHED_AT_ONCE]]
            self._stuck += self._switch(copies)
            self._at += len(copies)
            if self._at < len(pieces) and self._clock.boot_ns() >= until_ns:
                return
        # What was taken down is let go of in slices, too: freeing ten thousand images at once would be a pause.
        taken = self._taken
        while taken:
            for found, slot in zip(taken[-SWITCHED_AT_ONCE:], self._taken_slots[-SWITCHED_AT_ONCE:], strict=True):
                self._go_over(found, slot)
            del taken[-SWITCHED_AT_ONCE:], pieces[-SWITCHED_AT_ONCE:], self._taken_slots[-SWITCHED_AT_ONCE:]
            if self._clock.boot_ns() >= until_ns:
                return
        self._written = None
        self._done(job, now_ms)

    def _go_over(self, found: Captured, slot: Slot) -> None:
        """The segments of a topic have the deleted rows that the snapshot names."""
        for segment, entry, rows in found.deletes:
            if segment.number == self._number:  # what was dead when it was taken down
                now = deleted_rows(slot.topic.deleted, segment.first_seq, segment.last_seq)
                segment.deletes_dirty = now != rows
            if segment.del_version and entry.deletes != segment.del_version:
                self._files.drop(self._number, [segment.del_path(segment.del_version)])
            segment.del_version, segment.del_digest = entry.deletes, entry.digest

    def _done(self, job: SnapshotJob, now_ms: int) -> None:
        """Everything is as the snapshot says: let go of what it makes superfluous."""
        self._files.tails_are_used(self._number, job.tails_use)
        self._files.drop(self._number, [segment.data_path for segment in self._gone_cold])
        self._gone_cold = []
        self._kept.append((self._number, self._cuts))
        while len(self._kept) > 2:
            self._files.drop(0, [snapshot_path(self._kept.pop(0)[0])])
        if len(self._kept) == 2:
            self._trim(self._stuck)
        self._holds_log = self._wal.lets_go({cut.shard: cut.lsn for cut in self._cuts})
        took = (self._clock.boot_ns() - self._began_ns) // 1_000_000
        self.last = CheckpointDone(
            number=self._number,
            topics=self._topics,
            segments=self._sealed,
            bytes=job.tails_bytes + job.snapshot_bytes,
            took_ms=took,
            ts=now_ms,
        )
        self.problem = None
        self._pause_ms, self._retry_ms = RETRY_MS_MIN, 0
        self._next_ms = now_ms + self._settings.checkpoint_ms
        self._release()
        self._remove_superfluous()
        if self._sweeps and len(self._kept) == 2 and self._kept[0][0] > self._first:
            self.mover.sweep()
        self.mover.plan(self._number)
        answering, self._answering = self._answering, []
        for ticket in answering:
            ticket.complete(self.last)

    def _trim(self, stuck: list[Copy]) -> None:
        """Let the log begin where both kept snapshots end; before what could not be switched, if there is any."""
        blocks = [block for copy in stuck for block in copy.topic.tail.blocks]
        self._wal.keep_from(log_starts(self._kept[0][1], self._kept[1][1], blocks))

    def _retire(self, segment: Segment, absent_from: int) -> None:
        """No topic has this segment any more; no snapshot from a number on names it."""
        self._files.retire(segment, absent_from)
        if segment.cold:
            self.mover.drop(absent_from, segment)

    def _let_go(self, absent_from: int) -> None:
        """Segments went without another one in their place; no snapshot from a number on names them."""
        retired, self._catalog.cache.retired = self._catalog.cache.retired, []
        for segment in retired:
            self._retire(segment, absent_from)

    def _remove_superfluous(self) -> None:
        """Remove what neither kept snapshot names."""
        self._let_go(self._number + 1)  # what went meanwhile may have been taken down before
        oldest = self._kept[0][0] if len(self._kept) == 2 else 0
        paths = self._files.take(oldest)
        self.mover.release(oldest)
        if paths:
            self._job = RemoveJob(paths, self._durable)
