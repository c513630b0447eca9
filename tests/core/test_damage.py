"""Segments that are damaged under a running store: what readers, the state and the next start make of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import Ticket
from engine.core.jobs import outcome
from engine.core.reads import until_read
from engine.errors import Code, Refused, TopicsError
from engine.limits import OnCorruption
from engine.topic.history import NotCached, ReadJob
from engine.types import ConfigChanges, Match, Page, PageRequest, Reason
from tests.core.hand import SMALL, Hand, records
from tests.sim.disk import FakeDisk
from tests.store.checkpoint import checkpoint


def sealed(count: int = 600, **settings: Any) -> Hand:
    """A store whose topic `t` begins with segments of a hundred records, and goes on in the log."""
    hand = Hand(settings=msgspec.structs.replace(SMALL, **settings))
    hand.create("t")
    for first in range(0, count, 100):
        values = [{"n": number, "pad": "x" * 30} for number in range(first + 1, first + 101)]
        batch = Batch.of(values)
        batch.tags = [f"tag-{number % 7}" for number in range(first + 1, first + 101)]
        hand.take(hand.core.append("t", batch))
    hand.quieten()
    checkpoint(hand.core, hand.disk, 1, own_files=True, sync=hand.settle)
    hand.core.close()
    hand = hand.reopen()
    assert all(block.segment is not None for block in hand.core.catalog.by_id[1].topic.tail.blocks)
    return hand


def ask(hand: Hand, from_seq: int = 0, **more: Any) -> Page:
    request = PageRequest(from_seq=from_seq, limit=1000, **more)
    return until_read(hand.core, partial(hand.core.page, "t", request), partial(answer, hand))


def answer(hand: Hand, ticket: Ticket[bool]) -> None:
    hand.settle()
    assert ticket.done


def file_of(disk: FakeDisk, ending: str, number: int = 0) -> Any:
    names = [name for name in disk.list("topics/0000000000000001") if name.endswith(ending)]
    return disk._file(f"topics/0000000000000001/{names[number]}")


def hurt(hand: Hand, text: bytes, number: int = 0) -> None:
    """Flip a bit in the record that says `text`."""
    file = file_of(hand.disk, ".data", number)
    at = bytes(file.cache).index(text)
    file.cache[at] ^= 4


def seqs(page: Page) -> list[int]:
    return [record["$seq"] for record in records(page)]


def test_one_flipped_bit_costs_one_record_and_everybody_learns_of_it() -> None:
    hand = sealed()
    hurt(hand, b'"n":42,')
    page = ask(hand)
    assert seqs(page) == list(range(1, 42))
    assert page.tombstone is None
    page = ask(hand, page.next_from_seq)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (42, 42, Reason.CORRUPTION)
    assert seqs(page) == list(range(43, 601))
    state = hand.core.state("t")
    assert (state.count, state.damage) == (599, [(42, 42)])
    with pytest.raises(Refused) as refused:
        hand.core.record("t", 42)
    assert refused.value.detail is not None
    assert refused.value.detail["why"] == "lost"
    assert (hand.core.damage.segments, hand.core.damage.records) == (1, 1)
    assert "seg-" in hand.core.damage.said[0]


def test_the_gap_is_there_after_a_kill_and_is_not_told_again() -> None:
    hand = sealed()
    hurt(hand, b'"n":42,')
    ask(hand)
    before = hand.core.state("t")
    again = hand.reopen()
    assert again.core.state("t").damage == before.damage == [(42, 42)]
    tip = again.core.wal.shards[0].tip_lsn
    assert seqs(ask(again)) == list(range(1, 42))
    assert seqs(ask(again, 41)) == list(range(43, 601))
    assert again.core.wal.shards[0].tip_lsn == tip
    assert again.core.damage.records == 0
    assert again.core.state("t").count == 599


def test_what_many_readers_find_at_once_is_told_once() -> None:
    hand = sealed()
    hand.disk.page_cache = False
    hurt(hand, b'"n":42,')
    hurt(hand, b'"n":43,')
    jobs: list[ReadJob] = []
    for cursor in (0, 10, 41):
        with pytest.raises(NotCached) as missing:
            hand.core.page("t", PageRequest(from_seq=cursor, limit=50))
        jobs.append(missing.value.job)
    tickets = [hand.core.read_done(job, outcome(job, hand.fs)) for job in jobs]
    assert not any(ticket.done for ticket in tickets)
    hand.settle()
    assert all(ticket.value() for ticket in tickets)
    assert hand.core.damage.records == 2
    assert hand.core.state("t").damage == [(42, 43)]
    assert [list(gap) for gap in hand.core.catalog.by_id[1].topic.gaps] == [[42, 43, Reason.CORRUPTION]]


def test_damage_in_what_was_deleted_is_no_loss() -> None:
    hand = sealed()
    hand.take(hand.core.delete("t", DeleteSelector(seqs=(42,))))
    hurt(hand, b'"n":42,')
    page = ask(hand)
    assert seqs(page) == [seq for seq in range(1, 601) if seq != 42]
    assert page.tombstone is None
    assert hand.core.state("t").damage is None


def test_a_file_that_is_gone_costs_its_records_and_no_others() -> None:
    hand = sealed()
    names = [name for name in hand.disk.list("topics/0000000000000001") if name.endswith(".data")]
    hand.disk.unlink(f"topics/0000000000000001/{names[2]}")
    block = hand.core.catalog.by_id[1].topic.tail.blocks[2]
    lost = list(range(block.first_seq, block.last_seq + 1))
    page = ask(hand)
    assert seqs(page) == list(range(1, lost[0]))
    page = ask(hand, page.next_from_seq)
    assert page.tombstone is not None
    assert page.tombstone.gap_to == lost[-1]
    assert seqs(page) == list(range(lost[-1] + 1, 601))
    assert hand.core.state("t").damage == [(lost[0], lost[-1])]


def test_a_damaged_index_is_made_again_and_costs_nothing() -> None:
    hand = sealed()
    file = file_of(hand.disk, ".idx")
    file.cache[200] ^= 1
    assert seqs(ask(hand)) == list(range(1, 601))
    assert hand.core.damage.records == 0


def test_a_lost_table_of_tags_costs_nothing() -> None:
    hand = sealed()
    for name in hand.disk.list("topics/0000000000000001"):
        if name.endswith(".tags"):
            hand.disk.unlink(f"topics/0000000000000001/{name}")
    hand.disk.page_cache = False
    selector = DeleteSelector(match=Match("Eq", "tag-3"))
    ticket = until_read(hand.core, partial(hand.core.delete, "t", selector), partial(answer, hand))
    assert hand.take(ticket).deleted == len([seq for seq in range(1, 601) if seq % 7 == 3])
    assert seqs(ask(hand)) == [seq for seq in range(1, 601) if seq % 7 != 3]


def test_a_store_that_refuses_damage_says_so_and_changes_nothing() -> None:
    hand = sealed(on_corruption=OnCorruption.REFUSE)
    hurt(hand, b'"n":42,')
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            ask(hand)
        assert refused.value.code is Code.TOPIC_DAMAGED
        assert refused.value.detail == {"topic": "t", "ranges": [(42, 42)]}
    assert hand.core.state("t").count == 600
    assert seqs(ask(hand, 100, to_seq=150)) == list(range(101, 151))


def test_damage_that_cannot_be_noted_is_an_error_and_no_silence() -> None:
    hand = sealed()
    hurt(hand, b'"n":42,')
    hand.disk.same_root = lambda: False  # type: ignore[method-assign]  # the data directory was moved
    hand.core.commit.check_root(hand.disk)
    with pytest.raises(TopicsError) as failed:
        ask(hand)
    assert failed.value.code is Code.READ_ONLY
    assert seqs(ask(hand, 100, to_seq=150)) == list(range(101, 151))


def test_a_disk_that_does_not_answer_is_an_error_and_no_damage() -> None:
    hand = sealed()
    hand.disk.page_cache = False
    with pytest.raises(NotCached) as missing:
        hand.core.page("t", PageRequest())
    ticket = hand.core.read_done(missing.value.job, OSError(24, "too many open files"))
    assert ticket.error is not None
    assert ticket.error.retryable
    assert hand.core.state("t").damage is None


def test_what_a_job_read_of_a_segment_that_was_replaced_does_not_count() -> None:
    hand = sealed()
    hand.disk.page_cache = False
    with pytest.raises(NotCached) as missing:
        hand.core.page("t", PageRequest())
    job = missing.value.job
    # The checkpoint that has put another segment in its place has removed the files by now.
    for name in hand.disk.list("topics/0000000000000001"):
        hand.disk.unlink(f"topics/0000000000000001/{name}")
    assert outcome(job, hand.fs) is None
    assert job.damage
    hand.core.catalog.by_id[1].topic.tail.drop(0, 1)
    assert hand.core.read_done(job, None).value()
    assert hand.core.damage.records == 0


def test_a_delete_that_waited_for_room_reads_by_itself() -> None:
    hand = sealed()
    for name in hand.disk.list("topics/0000000000000001"):
        if name.endswith(".tags"):
            hand.disk.unlink(f"topics/0000000000000001/{name}")
    hand.core.parking.add("t", Ticket(), lambda: hand.core.now() > 0 and len(waits) > 3, hand.core.now())
    waits: list[int] = []
    ticket = hand.core.delete("t", DeleteSelector(match=Match("Eq", "tag-3")))
    for turn in range(20):
        waits.append(turn)
        hand.settle()
    assert ticket.value().deleted == len([seq for seq in range(1, 601) if seq % 7 == 3])


def test_an_index_that_nothing_can_vouch_for_is_told_when_it_is_needed_for_eviction() -> None:
    hand = sealed()
    for number in range(6):
        for ending in (".idx", ".data"):
            file = file_of(hand.disk, ending, number)
            for at in range(64, len(file.cache)):
                file.cache[at] = 0xAA
    hand.take(hand.core.put_topic("t", ConfigChanges(cap_records=550)))
    hand.settle()
    state = hand.core.state("t")
    assert state.count == 0 or state.damage
    assert ask(hand).tombstone is not None
