"""Opening a store: from a directory, whatever happened to it, to a log that takes writes.

    open_store     lock → STORE, LOCK, MANIFEST → files            (reads; makes a store where there is none and it may)
    frames()       every shard's frames, merged by `order`; the verdict on each place that does not check (reads)
    execute()      quarantine → new run → MANIFEST → tidying       (writes; only now, after every verdict)
    go_live()      LOCK: running, this boot                        (before the first ack)
    stop()         MANIFEST with the exact ends → LOCK: stopped

Nothing is written before the verdict: `frames` is read to its end first, and a refusal leaves the directory as it was.
After a power failure LOCK is written only by `go_live`, so that a crash before the engine's `crash` gaps are synced is
still followed by a start that knows of the power failure; after a stop in good order `execute` writes it, so that what
is written from then on is never taken for something behind the recorded end.

With several shards a tick is in the log when it reached all shards that it touched. If the process was killed between
them, the last tick is incomplete; it was never acked, and is dropped whole. (After a power failure its parts are kept:
one of them may have been synced and acked.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from operator import attrgetter
from typing import Final

from engine.clock import Clock, EngineTime
from engine.errors import StoreIOError, StoreOutlived
from engine.formats.frame import FrameHeader, seed_of
from engine.formats.manifest import MANIFEST_PATH, LockState
from engine.fs import Fs, remedy, replace_file
from engine.limits import EngineSettings
from engine.segment.reader import SegmentFiles
from engine.store.execute import Execution
from engine.store.init import Identity, check_kind, identify, take_root, write_lock
from engine.store.scan import Directory, newest_is_lost, pieces_from, survey
from engine.store.snapshots import Restorable, Start, choose
from engine.store.verdicts import Row, Stop, Verdict
from engine.store.walk import NO_SETTING, CorruptionGap, Cut, Frame, Hole, Item, ShardWalk
from engine.wal.chain import LogFile, Piece
from engine.wal.reader import FrameReader
from engine.wal.wal import Wal

__all__ = ["CorruptionGap", "Frame", "Hole", "Item", "OpenedStore", "open_store"]

_INCOMPLETE: Final = Row(
    "T", Verdict.CUT, "the last tick had not reached all of its shards when the process was killed"
)
_by_order: Final = attrgetter("order")


class OpenedStore:
    """A store on its way from `open_store` to `stop`."""

    def __init__(
        self,
        fs: Fs,
        clock: Clock,
        settings: EngineSettings,
        pid: int,
        identity: Identity,
        directory: Directory,
        start: Start,
    ) -> None:
        self.snapshot = None if start.begin is None else start.begin.snapshot.globals
        """What the snapshot that replay begins from says of the whole store; None: there is none."""
        self.last_number = start.number
        """The greatest number of a checkpoint that there are files of; the next one's is greater."""
        self.checkpoints = [(kept.number, kept.cuts) for kept in start.kept]
        """Number and cuts of the newest two snapshots that can be read, ascending."""
        self._trouble = bool(start.report)
        self._start = start
        self.store_id = identity.store_id
        self.created_ms = identity.store.created_ms
        self.clean = identity.stop is Stop.CLEAN
        """The last process stopped in good order (or there was none)."""
        self.power_loss = identity.stop is Stop.POWER_LOSS
        """What was not synced may be gone: topics that were not quiet go on behind a `crash` gap."""
        self.report: list[str] = list(start.report)
        """Lines for the log: what was cut, isolated, copied."""
        self.fs = fs
        self._clock = clock
        self._settings = settings
        self._pid = pid
        self._identity = identity
        self.starts = identity.starts
        """The number of this start once it is live: synced, greater than that of any earlier one."""
        self._directory = directory
        self._seed = seed_of(identity.store_id)
        self._reader = FrameReader(fs, self._seed)
        """For frames that are wanted again before the log is ready."""
        self._wal: Wal | None = None
        self.time = self.engine_time(0)
        """What LOCK will say of engine time is this one's."""
        self._live = False
        self._exhausted = False
        self._progress: Callable[[float], None] | None = None
        self.tails = {} if start.begin is None else start.begin.tails
        """Lengths of the tails files that it names."""
        names = {} if start.begin is None else {image.id: image.name for image, _ in start.begin.snapshot.topics()}
        self._walks = [
            ShardWalk(
                fs,
                self._seed,
                found.entry.shard,
                pieces_from(found, start.cut(found.entry.shard, found.entry.start_lsn).lsn),
                start.cut(found.entry.shard, found.entry.start_lsn),
                found.entry.end_lsn,
                identity.stop,
                settings.on_corruption,
                names,
                self._heard,
                newest_is_lost(found),
            )
            for found in directory.shards
        ]

    def engine_time(self, last_logged_ms: int) -> EngineTime:
        """Engine time from here on, of a store in which something happened at `last_logged_ms`."""
        self.time = EngineTime(self._clock, last_logged_ms, self._identity.offset_ms)
        return self.time

    @property
    def wal(self) -> Wal:
        """The log, once `execute` has made it ready."""
        assert self._wal is not None, "execute() comes first"
        return self._wal

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def cuts(self) -> list[Cut]:
        """What `execute` sets aside behind the ends of the shards, once `frames` was read."""
        return [walk.cut for walk in self._walks if walk.cut is not None]

    @property
    def damage(self) -> list[CorruptionGap]:
        """Writes whose records are gone, once `frames` was read."""
        return [gap for walk in self._walks for gap in walk.isolated]

    @property
    def pieces(self) -> list[Piece]:
        """The parts of log files that `frames` reads."""
        return [piece for walk in self._walks for piece in walk.pieces]

    def where(self, shard: int, lsn: int) -> tuple[str, int]:
        """File and offset of a frame that `frames` gave."""
        return self._walks[shard].where(lsn)

    def close(self) -> None:
        """Give back what reading holds, of a store that is not executed."""
        self._reader.close()

    def frames(self, progress: Callable[[float], None] | None = None) -> Iterator[Item]:
        """Everything that the log holds, in the order in which it happened. To be read to its end, once.

        Raises `StoreDamaged` where damage must not be passed over, `StoreIOError` where the disk does not answer: then
        everything that came before is void, and nothing was changed. `progress` hears 0 … 1 now and then.
        """
        self._progress = progress
        try:
            if len(self._walks) == 1:
                yield from self._walks[0].items()
            else:
                yield from self._merged()
        except OSError as error:
            raise StoreIOError(f"the log cannot be read: {error}; nothing was changed") from error
        self._check_ends()
        self._exhausted = True
        if progress is not None:
            progress(1.0)

    def _merged(self) -> Iterator[Item]:
        """The shards by `order`, one tick held back until it is known to be complete or not the last."""
        ends = {walk.shard: (walk.end_lsn, walk.last_lsn) for walk in self._walks}
        held: list[Item] = []
        for item in merge(*(walk.items() for walk in self._walks), key=_by_order):
            if held and item.tick != held[0].tick:
                for earlier in held:
                    ends[earlier.shard] = (earlier.end, earlier.lsn)
                yield from held
                held.clear()
            held.append(item)
        if not held or not self._drops(held):
            yield from held
            return
        for shard in {item.shard for item in held}:
            walk = self._walks[shard]
            first = min(item.lsn for item in held if item.shard == shard)
            path, offset = walk.where(first)
            behind = walk.cut.end_lsn if walk.cut is not None else walk.end_lsn
            walk.cut = Cut(_INCOMPLETE, first, behind, path, offset)
            walk.end_lsn, walk.last_lsn = ends[shard]

    def _drops(self, last_tick: list[Item]) -> bool:
        """Whether the last tick was never acked: the process was killed before it reached all of its shards."""
        if self._identity.stop is not Stop.SAME_BOOT:
            return False
        if len({item.shard for item in last_tick}) >= last_tick[0].tick_shards:
            return False
        if last_tick[0].tick < self._floors[1]:
            return False  # the snapshot was taken down after it was written whole; the rest lies below a cut
        return all(item.lsn >= self._walks[item.shard].durable_lsn for item in last_tick)

    def _check_ends(self) -> None:
        """After a stop in good order the log ends exactly where MANIFEST says."""
        for walk, found in zip(self._walks, self._directory.shards, strict=True):
            if self.clean and max(walk.end_lsn, self._proven_end(walk.shard)) > found.entry.end_lsn:
                path, offset = walk.where(found.entry.end_lsn)
                raise StoreOutlived(
                    f"{path}: the log goes on behind offset {offset}, where meta/MANIFEST says that it was stopped: "
                    f"LOCK and MANIFEST are older than the log. {NO_SETTING}"
                )
            if walk.holes:
                places = f"{walk.holes} place{'s' * (walk.holes != 1)} that cannot be read"
                self.report.append(f"shard {walk.shard}: {places} passed over")
            if walk.isolated:
                count = len(walk.isolated)
                writes = f"{count} damaged write{'s' * (count != 1)}"
                self.report.append(f"shard {walk.shard}: the records of {writes} are a gap now")

    @property
    def force_checkpoint(self) -> bool:
        """Whether a checkpoint is due at once: what the next start would begin from is not what it should be."""
        return self.resharded or self._trouble or self._is_alone or any(walk.holes for walk in self._walks)

    @property
    def _is_alone(self) -> bool:
        """Whether nothing but one snapshot says what is in the store, as where a tool has made it."""
        return len(self._start.kept) == 1 and any(found.entry.start_lsn for found in self._directory.shards)

    def _proven_end(self, shard: int) -> int:
        """How far the snapshot knows a shard's log to have been on disk."""
        return 0 if self.snapshot is None else self.snapshot.cut(shard).end_lsn

    @property
    def start(self) -> Start:
        """What replay begins from, and what was wrong on the way; its images are there until they are taken."""
        return self._start

    def take_images(self) -> Restorable | None:
        """The topics of the snapshot, to be put back before the frames; asked for once."""
        begin = self._start.begin
        self._start = self._start._replace(begin=None)
        return begin

    def _heard(self, _lsn: int) -> None:
        if self._progress is not None:
            whole = sum(walk.pieces[-1].end_lsn - walk.start_lsn for walk in self._walks)
            done = sum(max(walk.end_lsn - walk.start_lsn, 0) for walk in self._walks)
            self._progress(min(1.0, done / max(whole, 1)))

    @property
    def _floors(self) -> tuple[int, int]:
        """The least order and tick that the next frame may have, as far as the snapshot knows."""
        return (1, 1) if self.snapshot is None else (self.snapshot.order, self.snapshot.tick)

    @property
    def resharded(self) -> bool:
        """Whether topics live on other shards than in the snapshot or the log: a checkpoint is due at once."""
        before = len(self._directory.shards) if self.snapshot is None else self.snapshot.shards
        return before != self._settings.wal_shards and not self._identity.fresh

    def segment_files(self, fs: Fs) -> SegmentFiles:
        """What reads the segments, for one thread."""
        return SegmentFiles(fs, self.store_id)

    def read_body(self, shard: int, lsn: int) -> tuple[FrameHeader, bytes]:
        """A frame that `frames` yielded or the log wrote, read again and checked, at any time."""
        if self._wal is not None:
            return self._wal.read_body(self.fs, shard, lsn)
        return self._reader.read(self._owner(shard, lsn), lsn)

    def _owner(self, shard: int, lsn: int) -> LogFile:
        return next(piece.file for piece in self._walks[shard].pieces if lsn < piece.end_lsn)

    # --- writing --------------------------------------------------------------------------------------------------

    def execute(self, named: Collection[str] = ()) -> None:
        """Make what `frames` gave durable, and the log ready for writes. `named`: files of checkpoints' rooms that
        frames name. Raises `StoreIOError`."""
        assert self._exhausted, "nothing is written before every verdict"
        self._reader.close()
        execution = Execution(
            self.fs,
            self._identity,
            self._directory,
            self._start,
            self._settings,
            self._clock.wall_ms(),
            self.report,
            named,
        )
        self._wal = execution.run(self._walks, not self.clean, self._floors)
        self.last_number = execution.number
        if self.clean and not self._identity.fresh:
            self.go_live()

    def go_live(self) -> None:
        """Say durably that this boot runs the store. Before the first ack, after all that recovery added is synced."""
        if self._live:
            return
        now_ms = self._clock.wall_ms()
        # The clock is for a LOCK that was lost: no store is started more often than once a second for long.
        self.starts = max(self._identity.starts + 1, now_ms // 1000)
        try:
            write_lock(self.fs, LockState.RUNNING, self._pid, now_ms, self.starts, self.time.offset_ms)
        except OSError as error:
            raise StoreIOError(f"LOCK could not be written: {error}; {remedy(error)}, then start again") from error
        self._live = True

    def stop(self, clean: bool = True) -> bool:
        """Give the log back. In good order if all is synced and `clean`; returns whether it was.

        Nothing may be staged or in flight. Otherwise LOCK stays as it is, and the next start recovers.
        """
        wal = self.wal
        try:
            if not (clean and wal.settled and self._live):
                return False
            replace_file(self.fs, MANIFEST_PATH, wal.manifest())
            now_ms, offset_ms = self._clock.wall_ms(), self.time.offset_ms
            write_lock(self.fs, LockState.STOPPED, self._pid, now_ms, self.starts, offset_ms)
            return True
        except OSError:
            return False
        finally:
            wal.close(self.fs)


def open_store(fs: Fs, clock: Clock, settings: EngineSettings, pid: int = 0, *, make: bool = True) -> OpenedStore:
    """Lock the root and look at what is there; where there is no store, make one, or refuse if not `make`.

    `pid` is what LOCK says to a second process. Raises `StoreLocked`, `StoreDamaged`, `StoreForeign`, `StoreIOError`.
    """
    if make and not settings.any_file_system:
        check_kind(fs)
    take_root(fs)
    identity = identify(fs, clock, settings, pid, make=make)
    try:
        directory = survey(fs, identity.manifest)
        start = choose(fs, identity.store_id, directory, settings.on_corruption)
    except OSError as error:
        raise StoreIOError(f"the store cannot be read: {error}; nothing was changed") from error
    return OpenedStore(fs, clock, settings, pid, identity, directory, start)
