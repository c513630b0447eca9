"""A daemon's topics as a stream, and streams into a topic: each record once, whatever ends and begins again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Daemon
from tests.extras import extra
from tests.waiting import until

extra("pyarrow")
extra("pyspark", "spark")

from topics_lake import pages  # noqa: E402 # pyarrow may be missing
from topics_lake.client import Daemon as Client  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.options import Options, read_options  # noqa: E402 # pyarrow may be missing
from topics_lake.pages import DataLoss  # noqa: E402 # pyarrow may be missing

PATIENCE_S = 240


def write(daemon: Daemon, topic: str, first: int, count: int) -> None:
    with Client(daemon.socket) as client:
        for start in range(first, first + count, 5000):
            stop = min(start + 5000, first + count)
            client.call("POST", f"/v0/topics/{topic}", {"records": [{"data": n} for n in range(start, stop)]})


def stored(daemon: Daemon, topic: str) -> list[dict[str, Any]]:
    found = daemon.ok("tail", topic, "--from", "0", "-o", "ndjson")
    return [json.loads(line) for line in found.splitlines()]


def ended(start: Callable[[], Any]) -> None:
    """Run a query that ends by itself; again where this machine was too busy to start a Python worker in time."""
    for _ in range(10):
        try:
            assert start().awaitTermination(PATIENCE_S)
            return
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("no worker of Python starts in time")


class Query:
    """A stream of a topic into a directory of Parquet files, one for each batch, written again when a batch is."""

    def __init__(self, spark: Any, daemon: Daemon, topic: str, directory: Path, **options: str) -> None:
        self.directory = directory
        out = directory / "out"

        def keep(frame: Any, number: int) -> None:
            frame.write.mode("overwrite").parquet(str(out / f"b{number}"))

        read = spark.readStream.format("topics").options(socket=daemon.socket, topics=topic, **options)
        self.writer = read.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(directory / "state"))

    def rows(self, spark: Any) -> list[int]:
        found = [str(path) for path in (self.directory / "out").glob("b*") if (path / "_SUCCESS").exists()]
        if not found:
            return []
        return sorted(int(row.data) for row in spark.read.parquet(*found).select("data").collect())


def test_each_record_is_delivered_once_over_stops_and_restarts(spark: Any, daemon: Daemon, tmp_path: Path) -> None:
    write(daemon, "flow", 0, 15_000)
    query = Query(spark, daemon, "flow", tmp_path, maxRowsPerTrigger="4000")
    running = query.writer.start()
    until(lambda: running.lastProgress is not None or running.exception() is not None, within_s=PATIENCE_S)
    assert running.exception() is None
    running.stop()
    write(daemon, "flow", 15_000, 5_000)
    ended(Query(spark, daemon, "flow", tmp_path, maxRowsPerTrigger="4000").writer.trigger(availableNow=True).start)
    assert query.rows(spark) == list(range(20_000))
    batches = [spark.read.parquet(str(path)).count() for path in (tmp_path / "out").iterdir()]
    assert max(batches) <= 4000


def test_a_loss_fails_the_query_or_is_read_past(spark: Any, daemon: Daemon, tmp_path: Path) -> None:
    daemon.run("create", "narrow", "--cap-records", "100")
    write(daemon, "narrow", 0, 50)
    ended(Query(spark, daemon, "narrow", tmp_path).writer.trigger(availableNow=True).start)
    write(daemon, "narrow", 50, 300)
    with pytest.raises(Exception, match="seqs 51-250 are lost: cap"):
        ended(Query(spark, daemon, "narrow", tmp_path).writer.trigger(availableNow=True).start)
    query = Query(spark, daemon, "narrow", tmp_path, failOnDataLoss="false")
    ended(query.writer.trigger(availableNow=True).start)
    assert query.rows(spark) == [*range(50), *range(250, 350)]


def now(spark: Any, daemon: Daemon, topic: str, directory: Path, **options: str) -> list[int]:
    """Run a query over what there is; all that it has given so far."""
    query = Query(spark, daemon, topic, directory, **options)
    ended(query.writer.trigger(availableNow=True).start)
    return query.rows(spark)


def test_a_topic_that_was_made_again_fails_the_query_or_is_read_from_its_begin(
    spark: Any, daemon: Daemon, tmp_path: Path
) -> None:
    write(daemon, "again", 0, 30)
    assert now(spark, daemon, "again", tmp_path) == list(range(30))
    write(daemon, "again", 30, 5)
    daemon.run("drop", "again", "--yes")
    write(daemon, "again", 100, 7)
    for _ in range(2):
        with pytest.raises(Exception, match="'again', seqs 31-31 are lost: recreated"):
            now(spark, daemon, "again", tmp_path)
    assert now(spark, daemon, "again", tmp_path, failOnDataLoss="false") == [*range(30), *range(100, 107)]
    write(daemon, "again", 107, 3)
    assert now(spark, daemon, "again", tmp_path) == [*range(30), *range(100, 110)]


def test_a_topic_that_was_dropped_fails_the_query_or_is_told_once(spark: Any, daemon: Daemon, tmp_path: Path) -> None:
    write(daemon, "gone.a", 0, 10)
    write(daemon, "gone.b", 10, 10)
    assert now(spark, daemon, "gone.*", tmp_path) == list(range(20))
    daemon.run("drop", "gone.a", "--yes")
    write(daemon, "gone.b", 20, 5)
    for _ in range(2):
        with pytest.raises(Exception, match=r"'gone\.a', seqs 11-11 are lost: dropped"):
            now(spark, daemon, "gone.*", tmp_path)
    assert now(spark, daemon, "gone.*", tmp_path, failOnDataLoss="false") == list(range(25))
    # That loss is behind it: whoever comes with this name is new.
    write(daemon, "gone.a", 25, 5)
    assert now(spark, daemon, "gone.*", tmp_path) == list(range(30))


def options(daemon: Daemon, topic: str, **more: str) -> Options:
    return read_options({"socket": daemon.socket, "topics": topic, **more})


def test_offsets_say_how_far_and_recreated_and_dropped_topics_are_losses(daemon: Daemon) -> None:
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    from topics_lake import stream

    write(daemon, "o.a", 0, 10)
    write(daemon, "o.b", 0, 10)
    reader = stream.TopicsStream(options(daemon, "o.*"))
    start = reader.initialOffset()
    write(daemon, "o.a", 10, 5)
    assert reader.initialOffset() == start
    latest = stream.TopicsStream(options(daemon, "o.*", startingOffsets="latest"))
    assert {name: at["seq"] for name, at in latest.initialOffset().items()} == {"o.a": 15, "o.b": 10}
    reader.prepareForTriggerAvailableNow()
    write(daemon, "o.a", 15, 5)
    end = reader.latestOffset(start, ReadMaxRows(20))
    assert {name: at["seq"] for name, at in end.items()} == {"o.a": 15, "o.b": 5}
    assert reader.latestOffset(end, ReadAllAvailable())["o.b"]["seq"] == 10
    assert reader.partitions(end, end) == []
    assert list(reader.read(InputPartition(None))) == []
    daemon.run("drop", "o.a", "--yes")
    fresh = stream.TopicsStream(options(daemon, "o.*"))
    with pytest.raises(DataLoss, match="dropped"):
        fresh.latestOffset(end, ReadAllAvailable())
    write(daemon, "o.a", 0, 3)
    fresh = stream.TopicsStream(options(daemon, "o.*"))
    after = fresh.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLoss, match="recreated"):
        fresh.partitions(end, after)
    lax = stream.TopicsStream(options(daemon, "o.a", failOnDataLoss="false"))
    (part,) = lax.partitions({"o.a": end["o.a"]}, {"o.a": after["o.a"]})
    assert sum(batch.num_rows for batch in lax.read(part)) == 3


def test_an_idle_query_does_not_ask_the_daemon_all_the_time(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from topics_lake import stream

    write(daemon, "idle", 0, 1)
    asked: list[str] = []

    def noted(client: Client, topic: str) -> pages.State | None:
        asked.append(topic)
        return pages.state_of(client, topic)

    monkeypatch.setattr(stream, "state_of", noted)
    monkeypatch.setattr(stream, "HEADS_S", 1000.0)
    reader = stream.TopicsStream(options(daemon, "idle"))
    start = reader.initialOffset()
    for _ in range(50):
        reader.latestOffset(start, ReadAllAvailable())
    assert len(asked) == 1


def test_a_frame_is_written_once_and_in_the_order_of_its_partitions(spark: Any, daemon: Daemon) -> None:
    frame = spark.range(0, 5000, 1, 2).selectExpr(
        "cast(id as string) as data", "concat('t', id % 3) as tag", "spark_partition_id() as part"
    )
    write_ = frame.drop("part").write.format("topics").mode("append")
    for _ in range(2):
        write_.options(socket=daemon.socket, topics="sink", query_id="once", chunk_rows="700").save()
    found = stored(daemon, "sink")
    assert sorted(record["data"] for record in found) == list(range(5000))
    assert all(record["$tag"] == f"t{record['data'] % 3}" for record in found)
    for low, high in ((0, 2500), (2500, 5000)):
        part = [record["data"] for record in found if low <= record["data"] < high]
        assert part == sorted(part)


@pytest.mark.parametrize(
    ("sql", "mode", "message"),
    [
        ("cast(id as string) as data, id", "append", "what can be written is"),
        ("cast(id as string) as data", "overwrite", "never overwritten"),
        ("cast(null as string) as data", "append", "a row has no data"),
        ("'1},{\"data\":2' as data", "append", "no JSON|more than one"),
        ('\'1,"tag":"x"\' as data', "append", "no JSON|more than one"),
    ],
)
def test_what_is_no_record_is_refused(spark: Any, daemon: Daemon, sql: str, mode: str, message: str) -> None:
    frame = spark.sql(f"select {sql} from range(2)")
    with pytest.raises(Exception, match=message):
        frame.write.format("topics").mode(mode).options(socket=daemon.socket, topics="refused").save()


def test_a_sink_whose_topic_forgets_keys_too_soon_is_refused(daemon: Daemon) -> None:
    from pyspark.sql.types import StringType, StructType

    from topics_lake.sink import TopicsWriter

    daemon.run("create", "forgetful")
    with pytest.raises(LakeError, match="too short"):
        TopicsWriter(options(daemon, "forgetful"), StructType().add("data", StringType()), False)


def test_a_streaming_sink_that_is_run_again_writes_nothing_twice(spark: Any, daemon: Daemon, tmp_path: Path) -> None:
    write(daemon, "in", 0, 2000)

    def run() -> None:
        frame = spark.readStream.format("topics").options(socket=daemon.socket, topics="in", data_type="string").load()
        out = frame.select("data", "tag").writeStream.format("topics").options(socket=daemon.socket, topics="out")
        ended(out.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start)

    run()
    # What a kill between writing and committing leaves: the batch was planned, and is not known to be done.
    for path in (tmp_path / "commits").iterdir():
        path.unlink()
    write(daemon, "in", 2000, 500)
    run()
    assert sorted(record["data"] for record in stored(daemon, "out")) == list(range(2500))
