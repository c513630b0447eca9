"""Writes of one tick that share a frame (ADR 0050): the same as if each had its own, but for the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.commit import Commit
from engine.errors import TopicsError
from engine.queue.commands import Ack, Claim, Nack
from engine.topic.block import OPEN_BYTES, OPEN_RECORDS
from engine.types import AppendResult, ConfigChanges, Durability, TopicType
from tests.core.hand import Hand
from tests.sim.faults import Call, Effect, Fault, FaultFs


def frames(hand: Hand) -> int:
    """Frames that were ever staged."""
    return hand.core.wal.order


def started(**config: object) -> Hand:
    """A store with a topic whose first write is behind it."""
    hand = Hand()
    hand.create("t", **config)
    hand.write("t", "first")
    return hand


def append(hand: Hand, *values: Any, **columns: Any) -> Ticket[AppendResult]:
    return hand.core.append("t", Batch.of(list(values), **columns))


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_writes_of_one_tick_have_one_frame_and_each_its_own_answer(durability: str) -> None:
    hand = started(durability=durability)
    before = frames(hand)
    tickets = [append(hand, 1), append(hand, 2, 3), append(hand, 4)]
    assert frames(hand) == before + 1
    assert not any(ticket.done for ticket in tickets)
    hand.settle()
    assert [(a.first_seq, a.last_seq, a.head_seq, a.count) for a in (ticket.value() for ticket in tickets)] == [
        (2, 2, 2, 1),
        (3, 4, 4, 2),
        (5, 5, 5, 1),
    ]
    assert len({(ticket.write_ns, ticket.sync_ns) for ticket in tickets}) == 1
    assert hand.read("t") == ["first", 1, 2, 3, 4]
    assert hand.reopen().read("t") == ["first", 1, 2, 3, 4]


OWN: dict[str, Callable[[Core], object]] = {
    "another topic": lambda core: core.append("u", Batch.of([0])),
    "a tag": lambda core: core.append("t", Batch.of([0], tags=["x"])),
    "a node": lambda core: core.append("t", Batch.of([0], nodes=["x"])),
    "a key": lambda core: core.append("t", Batch.of([0]), key=b"k"),
    "its own sync": lambda core: core.append("t", Batch.of([0]), ack_fsync=True),
    "a cap": lambda core: core.put_topic("t", ConfigChanges(cap_records=100)),
    "a delete": lambda core: core.delete("t", DeleteSelector(before_seq=2)),
    "another class": lambda core: core.put_topic("t", ConfigChanges(durability=Durability.FSYNC)),
    "what waits behind it": lambda core: core.put_topic("t", ConfigChanges()),
}


@pytest.mark.parametrize("between", OWN)
def test_whatever_comes_between_ends_the_frame(between: str) -> None:
    hand = started()
    hand.create("u")
    append(hand, 1)
    OWN[between](hand.core)
    before = frames(hand)
    append(hand, 2)
    assert frames(hand) == before + 1
    append(hand, 3)
    assert frames(hand) == before + (2 if between == "a cap" else 1)


@pytest.mark.parametrize("size", [10, OPEN_BYTES // 8])
def test_a_frame_takes_no_more_than_an_open_block_does(size: int) -> None:
    hand = started()
    hand.turn()
    before = frames(hand)
    for _ in range(3 * OPEN_RECORDS):
        append(hand, "x" * size)
    hand.settle()
    (*_, block) = hand.core.catalog.visible["t"].topic.tail.blocks
    assert frames(hand) - before == (3 if size == 10 else 3 * OPEN_RECORDS // 7 + 1)
    assert block.open
    assert len(hand.read("t")) == 3 * OPEN_RECORDS + 1


def test_a_frame_that_is_written_takes_no_more() -> None:
    hand = started()
    append(hand, 1)
    hand.turn()
    before = frames(hand)
    append(hand, 2)
    assert frames(hand) == before + 1
    hand.settle()
    assert hand.reopen().read("t") == ["first", 1, 2]


def test_all_that_share_a_frame_are_unknown_when_it_cannot_be_written() -> None:
    hand = started()
    hand.settle()
    hand.core.fs = hand.core.commit.fs = FaultFs(hand.disk, [Fault(Call.WRITE, 0, Effect.EIO)])
    tickets = [append(hand, value) for value in range(3)]
    hand.turn()
    for ticket in tickets:
        assert ticket.error is not None
        assert ticket.error.detail == {"outcome": "unknown"}
    assert hand.read("t") == ["first"]


def test_all_that_share_a_frame_are_unknown_when_its_sync_hangs() -> None:
    hand = started(durability="fsync")
    tickets = [append(hand, value) for value in range(3)]
    hand.turn()
    job = hand.sync_begin()
    assert job is not None
    hand.pass_ms(11_000)
    assert all(ticket.error is not None for ticket in tickets)
    hand.sync_end(job)
    assert hand.read("t") == ["first", 0, 1, 2]


def _play(seed: int) -> tuple[list[Any], list[Any], int]:
    """A random run: its answers, what is there before and after a crash, and how many frames it took."""
    rng = random.Random(seed)
    hand = Hand()
    names = ["a", "b", "c", "e"]
    for name, durability in zip(names, ("disk", "fsync", "memory", "ephemeral"), strict=True):
        hand.create(name, durability=durability)
    tickets: list[Ticket[Any]] = []
    for step in range(150):
        name = rng.choice([names[0], *names])
        match rng.randrange(24):
            case 0:
                tickets.append(hand.core.put_topic(name, ConfigChanges(cap_records=rng.choice((0, 9)))))
            case 1:
                tickets.append(hand.core.delete(name, DeleteSelector(before_seq=rng.randrange(40))))
            case 2:
                key = b"%d" % rng.randrange(3)
                try:
                    tickets.append(hand.core.append(name, Batch.of([step]), key=key, ack_fsync=rng.random() < 0.5))
                except TopicsError as error:
                    tickets.append(Ticket(error=error))
            case 3 | 4:
                hand.turn()
                hand.chores()  # room never decides who waits
            case 5:
                hand.settle()
            case 6:
                hand.pass_ms(rng.randrange(1, 400))
            case 7:
                tickets.append(hand.core.append(name, Batch.of([step, 0], tags=["x", None])))
            case _:
                values = ["v" * rng.choice((1, 30, 800))] * rng.choice((1, 1, 1, 3))
                tickets.append(hand.core.append(name, Batch.of([step, *values])))
    hand.settle()
    answers: list[Any] = [(str(ticket.error), ticket.result) for ticket in tickets]
    seen = []
    for now in (hand, hand.reopen()):
        for name in names:
            page = now.page(name)
            seen.append((now.core.state(name), b",".join(page.pieces), page.tombstone))
    return answers, seen, frames(hand)


def test_a_store_is_the_same_as_without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = 0
    for seed in range(5):
        answers, seen, shared = _play(seed)
        with monkeypatch.context() as patch:
            patch.setattr(Commit, "join", lambda *_: False)
            plain_answers, plain_seen, alone = _play(seed)
        assert answers == plain_answers, seed
        assert seen == plain_seen, seed
        fewer += alone - shared
    assert fewer > 40


# -- acks --------------------------------------------------------------------------------------------------------------


def queue_of(jobs: int, **config: object) -> Hand:
    hand = Hand()
    hand.create("q", type=TopicType.QUEUE, lease_ms=60_000, **config)
    hand.write("q", *range(jobs))
    return hand


def claim(hand: Hand, count: int) -> list[int]:
    """Jobs that are claimed, together."""
    leased = hand.take(hand.core.queues.claim("q", Claim(node="n", max=count), 0).ticket).leased
    return [] if leased is None else [seq for seq, _ in leased.jobs]


def ack(hand: Hand, *seqs: int) -> Ticket[Any]:
    return hand.core.queues.ack("q", Ack(node="n", seqs=list(seqs)))


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_acks_of_one_tick_have_one_frame_and_each_its_own_answer(durability: str) -> None:
    hand = queue_of(8, durability=durability)
    for _ in range(3):
        claim(hand, 2)
    before = frames(hand)
    tickets = [ack(hand, 5), ack(hand, 1, 2), ack(hand, 6, 7), ack(hand, 4)]
    assert frames(hand) == before + 1
    assert not any(ticket.done for ticket in tickets)
    hand.settle()
    answers = [ticket.value() for ticket in tickets]
    assert [list(answer.seqs) for answer in answers] == [[5], [1, 2], [6], [4]]
    assert [len(answer.skipped) for answer in answers] == [0, 0, 1, 0], "7 was not claimed"
    for now in (hand, hand.reopen()):
        assert now.read("q") == [2, 6, 7]
        assert (now.core.state("q").queue or {})["acked"] == 5


def test_an_ack_and_a_write_do_not_share() -> None:
    hand = queue_of(3)
    claim(hand, 3)
    before = frames(hand)
    ack(hand, 1)
    hand.core.append("q", Batch.of([9]))
    ack(hand, 2)
    hand.core.queues.nack("q", Nack(node="n", seqs=[3]))
    assert frames(hand) >= before + 3
    hand.settle()
    assert hand.reopen().read("q") == [2, 9]


def test_all_acks_that_share_a_frame_are_unknown_when_it_cannot_be_written() -> None:
    hand = queue_of(3)
    claim(hand, 3)
    hand.core.fs = hand.core.commit.fs = FaultFs(hand.disk, [Fault(Call.WRITE, 0, Effect.EIO)])
    tickets = [ack(hand, seq) for seq in (1, 2, 3)]
    hand.turn()
    assert [ticket.error is not None and ticket.error.detail for ticket in tickets] == [{"outcome": "unknown"}] * 3
    assert hand.read("q") == [0, 1, 2]


def _work(seed: int) -> tuple[list[Any], int]:
    """A random run of work, what is there before and after a crash, and how many frames it took."""
    rng = random.Random(seed)
    hand = queue_of(60, cap_records=rng.choice((0, 70)))
    held: list[int] = []
    for step in range(160):
        match rng.randrange(8):
            case 0:
                hand.core.append("q", Batch.of([step] * rng.randrange(1, 4)))
            case 1 | 2:
                held += claim(hand, rng.choice((1, 1, 3)))
            case 3:
                hand.core.delete("q", DeleteSelector(before_seq=rng.randrange(step + 1) // 4))
            case 4 if held:
                hand.core.queues.nack("q", Nack(node="n", seqs=[held.pop(rng.randrange(len(held)))]))
            case 5:
                hand.turn()
                hand.chores()
            case _:
                rng.shuffle(held)
                seqs = [held.pop() for _ in range(min(len(held), rng.choice((1, 1, 2))))]
                if seqs:
                    ack(hand, *seqs)
    hand.settle()
    seen = []
    for now in (hand, hand.reopen()):
        state = now.core.state("q")
        seen.append((state, now.read("q")))
    return seen, frames(hand)


def test_a_queue_is_the_same_as_without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = 0
    for seed in range(8):
        seen, shared = _work(seed)
        with monkeypatch.context() as patch:
            patch.setattr(Commit, "open_for", lambda *_: None)
            plain_seen, alone = _work(seed)
        assert seen == plain_seen, seed
        fewer += alone - shared
    assert fewer > 20
