"""A stop waits for a checkpoint for a while only; without it the next start reads the log instead."""

from __future__ import annotations

import errno

import msgspec
import pytest

from engine.checkpoint.jobs import STOP_NS
from engine.core.jobs import outcome
from engine.core.keeper import Phase
from engine.queue.commands import Ack, Claim
from engine.types import TopicType
from tests.core.hand import SMALL, Hand

AT_EACH_STOP = msgspec.structs.replace(SMALL, stop_checkpoint_bytes=0)


def _filled() -> Hand:
    hand = Hand(settings=AT_EACH_STOP)
    for name in ("a", "b"):
        hand.create(name)
        hand.write(name, *range(5))
    return hand


def _comes_back(hand: Hand, snapshots: int) -> None:
    assert hand.core.read_only is None
    files = [name for name in hand.disk.list("meta") if name.startswith(("snapshot-", "tails-"))]
    assert len(files) == snapshots
    again = hand.reopen()
    assert not again.core.store.report
    for name in ("a", "b"):
        assert again.read(name) == list(range(5))


def test_a_checkpoint_is_made_at_a_stop_that_has_the_time() -> None:
    hand = _filled()
    hand.core.close()
    _comes_back(hand, 2)


def test_a_stop_does_not_begin_one_that_it_would_have_no_time_for() -> None:
    hand = _filled()
    hand.core.keeper.stop_soon()
    hand.clock.tick(STOP_NS // 1_000_000)
    hand.core.close()
    assert "given up" in str(hand.core.keeper.problem)
    _comes_back(hand, 0)


def test_a_snapshot_that_is_being_written_when_the_time_is_over_is_given_up_and_leaves_nothing() -> None:
    hand = _filled()
    keeper = hand.core.keeper
    job = hand.snapshot_job()
    assert len(job.pieces) == 2
    keeper.stop_soon()
    hand.clock.tick(STOP_NS // 1_000_000)
    error = outcome(job, hand.fs)
    assert error is not None
    assert error.errno == errno.ECANCELED
    hand.core.keep_done(job, error)
    assert keeper.phase is Phase.IDLE
    hand.core.close()
    _comes_back(hand, 0)


def _deliveries(hand: Hand) -> list[int]:
    waiter = hand.core.queues.claim("q", Claim(node="w", max=9, lease_ms=1000), 0)
    hand.settle()
    leased = waiter.ticket.value().leased
    return [] if leased is None else [deliveries for _seq, deliveries in leased.jobs]


@pytest.mark.parametrize("covered", [False, True])
def test_a_stop_keeps_the_deliveries_that_only_memory_had_counted(covered: bool) -> None:
    """queues.md, "Crash": a count may be low after a crash; a stop in good order is none, however short the log is."""
    hand = Hand(settings=SMALL)
    hand.create("q", type=TopicType.QUEUE)
    hand.write("q", 1, 2)
    assert _deliveries(hand) == [1, 1]
    if covered:
        hand.core.keeper.run_now(hand.fs, hand.core.now, hand.sync)
    hand.pass_ms(1500)
    assert _deliveries(hand) == [2, 2]
    hand.core.close()
    again = hand.reopen()
    assert _deliveries(again) == [3, 3]


def test_a_stop_makes_no_checkpoint_for_jobs_that_are_done() -> None:
    hand = Hand(settings=SMALL)
    hand.create("q", type=TopicType.QUEUE)
    hand.write("q", 1, 2)
    assert _deliveries(hand) == [1, 1]
    hand.take(hand.core.queues.ack("q", Ack(node="w", seqs=[1, 2])))
    hand.core.close()
    assert not [name for name in hand.disk.list("meta") if name.startswith("snapshot-")]
