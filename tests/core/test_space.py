"""Space: what does not fit waits, or is refused before anything is staged; a full disk takes deletes and heals."""

from __future__ import annotations

import pytest

from engine.commands import Batch, DeleteSelector
from engine.core.parking import PARK_MS
from engine.errors import Code, Unavailable
from engine.fragment import Rendered, render
from engine.limits import KIB
from tests.core.hand import SMALL, Hand
from tests.sim.disk import FakeDisk

KILOBYTE = "x" * 1000


def fill(hand: Hand, name: str) -> int:
    """Write until the log is full; returns how many records went in."""
    for count in range(10_000):
        try:
            ticket = hand.core.append(name, Batch.of([KILOBYTE]))
            hand.settle()
            ticket.value()
        except Unavailable as error:
            if error.code is not Code.DISK_FULL:
                raise
            return count
    raise AssertionError("the disk never filled up")


def test_a_full_disk_refuses_writes_takes_deletes_and_resumes_by_itself() -> None:
    disk = FakeDisk(capacity=800 * KIB)
    hand = Hand(disk)
    hand.create("t")
    written = fill(hand, "t")
    assert written > 50
    for seq in range(1, 20):
        assert hand.take(hand.core.delete("t", DeleteSelector(seqs=(seq,)))).deleted == 1
    with pytest.raises(Unavailable):
        hand.core.append("t", Batch.of([KILOBYTE]))
    state = hand.core.state("t")
    assert (state.head_seq, state.count) == (written, written - 19)
    disk.free(4096 * KIB)
    hand.pass_ms(1500)
    hand.settle()
    assert hand.write("t", "room again").first_seq == written + 1
    again = hand.reopen()
    assert again.core.state("t").count == written - 19 + 1


def test_a_write_that_waits_for_space_ahead_is_taken_when_it_is_there_and_keeps_its_place() -> None:
    hand = Hand()
    hand.create("t")
    tickets = []
    while not hand.core.parking:
        tickets.append(hand.core.append("t", Batch.of([KILOBYTE])))
        hand.turn()
    tickets.append(hand.core.append("t", Batch.of(["small"])))
    assert not tickets[-1].done
    hand.settle()
    assert [ticket.value().first_seq for ticket in tickets] == list(range(1, len(tickets) + 1))
    assert hand.read("t")[-1] == "small"


def test_a_batch_larger_than_a_log_file_is_one_frame_and_survives() -> None:
    hand = Hand()
    hand.create("t", durability="fsync")
    values = [f"{number:05d}{KILOBYTE}" for number in range(200)]
    hand.write("t", "before")
    answer = hand.write("t", *values)
    assert answer.count == 200
    hand.write("t", "after")
    assert hand.settings.wal_file_bytes < 200 * 1000
    assert hand.reopen().read("t") == ["before", *values, "after"]


def test_what_waits_too_long_is_refused_and_nothing_of_it_was_written() -> None:
    hand = Hand()
    hand.create("t")
    while not hand.core.parking:
        ticket = hand.core.append("t", Batch.of([KILOBYTE]))
        hand.turn()
    written = hand.core.state("t").head_seq
    hand.pass_ms(PARK_MS)
    hand.turn()
    assert ticket.error is not None
    assert ticket.error.code is Code.NOT_READY
    hand.settle()
    assert hand.core.state("t").head_seq == written


def test_payloads_beyond_the_cache_bound_leave_memory_and_come_back_from_the_log() -> None:
    hand = Hand(settings=SMALL)
    hand.create("t")
    values = [f"{number:04d}{KILOBYTE}" for number in range(3000)]
    for start in range(0, 3000, 20):
        hand.write("t", *values[start : start + 20])
    assert hand.core.catalog.cache.bytes_held <= SMALL.cache_bytes * 1.1
    assert hand.read("t") == values
    again = hand.reopen()
    assert again.core.catalog.cache.bytes_held <= SMALL.cache_bytes * 1.1
    assert again.read("t") == values


def test_a_sync_may_begin_right_after_a_parked_command_was_staged() -> None:
    hand = Hand()
    hand.create("t")
    while not hand.core.parking:
        ticket = hand.core.append("t", Batch.of([KILOBYTE]))
        hand.turn()
    hand.chores()  # stages the parked command, outside a turn
    assert not ticket.done
    hand.clock.tick(20)
    job = hand.sync_begin()
    assert job is not None
    assert ticket.value().first_seq > 1
    hand.sync_end(job)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were rendered, each time that some are."""
    counts: list[int] = []

    def counting(batch: Batch, first: int, now: int) -> Rendered:
        counts.append(len(batch))
        return render(batch, first, now)

    monkeypatch.setattr("engine.core.core.render", counting)
    return counts


def test_a_large_batch_that_waits_for_space_is_not_rendered_each_time_it_is_tried(rendered: list[int]) -> None:
    hand = Hand()
    hand.create("there")
    for number, name in enumerate(("there", "made")):
        rendered.clear()
        ticket = hand.core.append(name, Batch.of([KILOBYTE] * 200 * (number + 1)))
        for _ in range(50):
            hand.turn()
        assert not ticket.done
        hand.settle()
        assert ticket.value().count == 200 * (number + 1)
        # Not before there is room for the values alone; it was fifty times and more.
        assert len(rendered) <= 8


def test_a_batch_of_large_records_is_rendered_only_when_there_is_room_for_it(rendered: list[int]) -> None:
    hand = Hand()
    hand.create("t")
    ticket = hand.core.append("t", Batch.of([8 * KILOBYTE] * 30))
    hand.turn()
    assert not rendered
    hand.settle()
    assert ticket.value().count == 30
    assert len(rendered) == 1
