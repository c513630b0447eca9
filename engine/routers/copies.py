"""From records of a source to copies for a dest: slices of the same bytes behind another beginning.

    {"$seq":7,"$ts":1748450000000,  "$node":"n",  "data":…  ,"meta":{…}  ,"$tag":"t"  }
    └──── anew for each dest ────┘ └─ kept or not ─┘     └─ kept ─┘     └─ kept or not ─┘

`take` says what one pass copies, `gather` finds the same records again from the positions in the log, `carried` in the
bytes that came with them. `cut` leaves of them what all dests get alike, and `copies` puts the rest in front: runs that
a dest applies one by one, records of one time, since that is what a batch has. What of a range is not there any more is
missing, and as many seqs of the dest are a gap: `corruption` where the source lost it to damage, else `source_trim`.
A gap is forwarded like records are, and has a count of hops like theirs: a loss goes round in no cycle either.
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
from engine.topic.rangeset import RangeSet
from engine.topic.state import Topic
from engine.types import Match, Reason

SCAN_MAX: Final = 2048
"""Records that one pass examines, whatever it copies: 1.2 µs each."""
_BARE: Final = (0, 0, 0)


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


class Missing(NamedTuple):
    """So many seqs that are lost, and why."""

    seqs: int
    reason: Reason
    hops: int = 1
    """Of the gap in a dest."""


Item: TypeAlias = Run | Missing
"""Copies, or seqs that a dest has no copies for."""
Column: TypeAlias = "array[int] | None"
"""Lengths of a part in each record; None where no record has it."""


class Cut(NamedTuple):
    """Records in a row that have one time, without what is anew in each dest."""

    ts: int
    hops: int
    """Of the copies."""
    rests: list[bytes]
    """What follows the seq and the time in each of them."""
    lens: tuple[Column, Column, Column]
    """Of their node, meta and tag parts."""

    @property
    def size(self) -> int:
        """What the copies count for."""
        size = sum(map(len, self.rests)) - len(self.rests) * len(b'"data":}')
        for column, fixed in zip(self.lens, (NODE_FIXED + 2, META_FIXED, TAG_FIXED + 2), strict=True):
            if column is not None:
                size -= fixed * (len(column) - column.count(0))
        return size


class Copies(NamedTuple):
    """What a dest gets of a stretch; dests that would get the same bytes share it."""

    items: list[Item]
    seqs: int
    """Seqs that it takes, lost ones included."""
    records: int
    size: int
    """What the records count for."""
    last_ts: int
    """The `$ts` of the last record, 0 when there is none."""

    @property
    def loses(self) -> bool:
        """Whether it lets the dest age: a gap does, at the time of the frame."""
        return self.seqs > self.records


class Stretch(NamedTuple):
    """What a pass finds: up to `to` all is examined, `lost` seqs in front are gone, `records` are to be copied."""

    to: int
    lost: int
    lost_hops: int
    """How often the losses were forwarded, those among them that were most often."""
    records: list[Record]
    by_position: bool
    """Whether the log is going to have all of them where its frames are read again."""

    def found(self) -> list[Record | Missing]:
        """The records, behind the losses in front of them."""
        return [*missed(self.lost, self.lost_hops), *self.records]

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
    scan_max: int = SCAN_MAX,
) -> Stretch:
    """What one pass behind `cursor` is about. Raises `NotCached`."""
    view = topic.at(now_ms)
    position, lost, lost_hops = cursor + 1, 0, 0
    while position <= topic.head:
        gap = topic.gaps.holding(position)
        end = view.floor_seq if position < view.floor_seq else 0 if gap is None else gap.last + 1
        if not end:
            break
        seqs, most = (end - position, 0) if hops is None else hops.among(position, end - 1, hops_max)
        lost, lost_hops = lost + seqs, max(lost_hops, most)
        position = end
    start = max(position, view.earliest_seq)
    stop = min(topic.head, max(start, position) + scan_max - 1)
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
                return Stretch(record.seq - 1, lost, lost_hops, records, by_position)
            records.append(record)
            by_position = by_position and in_log
            size += len(record.fragment)
    return Stretch(max(stop, position - 1), lost, lost_hops, records, by_position)


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
        is_bare = columns == (None, None, None)
        ts = part.first_ts if part.first_ts == part.last_ts else 0
        count, until = (0, last) if hops is None else hops.at(seq)
        for place in range(offset, offset + min(part.count - offset, last - seq + 1, block.last_seq - seq + 1)):
            if seq > until and hops is not None:
                count, until = hops.at(seq)
            fragment = bytes(data[bounds[place] : bounds[place + 1] - 1])
            lens = _BARE
            if not is_bare:
                node, meta, tag = (0 if column is None else column[place] for column in columns)
                lens = (node, meta, tag)
            yield Record(seq, ts or ts_of(fragment, 0), count, fragment, lens), in_log
            seq += 1


def gather(topic: Topic | None, ranges: Iterable[Range]) -> list[Record | Missing]:
    """The records at these positions, and how many of them are gone. Raises `NotCached`."""
    found: list[Record | Missing] = []
    for first, last, hops in ranges:
        seq = first
        if topic is not None:
            for start, stop in topic.live_runs(max(first, topic.earliest_seq), min(last, topic.head)):
                found += _missing(topic, seq, start - 1, hops)
                found += [record._replace(hops=hops) for record, _ in _records(topic, None, start, stop)]
                seq = stop + 1
        found += _missing(topic, seq, last, hops)
    return found


def missed(count: int, hops: int = 0) -> list[Missing]:
    """What a source had lost before a pass came to it, and how often that had been forwarded."""
    return [Missing(count, Reason.SOURCE_TRIM, hops + 1)] if count else []


def _missing(topic: Topic | None, first: int, last: int, hops: int) -> list[Missing]:
    """Records that were copied once, and are gone since."""
    found: list[Missing] = []
    damaged = () if topic is None or last < first else RangeSet.of(topic.lost).between(first, last)
    for start, stop in damaged:
        found += missed(start - first, hops)
        found.append(Missing(stop - start + 1, Reason.CORRUPTION, hops + 1))
        first = stop + 1
    return found + missed(max(last - first + 1, 0), hops)


def carry(records: list[Record]) -> Rendered:
    """Records of a source as an Append would hold them."""
    columns = [array("I", [record.lens[which] for record in records]) for which in range(3)]
    nodes, metas, tags = (column if any(column) else None for column in columns)
    strides = array("I", [len(record.fragment) + 1 for record in records])
    return Rendered(b",".join([record.fragment for record in records]), strides, nodes, metas, tags)


def carried(rendered: Rendered, ranges: Iterable[Range]) -> list[Record | Missing]:
    """The opposite, for the ranges of one group."""
    by_seq: dict[int, tuple[bytes, tuple[int, int, int]]] = {}
    columns = (rendered.node_lens, rendered.meta_lens, rendered.tag_lens)
    ends = list(accumulate(rendered.strides))
    for index, end in enumerate(ends):
        fragment = rendered.fragments[end - rendered.strides[index] : end - 1]
        node, meta, tag = (0 if lens is None else lens[index] for lens in columns)
        by_seq[int(fragment[len(b'{"$seq":') : fragment.index(b",")])] = fragment, (node, meta, tag)
    found: list[Record | Missing] = []
    for first, last, hops in ranges:
        for seq in range(first, last + 1):
            if seq in by_seq:
                fragment, lens = by_seq[seq]
                found.append(Record(seq, ts_of(fragment, 0), hops, fragment, lens))
            else:
                found += missed(1, hops)
    return found


def cut(records: Iterable[Record | Missing], keep_node: bool, keep_tag: bool) -> list[Cut | Missing]:
    """What all dests get alike that keep the same of these records."""
    parts: list[Cut | Missing] = []
    pending: list[Record] = []
    for record in records:
        if pending and (isinstance(record, Missing) or record.ts != pending[0].ts or record.hops != pending[0].hops):
            parts.append(_cut(pending, keep_node, keep_tag))
            pending = []
        if isinstance(record, Missing):
            parts.append(record)
        else:
            pending.append(record)
    if pending:
        parts.append(_cut(pending, keep_node, keep_tag))
    return parts


def _cut(records: list[Record], keep_node: bool, keep_tag: bool) -> Cut:
    rests: list[bytes] = []
    _, ts, hops, *_ = records[0]
    begin_fixed = PREFIX_FIXED + digits(ts)
    for seq, _, _, fragment, (node, _, tag) in records:
        begin = begin_fixed + digits(seq) + (0 if keep_node else node)
        rests.append(fragment[begin:] if keep_tag or not tag else fragment[begin : -1 - tag] + b"}")
    columns: list[Column] = [None, None, None]
    for which, kept in enumerate((keep_node, True, keep_tag)):
        if kept and any(record.lens[which] for record in records):
            columns[which] = array("I", [record.lens[which] for record in records])
    nodes, metas, tags = columns
    return Cut(ts, hops + 1, rests, (nodes, metas, tags))


def copies(parts: Iterable[Cut | Missing], first_seq: int, floor: int) -> Copies:
    """The copies for a dest, from `first_seq` on, none of them older than `floor`."""
    items: list[Item] = []
    seq, records, size, last_ts = first_seq, 0, 0, 0
    for part in parts:
        if isinstance(part, Missing):
            items.append(part)
            seq += part.seqs
            continue
        count = len(part.rests)
        last_ts = max(part.ts, floor)
        items.append(Run(_rendered(part, seq, last_ts), last_ts, part.hops))
        seq += count
        records += count
        size += part.size
    return Copies(items, seq - first_seq, records, size, last_ts)


def _rendered(part: Cut, first_seq: int, ts: int) -> Rendered:
    rests = part.rests
    if len(rests) == 1:
        fragment = b'{"$seq":%d,"$ts":%d,%b' % (first_seq, ts, rests[0])
        return Rendered(fragment, array("I", (len(fragment) + 1,)), *part.lens)
    form = b'{"$seq":%%d,"$ts":%d,%%b' % ts
    fragments = list(map(form.__mod__, enumerate(rests, first_seq)))
    joined = b",".join(fragments)
    return Rendered(joined, array("I", [len(fragment) + 1 for fragment in fragments]), *part.lens)
