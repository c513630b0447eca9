"""Sealed blocks against hot ones: a topic whose history is sealed at random moments, with a cache that holds little or
nothing, shows to everybody what one shows that has all of it in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.commands import Batch, DeleteSelector
from engine.topic.page import read_page
from engine.topic.record import find_record
from engine.topic.state import Topic
from engine.topic.tags import resolve_delete
from engine.types import Match, PageRequest, TopicConfig
from tests.topic.model import LIVE, Model, page_of
from tests.topic.sealing import Sealer
from tests.topic.test_model import COMMANDS, CONFIGS, REQUESTS, SEQS, Life, picture, run

pytestmark = pytest.mark.slow

SEAL = st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.integers(1, 5), st.booleans())
"""From which block on, how many, and as a piece or not."""
LIVES = st.lists(st.tuples(st.integers(0, 6), COMMANDS, st.none() | SEAL), min_size=3, max_size=14)


class Sealed(Life):
    """A life in which blocks are sealed."""

    def __init__(self, config: TopicConfig, cache_bytes: int) -> None:
        super().__init__(config, cache_bytes)
        self.sealer = Sealer(self.topic)


def same(hot: Topic, sealed: Sealed, request: PageRequest, now: int, visible: int | None) -> None:
    """Every page of both."""
    for cursor in range(hot.head + 3):
        asked = msgspec.structs.replace(request, from_seq=cursor)
        wanted = read_page(hot, asked, now, visible)
        given = sealed.sealer.ask(partial(read_page, sealed.topic, asked, now, visible))
        sealed.cache.shrink()
        if request.from_ts is not None:
            # Times of what was dead when it was sealed are forgotten: a page may begin earlier, never too late.
            assert given.next_from_seq <= wanted.next_from_seq or given.count == wanted.count
            assert b"".join(given.pieces) == b"".join(wanted.pieces)
            continue
        assert page_of(given) == page_of(wanted), asked
        assert (given.count, given.scanned, given.from_seq) == (wanted.count, wanted.scanned, wanted.from_seq)


def sealed_run(step: tuple[Any, ...], now: int, model: Model, hot: Life, sealed: Sealed) -> None:
    """One command for both; deletes find out what they mean by asking until everything is there."""
    if step[0] != "delete":
        run(step, now, model, [hot, sealed])
        return
    _, before, match, seqs = step
    selector = DeleteSelector(before_seq=before, match=match, seqs=None if seqs is None else tuple(seqs))
    wanted = model.matching(before, match, selector.seqs, now)
    for life in (hot, sealed):
        topic = life.topic
        ranges = sealed.sealer.ask(partial(resolve_delete, topic, selector, now))
        covered = [seq for first, last in ranges for seq in range(first, last + 1)]
        assert [seq for seq in covered if model.at(now).slots[seq].fate == LIVE] == wanted
        assert life.do("apply_delete", ranges, now) == len(wanted)
    model.delete(wanted, now)


@settings(max_examples=150, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
@given(
    CONFIGS,
    LIVES,
    st.lists(st.tuples(REQUESTS, st.none() | SEQS), min_size=1, max_size=4),
    st.integers(0, 20),
    st.sampled_from([0, 1, 3000, 9000]),
    st.booleans(),
)
def test_a_sealed_topic_shows_what_a_hot_one_shows(
    config: TopicConfig,
    steps: list[Any],
    reads: list[tuple[PageRequest, int | None]],
    later: int,
    cache_bytes: int,
    page_cache: bool,
) -> None:
    now = 997
    model, hot, sealed = Model(config), Life(config, 0), Sealed(config, cache_bytes)
    sealed.sealer.disk.page_cache = page_cache
    for wait, step, seal in steps:
        now += wait
        sealed_run(step, now, model, hot, sealed)
        if seal is not None:
            sealed.sealer.seal(seal[0], seal[1], piece=seal[2])
            sealed.cache.shrink()
        topic, other = hot.topic, sealed.topic
        assert (topic.count, topic.bytes) == (other.count, other.bytes)
        assert (other.count, other.bytes) == (
            sum(block.live for block in other.tail.blocks),
            sum(block.live_bytes for block in other.tail.blocks),
        )
        assert (topic.head, topic.earliest_seq, topic.floor.seq) == (other.head, other.earliest_seq, other.floor.seq)
    assert hot.topic.at(now + later) == sealed.topic.at(now + later)
    for request, visible in reads:
        same(hot.topic, sealed, request, now + later, visible)
    for seq in range(model.head + 2):
        found = sealed.sealer.ask(partial(find_record, sealed.topic, seq, now + later))
        assert found == find_record(hot.topic, seq, now + later)
    sealed.sealer.disk.page_cache = True
    assert picture(hot.topic, now) == picture(sealed.topic, now)
    held = sealed.cache.bytes_held
    assert held >= 0
    sealed.topic.release()
    hot.topic.release()
    assert sealed.cache.bytes_held == sealed.cache.history.held == hot.cache.bytes_held == 0


@pytest.mark.parametrize("page_cache", [True, False])
@pytest.mark.parametrize("cache_bytes", [1, 1 << 20])
def test_segments_of_many_parts_read_like_blocks(page_cache: bool, cache_bytes: int) -> None:
    config = TopicConfig(dedupe_node=True)
    hot, sealed = Life(config, 0), Sealed(config, cache_bytes)
    for count in (700, 3, 40, 800, 257):
        head = hot.topic.head
        datas = [b'{"n":%d}' % (head + index) + b" " * (index % 5) for index in range(count)]
        tags = [f"tag-{index % 300}" if index % 3 else None for index in range(count)]
        nodes = ["n" if index % 200 == 7 else None for index in range(count)]
        for life in (hot, sealed):
            life.append(Batch(datas, tags=tags, nodes=nodes), 1000 + head, None)
    sealed.sealer.seal(0, 3)
    sealed.sealer.seal(1, 1, piece=True)
    sealed.sealer.disk.page_cache = page_cache
    requests = [
        PageRequest(limit=256),
        PageRequest(limit=1000, include_tags=True),
        PageRequest(limit=1000, max_bytes=9000, include_tags=True),
        PageRequest(limit=5, nodes=frozenset({"n"}), lines=True),
        PageRequest(limit=2, match=Match("Eq", "tag-100")),
        PageRequest(limit=7, match=Match("Glob", "tag-29"), include_meta=False),
    ]
    deletes = [[], [(256, 256)], [(5, 5), (250, 520), (744, 1000)], [(1, 300)]]
    for ranges in deletes:
        for life in (hot, sealed):
            life.do("apply_delete", ranges, 3000)
        assert (hot.topic.count, hot.topic.bytes) == (sealed.topic.count, sealed.topic.bytes)
        for request in requests:
            for cursor in (0, 1, 254, 255, 256, 257, 511, 699, 742, 743, 744, 1254, 1540, 1799, 1800):
                asked = msgspec.structs.replace(request, from_seq=cursor)
                wanted = read_page(hot.topic, asked, 3000)
                given = sealed.sealer.ask(partial(read_page, sealed.topic, asked, 3000))
                assert page_of(given) == page_of(wanted), asked
                assert (given.count, given.scanned) == (wanted.count, wanted.scanned), asked
                sealed.cache.shrink()
        for text in ("tag-100", "tag-29", "no"):
            for op in ("Eq", "Glob"):
                selector = DeleteSelector(match=Match(op, text))
                wanted_ranges = resolve_delete(hot.topic, selector, 3000)
                assert sealed.sealer.ask(partial(resolve_delete, sealed.topic, selector, 3000)) == wanted_ranges
    for life in (hot, sealed):
        life.do("apply_config", TopicConfig(cap_records=700, ttl_ms=900), 3000)
    assert hot.topic.at(3000) == sealed.topic.at(3000)
    for topic in (hot.topic, sealed.topic):
        topic.expire(3000)
    assert (hot.topic.floor.seq, hot.topic.floor.ranges()) == (sealed.topic.floor.seq, sealed.topic.floor.ranges())


def test_what_is_read_of_history_gives_way_first_and_is_counted() -> None:
    sealed = Sealed(TopicConfig(), 200_000)
    for _ in range(40):
        sealed.append(Batch([b'"' + b"x" * 200 + b'"'] * 256), 1000, None)
    sealed.sealer.seal(0, 30)
    cache, history = sealed.cache, sealed.cache.history
    for cursor in range(0, 7000, 250):
        sealed.sealer.ask(partial(read_page, sealed.topic, PageRequest(from_seq=cursor), 1000))
    assert cache.bytes_held > history.held > 200_000
    cache.shrink()
    assert cache.bytes_held <= 200_000
    assert 0 <= history.held <= 50_000
    part, index = history.part(sealed.topic.tail.blocks[0], 300)
    assert (part.first_seq, index) == (257, 44)
    before = history.held
    sealed.topic.tail.drop(0, 1)
    assert history.held < before
    assert [segment.first_seq for segment in cache.retired] == [1]
