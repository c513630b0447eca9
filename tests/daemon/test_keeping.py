"""While a checkpoint holds what it has taken down, nobody looks for garbage in it; but never for long. Who computes
gives the interpreter's lock up sooner where nobody sends in bulk."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.keeper import Phase
from engine.fs import OsFs
from topics_daemon import keeping
from topics_daemon.keeping import BULK_SWITCH_S, NO_COLLECTING_S_MAX, SWITCH_S, Keeping


class Drive:
    """Who drives checkpoints, with a keeper whose phase is set by hand and a clock that is turned by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.keeper = SimpleNamespace(
            phase=Phase.IDLE,
            active=False,
            has_aside=False,
            is_due=lambda _now: False,
            failures=0,
            last=None,
            stop_soon=lambda: None,
        )
        core = SimpleNamespace(
            keeper=self.keeper, commit=SimpleNamespace(now_ms=0), keep_step=lambda: False, keep_job=lambda: None
        )
        loop = SimpleNamespace(time=lambda: self.now_s, call_later=lambda *_: None)
        self.shares = SimpleNamespace(bulk=False)
        daemon = SimpleNamespace(
            loop=loop,
            job_bug=None,
            log=None,
            pressure=SimpleNamespace(busy=1.0),
            shares=self.shares,
            wake_for_log=lambda: None,
        )
        monkeypatch.setattr(keeping, "Worker", lambda *_: SimpleNamespace(name="keeper", stop=lambda _s: True))
        self.keeping = Keeping(cast(Any, daemon), cast(Any, core), cast(OsFs, None))

    def step(self, phase: Phase, passed_s: float = 0.0) -> bool:
        """A slice after which the checkpoint is there; whether garbage is looked for then."""
        self.keeper.phase = phase
        self.now_s += passed_s
        self.keeping._slice()
        return gc.isenabled()


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drive]:
    own_s = sys.getswitchinterval()
    yield Drive(monkeypatch)
    gc.enable()
    sys.setswitchinterval(own_s)


def test_no_garbage_is_looked_for_while_a_checkpoint_holds_what_it_took_down(drive: Drive) -> None:
    found = {phase: drive.step(phase) for phase in Phase}
    assert found == {
        Phase.IDLE: True,
        Phase.SEAL: False,
        Phase.LAND: True,
        Phase.TAKE: False,
        Phase.SYNC: False,
        Phase.WRITE: False,
        Phase.SWITCH: False,
    }
    assert drive.step(Phase.IDLE)


def test_a_checkpoint_that_hangs_does_not_keep_garbage(drive: Drive) -> None:
    assert not drive.step(Phase.WRITE)
    drive.now_s += NO_COLLECTING_S_MAX + 1
    drive.keeping.look()
    assert gc.isenabled()
    drive.keeping.look()
    assert gc.isenabled(), "and it stays so"
    assert drive.step(Phase.IDLE)
    assert not drive.step(Phase.TAKE), "the next one is as new"


def test_a_stop_in_the_middle_looks_for_garbage_again(drive: Drive) -> None:
    assert not drive.step(Phase.WRITE)
    drive.keeping.stop(1.0)
    assert gc.isenabled()


def test_the_lock_is_given_up_less_often_while_somebody_sends_in_bulk(drive: Drive) -> None:
    found = [sys.getswitchinterval()]
    for bulk in (True, True, False):
        drive.shares.bulk = bulk
        drive.keeping.look()
        found.append(sys.getswitchinterval())
    assert found == pytest.approx([SWITCH_S, BULK_SWITCH_S, BULK_SWITCH_S, SWITCH_S])
