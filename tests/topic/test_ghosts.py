"""Damaged writes go on counting: a damaged log never shows a record that the whole one does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.commands import Batch
from engine.formats.append import encode_append_body
from engine.fragment import render
from engine.topic.block import counted_at_most, counted_bytes
from engine.topic.ghosts import Ghosts
from engine.topic.state import Topic
from engine.types import Reason, TopicConfig


def test_ghosts_are_counted_until_nothing_stands_before_them() -> None:
    ghosts = Ghosts()
    ghosts.add(5, 6, 20)
    ghosts.add(9, 9, 7)
    assert (ghosts.records, ghosts.bytes, ghosts.first) == (3, 27, 5)
    ghosts.forget_below(6)
    assert ghosts.records == 3
    ghosts.forget_below(7)
    assert (ghosts.records, ghosts.bytes, ghosts.first) == (1, 7, 9)
    ghosts.forget_below(10)
    assert not ghosts


def test_what_was_deleted_of_a_ghost_no_longer_counts() -> None:
    ghosts = Ghosts()
    ghosts.add(5, 8, 20)
    ghosts.delete(1, 6)
    assert (ghosts.records, ghosts.bytes) == (2, 20)
    ghosts.delete(7, 99)
    assert not ghosts
    assert ghosts.bytes == 0


def test_the_bound_is_exact_for_plain_data() -> None:
    for first in (1, 98):
        rendered = render(Batch([b"1", b'"xx"', b"[]"]), first, 1234)
        _, body = encode_append_body(None, b"", rendered)
        assert counted_at_most(len(body), 3, first, 1234) == counted_bytes(rendered, first, 1234) == 7
        full = render(Batch([b"1"] * 3, tags=["t"] * 3, nodes=["n"] * 3, metas=[b"{}"] * 3), first, 1234)
        _, body = encode_append_body(b"key", bytes(16), full)
        assert counted_at_most(len(body), 3, first, 1234) > counted_bytes(full, first, 1234)


def test_what_a_damaged_write_evicted_stays_evicted() -> None:
    topic = Topic(1, "t", 1, TopicConfig(cap_records=3))
    topic.apply_append(1, render(Batch([b"1"] * 4), 1, 10), 10)
    topic.apply_gap(5, 6, Reason.CORRUPTION, 10, counted=2)
    assert (topic.earliest_seq, topic.count) == (4, 1)
    topic.apply_append(7, render(Batch([b"1"]), 7, 10), 10)
    assert (topic.earliest_seq, topic.count) == (7, 1)
    topic.apply_append(8, render(Batch([b"1"] * 2), 8, 10), 10)
    assert (topic.earliest_seq, topic.count) == (7, 3)


CONFIGS = st.builds(
    TopicConfig,
    cap_records=st.sampled_from([0, 1, 3, 6]),
    cap_bytes=st.sampled_from([0, 4, 9]),
    ttl_ms=st.sampled_from([0, 0, 4]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("append"), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("delete"), st.integers(1, 30), st.integers(0, 4)),
        st.tuples(st.just("config"), CONFIGS, st.none()),
    ),
    max_size=14,
)


def live(topic: Topic) -> set[int]:
    return {seq for first, last in topic.live_runs(topic.earliest_seq, topic.head) for seq in range(first, last + 1)}


@pytest.mark.slow
@settings(max_examples=200)
@given(CONFIGS, STEPS, st.lists(st.integers(0, 3), min_size=14, max_size=14), st.integers(0, 30))
def test_a_damaged_log_shows_what_the_whole_one_does_and_is_not_hit(
    config: TopicConfig, steps: list[tuple[Any, ...]], waits: list[int], slack: int
) -> None:
    whole, hurt = (Topic(1, "t", 1, config) for _ in range(2))
    now = 100
    damaged: set[int] = set()
    exact = True
    for wait, step in zip(waits, steps, strict=False):
        now += wait
        match step:
            case ("append", count, hit):
                first = whole.head + 1
                rendered = render(Batch([b"1"] * count), first, now)
                whole.apply_append(first, rendered, now)
                if hit:
                    hurt.apply_gap(first, whole.head, Reason.CORRUPTION, now, counted=count + slack)
                    damaged.update(range(first, whole.head + 1))
                else:
                    hurt.apply_append(first, rendered, now)
            case ("delete", first, more):
                # As the log has it: what was live then, in ranges of seqs.
                for start, stop in list(whole.live_runs(max(first, whole.earliest_seq), min(first + more, whole.head))):
                    exact = exact and damaged.isdisjoint(range(start, stop + 1))
                    whole.apply_delete([(start, stop)], now)
                    hurt.apply_delete([(start, stop)], now)
            case ("config", other, _):
                exact = exact and not damaged
                whole.apply_config(other, now)
                hurt.apply_config(other, now)
        assert hurt.head == whole.head
        assert live(hurt) <= live(whole) - damaged, "what was gone never comes back"
        if exact and (slack == 0 or not whole.config.cap_bytes):
            assert live(hurt) == live(whole) - damaged, "what was not hit is there"
