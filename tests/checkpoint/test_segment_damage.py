"""Pieces and segments that are damaged while a checkpoint copies them: it is told, and the engine goes on."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import msgspec
import pytest

from engine.checkpoint.jobs import SealJob
from engine.core.jobs import outcome
from engine.core.reads import until_read
from engine.errors import Code, Refused
from engine.formats.header import FileHeader, pack_file_header, parse_file_header
from engine.types import PageRequest, Reason
from tests.checkpoint.test_log_damage import attempt
from tests.core.hand import SMALL, Hand, records

TAILS = "meta/tails-0000000001.data"


def pieced() -> Hand:
    """A store whose topic `t` has a piece in a tails file, and enough in the log to make a segment of both; `u` has
    only the piece."""
    hand = Hand(settings=msgspec.structs.replace(SMALL, segment_max_events=12))
    for topic in ("t", "u"):
        hand.create(topic)
        for number in range(10):
            hand.write(topic, {"n": number, "pad": "x" * 30})
    hand.quieten()
    assert attempt(hand).error is None
    hand = hand.reopen()
    hand.write("t", "newer", "newest")
    return hand


def taken_down(hand: Hand) -> SealJob:
    """The job that makes the segment."""
    hand.core.checkpoint()
    for _ in range(20):
        hand.core.keep_step()
        if (job := hand.core.keep_job()) is not None:
            assert isinstance(job, SealJob)
            return job
    raise AssertionError("there is nothing to seal")


def content(hand: Hand) -> bytearray:
    return cast(bytearray, cast(Any, hand.disk._file(TAILS)).cache)


def with_header(hand: Hand, **change: int) -> None:
    header = parse_file_header(bytes(content(hand)[:64]))
    assert header is not None
    content(hand)[:64] = pack_file_header(FileHeader(**{**header._asdict(), **change}))


def gap_of(hand: Hand, topic: str) -> tuple[int, int, Reason] | None:
    ask = partial(hand.core.page, topic, PageRequest(limit=100))
    page = until_read(hand.core, ask, lambda _: hand.settle())
    if page.tombstone is None and records(page):
        ask = partial(hand.core.page, topic, PageRequest(from_seq=page.next_from_seq, limit=100))
        page = until_read(hand.core, ask, lambda _: hand.settle())
    stone = page.tombstone
    return None if stone is None else (stone.gap_from, stone.gap_to, stone.reason)


@pytest.mark.parametrize("what", [b'"n":4,', None])
def test_what_readers_meet_after_a_checkpoint_has_taken_it_down_is_no_record_to_copy(what: bytes | None) -> None:
    hand = pieced()
    job = taken_down(hand)
    if what is None:
        content(hand)[64:] = b"\xaa" * len(content(hand)[64:])
        lost = (1, 10, Reason.CORRUPTION)
    else:
        content(hand)[content(hand).index(what) + 1] ^= 4
        lost = (5, 5, Reason.CORRUPTION)
    assert gap_of(hand, "t") == lost
    hand.core.keep_done(job, outcome(job, hand.disk))
    hand.settle()
    hand.pass_ms(5_000)
    hand.settle()
    assert attempt(hand).error is None
    assert hand.core.keeper.problem is None
    for path, data in hand.disk.cached_tree().items():
        assert not (path.endswith(".data") and data and "topics/" in path and bytes(40) in data[64:]), (
            "blanks are copied"
        )
    for store in (hand, hand.reopen()):
        assert gap_of(store, "t") == lost
        assert store.core.state("t").count == 12 - (lost[1] - lost[0] + 1)


def test_a_checkpoint_that_meets_a_tails_file_of_another_place_tells_its_records_as_lost() -> None:
    hand = pieced()
    with_header(hand, first=7)
    hand.pass_ms(5_000)
    attempt(hand)
    hand.pass_ms(5_000)
    assert attempt(hand).error is None
    for store in (hand, hand.reopen()):
        assert gap_of(store, "t") == (1, 10, Reason.CORRUPTION)
        assert gap_of(store, "u") == (1, 10, Reason.CORRUPTION)
        assert store.core.state("t").count == 2


def test_a_file_of_a_newer_format_is_refused_by_readers_and_by_checkpoints_and_is_not_lost() -> None:
    hand = pieced()
    with_header(hand, version=2)
    with pytest.raises(Refused) as refused:
        gap_of(hand, "u")
    assert refused.value.code is Code.TOPIC_DAMAGED
    assert attempt(hand).error is not None
    assert hand.core.state("t").count == 12
    with_header(hand, version=1)
    hand.pass_ms(5_000)
    assert attempt(hand).error is None
    assert gap_of(hand, "t") is None
    assert gap_of(hand, "u") is None
