"""A frame of the log that is damaged under a running store: a checkpoint tells its records as lost, and comes about."""

from __future__ import annotations

import errno
from typing import Any, cast

import msgspec
import pytest

from engine.core import Ticket
from engine.core.damage import Damage
from engine.core.jobs import outcome
from engine.fs import Fs
from engine.limits import OnCorruption
from engine.topic.refusals import UNREADABLE_MS
from engine.types import CheckpointDone, Reason
from tests.core.hand import SMALL, Hand


def cold(**settings: Any) -> Hand:
    """A store whose topic `t` has thirty records of which memory holds none, in frames of three."""
    hand = Hand(settings=msgspec.structs.replace(SMALL, cache_bytes=1, **settings))
    hand.create("t")
    for first in range(1, 31, 3):
        hand.write("t", *[{"n": number, "pad": "x" * 200} for number in range(first, first + 3)])
    hand.quieten()
    assert all(block.data is None for block in hand.core.catalog.by_id[1].topic.tail.blocks)
    return hand


def hurt(hand: Hand, text: bytes) -> None:
    """Flip a bit of the log."""
    for path in hand.disk.list("wal/shard-00"):
        file = cast(Any, hand.disk._file(f"wal/shard-00/{path}"))
        at = bytes(file.cache).find(text)
        if at >= 0:
            file.cache[at] ^= 4
            return
    raise AssertionError("no log file holds it")


def attempt(hand: Hand, fs: Fs | None = None) -> Ticket[CheckpointDone]:
    """One checkpoint, or what becomes of it."""
    ticket = hand.core.checkpoint()
    for _ in range(100):
        hand.core.keep_step()
        if (job := hand.core.keep_job()) is not None:
            hand.core.keep_done(job, outcome(job, hand.disk if fs is None else fs))
        hand.settle()
        if ticket.done:
            return ticket
    raise AssertionError("the checkpoint never ends")


def retried(hand: Hand) -> None:
    hand.pass_ms(5_000)
    assert attempt(hand).error is None
    assert hand.core.keeper.problem is None


@pytest.mark.parametrize("events", [10_000, 12])
def test_its_records_are_a_gap_and_the_next_attempt_goes_through(events: int) -> None:
    hand = cold(segment_max_events=events)
    hurt(hand, b'"n":8,')
    hurt(hand, b'"n":20,')
    assert attempt(hand).error is not None
    retried(hand)
    state = hand.core.state("t")
    assert (state.count, state.damage) == (24, [(7, 9), (19, 21)])
    assert (hand.core.damage.records, len(hand.core.damage.said)) == (6, hand.core.damage.segments)
    assert "wal/" in hand.core.damage.said[0]
    page = hand.page("t", 6)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (7, 9, Reason.CORRUPTION)
    retried(hand)
    again = hand.reopen()
    assert again.core.state("t").damage == state.damage
    assert [value["n"] for value in again.read("t")] == [n for n in range(1, 31) if n not in (7, 8, 9, 19, 20, 21)]


def test_a_bad_sector_costs_the_frame_that_lies_in_it_and_not_its_neighbours() -> None:
    hand = cold()
    fs = BadSector(hand, b'"n":8,')
    assert attempt(hand, cast(Fs, fs)).error is not None
    hand.pass_ms(UNREADABLE_MS)
    assert attempt(hand, cast(Fs, fs)).error is not None, "it has lasted: a gap"
    hand.pass_ms(5_000)
    assert attempt(hand, cast(Fs, fs)).error is None
    assert hand.core.state("t").damage == [(7, 9)]


class BadSector:
    """A disk that cannot read one place of the log."""

    def __init__(self, hand: Hand, text: bytes) -> None:
        self._disk = hand.disk
        self._text = text

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        data = self._disk.pread(handle, length, offset)
        if self._text in data and data[:1] != b"{":
            raise OSError(errno.EIO, "Input/output error")
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)


def test_with_refuse_nothing_is_told_and_the_alarm_names_the_file() -> None:
    hand = cold(on_corruption=OnCorruption.REFUSE)
    hurt(hand, b'"n":8,')
    ticket = attempt(hand)
    assert ticket.error is not None
    assert "wal/shard-00/" in ticket.error.message
    assert not hand.core.state("t").damage
    assert "wal/shard-00/" in hand.core.damage.said[0]


def test_damage_that_nobody_tells_keeps_every_checkpoint_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was so before, and what the tests above would notice."""
    monkeypatch.setattr(Damage, "found", lambda *_: None)
    hand = cold()
    hurt(hand, b'"n":8,')
    for _ in range(3):
        assert attempt(hand).error is not None
        hand.pass_ms(400_000)
