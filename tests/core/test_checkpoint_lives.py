"""Random lives with checkpoints of the real keeper, a step or a job now and then, with kills and faults of the disk.

Compared are the store as it is, a start from what a kill leaves of it, and a start from the log alone: the log is
trimmed in one half of the lives, where there is nothing to compare with but the store itself.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import engine.core.keeper as keeper_module
from engine.checkpoint.jobs import Job
from engine.core.jobs import outcome
from engine.core.ticket import Ticket
from engine.wal.wal import Wal
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.view import look
from tests.store.test_snapshots import Life, comparable, images_of, started, without_snapshots

pytestmark = pytest.mark.slow

SEEDS = 20


@pytest.fixture(autouse=True, params=[False, True], ids=["one slice", "small slices"])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint's slices take all that there is, or one topic each."""
    if request.param:
        monkeypatch.setattr(keeper_module, "SLICE_NS", 0)
        monkeypatch.setattr(keeper_module, "SWITCHED_AT_ONCE", 1)


class KeptLife(Life):
    """A life with a keeper at work."""

    def __init__(self, seed: int, shards: int, faulty: bool) -> None:
        super().__init__(seed, shards, seed % 4 == 0)
        self.faulty = faulty
        self.hand.settings = msgspec.structs.replace(
            self.hand.settings,
            segment_max_events=self.rng.choice([4, 16, 10_000]),
            segment_max_bytes=self.rng.choice([300, 1 << 20]),
        )
        self.hand = self.hand.reopen(self.hand.disk.killed())
        self.job: Job | None = None
        self.ticket: Ticket[Any] | None = None
        self.asked = 0

    def keep(self) -> None:
        """A slice, the handing out of a job, or its end."""
        core, chance = self.hand.core, self.rng.random()
        if self.job is not None and chance < 0.5:
            fs: Any = self.hand.disk
            if self.faulty and self.rng.random() < 0.2:
                call = self.rng.choice(list(Call))
                fs = FaultFs(fs, [Fault(call, self.rng.randrange(6), self.rng.choice([Effect.EIO, Effect.ENOSPC]))])
            error = outcome(self.job, fs)
            assert error is None or self.faulty
            core.keep_done(self.job, error)
            self.job = None
        elif chance < 0.7:
            core.keep_step()
        elif self.job is None:
            self.job = core.keep_job()
        if self.ticket is None or self.ticket.done:
            self.ticket = core.checkpoint()
            self.asked += 1

    def step(self) -> None:
        if self.rng.random() < 0.5:
            self.keep()
        else:
            super().step()

    def restart(self) -> None:
        super().restart()
        assert not [line for line in self.hand.core.store.report if "missing" in line or "damaged" in line]
        self.job = self.ticket = None

    def live(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            for _ in range(self.rng.randrange(150)):
                self.step()
            if self.rng.random() < 0.5:
                self.restart()


@pytest.mark.parametrize("faulty", [False, True])
def test_with_the_whole_log(faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wal, "keep_from", lambda self, starts: None)
    from_snapshots = 0
    for seed in range(SEEDS):
        life = KeptLife(seed, 1 + seed % 3, faulty)
        life.live()
        mine = started(life.hand, life.hand.disk.killed())
        theirs = started(life.hand, without_snapshots(life.hand.disk.killed()))
        from_snapshots += mine.store.snapshot is not None
        assert mine.catalog.closed_names == theirs.catalog.closed_names, seed
        views, wanted = look(mine).topics, look(theirs).topics
        assert {name: comparable(view) for name, view in views.items()} == {
            name: comparable(view) for name, view in wanted.items()
        }, seed
        images, others = images_of(mine), images_of(theirs)
        for name in images.keys() - life.ephemeral:
            assert images[name] == others[name], (seed, name)
    assert from_snapshots > SEEDS // 2


@pytest.mark.parametrize("faulty", [False, True])
def test_with_a_log_that_is_trimmed(faulty: bool) -> None:
    trimmed = 0
    for seed in range(100, 100 + SEEDS):
        life = KeptLife(seed, 1 + seed % 3, faulty)
        life.live()
        life.hand.settle()
        mine = started(life.hand, life.hand.disk.killed())
        life.hand.pass_ms(100)  # as the clock does over a restart
        views, wanted = look(mine).topics, look(life.hand.core).topics
        assert not [line for line in mine.store.report if "missing" in line or "damaged" in line], seed
        assert views.keys() == wanted.keys(), seed
        for name in views.keys() - life.ephemeral:
            assert comparable(views[name]) == comparable(wanted[name]), (seed, name)
        trimmed += any(entry.start_lsn > 0 for entry in mine.wal._entries.values())
    assert trimmed
