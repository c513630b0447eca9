"""Seals blocks of a topic for tests: real segments on a disk in memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from engine.fs import Fs
from engine.segment.build import Run, build
from engine.segment.reader import SegmentFiles
from engine.segment.write import TailsWriter, write_segment
from engine.topic.block import Block
from engine.topic.history import NotCached, ReadJob
from engine.topic.state import Topic
from tests.sim.disk import FakeDisk

T = TypeVar("T")
STORE = b"0123456789abcdef"


class Sealer:
    """A disk, and segments on it for the blocks of topics."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.disk = FakeDisk()
        self.number = 0
        self.jobs = 0
        topic.tail.cache.history.attach(self.disk, self.open)

    def open(self, fs: Fs) -> SegmentFiles:
        return SegmentFiles(fs, STORE)

    def seal(self, first: int, count: int, *, piece: bool = False) -> Block | None:
        """Make one sealed block of up to `count` blocks from index `first` on."""
        tail = self.topic.tail
        blocks = tail.blocks[first : first + count]
        if not blocks:
            return None
        self.number += 1
        runs = [run for block in blocks for run in self._runs(block)]
        first_seq = blocks[0].first_seq
        built = build(self.topic.id, first_seq, blocks[-1].last_seq - first_seq + 1, runs)
        if piece:
            writer = TailsWriter(self.disk, STORE, 0, self.number)
            segment = writer.add(built)
            writer.finish()
        else:
            segment = write_segment(self.disk, STORE, 0, self.number, built)
        sealed = Block.sealed(segment, 0, 0, built.tag_set)
        tail.replace(first, len(blocks), sealed)
        return sealed

    def _runs(self, block: Block) -> list[Run]:
        if block.open:
            block.close()
        runs = []
        base = block.first_seq
        for start, stop in self.topic.live_runs(max(base, self.topic.earliest_seq), block.last_seq):
            for seq in range(start, stop + 1):
                part, index = self.ask(partial(self.topic.tail.at, block, seq - base))
                data, bounds = part.whole()
                strides = array("I", [bounds[index + 1] - bounds[index]])
                columns = (part.node_lens, part.meta_lens, part.tag_lens)
                lens = [None if lens is None else lens[index : index + 1] for lens in columns]
                runs.append(
                    Run(seq, bytes(data[bounds[index] : bounds[index + 1] - 1]), strides, part.ts_at(index), *lens)
                )
        return runs

    def ask(self, question: Callable[[], T]) -> T:
        """Ask until nothing has to be read any more."""
        jobs: list[ReadJob] = []
        while True:
            try:
                return question()
            except NotCached as missing:
                job = missing.job
            job.run(self.disk)
            jobs.append(job)
            self.jobs += 1
            assert not job.damage
            assert len(jobs) < 200, "a reader does not get on"
            for done in jobs:
                self.topic.tail.cache.history.put(done, lambda segment: True)
