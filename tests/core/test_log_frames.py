"""Readers meet a frame of the log that is damaged under a running store: a tombstone, and what lies behind it."""

from __future__ import annotations

from typing import cast

import pytest

from engine.commands import Batch, DeleteSelector
from engine.core.reads import until_read
from engine.errors import Code, Refused, Unavailable
from engine.fs import Fs
from engine.limits import OnCorruption
from engine.topic.refusals import UNREADABLE_MS
from engine.types import Match, Page, Reason, WhyGone
from tests.checkpoint.test_log_damage import BadSector, cold, hurt, retried
from tests.core.hand import Hand, records


def page_of(hand: Hand, from_seq: int) -> Page:
    return until_read(hand.core, lambda: hand.page("t", from_seq), hand.take)


def lost(hand: Hand) -> list[int]:
    """Seqs up to 30 that a reader from the beginning does not get."""
    seen: set[int] = set()
    from_seq = 0
    while True:
        page = page_of(hand, from_seq)
        seen |= {record["$seq"] for record in records(page)}
        from_seq = page.next_from_seq
        if page.caught_up:
            return sorted(set(range(1, 31)) - seen)


def test_a_page_ends_before_it_and_goes_on_behind_a_tombstone() -> None:
    hand = cold()
    hurt(hand, b'"n":8,')
    hurt(hand, b'"n":20,')
    assert lost(hand) == [7, 8, 9, 19, 20, 21]
    page = page_of(hand, 6)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (7, 9, Reason.CORRUPTION)
    state = hand.core.state("t")
    assert (state.count, state.damage) == (24, [(7, 9), (19, 21)])
    assert hand.core.damage.records == 6
    assert "wal/" in hand.core.damage.said[0]
    hand.settle()
    assert all(block.data is None for block in hand.core.catalog.by_id[1].topic.tail.blocks)
    assert lost(hand) == [7, 8, 9, 19, 20, 21], "read back again, the rest of the block is there"


def test_what_is_lost_stays_lost_through_a_checkpoint_and_a_start() -> None:
    hand = cold()
    hurt(hand, b'"n":8,')
    assert lost(hand) == [7, 8, 9]
    again = hand.reopen()
    assert lost(again) == [7, 8, 9]
    assert again.core.state("t").damage == [(7, 9)]
    retried(again)
    assert lost(again) == [7, 8, 9]
    assert lost(again.reopen()) == [7, 8, 9]


def test_one_record_of_it_is_a_404_that_says_why_and_its_neighbours_are_read() -> None:
    hand = cold()
    hurt(hand, b'"n":8,')
    with pytest.raises(Refused) as raised:
        until_read(hand.core, lambda: hand.core.record("t", 8), hand.take)
    assert raised.value.code is Code.NOT_FOUND
    assert (raised.value.detail or {})["why"] == WhyGone.LOST.value
    assert b'"n":6,' in hand.core.record("t", 6)
    assert b'"n":10,' in hand.core.record("t", 10)


def test_a_filter_on_tags_and_a_delete_by_tag_get_by() -> None:
    hand = cold()
    for number in (31, 32):
        batch = Batch.of([{"n": number, "pad": "x" * 200}])
        batch.tags = ["red"]
        hand.take(hand.core.append("t", batch))
    hand.quieten()
    hurt(hand, b'"n":31,')
    selector = DeleteSelector(match=Match("Eq", "red"))
    ticket = until_read(hand.core, lambda: hand.core.delete("t", selector), hand.take)
    assert hand.take(ticket).deleted == 1
    assert hand.core.state("t").damage == [(31, 31)]
    assert hand.core.state("t").count == 30


def test_a_bad_sector_is_told_like_a_flipped_bit_once_it_has_lasted() -> None:
    hand = cold()
    fs = BadSector(hand, b'"n":8,')
    hand.core.fs = hand.core.store.fs = cast(Fs, fs)
    with pytest.raises(Unavailable):
        lost(hand)
    hand.pass_ms(UNREADABLE_MS)
    assert lost(hand) == [7, 8, 9]


def test_with_refuse_the_reader_gets_a_409_and_nothing_is_told() -> None:
    hand = cold(on_corruption=OnCorruption.REFUSE)
    hurt(hand, b'"n":8,')
    with pytest.raises(Refused) as raised:
        page_of(hand, 0)
    assert raised.value.code is Code.TOPIC_DAMAGED
    assert not hand.core.state("t").damage
