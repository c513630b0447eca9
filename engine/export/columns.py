"""The columns of an export, and how they are cut out of rendered records without a step in Python for each.

A fragment (engine/fragment.py) is a known prefix, `data`, and up to three more parts whose lengths stand in the index.
So where each value begins and ends follows by arithmetic on whole columns. The bytes are then copied by Arrow: begins
and ends, which ascend, taken together are the offsets of a column in which every second value is the one that is
wanted, and `take` copies these.

    bytes     {"$seq":7,"$ts":1748450000000,"data":  1.10  ,"$tag":"t"},{"$seq":8,…,"data":  2  }
    offsets   0 ─────────────────────────────────► ─────► ─────────────────────────────────► ──►
                          not wanted                wanted          not wanted              wanted

Batches have one schema, exactly (Spark checks only the first one): all nullable, no unsigned, large, view or dictionary
types.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from engine.errors import StoreDamaged
from engine.formats.segment import ROW_LEN
from engine.fragment import META_FIXED, NODE_FIXED, PREFIX_FIXED, TAG_FIXED, digits

SEQ_MAX: Final = 2**63 - 1
"""What a column of signed 64-bit integers holds."""
_DATA_KEY: Final = len(b'"data":')
_NODE_KEY: Final = len(b'"$node":"')
_POWERS: Final = np.array([10**power for power in range(1, 19)], dtype=np.int64)
BATCH_ROWS: Final = 65_536
"""Most rows of a batch."""

ROW: Final = np.dtype(
    [
        ("offset", "<u4"),
        ("length", "<u4"),
        ("ts", "<u8"),
        ("meta", "<u4"),
        ("node", "<u2"),
        ("tag", "<u2"),
        ("check", "<u4"),
        ("flags", "<u4"),
    ]
)
"""A row of an index (engine/formats/segment.py, `RowView`)."""
assert ROW.itemsize == ROW_LEN

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("ts_ms", pa.int64()),
        pa.field("node", pa.string()),
        pa.field("tag", pa.string()),
        pa.field("meta", pa.string()),
        pa.field("data", pa.binary()),
    ]
)


_INT64: Final = pa.int64()
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


def schema_of(data_type: str) -> Any:
    """The schema with `data` as `binary` or `string`."""
    if data_type == "binary":
        return SCHEMA
    if data_type == "string":
        return SCHEMA.set(SCHEMA.get_field_index("data"), pa.field("data", pa.string()))
    raise ValueError(f"data_type must be binary or string, not {data_type!r}")


def batch_of(topic: str, epoch: int, first_seq: int, rows: Any, kept: Any, payload: bytes, base: int) -> Any:
    """The record batch of some rows.

    rows       an array of `ROW`, of which the first has `first_seq`
    kept       the indices of those that are wanted, ascending, at least one; each has a record
    payload    bytes of the fragments, from the offset `base` on, with all that the kept rows name
    """
    count, begin, last = len(kept), int(kept[0]), int(kept[-1])
    if first_seq + last > SEQ_MAX:
        raise StoreDamaged(f"topic {topic!r} has seqs beyond 2^63 - 1, which no column of Spark or Arrow can hold")
    chosen = rows[begin : last + 1] if last - begin + 1 == count else rows[kept]
    seqs = kept + first_seq
    stamps = chosen["ts"].astype(np.int64)
    # Offsets within a window fit 32 bits; what does not is out of order or beyond the end, which `_slices` refuses.
    starts = chosen["offset"].astype(np.int32) if not base else (chosen["offset"] - np.uint32(base)).view(np.int32)
    ends = starts + chosen["length"].view(np.int32)
    head = starts + (_digits(seqs) + _digits(stamps) + PREFIX_FIXED)
    nodes, metas, tags = (_lengths(chosen[name]) for name in ("node", "meta", "tag"))
    tag_at = ends - 1 - (0 if tags is None else tags)
    meta_at = tag_at if metas is None else tag_at - metas
    data_at = head + _DATA_KEY + (0 if nodes is None else nodes)
    values = pa.py_buffer(payload)
    meta = None if metas is None else _slices(values, meta_at + META_FIXED, tag_at, metas > 0).cast(pa.string())
    none = _constants(topic, epoch)[2].slice(0, count)
    return pa.RecordBatch.from_arrays(
        [
            _constants(topic, epoch)[0].slice(0, count),
            _constants(topic, epoch)[1].slice(0, count),
            _numbers(_INT64, seqs),
            _numbers(_MICROSECONDS, stamps * 1000),
            _numbers(_INT64, stamps),
            none if nodes is None else _texts(values, head, _NODE_KEY, nodes, NODE_FIXED + 2),
            none if tags is None else _texts(values, tag_at, TAG_FIXED + 1, tags, TAG_FIXED + 2),
            none if meta is None else meta,
            _slices(values, data_at, meta_at, None),
        ],
        schema=SCHEMA,
    )


@lru_cache(maxsize=16)
def _constants(topic: str, epoch: int) -> tuple[Any, Any, Any]:
    """The columns in which every row is the same, as long as a batch can be."""
    name = topic.encode()
    offsets: Any = np.arange(0, (BATCH_ROWS + 1) * len(name), len(name), dtype=np.int32)
    names = [None, pa.py_buffer(offsets), pa.py_buffer(name * BATCH_ROWS)]
    return (
        pa.Array.from_buffers(pa.string(), BATCH_ROWS, names),
        _numbers(_INT64, np.full(BATCH_ROWS, epoch, dtype=np.int64)),
        pa.nulls(BATCH_ROWS, pa.string()),
    )


def _numbers(type_: Any, values: Any) -> Any:
    """A column of numbers where they are. `pyarrow.array` would import pandas, which takes longer than a segment."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


def numbers_of(column: Any) -> Any:
    """The values of a column of 64-bit integers that has no nulls, where they are."""
    return np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column)]


_SECONDS: Final = _numbers(pa.int32(), np.arange(1, 2 * BATCH_ROWS, 2, dtype=np.int32))
"""Every second value."""


def _lengths(column: Any) -> Any:
    """Lengths of a part as signed numbers; None when no record has it."""
    return column.astype(np.int32) if column.any() else None


def _digits(ascending: Any) -> Any:
    """How many decimal digits each number takes."""
    first, last = digits(int(ascending[0])), digits(int(ascending[-1]))
    if first == last:
        return first
    return (np.searchsorted(_POWERS, ascending, side="right") + 1).astype(np.int32)


def _slices(values: Any, starts: Any, ends: Any, valid: Any) -> Any:
    """A binary column of the bytes `starts … ends - 1`; null where `valid` (None: everywhere) is false."""
    count = len(starts)
    if valid is not None:
        # A null takes no bytes, but its place has to be in order.
        starts = np.where(valid, starts, ends)
    offsets: Any = np.empty(2 * count + 1, dtype=np.int32)
    offsets[0], offsets[1::2], offsets[2::2] = 0, starts, ends
    if offsets[-1] > values.size or (offsets[1:] < offsets[:-1]).any():
        raise StoreDamaged("an index row does not fit its record")
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), values])
    taken = pa.compute.take(both, _SECONDS.slice(0, count), boundscheck=False)
    if valid is None or valid.all():
        return taken
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [bitmap, *taken.buffers()[1:]], offset=0)


def _texts(values: Any, parts: Any, skip: int, lengths: Any, fixed: int) -> Any:
    """A column of JSON strings, decoded: of parts that begin at `parts` and have `fixed` bytes that are no text, `skip`
    of them in front of it."""
    valid = lengths > 0
    raw = _slices(values, parts + skip, np.where(valid, parts + skip + lengths - fixed, parts), valid)
    escaped = raw.buffers()[2].to_pybytes().find(b"\\") >= 0
    if not escaped:
        return raw.cast(pa.string())
    coded = raw.dictionary_encode()
    known = pa.array([msgspec.json.decode(b'"%b"' % text, type=str) for text in coded.dictionary.to_pylist()])
    return known.cast(pa.string()).take(coded.indices)


def as_strings(batch: Any) -> Any:
    """The same batch with `data` as text. Raises `pyarrow.ArrowInvalid` where it is no UTF-8."""
    place = batch.schema.get_field_index("data")
    columns = batch.columns
    columns[place] = columns[place].cast(pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(place, pa.field("data", pa.string())))
