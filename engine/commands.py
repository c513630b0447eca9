"""What clients ask of the engine: a batch of records, checked once, before anything is decided.

`Batch` is columnar, because the hot path is: a list of values as they were received, and a list for each of tag, node
and meta only where at least one record has it. Decoding bodies (JSON, NDJSON, lines) into a batch is `decode`'s.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from engine.errors import Code, Refused, invalid
from engine.limits import Limits
from engine.types import Match

UTF8_BYTES_MAX: Final = 4
METAS_AT_ONCE: Final = 256
"""Metas that are looked into in one call, which takes a third of the time of as many: each may have 64 members."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
    there = [meta for meta in metas if meta is not None]
    longest = max(map(len, there), default=0)
    if longest > limits.meta_bytes:
        raise invalid(f"meta may hold {limits.meta_bytes} bytes", "meta")
    if longest + max(map(len, batch.datas)) > limits.record_bytes:
        for data, meta in zip(batch.datas, metas, strict=True):
            if len(data) + len(meta or b"") > limits.record_bytes:
                raise _record_too_large(limits)
    for first in range(0, len(there), METAS_AT_ONCE):
        if max(map(len, _objects(there[first : first + METAS_AT_ONCE]))) > limits.meta_keys:
            raise invalid(f"meta may hold {limits.meta_keys} keys", "meta")


def _objects(metas: list[bytes]) -> list[dict[str, msgspec.Raw]]:
    """The members of each; raises the 400 where one is no object."""
    lines = b"\n".join(metas)
    if lines.count(b"\n") == len(metas) - 1:  # none has line breaks of its own
        try:
            found = _OBJECT.decode_lines(lines)
            if len(found) == len(metas):
                return found
        except (msgspec.DecodeError, RecursionError):
            pass
    try:
        return [_OBJECT.decode(meta) for meta in metas]
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid("meta must be a JSON object", "meta") from error


def _check_texts(texts: list[str | None], field: str, bytes_max: int) -> None:
    there = [text for text in texts if text is not None]
    try:
        # In UTF-8 a character takes four bytes at most: where that leaves no doubt one look at all of them will do.
        if UTF8_BYTES_MAX * max(map(len, there), default=0) <= bytes_max:
            "".join(there).encode()
        elif max(len(text.encode()) for text in set(there)) > bytes_max:
            raise invalid(f"{field} may hold {bytes_max} bytes", field)
    except UnicodeEncodeError as error:
        raise invalid(f"{field} must be valid UTF-8", field) from error


class DeleteSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Which records a delete means: the given parts ANDed together, bounded by the head at call time.

    `most`: of more records than these, found by their tags, none is deleted, and `LargeDelete` says how far they reach;
    0 for no bound. `after_seq` is where one that goes on begins, exclusive.
    """

    before_seq: int | None = None
    match: Match | None = None
    seqs: tuple[int, ...] | None = None
    after_seq: int = 0
    most: int = 0


class LargeDelete(Exception):
    """More records are meant than the selector's `most`: so many end with the seq `until`. Nothing was done."""

    def __init__(self, until: int) -> None:
        super().__init__(f"a delete means more than it may at once, from {until} on")
        self.until = until
