"""A checkpoint in one go, of a core that is stepped by hand: what tests of recovery stand on.

The real one (engine/checkpoint) does the same in slices, off the loop and with errors; the functions that take a topic
down and encode it are the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise

from engine.core import Core
from engine.core.images import capture, cut_of
from engine.formats.snapshot import Globals, encode_sections, snapshot_path
from engine.fs import Fs, replace_file
from engine.segment.build import Run, build, times_of
from engine.segment.write import TailsWriter, write_deletes, write_segment
from engine.store.snapshots import entry_of
from engine.topic.block import Block
from engine.topic.tail import Tail


def checkpoint(core: Core, fs: Fs, number: int, *, own_files: bool = False, sync: Callable[[], None]) -> None:
    """Take everything down and write it; `sync` has to bring the log of every shard to the disk."""
    cuts = [cut_of(shard) for shard in core.wal.shards]
    slots = list(core.catalog.by_id.values())
    tails = {slot.topic.id: slot.topic.tail for slot in slots}
    taken = [
        found
        for slot in slots
        if (found := capture(slot, core.wal.shards[slot.shard].tip_lsn, core.catalog.routers)) is not None
    ]
    globals_ = Globals(
        number=number,
        predecessor=number - 1,
        last_ts=core.now(),
        order=core.wal.order,
        tick=core.wal.tick,
        epoch=core.catalog.last_id,
        last_epoch=core.catalog.last_epoch,
        shards=core.wal.active,
        closed_names=sorted(core.catalog.closed_names),
        cuts=cuts,
    )
    store_id = core.store.store_id
    writer = TailsWriter(fs, store_id, 0, number)
    for found in taken:
        image = found.image
        for block, (live, size) in zip(found.loose, found.live, strict=True):
            built = build(image.id, block.first_seq, block.count, [run_of(tails[image.id], block)])
            segment = write_segment(fs, store_id, 0, number, built) if own_files else writer.add(built)
            entry = entry_of(segment, live, size, built.tag_set)
            image.segments.append(entry)
            if own_files:
                first, last = segment.first_seq, segment.last_seq
                inside = [
                    (max(a, first) - first, min(b, last) - first) for a, b in image.deleted if a <= last and b >= first
                ]
                if inside:
                    entry.deletes, entry.digest = 1, write_deletes(fs, store_id, 0, segment, 1, inside)
                    kept = [(a, b) for a, b in image.deleted if b < first or a > last]
                    kept += [(a, first - 1) for a, b in image.deleted if a < first <= b]
                    image.deleted = sorted(kept + [(last + 1, b) for a, b in image.deleted if a <= last < b])
        for segment, entry, rows in found.deletes:
            entry.deletes += 1
            entry.digest = write_deletes(fs, store_id, 0, segment, entry.deletes, rows)
            segment.del_version, segment.del_digest, segment.deletes_dirty = entry.deletes, entry.digest, False
        image.segments.sort(key=lambda entry: entry.first)
    writer.finish()
    sync()
    for cut, shard in zip(cuts, core.wal.shards, strict=True):
        cut.end_lsn = shard.durable_end
    content = b"".join(encode_sections(((found.image, found.config) for found in taken), globals_, store_id))
    replace_file(fs, snapshot_path(number), content)


def run_of(tail: Tail, block: Block) -> Run:
    """All records of a block."""
    hot = tail.hot(block)
    data, bounds = hot.whole()
    strides = array("I", (b - a for a, b in pairwise(bounds)))
    ts: int | array[int] = hot.first_ts
    if hot.first_ts != hot.last_ts:
        ts = times_of(bytes(data), strides, hot.first_seq, hot.first_ts, hot.last_ts)
    return Run(hot.first_seq, bytes(data), strides, ts, hot.node_lens, hot.meta_lens, hot.tag_lens)
