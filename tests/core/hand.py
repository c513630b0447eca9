"""The engine stepped by hand on a simulated disk: what tests of the core stand on.

`Hand` holds a `Core` and the jobs that are in flight. Nothing happens that a test does not ask for: `turn` writes what
is staged, `sync_begin` and `sync_end` are two steps, time moves with `pass_ms`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.checkpoint.jobs import SnapshotJob
from engine.commands import Batch
from engine.core import Core, Ticket
from engine.core.jobs import outcome
from engine.fs import Fs
from engine.limits import KIB, EngineSettings, Limits
from engine.types import AppendResult, ConfigChanges, Page, PageRequest
from engine.wal.wal import SyncJob
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk

SMALL = EngineSettings(
    wal_file_bytes=64 * KIB,
    wal_fill_bytes=16 * KIB,
    wal_reserve_bytes=8 * KIB,
    disk_reserve_bytes=64 * KIB,
    cache_bytes=1024 * KIB,
)


class Hand:
    """A core, its disk and its clock."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        fs: Fs | None = None,
        clock: ManualClock | None = None,
        settings: EngineSettings = SMALL,
        limits: Limits | None = None,
    ) -> None:
        self.disk = disk if disk is not None else FakeDisk()
        self.fs: Fs = fs if fs is not None else self.disk
        self.clock = clock if clock is not None else ManualClock()
        self.settings = settings
        self.core = Core.open(self.fs, self.clock, settings, limits)
        self.chores()

    # -- the drive -------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        self.core.turn()

    def sync_begin(self) -> SyncJob | None:
        return self.core.sync_job()

    def sync_end(self, job: SyncJob, fs: Fs | None = None) -> None:
        error: OSError | None = None
        try:
            job.run(fs if fs is not None else self.fs)
        except OSError as failure:
            error = failure
        self.core.sync_done(job, error)

    def sync(self) -> None:
        """Run every sync that is wanted or due."""
        while (job := self.sync_begin()) is not None:
            self.sync_end(job)

    def chores(self) -> None:
        """Run all background work there is."""
        while (chore := self.core.chore()) is not None:
            error: OSError | None = None
            try:
                chore.run(self.fs)
            except OSError as failure:
                error = failure
            self.core.chore_done(chore, error)

    def pass_ms(self, ms: int) -> None:
        self.clock.tick(ms)
        self.core.advance()

    def settle(self) -> None:
        """Everything staged is written, synced and answered."""
        for _ in range(5):
            self.turn()
            self.sync()
            self.chores()

    def quieten(self) -> None:
        """Let a silence pass, and its marks become durable."""
        self.pass_ms(20)
        self.settle()
        self.pass_ms(self.settings.quiet_ms + 300)
        self.settle()

    def snapshot_job(self) -> SnapshotJob:
        """Begin a checkpoint, and drive it to the job that writes its snapshot."""
        self.core.checkpoint()
        while not isinstance(job := self.core.keep_job(), SnapshotJob):
            if job is not None:
                self.core.keep_done(job, outcome(job, self.fs))
            self.core.keep_step()
            self.settle()
        return job

    # -- commands that wait ----------------------------------------------------------------------------------------

    def take(self, ticket: Ticket[Any]) -> Any:
        """The answer of a ticket, driving as long as it takes."""
        self.settle()
        assert ticket.done, "the ticket is still open although everything was written and synced"
        return ticket.value()

    def create(self, name: str, **config: Any) -> None:
        self.take(self.core.put_topic(name, msgspec.convert(config, ConfigChanges)))

    def write(self, name: str, *values: Any, **more: Any) -> AppendResult:
        answer = self.take(self.core.append(name, Batch.of(list(values)), **more))
        assert isinstance(answer, AppendResult)
        return answer

    def page(self, name: str, from_seq: int = 0, **more: Any) -> Page:
        return self.core.page(name, PageRequest(from_seq=from_seq, limit=1000, **more))

    def read(self, name: str, from_seq: int = 0) -> list[Any]:
        """The data of all records after `from_seq`, over all pages and gaps."""
        out: list[Any] = []
        while True:
            page = self.page(name, from_seq)
            out.extend(record["data"] for record in records(page))
            from_seq = page.next_from_seq
            if page.caught_up:
                return out

    # -- ends ------------------------------------------------------------------------------------------------------

    def reopen(self, disk: FakeDisk | None = None, clock: ManualClock | None = None) -> Hand:
        """A new core on a disk (a crash image, or this one as a killed process leaves it)."""
        return Hand(
            disk if disk is not None else self.disk.killed(),
            clock=clock if clock is not None else self.clock.restart(),
            settings=self.settings,
        )


def records(page: Page) -> list[dict[str, Any]]:
    """The records of a page, decoded."""
    decoded: list[dict[str, Any]] = msgspec.json.decode(b"[" + b"".join(page.pieces) + b"]")
    return decoded
