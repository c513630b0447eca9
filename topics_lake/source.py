"""`format("topics")`: topics as a source and a sink of Spark. Import this where pyspark is known to be there.

    spark.dataSource.register(TopicsSource)
    spark.read.format("topics").option("path", PIN).option("topics", "events").load()
    spark.readStream.format("topics").option("url", URL).option("topics", "shop.*").load()
    frame.write.format("topics").mode("append").option("url", URL).option("topics", "events").save()

What Spark does to a source: its constructor runs in a process of its own and is pickled into all others; a frame may
be planned more than once; `partitions()` without any still leads to one `read(InputPartition(None))`. So what a query
reads is fixed before it is planned, and nothing is remembered elsewhere.

Filters are not pushed down: what a source has left out for one query on a frame, Spark 4 leaves out for the next query
on it too (ADR 0026). The options `topics`, `from_seq`, `to_seq`, `since` and `until` do what a filter would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from engine.errors import StoreError
from engine.export.columns import as_strings, schema_of
from engine.export.decode import gathered
from topics_lake.errors import LakeError
from topics_lake.options import Options, read_options
from topics_lake.pages import DataLoss, names_of, pages, state_of
from topics_lake.pinned import open_pin
from topics_lake.sink import TopicsStreamWriter, TopicsWriter
from topics_lake.stream import TopicsStream

PARTITION_BYTES: Final = 64 * 1024 * 1024
PARTITION_SEQS: Final = 50_000
"""Of a daemon, whose segments are not seen."""
_DDL: Final = (
    "topic string, epoch bigint, seq bigint, ts timestamp, ts_ms bigint, node string, tag string, meta string, data "
)


class Extent(NamedTuple):
    """How far a topic reaches, as the source's constructor found it."""

    topic: str
    epoch: int
    head: int


class Stretch(InputPartition):
    """Seqs of one topic for one task."""

    def __init__(self, topic: str, epoch: int, first: int, last: int) -> None:
        super().__init__((topic, epoch, first, last))


class TopicsSource(DataSource):
    """The source. Its constructor fixes how far each topic is read."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.asked = read_options(options)
        self._extents: list[Extent] | None = None

    @classmethod
    def name(cls) -> str:
        """What `format(…)` takes."""
        return "topics"

    def schema(self) -> str:
        """The columns, always these."""
        if self._extents is None:
            self._extents = extents(self.asked)
        return _DDL + self.asked.data_type

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read up to where the topics reached when the source was made."""
        return TopicsReader(self.asked, extents(self.asked) if self._extents is None else self._extents)

    def streamReader(self, schema: StructType) -> Any:
        """A stream of a daemon's topics."""
        return TopicsStream(_with_daemon(self.asked))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """A batch write: appends, exactly once for each partition."""
        return TopicsWriter(_with_daemon(self.asked), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """A streaming sink, exactly once for each epoch and partition."""
        return TopicsStreamWriter(_with_daemon(self.asked), schema, overwrite)


def _with_daemon(asked: Options) -> Options:
    if not asked.where:
        raise LakeError("a pin cannot be written to or streamed from", "usage", "give the option url or socket")
    return asked


def extents(asked: Options) -> list[Extent]:
    """How far the topics that are asked for reach now. Raises `LakeError`."""
    if asked.path:
        pin = open_pin(asked.path)
        try:
            topics = [pin.topic(name) for name in asked.chosen(pin.names)]
        except StoreError as error:
            raise LakeError(str(error), "invalid_request") from error
        return [Extent(topic.name, topic.epoch, topic.head) for topic in topics]
    with asked.daemon() as daemon:
        names = {name for topic in asked.topics for name in names_of(daemon, topic.rstrip("*"))}
        found = [state_of(daemon, name) for name in asked.chosen(sorted(names))]
    return [Extent(state.topic, state.epoch, state.head_seq) for state in found if state is not None]


class TopicsReader(DataSourceReader):
    """One batch read."""

    def __init__(self, asked: Options, found: list[Extent]) -> None:
        self._asked = asked
        self._extents = found

    def partitions(self) -> Sequence[InputPartition]:
        """Stretches of about one size; at segments' borders where they are known."""
        return [stretch for extent in self._extents for stretch in self._stretches(extent)]

    def _stretches(self, extent: Extent) -> Iterator[Stretch]:
        first, last = max(self._asked.from_seq, 1), min(self._asked.to_seq, extent.head)
        if first > last:
            return
        if not self._asked.path:
            for start in range(first, last + 1, PARTITION_SEQS):
                yield Stretch(extent.topic, extent.epoch, start, min(start + PARTITION_SEQS - 1, last))
            return
        size, start = 0, first
        pin = open_pin(self._asked.path)
        topic = pin.topic(extent.topic)
        held = [piece for piece in topic.pieces_of(first, last) if self._may_hold(piece)]
        for index, piece in enumerate(held):
            size += piece.data_bytes
            if size >= PARTITION_BYTES or index == len(held) - 1:
                yield Stretch(extent.topic, extent.epoch, start, min(piece.last_seq, last))
                size, start = 0, piece.last_seq + 1

    def _may_hold(self, piece: Any) -> bool:
        return bool(piece.last_ts >= self._asked.since_ms and piece.first_ts < self._asked.until_ms)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one stretch; none where there was nothing to plan."""
        if partition.value is None:
            return
        asked = self._asked
        topic, epoch, first, last = partition.value
        for batch in gathered(self._batches(topic, epoch, first, last)):
            found = batch
            if asked.since_ms or asked.until_ms < 2**63 - 1:
                stamps = found.column("ts_ms")
                after = pc.greater_equal(stamps, asked.since_ms)
                found = found.filter(pc.and_(after, pc.less(stamps, asked.until_ms)))
            yield exact(found, asked.data_type)

    def _batches(self, topic: str, epoch: int, first: int, last: int) -> Iterator[Any]:
        asked = self._asked
        if asked.path:
            hears = (lambda low, high, path: None) if asked.on_corrupt == "gap" else None
            try:
                pin = open_pin(asked.path)
                yield from pin.topic(topic).batches(first, last, hears)
            except StoreError as error:
                raise LakeError(str(error), "store_damaged", "the option on_corrupt=gap leaves it out") from error
            return

        def lost(low: int, high: int, reason: str) -> None:
            # What was gone before the query began is no loss of this query.
            if reason in ("recreated", "dropped", "corruption") and asked.fail_on_data_loss:
                raise DataLoss(topic, low, high, reason)

        with asked.daemon() as daemon:
            yield from pages(daemon, topic, epoch, first, last, lost)


def exact(batch: Any, data_type: str) -> Any:
    """A batch in exactly the schema that Spark was told."""
    if data_type == "string":
        batch = as_strings(batch)
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema_of(data_type))
