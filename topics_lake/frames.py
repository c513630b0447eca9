"""Exports whose rows are shaped on the way: typed columns read out of `data`, or the result of a query.

Spark reads the pin, parses and computes; the files are written by the tasks themselves, under names of their attempts,
as those of any export are (`topics_lake.export`). Spark's own commit has no part in it: what a task that died has
written is never reported, so it never gets into a batch.

How many records were read, from which seq to which, and how many of them do not fit the schema, is counted in the same
pass (`observe`), so that the batch adds up although a query may leave rows out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from topics_lake.errors import LakeError, unwritten
from topics_lake.export import Shape, Task, TaskDone, finish_file, new_file, place_of
from topics_lake.files import FileMade, FileWriter
from topics_lake.lake import Lake
from topics_lake.spark import failed

INFER: Final = "infer"
INFER_ROWS: Final = 100_000
"""Records that a guess is made from."""
VIEW: Final = "records"
_RAW: Final = ("topic", "epoch", "seq", "ts", "ts_ms", "node", "tag", "meta", "data")
_PARSED: Final = "__parsed"
_CORRUPT: Final = "__corrupt"
_FITS: Final = "__fits"


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says of itself."""

    files: list[FileMade] = []
    places: list[str] = []
    error: tuple[str, str, str] | None = None


class OnFrames:
    """A runner (`topics_lake.export.Runner`) that takes the whole range through one data frame."""

    def __init__(
        self,
        spark: Any,
        lake: Lake,
        *,
        select: str | None = None,
        schema: str | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`select`: a query over the table `records`. `schema`: a file with DDL or JSON of Spark, or `infer`; a guess
        is made once for a topic, and holds for the batches that follow. `say` hears it."""
        from topics_lake.source import TopicsSource

        self._spark = spark
        self._lake = lake
        self._select = select
        self._given = schema
        self._say = say
        spark.dataSource.register(TopicsSource)

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
        """Raises `LakeError`."""
        from pyspark.errors import AnalysisException, ParseException, PySparkException

        if tasks[0].settings.on_corrupt != "fail":
            raise LakeError("--on-corrupt gap does not go with --select or --schema", "usage", "export raw rows")
        try:
            yield from self._run(tasks[0], tasks[-1].last)
        except (AnalysisException, ParseException) as error:
            what = str(error).strip().partition("\n")[0]
            raise LakeError(f"Spark refuses this: {what}", "usage", f"the table is called {VIEW}") from error
        except PySparkException as error:
            raise failed(error) from error

    def _run(self, task: Task, last: int) -> Iterator[TaskDone]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        reader = self._spark.read.format("topics").options(path=task.pin, topics=task.topic)
        frame = reader.options(from_seq=str(task.first), to_seq=str(last)).load()
        schema = self._schema(frame, task.topic)
        frame = frame.withColumn(_FITS, f.lit(True)) if schema is None else _typed(frame, schema)
        seen = Observation()
        misfits = f.sum(f.when(f.col(_FITS), 0).otherwise(1)).alias("misfits")
        ends = (f.min("seq").alias("low"), f.max("seq").alias("high"))
        frame = frame.observe(seen, f.count(f.lit(1)).alias("rows"), *ends, misfits).drop(_FITS)
        if self._select is not None:
            frame.createOrReplaceTempView(VIEW)
            frame = self._spark.sql(self._select)
        frame = _plain(frame.drop("topic"), task.settings.format)
        _check_times(frame.columns, task.settings.partition_by)
        # What is counted has to be there once, or nobody would ever say how much it was.
        if frame._jdf.queryExecution().optimizedPlan().toString().count("CollectMetrics") != 1:
            hint = "nothing was committed"
            raise LakeError(f"the query does not read the table {VIEW} exactly once", "usage", hint)
        said = list(_written(frame, task, raw=self._select is None))
        counted = seen.get
        shape = Shape(
            rows=counted["rows"] or 0,
            low=counted["low"] or 0,
            high=counted["high"] or 0,
            misfits=counted["misfits"] or 0,
            columns=list(frame.columns),
            schema="" if schema is None else schema.json(),
            transformed=self._select is not None,
        )
        for number, each in enumerate(said):
            yield TaskDone(number=number, files=each.files, places=each.places, damaged=[], shape=shape)
        if not said:
            yield TaskDone(number=0, files=[], places=[], damaged=[], shape=shape)

    def _schema(self, frame: Any, topic: str) -> Any:
        """The schema of `data`: what was given, what an earlier batch has, or a guess; None where none is wanted."""
        from pyspark.sql.types import StructType

        if self._given is None:
            return None
        if self._given != INFER:
            return _distinct(_read_schema(self._spark, self._given))
        starts = self._lake.starts(topic)
        known = self._lake.batch(topic, *starts[-1]).schema if starts else ""
        if known:
            schema = StructType.fromJson(msgspec.json.decode(known))
            self._say(f"{topic}: the schema of the batches before: {schema.simpleString()}")
            return schema
        texts = frame.limit(INFER_ROWS).selectExpr("cast(data as string)").rdd.map(lambda row: row[0])
        guess = self._spark.read.option("columnNameOfCorruptRecord", _CORRUPT).json(texts).schema
        schema = _distinct(StructType([field for field in guess.fields if field.name != _CORRUPT]))
        self._say(f"{topic}: guessed from the first records: {schema.simpleString()}")
        return schema


def _read_schema(spark: Any, path: str) -> Any:
    """A schema out of a file. Raises `LakeError`."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().strip()
        if text.startswith("{"):
            return StructType.fromJson(msgspec.json.decode(text))
        return spark.createDataFrame([], text).schema
    except (OSError, ValueError, KeyError, PySparkException) as error:
        what = f"--schema {path} has no schema: {str(error).strip().partition(chr(10))[0]}"
        raise LakeError(
            what, "usage", "DDL as in 'page string, ms bigint', or JSON of Spark; or --schema infer"
        ) from error


def _distinct(schema: Any) -> Any:
    """Spark does not tell names apart that differ in case alone: the first one counts."""
    from pyspark.sql.types import StructType

    fields = {field.name.lower(): field for field in reversed(schema.fields)}
    return StructType([field for field in schema.fields if fields[field.name.lower()] is field])


def _typed(frame: Any, schema: Any) -> Any:
    """The raw columns, the typed ones beside them, whether a row fits. A name that is taken gets `data_` before it."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    text = f.col("data").cast("string")
    whole = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    parsed = f.from_json(text, whole, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    is_object = f.ltrim(text).startswith("{")
    columns, taken = [f.col(name) for name in _RAW], set(_RAW)
    for field in schema.fields:
        name = field.name
        while name.lower() in taken:
            name = f"data_{name}"
        taken.add(name.lower())
        columns.append(f.when(is_object, f.col(_PARSED).getField(field.name)).alias(name))
    fits = is_object & f.col(_PARSED).isNotNull() & f.col(_PARSED).getField(_CORRUPT).isNull()
    return frame.withColumn(_PARSED, parsed).select(*columns, fits.alias(_FITS))


def _plain(frame: Any, form: str) -> Any:
    """Columns as files of that form can hold them: in text, bytes are text, and nested values JSON in CSV."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    if form == "parquet":
        return frame
    columns = []
    for field in frame.schema.fields:
        column = f.col(f"`{field.name.replace('`', '``')}`")
        if isinstance(field.dataType, BinaryType):
            column = column.cast("string")
        elif form == "csv" and isinstance(field.dataType, StructType | ArrayType | MapType):
            column = f.to_json(column)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _check_times(columns: Sequence[str], partition_by: str) -> None:
    if partition_by != "none" and "ts_ms" not in columns:
        raise LakeError(f"--partition-by {partition_by} needs the column ts_ms in the query", "usage", "select it, too")


def _written(frame: Any, task: Task, *, raw: bool) -> Iterator[_Said]:
    """Run it; what the tasks say that counted."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        said = msgspec.json.encode(write_batches(batches, task, raw=raw)).decode()
        yield pa.RecordBatch.from_pydict({"said": [said]})

    for row in frame.mapInArrow(write, "said string").collect():
        said = msgspec.json.decode(row.said, type=_Said)
        if said.error is not None:
            raise LakeError(*said.error)
        yield said


def write_batches(batches: Iterator[Any], task: Task, *, raw: bool) -> _Said:
    """On an executor: one partition into files."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    mine = msgspec.structs.replace(task, number=number)
    made: list[FileMade] = []
    places: list[str] = []
    writers: dict[str, FileWriter] = {}
    try:
        for batch in batches:
            for place, part in _parts(batch, task.settings.partition_by):
                writer = writers.get(place)
                if writer is None:
                    writer = writers[place] = new_file(mine, part.schema, raw=raw)
                writer.write(part)
                if writer.size >= task.settings.max_file_bytes:
                    finish_file(writers, place, made, places)
        for place in sorted(writers):
            finish_file(writers, place, made, places)
    except OSError as error:
        refused = unwritten(error, os.path.dirname(task.attempts))
        return _Said(error=(refused.what, refused.code, refused.hint))
    finally:
        for writer in writers.values():
            writer.abandon()
    return _Said(files=made, places=places)


def _parts(batch: Any, partition_by: str) -> Iterator[tuple[str, Any]]:
    """A batch by the directories that its rows belong to, in whatever order they are."""
    import numpy as np
    import pyarrow as pa

    if not batch.num_rows:
        return
    if partition_by == "none":
        yield "", batch
        return
    stamps = batch.column("ts_ms").fill_null(0).to_numpy(zero_copy_only=False)
    periods = stamps // (86_400_000 if partition_by == "date" else 3_600_000)
    for period in np.unique(periods):
        yield place_of(int(period), partition_by), batch.filter(pa.array(periods == period))
