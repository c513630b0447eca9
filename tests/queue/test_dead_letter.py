"""Dead letters say where they come from and what happened; circles of them are refused."""

from __future__ import annotations

import json

import pytest

from engine.errors import Code, Refused
from engine.queue.commands import Claim
from engine.queue.dead_letter import check_chain, dead_letter_config, dead_letter_meta, origin_of, requeued_meta
from engine.queue.events import Move
from engine.queue.trail import Delivery, End
from engine.types import Durability, TopicType, configured
from tests.queue.topic import Host, queue_config

TRAIL = (Delivery(1, "a", 10, 20, End.EXPIRED), Delivery(2, "b", 30, 40, End.NACKED, "no"))


def test_a_dead_letter_says_where_it_comes_from_and_what_happened() -> None:
    meta = json.loads(dead_letter_meta(None, "jobs", Move(7, 2, TRAIL), 5))
    assert meta == {
        "$dead_letter_from": "jobs",
        "$dead_letter_src_seq": "7",
        "$dead_letter_deliveries": "2",
        "$dead_letter_first_ts": "5",
        "$dead_letter_trail": [
            {"node": "a", "claimed": 10, "ended": 20, "how": "expired"},
            {"node": "b", "claimed": 30, "ended": 40, "how": "nacked", "reason": "no"},
        ],
    }


def test_other_members_keep_their_bytes() -> None:
    meta = dead_letter_meta(b'{"a": 1.10,"\\u0062":12345678901234567890}', "jobs", Move(7, 2, TRAIL), 5)
    assert meta.startswith(b'{"a":1.10,"b":12345678901234567890,"$dead_letter_from"')


def test_a_requeued_job_keeps_its_trail_and_adds_to_it() -> None:
    first = dead_letter_meta(b'{"k":1}', "jobs", Move(7, 2, TRAIL), 5)
    assert origin_of(first) == "jobs"
    back = requeued_meta(first)
    assert back is not None
    assert set(json.loads(back)) == {"k", "$dead_letter_first_ts", "$dead_letter_trail"}
    again = json.loads(dead_letter_meta(back, "jobs", Move(9, 7, TRAIL * 4), 99))
    assert again["$dead_letter_first_ts"] == "5"
    assert len(again["$dead_letter_trail"]) == 8
    assert again["$dead_letter_src_seq"] == "9"


@pytest.mark.parametrize("meta", [None, b"{}", b'{"$dead_letter_from":1}', b'{"$dead_letter_trail":"mine"}'])
def test_a_meta_that_is_none_of_ours_has_no_origin_and_does_no_harm(meta: bytes | None) -> None:
    assert origin_of(meta) is None
    assert json.loads(dead_letter_meta(meta, "q", Move(1, 1, TRAIL), 5))["$dead_letter_from"] == "q"


def test_nothing_is_left_of_a_meta_that_was_empty() -> None:
    assert requeued_meta(None) is None
    assert requeued_meta(b'{"$dead_letter_from":"q"}') is None


def test_chains_are_fine_and_circles_are_refused() -> None:
    known = {"b": "c", "c": "d", "x": "y", "y": "x"}
    check_chain("a", "b", known.get)
    check_chain("a", "missing", known.get)
    check_chain("a", "x", known.get)
    with pytest.raises(Refused) as refusal:
        check_chain("d", "b", known.get)
    assert refusal.value.code is Code.INVALID_REQUEST
    assert refusal.value.detail == {"field": "dead_letter", "cycle": ["d", "b", "c", "d"]}
    with pytest.raises(Refused):
        check_chain("a", "a", known.get)


def test_a_missing_target_is_made_as_a_queue_of_the_same_class() -> None:
    made = configured("dead", None, dead_letter_config(queue_config(durability=Durability.FSYNC, ttl_ms=5)))
    assert (made.type, made.durability, made.durable, made.ttl_ms) == (TopicType.QUEUE, Durability.FSYNC, True, 0)


def test_a_job_goes_down_a_chain_of_dead_letters_with_its_history() -> None:
    first = Host(max_deliveries=1, dead_letter="second")
    second = Host(max_deliveries=1, dead_letter="third")
    first.write()
    first.claim(1, "a")
    first.nack(1, node="a", reason="no")
    moved = first.claim_all(Claim(node="a")).moved
    assert moved is not None
    meta = dead_letter_meta(None, "first", moved.moves[0], 1)
    second.write()
    second.claim(1, "b")
    second.pass_ms(1000)
    moved = second.claim_all(Claim(node="b")).moved
    assert moved is not None
    last = json.loads(dead_letter_meta(meta, "second", moved.moves[0], 2))
    assert [step["node"] for step in last["$dead_letter_trail"]] == ["a", "b"]
    assert (last["$dead_letter_from"], last["$dead_letter_first_ts"]) == ("second", "1")
