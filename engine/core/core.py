"""The facade: what may be asked of the engine, and how it is driven.

Commands are decided at once against the tip (what has been staged), and raise what they refuse. What is taken gives a
`Ticket`. Reads answer at once from what is visible. Whoever drives the engine calls `turn` after submitting what came
in, runs the jobs that `sync_job` and `chore` hand out wherever it may block, gives their outcome back, and calls
`advance` as time passes. Nothing here blocks on a disk but the write of a group into the page cache.

    submit ─► turn ─► sync_job … sync_done ─► tickets complete, `fresh` names what readers can see anew
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from engine.checkpoint.jobs import Job as KeepJob
from engine.clock import Clock, EpochClock
from engine.commands import Batch, DeleteSelector, check_batch
from engine.core.catching import Catching
from engine.core.commit import Commit
from engine.core.cursors import Cursors
from engine.core.damage import Damage, Found
from engine.core.ephemeral import Ephemeral
from engine.core.forwarding import Forwarding
from engine.core.handover import Handover
from engine.core.jobs import outcome
from engine.core.keeper import Keeper
from engine.core.parking import Parking
from engine.core.queues import Queues
from engine.core.reads import Reads
from engine.core.refusals import capped, check_key, check_key_count, disk_full, elsewhere, mismatch, shutting_down
from engine.core.replay import Replay
from engine.core.routers import Routers
from engine.core.slot import Slot
from engine.core.staged import StagedAppend, StagedConfig, StagedCreate, StagedDelete, StagedDrop, StagedUnchanged
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, StoreIOError, log_failed, topic_not_found
from engine.formats.append import APART_BYTES_MIN, append_pieces, encode_append_body
from engine.formats.control import ConfigBody, CreateBody, DeleteBody, DropBody, encode_control_body
from engine.formats.frame import APPEND, FrameType
from engine.fragment import payload_bytes, render
from engine.fs import Fs
from engine.limits import COLUMN_BYTES, ROOM_BYTES_MIN, ROOM_SLACK, SYNC_WINDOW, EngineSettings, Limits
from engine.names import check_topic_name
from engine.store.recovery import OpenedStore, open_store
from engine.topic.history import NotCached
from engine.topic.idempotency import batch_digest
from engine.topic.state import check_fits
from engine.topic.tags import resolve_delete
from engine.types import (
    EPHEMERAL,
    FSYNC,
    AppendResult,
    CheckpointDone,
    ConfigChanges,
    DeleteResult,
    Durability,
    TopicConfig,
    TopicDropped,
    TopicPut,
    configured,
)
from engine.wal.prepare import Chore
from engine.wal.wal import SyncJob, Wal


class Core(Reads):
    """One open store. Not thread-safe: one thread owns it."""

    def __init__(self, fs: Fs, clock: Clock, opened: OpenedStore, replay: Replay, limits: Limits) -> None:
        self.limits = limits
        self.settings = replay.settings
        self.store = opened
        super().__init__(replay.catalog, fs)
        self.wal: Wal = opened.wal
        self.commit = Commit(self.wal, fs, clock, self.catalog, self.settings)
        self.fresh: set[Slot] = self.commit.fresh
        """Topics with something new for readers; whoever drives the engine clears it."""
        self.ephemeral = Ephemeral(self.wal, self.commit, self._room)
        self.closing = False
        self._time = opened.time
        self._epochs = EpochClock(clock, self._time.now_ms)
        self._time_is_fresh = False
        self.parking = Parking()
        self.damage = Damage(self.catalog, self.commit, self._room, self._park, self.now)
        self.forwarding = Forwarding(self)
        self.routers = Routers(self)
        self.catching = Catching(self)
        self.keeper = Keeper(opened, self.wal, self.commit, self.catalog, clock, self.settings)
        self._next_second_ms = 0
        self.queues = Queues(self)
        self.cursors = Cursors(self)
        self.handover = Handover(self)

    @classmethod
    def open(
        cls,
        fs: Fs,
        clock: Clock,
        settings: EngineSettings | None = None,
        limits: Limits | None = None,
        progress: Callable[[float], None] | None = None,
        pid: int = 0,
    ) -> Core:
        """Lock, recover and open the store under the root of `fs`; a missing one is made.

        `progress` is called with 0 … 1 while the log is replayed; `pid` is what a second owner is told. Raises the
        `StoreError`s of `engine.errors`.
        """
        settings = settings if settings is not None else EngineSettings()
        opened = open_store(fs, clock, settings, pid)
        replay = Replay(opened, settings)
        replay.run(progress)
        opened.engine_time(replay.last_ts)
        # So far only reading, and the same as in engine.core.inspection; from here on the disk changes.
        opened.execute(replay.attached_files)
        core = cls(fs, clock, opened, replay, limits if limits is not None else Limits())
        replay.finish(core.commit, core.now(), core._make_room)
        core._settle_start()
        opened.go_live()
        core.queues.begin(opened.starts)
        core.routers.begin()
        return core

    def _make_room(self, shard: int, body_len: int) -> None:
        """Do the chores that a frame of recovery needs, here and now."""
        while not self.wal.room(shard, body_len, True):
            self.commit.write_groups(self.now())
            chore = self.wal.next_chore(self.now())
            if chore is None:
                raise StoreIOError(f"no space for what recovery has to write ({self.wal.full(shard)}); free some")
            self.wal.chore_done(chore, outcome(chore, self.fs))

    def _settle_start(self) -> None:
        """Write and sync what recovery had to add (gaps), before anything can be asked."""
        self.commit.write_groups(self.now())
        while (job := self.commit.sync_job(self.now())) is not None:
            self.sync_done(job, outcome(job, self.fs))
        self.commit.fresh.clear()

    # -- commands --------------------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        batch: Batch,
        *,
        key: bytes | None = None,
        create: bool | None = None,
        config: ConfigChanges | None = None,
        ack_fsync: bool = False,
    ) -> Ticket[AppendResult]:
        """Write a batch, whole or not at all (http-api.md §4). `create` says whether a missing topic may be made (None:
        its `auto_create` decides), `config` what it is made with. `ack_fsync`: the answer waits for the disk."""
        check_batch(batch, self.limits)
        if key is not None:
            check_key(key, self.limits.idempotency_key_bytes)
        ticket: Ticket[AppendResult] = Ticket()
        slot = None if self.parking.entries else self.catalog.tip.get(name)
        if slot is not None and self._append_to(slot, ticket, batch, key, ack_fsync, False):
            return ticket
        asked = (ticket, name, batch, key, create, config, ack_fsync)
        if slot is not None or self.parking.blocks(name) or not self._append(*asked):
            self._park(name, ticket, partial(self._append, *asked))
        return ticket

    def _append(
        self,
        ticket: Ticket[AppendResult],
        name: str,
        batch: Batch,
        key: bytes | None,
        create: bool | None,
        config: ConfigChanges | None,
        ack_fsync: bool,
    ) -> bool:
        """Stage a batch; False when it has to wait for room or for the disk."""
        slot = self.catalog.tip.get(name)
        if slot is not None:
            return self._append_to(slot, ticket, batch, key, ack_fsync, False)
        check_topic_name(name)
        if create is False or (create is None and name in self.catalog.closed_names):
            raise topic_not_found(name)
        new = configured(name, None, config if config is not None else ConfigChanges())
        self.queues.check(name, new)
        self._check_new_topic(name)
        if key is not None:
            check_key_count(self.catalog.keys, self.limits.idempotency_keys, self.now())
        shard = self.catalog.shard_of(self._next_id())
        if (self.wal.shards[shard].want or len(batch) > 1) and not self._room(shard, batch.bytes):
            return False
        rendered = render(batch, 1, self.now())
        self._check_fits(new, payload_bytes(rendered, 1, self.now()), None)
        room = ROOM_SLACK + len(rendered.fragments) + COLUMN_BYTES * len(batch) + len(key or b"")
        if not self._room(shard, room):
            return False
        slot = self._create(name, new, None)
        staged = self._append_to(slot, ticket, batch, key, ack_fsync, True)
        assert staged, "room for both frames was checked"
        return True

    def _append_to(
        self, slot: Slot, ticket: Ticket[AppendResult], batch: Batch, key: bytes | None, ack_fsync: bool, created: bool
    ) -> bool:
        shard = self.wal.shards[slot.shard]
        if self.closing or shard.failed is not None or slot.moved is not None:
            self._check_writable(slot.shard, slot)
        now = self._time.now_ms if self._time_is_fresh else self._read_clocks()
        digest = b""
        if key is not None:
            digest = batch_digest(batch)
            if self._is_retry(slot, ticket, key, digest, ack_fsync, now):
                return True
        config = slot.config
        count = len(batch.datas)
        first = slot.tip + 1
        if slot.tip + count - slot.synced > SYNC_WINDOW and config.durability is not EPHEMERAL:
            self.commit.books[slot.shard].wanted = True
            return False
        looks = shard.want or (count > 1 and len(batch.datas[0]) > ROOM_BYTES_MIN)
        if looks and config.durability is not EPHEMERAL and not self._room(slot.shard, batch.bytes):
            return False
        rendered = render(batch, first, now)
        size = 0
        if config.cap_bytes or config.cap_records or self.limits.total_bytes:
            size = self._check_fits(config, payload_bytes(rendered, first, now), slot)
        plain = rendered.size >= 0 and key is None and not ack_fsync and not size
        if plain and shard.staged and self.commit.join(slot, ticket, first, rendered, now):
            slot.logged = slot.tip = first + count - 1
            slot.staged_records += count
            return True
        change = StagedAppend(slot, ticket, first, rendered, now, key, digest, created, size)
        if config.durability is EPHEMERAL:
            if not self.ephemeral.stage(slot, change, count):
                return False
        else:
            body: bytes | tuple[bytes, bytes]
            if count == 1 or len(rendered.fragments) < APART_BYTES_MIN:
                flags, body = encode_append_body(key, digest, rendered)
                length = len(body)
            else:
                flags, body = append_pieces(key, digest, rendered)
                length = len(body[0]) + len(body[1])
            if shard.tip_lsn + ((length + 95) & ~7) > shard.append_limit and not self._room(slot.shard, length):
                return False
            end = self.wal.stage(slot.shard, APPEND, flags, count, slot.topic.id, first, now, body)
            slot.logged = first + count - 1
            if slot.quiet:
                slot.quiet = False
                slot.wake_lsn = end
            if ack_fsync:
                change.ack_lsn = end
            self.commit.add(change, end, sync=config.durability is FSYNC)
            self.commit.books[slot.shard].open = change if plain else None
        slot.tip += count
        slot.staged_records += count
        if size:
            slot.staged_bytes += size
            self.catalog.bytes_staged += size
        slot.last_write_ms = now
        self._time_is_fresh = True  # for the rest of the group, until `turn` writes it
        if key is not None:
            if slot.keys is None:
                slot.keys = {}
            slot.keys[key] = change
        return True

    def _is_retry(
        self, slot: Slot, ticket: Ticket[AppendResult], key: bytes, digest: bytes, ack_fsync: bool, now: int
    ) -> bool:
        """Answer a write whose key is known; 422 when it holds other records than the first one."""
        flying = None if slot.keys is None else slot.keys.get(key)
        if flying is not None:
            if flying.digest != digest:
                raise mismatch(key)
            flying.followers = [*(flying.followers or ()), (ticket, ack_fsync)]
            return True
        topic = slot.topic
        known = topic.idempotency.find(key, now)
        if known is None:
            check_key_count(self.catalog.keys, self.limits.idempotency_keys, now)
            return False
        if known.digest != digest:
            raise mismatch(key)
        answer = known.again(topic.name, topic.head, topic.epoch)
        self.commit.wait_durable(slot, self.wal.shards[slot.shard].written_lsn if ack_fsync else 0, ticket, answer)
        return True

    def put_topic(self, name: str, changes: ConfigChanges) -> Ticket[TopicPut]:
        """Create a topic, or change the configuration of one (http-api.md §3)."""
        check_topic_name(name)
        ticket: Ticket[TopicPut] = Ticket()
        if self.parking.blocks(name) or not self._put_topic(ticket, name, changes):
            self._park(name, ticket, partial(self._put_topic, ticket, name, changes))
        return ticket

    def _put_topic(self, ticket: Ticket[TopicPut], name: str, changes: ConfigChanges) -> bool:
        slot = self.catalog.tip.get(name)
        config = configured(name, None if slot is None else slot.config, changes)
        self.queues.check(name, config)
        if slot is None:
            self._check_new_topic(name)
            if not self._room(self.catalog.shard_of(self._next_id()), ROOM_SLACK):
                return False
            self._create(name, config, ticket)
            return True
        self._check_writable(slot.shard, slot)
        if config == slot.config:
            self.commit.add_free(StagedUnchanged(slot, ticket))
            return True
        body = encode_control_body(ConfigBody(config=config))
        if not self._room(slot.shard, len(body)) or not self.ephemeral.turns(slot, config):
            return False
        now = self.now()
        end = self.wal.stage(slot.shard, FrameType.CONFIG, 0, 0, slot.topic.id, 0, now, body)
        slot.config = config
        self.commit.add(StagedConfig(slot, ticket, config, now), end, sync=True)
        return True

    def _create(self, name: str, config: TopicConfig, ticket: Ticket[TopicPut] | None) -> Slot:
        """Stage a Create; the caller has checked that it may be made, and that there is room."""
        topic_id, epoch = self._next_id(), self._epochs.next(self.catalog.last_epoch)
        slot = self.catalog.add_tip(name, topic_id, epoch, config)
        slot.last_write_ms = now = self.now()
        body = encode_control_body(CreateBody(name=name, epoch=epoch, config=config))
        end = self.wal.stage(slot.shard, FrameType.CREATE, 0, 0, topic_id, 0, now, body)
        self.commit.add(StagedCreate(slot, ticket), end, sync=True)
        return slot

    def drop_topic(self, name: str, *, if_empty: bool = False) -> Ticket[TopicDropped]:
        """Remove a topic with everything in it; an absent one is `deleted: false`."""
        check_topic_name(name)
        ticket: Ticket[TopicDropped] = Ticket()
        if self.parking.blocks(name) or not self._drop_topic(ticket, name, if_empty):
            self._park(name, ticket, partial(self._drop_topic, ticket, name, if_empty))
        return ticket

    def _drop_topic(self, ticket: Ticket[TopicDropped], name: str, if_empty: bool) -> bool:
        slot = self.catalog.tip.get(name)
        if slot is None:
            ticket.complete(TopicDropped(topic=name, deleted=False, routers_removed=[]))
            return True
        self._check_writable(slot.shard)
        self.handover.check_drop(slot)
        now = self.now()
        if if_empty:
            live = slot.topic.at(now).count + slot.staged_records
            if live:
                raise Refused(
                    Code.TOPIC_NOT_EMPTY, f"topic {name!r} holds {live} records", {"topic": name, "count": live}
                )
        body = encode_control_body(DropBody())
        if not self._room(slot.shard, len(body), control=True):
            return False
        end = self.wal.stage(slot.shard, FrameType.DROP, 0, 0, slot.topic.id, 0, now, body)
        self.catalog.drop_tip(slot)
        self.commit.add(StagedDrop(slot, ticket, self.routers.leave(slot)), end, sync=True)
        return True

    def delete(self, name: str, selector: DeleteSelector) -> Ticket[DeleteResult]:
        """Delete the live records that the selector means, for good (http-api.md §6). Raises `NotCached` and
        `LargeDelete`."""
        check_topic_name(name)
        ticket: Ticket[DeleteResult] = Ticket()
        if self.parking.blocks(name) or not self._delete(ticket, name, selector):
            self._park(name, ticket, partial(self._delete_parked, ticket, name, selector))
        return ticket

    def _delete_parked(self, ticket: Ticket[DeleteResult], name: str, selector: DeleteSelector) -> bool:
        """As `_delete`; nobody is there any more who could read for it, or ask for less: all of it is done here."""
        try:
            return self._delete(ticket, name, replace(selector, most=0))
        except NotCached as missing:
            self.read_here(missing)
        return False

    def _delete(self, ticket: Ticket[DeleteResult], name: str, selector: DeleteSelector) -> bool:
        slot = self.catalog.reader(name)
        if slot.dropped:
            raise topic_not_found(name)
        self._check_writable(slot.shard, slot)
        now = self.now()
        ranges = resolve_delete(slot.topic, selector, now)
        change = StagedDelete(slot, ticket, ranges, now)
        logged = ranges
        if slot.config.durability is Durability.EPHEMERAL:
            logged = [(first, min(last, slot.logged)) for first, last in ranges if first <= slot.logged]
        if not logged:
            self.commit.add_free(change)
            return True
        body = encode_control_body(DeleteBody(ranges=logged))
        if not self._room(slot.shard, len(body), control=True):
            return False
        end = self.wal.stage(slot.shard, FrameType.DELETE, 0, 0, slot.topic.id, 0, now, body)
        self.commit.add(change, end, sync=slot.config.durability is Durability.FSYNC)
        return True

    # -- the drive -------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Engine time in milliseconds: read anew, but for what belongs to one group, which has one time."""
        return self._time.now_ms if self._time_is_fresh else self._read_clocks()

    def _read_clocks(self) -> int:
        """Engine time now; the next command reads the clocks again."""
        self._time_is_fresh = False
        self.commit.now_ms = now = self._time.advance()
        return now

    def turn(self) -> None:
        """Write what was staged, and apply and answer what that makes true."""
        now = self._time.now_ms if self._time_is_fresh else self._read_clocks()
        self.commit.write_groups(now)
        if self.parking.entries:
            self.parking.retry(now)
        self.queues.serve(now)
        if self.ephemeral.mixed:
            self.ephemeral.log_evictions()
        cache = self.catalog.cache
        if cache.history.damaged or 0 < cache.bytes_max < cache.bytes_held:
            self.end_of_reads()
        self._time_is_fresh = False

    def route(self) -> bool:
        """Let routers copy what is new, for one slice; whether to call again soon."""
        return self.forwarding.step()

    def end_of_reads(self) -> None:
        """Give back the memory that reads of old records took; all that a tick of reads alone asks for."""
        cache = self.catalog.cache
        if cache.history.damaged:
            damaged, cache.history.damaged = cache.history.damaged, []
            self._damaged(damaged, Ticket())
        if cache.over:
            records, size = cache.shrink()
            self.catalog.records_live -= records
            self.catalog.bytes_live -= size

    def _damaged(self, damage: list[Found], ticket: Ticket[bool]) -> None:
        self.damage.found(damage, ticket)

    def advance(self) -> int:
        """Let time pass: marks, stalls, parked deadlines. Returns engine time in milliseconds."""
        now = self._read_clocks()
        self.commit.watch_stall(now)
        self.commit.mark_quiet(now)
        self.queues.serve(now)
        self.catalog.cache.history.learn_some()
        self.forwarding.retry(now)
        if now >= self._next_second_ms:
            self._next_second_ms = now + 1000
            self.catalog.expire_some(now)
            self.catalog.keys.expire_some(now)
            self.commit.check_root(self.fs)
        return now

    def sync_job(self, now_ms: int | None = None) -> SyncJob | None:
        """A sync to run; call after `turn` (at its time or another) until it returns None. Writes what is staged."""
        return self.commit.sync_job(self._read_clocks() if now_ms is None else now_ms)

    def sync_done(self, job: SyncJob, error: OSError | None) -> None:
        """The outcome of a sync."""
        self.commit.sync_done(job, error, now := self._read_clocks())
        self.queues.serve(now)

    def chore(self) -> Chore | None:
        """A piece of background work (space for the log) to run; one at a time."""
        return self.wal.next_chore(self._read_clocks())

    def chore_done(self, chore: Chore, error: OSError | None) -> None:
        """The outcome of a chore."""
        self.wal.chore_done(chore, error)
        for index, shard in enumerate(self.wal.shards):
            if shard.failed is not None and not self.commit.books[index].failed:
                self.commit.fail_shard(index)
        self.parking.retry(self._read_clocks())

    def checkpoint(self) -> Ticket[CheckpointDone]:
        """Make a checkpoint of everything up to now; its steps and jobs are for whoever drives the engine."""
        return self.keeper.ask()

    def keep_step(self) -> bool:
        """Do the loop's next slice of a checkpoint that is due or under way; whether to call again soon."""
        return self.keeper.step(self._read_clocks())

    def keep_job(self) -> KeepJob | None:
        """A checkpoint's next job, to run wherever it may block; one at a time."""
        return self.keeper.job()

    def keep_done(self, job: KeepJob, error: OSError | None) -> None:
        """The outcome of such a job; `keep_step` goes on from there."""
        self.keeper.job_done(job, error, self._read_clocks())
        self.damage.take(self.keeper.damage)

    @property
    def read_only(self) -> str | None:
        """Why (part of) the store takes no writes, or None."""
        return None if (failure := self.wal.failure) is None else str(failure)

    @property
    def busy(self) -> bool:
        """Whether something is staged, unsynced or parked, so that `turn` and `sync_job` have to be called again."""
        return bool(self.parking) or self.forwarding.busy or self.commit.busy

    @property
    def sync_due_ms(self) -> int | None:
        """When the next background sync is due, in engine time; None when nothing is waiting for one."""
        return self.commit.sync_due_ms

    def close(self) -> None:
        """Stop cleanly: everything staged is written, synced and marked, and the lock says so.

        Blocks. No sync and no chore may be in flight: whoever drives the engine has handed them back before.
        """
        if self.closing:
            return
        assert self.wal.idle, "what is in flight was not handed back: it would be waited for without end"
        self.commit.check_root(self.fs)
        self.closing = True
        self.parking.clear(shutting_down())
        self.queues.shut()
        self._flush()
        uncovered = self.keeper.uncovered_bytes > self.settings.stop_checkpoint_bytes or self.queues.uncovered
        if self.keeper.problem is None and uncovered:
            self.keeper.run_now(self.fs, self.now, self._flush_all)
        self.ephemeral.release()
        self._flush()
        self.commit.mark_quiet(self.now(), everything=True)
        self._flush()
        self.catalog.cache.history.close()
        self.store.stop(clean=self.read_only is None)

    def _flush(self) -> None:
        self.commit.write_groups(self.now())
        for book in self.commit.books:
            book.wanted = True
        while (job := self.commit.sync_job(self.now())) is not None:
            self.sync_done(job, outcome(job, self.fs))

    def _flush_all(self) -> None:
        self._flush()
        while (chore := self.chore()) is not None:
            self.chore_done(chore, outcome(chore, self.fs))

    # -- checks and waiting ----------------------------------------------------------------------------------------

    def _check_writable(self, shard: int, slot: Slot | None = None) -> None:
        if self.closing:
            raise shutting_down()
        failed = self.wal.shards[shard].failed
        if failed is not None:
            raise log_failed(failed)
        if slot is not None and slot.moved is not None:
            raise elsewhere(slot.name, slot.moved)

    def _next_id(self) -> int:
        """The id of the next topic: one that lives on a shard which takes writes, if there is one."""
        first = self.catalog.last_id + 1
        for topic_id in range(first, first + 8 * len(self.wal.shards)):
            if self.wal.shards[self.catalog.shard_of(topic_id)].failed is None:
                return topic_id
        return first

    def _check_new_topic(self, name: str) -> None:
        """Whether one more topic may be made now."""
        self.handover.check_new(name)
        self._check_writable(self.catalog.shard_of(self._next_id()))
        if self.limits.topics and len(self.catalog.tip) >= self.limits.topics:
            raise capped("max_topics", self.limits.topics)

    def _check_fits(self, config: TopicConfig, sizes: list[int], slot: Slot | None) -> int:
        """Refuse what can never fit, or does not fit now; returns the bytes that the batch counts for."""
        total = sum(sizes)
        if slot is None:
            check_fits(config, sizes, None, 0, 0)
        else:
            check_fits(config, sizes, slot.topic, slot.staged_records, slot.staged_bytes, self.now())
        most = self.limits.total_bytes
        if most and self.catalog.bytes_live + self.catalog.bytes_staged + total > most:
            raise capped("max_total_bytes", most)
        return total

    def _room(self, shard: int, body_len: int, *, control: bool = False) -> bool:
        """Whether the log has room now; raises 507 when it cannot be had, False when it is on its way."""
        if self.wal.room(shard, body_len, control):
            return True
        why = self.wal.full(shard)
        if why is not None:
            raise disk_full(why)
        return False

    def _park(self, name: str, ticket: Ticket[Any], attempt: Callable[[], bool]) -> None:
        self.parking.add(name, ticket, attempt, self.now())
