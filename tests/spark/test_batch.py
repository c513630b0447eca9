"""Spark reads pins and daemons, and exports with the same protocol as everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.cli.support import Daemon
from tests.export.pins import pin_path
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")

from tests.lake.making import export, plain  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.export import Settings, Task  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import Lake  # noqa: E402 # pyarrow may be missing
from topics_lake.spark import OnSpark  # noqa: E402 # pyarrow may be missing


def rows(frame: Any) -> list[Any]:
    return [tuple(row) for row in frame.orderBy("topic", "seq").select("topic", "seq", "data", "tag").collect()]


def test_a_pin_is_read_with_filters_types_and_bounds(spark: Any, tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        for n in range(40):
            log.write("shop.a", [{"n": n, "price": 1.10}] * 50, tag=f"t{n % 2}")
        log.write("shop.b", ["ü"])
        log.write("other", [1])
        log.delete("shop.a", seqs=[7, 8])
        path = pin_path(log, str(tmp_path))

        def read(**options: str) -> Any:
            return spark.read.format("topics").options(path=path, Topics="shop.*", **options).load()

        frame = read()
        assert frame.dtypes == [
            ("topic", "string"),
            ("epoch", "bigint"),
            ("seq", "bigint"),
            ("ts", "timestamp"),
            ("ts_ms", "bigint"),
            ("node", "string"),
            ("tag", "string"),
            ("meta", "string"),
            ("data", "binary"),
        ]
        assert frame.count() == 1999
        assert rows(frame.where("topic = 'shop.b'")) == [("shop.b", 1, bytearray('"ü"'.encode()), None)]
        assert [r.seq for r in frame.where("topic = 'shop.a' and seq > 5 and seq <= 10").orderBy("seq").collect()] == [
            6,
            9,
            10,
        ]
        assert frame.where("tag = 't1' and seq in (60, 51, 2000, 2001)").count() == 3
        assert frame.where("topic = 'nobody'").count() == 0
        text = read(data_type="string", from_seq="1999")
        assert [r.data for r in text.collect()] == ['{"n":39,"price":1.1}'] * 2
        # Spark would keep for this query what a source had left out for the ones before.
        assert frame.selectExpr("count(*)", "bool_and(unix_millis(ts) = ts_ms)").collect() == [(1999, True)]
        (first,) = frame.where("topic = 'shop.b'").collect()
        assert read(since=str(first.ts_ms + 1)).count() == 0
        assert read(until=str(first.ts_ms + 1), to_seq="10").count() == 9


def test_a_running_daemon_is_read_up_to_where_it_was(spark: Any, daemon: Daemon) -> None:
    daemon.run("write", "live", *(f"word {n}" for n in range(300)), "--tag", "t", "--node", "n", "--meta", "k=v")
    daemon.run("delete", "live", "--seq", "5", "--yes")
    frame = spark.read.format("topics").option("socket", daemon.socket).option("topics", "live").load()
    daemon.run("write", "live", "later")
    found = frame.orderBy("seq").collect()
    assert [row.seq for row in found] == [seq for seq in range(1, 301) if seq != 5]
    assert found[3].data == b'"word 3"'
    assert (found[0].data, found[0].tag, found[0].node, found[0].meta) == (b'"word 0"', "t", "n", '{"k":"v"}')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "t"}, "exactly one of the options"),
        ({"path": "/nowhere", "topics": "t"}, "No such file"),
        ({"url": "http://127.0.0.1:1"}, "topics says which"),
        ({"path": "/nowhere", "topics": "t", "form_seq": "1"}, "no option 'form_seq'"),
        ({"path": "/nowhere", "topics": "t", "from_seq": "x"}, "is a number"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(spark: Any, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        spark.read.format("topics").options(**options).load().count()


def test_damage_is_named_or_left_out(spark: Any, tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.write("t", [{"value": n} for n in range(100)])
        path = pin_path(log, str(tmp_path))
        data = next(Path(path).rglob("*.data"))
        content = bytearray(data.read_bytes())
        content[content.index(b'"value":41}')] ^= 1
        data.write_bytes(content)
        read = spark.read.format("topics").options(path=path, topics="t")
        with pytest.raises(Exception, match=r"'t', seq 42: damaged in meta/tails-"):
            read.load().collect()
        assert read.option("on_corrupt", "gap").load().count() == 99
        with pytest.raises(LakeError, match=r"'t', seq 42: damaged"):
            export(log, tmp_path, tmp_path / "lake", ["t"], runner=OnSpark(spark))


def test_what_the_system_refuses_a_task_is_said_in_a_line(spark: Any, tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.write("t", [1, 2, 3])
        path = pin_path(log, str(tmp_path))
    task = Task(
        pin=path, topic="t", first=1, last=3, number=0, attempts=str(tmp_path / "gone" / "run"), settings=Settings()
    )
    with pytest.raises(LakeError, match=r"/gone/run/part-00000-\w+\.parquet: No such file"):
        list(OnSpark(spark).run([task]))


def test_an_export_on_spark_is_one_batch_and_plain_spark_reads_it(spark: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        for _ in range(3):
            log.write("t", [{"n": n} for n in range(9000)])
            log._wait(log.core.checkpoint())
        (done,) = export(log, tmp_path / "store", lake, ["t"], runner=OnSpark(spark), task_bytes=1)
        assert (done.rows, done.files > 1) == (27_000, True)
        log.write("t", [1])
        export(log, tmp_path / "store", lake, ["t"], runner=OnSpark(spark))
    frame = spark.read.parquet(str(lake))
    assert (frame.count(), frame.select("seq").distinct().count()) == (27_001, 27_001)
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"t"}
    assert [seq for _, seq, _ in plain(lake)] == list(range(1, 27_002))
    assert [first for _, first in Lake(str(lake)).starts("t")] == [1, 27_001]
