"""Records of a running daemon, page by page over HTTP, as the same Arrow batches that a pin gives.

For executors that cannot see the daemon's files, and for what is newer than any checkpoint. Data stays the bytes that
were written: msgspec hands out the raw JSON of a member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from engine.export.columns import SCHEMA, SEQ_MAX
from topics_lake.client import Daemon, Refusal
from topics_lake.errors import LakeError
from topics_lake.surrogates import hidden, shown

PAGE_RECORDS: Final = 1000
PAGE_BYTES: Final = 8 * 1024 * 1024

Lost = Callable[[int, int, str], None]
"""Hears of seqs that were lost: first, last, reason."""


class _Record(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    node: str | None = msgspec.field(name="$node", default=None)
    meta: msgspec.Raw = msgspec.Raw()
    tag: str | None = msgspec.field(name="$tag", default=None)


class _Loss(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str


class _Page(msgspec.Struct):
    epoch: int
    records: list[_Record]
    next_from_seq: int
    head_seq: int
    tombstone: _Loss | None = None


_decoder: Final = msgspec.json.Decoder(_Page)


class State(msgspec.Struct):
    """What the daemon says of a topic."""

    topic: str
    epoch: int
    head_seq: int
    earliest_seq: int


class DataLoss(LakeError):
    """Records that a reader was to get are gone."""

    def __init__(self, topic: str, first: int, last: int, reason: str) -> None:
        hint = "failOnDataLoss=false reads on behind the loss"
        super().__init__(f"topic {topic!r}, seqs {first}-{last} are lost: {reason}", "data_loss", hint)
        self._made_of = (topic, first, last, reason)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._made_of


def state_of(daemon: Daemon, topic: str) -> State | None:
    """The state of a topic, None when there is none."""
    try:
        return msgspec.json.decode(daemon.fetch("GET", f"/v0/topics/{topic}"), type=State)
    except Refusal as refusal:
        if refusal.status == 404:
            return None
        raise


def names_of(daemon: Daemon, prefix: str) -> list[str]:
    """The topics whose names begin so."""
    names: list[str] = []
    cursor = ""
    while True:
        query = f"prefix={quote(prefix)}&page_size=1000" + (f"&cursor={quote(cursor)}" if cursor else "")
        page = daemon.call("GET", f"/v0/topics?{query}")
        names += [topic["topic"] for topic in page["topics"]]
        cursor = page.get("next_cursor") or ""
        if not cursor:
            return names


def pages(daemon: Daemon, topic: str, epoch: int, first: int, last: int, lost: Lost) -> Iterator[Any]:
    """The live records of `first … last` of one epoch as batches of `SCHEMA`. `lost` may raise.

    A topic that is gone, or of another epoch, is a loss of all that is left.
    """
    cursor = first - 1
    while cursor < last:
        asked = {
            "from_seq": cursor,
            "to_seq": last,
            "limit": PAGE_RECORDS,
            "max_bytes": PAGE_BYTES,
            "include_tags": True,
            "epoch": epoch,
        }
        try:
            answer = daemon.fetch("POST", f"/v0/topics/{topic}/diff", msgspec.json.encode(asked))
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            lost(cursor + 1, last, "dropped")
            return
        page = _read(answer)
        if page.epoch != epoch:
            lost(cursor + 1, last, "recreated")
            return
        if page.tombstone is not None:
            lost(max(page.tombstone.gap_from, cursor + 1), min(page.tombstone.gap_to, last), page.tombstone.reason)
        if page.records:
            yield _batch(topic, epoch, page.records)
        if page.next_from_seq <= cursor:
            return
        cursor = page.next_from_seq


def _read(answer: bytes) -> _Page:
    try:
        return _decoder.decode(answer)
    except msgspec.DecodeError:
        page = _decoder.decode(hidden(answer))
        for record in page.records:
            record.data, record.meta = (msgspec.Raw(shown(bytes(part))) for part in (record.data, record.meta))
        return page


def _batch(topic: str, epoch: int, records: list[_Record]) -> Any:
    if records[-1].seq > SEQ_MAX:
        raise LakeError(f"topic {topic!r} has seqs beyond 2^63 - 1, which no column can hold", "invalid_request")
    stamps = pa.array([record.ts for record in records], pa.int64())
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), len(records)),
        pa.array([epoch] * len(records), pa.int64()),
        pa.array([record.seq for record in records], pa.int64()),
        pa.array([record.ts * 1000 for record in records], pa.int64()).view(SCHEMA.field("ts").type),
        stamps,
        pa.array([record.node for record in records], pa.string()),
        pa.array([record.tag for record in records], pa.string()),
        pa.array([bytes(record.meta).decode() or None for record in records], pa.string()),
        pa.array([bytes(record.data) for record in records], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
