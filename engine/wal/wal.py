"""The write-ahead log: all shards, the counters they share, and the jobs that the driver runs for them.

Nothing here makes a system call: `take_groups`, `begin_sync` and `next_chore` hand out jobs whose `run(fs)` does, on
the loop (groups: page-cache writes) or in threads (syncs, chores); the driver hands each back with the error that it
raised, or None. One tick of a driver:

    room? → stage … stage → take_groups → run each → group_done → (ack disk) → begin_sync → … → sync_done → (ack fsync)

All groups of a tick are written before any ack of it: each frame says how many shards its tick touched, and recovery
drops a last tick that is incomplete. So if one group of a tick fails, the outcome of the *whole* tick is unknown.

Files begin small and grow while they fill; when little is written a checkpoint goes on in a small one (`begin_anew`,
docs/adr/0033-log-files-grow-with-use.md).

Space: appends leave `reserve` usable bytes, already allocated, to the frames that must succeed on a full disk
(docs/adr/0014-reserve-as-allocated-wal-space.md).
"""

from __future__ import annotations

from typing import Final

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from engine.formats.append import SharedBody
from engine.formats.frame import PADDINGS, FrameHeader, align_block, pack_checked, pack_u32, seed_of
from engine.formats.manifest import Manifest, ShardEntry, encode_meta
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.wal.chain import DATA_START, LogFile, file_of
from engine.wal.prepare import RETRY_MS, SPACE_ERRNOS, Chore, Extend, Fill, OpenFile, Prepare, Shorten, Trim
from engine.wal.reader import FrameReader
from engine.wal.shard import GroupWrite, Shard, Staged, SyncJob

__all__ = ["Chore", "GroupWrite", "SyncJob", "Wal"]

_JOIN_MAX: Final = 16 * 1024
"""Bodies up to this size are copied into one buffer with their neighbours; longer ones are written from where they
lie."""
_STEPS_AHEAD: Final = 3
"""So many steps of zeros are ahead of the tip: the log goes on in them while a busy disk takes its time over one."""
_GROWTH: Final = 4
"""A log file is at most this many times as large as the one before."""


class Wal:
    """See above. Made by recovery (engine/store/execute.py)."""

    def __init__(
        self, store_id: bytes, settings: EngineSettings, shards: list[Shard], entries: list[ShardEntry], active: int
    ) -> None:
        self.shards = shards
        self.active = active
        """Shards below this take writes; others are left from a time when there were more."""
        self.seed = seed_of(store_id)
        self.order = 1
        """The next frame's."""
        self.tick = 1
        """The next group write's."""
        self.syncs = 0
        self.rotations = 0
        self._store_id = store_id
        self._settings = settings
        self._entries = {entry.shard: entry for entry in entries}
        self._chore: Chore | None = None
        self._touched: list[Shard] = []
        """Shards that have something staged."""
        self._look = True
        """Whether a chore may be needed: so that asking costs nothing in most ticks."""
        self._trim_due = False
        """Whether MANIFEST has to hear where the log begins now."""
        self.left: list[str] = []
        """Files that could not be removed, and why; whoever tells it takes it."""
        self._reader: FrameReader | None = None
        for shard in shards:
            shard.set_reserve(settings.wal_reserve_bytes, settings.wal_first_bytes)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of the log that no sync covers yet."""
        return sum(max(0, shard.last_end - shard.durable_lsn) for shard in self.shards)

    @property
    def bytes_allocated(self) -> int:
        """What the files of the log take on the disk, the one prepared ahead included."""
        return sum(file.size for shard in self.shards for file in shard.files)

    # --- writing, on the loop -----------------------------------------------------------------------------------

    def room(self, shard: int, body_len: int, control: bool = False) -> bool:
        """Whether a frame with this body can be staged now.

        False means: not before a chore is done (or never on this shard, see `full` and `Shard.failed`). Control frames
        may use the reserve.
        """
        state = self.shards[shard]
        total = (body_len + 95) & ~7
        if state.failed is not None:
            return False
        if state.tip_lsn + total <= state.append_limit or state.fits(total, 0 if control else state.reserve):
            if total >= state.want:
                state.want = 0  # whoever asked for so much has it, though the frame may be smaller than was thought
            return True
        state.want = max(state.want, total)
        self._look = True
        return False

    @property
    def failure(self) -> OSError | None:
        """Why (part of) the log takes no writes any more, or None."""
        return next((shard.failed for shard in self.shards if shard.failed is not None), None)

    def full(self, shard: int) -> OSError | None:
        """Why there is no space for what found no room; None while it may still come. It is tried again meanwhile."""
        state = self.shards[shard]
        if state.tip_lsn + state.want + state.reserve <= state.current.log.end_lsn:
            return None
        return state.full

    def stage(
        self,
        shard: int,
        type_: int,
        flags: int,
        count: int,
        topic_id: int,
        first_seq: int,
        ts: int,
        body: bytes | tuple[bytes, ...],
    ) -> int:
        """Put a frame on the tip, to be written by the next groups; returns the lsn of its end.

        Only right after `room` said True for this body. The frame's own lsn is `Shard.last_lsn` afterwards.
        """
        state = self.shards[shard]
        body_len = len(body) if isinstance(body, bytes) else sum(map(len, body))
        total = (body_len + 95) & ~7
        lsn = state.tip_lsn
        if lsn + total > state.current.filled_lsn:
            self._rotate(state)
            lsn = state.tip_lsn
            assert lsn + total <= state.current.filled_lsn, "staged without room"
        if total >= state.want:
            state.want = 0
        order = self.order
        self.order = order + 1
        if not state.staged:
            self._touched.append(state)
        state.staged.append(
            (
                state.current,
                type_,
                flags,
                count,
                topic_id,
                first_seq,
                ts,
                body,
                body_len,
                lsn,
                lsn - state.last_lsn if state.last_lsn >= 0 else 0,
                order,
            )
        )
        state.last_lsn = lsn
        state.tip_lsn = state.last_end = end = lsn + total
        if end > state.chore_lsn:
            self._look = True
        return end

    def lengthen(self, shard: int, body: bytes | SharedBody, body_len: int) -> int:
        """Make the last frame of the tip, which is still staged, one with this body, of this length; returns the lsn of
        its end then, or 0 where it stays as it is, because there is no room at hand."""
        state = self.shards[shard]
        end = state.last_lsn + ((body_len + 95) & ~7)
        if end > state.append_limit:
            return 0
        frame = state.staged[-1]
        if frame[7] is not body:
            state.staged[-1] = (*frame[:7], body, body_len, *frame[9:])
        state.tip_lsn = state.last_end = end
        if end > state.chore_lsn:
            self._look = True
        return end

    @property
    def has_staged(self) -> bool:
        """Whether there is something for `take_groups` to give."""
        return bool(self._touched)

    def take_groups(self) -> list[GroupWrite]:
        """All that is staged, as one write a shard."""
        groups: list[GroupWrite] = []
        touched = self._touched
        if touched:
            self._touched = []
            tick = self.tick
            self.tick = tick + 1
            for shard in touched:
                writes = _packed(shard.staged, self.seed, tick, len(touched), shard.durable_lsn)
                shard.staged = []
                groups.append(GroupWrite(shard.index, tick, shard.tip_lsn, writes))
        return groups

    def group_done(self, group: GroupWrite, error: OSError | None) -> None:
        """Take the outcome of a group in."""
        shard = self.shards[group.shard]
        if error is None:
            shard.written_lsn = group.end_lsn
        elif shard.failed is None:
            shard.failed = error

    # --- syncing ------------------------------------------------------------------------------------------------

    def begin_sync(self, shard: int) -> SyncJob | None:
        """A sync of all that is written, or None: nothing to sync, one is in flight, or the shard has failed.

        The caller has taken and written all groups. What is staged from here on goes to a fresh block, so that nothing
        below the sync's start is ever written again.
        """
        state = self.shards[shard]
        end = state.last_end
        if state.syncing or state.failed is not None or (end <= state.durable_lsn and not state.retired):
            return None
        assert state.written_lsn >= end, "a sync begins when all groups are written"
        # No frame says more than this of what is durable, also where the log has gone on in a new file without one.
        state.written_lsn = lsn = align_block(end)
        state.tip_lsn = max(state.tip_lsn, lsn)
        if state.tip_lsn > state.chore_lsn:
            self._look = True
        retired, state.retired = state.retired, []
        state.syncing = True
        return SyncJob(shard, retired, state.current, lsn, end, state.last_lsn)

    def sync_done(self, job: SyncJob, error: OSError | None) -> None:
        """Take the outcome of a sync in. One failure is for good: a second sync could succeed without the data."""
        state = self.shards[job.shard]
        state.syncing = False
        if error is not None:
            state.failed = state.failed or error
        elif state.failed is None:
            state.durable_lsn = job.lsn
            state.durable_end = job.end_lsn
            state.durable_last = job.last_lsn
            self.syncs += 1

    # --- making room --------------------------------------------------------------------------------------------

    def next_chore(self, now_ms: int) -> Chore | None:
        """The most urgent piece of preparation, or None. One is in flight in the whole store.

        `now_ms` only paces the attempts on a full disk; any clock that does not step will do.
        """
        if self._chore is not None or not self._look:
            return None
        self._look = False
        for shard in self.shards[: self.active]:
            if shard.failed is None:
                self._chore = self._chore_for(shard, now_ms)
                if self._chore is not None:
                    self._look = True
                    return self._chore
        if self._trim_due:
            self._trim_due = False
            logs = [
                log
                for shard in self.shards
                for log in shard.files
                if log.end_lsn <= self._entries[shard.index].start_lsn and log != shard.current.log
            ]
            self._chore = Trim(0, logs, self.manifest())
        return self._chore

    def keep_from(self, starts: dict[int, int]) -> None:
        """What lies below these positions of the shards is not needed any more; a chore removes its files."""
        for shard, start_lsn in starts.items():
            entry = self._entries[shard]
            if start_lsn > entry.start_lsn:
                self._entries[shard] = msgspec.structs.replace(entry, start_lsn=start_lsn)
                self._trim_due = self._look = True

    def begin_anew(self) -> None:
        """See to small files for the shards that have larger ones, to go on in (`is_anew`)."""
        small = self._settings.wal_first_bytes
        for shard in self.shards[: self.active]:
            shard.anew = shard.current.log.size > small or (shard.next is not None and shard.next.log.size > small)
            self._look = self._look or shard.anew

    def is_anew(self) -> bool:
        """Go on in the small files that are ready; whether no more are to be waited for. For want of space it stays as
        it is, and where something has waited that only the next file has room for: perhaps it never comes."""
        small = self._settings.wal_first_bytes
        for shard in self.shards:
            waits = shard.tip_lsn + shard.want > shard.current.log.end_lsn
            if shard.failed is not None or shard.full is not None or (waits and shard.next is not None):
                shard.anew = False
            if not shard.anew or self._chore is not None:
                continue
            if shard.current.log.size <= small:
                shard.anew = shard.next is not None and shard.next.log.size > small
            elif shard.next is not None and shard.next.log.size <= small:
                self._rotate(shard)
        return not any(shard.anew for shard in self.shards)

    def _shorten(self, shard: Shard, following: OpenFile) -> Shorten:
        """Make the next file a small one. The log must not go into what is given back while that is done."""
        log = following.log._replace(size=self._settings.wal_first_bytes)
        shard.files[shard.files.index(following.log)] = following.log = log
        following.filled_lsn = min(following.filled_lsn, log.end_lsn)
        shard.set_limit()
        self._named(log)
        return Shorten(log, self.manifest())

    def lets_go(self, starts: dict[int, int]) -> bool:
        """Whether some file would not be needed any more if the log were kept from these positions on."""
        return any(
            self._entries[shard.index].start_lsn < log.end_lsn <= starts.get(shard.index, 0)
            for shard in self.shards
            for log in shard.files
        )

    def _chore_for(self, shard: Shard, now_ms: int) -> Chore | None:
        """What this shard needs next: usable space for what waits, then space ahead, then the next file."""
        settings = self._settings
        current, following = shard.current, shard.next
        end_lsn = current.log.end_lsn
        wanted = shard.want + shard.reserve
        here = shard.tip_lsn + shard.want <= end_lsn
        ahead = max(_STEPS_AHEAD * settings.wal_fill_bytes + shard.reserve, wanted if here else 0)
        half = (current.log.size - DATA_START) // 2
        filled_end = current.filled_lsn
        if following is not None and filled_end == end_lsn and following.filled_lsn < following.log.end_lsn:
            filled_end = following.filled_lsn
        filled_mark = filled_end - ahead if filled_end != end_lsn else end_lsn
        shard.chore_lsn = min(filled_mark, end_lsn - max(half, wanted)) if following is None else filled_mark
        if current.filled_lsn < min(end_lsn, shard.tip_lsn + ahead):
            return Fill(current, settings.wal_fill_bytes)
        if shard.anew and following is not None and here and following.log.size > settings.wal_first_bytes:
            return self._shorten(shard, following)
        if following is not None and (here or following.log.size - DATA_START >= wanted):
            need = max(shard.tip_lsn + ahead - end_lsn, shard.reserve) if here else wanted
            need = min(need, following.log.size - DATA_START)
            return Fill(following, settings.wal_fill_bytes) if following.room < need else None
        if shard.full is not None and now_ms < shard.retry_ms:
            self._look = True
            return None
        small = settings.wal_first_bytes
        grown = small if shard.anew else min(_GROWTH * max(current.log.size, small), settings.wal_file_bytes)
        size = max(grown, DATA_START + align_block(wanted))
        if following is not None:
            shard.retry_ms = now_ms + RETRY_MS
            manifest = self._manifest_with(following.log._replace(size=size))
            return Extend(following.log, size, settings.disk_reserve_bytes, manifest)
        if end_lsn - shard.tip_lsn >= max(half, wanted) and not (shard.anew and current.log.size > small):
            return None
        log = LogFile(shard.index, end_lsn, shard.run, size)
        shard.retry_ms = now_ms + RETRY_MS
        fill = max(settings.wal_fill_bytes, wanted)
        return Prepare(log, self._store_id, now_ms, fill, settings.disk_reserve_bytes, self._manifest_with(log))

    def chore_done(self, chore: Chore, error: OSError | None) -> None:
        """Take the outcome of a chore in: lack of space passes, anything else ends the shard."""
        assert chore is self._chore, "a chore that is not in flight"
        self._chore = None
        self._look = True
        if isinstance(chore, Trim):
            self._trimmed(chore, error)
            return
        shard = self.shards[chore.shard]
        if error is not None:
            if error.errno in SPACE_ERRNOS and isinstance(chore, Shorten):
                shard.anew = False  # MANIFEST may know the old size, which the file still has
            elif error.errno in SPACE_ERRNOS:
                shard.full = error
            elif shard.failed is None:
                shard.failed = error
            return
        match chore:
            case Prepare(made=made, log=log):
                shard.next = made
                shard.files.append(log)
                shard.full = None
                self._named(log)
            case Extend(longer=longer):
                shard.files[-1] = longer
                if (file := shard.maybe_file_at(longer.first_lsn)) is not None:
                    file.log = longer
                shard.full = None
                self._named(longer)
            case Fill(first_lsn=first_lsn, filled_lsn=filled_lsn):
                if (file := shard.maybe_file_at(first_lsn)) is not None:
                    file.filled_lsn = filled_lsn
        shard.set_limit()

    def _trimmed(self, chore: Trim, error: OSError | None) -> None:
        """Take the outcome of a trim in. After an error all the files are still there, and the next one takes them."""
        if error is not None:
            return
        self.left += chore.left
        gone = set(chore.logs)
        for shard in self.shards:
            shard.files = [log for log in shard.files if log not in gone]
        if self._reader is not None:
            self._reader.close()

    # --- reading and closing ------------------------------------------------------------------------------------

    def file_of(self, shard: int, lsn: int) -> LogFile:
        """The file that owns a position."""
        return file_of(self.shards[shard].files, lsn)

    def read_body(self, fs: Fs, shard: int, lsn: int) -> tuple[FrameHeader, bytes]:
        """A written frame, read back and checked. Raises `StoreDamaged` when it no longer checks, and `OSError`."""
        if self._reader is None:
            self._reader = FrameReader(fs, self.seed)
        return self._reader.read(self.file_of(shard, lsn), lsn)

    def manifest(self) -> bytes:
        """MANIFEST as it should be now: the newest files, and how far each shard is known to be on disk."""
        for shard in self.shards:
            entry = self._entries[shard.index]
            self._entries[shard.index] = _with_end(entry, shard.durable_end)
        return encode_meta(Manifest(store_id=self._store_id.hex(), shards=list(self._entries.values())))

    @property
    def idle(self) -> bool:
        """Whether no sync and no chore is in flight."""
        return self._chore is None and not any(shard.syncing for shard in self.shards)

    @property
    def settled(self) -> bool:
        """Whether nothing is staged, unwritten, unsynced or in flight, and no shard has failed."""
        return self.idle and all(
            not shard.staged and shard.failed is None and shard.last_end <= shard.durable_lsn for shard in self.shards
        )

    def close(self, fs: Fs) -> None:
        """Give the handles back. Nothing may be in flight."""
        if self._reader is not None:
            self._reader.close()
        for shard in self.shards:
            for file in (*shard.retired, shard.current, *((shard.next,) if shard.next else ())):
                fs.close(file.handle)
            shard.retired.clear()

    def _rotate(self, shard: Shard) -> None:
        shard.rotate()
        shard.want = 0
        self.rotations += 1

    def _manifest_with(self, log: LogFile) -> bytes:
        """MANIFEST with `log` as its shard's newest file."""
        kept = self._entries[log.shard]
        self._entries[log.shard] = _naming(kept, log)
        content = self.manifest()
        self._entries[log.shard] = _with_end(kept, self.shards[log.shard].durable_end)
        return content

    def _named(self, log: LogFile) -> None:
        self._entries[log.shard] = _naming(self._entries[log.shard], log)


def _naming(entry: ShardEntry, log: LogFile) -> ShardEntry:
    return msgspec.structs.replace(entry, first_lsn=log.first_lsn, run=log.run, size=log.size)


def _with_end(entry: ShardEntry, end_lsn: int) -> ShardEntry:
    return msgspec.structs.replace(entry, end_lsn=end_lsn)


def _packed(
    staged: list[Staged], seed: int, tick: int, shards: int, durable_lsn: int
) -> list[tuple[OpenFile, int, list[bytes]]]:
    """Headers, bodies and checks of the frames of a group, as buffers for each file that it goes to.

    The hot path: one frame of one small record costs about 2 µs here, most of it two packs and two hashes; therefore
    it is `pack_header` written out.
    """
    writes: list[tuple[OpenFile, int, list[bytes]]] = []
    small: list[bytes] = []
    buffers: list[bytes] = []
    file = None
    for place, type_, flags, count, topic_id, first_seq, ts, body, body_len, lsn, back, order in staged:
        if place is not file:
            if small:
                buffers.append(b"".join(small))
                small = []
            file = place
            buffers = []
            writes.append((file, lsn, buffers))
        if isinstance(body, SharedBody):
            count, body_len, body = body.count, body.body_len, body.close()
        checked = pack_checked(
            body_len, type_, flags, shards, 0, count, lsn, back, 0, order, tick, topic_id, first_seq, ts, durable_lsn
        )
        head = pack_u32(xxh3_64_intdigest(checked, seed) & 0xFFFFFFFF)
        if isinstance(body, bytes):
            check = xxh3_64_intdigest(body, seed)
            if body_len <= _JOIN_MAX:
                small += (head, checked, body, PADDINGS[body_len & 7], check.to_bytes(8, "little"))
                continue
            buffers += (b"".join((*small, head, checked)), body)
        else:
            hasher = xxh3_64(seed=seed)
            for part in body:
                hasher.update(part)
            check = hasher.intdigest()
            buffers += (b"".join((*small, head, checked)), *body)
        small = [PADDINGS[body_len & 7], check.to_bytes(8, "little")]
    buffers.append(b"".join(small))
    return writes
