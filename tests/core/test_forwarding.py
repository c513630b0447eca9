"""Passes by hand: what one pass and one slice do, whose turn it is, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import forwarding
from engine.core.catching import Behind
from engine.formats.forward import Group, encode_forward_head
from engine.limits import MIB, EngineSettings
from engine.routers.copies import SCAN_MAX, Stretch, take
from engine.routers.hops import Hops
from engine.routers.router import Router, RouterSpec
from engine.topic.state import Topic
from engine.types import ConfigChanges, Discard, Match
from tests.core.hand import SMALL, Hand, records

ROOMY = EngineSettings(**{**{name: getattr(SMALL, name) for name in SMALL.__struct_fields__}, "cache_bytes": 64 * MIB})


def fan(dests: int, *, ahead: int = 0) -> tuple[Hand, list[Router]]:
    """A source with so many dests, of which dest i has i × `ahead` records of its own."""
    hand = Hand(settings=ROOMY)
    hand.create("source")
    for number in range(dests):
        hand.create(f"d{number}")
        if ahead * number:
            hand.write(f"d{number}", *range(ahead * number))
        hand.take(hand.core.routers.put(f"r{number}", "source", f"d{number}", RouterSpec()))
    while hand.core.route():
        pass
    return hand, [hand.core.catalog.routers.by_name[f"r{number}"] for number in range(dests)]


def counting(taken: list[int]) -> Callable[..., Stretch]:
    """`take`, and how many records it took."""

    def counted(*args: Any, **more: Any) -> Stretch:
        stretch = take(*args, **more)
        taken.append(len(stretch.records))
        return stretch

    return counted


def route(hand: Hand) -> int:
    """Slices until nothing is left."""
    slices = 1
    while hand.core.route():
        slices += 1
    return slices


def frames(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many dests each Forward of the test is for, as they are made."""
    made: list[int] = []

    def encode(groups: list[Group], ts: int) -> bytes:
        made.append(sum(len(group.landings) for group in groups))
        return encode_forward_head(groups, ts)

    monkeypatch.setattr(forwarding, "encode_forward_head", encode)
    return made


def test_one_frame_serves_all_dests_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, routers = fan(10)
    made = frames(hand, monkeypatch)
    hand.write("source", 1, 2, 3)
    route(hand)
    assert made == [10]
    assert [router.cursor for router in routers] == [3] * 10


def test_a_dest_that_is_asked_for_is_served_before_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, routers = fan(100)
    made = frames(hand, monkeypatch)
    hand.write("source", 1)
    hand.core.catching.check(["d99"])
    assert made == [forwarding.DESTS_HURRIED], "one short pass, with the one that is wanted in it"
    assert routers[99].cursor == 1
    assert sum(router.cursor for router in routers) == forwarding.DESTS_HURRIED
    hand.core.catching.check(["d99"])
    assert len(made) == 1, "it lacks nothing any more"
    route(hand)
    assert sum(router.cursor for router in routers) == 100
    assert sum(made) == 100, "nobody is served twice"


def test_a_write_waits_for_one_slice_however_many_dests_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, _ = fan(100)
    made = frames(hand, monkeypatch)
    hand.write("source", 1)
    clock = hand.core.commit.clock
    old, looks = clock.boot_ns, count()
    monkeypatch.setattr(clock, "boot_ns", lambda: old() + next(looks) * 1_000_000)  # each look is a millisecond later
    assert hand.core.route(), "there is more, and others have the loop first"
    assert made == [forwarding.DESTS_MAX]
    assert route(hand) == 3
    assert sum(made) == 100


def test_a_pass_is_bounded_in_records_copies_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for dests, data, most in (
        (1, 1, forwarding.RECORDS_MAX),
        (32, 1, forwarding.COPIES_MAX // 32),
        (4, "x" * 4000, forwarding.BYTES_MAX // 4 // 4000),
    ):
        hand, routers = fan(dests)
        taken: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(forwarding, "take", counting(taken))
            hand.write("source", *[data] * 500)
            route(hand)
        assert sum(taken) == 500
        assert most * 0.9 <= max(taken) <= most
        assert {router.cursor for router in routers} == {500}


def test_a_pass_examines_no_more_however_many_filters_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(settings=ROOMY)
    hand.create("source")
    for number in range(forwarding.DESTS_MAX):
        hand.create(f"d{number}")
        spec = RouterSpec(filter=Match("Eq", f"t{number}"))
        hand.take(hand.core.routers.put(f"r{number}", "source", f"d{number}", spec))
    tags: list[str | None] = [*(["t7"] * 4999), "t3"]
    hand.take(hand.core.append("source", Batch([b"1"] * 5000, tags=tags)))
    examined: list[int] = []

    def counted(topic: Topic, hops: Hops | None, cursor: int, *args: Any, **more: Any) -> Stretch:
        stretch = take(topic, hops, cursor, *args, **more)
        examined.append(stretch.to - cursor)
        return stretch

    monkeypatch.setattr(forwarding, "take", counted)
    source = hand.core.catalog.visible["source"]
    hand.core.forwarding._pass(source)
    assert 0 < sum(examined) <= SCAN_MAX
    hand.turn()
    route(hand)
    assert [len(hand.read(f"d{number}")) for number in (3, 7, 9)] == [1, 4999, 0]


def test_dests_with_other_seqs_and_other_wishes_get_what_is_theirs() -> None:
    hand, _ = fan(5, ahead=7)
    hand.take(hand.core.routers.put("bare", "source", "b", RouterSpec(preserve_tag=False, preserve_node=False)))
    hand.take(hand.core.append("source", Batch.of([1, 2], tags=["t", None], nodes=[None, "n"])))
    route(hand)
    hand.settle()
    for number in range(5):
        shown = records(hand.page(f"d{number}", from_seq=7 * number, include_tags=True))
        assert [(one["$seq"], one["data"], one.get("$tag"), one.get("$node")) for one in shown] == [
            (7 * number + 1, 1, "t", None),
            (7 * number + 2, 2, None, "n"),
        ]
    shown = records(hand.page("b", include_tags=True))
    assert [sorted(one) for one in shown] == [["$seq", "$ts", "data"]] * 2


def test_who_asks_for_a_dest_that_is_full_does_not_wait_and_others_go_on() -> None:
    hand, routers = fan(3)
    hand.create("full", cap_records=1, discard=Discard.REJECT)
    hand.take(hand.core.routers.put("rf", "source", "full", RouterSpec()))
    hand.write("source", 1, 2)
    hand.core.catching.check(["full", "d1"])
    assert hand.core.routers.get("rf").blocked == "topic_full"
    assert [router.cursor for router in routers] == [2, 2, 2]


def test_a_router_whose_definition_waits_for_the_disk_is_not_tried_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand, _ = fan(1)
    hand.take(hand.core.put_topic("d0", ConfigChanges(cap_records=1, discard=Discard.REJECT)))
    hand.create("d1")
    hand.write("source", 1, 2)
    route(hand)
    assert hand.core.routers.get("r0").blocked == "topic_full"
    made = hand.core.routers.put("r1", "source", "d1", RouterSpec(start="earliest"))
    written = hand.core.append("source", Batch([b"3"]))
    hand.turn()
    assert written.done
    taken: list[int] = []
    once = counting(taken)

    def counted(*args: Any, **more: Any) -> Stretch:
        assert len(taken) < 2, "time stands still, so the slice would never end"
        return once(*args, **more)

    monkeypatch.setattr(forwarding, "take", counted)
    route(hand)
    assert (made.done, len(taken)) == (False, 1), "of the one that is full"
    monkeypatch.undo()
    hand.take(made)
    route(hand)
    assert hand.read("d1") == [1, 2, 3]


def test_a_router_that_waits_is_tried_with_one_record_and_takes_all_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand, _ = fan(0)
    hand.create("full", cap_records=1, discard=Discard.REJECT)
    hand.take(hand.core.routers.put("rf", "source", "full", RouterSpec()))
    hand.write("source", *range(400))
    route(hand)
    assert hand.core.routers.get("rf").blocked == "topic_full"
    taken: list[int] = []
    monkeypatch.setattr(forwarding, "take", counting(taken))
    for _ in range(3):
        hand.pass_ms(forwarding.RETRY_MS)
        route(hand)
    assert taken == [1, 1, 1]
    hand.take(hand.core.put_topic("full", ConfigChanges(cap_records=400)))
    route(hand)
    assert hand.read("full") == [*range(400)]
    assert len(taken) <= 3 + 1 + 400 // forwarding.RECORDS_MAX + 1


def test_who_asks_while_passes_are_held_waits_for_them() -> None:
    hand, routers = fan(2)
    hand.write("source", 1)
    hand.core.forwarding.forwards.held = True
    with pytest.raises(Behind) as behind:
        hand.core.catching.check(["d1"])
    ticket = behind.value.job.ticket
    hand.core.catching.look()
    assert [ticket.done, routers[1].cursor] == [False, 0]
    hand.core.forwarding.forwards.held = False
    route(hand)
    hand.core.catching.look()
    assert [ticket.done, routers[1].cursor] == [True, 1]
    assert routers[1].cursor == 1


def test_what_was_full_when_passes_were_halted_is_waited_for_until_it_was_tried() -> None:
    hand, _ = fan(1)
    hand.create("full", cap_records=1, discard=Discard.REJECT)
    hand.take(hand.core.routers.put("rf", "source", "full", RouterSpec()))
    hand.write("source", 1, 2, 3)
    route(hand)
    assert hand.core.routers.get("rf").blocked == "topic_full"
    hand.core.forwarding.forwards.held = True
    hand.take(hand.core.delete("full", DeleteSelector(before_seq=2)))
    with pytest.raises(Behind) as behind:
        hand.core.catching.check(["full"])
    ticket = behind.value.job.ticket
    hand.core.catching.look()
    hand.core.forwarding.forwards.held = False
    hand.core.catching.look()
    assert [ticket.done] == [False], "it may take one more, but has not been asked"
    route(hand)
    hand.core.catching.look()
    assert [ticket.done, *hand.read("full")] == [True, 2]


def test_a_loss_goes_round_once_as_records_do() -> None:
    hand = Hand(settings=ROOMY)
    hand.create("a", cap_records=3)
    hand.create("b")
    hand.take(hand.core.routers.put("a>b", "a", "b", RouterSpec()))
    hand.take(hand.core.routers.put("b>a", "b", "a", RouterSpec(allow_cycle=True)))
    hand.write("a", *range(10))
    for _ in range(100):
        if not hand.core.route():
            break
    else:
        pytest.fail("a loss goes round without end")
    heads = {name: slot.topic.head for name, slot in hand.core.catalog.visible.items()}
    assert heads == {"a": 10, "b": 10}
