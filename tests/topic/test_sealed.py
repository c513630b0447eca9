"""Sealed blocks against hot ones: a topic whose history is sealed at random moments, with a cache that holds little or
nothing, shows to everybody what one shows that has all of it in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.commands import DeleteSelector
from engine.topic.page import read_page
from engine.topic.record import find_record
from engine.topic.state import Topic
from engine.topic.tags import resolve_delete
from engine.types import PageRequest, TopicConfig
from tests.topic.model import LIVE, Model, page_of
from tests.topic.sealing import Sealer
from tests.topic.test_model import COMMANDS, CONFIGS, REQUESTS, SEQS, Life, picture, run

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


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
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
