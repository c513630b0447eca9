"""A topic as a dict of slots, with nothing clever in it: what the real one is compared with.

Every seq that was ever given out has a slot for ever, and every question is answered by looking at all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.commands import Batch
from engine.topic.floor import WHY
from engine.types import Discard, Match, Page, PageRequest, Reason, Tombstone, TopicConfig, WhyGone

LIVE, DELETED = "live", "deleted"


@dataclass
class Slot:
    """One seq: what was written (None in a gap that was never written), and what became of it."""

    seq: int
    ts: int | None
    data: bytes = b""
    node: bytes | None = None
    meta: bytes | None = None
    tag: bytes | None = None
    fate: str | Reason = LIVE
    node_text: str | None = None
    tag_text: str | None = None

    @property
    def lost(self) -> bool:
        return isinstance(self.fate, Reason)

    def size(self) -> int:
        quotes = (len(self.node) - 2 if self.node else 0) + (len(self.tag) - 2 if self.tag else 0)
        return len(self.data) + len(self.meta or b"") + quotes

    def rendered(self, request: PageRequest) -> bytes:
        members = [b'"$seq":%d' % self.seq, b'"$ts":%d' % (self.ts or 0)]
        if self.node is not None:
            members.append(b'"$node":' + self.node)
        if request.include_data:
            members.append(b'"data":' + self.data)
        if self.meta is not None and request.include_meta:
            members.append(b'"meta":' + self.meta)
        if self.tag is not None and request.include_tags:
            members.append(b'"$tag":' + self.tag)
        return b"{" + b",".join(members) + b"}"


def quoted(text: str) -> bytes:
    """A JSON string, by rules of its own: escapes for what must have them, UTF-8 for the rest."""
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    out = "".join(short.get(char) or (f"\\u{ord(char):04x}" if char < " " else char) for char in text)
    return f'"{out}"'.encode()


class Model:
    """The slots of one topic."""

    def __init__(self, config: TopicConfig, epoch: int = 1) -> None:
        self.config = config
        self.epoch = epoch
        self.slots: dict[int, Slot] = {}

    @property
    def head(self) -> int:
        return len(self.slots)

    def live(self) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.fate == LIVE]

    @property
    def earliest(self) -> int:
        return min((slot.seq for slot in self.live()), default=self.head + 1)

    @property
    def floor(self) -> int:
        """One above the last loss in front of the first live record."""
        earliest = self.earliest
        return max((slot.seq for slot in self.slots.values() if slot.lost and slot.seq < earliest), default=0) + 1

    def times_forgotten(self) -> bool:
        """Whether the time of a loss is a matter of what still lies around: a gap among deleted or written records."""
        slots = self.slots.values()
        if any(slot.ts is not None and slot.fate in (Reason.CRASH, Reason.CORRUPTION) for slot in slots):
            return True
        return any(slot.ts is None for slot in slots) and any(slot.fate == DELETED for slot in slots)

    def at(self, now: int) -> Model:
        """The same topic with everything lost that is too old at `now`."""
        copy = Model(self.config, self.epoch)
        copy.slots = {seq: replace(slot) for seq, slot in self.slots.items()}
        copy.expire(now)
        return copy

    # -- changes ---------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, ts: int) -> None:
        self.expire(ts)
        for index, data in enumerate(batch.datas):
            node = batch.nodes[index] if batch.nodes else None
            tag = batch.tags[index] if batch.tags else None
            slot = Slot(
                self.head + 1,
                ts,
                data,
                None if node is None else quoted(node),
                batch.metas[index] if batch.metas else None,
                None if tag is None else quoted(tag),
                node_text=node,
                tag_text=tag,
            )
            self.slots[slot.seq] = slot
        self.evict()

    def delete(self, seqs: list[int], ts: int) -> int:
        self.expire(ts)
        hit = [self.slots[seq] for seq in seqs if seq in self.slots and self.slots[seq].fate == LIVE]
        for slot in hit:
            slot.fate = DELETED
        return len(hit)

    def gap(self, first: int, last: int, reason: Reason, ts: int) -> None:
        self.expire(ts)
        for seq in range(max(first, self.earliest), last + 1):
            slot = self.slots.setdefault(seq, Slot(seq, None))
            if not slot.lost:
                slot.fate = reason

    def configure(self, config: TopicConfig, ts: int) -> None:
        self.expire(ts)
        self.config = config
        self.expire(ts)
        self.evict()

    def expire(self, now: int) -> None:
        if self.config.ttl_ms:
            for slot in self.live():
                if slot.ts is not None and now - slot.ts > self.config.ttl_ms:
                    slot.fate = Reason.TTL

    def evict(self) -> None:
        if self.config.discard is Discard.REJECT:
            return
        live = self.live()
        size = sum(slot.size() for slot in live)
        caps = self.config
        while live and (0 < caps.cap_records < len(live) or 0 < caps.cap_bytes < size):
            oldest = live.pop(0)
            size -= oldest.size()
            oldest.fate = Reason.CAP

    # -- questions -------------------------------------------------------------------------------------------------

    def record(self, seq: int, now: int) -> bytes | WhyGone:
        """What `find_record` gives."""
        if seq not in self.slots:
            return WhyGone.NEVER_WRITTEN
        then = self.at(now)
        slot = then.slots[seq]
        if slot.fate == LIVE:
            return slot.rendered(PageRequest(include_tags=True))
        if seq < self.floor:
            above = [other.fate for other in self.slots.values() if other.lost and other.seq >= seq]
            assert isinstance(above[0], Reason)
            return WHY[above[0]]
        if slot.fate == DELETED:
            return WhyGone.DELETED
        assert isinstance(slot.fate, Reason)
        return WHY[slot.fate]

    def matching(self, before: int | None, match: Match | None, seqs: tuple[int, ...] | None, now: int) -> list[int]:
        """The live seqs that a delete means."""
        return [
            slot.seq
            for slot in self.at(now).live()
            if (before is None or slot.seq < before)
            and (match is None or match.accepts(slot.tag_text))
            and (seqs is None or slot.seq in seqs)
        ]

    def page(self, request: PageRequest, now: int, visible: int | None) -> dict[str, Any]:
        """What `read_page` gives."""
        then = self.at(now)
        head = self.head if visible is None else min(self.head, visible)
        cursor = request.from_seq
        tombstone = None
        if cursor > self.head or request.epoch not in (None, self.epoch):
            tombstone = Tombstone(
                gap_from=1,
                gap_to=head,
                reason=Reason.RECREATED,
                missed_estimate=head,
                earliest_seq=then.earliest,
                head_seq=head,
            )
            cursor = min(then.earliest - 1, head)
        head = max(head, cursor)
        if request.from_ts is not None:
            older = [s.seq for s in self.slots.values() if s.ts is not None and s.ts < request.from_ts]
            cursor = min(max([cursor, *older]), head)
        stop = head if request.to_seq is None else min(head, request.to_seq)
        if tombstone is None and cursor < stop:
            tombstone = then.loss(cursor, stop, head)
            if tombstone is not None:
                cursor = tombstone.gap_to
                head = max(head, cursor)
        stop = min([stop, *(s.seq - 1 for s in then.slots.values() if s.lost and s.seq > max(cursor, then.earliest))])
        records: list[bytes] = []
        scanned = used = 0
        reached = cursor
        full = False
        for slot in then.live():
            if not cursor < slot.seq <= stop:
                continue
            full = len(records) == request.limit or scanned == 100 * request.limit
            if full:
                break
            echo = self.config.dedupe_node and slot.node_text in request.nodes
            if (request.match is None or request.match.accepts(slot.tag_text)) and not echo:
                text = slot.rendered(request)
                if records and used + len(text) + 1 > request.max_bytes:
                    full, reached = True, slot.seq - 1
                    break
                used += len(text) + 1
                records.append(text)
            scanned += 1
            reached = slot.seq
        # Deleted seqs after the last record of a full page wait for the next one.
        if not full and len(records) < request.limit and scanned < 100 * request.limit:
            reached = max(stop, cursor)
        return {
            "records": records,
            "next_from_seq": reached,
            "head_seq": head,
            "earliest_seq": then.earliest,
            "tombstone": tombstone,
        }

    def loss(self, cursor: int, stop: int, head: int) -> Tombstone | None:
        """The tombstone between a cursor and the first live record after it."""
        first_live = min((slot.seq for slot in self.live() if slot.seq > cursor), default=self.head + 1)
        between = [self.slots[seq] for seq in range(cursor + 1, first_live)]
        reasons = {slot.fate for slot in between if isinstance(slot.fate, Reason)}
        lost = [slot.seq for slot in between if slot.lost]
        if not lost or (lost[0] > stop and lost[0] >= self.floor):
            return None
        return Tombstone(
            gap_from=cursor + 1,
            gap_to=first_live - 1,
            reason=Reason.MIXED if len(reasons) > 1 else reasons.pop(),
            missed_estimate=first_live - 1 - cursor,
            earliest_seq=self.earliest,
            head_seq=max(head, first_live - 1),
        )


def page_of(page: Page) -> dict[str, Any]:
    """A real page in the form of `Model.page`; the records still joined."""
    return {
        "records": b"".join(page.pieces),
        "next_from_seq": page.next_from_seq,
        "head_seq": page.head_seq,
        "earliest_seq": page.earliest_seq,
        "tombstone": page.tombstone,
    }
