"""DIR.gaps: the gaps of every batch as a table for SQL. What counts is each batch's `_batch.json`; this follows it."""

from __future__ import annotations

import os
import shutil

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from topics_lake.exchange import exchange
from topics_lake.files import FORMATS, sync_dir
from topics_lake.lake import Batch, GapRow, Lake, batch_dir, topic_dir

SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("first_seq", pa.int64()),
        pa.field("last_seq", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


def write_gaps(lake: Lake, batch: Batch) -> None:
    """Write the table of one batch; one that has no gaps has none. It is there whole or not at all."""
    parent = os.path.join(lake.gaps, topic_dir(batch.topic))
    target = os.path.join(parent, batch_dir(batch.epoch, batch.first))
    if not batch.gaps or os.path.exists(target):
        return
    made = os.path.join(lake.staging, f"run-gaps-{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    _write(batch, made)
    os.makedirs(parent, exist_ok=True)
    os.rename(made, target)
    sync_dir(parent)


def _table_of(batch: Batch, directory: str) -> str:
    """The file of a batch's gaps. A joined batch begins where its first one did, in a directory of the same name: under
    the same name a reader could take the end of the old file for that of the new one."""
    return os.path.join(directory, f"gaps-{batch.last}{FORMATS[batch.file_format]}")


def _write(batch: Batch, directory: str) -> None:
    os.makedirs(directory)
    columns = [
        [gap.epoch for gap in batch.gaps],
        [gap.first for gap in batch.gaps],
        [gap.last for gap in batch.gaps],
        [gap.reason for gap in batch.gaps],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    path = _table_of(batch, directory)
    with open(path, "xb") as file:
        if batch.file_format == "parquet":
            pq.write_table(table, file)
        elif batch.file_format == "csv":
            pa.csv.write_csv(table, file)
        else:
            file.write(msgspec.json.Encoder().encode_lines(table.to_pylist()))
        file.flush()
        os.fsync(file.fileno())
    sync_dir(directory)


def read_gaps(lake: Lake, batch: Batch) -> list[GapRow]:
    """What the table says of a batch; nothing where there is none or it cannot be read."""
    directory = os.path.join(lake.gaps, topic_dir(batch.topic), batch_dir(batch.epoch, batch.first))
    path = _table_of(batch, directory)
    try:
        if batch.file_format == "parquet":
            rows = pq.read_table(path, partitioning=None).to_pylist()
        elif batch.file_format == "csv":
            rows = pa.csv.read_csv(path).to_pylist()
        else:
            with open(path, "rb") as file:
                rows = [msgspec.json.decode(line) for line in file]
    except (OSError, ValueError):
        return []
    return [
        GapRow(epoch=row["epoch"], first=row["first_seq"], last=row["last_seq"], reason=row["reason"]) for row in rows
    ]


def mend_gaps(lake: Lake, topic: str) -> None:
    """Write the tables that a run which died had not come to, and take away those of batches that are no more."""
    if os.path.exists(lake.stale_gaps(topic)):
        _again(lake, topic)
        return
    starts = lake.starts(topic)
    names = {batch_dir(*start) for start in starts}
    parent = os.path.join(lake.gaps, topic_dir(topic))
    there = set(os.listdir(parent)) if os.path.isdir(parent) else set()
    for name in there - names:
        shutil.rmtree(os.path.join(parent, name))
    for start in starts:
        if batch_dir(*start) not in there:
            write_gaps(lake, lake.batch(topic, *start))


def _again(lake: Lake, topic: str) -> None:
    """Every table of a topic anew, put in place as a whole: its batches have been joined."""
    target = os.path.join(lake.gaps, topic_dir(topic))
    if os.path.isdir(target):
        made = os.path.join(lake.staging, f"run-gaps-{os.getpid()}", topic_dir(topic))
        shutil.rmtree(os.path.dirname(made), ignore_errors=True)
        os.makedirs(made)
        for start in lake.starts(topic):
            batch = lake.batch(topic, *start)
            if batch.gaps:
                _write(batch, os.path.join(made, batch_dir(*start)))
        sync_dir(made)
        exchange(made, target)
        sync_dir(lake.gaps)
        shutil.rmtree(os.path.dirname(made))
    os.unlink(lake.stale_gaps(topic))
    mend_gaps(lake, topic)
