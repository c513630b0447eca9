"""A disk that refuses bytes (EIO): readers are told to come again, and only what lasts is a loss (docs/adr/0057)."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest

from engine.checkpoint.jobs import Copy
from engine.core.damage import Damage
from engine.errors import Code, Refused, TopicsError, Unavailable
from engine.limits import OnCorruption
from engine.segment.damaged import DamagedSegment
from engine.topic.refusals import PLACES_MAX, STALE_MS, UNREADABLE_MS, Refusals
from engine.types import Reason
from engine.wal import reader
from tests.checkpoint.test_log_damage import attempt, cold
from tests.core.hand import Hand
from tests.core.test_damage import ask, hurt, sealed, seqs
from tests.core.test_log_frames import lost, page_of

THIRD = UNREADABLE_MS // 3


def refuse(hand: Hand, *paths: str) -> None:
    hand.disk.refused = {hand.disk._file(path).number for path in paths}


def all_of(hand: Hand, ending: str) -> list[str]:
    return [path for path in hand.disk.cached_tree() if path.endswith(ending)]


def refused(ask: Any) -> TopicsError:
    with pytest.raises(Unavailable) as raised:
        ask()
    assert raised.value.code is Code.NOT_READY
    return raised.value


def is_whole(hand: Hand) -> bool:
    return not hand.core.state("t").damage and not hand.core.damage.records


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA, errno.EUCLEAN])
def test_an_error_that_passes_is_a_503_and_costs_nothing(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = sealed()
    monkeypatch.setattr(errno, "EIO", number)  # what the disk says
    refuse(hand, *all_of(hand, ".data"))
    for _ in range(3):
        error = refused(lambda: ask(hand))
        hand.pass_ms(THIRD - 1_000)
    assert "seg-" in error.message
    assert "60 s" in error.message
    assert is_whole(hand)
    assert not any(block.segment and block.segment.bad for block in hand.core.catalog.by_id[1].topic.tail.blocks)
    assert len(hand.core.damage.said) == 1, "the log says it once"
    hand.disk.refused = set()
    assert seqs(ask(hand)) == list(range(1, 601))
    assert is_whole(hand)


def test_one_that_lasts_is_a_gap_and_its_reader_goes_on_through_all_of_the_segment() -> None:
    hand = sealed()
    [name] = [name for name in all_of(hand, ".data") if f"seg-{101:020d}" in name]
    refuse(hand, name)
    refused(lambda: ask(hand))
    hand.pass_ms(UNREADABLE_MS - 1)
    refused(lambda: ask(hand, 150))
    hand.pass_ms(1)
    assert seqs(ask(hand)) == list(range(1, 101)), "a page ends before the loss"
    page = ask(hand, 100)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (101, 200, Reason.CORRUPTION)
    assert seqs(page) == list(range(201, 601))
    assert hand.core.state("t").damage == [(101, 200)]
    assert hand.core.damage.records == 100
    hand.disk.refused = set()
    assert hand.reopen().core.state("t").damage == [(101, 200)], "what was told stays"


def test_a_restart_in_the_middle_begins_the_time_anew() -> None:
    hand = sealed()
    refuse(hand, *all_of(hand, ".data"))
    refused(lambda: ask(hand))
    hand.pass_ms(UNREADABLE_MS - 1)
    hand = hand.reopen()
    refuse(hand, *all_of(hand, ".data"))
    refused(lambda: ask(hand))
    hand.pass_ms(UNREADABLE_MS - 1)
    refused(lambda: ask(hand))
    hand.disk.refused = set()
    assert seqs(ask(hand)) == list(range(1, 601))
    assert is_whole(hand)


def test_with_refuse_it_is_a_503_at_first_and_a_409_once_it_has_lasted() -> None:
    hand = sealed(on_corruption=OnCorruption.REFUSE)
    refuse(hand, *all_of(hand, ".data"))
    refused(lambda: ask(hand))
    hand.pass_ms(UNREADABLE_MS)
    with pytest.raises(Refused) as raised:
        ask(hand)
    assert raised.value.code is Code.TOPIC_DAMAGED
    hand.disk.refused = set()
    assert seqs(ask(hand)) == list(range(1, 601))
    assert is_whole(hand)


def test_what_fails_its_check_or_is_not_there_is_lost_at_once() -> None:
    hand = sealed()
    refuse(hand, *all_of(hand, ".idx"))
    hurt(hand, b'"n":42,')
    refused(lambda: ask(hand))  # without the index nobody knows which record it was
    hand.disk.refused = set()
    assert seqs(ask(hand)) == list(range(1, 42))
    assert hand.core.state("t").damage == [(42, 42)]
    hand = sealed()
    hand.disk.unlink(all_of(hand, ".data")[0])
    ask(hand)
    assert hand.core.state("t").damage == [(1, 100)]


def test_an_index_and_data_that_are_refused_together_leave_nothing_behind_in_memory() -> None:
    """Rows that could not be made again for want of data are not kept as such: found by reading what `_mend` keeps."""
    hand = sealed()
    refuse(hand, *all_of(hand, ".data"), *all_of(hand, ".idx"))
    topic = hand.core.catalog.by_id[1].topic
    history = hand.core.catalog.cache.history
    block = topic.tail.blocks[0]
    assert history.ts_at(block, 5) == block.last_ts
    hand.settle()
    assert is_whole(hand)
    hand.disk.refused = set()
    assert history.ts_at(block, 5) == block.first_ts
    assert not history.damaged
    assert seqs(ask(hand)) == list(range(1, 601))
    hand.pass_ms(UNREADABLE_MS)
    hand.settle()
    assert is_whole(hand)


def test_a_frame_of_the_log_that_is_refused_for_a_while_costs_nothing() -> None:
    hand = cold()
    refuse(hand, *all_of(hand, ".log"))
    for _ in range(3):
        refused(lambda: page_of(hand, 0))
        hand.pass_ms(THIRD - 1_000)
    assert is_whole(hand)
    assert len(hand.core.damage.said) == 1
    hand.disk.refused = set()
    assert lost(hand) == []
    hand.pass_ms(UNREADABLE_MS)
    assert is_whole(hand)


@pytest.mark.parametrize("ending", [".data", ".log"])
def test_two_short_faults_are_not_a_long_one_when_all_was_read_in_between(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PIECE", 512)  # a larger piece of the log would still be in memory
    hand = cold() if ending == ".log" else sealed(cache_bytes=1)
    reads = partial(page_of, hand, 0) if ending == ".log" else partial(ask, hand)
    for _ in range(4):
        refuse(hand, *all_of(hand, ending))
        refused(reads)
        hand.pass_ms(UNREADABLE_MS // 2)
        hand.disk.refused = set()
        assert reads().caught_up
        hand.settle()  # memory forgets what was read
        hand.pass_ms(UNREADABLE_MS // 2)
    assert is_whole(hand)


def test_a_checkpoint_that_meets_it_fails_and_comes_about_when_it_is_over() -> None:
    hand = cold()
    refuse(hand, *all_of(hand, ".log"))
    for _ in range(3):
        ticket = attempt(hand)
        assert ticket.error is not None
        assert ticket.error.code is Code.NOT_READY
        hand.pass_ms(THIRD - 1_000)
    assert is_whole(hand)
    hand.disk.refused = set()
    assert attempt(hand).error is None
    assert is_whole(hand)
    assert lost(hand) == []


def test_what_a_checkpoint_has_read_since_counts_as_read() -> None:
    hand = cold()
    refuse(hand, *all_of(hand, ".log"))
    assert attempt(hand).error is not None
    hand.disk.refused = set()
    hand.pass_ms(THIRD)
    assert attempt(hand).error is None
    hand.write("t", *[{"n": number, "pad": "x" * 200} for number in range(31, 34)])
    hand.quieten()
    hand.pass_ms(UNREADABLE_MS)
    refuse(hand, *all_of(hand, ".log"))
    refused(lambda: page_of(hand, 30))
    assert is_whole(hand)


def test_a_checkpoint_goes_through_when_what_is_refused_has_become_a_gap() -> None:
    hand = cold()
    refuse(hand, *all_of(hand, ".log"))
    assert attempt(hand).error is not None
    hand.pass_ms(UNREADABLE_MS)
    assert attempt(hand).error is not None
    assert hand.core.state("t").damage == [(1, 30)]
    hand.pass_ms(5_000)
    assert attempt(hand).error is None


def test_what_else_was_damaged_does_not_wait_for_the_disk() -> None:
    hand = sealed()
    refuse(hand, all_of(hand, ".data")[0])
    hurt(hand, b'"n":142,', 1)
    refused(lambda: ask(hand))
    ask(hand, 100)
    assert hand.core.state("t").damage == [(142, 142)]


def test_damage_with_both_fails_the_reader_and_tells_what_is_certain() -> None:
    hand = sealed()
    blocks = hand.core.catalog.by_id[1].topic.tail.blocks
    found = [
        DamagedSegment(block.segment, "seg", [(3, 4)], "why", unread=unread)
        for block, unread in zip(blocks, (True, False), strict=False)
        if block.segment is not None
    ]
    hand.core.damage.take([*found])
    hand.settle()
    assert hand.core.state("t").damage == [(104, 105)]


def test_segments_that_the_disk_refuses_are_joined_another_time() -> None:
    """`Merges` gives up on what is damaged; a refusal may pass."""
    hand = sealed()
    block = hand.core.catalog.by_id[1].topic.tail.blocks[0]
    assert block.segment is not None
    merges = hand.core.keeper.mover.merges
    for unread in (True, False):
        copy = Copy(hand.core.catalog.by_id[1].topic, [block], [])
        copy.damage.append(DamagedSegment(block.segment, "seg", [(0, 0)], "why", unread=unread))
        merges.done(Job(copy))  # type: ignore[arg-type]  # all that it looks at
        assert (block.segment in merges._spoiled) is not unread


class Job:
    """A merge that has made nothing."""

    number = 1

    def __init__(self, copy: Copy) -> None:
        self.copy = copy


def test_damage_that_is_told_at_once_would_cost_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was so before, and what the tests above would notice."""
    monkeypatch.setattr(Damage, "_may_pass", lambda *_: False)
    hand = sealed()
    refuse(hand, *all_of(hand, ".data"))
    ask(hand)
    ask(hand)
    assert hand.core.state("t").count == 0


# -- for how long it has lasted ---------------------------------------------------------------------------------------


def test_a_stretch_that_was_read_since_begins_anew() -> None:
    known = Refusals()
    assert known.refused(1, [(10, 20)], 0) == (True, True)
    assert known.refused(1, [(10, 20)], 50_000) == (True, False)
    known.was_read(1, 15, 15)
    assert len(known) == 0
    assert known.refused(1, [(10, 20)], 70_000) == (True, True)
    assert known.refused(1, [(10, 20)], 130_000) == (False, False)


def test_a_bad_sector_lasts_also_while_all_else_is_read() -> None:
    known = Refusals()
    known.refused(1, [(10, 20)], 0)
    known.was_read(1, 21, 900)
    known.was_read(2, 10, 20)
    assert known.refused(1, [(12, 14), (20, 20)], 60_000) == (False, False)


def test_what_is_refused_anew_of_a_place_that_was_read_has_its_own_time() -> None:
    known = Refusals()
    known.refused(1, [(10, 20)], 0)
    known.was_read(1, 21, 900)
    assert known.refused(1, [(15, 21)], 60_000) == (True, False)
    assert known.refused(1, [(10, 21)], 119_999) == (True, False)
    assert known.refused(1, [(10, 21)], 120_000) == (False, False)


def test_what_is_refused_of_a_place_that_gives_nothing_shares_its_time() -> None:
    known = Refusals()
    known.refused(1, [(10, 20)], 0)
    assert known.refused(2, [(10, 20)], 60_000) == (True, True)
    assert known.refused(1, [(21, 900)], 60_000) == (False, False)


def test_two_refusals_with_long_silence_between_are_not_a_long_one() -> None:
    known = Refusals()
    known.refused(1, [(10, 20)], 0)
    assert known.refused(1, [(10, 20)], STALE_MS + 1) == (True, True)
    assert known.refused(1, [(10, 20)], STALE_MS + UNREADABLE_MS) == (True, False)
    assert known.refused(1, [(10, 20)], STALE_MS + UNREADABLE_MS + 1) == (False, False)


def test_places_are_bounded() -> None:
    known = Refusals()
    for place in range(PLACES_MAX + 10):
        known.refused(place, [(1, 1)], 0)
    assert len(known) == PLACES_MAX
    assert known.refused(0, [(1, 1)], UNREADABLE_MS) == (True, True)
    assert known.refused(PLACES_MAX, [(1, 1)], UNREADABLE_MS) == (False, False)
