"""What clients ask of the engine: a batch of records, checked once, before anything is decided.

`Batch` is columnar, because the hot path is: a list of values as they were received, and a list for each of tag, node
and meta only where at least one record has it. Decoding bodies (JSON, NDJSON, lines) into a batch is `decode`'s.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.errors import Code, Refused, invalid
from engine.limits import Limits
from engine.types import Match


class Batch(msgspec.Struct, eq=False):
    """Records of one atomic write, column by column.

    `datas` are JSON values as bytes, verbatim and known to be valid; `metas` JSON objects as bytes. Columns other than
    `datas` are None when no record of the batch has them. Plain lists inside one hot path (house style, 13).
    """

    datas: list[bytes]
    tags: list[str | None] | None = None
    nodes: list[str | None] | None = None
    metas: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.datas)

    @property
    def has_columns(self) -> bool:
        """Whether its records have more than data."""
        return self.tags is not None or self.nodes is not None or self.metas is not None

    @property
    def bytes(self) -> int:
        """Bytes of all values."""
        return sum(map(len, self.datas))

    @classmethod
    def of(cls, values: list[Any], **columns: Any) -> Batch:
        """A batch of Python values, encoded as JSON (for scripts; the daemon keeps what it received)."""
        return cls([msgspec.json.encode(value) for value in values], **columns)


def check_batch(batch: Batch, limits: Limits) -> None:
    """Raise the 400 that says which bound of http-api.md §4 the batch breaks, if it breaks one."""
    count = len(batch.datas)
    if count == 0:
        raise invalid("records must hold at least one record", "records")
    if count > limits.batch_records:
        raise too_many_records(limits.batch_records)
    if batch.metas is None:
        if (len(batch.datas[0]) if count == 1 else len(max(batch.datas, key=len))) > limits.record_bytes:
            raise _record_too_large(limits)
    else:
        _check_metas(batch, batch.metas, limits)
    if batch.tags is not None:
        _check_texts(batch.tags, "tag", limits.tag_bytes)
    if batch.nodes is not None:
        _check_texts(batch.nodes, "node", limits.node_bytes)


def too_many_records(most: int) -> Refused:
    """The 400 of a batch with more records than a write takes."""
    return Refused(
        Code.BATCH_TOO_LARGE,
        f"a write takes at most {most} records; split it",
        {"limit": "max_batch_records", "max": most},
    )


def _record_too_large(limits: Limits) -> Refused:
    return Refused(
        Code.RECORD_TOO_LARGE,
        f"data and meta of one record may hold {limits.record_bytes} bytes together",
        {"limit": "max_record_bytes", "max": limits.record_bytes},
    )


def _check_metas(batch: Batch, metas: list[bytes | None], limits: Limits) -> None:
    for data, meta in zip(batch.datas, metas, strict=True):
        if meta is None:
            if len(data) > limits.record_bytes:
                raise _record_too_large(limits)
            continue
        if len(meta) > limits.meta_bytes:
            raise invalid(f"meta may hold {limits.meta_bytes} bytes", "meta")
        if len(data) + len(meta) > limits.record_bytes:
            raise _record_too_large(limits)
        try:
            members = msgspec.json.decode(meta, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            raise invalid("meta must be a JSON object", "meta") from error
        if len(members) > limits.meta_keys:
            raise invalid(f"meta may hold {limits.meta_keys} keys", "meta")


def _check_texts(texts: list[str | None], field: str, bytes_max: int) -> None:
    for text in set(texts):
        if text is None:
            continue
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise invalid(f"{field} must be valid UTF-8", field) from error
        if size > bytes_max:
            raise invalid(f"{field} may hold {bytes_max} bytes", field)


class DeleteSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Which records a delete means: the given parts ANDed together, bounded by the head at call time."""

    before_seq: int | None = None
    match: Match | None = None
    seqs: tuple[int, ...] | None = None
