"""Makes segments for tests: records with holes between them, what they must read back as, and files of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal

from hypothesis import strategies as st

from engine.commands import Batch
from engine.fragment import render
from engine.fs import Fs
from engine.segment.build import Buffer, Built, Run, build
from engine.segment.reader import Chunk, SegmentFiles
from engine.segment.segment import Segment
from engine.segment.write import TailsWriter, write_segment
from engine.tagset import Needle
from engine.types import Match
from tests.sim.disk import FakeDisk

STORE = bytes(range(16))
TS = 1_748_450_000_000
NOW = TS + 5
KINDS: Final[list[Callable[[bytes], Buffer]]] = [bytes, bytearray, memoryview]
OPS: Final[tuple[Literal["Eq", "Glob"], ...]] = ("Eq", "Glob")


@dataclass(frozen=True, slots=True)
class Row:
    """What one row must read back as; `fragment` is empty for a row without a record."""

    fragment: bytes
    ts: int
    tag: str | None = None
    parts: tuple[int, int, int] = (0, 0, 0)


@dataclass(slots=True)
class Sample:
    """A segment to be, and its rows."""

    first_seq: int
    runs: list[Run] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def hole(self, count: int) -> None:
        self.rows += [Row(b"", self.rows[-1].ts if self.rows else -1)] * count

    def batch(self, batch: Batch, ts: int, *, kind: Callable[[bytes], Buffer] = bytes) -> None:
        """Add the records of a batch, which all have one time."""
        first = self.first_seq + len(self.rows)
        made = render(batch, first, ts)
        self.rows = [row if row.ts >= 0 else Row(b"", ts) for row in self.rows]
        at, lens = 0, (made.node_lens, made.meta_lens, made.tag_lens)
        for index, stride in enumerate(made.strides):
            parts = [0 if column is None else column[index] for column in lens]
            tag = None if batch.tags is None else batch.tags[index]
            fragment = made.fragments[at : at + stride - 1]
            self.rows.append(Row(fragment, ts, tag, (parts[0], parts[1], parts[2])))
            at += stride
        self.runs.append(Run(first, kind(made.fragments), made.strides, ts, *lens))

    def built(self, topic_id: int = 3) -> Built:
        return build(topic_id, self.first_seq, len(self.rows), self.runs)

    @property
    def alive(self) -> list[int]:
        return [index for index, row in enumerate(self.rows) if row.fragment]


def small(records: int = 70) -> Sample:
    """A sample with every part, holes, and more than one group of rows."""
    sample = Sample(98)
    sample.hole(2)
    made = 0
    while len(sample.rows) < records:
        count = 5 + made % 7
        batch = Batch(
            [b'"%d,{\\"$seq\\":9"' % (made + index) for index in range(count)],
            tags=[None if index % 4 == 0 else f"t{(made + index) % 5}\u00e9" for index in range(count)],
            nodes=["node" if index % 3 else None for index in range(count)],
            metas=[b'{"k":[1,2]}' if index % 2 else None for index in range(count)],
        )
        sample.batch(batch, TS + made)
        sample.hole(made % 3)
        made += count
    return sample


def plain(count: int, size: int = 40) -> Sample:
    """Records that have nothing but data."""
    sample = Sample(1)
    for at in range(0, count, 100):
        batch = Batch([b'"%0*d"' % (size, n) for n in range(at, min(at + 100, count))])
        sample.batch(batch, TS + at)
    return sample


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any runs with holes."""
    sample = Sample(draw(st.sampled_from([1, 5, 95, 9_990, 10**9 - 20])))
    text = st.text(max_size=6)
    data = st.sampled_from(
        [b"1", b'"x"', b'{"a":[1,{"$seq":7,"$ts":8,"data":1}]}', b'"' + b"y" * 90 + b'"', b"[ 1 , 2 ]"]
    )
    ts = TS - draw(st.sampled_from([0, TS - 9_999]))
    for _ in range(draw(st.integers(1, 12))):
        sample.hole(draw(st.sampled_from([0, 0, 1, 3, 70, 300])))
        count = draw(st.sampled_from([1, 2, 5, 64, 130]))
        datas = [draw(data) for _ in range(min(count, 6))]
        tags = draw(st.none() | st.lists(st.none() | text, min_size=count, max_size=count) if count < 9 else st.none())
        nodes: list[str | None] | None = ["n"] * count if draw(st.booleans()) else None
        metas = draw(st.none() | st.just([b"{}", b'{"m":"}"}', None][draw(st.integers(0, 2)) :]))
        filled = None if metas is None else (metas * count)[:count]
        kind = draw(st.sampled_from(KINDS))
        sample.batch(Batch((datas * count)[:count], tags=tags, nodes=nodes, metas=filled), ts, kind=kind)
        ts += draw(st.sampled_from([0, 0, 1, 1000]))
    sample.hole(draw(st.sampled_from([0, 0, 1, 100])))
    return sample


def written(fs: Fs, sample: Sample, *, number: int = 4, piece: bool = False) -> Segment:
    """The sample as a segment with files of its own, or as the second piece of a tails file."""
    if not piece:
        return write_segment(fs, STORE, NOW, number, sample.built())
    fs.mkdir("meta")
    writer = TailsWriter(fs, STORE, NOW, number)
    writer.add(plain(3).built(9))
    segment = writer.add(sample.built())
    writer.add(plain(3).built(10))
    writer.finish()
    return segment


def disk_of(sample: Sample, *, piece: bool = False) -> tuple[FakeDisk, Segment]:
    """A disk with nothing but the sample."""
    disk = FakeDisk()
    return disk, written(disk, sample, piece=piece)


def fresh(segment: Segment) -> Segment:
    """The segment as it was before anything was found out about it."""
    twin = Segment(*[getattr(segment, name) for name in FIELDS])
    twin.del_version, twin.del_digest = segment.del_version, segment.del_digest
    return twin


FIELDS = (
    "topic_id",
    "first_seq",
    "count",
    "present",
    "number",
    "offset",
    "data_len",
    "first_ts",
    "last_ts",
    "flags",
)


def fragments(chunks: Sequence[Chunk]) -> list[bytes]:
    """The fragment of each row of some chunks."""
    return [
        bytes(chunk.data[chunk.bounds[at] : max(chunk.bounds[at + 1] - 1, chunk.bounds[at])])
        for chunk in chunks
        for at in range(chunk.count)
    ]


def all_chunks(files: SegmentFiles, segment: Segment) -> list[Chunk]:
    """All chunks of a segment."""
    chunks = files.chunks(segment, 0, segment.count)
    assert chunks is not None
    return chunks


def needle(value: str, op: Literal["Eq", "Glob"] = "Eq") -> Needle:
    """A tag filter."""
    return Needle(Match(op=op, value=value))


def check_records(
    files: SegmentFiles, segment: Segment, sample: Sample, passed_over: Sequence[int] = (), *, light: bool = False
) -> None:
    """All records and rows are what went into the segment; the rows `passed_over` are known to be bad.

    `light`: the fragments alone.
    """
    chunks = all_chunks(files, segment)
    assert [chunk.first_row for chunk in chunks] == [0, *accumulate(chunk.count for chunk in chunks[:-1])]
    assert chunks[-1].first_row + chunks[-1].count == segment.count
    for index, (found, row) in enumerate(zip(fragments(chunks), sample.rows, strict=True)):
        assert index in passed_over or found == row.fragment, index
    if light:
        return
    rows = files.rows(segment, 0, segment.count)
    for part in (rows, *chunks):
        tss, lens = part.ts, part.parts
        assert (part.first_ts, part.last_ts) == (part.ts_at(0), part.ts_at(part.count - 1))
        for at in range(part.count):
            row = sample.rows[part.first_row + at]
            if part.first_row + at in passed_over:
                continue
            stride = part.bounds[at + 1] - part.bounds[at]
            assert stride == (len(row.fragment) + 1 if row.fragment else 0)
            assert (tss if isinstance(tss, int) else tss[at]) == part.ts_at(at) == row.ts
            assert tuple(0 if column is None else column[at] for column in lens) == row.parts


def check_tags(files: SegmentFiles, segment: Segment, sample: Sample) -> None:
    """Rows are found by their tags."""
    for value in {row.tag for row in sample.rows if row.tag is not None} | {"never"}:
        for op in OPS:
            wanted = [
                index
                for index, row in enumerate(sample.rows)
                if row.tag is not None and (row.tag == value if op == "Eq" else row.tag.startswith(value))
            ]
            assert list(files.tag_rows(segment, needle(value, op))) == wanted
            tags = files.tag_set(segment)
            assert tags is None or not wanted or tags.may_hold(needle(value, op))


def check_all(files: SegmentFiles, segment: Segment, sample: Sample) -> None:
    """Everything that can be asked of a segment is what went into it."""
    check_records(files, segment, sample)
    check_tags(files, segment, sample)
