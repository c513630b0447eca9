"""A topic: its head, its floors, its counts, and the few changes that there are.

A topic changes by `apply_append`, `apply_delete`, `apply_gap` and `apply_config` alone, plus `expire` as engine time
passes. They are the same live and at replay, and deterministic: each first expires what is too old at the change's own
time, then makes the change, then evicts what is beyond the caps. So a topic made from its log equals the one that wrote
it, as long as `expire` is called in between only while no change is staged. Readers never change anything; they ask
`at(now)` where the live part begins.

    1 ……………… floor.seq … earliest_seq ……………………………………… head
      lost (why: floor)   │  deleted only  │  live, but for `deleted` and `gaps`

Everything below `earliest_seq` is gone. What was lost in front of it is in the floor, gaps that got there included;
what lies above is live unless a range of `deleted` or a gap says otherwise. When nothing is live `earliest_seq` is
`head + 1`. Caps and age are exact, whatever bytes still lie in blocks. A `reject` topic never evicts for a cap.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from engine.errors import Code, Refused
from engine.fragment import Rendered
from engine.limits import GAPS_MAX
from engine.topic.block import Block, counted_bytes
from engine.topic.cache import Cache
from engine.topic.floor import Floor
from engine.topic.gaps import Gaps
from engine.topic.ghosts import Ghosts
from engine.topic.idempotency import Keys, Used, Window
from engine.topic.rangeset import RangeSet
from engine.topic.tail import Tail
from engine.types import Discard, Reason, TopicConfig

_NOTHING_DELETED: Final = RangeSet()
_NO_GAPS: Final = Gaps()
_UNTOUCHED: Final = Floor()
_NO_GHOSTS: Final = Ghosts()
# Most topics never need these four; they share empty ones until their first change (an idle topic costs ~1 KB).


class View(msgspec.Struct, frozen=True, gc=False):
    """What is live at a moment."""

    earliest_seq: int
    floor_seq: int
    count: int
    bytes: int
    expired_seq: int = 0
    """The last record that is too old although the topic still counts it; 0 when there is none."""


class Topic:
    """The state of one topic. Its attributes are for reading; the `apply_…` functions change them."""

    __slots__ = (
        "_ages",
        "_caps",
        "_floor",
        "_gaps",
        "_ghosts",
        "bytes",
        "config",
        "count",
        "deleted",
        "earliest_seq",
        "epoch",
        "head",
        "id",
        "idempotency",
        "last_read_ts",
        "last_write_ts",
        "lost",
        "name",
        "tail",
    )

    def __init__(
        self,
        topic_id: int,
        name: str,
        epoch: int,
        config: TopicConfig,
        cache: Cache | None = None,
        keys: Keys | None = None,
    ) -> None:
        self.id = topic_id
        self.name = name
        self.epoch = epoch
        self.config = config
        self.head = 0
        self.earliest_seq = 1
        self.count = 0
        self.bytes = 0
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None
        self.deleted = _NOTHING_DELETED
        self.lost: tuple[tuple[int, int], ...] = ()
        self.tail = Tail(cache if cache is not None else Cache(), topic_id)
        self.idempotency = Window(keys if keys is not None else Keys(), config.idempotency_window_ms)
        self._gaps = _NO_GAPS
        self._floor = _UNTOUCHED
        self._ghosts = _NO_GHOSTS
        self._caps = _has_caps(config)
        self._ages = bool(config.ttl_ms)

    def attach(self, cache: Cache, keys: Keys) -> None:
        """Share memory and key counts with the other topics of a store; before anything is applied."""
        assert self.head == 0, "a topic is attached before it holds anything"
        self.tail = Tail(cache, self.id)
        self.idempotency = Window(keys, self.config.idempotency_window_ms)

    def release(self) -> None:
        """Give back what the topic holds of memory and key counts: it is gone."""
        self.tail.drop(0, len(self.tail.blocks))
        self.idempotency.release()

    @property
    def floor(self) -> Floor:
        return self._floor

    @property
    def gaps(self) -> Gaps:
        return self._gaps

    # -- the changes -----------------------------------------------------------------------------------------------

    def apply_append(
        self,
        first_seq: int,
        rendered: Rendered,
        ts: int,
        location: tuple[int, int] | None = None,
        idem: tuple[bytes, bytes] | None = None,
    ) -> None:
        """A batch becomes readable. `location` is (shard, lsn) of its frame, None when there is none."""
        assert first_seq == self.head + 1, "seqs are contiguous; what is missing is a gap"
        if self._ages:
            self.expire(ts)
        count = len(rendered.strides)
        size = rendered.size
        if size < 0:
            size = counted_bytes(rendered, first_seq, ts)
        self.tail.append(self, first_seq, rendered, ts, location, size)
        self.head += count
        self.count += count
        self.bytes += size
        self.last_write_ts = ts
        if idem is not None:
            self._ages = True
            self.idempotency.add(idem[0], Used(first_seq, count, idem[1], ts))
        if self._caps:
            self._evict_over_caps()

    def apply_delete(self, ranges: list[tuple[int, int]], ts: int) -> int:
        """Records vanish because somebody asked; returns how many of `ranges` were live."""
        if self._ages:
            self.expire(ts)
        removed, has_ghosts, is_whole = 0, self._ghosts is not _NO_GHOSTS, self._gaps is _NO_GAPS or not self._gaps
        for first, last in ranges:
            if has_ghosts:
                self._ghosts.delete(first, last)
            if first == last and is_whole:
                removed += self._delete_one(first)
                continue
            for start, stop in self._gaps.outside(max(first, self.earliest_seq), min(last, self.head)):
                if self.deleted is _NOTHING_DELETED:
                    self.deleted = RangeSet()
                removed += self._take_out(start, stop)
                self.deleted.add(start, stop)
        if removed and self.earliest_seq in self.deleted:
            self._settle_front(self.earliest_seq)
        return removed

    def apply_gap(
        self, first: int, last: int, reason: Reason, ts: int | None = None, counted: int | None = None
    ) -> None:
        """Seqs are lost; a gap beyond the head moves it.

        `counted` is given when the gap is a write that was there and cannot be read any more (`ghosts`): an upper
        bound of the bytes that it counted for (`block.counted_at_most`). What it evicted then stays evicted. Gaps are
        never joined over live records: each costs a start after a power failure or a damaged frame, so they stay few.
        """
        if ts is not None:
            self.expire(ts)
        if reason is Reason.CORRUPTION:
            self._note_damage(first, last)
        first = max(min(first, self.head + 1), self.earliest_seq)
        if last < first:
            return
        self._take_out(first, min(last, self.head))
        self._add_gap(first, last, reason)
        self.head = max(self.head, last)
        if counted is not None:
            if self._ghosts is _NO_GHOSTS:
                self._ghosts = Ghosts()
            self._ghosts.add(first, last, counted)
        self._settle_front(self.earliest_seq)
        if self._caps:
            self._evict_over_caps()

    def note_gap(self, first: int, last: int, reason: Reason) -> None:
        """Records that no block holds and no count counts are lost: for a topic that is being put back."""
        if reason is Reason.CORRUPTION:
            self._note_damage(first, last)
        self._add_gap(first, last, reason)
        self._settle_front(self.earliest_seq)

    def _add_gap(self, first: int, last: int, reason: Reason) -> None:
        if self._gaps is _NO_GAPS:
            self._gaps = Gaps()
        self._gaps.add(first, last, reason)

    def apply_config(self, config: TopicConfig, ts: int) -> None:
        """The configuration changes; what it puts beyond age or caps is gone."""
        self.expire(ts)
        self.config = config
        self.idempotency.window_ms = config.idempotency_window_ms
        self._caps = _has_caps(config)
        self._ages = bool(config.ttl_ms or self.idempotency)
        self.expire(ts)
        if self._caps:
            self._evict_over_caps()

    def expire(self, now_ms: int) -> None:
        """Let go of records and keys that are too old at `now_ms`."""
        if self._ages:
            if self.config.ttl_ms:
                self._expire_records(now_ms)
            self.idempotency.expire(now_ms)
            self._ages = bool(self.config.ttl_ms or self.idempotency)

    def shed(self, block: Block) -> tuple[int, int]:
        """Lose everything up to the end of `block`, as a cap would; (records, bytes) that were live."""
        count, size = self.count, self.bytes
        self._lose_below(block.first_seq + block.count, Reason.CAP)
        return count - self.count, size - self.bytes

    # -- what is live ----------------------------------------------------------------------------------------------

    def at(self, now_ms: int) -> View:
        """What is live at `now_ms`, changing nothing."""
        limit = self._first_unexpired(now_ms) if self.config.ttl_ms else self.earliest_seq
        if limit <= self.earliest_seq:
            return View(self.earliest_seq, self._floor.seq, self.count, self.bytes)
        count, size, last = self._live_below(limit)
        if not count:
            return View(self.earliest_seq, self._floor.seq, self.count, self.bytes)
        earliest = self.next_live(limit)
        passed = self._gaps.between(last + 1, earliest - 1)
        floor = (passed[-1].last if passed else last) + 1
        return View(earliest, floor, self.count - count, self.bytes - size, last)

    def next_live(self, seq: int) -> int:
        """The first seq from `seq` on that is not in the floor, a gap or deleted; `head + 1` when there is none."""
        seq, head, gaps = max(seq, self.earliest_seq), self.head, self._gaps
        while seq <= head:
            after = self.deleted.next_not_in(seq)
            gap = None if gaps is _NO_GAPS else gaps.holding(after)
            if gap is None:
                return after if after <= head else head + 1
            seq = gap.last + 1
        return head + 1

    def live_until(self, first: int, last: int) -> int:
        """The last seq of the live run that begins with `first`, at most `last`; less than `first` when that is not
        live. The caller keeps to `earliest_seq … head`."""
        until = self.deleted.next_in(first, last + 1) - 1
        gap = None if self._gaps is _NO_GAPS else self._gaps.at_or_after(first)
        if gap is not None and gap.first <= until:
            until = gap.first - 1
        return min(until, last)

    def live_runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The live part of `first … last`, as inclusive runs; the caller keeps to `earliest_seq … head`."""
        for start, stop in self._gaps.outside(first, last):
            yield from self.deleted.outside(start, stop)

    def damage(self) -> list[tuple[int, int]]:
        """Ranges known lost to corruption, those below the floor included."""
        return list(self.lost)

    # -- how it is done --------------------------------------------------------------------------------------------

    def _first_unexpired(self, now_ms: int) -> int:
        """The first seq whose record is young enough; one beyond the last record when there is none."""
        tail, oldest = self.tail, now_ms - self.config.ttl_ms
        blocks = tail.blocks
        if not blocks or blocks[0].first_ts >= oldest:
            return self.earliest_seq
        index = 0 if blocks[0].last_ts >= oldest else tail.first_since(oldest)
        if index == len(blocks):
            return blocks[-1].last_seq + 1
        block = blocks[index]
        if block.first_ts >= oldest:
            return block.first_seq
        start = max(self.earliest_seq - block.first_seq, 0)
        return block.first_seq + tail.offset_since(block, oldest, start)

    def _expire_records(self, now_ms: int) -> None:
        limit = self._first_unexpired(now_ms)
        if limit > self.earliest_seq:
            self._lose_below(limit, Reason.TTL)

    def _evict_over_caps(self) -> None:
        """Evict the oldest live records until both caps hold."""
        config = self.config
        while self._ghosts:
            ghosts, first = self._ghosts, self._ghosts.first
            records = self.count + ghosts.records - config.cap_records if config.cap_records else 0
            size = self.bytes + ghosts.bytes - config.cap_bytes if config.cap_bytes else 0
            if records <= 0 and size <= 0:
                return
            # Something live stands before the first ghost, or it would be forgotten; when all of that is gone it is.
            self._lose_below(min(self._beyond(records, size), first), Reason.CAP)
        records = self.count - config.cap_records if config.cap_records else 0
        size = self.bytes - config.cap_bytes if config.cap_bytes else 0
        if records > 0 or size > 0:
            self._lose_below(self._beyond(records, size), Reason.CAP)

    def _beyond(self, records: int, size: int) -> int:
        """The first seq to keep when at least so many of the oldest live records and bytes have to go."""
        block = self.tail.blocks[0]
        if not self.deleted and not self._gaps and records < block.live and size < block.live_bytes:
            # What a topic does at its cap with every write: a few records of its oldest block go.
            start = self.earliest_seq - block.first_seq
            stop = start + max(records, 0)
            if size > 0:
                size -= self.tail.size(block, start, stop)
                while size > 0:
                    size -= self.tail.size(block, stop, stop + 1)
                    stop += 1
            return block.first_seq + stop
        for block in self.tail.blocks:
            if records <= 0 and size <= 0:
                return block.first_seq
            if block.live <= records or block.live_bytes <= size:
                records -= block.live
                size -= block.live_bytes
                continue
            start = max(block.first_seq, self.earliest_seq)
            for first, last in self.live_runs(start, block.last_seq):
                while first <= last:
                    if records <= 0 and size <= 0:
                        return first
                    if size > 0:
                        index = first - block.first_seq
                        size -= self.tail.size(block, index, index + 1)
                        records -= 1
                        first += 1
                    else:
                        step = min(records, last - first + 1)
                        records -= step
                        first += step
        return self.head + 1

    def _lose_below(self, limit: int, reason: Reason) -> None:
        """Lose every live record below `limit`, and raise the floor."""
        blocks = self.tail.blocks
        if blocks and limit <= blocks[0].last_seq and not self.deleted and not self._gaps:
            block = blocks[0]
            start, stop = self.earliest_seq - block.first_seq, limit - block.first_seq
            size = self.tail.size(block, start, stop)
            block.live -= stop - start
            block.live_bytes -= size
            self.count -= stop - start
            self.bytes -= size
            if self._floor is _UNTOUCHED:
                self._floor = Floor()
            self._floor.lose(limit - 1, reason, self.tail.ts_at(block, stop - 1))
            self.earliest_seq = limit
            self.tail.cache.lost[reason] += stop - start
            return
        count, size, last = self._live_below(limit)
        if count:
            self.tail.cache.lost[reason] += count
            ts = self._ts_of(last)
            self.count -= count
            self.bytes -= size
            self._forget_below(limit)
            self._raise_floor(last, reason, ts)
            self._settle_front(limit)

    def _live_below(self, limit: int) -> tuple[int, int, int]:
        """How many live records there are below `limit`, what they count for, and the last of them."""
        count = size = 0
        for block in self.tail.blocks:
            if block.first_seq >= limit:
                break
            if block.last_seq < limit:
                count += block.live
                size += block.live_bytes
                continue
            more = self._live_in(block, self.earliest_seq, limit - 1)
            count, size = count + more[0], size + more[1]
        return count, size, self._previous_live(limit - 1) if count else 0

    def _live_in(self, block: Block, first: int, last: int) -> tuple[int, int]:
        """Live records of one block between two seqs: how many, and what they count for."""
        first, last = max(first, block.first_seq), min(last, block.last_seq)
        base = block.first_seq
        count = size = 0
        for start, stop in self.live_runs(first, last):
            count += stop - start + 1
            if count == block.live:
                return count, block.live_bytes
            size += self.tail.size(block, start - base, stop - base + 1)
        return count, size

    def _previous_live(self, seq: int) -> int:
        """The last live seq down from `seq`; the caller knows that there is one."""
        while True:
            before = self.deleted.previous_not_in(seq)
            gap = self._gaps.holding(before)
            if gap is None:
                return before
            seq = gap.first - 1

    def _ts_of(self, seq: int) -> int:
        """The `$ts` of a live record."""
        block = self.tail.block_of(seq)
        assert block is not None, "what is live lies in a block"
        return self.tail.ts_at(block, seq - block.first_seq)

    def _forget_below(self, limit: int) -> None:
        """Let the blocks forget what was live below `limit`; the whole ones go."""
        blocks = self.tail.blocks
        whole = 0
        while whole < len(blocks) and blocks[whole].last_seq < limit:
            whole += 1
        if whole < len(blocks) and blocks[whole].first_seq < limit:
            block = blocks[whole]
            count, size = self._live_in(block, self.earliest_seq, limit - 1)
            block.live -= count
            block.live_bytes -= size
            if not block.live:
                whole += 1
        if whole:
            self.tail.drop(0, whole)

    def _take_out(self, first: int, last: int) -> int:
        """What is live in `first … last` stops counting; returns how many records that are.

        A block that lies in there as a whole knows it: nothing of it is looked at, whatever holes it has.
        """
        tail = self.tail
        blocks, index, removed = tail.blocks, tail.locate(first), 0
        while index < len(blocks) and blocks[index].first_seq <= last:
            whole = index
            while whole < len(blocks) and first <= blocks[whole].first_seq and blocks[whole].last_seq <= last:
                removed += self._uncount(blocks[whole], blocks[whole].live, blocks[whole].live_bytes)
                whole += 1
            if whole > index:
                tail.drop(index, whole)
                continue
            block = blocks[index]
            removed += self._uncount(block, *self._live_in(block, first, last))
            if block.live:
                index += 1
                if block.segment is not None:
                    block.segment.deletes_dirty = True
            else:
                tail.drop(index, index + 1)
        return removed

    def _uncount(self, block: Block, count: int, size: int) -> int:
        """So many records of a block, which count for `size`, are not live any more."""
        block.live -= count
        block.live_bytes -= size
        self.count -= count
        self.bytes -= size
        return count

    def _delete_one(self, seq: int) -> int:
        """Delete one record of a topic without gaps, if it is live; returns how many that makes."""
        if not self.earliest_seq <= seq <= self.head or seq in self.deleted:
            return 0
        tail = self.tail
        index = tail.locate(seq)
        block = tail.blocks[index]
        offset = seq - block.first_seq
        size = block.live_bytes if block.live == 1 else tail.size(block, offset, offset + 1)
        block.live -= 1
        block.live_bytes -= size
        self.count -= 1
        self.bytes -= size
        if not block.live:
            tail.drop(index, index + 1)
        elif block.segment is not None:
            block.segment.deletes_dirty = True
        if seq == self.earliest_seq and self._ghosts is _NO_GHOSTS:
            self.earliest_seq = self.next_live(seq + 1)
            if self.deleted is not _NOTHING_DELETED:
                self.deleted.remove_below(self.earliest_seq)
            return 1
        if self.deleted is _NOTHING_DELETED:
            self.deleted = RangeSet()
        self.deleted.add(seq, seq)
        return 1

    def _raise_floor(self, last: int, reason: Reason, ts: int) -> None:
        """The live records up to `last` are lost; gaps among them keep their own reasons."""
        if self._floor is _UNTOUCHED:
            self._floor = Floor()
        while (gap := self._gaps.before(last)) is not None:
            if gap.first > self.earliest_seq:
                self._floor.lose(self.deleted.previous_not_in(gap.first - 1), reason, ts)
            self._floor.lose_gap(*gap)
            self._gaps.pop_first()
        self._floor.lose(last, reason, ts)

    def _settle_front(self, seq: int) -> None:
        """Move `earliest_seq` to the next live record; gaps that it passes become part of the floor."""
        self.earliest_seq = self.next_live(seq)
        while self._gaps is not _NO_GAPS and (gap := self._gaps.before(self.earliest_seq)) is not None:
            if self._floor is _UNTOUCHED:
                self._floor = Floor()
            self._floor.lose_gap(*gap)
            self._gaps.pop_first()
        if self.deleted is not _NOTHING_DELETED:
            self.deleted.remove_below(self.earliest_seq)
        if self._ghosts is not _NO_GHOSTS:
            self._ghosts.forget_below(self.earliest_seq)

    def _note_damage(self, first: int, last: int) -> None:
        """Remember lost ranges, joined where they touch, at most `GAPS_MAX` of them."""
        ranges = RangeSet()
        for known in [*self.lost, (first, last)]:
            ranges.add(*known)
        lost = list(ranges)
        while len(lost) > GAPS_MAX:
            distance = [right[0] - left[1] for left, right in pairwise(lost)]
            index = distance.index(min(distance))
            lost[index : index + 2] = [(lost[index][0], lost[index + 1][1])]
        self.lost = tuple(lost)


def _has_caps(config: TopicConfig) -> bool:
    """Whether a cap evicts."""
    return config.discard is Discard.OLD and bool(config.cap_records or config.cap_bytes)


def check_fits(
    config: TopicConfig,
    sizes: list[int],
    topic: Topic | None,
    staged_records: int,
    staged_bytes: int,
    now_ms: int | None = None,
) -> None:
    """Refuse a batch that can never fit (400), or that a full `reject` topic has no room for now (422).

    `sizes` is what each record counts for (`fragment.payload_bytes`), `staged_…` what is decided but not visible yet.
    """
    total, count = sum(sizes), len(sizes)
    rejects = config.discard is Discard.REJECT
    if config.cap_bytes and ((total if rejects else max(sizes)) > config.cap_bytes):
        raise Refused(
            Code.RECORD_TOO_LARGE,
            f"{'the batch' if rejects else 'a record'} can never fit: cap_bytes is {config.cap_bytes}",
            {"limit": "cap_bytes", "max": config.cap_bytes},
        )
    if not rejects:
        return
    if config.cap_records and count > config.cap_records:
        raise Refused(
            Code.RECORD_TOO_LARGE,
            f"the batch can never fit: cap_records is {config.cap_records}",
            {"limit": "cap_records", "max": config.cap_records},
        )
    if topic is None:
        return
    if now_ms is None:
        earliest, live, size = topic.earliest_seq, topic.count, topic.bytes
    else:
        view = topic.at(now_ms)
        earliest, live, size = view.earliest_seq, view.count, view.bytes
    full = (config.cap_records and live + staged_records + count > config.cap_records) or (
        config.cap_bytes and size + staged_bytes + total > config.cap_bytes
    )
    if full:
        raise Refused(
            Code.TOPIC_FULL,
            "the topic is full and its discard is reject; delete records, or raise a cap",
            {
                "caps": {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes},
                "head_seq": topic.head,
                "earliest_seq": earliest,
            },
        )
