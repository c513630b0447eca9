"""Finding records by tag without looking at them one by one.

A tag part stands at the end of its fragment, so a block is searched for its bytes as a whole (one `find` per hit, at
memory speed); the lengths tell whether a hit is a tag or only looks like one inside `data`. Blocks in which the tag
cannot occur are passed over by their `TagSet`, cold ones without reading them back; segments have a table of tags.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Final

from engine.commands import DeleteSelector, LargeDelete
from engine.ranges import runs_of
from engine.tagset import Needle
from engine.topic.block import Block
from engine.topic.state import Topic
from engine.types import Match

DENSE: Final = 8
"""After so many hits, less than so many records apart, tags are compared one by one instead of searched for."""
DENSE_STEP: Final = 1024
"""Tags that are compared ahead of whoever takes the hits: it may need few of them."""
ROWS_FEW: Final = 64
"""Up to so many rows are looked up one by one; of more, those in live runs are cut out."""
COLLECTED_RECORDS: Final = 2048
"""A search makes tag sets of hot blocks that it went through in vain, for the next ones; after so many records it makes
no more: to collect the tags of 10,000 takes 4 ms, to search them 0.1."""


def tagged_in(block: Block, start: int, stop: int, needle: Needle) -> Iterator[int]:
    """Indices in `start … stop - 1` of a hot block's records that pass the tag filter, ascending."""
    lens = block.tag_lens
    if lens is None:
        return
    data, bounds = block.whole()
    part, length = needle.part, len(needle.part)
    wanted = part + b"}" if needle.exact else part
    end = bounds[stop]
    position = data.find(wanted, bounds[start], end)
    hits = 0
    while position >= 0:
        index = bisect_right(bounds, position) - 1
        tag_end = bounds[index + 1] - 2
        begin = tag_end - lens[index]
        if position == begin and (not needle.exact or lens[index] == length):
            yield index
            position = bounds[index + 1]
            hits += 1
            if hits == DENSE and index - start < DENSE * DENSE:
                for at in range(index + 1, stop, DENSE_STEP):
                    yield from _dense(block, at, min(at + DENSE_STEP, stop), needle)
                return
        elif position > begin:
            position = bounds[index + 1]
        else:
            position += 1
        position = data.find(wanted, position, end)


def _dense(block: Block, start: int, stop: int, needle: Needle) -> list[int]:
    """`tagged_in` where hits are frequent: every tag is looked at."""
    lens = block.tag_lens
    assert lens is not None, "somebody has hit a tag"
    data, bounds = block.whole()
    part, length = needle.part, len(needle.part)
    ends = bounds[start + 1 : stop + 1]
    if needle.exact:
        return [
            index
            for index, (end, size) in enumerate(zip(ends, lens[start:stop], strict=True), start)
            if size == length and data[end - 2 - size : end - 2] == part
        ]
    return [
        index
        for index, (end, size) in enumerate(zip(ends, lens[start:stop], strict=True), start)
        if size >= length and data.startswith(part, end - 2 - size)
    ]


def resolve_delete(topic: Topic, selector: DeleteSelector, now_ms: int) -> list[tuple[int, int]]:
    """The live records that a delete means now, as ascending inclusive ranges that do not touch.

    `before_seq`, `match` and `seqs` are ANDed; the head is the bound. Without `match` and `seqs` the one range may
    span seqs that are gone already. Raises `NotCached`, and `LargeDelete`.
    """
    first, last = max(topic.at(now_ms).earliest_seq, selector.after_seq + 1), topic.head
    if selector.before_seq is not None:
        last = min(last, selector.before_seq - 1)
    if first > last:
        return []
    needle = None if selector.match is None else Needle(selector.match)
    if selector.seqs is not None:
        return _among(topic, sorted({seq for seq in selector.seqs if first <= seq <= last}), needle)
    if needle is None:
        return [(first, last)]
    found = _tagged(topic, first, last, needle, collected=COLLECTED_RECORDS if selector.after_seq else 0)
    if not selector.most:
        return runs_of(found)
    seqs = list(islice(found, selector.most + 1))
    if len(seqs) > selector.most:
        raise LargeDelete(seqs[selector.most - 1])
    return runs_of(seqs)


def next_tagged(topic: Topic, seq: int, match: Match) -> int:
    """The first live seq from `seq` on whose tag passes; beyond the head when there is none. Raises `NotCached`."""
    first = max(seq, topic.earliest_seq)
    return next(_tagged(topic, first, topic.head, Needle(match)), topic.head + 1)


def passes(topic: Topic, seq: int, match: Match) -> bool:
    """Whether the tag of a live record passes. Raises `NotCached`."""
    return bool(_among(topic, [seq], Needle(match)))


def _tagged(topic: Topic, first: int, last: int, needle: Needle, collected: int = 0) -> Iterator[int]:
    """Live seqs in `first … last` that pass the tag filter, ascending; of so many records the tags were collected."""
    tail = topic.tail
    for block in tail.blocks[tail.locate(first) :]:
        base = block.first_seq
        if base > last:
            return
        if not block.tagged:
            continue
        if block.segment is not None:
            if tail.cache.history.may_hold(block, needle):
                yield from _tagged_rows(topic, block, first, last, tail.cache.history.tag_rows(block, needle))
            continue
        tags = block.known_tags
        if tags is not None and not tags.may_hold(needle):
            continue
        tail.hot(block)
        is_in_vain = tags is None and not block.open and collected < COLLECTED_RECORDS
        for start, stop in topic.live_runs(max(first, base), min(last, block.last_seq)):
            for index in tagged_in(block, start - base, stop - base + 1, needle):
                yield base + index
                is_in_vain = False
        if is_in_vain:
            block.tags()
            collected += block.count


def _tagged_rows(topic: Topic, block: Block, first: int, last: int, rows: array[int]) -> Iterator[int]:
    """Live seqs in `first … last` among rows of a sealed block, ascending."""
    base = block.first_seq
    first, last = max(first, base), min(last, block.last_seq)
    if len(rows) <= ROWS_FEW:
        for row in rows:
            seq = base + row
            if first <= seq <= last and seq not in topic.deleted and topic.gaps.holding(seq) is None:
                yield seq
        return
    for start, stop in topic.live_runs(first, last):
        for row in rows[bisect_left(rows, start - base) : bisect_right(rows, stop - base)]:
            yield base + row


def _among(topic: Topic, seqs: list[int], needle: Needle | None) -> list[tuple[int, int]]:
    """The ranges of the given seqs that are live and pass the tag filter, if there is one."""
    tail = topic.tail
    found = []
    for seq in seqs:
        block = tail.block_of(seq)
        if block is None or seq in topic.deleted or topic.gaps.holding(seq) is not None:
            continue
        if needle is not None:
            if not tail.cache.history.may_hold(block, needle):
                continue
            if block.segment is not None:
                rows = tail.cache.history.tag_rows(block, needle)
                at = bisect_left(rows, seq - block.first_seq)
                if at < len(rows) and rows[at] == seq - block.first_seq:
                    found.append(seq)
                continue
            found_in, index = tail.at(block, seq - block.first_seq)
            part = found_in.tag_part(index)
            if not part or not needle.accepts(part):
                continue
        found.append(seq)
    return runs_of(found)
