"""Files of an export: Arrow batches in, one file out, with all that is needed to check it later.

`topic` is not in the files but in the path (`topic=<t>/`), because pyarrow and pandas refuse a column that is in both.
In JSON and CSV `data` is text: a JSON string, or a quoted field, that holds the record's own bytes; so 1.10 stays 1.10.

The digest of rows is over seqs, lengths and bytes of `data`, each column as one stream: the same however rows are cut
into batches, files of another format or row groups.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
from xxhash import xxh3_128

from engine.export.columns import SCHEMA, as_strings, numbers_of
from topics_lake.errors import LakeError

FORMATS: Final = {"parquet": ".parquet", "json": ".ndjson", "csv": ".csv"}
"""Endings by format. JSON is not `.json`, so that no pattern for data finds `_batch.json`."""
RAW: Final = SCHEMA.remove(SCHEMA.get_field_index("topic"))
"""The columns of a file of records as they are."""
_COPY: Final = 1 << 20
_LINES: Final = 10_000
"""Lines of JSON that are read at once."""
_CSV_BYTES: Final = (1 << 20, 2**31 - 1)
"""How much of a file of CSV is read at once: at first, and at most, for a row that is longer."""


class FileMade(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a batch."""

    path: str
    """Relative to the batch's directory."""
    rows: int
    min_seq: int
    max_seq: int
    bytes: int
    xxh3_128: str
    """Of the file."""
    rows_xxh3_128: str
    """Of its rows."""


class RowDigest:
    """The digest of rows, batch by batch. Rows that a query has made (`raw` false) are only counted."""

    def __init__(self, *, raw: bool = True) -> None:
        self._raw = raw
        self._parts = (xxh3_128(), xxh3_128(), xxh3_128())
        self.rows = 0
        self.min_seq = 0
        self.max_seq = 0

    def add(self, batch: Any) -> None:
        """Take in the next rows, in their order."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        if not self._raw:
            return
        seqs = numbers_of(batch.column("seq"))
        data = batch.column("data")
        offsets = np.frombuffer(data.buffers()[1], dtype=np.int32)[data.offset : data.offset + len(data) + 1]
        self._parts[0].update(seqs)
        self._parts[1].update(np.diff(offsets))
        self._parts[2].update(memoryview(data.buffers()[2] or b"")[offsets[0] : offsets[-1]])
        self.min_seq = self.min_seq or int(seqs.min())
        self.max_seq = max(self.max_seq, int(seqs.max()))

    def hex(self) -> str:
        digest = xxh3_128()
        for part in self._parts:
            digest.update(part.digest())
        return digest.hexdigest()


class FileWriter:
    """One file, written under a name of its own; whole when `close` has returned."""

    def __init__(self, path: str, format_: str, compression: str, schema: Any = RAW, *, raw: bool = True) -> None:
        """`schema`: the columns, None where only `copy` will be called."""
        self.path = path
        self.digest = RowDigest(raw=raw)
        self.size = 0
        """Bytes of rows that went in, before compression."""
        self._format = format_
        self._raw = raw
        self._schema = schema
        self._headed = False
        self._file = open(path, "xb")  # noqa: SIM115 # closed by close() or abandon()
        self._parquet: Any = None
        if format_ == "parquet":
            self._parquet = pq.ParquetWriter(self._file, self._schema, compression=compression)
        elif format_ == "csv" and schema is not None:
            self._file.write((",".join(self._schema.names) + "\n").encode())

    def write(self, batch: Any) -> None:
        """Append rows."""
        self.digest.add(batch)
        self.size += batch.nbytes
        part = batch.drop_columns(["topic"]) if "topic" in batch.schema.names else batch
        if self._parquet is not None:
            self._parquet.write_batch(part)
        elif self._format == "csv":
            options = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")
            pa.csv.write_csv(pa.Table.from_batches([_as_csv(part)]), self._file, options)
        else:
            self._file.write(_as_lines(part))

    def copy(self, path: str, count: int) -> None:
        """Append a whole file of lines with so many rows, byte for byte. One header is enough."""
        if self._raw:
            for batch in read_rows(path, self._format):
                self.digest.add(batch)
        else:
            self.digest.rows += count
        with open(path, "rb") as file:
            if self._format == "csv" and self._headed:
                file.readline()
            self._headed = True
            shutil.copyfileobj(file, self._file, _COPY)
        self.size = self._file.tell()

    def close(self) -> None:
        """Finish the file and bring it to the disk."""
        if self._parquet is not None:
            self._parquet.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close what will not be used."""
        with contextlib.suppress(pa.ArrowException, OSError):
            if self._parquet is not None:
                self._parquet.close()
        self._file.close()

    def made(self, name: str) -> FileMade:
        """What there is to say about the closed file, called `name` in its batch."""
        digest = self.digest
        return FileMade(
            path=name,
            rows=digest.rows,
            min_seq=digest.min_seq,
            max_seq=digest.max_seq,
            bytes=os.path.getsize(self.path),
            xxh3_128=digest_of(self.path),
            rows_xxh3_128=digest.hex(),
        )


def _as_csv(part: Any) -> Any:
    """`data` as text, `ts` with its zone, as every reader of CSV takes them."""
    columns = part.columns
    for place, field in enumerate(part.schema):
        if pa.types.is_binary(field.type):
            columns[place] = columns[place].cast(pa.string())
        elif pa.types.is_timestamp(field.type):
            columns[place] = pa.compute.strftime(columns[place], format="%Y-%m-%dT%H:%M:%SZ").cast(pa.string())
    return pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def _as_lines(part: Any) -> bytes:
    """A JSON object a line."""
    if "data" in part.schema.names and pa.types.is_binary(part.schema.field("data").type):
        part = as_strings(part)
    names = part.schema.names
    columns = [
        pa.compute.strftime(column, format="%Y-%m-%dT%H:%M:%SZ").to_pylist()
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in part.columns
    ]
    encode = msgspec.json.Encoder().encode_lines
    return bytes(encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]))


def read_rows(path: str, format_: str) -> Iterator[Any]:
    """The rows of a file, as batches with at least `seq` and `data` (binary)."""
    if format_ == "parquet":
        yield from parquet_batches(path, ["seq", "data"])
        return
    types = {"seq": pa.int64(), "data": pa.string()}
    if format_ == "csv":
        for batch in csv_batches(path, types, only=list(types)):
            columns = [batch.column("seq"), batch.column("data").cast(pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["seq", "data"])
        return
    with open(path, "rb") as lines:
        while some := list(itertools.islice(lines, _LINES)):
            rows = [msgspec.json.decode(line) for line in some]
            columns = [pa.array([row["seq"] for row in rows], pa.int64())]
            columns.append(pa.array([row["data"].encode() for row in rows], pa.binary()))
            yield pa.RecordBatch.from_arrays(columns, names=["seq", "data"])


def parquet_batches(path: str, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The rows of a file of Parquet, in batches that no two row groups share: left to itself pyarrow fills a batch with
    65,536 rows, however long they are."""
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield from file.iter_batches(row_groups=[number], columns=columns)


class _Blocks(io.BufferedReader):
    """A file of CSV, of which no block ends between a carriage return and its line feed: pyarrow takes a line feed that
    begins a block for the end of the line before, inside of quotes too, and drops it."""

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        if block.endswith(b"\r") and self.peek(1).startswith(b"\n") and len(block) > 1:
            self.seek(-1, os.SEEK_CUR)
            return block[:-1]
        return block


def csv_batches(path: str, types: Mapping[str, Any], only: Sequence[str] = ()) -> Iterator[Any]:
    """The rows of a file of CSV, `types` of columns given, those of others guessed from the first ones; `only` these
    columns. A row that is longer than what is read at once makes that more. Raises `ArrowInvalid`."""
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    (block, most), rows = _CSV_BYTES, 0
    while True:
        read = pa.csv.ReadOptions(block_size=block, skip_rows_after_names=rows)
        convert = pa.csv.ConvertOptions(column_types=types, include_columns=list(only), strings_can_be_null=False)
        try:
            with (
                _Blocks(open(path, "rb", buffering=0)) as file,
                pa.csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as reader,
            ):
                for batch in reader:
                    types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
                    yield batch
                    rows += batch.num_rows
            return
        except pa.ArrowInvalid:
            if block >= min(os.path.getsize(path), most):
                raise
            block = min(16 * block, most)


def check_footer(path: str, file: FileMade) -> None:
    """See that a file of Parquet has the rows and the seqs that its writer told of. Raises `LakeError`."""
    footer = pq.read_metadata(path)
    found = (footer.num_rows, file.min_seq, file.max_seq)
    if file.min_seq:
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        at = footer.schema.names.index("seq")
        ends = [group.column(at).statistics for group in groups]
        found = (footer.num_rows, min(end.min for end in ends), max(end.max for end in ends))
    if found != (file.rows, file.min_seq, file.max_seq):
        what = f"{path} says it has {found[0]} rows, seqs {found[1]}-{found[2]}; its writer told of {file.rows}, "
        raise LakeError(f"{what}{file.min_seq}-{file.max_seq}", "internal", "nothing was committed")


def digest_of(path: str) -> str:
    """The XXH3-128 of a file."""
    digest = xxh3_128()
    with open(path, "rb") as file:
        while part := file.read(_COPY):
            digest.update(part)
    return digest.hexdigest()


def sync_dir(path: str) -> None:
    """Bring the entries of a directory to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
