"""Where the bytes of a block come from when they are copied into a segment: memory, the log, or an older segment.

A source is made on the loop, where it takes down what it needs, and read off it: a hot block's payload stays as it is
while something refers to it, frames and segments are there until a later checkpoint has made them superfluous. What is
dead by then is left out; which seqs that are is taken down with the source.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Protocol

from engine.errors import StoreDamaged
from engine.formats.append import append_part, decode_append_body
from engine.formats.segment import differences
from engine.fs import REFUSED, Fs
from engine.ranges import Ranges
from engine.segment.build import Run, times_of
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import SegmentFiles
from engine.segment.segment import Segment
from engine.topic.block import Block, Bytes, Lens
from engine.topic.damaged import DamagedFrames
from engine.topic.state import Topic
from engine.wal.chain import LogFile, file_of
from engine.wal.reader import FrameReader


class Readers:
    """What sources are read through, off the loop: log files and segments, opened for one job."""

    def __init__(self, fs: Fs, store_id: bytes, seed: int, logs: dict[int, list[LogFile]]) -> None:
        self.segments = SegmentFiles(fs, store_id)
        self._frames = FrameReader(fs, seed)
        self._logs = logs

    def frame(self, shard: int, lsn: int) -> tuple[int, int, bytes, Lens, Lens | None, Lens | None, Lens | None]:
        """First seq, ts, fragments, strides and columns of a frame that holds records."""
        header, body = self._frames.read(file_of(self._logs[shard], lsn), lsn)
        body = append_part(header.type, body)
        rendered = decode_append_body(header.flags, header.records, body).rendered
        return (
            header.first_seq,
            header.ts,
            rendered.fragments,
            rendered.strides,
            rendered.node_lens,
            rendered.meta_lens,
            rendered.tag_lens,
        )

    def close(self) -> None:
        """Give all handles back."""
        self._frames.close()
        self.segments.close()


class Source(Protocol):
    """The records of one block."""

    def runs(self, readers: Readers) -> Iterator[Run]:
        """Its live records. Raises `DamagedSegment`, `DamagedFrames` (once all that is good was given), `OSError`."""
        ...


def source_of(topic: Topic, block: Block) -> Source:
    """The source of a closed block, as of now."""
    first, last = max(block.first_seq, topic.earliest_seq), block.last_seq
    live = list(topic.live_runs(first, last)) if first <= last else []
    if block.segment is not None:
        return _FromSegment(block.segment, live)
    if block.data is not None:
        return _FromMemory(block, live)
    return _FromLog(topic, block, live)


class _FromMemory:
    """A hot block."""

    __slots__ = ("_bounds", "_columns", "_data", "_first_seq", "_live", "_times")

    def __init__(self, block: Block, live: Ranges) -> None:
        self._data, self._bounds = block.whole()
        self._first_seq = block.first_seq
        self._times = (block.first_ts, block.last_ts)
        self._columns = (block.node_lens, block.meta_lens, block.tag_lens)
        self._live = live

    def runs(self, readers: Readers) -> Iterator[Run]:
        data, bounds = self._data, self._bounds
        first_ts, last_ts = self._times
        if len(bounds) == 2 and self._live:
            yield Run(self._first_seq, data, array("I", (bounds[1] - bounds[0],)), first_ts, *self._columns)
            return
        ts: int | array[int] = first_ts
        if first_ts != last_ts:
            ts = times_of(data, differences(bounds), self._first_seq, first_ts, last_ts)
        yield from _parts(self._first_seq, data, bounds, ts, self._columns, self._live)


class _FromLog:
    """A cold block: its frames, as far as they have something live. Which these are is looked up when it is read: of
    many small writes they would be much to hold meanwhile, and while it is being sealed the block keeps its bounds."""

    __slots__ = ("_block", "_live", "_topic_id")

    def __init__(self, topic: Topic, block: Block, live: Ranges) -> None:
        self._topic_id = topic.id
        self._block = block
        self._live = live

    def _frames(self) -> Iterator[tuple[int, Ranges]]:
        """The lsn of each frame, and what is live of it."""
        for lsn, first, count in self._block.frames():
            last = first + count - 1
            inside = [(max(a, first), min(b, last)) for a, b in self._live if a <= last and b >= first]
            if inside:
                yield lsn, inside

    def runs(self, readers: Readers) -> Iterator[Run]:
        lost: Ranges = []
        why, unread = "", False
        shard = self._block.shard
        for lsn, live in self._frames():
            try:
                first_seq, ts, data, strides, *columns = readers.frame(shard, lsn)
            except StoreDamaged as error:
                lost, why = lost + live, str(error)
                continue
            except OSError as error:
                if error.errno not in REFUSED:
                    raise
                unread = True
                lost, why = lost + live, f"wal/shard-{shard:02d}, lsn {lsn}: {error.strerror}"
                continue
            bounds = array("I", accumulate(strides, initial=0))
            yield from _parts(first_seq, data, bounds, ts, (columns[0], columns[1], columns[2]), live)
        if lost:
            raise DamagedFrames(self._topic_id, lost, why, unread=unread)


class _FromSegment:
    """A sealed block: its chunks."""

    __slots__ = ("_live", "_segment")

    def __init__(self, segment: Segment, live: Ranges) -> None:
        self._segment = segment
        self._live = live

    def runs(self, readers: Readers) -> Iterator[Run]:
        base = self._segment.first_seq
        for first, last in self._live:
            chunks = readers.segments.chunks(self._segment, first - base, last - base + 1)
            assert chunks is not None, "a read that may wait always has an answer"
            self._check_bad(first - base, last - base)
            for chunk in chunks:
                start = base + chunk.first_row
                live = [(max(first, start), min(last, start + chunk.count - 1))]
                yield from _parts(start, chunk.data, chunk.bounds, chunk.ts, chunk.parts, live)

    def _check_bad(self, first: int, last: int) -> None:
        """Raise for rows that were live when this was taken down, and are known to be damaged by now: what was read of
        them is nothing, and the gap that says so comes after the cut."""
        bad = [(max(a, first), min(b, last)) for a, b in self._segment.bad if a <= last and b >= first]
        if bad:
            raise DamagedSegment(
                self._segment, self._segment.data_path, bad, "records were found to be damaged meanwhile"
            )


def _parts(
    first_seq: int,
    data: Bytes,
    bounds: Lens,
    ts: int | array[int],
    columns: tuple[Lens | None, Lens | None, Lens | None],
    live: Ranges,
) -> Iterator[Run]:
    """The live stretches of some records. The bytes are not copied."""
    count = len(bounds) - 1
    flat = memoryview(data)
    for first, last in live:
        start, stop = first - first_seq, last - first_seq + 1
        whole = start == 0 and stop == count
        part = data if whole and isinstance(data, bytes) else flat[bounds[start] : bounds[stop] - 1]
        strides = differences(bounds if whole else bounds[start : stop + 1])
        times = ts if isinstance(ts, int) or whole else ts[start:stop]
        nodes, metas, tags = (None if lens is None else lens if whole else lens[start:stop] for lens in columns)
        yield Run(first, part, strides, times, nodes, metas, tags)
