"""One record by its seq: the whole of it, or why it is gone."""

from __future__ import annotations

from collections.abc import Iterable

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


def find_live(topic: Topic, seqs: Iterable[int], now_ms: int) -> list[bytes | None]:
    """The fragments of records, in the order of `seqs`; None for one that is not live at `now_ms`. Raises `NotCached`.

    Seqs that follow each other are looked up once, as far as what holds them lies together.
    """
    tail = topic.tail
    earliest = topic.at(now_ms).earliest_seq if topic.config.ttl_ms else topic.earliest_seq
    found: list[bytes | None] = []
    first, last = 1, 0
    for seq in seqs:
        if not first <= seq <= last:
            run = next(topic.live_runs(seq, topic.head), None) if seq >= earliest else None
            if run is None or run[0] != seq:
                found.append(None)
                continue
            block = tail.block_of(seq)
            assert block is not None, "what is live lies in a block"
            part, index = tail.at(block, seq - block.first_seq)
            data, bounds = part.whole()
            base = seq - index
            first, last = seq, min(run[1], base + part.count - 1)
        at = seq - base
        found.append(bytes(data[bounds[at] : bounds[at + 1] - 1]))
    return found
