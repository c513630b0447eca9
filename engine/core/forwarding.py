"""Passes: new records of a source become copies in its dests, off the write path (http-api.md §9, storage.md §8).

    source has something new ─► in line ─► pass: what is to be copied (`take`) ─► one Forward frame for all dests
         ▲ copies applied in a dest are something new of it ─────┐                  └─► StagedForward in each dest
         └───────────────────────────────────────────────────────┴──────────────────────────────── applied ◄─┘

One pass makes one frame for up to `DESTS_MAX` dests, with `COPIES_MAX` copies or `BYTES_MAX` bytes, then the source
goes to the back of the line; whoever is furthest behind is first, and before all a dest that somebody asks for. Passes
are made for `SLICE_NS`, then others have the loop: a write waits for one slice, however many dests there are. Dests
that would get the same bytes (they have the same seqs) share them.

A Forward holds positions, as long as its records are sure to be there where a start reads the frame again; else it
carries them: of an ephemeral source, of records that lie in segments (the cold tier may have those by then), while a
change of the source waits that takes records away, and while a checkpoint takes topics down (`engine.core.forwards`).

A dest that takes nothing makes its router wait (`blocked`), and no other. Copies stay in memory until a checkpoint has
sealed them, so where they hold much of the cache passes wait for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from engine.core.cursors import StagedCursor
from engine.core.forwarded import StagedForward, StagedRouter, StagedRouterDrop
from engine.core.leaving import NEVER, StagedAnswer, StagedCopies
from engine.core.slot import Slot
from engine.core.staged import StagedAppend, StagedCreate, StagedUnchanged
from engine.core.ticket import Ticket
from engine.errors import TopicsError
from engine.formats.append import encode_append_body
from engine.formats.forward import Group, Landing, encode_forward_head
from engine.formats.frame import FrameType
from engine.limits import KIB, MIB, SYNC_WINDOW
from engine.routers.copies import SCAN_MAX, Copies, Cut, Missing, Record, Stretch, carry, copies, cut, take
from engine.routers.graph import ancestors, hops_limit
from engine.routers.router import Router
from engine.topic.history import NotCached, ReadJob
from engine.types import Discard, Durability, Match

if TYPE_CHECKING:
    from engine.core.core import Core

SLICE_NS: Final = 500_000
"""How long one step works on the loop; the pass that is under way then is finished."""
BYTES_MAX: Final = 512 * KIB
"""Bytes that one pass makes over all dests, but one record for each at least."""
COPIES_MAX: Final = 1024
"""Copies that one pass makes over all dests."""
RECORDS_MAX: Final = 256
"""Records of a source that one pass copies."""
DESTS_MAX: Final = 32
"""Dests of one pass; the others have theirs next."""
DESTS_HURRIED: Final = 8
"""The same where somebody waits for one of them: a pass is not interrupted, and what it costs is paid by each of them.
With fewer a frame says more about itself than about its dests."""
RETRY_MS: Final = 20
"""Time after which a router that waits is tried again."""
DERIVED_MIN: Final = 4 * MIB
"""Copies may hold as much of the memory, however small the cache is."""
DERIVED_SHARE: Final = 2
"""Copies may hold one part in so many of the cache; then passes wait for a checkpoint."""
CREATES_NOTHING: Final = (StagedAnswer, StagedUnchanged, StagedCursor, StagedRouter, StagedRouterDrop, StagedCreate)
"""Changes of a source that take no record away."""

Chosen = list[tuple[Router, Slot]]


class Forwarding:
    """The passes of one running store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.forwards = core.commit.forwards
        self.line: deque[Slot] = deque()
        """Sources that have something new, perhaps."""
        self._waiting: dict[Slot, int] = {}
        """Sources with routers that wait for something, and when they are tried again."""
        self.lacking: dict[Slot, ReadJob] = {}
        """Sources whose records have to be read first: whoever drives the engine runs the jobs, then says `again`."""

    # -- the drive -------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self.line) and not self.forwards.held and not self._is_full()

    @property
    def halted(self) -> bool:
        """Whether no pass may begin, also where somebody waits for it."""
        return self.forwards.held or self._core.closing or self._is_full()

    @property
    def busy(self) -> bool:
        """Whether it is going to get on without anything else happening."""
        return self.ready or bool(self.lacking)

    def step(self) -> bool:
        """Make passes for one slice, and write what they stage; whether to call again soon."""
        core = self._core
        if not self.ready or core.closing:
            if self.line and self._is_full():
                core.keeper.hurry()
            return False
        until = core.commit.clock.boot_ns() + SLICE_NS
        while self.ready:
            for _ in range(len(self.line)):
                slot = self.line.popleft()
                if slot.outlets is not None:
                    slot.outlets.queued = False
                    self._pass(slot)
                if self._is_full() or core.commit.clock.boot_ns() >= until:
                    break
            if core.wal.has_staged:
                core.commit.write_groups(core.now())
            if core.commit.clock.boot_ns() >= until:
                break
        return self.ready

    def hurry(self, levels: Iterable[tuple[int, int]]) -> None:
        """Make the passes that somebody waits for, for one slice: from a source into a dest, the furthest first."""
        core = self._core
        if self.halted:
            return
        until = core.commit.clock.boot_ns() + SLICE_NS
        for source, dest in levels:
            slot, tried = core.catalog.by_id.get(source), False
            while slot is not None and self._lags(slot, dest, tried=tried):
                self._pass(slot, dest)
                if not core.wal.has_staged:
                    break
                core.commit.write_groups(core.now())
                if core.commit.clock.boot_ns() >= until:
                    return
                tried = True

    def _lags(self, slot: Slot, dest: int, *, tried: bool) -> bool:
        """Whether a dest lacks something of a source; what is blocked, once it was `tried`, does not count."""
        routers = self._core.catalog.routers.of_dest(dest) if slot.outlets is not None else ()
        head = slot.topic.head
        return any(router.active and router.tip < head and not (tried and router.blocked) for router in routers)

    def retry(self, now_ms: int) -> None:
        """Try routers again that wait; called as time passes."""
        for slot, due_ms in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[slot]
                if slot.outlets is not None:
                    slot.outlets.note()

    @property
    def due_ms(self) -> int | None:
        """When `retry` has something to do; None: never."""
        return min(self._waiting.values(), default=None)

    def again(self, slot: Slot, error: TopicsError | None) -> None:
        """What a source lacked has been read, or cannot be."""
        self.lacking.pop(slot, None)
        if slot.outlets is None:
            return
        if error is None:
            slot.outlets.note()
            return
        for router in slot.outlets.routers:
            if router.tip < slot.topic.head:
                router.blocked = error.code.value
        self._wait(slot)

    def _wait(self, slot: Slot) -> None:
        self._waiting.setdefault(slot, self._core.now() + RETRY_MS)

    def _is_full(self) -> bool:
        """Whether copies hold so much memory that a checkpoint has to seal them first."""
        cache = self._core.catalog.cache
        return cache.bytes_max > 0 and cache.derived_held > max(cache.bytes_max // DERIVED_SHARE, DERIVED_MIN)

    # -- one pass --------------------------------------------------------------------------------------------------

    def _pass(self, slot: Slot, wanted: int = 0) -> None:
        """Copy what is new in a source, as much as one pass takes, into the dest that is `wanted` before others."""
        core, topic = self._core, slot.topic
        assert slot.outlets is not None, "a source in line has routers"
        if slot in self.lacking or core.wal.shards[slot.shard].failed is not None:
            return
        behind = [router for router in slot.outlets.routers if router.active and router.tip < topic.head]
        if not behind:
            return
        now = core.now()
        behind.sort(key=_tip)
        if wanted:
            behind.sort(key=lambda router: router.dest != wanted)
        try:
            chosen = self._choose(slot, behind[: DESTS_HURRIED if wanted else DESTS_MAX], now)
        except NotCached as lack:
            self.lacking[slot] = lack.job
            return
        if chosen and not self._stage(slot, chosen, now):
            self._wait(slot)
        if any(router.active and router.blocked is None and router.tip < topic.head for router in slot.outlets.routers):
            slot.outlets.note()

    def _choose(self, slot: Slot, behind: list[Router], now: int) -> list[tuple[Stretch, Chosen]]:
        """What goes where: routers that stand at one place and copy the same share a stretch. Raises `NotCached`."""
        core, topic = self._core, slot.topic
        records_max = max(min(COPIES_MAX // len(behind), RECORDS_MAX), 1)
        chain = ancestors(topic.id, core.catalog.routers.source_of)
        taken: dict[tuple[int, Match | None, int, int], Stretch] = {}
        chosen: dict[tuple[int, int, int], tuple[Stretch, Chosen]] = {}
        for router in behind:
            dest = core.catalog.by_id[router.dest]
            spec = router.next_spec
            limit = hops_limit(chain, router.dest, spec.allow_cycle)
            # One that waits is tried with a single record, again and again; once that fits the next pass takes more.
            count = records_max if router.blocked is None else 1
            key = (router.tip, spec.filter, limit, count)
            stretch = taken.get(key)
            if stretch is None:
                stretch = taken[key] = take(
                    topic,
                    slot.hops,
                    router.tip,
                    now,
                    match=spec.filter,
                    hops_max=limit,
                    records_max=count,
                    bytes_max=BYTES_MAX // len(behind),
                    scan_max=SCAN_MAX // len(behind),
                )
            part, router.blocked = self._fit(dest, router, stretch, now)
            if router.blocked is not None:
                self._wait(slot)
            if part is None:
                continue
            group = chosen.setdefault((id(stretch), part.to, len(part.records)), (part, []))
            group[1].append((router, dest))
        return list(chosen.values())

    def _fit(self, dest: Slot, router: Router, stretch: Stretch, now: int) -> tuple[Stretch | None, str | None]:
        """The part of a stretch that the dest takes now, and why it is not all of it."""
        core, config, limits = self._core, dest.config, self._core.limits
        if core.wal.shards[dest.shard].failed is not None:
            return None, "read_only"
        count = len(stretch.records)
        if config.durability is not Durability.EPHEMERAL and dest.tip + count - dest.synced > SYNC_WINDOW:
            core.commit.books[dest.shard].wanted = True
            return None, "waits for the disk"
        rejects = config.discard is Discard.REJECT and bool(config.cap_records or config.cap_bytes)
        if not (rejects or limits.total_bytes):
            return stretch, None
        view = dest.topic.at(now)
        total = core.catalog.bytes_live + core.catalog.bytes_staged
        fits, why = _room(
            stretch.records,
            router,
            (config.cap_records - view.count - dest.staged_records if rejects and config.cap_records else None),
            (config.cap_bytes - view.bytes - dest.staged_bytes if rejects and config.cap_bytes else None),
            (limits.total_bytes - total if limits.total_bytes else None),
        )
        part = stretch.first(fits)
        return (part if fits or stretch.lost or part.to > router.tip else None), why

    # -- staging ---------------------------------------------------------------------------------------------------

    def _stage(self, slot: Slot, chosen: list[tuple[Stretch, Chosen]], now: int) -> bool:
        """Stage the Forward frame of a pass and its copies; False when the log has no room for it now."""
        core = self._core
        groups: list[Group] = []
        staged: list[tuple[Router, Slot, Copies, int]] = []
        firsts: dict[Slot, int] = {}
        floors: dict[Slot, int] = {}
        for stretch, routers in chosen:
            landings = []
            # Times never fall in a source either, so who stands below its first record raises none.
            begins_ts = stretch.records[0].ts if stretch.records else now
            parts: dict[tuple[bool, bool], list[Cut | Missing]] = {}
            made: dict[tuple[int, int, bool, bool], Copies] = {}
            for router, dest in routers:
                first = firsts.get(dest)
                if first is None:
                    first, floor = dest.tip + 1, _last_ts(dest)
                else:
                    floor = floors[dest]
                raised = floor if floor > begins_ts else 0
                kept = router.next_spec.preserve_node, router.next_spec.preserve_tag
                key = first, raised, *kept
                copied = made.get(key)
                if copied is None:
                    if kept not in parts:
                        parts[kept] = cut(stretch.found(), *kept)
                    copied = made[key] = copies(parts[kept], first, raised)
                landings.append(Landing(router.number, first, raised))
                staged.append((router, dest, copied, stretch.to))
                firsts[dest] = first + copied.seqs
                floors[dest] = copied.last_ts or floor
            groups.append(Group(stretch.to, stretch.lost, stretch.ranges(), landings))
        flags, count, tail = self._carried(slot, chosen)
        body = encode_forward_head(groups, now) + tail
        try:
            fits = core._room(slot.shard, len(body)) and all(
                core.ephemeral.reserve(dest, first - 1 - dest.tip)
                for dest, first in firsts.items()
                if dest.config.durability is Durability.EPHEMERAL
            )
            why = None if fits else "waits for the disk"
        except TopicsError as error:
            why = error.code.value
        if why is not None:
            for router, *_ in staged:
                router.blocked = why
            return False
        end = core.wal.stage(slot.shard, FrameType.FORWARD, flags, count, slot.topic.id, 0, now, body)
        for router, dest, copied, to in staged:
            self._land(slot, StagedForward(dest, router, slot.shard, copied, to, now, self._applied), end, to, now)
        return True

    def _carried(self, slot: Slot, chosen: list[tuple[Stretch, Chosen]]) -> tuple[int, int, bytes]:
        """Flags, count and bytes of the records that the frame has to hold; none when positions will do."""
        logged = [
            stretch
            for stretch, routers in chosen
            if any(dest.config.durability is not Durability.EPHEMERAL for _, dest in routers)
        ]
        if not logged or not any(stretch.records for stretch in logged):
            return 0, 0, b""
        by_position = all(stretch.by_position for stretch in logged)
        if by_position and not self.forwards.carries(slot) and _is_harmless(slot):
            return 0, 0, b""
        records: dict[int, Record] = {record.seq: record for stretch in logged for record in stretch.records}
        flags, body = encode_append_body(None, b"", carry([records[seq] for seq in sorted(records)]))
        return flags, len(records), body

    def _land(self, slot: Slot, change: StagedForward, end: int, to: int, now: int) -> None:
        """Queue copies in their dest."""
        core, dest, count = self._core, change.slot, change.copies.seqs
        self.forwards.outstanding += 1
        if dest.config.durability is Durability.EPHEMERAL:
            reserved = core.ephemeral.stage(dest, change, count)
            assert reserved, "its seqs were reserved before"
        elif dest.shard == slot.shard:
            if dest.quiet:
                dest.quiet = False
                dest.wake_lsn = end
            dest.logged = dest.tip + count
            core.commit.add(change, end, sync=dest.config.durability is Durability.FSYNC)
        else:
            change.sync_lsn = NEVER
            dest.logged = dest.tip + count
            dest.queue(change)
            synced: Ticket[bool] = Ticket()
            synced.on_done = lambda ticket: None if ticket.error is not None else core.commit.land(change)
            core.commit.wait_durable(slot, end, synced, True)
        change.router.tip = to
        size = change.copies.size
        dest.tip += count
        dest.staged_records += change.copies.records
        dest.staged_bytes += size
        core.catalog.bytes_staged += size
        dest.last_write_ms = now

    def _applied(self) -> None:
        self.forwards.outstanding -= 1


def _tip(router: Router) -> int:
    return router.tip


def _is_harmless(slot: Slot) -> bool:
    """Whether nothing that is pending in a source takes records away before the frame that is staged next."""
    config = slot.config
    caps = bool(config.cap_records or config.cap_bytes)
    for change in slot.pending or ():
        if isinstance(change, StagedAppend | StagedForward | StagedCopies):
            if caps or (isinstance(change, StagedForward) and change.copies.loses):
                return False
        elif not isinstance(change, CREATES_NOTHING):
            return False
    return True


def _last_ts(dest: Slot) -> int:
    """The last `$ts` of a topic, with what is staged."""
    for change in reversed(dest.pending or ()):
        if isinstance(change, StagedAppend | StagedCopies):
            return change.ts
        if isinstance(change, StagedForward) and change.copies.last_ts:
            return change.copies.last_ts
    return dest.topic.last_write_ts or 0


def _room(
    records: list[Record], router: Router, by_count: int | None, by_bytes: int | None, in_all: int | None
) -> tuple[int, str | None]:
    """How many of the records fit, and why not the next one."""
    spec = router.next_spec
    size = 0
    for index, record in enumerate(records):
        size += record.size(spec.preserve_node, spec.preserve_tag)
        if by_count is not None and index >= by_count:
            return index, "topic_full"
        if by_bytes is not None and size > by_bytes:
            return index, "topic_full"
        if in_all is not None and size > in_all:
            return index, "max_total_bytes"
    return len(records), None
