"""A topic that turns ephemeral and back keeps what it promised before, and no seq means two records."""

from __future__ import annotations

import pytest

from engine.commands import Batch, DeleteSelector
from tests.core.hand import Hand
from tests.sim.media import Cut


def test_what_was_acked_after_a_turn_from_ephemeral_to_disk_keeps_its_seqs_through_a_power_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("core", "replay"):
        monkeypatch.setattr(f"engine.core.{module}.SYNC_WINDOW", 256)
    monkeypatch.setattr("engine.core.ephemeral.SEQ_BLOCK", 64)
    hand = Hand()
    hand.create("t", durability="ephemeral")
    hand.write("t", *range(100))
    hand.create("t", durability="disk")
    hand.core.append("t", Batch.of([0]))
    hand.turn()
    acked = hand.core.append("t", Batch.of(list(range(240))))
    hand.turn()
    last = acked.value().last_seq
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    assert again.write("t", "after").first_seq > last


def test_records_deleted_while_a_topic_was_ephemeral_do_not_come_back() -> None:
    hand = Hand()
    hand.create("t", durability="disk")
    hand.write("t", 1, 2, 3)
    hand.create("t", durability="ephemeral")
    assert hand.take(hand.core.delete("t", DeleteSelector(before_seq=3))).deleted == 2
    assert hand.read("t") == [3]
    assert hand.reopen().read("t") == [3]


def test_records_evicted_by_ephemeral_ones_do_not_come_back() -> None:
    hand = Hand()
    hand.create("t", durability="disk", cap_records=2)
    hand.write("t", 1, 2)
    hand.create("t", durability="ephemeral")
    hand.write("t", 3, 4)
    assert hand.read("t") == [3, 4]
    assert hand.reopen().read("t") == []


def test_a_stop_in_good_order_after_a_turn_from_ephemeral_to_disk_skips_no_seqs() -> None:
    hand = Hand()
    hand.create("t", durability="ephemeral")
    hand.write("t", 1, 2, 3)
    hand.create("t", durability="disk")
    hand.core.close()
    again = hand.reopen()
    assert again.write("t", 4).first_seq == 4


def test_ephemeral_seqs_reserved_by_a_frame_that_is_not_synced_are_not_given_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.core.ephemeral.SEQ_BLOCK", 32)
    hand = Hand()
    hand.create("t", durability="ephemeral")
    hand.write("t", 0)
    tickets = []
    # The second block is reserved at seq 18; the write up to 35 leaves the first block and asks for a third one.
    for count in (16, 1, 15, 2):
        tickets.append(hand.core.append("t", Batch.of([0] * count)))
        hand.turn()
    assert [ticket.done for ticket in tickets[:3]] == [True] * 3
    last = max((ticket.value().last_seq for ticket in tickets if ticket.done), default=1)
    again = hand.reopen(hand.disk.powered_off(Cut(0)), hand.clock.reboot())
    assert again.write("t", "after").first_seq > last
