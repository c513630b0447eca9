"""A topic that was taken down and put back goes on as the one that was never touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.snapshot import BadSnapshot, Globals, SegmentEntry, SnapshotDecoder, TopicImage, encode_sections
from engine.topic.block import Block
from engine.topic.cache import Cache
from engine.topic.idempotency import Keys
from engine.topic.image import dump, load, outside
from engine.topic.rangeset import RangeSet
from engine.topic.state import Topic
from engine.types import TopicConfig
from tests.topic.model import Model
from tests.topic.test_model import CONFIGS, STEPS, Life, picture, run

pytestmark = pytest.mark.slow

STORE_ID = bytes(range(16))


def through_bytes(image: TopicImage, config: TopicConfig) -> tuple[TopicImage, TopicConfig]:
    """The image as a snapshot gives it back."""
    if image.count:
        # A topic counts what its segments do.
        image.segments = [
            SegmentEntry(
                first=1, count=1, number=1, data_len=1, first_ts=0, last_ts=0, live=image.count, size=image.size
            )
        ]
    parts = list(encode_sections([(image, config)], Globals(number=1), STORE_ID))
    decoder = SnapshotDecoder()
    decoder.feed(b"".join(parts[1:]))
    [(found, same)] = decoder.finish().topics()
    found.segments = []
    return found, same


def put_back(life: Life) -> Life:
    """Another life that begins with the image of one; its blocks are read from the same log."""
    image, config = through_bytes(dump(life.topic, 0, 0), life.topic.config)
    other = Life(config, 1)
    other.frames = dict(life.frames)
    topic = Topic(1, "t", 1, config, other.cache, Keys())
    load(topic, image)
    topic.tail.adopt([cold(life, block) for block in life.topic.tail.blocks])
    other.topic = topic
    return other


def cold(life: Life, block: Block) -> Block:
    block = copy.copy(block)
    if block.data is not None:
        block.data = bytes(block.data)
        block.cool()
    block.lsns, block.counts = copy.copy(block.lsns), copy.copy(block.counts)
    return block


@settings(max_examples=150)
@given(CONFIGS, STEPS, STEPS, st.integers(0, 20))
def test_what_was_put_back_goes_on_like_the_original(
    config: TopicConfig, before: list[Any], after: list[Any], later: int
) -> None:
    now = 997
    model = Model(config)
    life = Life(config, 0)
    for wait, step in before:
        now += wait
        run(step, now, model, [life])
    other = put_back(life)
    assert picture(other.topic, now) == picture(life.topic, now)
    assert dump(other.topic, 0, 0) == dump(life.topic, 0, 0)
    for wait, step in after:
        now += wait
        run(step, now, model, [life, other])
    assert picture(other.topic, now) == picture(life.topic, now)
    for topic in (life.topic, other.topic):
        topic.expire(now + later)
    assert dump(other.topic, 0, 0) == dump(life.topic, 0, 0)


def test_a_picture_does_not_change_with_its_topic() -> None:
    life = Life(TopicConfig(), 0)
    model = Model(TopicConfig())
    steps: list[tuple[Any, ...]] = [
        ("append", [(b"1", None, "t", None)] * 9, True),
        ("delete", None, None, [3, 5]),
        ("gap beyond", 3, 0, "crash"),
    ]
    for step in steps:
        run(step, 1000, model, [life])
    image = dump(life.topic, 0, 8)
    taken = through_bytes(copy.copy(image), TopicConfig())
    for step in [*steps, ("delete", 8, None, None)]:
        run(step, 1001, model, [life])
    assert through_bytes(image, TopicConfig()) == taken


def test_an_image_that_no_topic_has_is_refused() -> None:
    image = TopicImage(id=1, name="t", epoch=1, from_lsn=0, head=3, earliest=9)
    with pytest.raises(BadSnapshot, match="begins at 9"):
        load(Topic(1, "t", 1, TopicConfig(), Cache(), Keys()), image)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5))),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5))),
)
def test_what_lies_outside_of_spans(ranges: list[tuple[int, int]], steps: list[tuple[int, int]]) -> None:
    made = RangeSet.of((first, first + more) for first, more in ranges)
    spans, place = [], 0
    for skip, more in steps:
        spans.append((place + skip, place + skip + more))
        place += skip + more
    covered = {seq for first, last in spans for seq in range(first, last + 1)}
    wanted = [seq for first, last in made for seq in range(first, last + 1) if seq not in covered]
    assert [seq for first, last in outside(made, spans) for seq in range(first, last + 1)] == wanted
    assert made.between(5, 20) == [(max(first, 5), min(last, 20)) for first, last in made if last >= 5 and first <= 20]
