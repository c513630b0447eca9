"""What one topic must look like, by the plainest means: a dictionary of records and a list of losses.

Written from http-api.md and storage.md, and sharing nothing with the engine but its vocabulary. `Model` is the state
after a sequence of operations; `apply` makes the next one. `check_page` says whether a page is what a reader at a
cursor has to get. Time is given with each operation; expiry is looked at when a view is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from engine.commands import DeleteSelector
from engine.types import ConfigChanges, Discard, Durability, TopicConfig, configured

Lost: TypeAlias = tuple[int, int, str]
"""A range of lost seqs and why."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a client wrote."""

    data: bytes
    node: str | None = None
    tag: str | None = None
    meta: bytes | None = None

    @property
    def size(self) -> int:
        """The bytes that it counts for: node and tag as they are rendered, without their quotes."""
        texts = [len(msgspec.json.encode(text)) - 2 for text in (self.node, self.tag) if text is not None]
        return len(self.data) + len(self.meta or b"") + sum(texts)


@dataclass(frozen=True, slots=True)
class Create:
    changes: ConfigChanges


@dataclass(frozen=True, slots=True)
class Configure:
    changes: ConfigChanges


@dataclass(frozen=True, slots=True)
class Drop:
    pass


@dataclass(frozen=True, slots=True)
class Append:
    records: tuple[Record, ...]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    seqs: tuple[int, ...]
    """What the selector meant when it was called (`selected`)."""


Op: TypeAlias = Create | Configure | Drop | Append | Delete


@dataclass(slots=True)
class Model:
    """One topic."""

    name: str
    config: TopicConfig
    head: int = 0
    live: dict[int, Record] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    volatile: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of seqs that were written in an ephemeral class, which no crash spares."""
    incarnation: int = 0

    def copy(self) -> Model:
        return replace(
            self,
            live=dict(self.live),
            times=dict(self.times),
            lost=list(self.lost),
            keys=dict(self.keys),
            volatile=list(self.volatile),
        )

    @property
    def bytes(self) -> int:
        return sum(record.size for record in self.live.values())

    def expire(self, now: int) -> None:
        """Records older than the topic's age are lost."""
        if self.config.ttl_ms:
            for seq in [seq for seq in self.live if now - self.times[seq] > self.config.ttl_ms]:
                self._lose(seq, "ttl")

    def _lose(self, seq: int, reason: str) -> None:
        del self.live[seq]
        self.lost.append((seq, seq, reason))

    def evict(self) -> None:
        """The oldest records go until both caps hold."""
        config, size = self.config, self.bytes
        for seq in list(self.live):
            over = (config.cap_records and len(self.live) > config.cap_records) or (
                config.cap_bytes and size > config.cap_bytes
            )
            if not over:
                return
            size -= self.live[seq].size
            self._lose(seq, "cap")

    def crash_gap(self, upto: int) -> None:
        """Seqs up to `upto` may have been given to records that a power failure took."""
        if upto > self.head:
            self.lost.append((self.head + 1, upto, "crash"))
            self.head = upto

    def lose_volatile(self, upto: int) -> None:
        """Everything ephemeral is gone, and seqs behind the head up to `upto` with it."""
        ranges = [*self.volatile, *([(self.head + 1, upto)] if upto > self.head else [])]
        for first, last in ranges:
            for seq in [seq for seq in self.live if first <= seq <= last]:
                del self.live[seq]
            kept = [(low, min(high, first - 1), why) for low, high, why in self.lost if low < first]
            kept += [(max(low, last + 1), high, why) for low, high, why in self.lost if high > last]
            self.lost = [*kept, (first, last, "crash")]
        self.head = max(self.head, upto)
        self.volatile = []


def apply(name: str, model: Model | None, op: Op, now: int, incarnation: int) -> Model | None:
    """The topic after an operation that was taken."""
    if isinstance(op, Create):
        return Model(name, configured(name, None, op.changes), incarnation=incarnation)
    if isinstance(op, Drop):
        return None
    assert model is not None, f"{op} without a topic"
    model = model.copy()
    model.expire(now)
    if isinstance(op, Configure):
        model.config = configured(name, model.config, op.changes)
        model.expire(now)
        model.evict()
    elif isinstance(op, Append):
        _append(model, op, now)
    else:
        for seq in op.seqs:
            model.live.pop(seq, None)
    return model


def _append(model: Model, op: Append, now: int) -> None:
    if op.key is not None and op.key in model.keys:
        return
    first = model.head + 1
    for seq, record in enumerate(op.records, first):
        model.live[seq] = record
        model.times[seq] = now
    model.head += len(op.records)
    if op.key is not None:
        model.keys[op.key] = (first, model.head)
    if model.config.durability is Durability.EPHEMERAL:
        model.volatile.append((first, model.head))
    if model.config.discard is Discard.OLD:
        model.evict()


def selected(model: Model, selector: DeleteSelector) -> list[int]:
    """The live seqs that a delete means."""
    found = []
    for seq, record in model.live.items():
        if selector.before_seq is not None and seq >= selector.before_seq:
            continue
        if selector.seqs is not None and seq not in selector.seqs:
            continue
        if selector.match is not None and not selector.match.accepts(record.tag):
            continue
        found.append(seq)
    return found


class Fragment(msgspec.Struct):
    """A record as readers get it."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    node: str | None = msgspec.field(name="$node", default=None)
    meta: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    tag: str | None = msgspec.field(name="$tag", default=None)

    def record(self) -> Record:
        """What it says was written."""
        return Record(bytes(self.data), self.node, self.tag, bytes(self.meta) or None)


@dataclass(frozen=True, slots=True)
class SeenPage:
    """One page that a reader got."""

    cursor: int
    limit: int
    tombstone: tuple[int, int, str, int, int, int] | None
    """gap_from, gap_to, reason, missed_estimate, earliest_seq, head_seq."""
    seqs: tuple[int, ...]
    next: int
    head: int
    earliest: int
    foreign_epoch: bool = False


def check_page(model: Model, page: SeenPage) -> str | None:
    """What is wrong with a page, or None."""
    where = f"{model.name}: page from {page.cursor} limit {page.limit}"
    earliest = next(iter(model.live), model.head + 1)
    if (page.head, page.earliest) != (model.head, earliest):
        return f"{where}: head and earliest {(page.head, page.earliest)}, not {(model.head, earliest)}"
    cursor, start = page.cursor, page.cursor
    if cursor > model.head or page.foreign_epoch:
        told = None if page.tombstone is None else page.tombstone[:3]
        if told != (1, model.head, "recreated"):
            return f"{where}: a foreign cursor got {told}"
        start = earliest - 1
    else:
        wrong = _check_loss(model, page, where)
        if wrong is not None:
            return wrong
        if page.tombstone is not None:
            start = page.tombstone[1]
    wall = min((low for low, _, _ in model.lost if low > start), default=model.head + 1)
    wanted = [seq for seq in model.live if start < seq < wall][: page.limit]
    if list(page.seqs) != wanted:
        return f"{where}: seqs {_short(page.seqs)}, not {_short(wanted)} (start {start}, next loss {wall})"
    unread = next((seq for seq in model.live if seq > (wanted[-1] if wanted else start)), model.head + 1)
    if not (wanted[-1] if wanted else start) <= page.next < min(unread, wall):
        return f"{where}: next_from_seq {page.next} after {_short(page.seqs)} (next live {unread}, next loss {wall})"
    if page.next == cursor and cursor < model.head:
        return f"{where}: no progress"
    return None


def _check_loss(model: Model, page: SeenPage, where: str) -> str | None:
    """The tombstone: there iff something between the cursor and the first readable record was lost."""
    cursor = page.cursor
    readable = next((seq for seq in model.live if seq > cursor), model.head + 1)
    missed = [(max(low, cursor + 1), high, why) for low, high, why in model.lost if high > cursor and low < readable]
    if not missed:
        return None if page.tombstone is None else f"{where}: tombstone {page.tombstone} without a loss"
    if page.tombstone is None:
        return f"{where}: passes the loss {missed[:3]} without a tombstone"
    gap_from, gap_to, reason, estimate, earliest, head = page.tombstone
    if (gap_from, gap_to) != (cursor + 1, readable - 1):
        return f"{where}: tombstone {gap_from}…{gap_to}, not {cursor + 1}…{readable - 1}"
    reasons = {why for _, _, why in missed}
    if reason not in reasons and not (reason == "mixed" and len(reasons) > 1):
        return f"{where}: reason {reason}, not {sorted(reasons)}"
    if not 1 <= estimate <= gap_to - gap_from + 1 or (earliest, head) != (page.earliest, page.head):
        return f"{where}: tombstone {page.tombstone}"
    return None


def _short(seqs: tuple[int, ...] | list[int]) -> str:
    return str(list(seqs)) if len(seqs) < 12 else f"[{seqs[0]} … {seqs[-1]}] ({len(seqs)})"
