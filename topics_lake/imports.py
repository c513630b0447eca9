"""Files into a topic: rows of Parquet, JSON or CSV become records, each once however often the import is tried.

The idempotency key of a chunk is made of the import's name, the file and the chunk's place in it, so an import that was
killed is simply run again. The name follows from topic, columns and the files' names, lengths and times, unless it is
given: the same files again write nothing, as long as the topic remembers its keys (a week, where the import made it).
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from topics_lake.client import Daemon
from topics_lake.errors import LakeError
from topics_lake.files import csv_batches
from topics_lake.sink import chunks_of, prepare

ENDINGS: Final = {"parquet": (".parquet",), "json": (".ndjson", ".json", ".jsonl"), "csv": (".csv",)}
CHUNK_ROWS: Final = 5000


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an import."""

    path: str
    form: str
    key: str
    topic: str
    where: str
    secret: str
    data: str | None
    tag: str | None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import has done."""

    rows: int
    files: int
    name: str


def import_files(
    spark: Any,
    given: Sequence[str],
    form: str,
    topic: str,
    where: str,
    secret: str,
    *,
    data: str | None = None,
    tag: str | None = None,
    name: str | None = None,
) -> Imported:
    """Import files, and those below directories. `data`: the column with JSON text; without it a row is an object of
    all its columns. `tag`: the column with the tag. Raises `LakeError`."""
    if form not in ENDINGS:
        raise LakeError(f"--format {form!r} is none of {', '.join(ENDINGS)}", "usage")
    files = list(_files(given, ENDINGS[form]))
    if not files:
        raise LakeError(f"there are no {form} files", "not_found", f"their names end in {' or '.join(ENDINGS[form])}")
    stats = [(path, os.stat(path)) for path in files]
    known = repr([topic, form, data, tag, [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]])
    chosen = name or xxh3_64_hexdigest(known.encode())
    with Daemon(where, secret) as daemon:
        prepare(daemon, topic)
    jobs = [
        Job(
            path=path,
            form=form,
            key=f"import:{chosen}:{number}",
            topic=topic,
            where=where,
            secret=secret,
            data=data,
            tag=tag,
        )
        for number, path in enumerate(files)
    ]
    rows = 0
    for done in spark.sparkContext.parallelize(jobs, len(jobs)).map(_guarded).collect():
        if isinstance(done, LakeError):
            raise done
        rows += done
    return Imported(rows=rows, files=len(files), name=chosen)


def _files(given: Sequence[str], endings: tuple[str, ...]) -> Iterator[str]:
    for place in given:
        if not os.path.isdir(place):
            yield os.path.abspath(place)
            continue
        for root, directories, names in os.walk(place):
            directories[:] = sorted(d for d in directories if not d.startswith(("_", ".")))
            for name in sorted(names):
                if name.endswith(endings) and not name.startswith(("_", ".")):
                    yield os.path.abspath(os.path.join(root, name))


def _guarded(job: Job) -> int | LakeError:
    try:
        return run_job(job)
    except LakeError as error:
        return error
    except (OSError, pa.ArrowException, msgspec.DecodeError, OverflowError, RecursionError, TypeError) as error:
        return LakeError(f"{job.path}: {error}", "unreadable", "nothing of what follows in this file was written")


def run_job(job: Job) -> int:
    """Write one file's rows, in order; how many."""
    rows = 0
    with Daemon(job.where, job.secret) as daemon:
        for number, records in enumerate(chunks_of(_batches(job), CHUNK_ROWS)):
            key = msgspec.json.encode(f"{job.key}:{number}")
            body = b'{"idempotency_key":%b,"records":[%b]}' % (key, b",".join(records))
            daemon.fetch("POST", f"/v0/topics/{job.topic}?return_seqs=false", body)
            rows += len(records)
    return rows


def _batches(job: Job) -> Iterator[Any]:
    """Batches with `data` (JSON text) and `tag`."""
    if job.form == "json":
        yield from _lines(job)
        return
    if job.form == "parquet":
        with pq.ParquetFile(job.path) as file:
            for batch in file.iter_batches(batch_size=10_000):
                yield _shaped(job, batch)
        return
    # A column of JSON text stays text: 1.10 must not become a number.
    types = {name: pa.string() for name in (job.data, job.tag) if name is not None}
    for batch in csv_batches(job.path, types):
        if any(pa.types.is_binary(type_) for type_ in batch.schema.types):
            raise LakeError(f"{job.path} is not UTF-8", "unreadable", "iconv -f LATIN1 -t UTF-8, for example")
        yield _shaped(job, batch)


def _shaped(job: Job, batch: Any) -> Any:
    names = batch.schema.names
    if len(set(names)) < len(names):
        what = f"{job.path} has two columns of one name"
        raise LakeError(what, "invalid_request", f"columns: {', '.join(names)}")
    missing = [name for name in (job.data, job.tag) if name is not None and name not in names]
    if missing:
        what = f"{job.path} has no column {missing[0]!r}"
        raise LakeError(what, "invalid_request", f"columns: {', '.join(names)}")
    columns = {}
    if job.data is not None:
        columns["data"] = batch.column(job.data)
    else:
        encode = msgspec.json.Encoder(enc_hook=_precise).encode
        columns["data"] = pa.array([encode(row) for row in batch.to_pylist()], pa.binary())
    if job.tag is not None:
        columns["tag"] = batch.column(job.tag).cast(pa.string())
    return pa.RecordBatch.from_pydict(columns)


def _precise(value: Any) -> str:
    """Times with nanoseconds, which are of pandas and not of Python. Raises `TypeError`."""
    if isinstance(value, dt.datetime | dt.timedelta):
        return str(value.isoformat())  # type: ignore[union-attr]  # of pandas, which has it for spans too
    raise TypeError(f"a {type(value).__name__} cannot be said in JSON")


def _lines(job: Job) -> Iterator[Any]:
    """Lines of JSON: as they are, or of each the member `data`, which holds JSON text, as exports write it."""
    held: list[tuple[bytes, str | None]] = []
    with open(job.path, "rb") as file:
        for line in file:
            text = line.strip()
            if text:
                held.append(_line(job, text))
            if len(held) == 10_000:
                yield _of_pairs(held)
                held = []
    if held:
        yield _of_pairs(held)


def _line(job: Job, text: bytes) -> tuple[bytes, str | None]:
    if job.data is None and job.tag is None:
        return text, None
    members = msgspec.json.decode(text)
    if not isinstance(members, dict) or any(name not in members for name in (job.data, job.tag) if name is not None):
        raise LakeError(f"{job.path}: a line lacks {job.data or job.tag!r}: {text[:80]!r}", "invalid_request")
    tag = None if job.tag is None else members[job.tag]
    if job.data is None:
        return text, tag
    data = members[job.data]
    if not isinstance(data, str):
        raise LakeError(f"{job.path}: {job.data!r} holds no JSON text: {text[:80]!r}", "invalid_request")
    return data.encode(), tag


def _of_pairs(held: list[tuple[bytes, str | None]]) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "data": pa.array([data for data, _ in held], pa.binary()),
            "tag": pa.array([tag for _, tag in held], pa.string()),
        }
    )
