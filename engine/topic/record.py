"""One record by its seq: the whole of it, or why it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from engine.topic.floor import WHY
from engine.topic.state import Topic
from engine.types import WhyGone


def find_record(topic: Topic, seq: int, now_ms: int) -> bytes | WhyGone:
    """The fragment of record `seq` with its tag and meta, or why there is none to read at `now_ms`.

    Above the floor the answer is exact; below it, it is what is known of the range (a record that was deleted before
    its neighbours were evicted may then be `evicted`).
    """
    if seq < 1 or seq > topic.head:
        return WhyGone.NEVER_WRITTEN
    if seq < topic.floor.seq:
        return topic.floor.why(seq)
    gap = topic.gaps.holding(seq)
    if gap is not None:
        return WHY[gap.reason]
    if seq < topic.earliest_seq or seq in topic.deleted:
        return WhyGone.DELETED
    if topic.config.ttl_ms and seq < topic.at(now_ms).earliest_seq:
        return WhyGone.EXPIRED
    block = topic.tail.block_of(seq)
    assert block is not None, "what is live lies in a block"
    part, index = topic.tail.at(block, seq - block.first_seq)
    return part.fragment(index)


def find_live(topic: Topic, seqs: Sequence[int], now_ms: int) -> list[bytes | None]:
    """The fragments of records, in the order of `seqs`; None for one that is not live at `now_ms`. Raises `NotCached`.

    Seqs that follow each other are looked up once, as far as what holds them lies together.
    """
    tail, wanted = topic.tail, len(seqs)
    earliest = topic.at(now_ms).earliest_seq if topic.config.ttl_ms else topic.earliest_seq
    if wanted == 1:
        return [_find_one(topic, seqs[0]) if earliest <= seqs[0] <= topic.head else None]
    found: list[bytes | None] = []
    while (done := len(found)) < wanted:
        seq = seqs[done]
        last = topic.live_until(seq, min(seq + wanted - done - 1, topic.head)) if seq >= earliest else -1
        if last < seq:
            found.append(None)
            continue
        block = tail.block_of(seq)
        assert block is not None, "what is live lies in a block"
        part, index = tail.at(block, seq - block.first_seq)
        data, bounds = part.whole()
        begin = bounds[index]
        count = _follow_each_other(seqs, done, min(last - seq + 1, part.count - index))
        text = bytes(data[begin : bounds[index + count] - 1])
        edges = bounds[index : index + count + 1]
        found += [text[start - begin : end - begin - 1] for start, end in pairwise(edges)]
    return found


def find_run(topic: Topic, first: int, last: int, now_ms: int) -> tuple[bytes, list[int]] | None:
    """The fragments of some records in a row as they lie there, a comma between two, and where each of them begins.

    None where they do not lie together, or some are not live at `now_ms`. Raises `NotCached`.
    """
    earliest = topic.at(now_ms).earliest_seq if topic.config.ttl_ms else topic.earliest_seq
    if not earliest <= first <= last <= topic.head or topic.live_until(first, last) < last:
        return None
    tail, count = topic.tail, last - first + 1
    block = tail.block_of(first)
    assert block is not None, "what is live lies in a block"
    part, index = tail.at(block, first - block.first_seq)
    if index + count > part.count:
        return None
    data, bounds = part.whole()
    begin = bounds[index]
    starts = [start - begin for start in bounds[index : index + count]]
    return bytes(data[begin : bounds[index + count] - 1]), starts


def _find_one(topic: Topic, seq: int) -> bytes | None:
    """The fragment of a record between the first live one and the head; None where it is not live."""
    if topic.live_until(seq, seq) < seq:
        return None
    tail = topic.tail
    block = tail.block_of(seq)
    assert block is not None, "what is live lies in a block"
    part, index = tail.at(block, seq - block.first_seq)
    data, bounds = part.whole()
    return bytes(data[bounds[index] : bounds[index + 1] - 1])


def _follow_each_other(seqs: Sequence[int], start: int, most: int) -> int:
    """How many seqs from index `start` on are each one more than the one before, at most `most`."""
    if most == 1 or (isinstance(seqs, range) and seqs.step == 1):
        return most
    first = seqs[start]
    if list(seqs[start : start + most]) == list(range(first, first + most)):
        return most
    count = 1
    while count < most and seqs[start + count] == first + count:
        count += 1
    return count
