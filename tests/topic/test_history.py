"""Parts of sealed blocks: as long as readers want them, never two over the same rows, and counted exactly."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise

import pytest

import engine.topic.history as history_module
from engine.segment import few
from engine.tagset import Needle
from engine.topic.history import NotCached, Part, ReadJob
from engine.topic.page import read_page
from engine.types import Match, PageRequest
from tests.topic.making import Made
from tests.topic.sealing import Sealer

COUNT = 1500


def sealed() -> tuple[Made, Sealer]:
    """A topic of `COUNT` records in one segment."""
    made = Made()
    for first in range(0, COUNT, 100):
        made.write(*[b'{"n":%d}' % (first + n) for n in range(100)])
    sealer = Sealer(made.topic)
    assert sealer.seal(0, len(made.topic.tail.blocks)) is not None
    return made, sealer


def kept(made: Made) -> list[Part]:
    """The parts that are kept, in order; what `bytes_held` says is what they weigh."""
    history = made.cache.history
    parts = sorted((part for part in history._kept.values() if isinstance(part, Part)), key=lambda part: part.first_seq)
    assert history.held == made.cache.bytes_held == sum(part.weight for part in parts)
    for before, after in pairwise(parts):
        assert before.first_seq + before.count <= after.first_seq
    return parts


def texts(made: Made, from_seq: int, limit: int) -> list[bytes]:
    page = read_page(made.topic, PageRequest(from_seq=from_seq, limit=limit), 1000)
    return b"".join(page.pieces).split(b',"data":')[1:]


def test_a_page_is_one_part_and_the_next_one_begins_where_that_ends() -> None:
    made, _ = sealed()
    assert len(texts(made, 0, 1000)) == 1000
    assert [(part.first_seq, part.count) for part in kept(made)] == [(1, 1024)]
    assert len(texts(made, 1000, 1000)) == 500
    assert [(part.first_seq, part.count) for part in kept(made)] == [(1, 1024), (1025, 476)]


def test_whatever_is_asked_in_whatever_order_is_answered_right_and_counted_once() -> None:
    made, _ = sealed()
    rng = random.Random(1)
    for _ in range(300):
        start, limit = rng.randrange(COUNT), rng.choice((1, 10, 300, 1000))
        found = texts(made, start, limit)
        assert len(found) == min(limit, COUNT - start)
        assert found[0].startswith(b'{"n":%d}' % start)
        kept(made)
        while rng.random() < 0.3 and kept(made):
            made.cache.history.give_back()


@pytest.mark.slow
def test_what_a_job_brings_makes_room_for_itself_among_what_others_have_read_meanwhile() -> None:
    made, sealer = sealed()
    block = made.topic.tail.blocks[0]
    assert block.segment is not None
    history = made.cache.history
    sealer.disk.page_cache = False
    jobs: list[ReadJob] = []
    for start, limit in ((70, 400), (0, 100), (600, 300), (900, 64)):
        with pytest.raises(NotCached) as raised:
            history.part(block, start, limit)
        jobs.append(raised.value.job)
        jobs[-1].run(sealer.disk)
    for job in (*jobs, *reversed(jobs)):
        history.put(job, lambda segment: True)
        _, start, _ = job.asked[0]
        part, at = history.part(block, start)
        assert part.first_seq + at == start + 1
        kept(made)
    history.forget(block.segment)
    assert kept(made) == []
    assert not history._firsts


def test_a_start_learns_the_tags_of_its_segments_little_by_little() -> None:
    made = Made()
    sealer = Sealer(made.topic)
    for number in range(40):
        made.write(b"1", b"2", tags=["even" if number % 2 == 0 else "odd", None])
        assert sealer.seal(number, 1) is not None
    blocks = made.topic.tail.blocks
    for block in blocks:
        block.known_tags = None
    made.topic.tail.adopt(blocks)
    assert blocks[3].segment is not None
    sealer.disk.unlink(blocks[3].segment.tags_path)  # what cannot be read is no matter yet
    known = []
    for _ in range(4):
        made.cache.history.learn_some()
        known.append(sum(block.known_tags is not None for block in blocks))
    assert known == [15, 31, 39, 39]
    odd = Needle(Match(op="Eq", value="odd"))
    assert [made.cache.history.may_hold(block, odd) for block in blocks] == [
        number % 2 == 1 for number in range(len(blocks))
    ]


def test_nothing_is_learnt_where_there_is_no_room() -> None:
    made = Made(cache_bytes=1)
    made.write(b"1", tags=["t"])
    sealer = Sealer(made.topic)
    assert sealer.seal(0, 1) is not None
    block = made.topic.tail.blocks[0]
    block.known_tags = None
    made.topic.tail.adopt([block])
    made.cache.bytes_held += 2
    made.cache.history.learn_some()
    assert block.known_tags is None
    made.cache.bytes_held -= 2
    made.cache.history.learn_some()
    assert block.known_tags is not None


@pytest.mark.parametrize(("each", "most"), [(600, 16 * 4096), (100, 64 * 200), (20, 256 * 120)])
def test_a_read_of_large_records_brings_what_the_page_may_have_and_not_many_times_that(
    monkeypatch: pytest.MonkeyPatch, each: int, most: int
) -> None:
    """Bounds a thousandth as large as they are: a page of four records, and whatever sums cover beside them."""
    monkeypatch.setattr(history_module, "READ_BYTES_MAX", 16 * 1024)
    monkeypatch.setattr(few, "GROUPS_BYTES", 16 * 1024)
    made = Made()
    for first in range(0, 500, 100):
        made.write(*[b'"%0*d"' % (each, first + n) for n in range(100)])
    sealer = Sealer(made.topic)
    assert sealer.seal(0, len(made.topic.tail.blocks)) is not None
    seen: list[bytes] = []
    while len(seen) < 500:
        request = PageRequest(from_seq=len(seen), limit=1000, max_bytes=4 * (each + 40))
        page = sealer.ask(partial(read_page, made.topic, request, 1000))
        found = b"".join(page.pieces).split(b',"data":')[1:]
        assert found
        seen += found
        assert max(part.weight for part in kept(made)) <= most
        while made.cache.history.held > most:
            made.cache.history.give_back()
    assert [int(text.split(b'"')[1]) for text in seen] == list(range(500))
    assert sealer.jobs <= 2 * 500 // 64 + 2, "a group is looked at once, and then read from the page cache"
