"""From decided to visible: groups are written, syncs complete, and what they make true is applied in order.

    stage ──► pending (a slot's, in order) ──write──► applied if its class asks for no more
                                           ──sync───► applied if it waited for the disk
                                                      answers that waited beyond visibility go out

All the rules about *when* live here; what a change does is `staged`'s, what bytes it has is the WAL's. A shard that
fails leaves no staged state to roll back: what was pending on it fails as unknown, and it takes nothing more.

Quiet topics (storage.md §3): about a second after its last write, and once all it has is synced, a topic is named
quiet in a Mark. From the moment that Mark is staged its next write, and what follows, waits for one sync.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeVar

import msgspec

from engine.clock import Clock
from engine.core.catalog import Catalog
from engine.core.forwards import Forwards
from engine.core.leaving import StagedCopies
from engine.core.slot import Slot
from engine.core.staged import Staged, StagedAppend, StagedElsewhere
from engine.core.ticket import Ticket
from engine.errors import TopicsError, outcome_unknown
from engine.formats.append import SharedBody
from engine.formats.control import MarkBody, encode_control_body
from engine.formats.frame import FrameType
from engine.fragment import Rendered
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.topic.block import OPEN_BYTES, OPEN_RECORDS
from engine.types import Durability
from engine.wal.shard import Shard
from engine.wal.wal import SyncJob, Wal

S = TypeVar("S", bound=Staged)

SYNC_STALL_MS: Final = 10_000
"""A sync that takes longer makes the store not ready, and its waiters *unknown* (faults.md F12)."""


class ShardBook:
    """What `Commit` keeps for one shard."""

    __slots__ = (
        "acks",
        "awaiting",
        "dirty",
        "failed",
        "next_sync_ms",
        "open",
        "shard",
        "sync_began_ms",
        "sync_began_ns",
        "syncing",
        "touched",
        "unmarked",
        "wanted",
    )

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.touched: list[Slot] = []
        """Slots with something pending that the next written group may free."""
        self.awaiting: dict[Slot, None] = {}
        """Slots whose first pending change waits for a sync."""
        self.acks: deque[tuple[int, Ticket[Any], Any]] = deque()
        """Applied changes whose answer waits for a sync: (position, ticket, answer), by position."""
        self.dirty: list[Slot] = []
        """Slots with frames that no sync has begun to cover."""
        self.unmarked: dict[Slot, None] = {}
        """Slots whose newest frames no Mark speaks of yet."""
        self.failed = False
        """Whether what was pending when the shard failed has got its answer."""
        self.wanted = False
        """Whether somebody waits for a sync (else it is a background one, when it is due)."""
        self.next_sync_ms = 0
        self.sync_began_ms: int | None = None
        self.sync_began_ns = 0
        self.syncing: list[Slot] = []
        """Slots that the running sync covers."""
        self.open: Staged | None = None
        """The last change if others may join it (`Commit.open_for`)."""


class Commit:
    """The pipeline of all shards; driven by `Core`."""

    def __init__(self, wal: Wal, fs: Fs, clock: Clock, catalog: Catalog, settings: EngineSettings) -> None:
        self.wal = wal
        self.fs = fs
        self.clock = clock
        self.catalog = catalog
        self.settings = settings
        self.books = [ShardBook(shard) for shard in wal.shards]
        self.fresh: set[Slot] = set()
        """Slots with something new for readers, since whoever drives the engine last cleared it."""
        self.synced: set[Slot] = set()
        """The same of those with more that is synced, for readers that want only that."""
        self.forwards = Forwards()
        self.stalled = False
        self.now_ms = 0
        """Engine time of the frames that no command asked for; set by `Core` as time passes."""
        self._next_mark_ms = 0

    # -- staging ---------------------------------------------------------------------------------------------------

    def add(self, change: Staged, end_lsn: int, *, sync: bool) -> None:
        """Queue a change whose frame has just been staged and ends at `end_lsn`; `sync` is what its class asks for."""
        slot = change.slot
        book = self.books[slot.shard]
        shard = book.shard
        change.lsn = shard.last_lsn
        change.end_lsn = end_lsn
        if sync:
            change.sync_lsn = end_lsn
        elif slot.wake_lsn:
            if slot.wake_lsn > shard.durable_lsn:
                change.sync_lsn = slot.wake_lsn
            else:
                slot.wake_lsn = 0
        if slot.pending is None:
            slot.pending = deque()
        slot.pending.append(change)
        book.touched.append(slot)
        if not slot.dirty:
            self._soil(slot, book)

    def open_for(self, slot: Slot, kind: type[S], now_ms: int) -> S | None:
        """The change of this kind, topic and moment that another may join, in its frame (ADR 0050): nothing is pending
        behind it, and the frame is the last one of its shard's tip, and still staged."""
        book = self.books[slot.shard]
        change = book.open
        if not book.shard.staged or type(change) is not kind or change.slot is not slot or change.ts != now_ms:
            return None
        if change.lsn != book.shard.last_lsn or not slot.pending or slot.pending[-1] is not change:
            return None
        return change

    def grow(self, change: Staged, body: bytes | SharedBody, body_len: int) -> bool:
        """Give such a change's frame a longer body; False where there is no room for it at hand."""
        end = self.wal.lengthen(change.slot.shard, body, body_len)
        if not end:
            return False
        if change.sync_lsn == change.end_lsn:
            change.sync_lsn = end
        change.end_lsn = end
        return True

    def join(self, slot: Slot, ticket: Ticket[Any], first_seq: int, rendered: Rendered, now_ms: int) -> bool:
        """Let a write that has nothing but data share the frame of another such one; False where it needs its own."""
        into = self.open_for(slot, StagedAppend, now_ms)
        if into is None:
            return False
        shared = into.shared
        if shared is None:
            shared = into.shared = SharedBody(into.rendered)
        count, length = len(rendered.strides), shared.longer_by(rendered)
        if length > OPEN_BYTES or shared.count + count > OPEN_RECORDS or not self.grow(into, shared, length):
            return False
        shared.add(rendered, length)
        into.joined.append((ticket, first_seq, count))
        return True

    def _soil(self, slot: Slot, book: ShardBook) -> None:
        """The slot has a frame that no sync covers; the shard's first one starts the time of the background sync."""
        slot.dirty = True
        if not book.dirty:
            book.next_sync_ms = self.now_ms + self.settings.sync_interval_ms
        book.dirty.append(slot)

    def add_free(self, change: Staged, sync_lsn: int = 0) -> None:
        """Queue a change that has no frame of its own: it follows what is pending before it, and a sync if given."""
        change.sync_lsn = sync_lsn
        change.slot.queue(change)
        self.books[change.slot.shard].touched.append(change.slot)

    def note_frame(self, slot: Slot, *, wanted: bool) -> None:
        """A frame of this slot was staged that no change stands for (Reserve)."""
        book = self.books[slot.shard]
        book.wanted = book.wanted or wanted
        if not slot.dirty:
            self._soil(slot, book)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_groups(self, now_ms: int) -> None:
        """Write everything staged: all groups of the tick before anything of it is applied or answered."""
        self._settle_touched(now_ms, self._write_staged())

    def _write_staged(self) -> int:
        """Write everything staged; how many nanoseconds that took."""
        groups = self.wal.take_groups()
        if not groups:
            return 0
        began_ns = self.clock.boot_ns()
        failure: OSError | None = None
        for group in groups:
            try:
                group.run(self.fs)
            except OSError as error:
                failure = error
                self.wal.group_done(group, error)
            else:
                self.wal.group_done(group, None)
        if failure is not None:
            # Recovery drops a last tick that did not reach all its shards, so none of it may be answered as written.
            for group in groups:
                self.wal.shards[group.shard].failed = self.wal.shards[group.shard].failed or failure
                self.fail_shard(group.shard)
        return self.clock.boot_ns() - began_ns

    def _settle_touched(self, now_ms: int, took_ns: int) -> None:
        """Apply and answer what has been written. An answer may be what a command waits for that stages more."""
        for book in self.books:
            if book.touched:
                touched, book.touched = book.touched, []
                if book.shard.failed is None:
                    for slot in touched:
                        if slot.pending:
                            self._settle(slot, book, now_ms, took_ns, 0)

    # -- syncing ---------------------------------------------------------------------------------------------------

    def sync_job(self, now_ms: int) -> SyncJob | None:
        """The next sync that somebody waits for, or that is due; the driver runs it, in a thread if it likes.

        Marks, parked commands and chores stage outside a turn, and a sync begins only where everything is written: so
        before what was written is answered, since a command of several steps then stages its next one.
        """
        for book in self.books:
            if book.shard.staged or book.wanted or (book.dirty and now_ms >= book.next_sync_ms):
                break
        else:
            return None
        job = None
        while self.wal.has_staged:
            took_ns = self._write_staged()
            job = job or self._begin_sync(now_ms)
            self._settle_touched(now_ms, took_ns)
        return job or self._begin_sync(now_ms)

    def _begin_sync(self, now_ms: int) -> SyncJob | None:
        """The first sync that may begin; nothing is staged."""
        for index, book in enumerate(self.books):
            if not book.wanted and (not book.dirty or now_ms < book.next_sync_ms):
                continue
            if book.sync_began_ms is not None or self.wal.shards[index].failed is not None:
                continue
            job = self.wal.begin_sync(index)
            if job is None:
                book.wanted = False
                continue
            for slot in book.dirty:
                slot.dirty = False
                slot.syncing = slot.tip
                book.unmarked[slot] = None
            book.syncing = book.dirty
            book.dirty = []
            book.wanted = False
            book.sync_began_ms = now_ms
            book.sync_began_ns = self.clock.boot_ns()
            return job
        return None

    def sync_done(self, job: SyncJob, error: OSError | None, now_ms: int) -> None:
        """Take the outcome of a sync; the first error is final (fsyncgate)."""
        book = self.books[job.shard]
        book.sync_began_ms = None
        self.stalled = any(other.sync_began_ms is not None for other in self.books) and self.stalled
        self.wal.sync_done(job, error)
        if error is not None:
            self.fail_shard(job.shard)
            return
        took_ns = self.clock.boot_ns() - book.sync_began_ns
        for slot in book.syncing:
            if slot.syncing > slot.synced:
                slot.synced = slot.syncing
                self.synced.add(slot)
        book.syncing = []
        awaiting, book.awaiting = book.awaiting, {}
        for slot in awaiting:
            self._settle(slot, book, now_ms, 0, took_ns)
        durable = self.wal.shards[job.shard].durable_lsn
        while book.acks and book.acks[0][0] <= durable:
            _, ticket, answer = book.acks.popleft()
            ticket.sync_ns = took_ns
            ticket.complete(answer)
        if book.acks:
            book.wanted = True

    def waits(self, shard: int) -> bool:
        """Whether somebody waits for a sync of this shard that has not begun, or may as soon as it is written."""
        book = self.books[shard]
        return book.wanted or bool(book.shard.staged)

    @property
    def sync_due_ms(self) -> int | None:
        """When the next background sync is due; None when nothing is waiting for one."""
        due_ms = None
        for book in self.books:
            if book.dirty and book.sync_began_ms is None and (due_ms is None or book.next_sync_ms < due_ms):
                due_ms = book.next_sync_ms
        return due_ms

    @property
    def busy(self) -> bool:
        """Whether something is staged or unsynced."""
        return any(book.wanted or book.dirty or book.unmarked or book.sync_began_ms is not None for book in self.books)

    def watch_stall(self, now_ms: int) -> None:
        """Give the waiters of a sync that hangs their answer: unknown. A later success still counts."""
        for book in self.books:
            if book.sync_began_ms is None or now_ms - book.sync_began_ms < SYNC_STALL_MS:
                continue
            self.stalled = True
            error = outcome_unknown("the disk has not answered a sync in time")
            for slot in book.awaiting:
                for change in slot.pending or ():
                    self._refuse(change, error)
            for _, ticket, _ in book.acks:
                ticket.fail(error)

    # -- applying --------------------------------------------------------------------------------------------------

    def _settle(self, slot: Slot, book: ShardBook, now_ms: int, write_ns: int, sync_ns: int) -> None:
        """Apply what the log's progress has made true for one topic, in order."""
        shard, pending = book.shard, slot.pending
        written, durable = shard.written_lsn, shard.durable_lsn
        while pending:
            change = pending[0]
            if change.end_lsn > written or change.sync_lsn > durable:
                if change.sync_lsn > durable:
                    book.awaiting[slot] = None
                    book.wanted = True
                if write_ns:
                    self._note_write(pending, write_ns)
                return
            pending.popleft()
            answer = change.apply(self.catalog, now_ms)
            self.fresh.add(slot)
            ticket = change.ticket
            if ticket is not None:
                ticket.write_ns = ticket.write_ns or write_ns
                ticket.sync_ns = sync_ns
                if change.ack_lsn > durable:
                    book.acks.append((change.ack_lsn, ticket, answer))
                    book.wanted = True
                else:
                    ticket.complete(answer)
            if change.joined:
                for ticket, answer in change.others():
                    ticket.write_ns = ticket.write_ns or write_ns
                    ticket.sync_ns = sync_ns
                    ticket.complete(answer)
            elif isinstance(change, StagedAppend) and change.followers:
                again = msgspec.structs.replace(answer, created=False, deduped=True)
                for follower, durably in change.followers:
                    self.wait_durable(slot, change.end_lsn if durably else 0, follower, again)

    @staticmethod
    def _note_write(pending: deque[Staged], write_ns: int) -> None:
        """What waits for a sync was written in so long, but for what was written before."""
        for change in reversed(pending):
            if change.ticket is not None:
                if change.ticket.write_ns:
                    break
                change.ticket.write_ns = write_ns
            for ticket, *_ in change.joined:
                ticket.write_ns = write_ns

    def wait_durable(self, slot: Slot, lsn: int, ticket: Ticket[Any], answer: Any) -> None:
        """Answer once everything up to `lsn` of the slot's shard is on disk."""
        book = self.books[slot.shard]
        if lsn <= self.wal.shards[slot.shard].durable_lsn:
            ticket.complete(answer)
        else:
            book.acks.append((lsn, ticket, answer))
            book.wanted = True

    def land(self, change: StagedElsewhere) -> None:
        """The frame of a change that lies in another shard's log is on disk: apply it when its turn comes."""
        change.sync_lsn = 0
        self._settle(change.slot, self.books[change.slot.shard], self.now_ms, 0, 0)

    def show(self, copies: StagedCopies, now_ms: int) -> None:
        """The move that these copies are the other half of is applied, in another topic: so are they, at once.

        They are the first of what is pending, for a move is staged only where nothing else is.
        """
        slot = copies.slot
        if slot.pending and slot.pending[0] is copies:
            copies.sync_lsn = 0
            self._settle(slot, self.books[slot.shard], now_ms, 0, 0)

    # -- failing ---------------------------------------------------------------------------------------------------

    def check_root(self, fs: Fs) -> None:
        """Whether the directory is still where it was; else nothing that is written there is found again."""
        if fs.same_root():
            return
        for index, shard in enumerate(self.wal.shards):
            if shard.failed is None:
                shard.failed = OSError("the data directory was moved or replaced")
                self.fail_shard(index)

    def fail_shard(self, index: int) -> None:
        """The shard takes nothing more: what is pending or unanswered on it is unknown; what is visible stays."""
        book = self.books[index]
        book.failed = True
        error = outcome_unknown("the write-ahead log has failed")
        stuck: set[int] = set()
        for slot in list(self.catalog.by_id.values()):
            if slot.shard == index:
                self.fail_pending(slot, error)
            elif any(isinstance(change, StagedElsewhere) and change.shard == index for change in slot.pending or ()):
                # What is behind those copies can never be shown any more, so the topic's own shard ends too.
                stuck.add(slot.shard)
        for _, ticket, _ in book.acks:
            ticket.fail(error)
        book.acks.clear()
        book.awaiting.clear()
        book.touched.clear()
        for other in stuck:
            if self.wal.shards[other].failed is None:
                self.wal.shards[other].failed = self.wal.shards[index].failed
                self.fail_shard(other)

    def fail_pending(self, slot: Slot, error: TopicsError) -> None:
        """Nothing that is pending on this slot will be applied."""
        while slot.pending:
            change = slot.pending.popleft()
            if isinstance(change, StagedAppend):
                self.catalog.bytes_staged -= change.staged_bytes
            self._refuse(change, error)
        slot.keys = None

    @staticmethod
    def _refuse(change: Staged, error: TopicsError) -> None:
        if change.ticket is not None:
            change.ticket.fail(error)
        followers = (isinstance(change, StagedAppend) and change.followers) or ()
        for ticket, *_ in (*change.joined, *followers):
            ticket.fail(error)

    # -- marks -----------------------------------------------------------------------------------------------------

    def mark_quiet(self, now_ms: int, *, everything: bool = False) -> None:
        """Stage a Mark for shards where topics have fallen silent; `everything` at a stop."""
        if now_ms < self._next_mark_ms and not everything:
            return
        self._next_mark_ms = now_ms + max(1, self.settings.quiet_ms // 4)
        for index, book in enumerate(self.books):
            if not book.unmarked or self.wal.shards[index].failed is not None:
                continue
            for slot in [slot for slot in book.unmarked if slot.config.durability is Durability.EPHEMERAL]:
                del book.unmarked[slot]
            silent = [
                slot
                for slot in book.unmarked
                if not slot.pending
                and slot.synced == slot.tip
                and not slot.dirty
                and (everything or now_ms - slot.last_write_ms >= self.settings.quiet_ms)
            ]
            if silent:
                self._mark(index, book, silent)

    def _mark(self, index: int, book: ShardBook, silent: list[Slot]) -> None:
        heads = [(slot.topic.id, slot.tip) for slot in silent]
        body = encode_control_body(MarkBody(heads=heads, quiet=[topic_id for topic_id, _ in heads]))
        if not self.wal.room(index, len(body), True):
            return
        self.wal.stage(index, FrameType.MARK, 0, 0, 0, 0, self.now_ms, body)
        for slot in silent:
            slot.quiet = True
            slot.wake_lsn = 0
            slot.rest()
            del book.unmarked[slot]
        book.wanted = True
