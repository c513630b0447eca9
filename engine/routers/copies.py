"""From records of a source to copies for a dest: slices of the same bytes behind another beginning.

    {"$seq":7,"$ts":1748450000000,  "$node":"n",  "data":…  ,"meta":{…}  ,"$tag":"t"  }
    └──── anew for each dest ────┘ └─ kept or not ─┘     └─ kept ─┘     └─ kept or not ─┘

`take` says what one pass copies, `gather` finds the same records again from the positions in the log, `carried` in the
bytes that came with them. `copies` makes runs of them that a dest applies one by one: records of one time, since that
is what a batch has. What of a range is not there any more is a loss, and as many seqs of the dest are a gap.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

from engine.formats.forward import Range
from engine.fragment import META_FIXED, NODE_FIXED, PREFIX_FIXED, TAG_FIXED, Rendered, digits, tag_of, ts_of
from engine.routers.hops import Hops
from engine.topic.block import NOT_LOGGED
from engine.topic.state import Topic
from engine.types import Match

SCAN_MAX: Final = 10_000
"""Records that one pass examines, whatever it copies."""


class Record(NamedTuple):
    """One record of a source."""

    seq: int
    ts: int
    hops: int
    fragment: bytes
    lens: tuple[int, int, int]
    """Of its node, meta and tag parts."""

    def size(self, keep_node: bool, keep_tag: bool) -> int:
        """What its copy counts for."""
        node, meta, tag = self.lens
        size = len(self.fragment) - PREFIX_FIXED - digits(self.seq) - digits(self.ts) - len(b'"data":}')
        size -= META_FIXED if meta else 0
        if node:
            size -= NODE_FIXED + 2 if keep_node else node
        if tag:
            size -= TAG_FIXED + 2 if keep_tag else tag
        return size


class Run(NamedTuple):
    """Copies in a row that have one time, rendered."""

    rendered: Rendered
    ts: int
    hops: int


Item: TypeAlias = Run | int
"""Copies, or so many seqs that are lost."""


class Stretch(NamedTuple):
    """What a pass finds: up to `to` all is examined, `lost` seqs in front are gone, `records` are to be copied."""

    to: int
    lost: int
    records: list[Record]
    by_position: bool
    """Whether the log is going to have all of them where its frames are read again."""

    def ranges(self) -> tuple[Range, ...]:
        """The seqs of the records."""
        found: list[Range] = []
        for seq, _, hops, _, _ in self.records:
            if found and found[-1].last + 1 == seq and found[-1].hops == hops:
                found[-1] = Range(found[-1].first, seq, hops)
            else:
                found.append(Range(seq, seq, hops))
        return tuple(found)

    def first(self, count: int) -> Stretch:
        """The part with no more than so many records."""
        if count >= len(self.records):
            return self
        return self._replace(to=self.records[count].seq - 1, records=self.records[:count])


def take(
    topic: Topic,
    hops: Hops | None,
    cursor: int,
    now_ms: int,
    *,
    match: Match | None,
    hops_max: int,
    records_max: int,
    bytes_max: int,
) -> Stretch:
    """What one pass behind `cursor` is about. Raises `NotCached`."""
    view = topic.at(now_ms)
    position, lost = cursor + 1, 0
    while position <= topic.head:
        gap = topic.gaps.holding(position)
        end = view.floor_seq if position < view.floor_seq else 0 if gap is None else gap.last + 1
        if not end:
            break
        lost += end - position
        position = end
    start = max(position, view.earliest_seq)
    stop = min(topic.head, max(start, position) + SCAN_MAX - 1)
    next_gap = topic.gaps.at_or_after(start) if start <= stop else None
    if next_gap is not None and next_gap.first <= stop:
        stop = next_gap.first - 1
    records: list[Record] = []
    size, by_position = 0, True
    for first, last in topic.live_runs(start, stop) if start <= stop else ():
        for record, in_log in _records(topic, hops, first, last):
            if record.hops > hops_max:
                continue
            if match is not None and not match.accepts(tag_of(record.fragment, len(record.fragment), record.lens[2])):
                continue
            if records and (len(records) >= records_max or size + len(record.fragment) > bytes_max):
                return Stretch(record.seq - 1, lost, records, by_position)
            records.append(record)
            by_position = by_position and in_log
            size += len(record.fragment)
    return Stretch(max(stop, position - 1), lost, records, by_position)


def _records(topic: Topic, hops: Hops | None, first: int, last: int) -> Iterator[tuple[Record, bool]]:
    """Live records, and whether each is in the log and in no segment yet. Raises `NotCached`."""
    tail = topic.tail
    index = tail.locate(first)
    seq = first
    while seq <= last:
        block = tail.blocks[index]
        if seq > block.last_seq:
            index += 1
            continue
        in_log = block.segment is None and block.shard != NOT_LOGGED
        part, offset = tail.at(block, seq - block.first_seq)
        data, bounds = part.whole()
        columns = (part.node_lens, part.meta_lens, part.tag_lens)
        count, until = (0, last) if hops is None else hops.at(seq)
        for place in range(offset, offset + min(part.count - offset, last - seq + 1, block.last_seq - seq + 1)):
            if seq > until and hops is not None:
                count, until = hops.at(seq)
            fragment = bytes(data[bounds[place] : bounds[place + 1] - 1])
            node, meta, tag = (0 if lens is None else lens[place] for lens in columns)
            yield Record(seq, ts_of(fragment, 0), count, fragment, (node, meta, tag)), in_log
            seq += 1


def gather(topic: Topic | None, ranges: Iterable[Range]) -> list[Record | int]:
    """The records at these positions, and how many of them are gone. Raises `NotCached`."""
    found: list[Record | int] = []
    for first, last, hops in ranges:
        seq = first
        if topic is not None:
            for start, stop in topic.live_runs(max(first, topic.earliest_seq), min(last, topic.head)):
                if start > seq:
                    found.append(start - seq)
                found += [record._replace(hops=hops) for record, _ in _records(topic, None, start, stop)]
                seq = stop + 1
        if seq <= last:
            found.append(last - seq + 1)
    return found


def carry(records: list[Record]) -> Rendered:
    """Records of a source as an Append would hold them."""
    columns = [array("I", [record.lens[which] for record in records]) for which in range(3)]
    nodes, metas, tags = (column if any(column) else None for column in columns)
    strides = array("I", [len(record.fragment) + 1 for record in records])
    return Rendered(b",".join([record.fragment for record in records]), strides, nodes, metas, tags)


def carried(rendered: Rendered, ranges: Iterable[Range]) -> list[Record | int]:
    """The opposite, for the ranges of one group."""
    by_seq: dict[int, tuple[bytes, tuple[int, int, int]]] = {}
    columns = (rendered.node_lens, rendered.meta_lens, rendered.tag_lens)
    ends = list(accumulate(rendered.strides))
    for index, end in enumerate(ends):
        fragment = rendered.fragments[end - rendered.strides[index] : end - 1]
        node, meta, tag = (0 if lens is None else lens[index] for lens in columns)
        by_seq[int(fragment[len(b'{"$seq":') : fragment.index(b",")])] = fragment, (node, meta, tag)
    found: list[Record | int] = []
    for first, last, hops in ranges:
        for seq in range(first, last + 1):
            if seq in by_seq:
                fragment, lens = by_seq[seq]
                found.append(Record(seq, ts_of(fragment, 0), hops, fragment, lens))
            else:
                found.append(1)
    return found


def copies(records: Iterable[Record | int], first_seq: int, floor: int, keep_node: bool, keep_tag: bool) -> list[Item]:
    """The copies of records for a dest, from `first_seq` on."""
    items: list[Item] = []
    seq, pending = first_seq, list[Record]()
    key = (0, 0)
    for record in records:
        if isinstance(record, int):
            if pending:
                items.append(_run(pending, seq, key, keep_node, keep_tag))
                seq, pending = seq + len(pending), []
            items.append(record)
            seq += record
            continue
        now = (max(record.ts, floor), record.hops + 1)
        floor = now[0]
        if pending and now != key:
            items.append(_run(pending, seq, key, keep_node, keep_tag))
            seq, pending = seq + len(pending), []
        key = now
        pending.append(record)
    if pending:
        items.append(_run(pending, seq, key, keep_node, keep_tag))
    return items


def _run(records: list[Record], first_seq: int, key: tuple[int, int], keep_node: bool, keep_tag: bool) -> Run:
    ts, hops = key
    parts: list[bytes] = []
    for seq, (own_seq, own_ts, _, fragment, (node, _, tag)) in enumerate(records, first_seq):
        begin = PREFIX_FIXED + digits(own_seq) + digits(own_ts) + (0 if keep_node else node)
        if keep_tag or not tag:
            parts.append(b'{"$seq":%d,"$ts":%d,%b' % (seq, ts, fragment[begin:]))
        else:
            parts.append(b'{"$seq":%d,"$ts":%d,%b}' % (seq, ts, fragment[begin : -1 - tag]))
    columns = [array("I", [record.lens[which] for record in records]) for which in range(3)]
    nodes = columns[0] if keep_node and any(columns[0]) else None
    metas = columns[1] if any(columns[1]) else None
    tags = columns[2] if keep_tag and any(columns[2]) else None
    strides = array("I", [len(part) + 1 for part in parts])
    return Run(Rendered(b",".join(parts), strides, nodes, metas, tags), ts, hops)
