"""What memory holds of sealed blocks, whose records lie in segments, and how it gets there.

A sealed block is read a *part* at a time: a stretch of rows, as long as the reader wants it, as a hot block that nobody
writes to. Parts never overlap; they begin and end where sums do, unless their records are large. They, and the larger
sets of tags, are kept as long as there is room (least recently used first out, see `Cache.shrink`); of index rows and
of tag look-ups the last few are.

    reader ─► part ─► is it kept? ─► does the page cache have it (`nowait`)? ─► NotCached(job)
                                          job.run(fs), off the loop ─► Core.read_done(job) ─► the reader asks again

What is asked of `.idx` and `.tags`, which are small and always local, is read at once: sizes, times, which rows have a
tag. Only the bytes of records are worth waiting for, because their disk may be slow, cold or gone. A job's parts are
kept by whoever asked until it is answered (`put`), so a reader gets on even where nothing else stays in memory.

Damage is met by jobs: what a look without waiting stumbles over is left for the job to meet again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from engine.errors import StoreDamaged, StoreForeign
from engine.formats.segment import SUM_ROWS, minus
from engine.fragment import digits
from engine.fs import Fs
from engine.segment.damaged import DamagedSegment
from engine.segment.reader import HANDLES_MAX, Chunk, Rows, SegmentFiles
from engine.segment.segment import CHUNK_RECORDS, Segment
from engine.tagset import Needle, TagSet
from engine.topic.block import WEIGHT_FIXED, Block, Bytes, Lens, counted_between
from engine.topic.damaged import DamagedFrames

if TYPE_CHECKING:
    from engine.topic.cache import Cache

ROWS_KEPT: Final = 128
"""Stretches of index rows that are kept (9 KiB each, at most): what topics at a cap or an age look at again."""
ROWS_CHUNKED: Final = 2 * CHUNK_RECORDS
"""Rows of longer ranges are read at once, and not kept."""
TAG_ROWS_KEPT: Final = 256
"""Segments of which answers to "which rows have this tag" are kept…"""
NEEDLES_KEPT: Final = 2
"""…and how many of each."""
TAGS_WEIGHT_SMALL: Final = 2048
"""Sets of tags up to this many bytes stay with their block; larger ones are kept while there is room."""
TAG_SETS_LEARNT: Final = 16
"""Sets of tags that are read at once after a start: about a millisecond."""
READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""What one read brings into memory before it is content with what it has."""
_TAGS: Final = -1

Opener: TypeAlias = Callable[[Fs], SegmentFiles]


def _no_files(fs: Fs) -> SegmentFiles:
    raise LookupError("nobody said where the segments are")


class NotCached(Exception):
    """A read needs what is not in memory and may have to be waited for: `job.run(fs)` wherever that may block, hand
    the job back to `Core.read_done`, then ask again."""

    def __init__(self, job: ReadJob) -> None:
        super().__init__(f"{len(job.asked)} stretches of segments are to be read")
        self.job = job


class ReadJob:
    """Stretches of rows, or rows by tag, to be read from segments. `run` touches nothing that the loop owns.

    There may be nothing to read but damage in the log to be told (`of_damage`), which is waited for in the same way.

    key      the same for jobs that read the same
    cold     whether it needs the cold tier, which may take any time or never answer
    damage   what was found out to be damaged
    refusal  why files cannot be used at all
    """

    __slots__ = ("_lost", "_opener", "asked", "cold", "damage", "parts", "refusal", "tag_rows", "tags")

    def __init__(
        self, opener: Opener, asked: list[tuple[Segment, int, int]], tags: list[tuple[Segment, Needle]]
    ) -> None:
        self._opener = opener
        self.asked = asked
        self.tags = tags
        self.cold = any(segment.cold for segment in self.segments())
        self.parts: list[tuple[Segment, Part]] = []
        self.tag_rows: list[tuple[Segment, Needle, array[int]]] = []
        self.damage: list[DamagedSegment | DamagedFrames] = []
        self._lost: tuple[tuple[int, int], ...] = ()
        self.refusal: StoreForeign | None = None

    @classmethod
    def of_damage(cls, damage: DamagedFrames) -> ReadJob:
        """One that has found damage already."""
        job = cls(_no_files, [], [])
        job.damage.append(damage)
        job._lost = damage.frames
        return job

    @property
    def key(self) -> tuple[object, ...]:
        return (*self.asked, *[(segment, needle.part, needle.exact) for segment, needle in self.tags], *self._lost)

    def segments(self) -> set[Segment]:
        """All segments that it reads."""
        return {segment for segment, _, _ in self.asked} | {segment for segment, _ in self.tags}

    def run(self, fs: Fs) -> None:
        """Read. Raises `OSError`, after which nothing of it counts."""
        if not (self.asked or self.tags):
            return
        with self._opener(fs) as files:
            for segment, start, stop in self.asked:
                try:
                    for chunk in files.chunks(segment, start, stop) or ():
                        self.parts.append((segment, Part(segment, chunk)))
                except DamagedSegment as damage:
                    self.damage.append(damage)
                except StoreForeign as foreign:
                    self.refusal = foreign
            for segment, needle in self.tags:
                try:
                    self.tag_rows.append((segment, needle, files.tag_rows(segment, needle)))
                except DamagedSegment as damage:
                    self.damage.append(damage)
                except StoreForeign as foreign:
                    self.refusal = foreign


class Part(Block):
    """Rows of a sealed block as a hot block; rows without a record (dead when they were sealed) take no bytes in it."""

    __slots__ = ("_may_be_holed", "_offsets", "_tss", "queued")

    def __init__(self, segment: Segment, chunk: Chunk) -> None:
        count = chunk.count
        self.first_seq = segment.first_seq + chunk.first_row
        self.count = count
        self.first_ts, self.last_ts = chunk.first_ts, chunk.last_ts
        self._may_be_holed = segment.present != segment.count
        # A row without a record has nothing that says its time; of all others the record does.
        self._tss = chunk.ts if self._may_be_holed or segment.bad else None
        self.live = self.live_bytes = 0
        self.shard, self.lsns, self.counts, self.segment = 0, None, None, None
        self.queued = self.open = self.sealing = False
        self.touched = True
        self.data = chunk.data
        self._offsets: Lens = chunk.offsets
        self._bounds = self._strides = self._bare = None
        width = 4
        if segment.flags:
            self.node_lens, self.meta_lens, self.tag_lens = (
                None if lens is None or not any(lens) else lens for lens in chunk.parts
            )
            width += 4 * sum(lens is not None for lens in (self.node_lens, self.meta_lens, self.tag_lens))
        else:
            self.node_lens = self.meta_lens = self.tag_lens = None
        if isinstance(self._tss, array):
            width += 8
        self.tagged = self.tag_lens is not None
        self.known_tags = None
        self.weight = WEIGHT_FIXED + len(chunk.data) + width * count

    def whole(self) -> tuple[Bytes, Lens]:
        if self._bounds is None:
            self._bounds = self._offsets = minus(self._offsets, self._offsets[0])
        assert self.data is not None, "a part is hot"
        return self.data, self._bounds

    def placed(self) -> tuple[Bytes, Lens, int]:
        assert self.data is not None, "a part is hot"
        return self.data, self._offsets, self._offsets[0]

    def ts_at(self, index: int) -> int:
        tss = self._tss
        if tss is None:
            return super().ts_at(index)
        return tss if isinstance(tss, int) else tss[index]

    def _keeps_bare(self, start: int, stop: int) -> bool:
        # Cutting tags joins what is left anew, which would give rows without a record a comma.
        return not self._is_holed() and super()._keeps_bare(start, stop)

    def _is_holed(self) -> bool:
        """Whether some row has no record."""
        return self._may_be_holed and len(set(self._offsets)) <= self.count


class _Tags:
    """A set of tags that is too large to stay with its block."""

    __slots__ = ("queued", "tags", "weight")

    def __init__(self, tags: TagSet) -> None:
        self.tags = tags
        self.weight = WEIGHT_FIXED + tags.weight
        self.queued = False


class History:
    """The sealed blocks' share of a `Cache`."""

    __slots__ = ("_cache", "_firsts", "_kept", "_opener", "_rows", "_tag_rows", "_unlearnt", "damaged", "files", "held")

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.files: SegmentFiles | None = None
        """The segments' files, for the thread that owns the topics."""
        self.held = 0
        """Bytes of all that is kept; counted in `Cache.bytes_held` too."""
        self.damaged: list[DamagedSegment | DamagedFrames] = []
        """What could not be read where no reader was to be told; somebody has to look after it."""
        self._opener: Opener = _no_files
        self._kept: dict[tuple[Segment, int], Part | _Tags] = {}
        """By segment and first row (`_TAGS`: its set of tags), what was used longest ago first."""
        self._firsts: dict[Segment, list[int]] = {}
        """The first rows of the parts that are kept, in order."""
        self._rows: dict[tuple[Segment, int], Rows] = {}
        self._tag_rows: dict[Segment, dict[tuple[bytes, bool], array[int]]] = {}
        self._unlearnt: deque[Block] = deque()

    def attach(self, fs: Fs, opener: Opener, handles_max: int = HANDLES_MAX) -> None:
        """Say where the segments are: `opener(fs)` makes what reads them, for one thread; that of the topics' owner
        keeps so many files open."""
        self._opener = opener
        self.files = opener(fs)
        self.files.handles_max = handles_max

    def close(self) -> None:
        """Give file handles back."""
        if self.files is not None:
            self.files.close()

    # -- records ---------------------------------------------------------------------------------------------------

    def part(self, block: Block, index: int, wanted: int = 1, bytes_wanted: int = READ_BYTES_MAX) -> tuple[Part, int]:
        """The part that holds record `index` of a sealed block, and the index in it; the reader is going to want up to
        `wanted` records and `bytes_wanted` bytes from there on. Of large records no more are read than that, because
        64 of them are more than a read may take. Raises `NotCached`."""
        segment = block.segment
        assert segment is not None, "only sealed blocks have parts"
        firsts = self._firsts.get(segment)
        at = bisect_right(firsts, index) if firsts else 0
        if firsts and at:
            first = firsts[at - 1]
            part = self._part_at(segment, first)
            if index - first < part.count:
                del self._kept[segment, first]
                self._kept[segment, first] = part  # used last
                return part, index - first
        each = segment.data_len // max(segment.present, 1) + 1
        start, stop = index, index + max(1, min(wanted, min(bytes_wanted, READ_BYTES_MAX) // each + 1))
        if segment.cold or each * SUM_ROWS <= READ_BYTES_MAX:
            start -= start % SUM_ROWS
            stop += -stop % SUM_ROWS
            if each * CHUNK_RECORDS <= READ_BYTES_MAX:
                stop = max(start + CHUNK_RECORDS, stop)
        next_first = firsts[at] if firsts and at < len(firsts) else segment.count
        part = self._load(segment, start, min(stop, next_first))
        return part, index - (part.first_seq - segment.first_seq)

    def _load(self, segment: Segment, start: int, stop: int) -> Part:
        """Read what is at hand, else raise `NotCached`."""
        if not segment.cold:
            try:
                chunks = self._files().chunks(segment, start, stop, nowait=True)
            except (StoreDamaged, OSError):
                chunks = None  # the job will meet it again
            if chunks is not None:
                parts = [Part(segment, chunk) for chunk in chunks]
                for part in reversed(parts):
                    self._keep_part(segment, part)
                while self.held > 2 * READ_BYTES_MAX and self._cache.over and len(self._kept) > len(parts):
                    self.give_back()
                return parts[0]
        raise NotCached(ReadJob(self._opener, [(segment, start, stop)], []))

    def put(self, job: ReadJob, still: Callable[[Segment], bool]) -> None:
        """Keep what a job has read, of the segments that are `still` there."""
        there = {segment for segment in job.segments() if still(segment)}
        for segment, part in job.parts:
            if segment in there:
                self._keep_part(segment, part)
        for segment, needle, rows in job.tag_rows:
            if segment in there:
                self._keep_tag_rows(segment, needle, rows)

    # -- index rows ------------------------------------------------------------------------------------------------

    def size(self, block: Block, start: int, stop: int) -> int:
        """What records `start … stop - 1` of a sealed block, all live, count for; from `.idx` alone."""
        # Where the index is damaged: their share of what all live ones count for, never more than that.
        share = block.live_bytes * (stop - start) // max(block.live, 1)
        total = 0
        try:
            if stop - start > ROWS_CHUNKED:
                return self._counted(block, self._read_rows(block, start, stop), 0, stop - start)
            while start < stop:
                rows = self._rows_at(block, start)
                first = start - rows.first_row
                taken = min(stop - start, rows.count - first)
                total += self._counted(block, rows, first, first + taken)
                start += taken
        except (StoreDamaged, OSError) as error:
            self._note(error)
            return share
        return total

    @staticmethod
    def _counted(block: Block, rows: Rows, start: int, stop: int) -> int:
        lens, tss = rows.parts, rows.ts
        if isinstance(tss, int):
            times = (stop - start) * digits(tss)
        elif digits(tss[start]) == digits(tss[stop - 1]):
            times = (stop - start) * digits(tss[start])
        else:
            times = sum(map(digits, tss[start:stop]))
        return counted_between(block.first_seq + rows.first_row, rows.bounds, lens, start, stop) - times

    def ts_at(self, block: Block, index: int) -> int:
        """The `$ts` of a record of a sealed block; of a row without a record that of the one before."""
        try:
            rows = self._rows_at(block, index)
        except (StoreDamaged, OSError) as error:
            self._note(error)
            return block.last_ts
        return rows.ts_at(index - rows.first_row)

    def _holds(self, block: Block, index: int) -> bool:
        """Whether a row of a sealed block has a record."""
        try:
            rows = self._rows_at(block, index)
        except (StoreDamaged, OSError) as error:
            self._note(error)
            return True
        return rows.bounds[index - rows.first_row] < rows.bounds[index - rows.first_row + 1]

    def last_held(self, block: Block, index: int) -> int:
        """The last row of a sealed block up to `index` that has a record; -1 when there is none."""
        while index >= 0 and not self._holds(block, index):
            index -= 1
        return index

    def _rows_at(self, block: Block, index: int) -> Rows:
        segment = block.segment
        assert segment is not None, "only sealed blocks have rows"
        key = (segment, index // CHUNK_RECORDS)
        rows = self._rows.pop(key, None)
        if rows is None:
            start = index - index % CHUNK_RECORDS
            rows = self._read_rows(block, start, min(start + CHUNK_RECORDS, block.count))
            while len(self._rows) >= ROWS_KEPT:
                del self._rows[next(iter(self._rows))]
        self._rows[key] = rows
        return rows

    def _read_rows(self, block: Block, start: int, stop: int) -> Rows:
        segment = block.segment
        assert segment is not None, "only sealed blocks have rows"
        try:
            return self._files().rows(segment, start, stop)
        except OSError:
            # Too many open files, say: with none of ours open it may go better.
            self._files().close()
            return self._files().rows(segment, start, stop)

    def _note(self, error: Exception) -> None:
        if isinstance(error, DamagedSegment):
            self.damaged.append(error)

    # -- tags ------------------------------------------------------------------------------------------------------

    def may_hold(self, block: Block, needle: Needle) -> bool:
        """Whether a record of a block may pass a tag filter, as far as that is known without reading records."""
        if not block.tagged:
            return False
        tags = block.known_tags
        if tags is None and block.segment is not None:
            tags = self._tag_set(block, block.segment)
        return tags is None or tags.may_hold(needle)

    def learn_later(self, blocks: Iterable[Block]) -> None:
        """A start has put these sealed blocks back: their sets of tags are read little by little (`learn_some`), so
        that the first delete by tag need not read all of them."""
        self._unlearnt.extend(
            block for block in blocks if block.tagged and block.segment is not None and not block.segment.in_tails
        )

    def learn_some(self) -> None:
        """Read the next few sets of tags, as long as there is room for them."""
        for _ in range(min(TAG_SETS_LEARNT, len(self._unlearnt))):
            if self._cache.over:
                return
            block = self._unlearnt.popleft()
            if block.known_tags is None and block.segment is not None:
                self._tag_set(block, block.segment)

    def know_tags(self, block: Block, tags: TagSet | None) -> None:
        """Which tags occur in a sealed block."""
        assert block.segment is not None, "only sealed blocks have their tags kept here"
        if tags is None or tags.weight <= TAGS_WEIGHT_SMALL:
            block.known_tags = tags
        else:
            self._keep((block.segment, _TAGS), _Tags(tags))

    def _tag_set(self, block: Block, segment: Segment) -> TagSet | None:
        kept = self._kept.pop((segment, _TAGS), None)
        if isinstance(kept, _Tags):
            self._kept[segment, _TAGS] = kept
            return kept.tags
        try:
            tags = self._files().tag_set(segment)
        except OSError:
            return None
        if tags is not None:
            self.know_tags(block, tags)
        return tags

    def tag_rows(self, block: Block, needle: Needle) -> array[int]:
        """The rows of a sealed block whose tag passes, dead records' included. Raises `NotCached`."""
        rows = self.table_rows(block, needle)
        if rows is None:
            # There is no table of tags: all records have to be looked at.
            assert block.segment is not None, "only sealed blocks have rows"
            raise NotCached(ReadJob(self._opener, [], [(block.segment, needle)]))
        return rows

    def table_rows(self, block: Block, needle: Needle) -> array[int] | None:
        """As `tag_rows`, as far as the segment's table of tags tells; None when it does not."""
        segment = block.segment
        assert segment is not None, "only sealed blocks have rows"
        rows = self._tag_rows.get(segment, {}).get((needle.part, needle.exact))
        if rows is None:
            try:
                rows = self._files().table_rows(segment, needle)
            except OSError:
                return None
            if rows is None:
                return None
        self._keep_tag_rows(segment, needle, rows)
        return rows

    def _keep_tag_rows(self, segment: Segment, needle: Needle, rows: array[int]) -> None:
        known = self._tag_rows.pop(segment, {})
        if len(known) >= NEEDLES_KEPT and (needle.part, needle.exact) not in known:
            known = {}
        while len(self._tag_rows) >= TAG_ROWS_KEPT:
            del self._tag_rows[next(iter(self._tag_rows))]
        known[needle.part, needle.exact] = rows
        self._tag_rows[segment] = known

    # -- memory ----------------------------------------------------------------------------------------------------

    def _files(self) -> SegmentFiles:
        assert self.files is not None, "somebody said where the segments are"
        return self.files

    def _keep_part(self, segment: Segment, part: Part) -> None:
        """Keep a part; those that it overlaps, read for somebody else meanwhile, make room for it."""
        self._cache.refusals.was_read(segment, part.first_seq, part.first_seq + part.count - 1)
        first = part.first_seq - segment.first_seq
        firsts = self._firsts.setdefault(segment, [])
        at = bisect_right(firsts, first)
        while at and self._part_at(segment, firsts[at - 1]).last_seq >= part.first_seq:
            at -= 1
            self._drop((segment, firsts[at]))
        while at < len(firsts) and firsts[at] < first + part.count:
            self._drop((segment, firsts[at]))
        insort(self._firsts.setdefault(segment, []), first)
        self._keep((segment, first), part)

    def _part_at(self, segment: Segment, first: int) -> Part:
        part = self._kept[segment, first]
        assert isinstance(part, Part), "rows are numbered from 0 on"
        return part

    def _keep(self, key: tuple[Segment, int], item: Part | _Tags) -> None:
        item.queued = True
        self._kept[key] = item
        self.held += item.weight
        self._cache.bytes_held += item.weight

    def give_back(self) -> None:
        """Let go of what was used longest ago."""
        self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[Segment, int]) -> None:
        segment, first = key
        item = self._kept.pop(key)
        if first != _TAGS:
            firsts = self._firsts[segment]
            firsts.remove(first)
            if not firsts:
                del self._firsts[segment]
        item.queued = False
        self.held -= item.weight
        self._cache.bytes_held -= item.weight

    def grow(self, part: Part, weight: int) -> None:
        """A part holds so much more."""
        part.weight += weight
        if part.queued:
            self.held += weight
            self._cache.bytes_held += weight

    def forget(self, segment: Segment) -> None:
        """A segment is no block's any more."""
        for first in self._firsts.get(segment, ())[:]:
            self._drop((segment, first))
        if (segment, _TAGS) in self._kept:
            self._drop((segment, _TAGS))
        for number in range(-(-segment.count // CHUNK_RECORDS)):
            self._rows.pop((segment, number), None)
        self._tag_rows.pop(segment, None)
        if self.files is not None:
            self.files.forget(segment)
