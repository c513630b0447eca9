"""From the log back to state: frames in order, through the same `apply` functions that made it the first time.

`run` applies what recovery found to be true. What recovery knows beyond the log are losses: after a power failure a
disk or memory topic that was not quiet goes on behind a `crash` gap, because seqs that were acked and lost must never
mean another record; and the seqs that an ephemeral topic had logged ahead are a gap, because its records are gone.
`finish` makes frames of them, synced before the store answers anything; `conclude` only shows them, to who looks at a
store without starting it (engine.core.inspection).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from engine.core.beginning import Beginning
from engine.core.catalog import Catalog
from engine.core.commit import Commit
from engine.core.cursors import put_cursor
from engine.core.handover import attached
from engine.core.host import acked, dead_letter_parts, dead_lettered
from engine.core.rerouting import Rerouting
from engine.core.salvage import Salvage, few_of
from engine.core.slot import Slot
from engine.core.staged import StagedGap, note_move
from engine.errors import StoreDamaged
from engine.formats.append import BadBody, append_part, decode_append_body
from engine.formats.attach import decode_attach_body
from engine.formats.control import (
    ConfigBody,
    ControlBody,
    CreateBody,
    CursorPutBody,
    DeleteBody,
    GapBody,
    MarkBody,
    ReserveBody,
    decode_control_body,
    encode_control_body,
)
from engine.formats.frame import FrameType, frame_len
from engine.formats.moving import MoveBody
from engine.fragment import Rendered
from engine.limits import SYNC_WINDOW, EngineSettings
from engine.ranges import ranges_of
from engine.store.recovery import CorruptionGap, Frame, Hole, Item, OpenedStore
from engine.store.walk import NEXT_STEP, NO_SETTING
from engine.topic.block import counted_at_most
from engine.topic.cache import Cache
from engine.topic.place import Place
from engine.types import Durability, Reason

B = TypeVar("B", bound=ControlBody)


class Replay:
    """One replay of one opened store."""

    def __init__(self, opened: OpenedStore, settings: EngineSettings) -> None:
        self.opened = opened
        self.settings = settings
        self.catalog = Catalog(settings.wal_shards, Cache(settings.cache_bytes, self._load))
        self.catalog.cache.history.attach(opened.fs, opened.segment_files, settings.segment_handles)
        self.last_ts = 0
        self.attached_files: set[str] = set()
        """Files that the log names: those of topics that came from another store since the snapshot."""
        self._beginning = Beginning()
        self._salvage = Salvage(self.catalog, opened.report)
        self._rerouting = Rerouting(self.catalog, opened.fs, self._reason_of)
        self._handlers: Final[dict[int, Callable[[Frame], None]]] = {
            FrameType.APPEND: self._append,
            FrameType.CREATE: self._create,
            FrameType.CONFIG: self._config,
            FrameType.DROP: self._drop,
            FrameType.DELETE: self._delete,
            FrameType.GAP: self._gap,
            FrameType.MARK: self._mark,
            FrameType.RESERVE: self._reserve,
            FrameType.LEASE: self._lease,
            FrameType.DEAD_LETTER: self._dead_letter,
            FrameType.CURSOR_PUT: self._cursor_put,
            FrameType.MOVE: self._move,
            FrameType.ATTACH: self._attach,
            FrameType.ROUTER_PUT: lambda frame: self._rerouting.put(self._slot(frame), frame),
            FrameType.ROUTER_DROP: self._rerouting.drop,
            FrameType.FORWARD: self._rerouting.forward,
        }

    def run(self, progress: Callable[[float], None] | None) -> None:
        """Apply every frame; `progress` hears 0 … 1."""
        cache, beginning = self.catalog.cache, self._beginning
        if (begin := self.opened.take_images()) is not None:
            beginning.restore(self.catalog, begin)
            self.last_ts = beginning.last_ts
            del begin
        for item in self.opened.frames(progress):
            if item.topic_id and beginning.covers(item):
                self._passed_over(item)
            elif isinstance(item, Frame) and item.topic_id and self._is_orphan(item):
                self._copies(item)
            elif isinstance(item, Frame):
                self.last_ts = max(self.last_ts, item.ts)
                try:
                    self._handlers[item.type](item)
                except BadBody as error:
                    raise StoreDamaged(
                        f"the frame at lsn {item.lsn} of shard {item.shard} checks but makes no sense ({error}): "
                        f"a bug, or a newer version wrote it. {NO_SETTING}"
                    ) from error
                if cache.over:
                    cache.shrink()
            elif isinstance(item, Hole):
                self._salvage.hole(item, beginning.has_told, partial(self._lives_on, item.shard), self._forget)
            else:
                self._damaged(item)

    def _reason_of(self, topic_id: int, shard: int) -> Reason:
        """What the salvage says, which a recovery puts its own in the place of."""
        return self._salvage.reason_of(topic_id, shard)

    def _lives_on(self, shard: int, slot: Slot) -> bool:
        """Whether frames of a topic may be in a shard's log."""
        return slot.shard == shard or self.opened.resharded

    def finish(self, commit: Commit, now_ms: int, make_room: Callable[[int, int], None]) -> None:
        """Make the slots ready for decisions, and stage the gaps that only recovery knows of.

        `make_room(shard, body_len)` returns when the log has room, or raises.
        """
        catalog, behind = self.catalog, list[str]()
        for slot in list(catalog.by_id.values()):
            topic = slot.topic
            slot.last_write_ms = self.last_ts
            first, last, reason = self._lost(slot)
            slot.tip = slot.synced = slot.logged = last
            slot.reserved = 0
            if last >= first:
                body = encode_control_body(GapBody(first=first, last=last, reason=reason))
                make_room(slot.shard, len(body))
                end = commit.wal.stage(slot.shard, FrameType.GAP, 0, 0, topic.id, 0, now_ms, body)
                commit.add(StagedGap(slot, first, last, reason), end, sync=True)
                behind += [slot.name] if reason is Reason.CRASH else []
            elif not slot.quiet:
                commit.books[slot.shard].unmarked[slot] = None
            if slot.host is not None:
                slot.host.restarted(now_ms, slot.config)
            catalog.records_live += topic.count
            catalog.bytes_live += topic.bytes
        catalog.census.recount(catalog.visible.values())
        if behind:
            go = f"{len(behind)} topics go" if len(behind) > 1 else "1 topic goes"
            lost = "where what was not on the disk is lost"
            self.opened.report.append(f"{go} on behind a gap (crash), {lost}: {few_of(behind)}")

    def conclude(self, now_ms: int) -> None:
        """Show what `finish` would, and write nothing: for readers of a store that is not started."""
        for slot in self.catalog.by_id.values():
            first, last, reason = self._lost(slot)
            if last >= first:
                slot.topic.apply_gap(first, last, reason, now_ms)
            if slot.host is not None:
                slot.host.restarted(now_ms, slot.config)

    def _lost(self, slot: Slot) -> tuple[int, int, Reason]:
        """The first and the last seq behind a topic's head that nobody will ever read, and why; the last is less if
        none is."""
        head = slot.topic.head
        last = max(head, slot.reserved)
        if slot.moved is not None:
            return head + 1, head, Reason.CRASH  # all of it was on disk before it was offered
        if slot.topic.id in self._salvage.doubtful:
            return head + 1, last + SYNC_WINDOW, Reason.CORRUPTION
        if self.opened.power_loss and not slot.quiet and slot.config.durability in _GAPPED:
            last += SYNC_WINDOW
        return head + 1, last, Reason.CRASH

    def _load(self, shard: int, lsn: int) -> Rendered:
        """A batch whose payload left memory, from the log."""
        header, body = self.opened.read_body(shard, lsn)
        return decode_append_body(header.flags, header.records, append_part(header.type, body)).rendered

    # -- one handler a frame type ----------------------------------------------------------------------------------

    def _slot(self, frame: Frame) -> Slot:
        slot = self.catalog.by_id.get(frame.topic_id)
        if slot is None:
            raise StoreDamaged(
                f"the log speaks of topic {frame.topic_id:x} at lsn {frame.lsn}, but nothing before says what it is. "
                f"{NEXT_STEP}"
            )
        return slot

    def _is_orphan(self, frame: Frame) -> bool:
        """Whether a frame is of a topic whose Create is lost in a hole, and there is nothing of it to keep."""
        if (
            not self._salvage.lacks
            or frame.type in (FrameType.CREATE, FrameType.ATTACH)
            or frame.topic_id in self.catalog.by_id
        ):
            return False
        return self._salvage.orphan(frame) is None

    def _append(self, frame: Frame) -> None:
        slot = self._slot(frame)
        topic = slot.topic
        if frame.first_seq <= topic.head:
            raise StoreDamaged(f"topic {topic.name!r} has seq {frame.first_seq} twice (lsn {frame.lsn}). {NEXT_STEP}")
        reason = self._salvage.reason_of(frame.topic_id, frame.shard)
        if frame.first_seq > topic.head + 1:
            topic.apply_gap(topic.head + 1, frame.first_seq - 1, reason, frame.ts)
        append = decode_append_body(frame.flags, frame.count, frame.body)
        topic.apply_append(
            frame.first_seq,
            append.rendered,
            frame.ts,
            (frame.shard, frame.lsn),
            None if append.key is None else (append.key, append.digest),
        )
        if slot.host is not None:
            slot.host.appended(frame.count)
        slot.quiet = False
        slot.reserved = 0

    def _passed_over(self, item: Item) -> None:
        """A frame that changes no topic may still say that a name must not be made again."""
        dropped = self._beginning.dropped(item.topic_id)
        if dropped is not None and isinstance(item, Frame) and item.type == FrameType.DROP:
            if dropped.closed:
                self.catalog.closed_names.add(dropped.name)
            else:
                self.catalog.closed_names.discard(dropped.name)
        if isinstance(item, Frame):
            self._copies(item)

    def _create(self, frame: Frame) -> None:
        create = _body(frame, CreateBody)
        older = self.catalog.tip.get(create.name)
        if older is not None and self._beginning.pass_over(frame.topic_id, create.name, older):
            return
        if older is not None:
            # Its Drop lived in another shard and was lost with the tail there; a later Create proves it was meant.
            self._forget(older)
        slot = self.catalog.add_tip(create.name, frame.topic_id, create.epoch, create.config)
        self.catalog.show(slot)

    def _attach(self, frame: Frame) -> None:
        """A topic that came from another store; of its files those that are gone are a loss like any other."""
        body = decode_attach_body(frame.body)
        image, catalog = body.image, self.catalog
        catalog.attached.add(body.token)
        older = catalog.tip.get(image.name)
        if older is not None and self._beginning.pass_over(frame.topic_id, image.name, older):
            return
        if older is not None:
            self._forget(older)
        slot, files = attached(catalog, body, self.opened.fs)
        self.attached_files |= files
        catalog.show(slot)

    def _move(self, frame: Frame) -> None:
        note_move(self._slot(frame), _body(frame, MoveBody))

    def _config(self, frame: Frame) -> None:
        slot = self._slot(frame)
        slot.config = self.catalog.shared(_body(frame, ConfigBody).config)
        slot.topic.apply_config(slot.config, frame.ts)
        if slot.host is not None:
            slot.host.settle()
        self.catalog.tend(slot)

    def _drop(self, frame: Frame) -> None:
        self._forget(self._slot(frame))

    def _forget(self, slot: Slot) -> None:
        self._rerouting.leave(slot)
        self.catalog.drop_tip(slot)
        self.catalog.hide(slot)
        slot.topic.release()

    def _delete(self, frame: Frame) -> None:
        slot = self._slot(frame)
        body = _body(frame, DeleteBody)
        host = slot.host
        if host is None:
            slot.topic.apply_delete(body.ranges, frame.ts)
        elif body.acked or body.moved:
            seqs = [seq for first, last in body.ranges for seq in range(first, last + 1)]
            host.take(acked(frame.ts, seqs) if body.acked else dead_lettered(frame.ts, seqs), body.ranges)
        else:
            host.delete(body.ranges, frame.ts)

    def _lease(self, frame: Frame) -> None:
        slot = self._slot(frame)
        if slot.host is not None:
            slot.host.happened(frame.body, frame.ts)
        elif not self._salvage.was_queue(slot):
            raise BadBody("a lease of a topic that is no queue")

    def _dead_letter(self, frame: Frame) -> None:
        """Jobs go from a queue to its dead letters, which live on any shard."""
        head, _ = dead_letter_parts(frame.body)
        slot = self._slot(frame)
        if slot.host is not None:
            slot.host.take(dead_lettered(frame.ts, head.seqs), ranges_of(head.seqs))
        elif self._salvage.was_queue(slot):
            slot.topic.apply_delete(ranges_of(head.seqs), frame.ts)
        else:
            raise BadBody("dead letters of a topic that is no queue")
        self._copies(frame)

    def _copies(self, frame: Frame) -> None:
        """The other topics' half of a frame. Seqs tell whether their images have it; the position is the source's."""
        if frame.type == FrameType.FORWARD:
            self._rerouting.forward(frame)
        if frame.type != FrameType.DEAD_LETTER:
            return
        head, body = dead_letter_parts(frame.body)
        slot = self.catalog.by_id.get(head.target) or self._salvage.nobodys(head.target)
        if slot is None or head.first_seq <= slot.topic.head:
            return
        topic = slot.topic
        if head.first_seq > topic.head + 1:
            topic.apply_gap(
                topic.head + 1, head.first_seq - 1, self._salvage.reason_of(topic.id, frame.shard), frame.ts
            )
        rendered = decode_append_body(frame.flags, frame.count, body).rendered
        topic.apply_append(head.first_seq, rendered, frame.ts, (frame.shard, frame.lsn))
        if slot.host is not None:
            slot.host.appended(frame.count)
        if topic.head >= slot.reserved:
            slot.reserved = 0

    def _gap(self, frame: Frame) -> None:
        slot = self._slot(frame)
        gap = _body(frame, GapBody)
        if gap.last > slot.topic.head:
            self._salvage.reason_of(frame.topic_id, frame.shard)
        if slot.host is not None:
            slot.host.age(frame.ts)
        slot.topic.apply_gap(gap.first, gap.last, gap.reason, frame.ts)
        if slot.host is not None:
            slot.host.lost(gap.first, gap.last)
        slot.quiet = False
        if gap.last >= slot.reserved:
            slot.reserved = 0

    def _mark(self, frame: Frame) -> None:
        mark = _body(frame, MarkBody)
        if self._salvage.doubtful:
            for topic_id, head in mark.heads:
                slot = self.catalog.by_id.get(topic_id)
                if slot is not None and head >= slot.topic.head:
                    reason = self._salvage.reason_of(topic_id, frame.shard)
                    if head > slot.topic.head:
                        slot.topic.apply_gap(slot.topic.head + 1, head, reason, frame.ts)
        for topic_id in mark.quiet:
            slot = self.catalog.by_id.get(topic_id)
            if slot is not None and not self._beginning.has_told(topic_id, frame.shard, frame.lsn):
                slot.quiet = True

    def _reserve(self, frame: Frame) -> None:
        slot = self._slot(frame)
        slot.reserved = _body(frame, ReserveBody).upto
        slot.quiet = False

    def _cursor_put(self, frame: Frame) -> None:
        put = _body(frame, CursorPutBody)
        put_cursor(self._slot(frame), put.name, None if put.seq is None else Place(put.seq, frame.ts))

    def _damaged(self, damage: CorruptionGap) -> None:
        """A write whose header is good and whose records are gone: what it evicted stays evicted."""
        slot = self.catalog.by_id.get(damage.topic_id)
        if slot is not None:
            count = damage.last_seq - damage.first_seq + 1
            body_len_max = damage.end - damage.lsn - frame_len(0)
            counted = counted_at_most(body_len_max, count, damage.first_seq, damage.ts)
            slot.topic.apply_gap(damage.first_seq, damage.last_seq, Reason.CORRUPTION, damage.ts, counted=counted)
            slot.quiet = False


def _body(frame: Frame, kind: type[B]) -> B:
    """The body of a control frame, as the kind that its type promises."""
    body = decode_control_body(frame.type, frame.body)
    assert isinstance(body, kind), "the decoder of a frame type gives that type's body"
    return body


_GAPPED: Final = (Durability.DISK, Durability.MEMORY)
