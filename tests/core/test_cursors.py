"""Cursors in the engine: compare-and-set against what was taken, what survives, and their bound."""

from __future__ import annotations

import pytest

from engine.core import Core
from engine.core.cursors import CursorState
from engine.core.jobs import outcome
from engine.errors import Code, TopicsError
from engine.limits import CURSORS_PER_TOPIC_MAX
from engine.types import ConfigChanges, Durability
from tests.core.hand import Hand
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.media import ALL, Cut
from tests.sim.view import look as view_of


def places(core: Core, topic: str = "t") -> dict[str, int]:
    return {cursor.name: cursor.seq for cursor in core.cursors.all(topic)}


def refused(call: object) -> TopicsError:
    with pytest.raises(TopicsError) as caught:
        call()  # type: ignore[operator]  # a function without arguments
    return caught.value


def test_a_cursor_is_set_shown_and_taken_away() -> None:
    hand = Hand()
    hand.write("t", 1, 2, 3)
    put = hand.take(hand.core.cursors.put("t", "reader", 2))
    assert put.created
    assert put.cursor == CursorState("reader", 2, hand.core.state("t").epoch, 1, put.cursor.updated_ts)
    assert not hand.take(hand.core.cursors.put("t", "reader", 3)).created
    assert hand.core.cursors.get("t", "reader").lag == 0
    assert hand.take(hand.core.cursors.drop("t", "reader")) is True
    assert hand.take(hand.core.cursors.drop("t", "reader")) is False
    assert refused(lambda: hand.core.cursors.get("t", "reader")).code is Code.NOT_FOUND
    assert refused(lambda: hand.core.cursors.put("none", "reader", 1)).code is Code.TOPIC_NOT_FOUND


def test_compare_and_set_counts_what_is_on_its_way() -> None:
    hand = Hand()
    hand.write("t", 1, 2, 3)
    first = hand.core.cursors.put("t", "c", 1, if_seq=0)
    error = refused(lambda: hand.core.cursors.put("t", "c", 2, if_seq=0))
    assert error.code is Code.CURSOR_CONFLICT
    assert error.detail is not None
    assert error.detail["seq"] == 1, "the first one is not written yet, and counts"
    second = hand.core.cursors.put("t", "c", 2, if_seq=1)
    hand.settle()
    assert first.value().created
    assert not second.value().created
    dropped = hand.core.cursors.drop("t", "c")
    third = hand.core.cursors.put("t", "c", 9, if_seq=0)
    hand.settle()
    assert dropped.value()
    assert third.value().created
    assert places(hand.core) == {"c": 9}


def test_a_cursor_of_another_incarnation_is_a_conflict_and_none_outlives_its_topic() -> None:
    hand = Hand()
    hand.write("t", 1)
    epoch = hand.core.state("t").epoch
    hand.take(hand.core.cursors.put("t", "c", 1, epoch=epoch))
    hand.take(hand.core.drop_topic("t"))
    hand.write("t", 1)
    assert places(hand.core) == {}
    assert refused(lambda: hand.core.cursors.put("t", "c", 1, epoch=epoch)).code is Code.CURSOR_CONFLICT


def test_cursors_are_bounded_and_updates_always_pass() -> None:
    hand = Hand()
    hand.write("t", 1)
    tickets = []
    for number in range(CURSORS_PER_TOPIC_MAX):
        tickets.append(hand.core.cursors.put("t", f"c{number}", 1))
        if number % 50 == 0:
            hand.settle()
    error = refused(lambda: hand.core.cursors.put("t", "more", 1))
    assert (error.code, error.detail) == (
        Code.THROTTLED,
        {"limit": "cursors_per_topic", "max": CURSORS_PER_TOPIC_MAX},
    )
    hand.settle()
    assert all(ticket.value().created for ticket in tickets)
    hand.take(hand.core.cursors.put("t", "c7", 5))
    hand.take(hand.core.cursors.drop("t", "c8"))
    hand.take(hand.core.cursors.put("t", "more", 1))


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power failure"])
def test_a_cursor_that_was_acked_is_there_at_every_cut(durability: Durability, power: bool) -> None:
    """`memory` and `disk` promise nothing of the last moments before a power failure; a place never goes further
    than it was set in any case."""
    disk = FakeDisk()
    hand = Hand(disk)
    hand.take(hand.core.put_topic("t", ConfigChanges(durability=durability)))
    acked: dict[str, int] = {}
    images: list[tuple[FakeDisk, dict[str, int]]] = []

    def look(seen: FakeDisk, _what: str) -> None:
        seen.on_step = None
        images.append(
            (seen.powered_off(Cut(0 if len(images) % 2 else ALL), "boot-2") if power else seen.killed(), dict(acked))
        )
        seen.on_step = look

    disk.on_step = look
    for seq in range(1, 9):
        hand.write("t", seq)
        for name in ("a", "b")[: 1 + seq % 2]:
            hand.take(hand.core.cursors.put("t", name, seq))
            acked[name] = seq
        if seq == 4:
            done = hand.core.checkpoint()
            while not done.done:
                hand.core.keep_step()
                if (job := hand.core.keep_job()) is not None:
                    hand.core.keep_done(job, outcome(job, disk))
                hand.settle()
            done.value()
    assert len(images) > 15
    for image, known in images:
        clock = ManualClock().reboot() if power else ManualClock()
        tree, boot = image.cached_tree(), image.boot
        hand = Hand(image, clock=clock)
        assert disagreement(tree, boot, view_of(hand.core), hand.core, clock, hand.settings) is None
        found = places(hand.core)
        assert all(seq <= 8 for seq in found.values())
        if not power or durability is Durability.FSYNC:
            assert all(found.get(name, 0) >= seq for name, seq in known.items())
