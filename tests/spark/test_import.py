"""Files into a topic: every form that an export writes comes back byte for byte, and nothing comes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.commands import Batch
from tests.cli.support import HARD, Daemon
from tests.extras import extra

pa = extra("pyarrow")
extra("pyspark", "spark")

import pyarrow.parquet as pq  # noqa: E402 # pyarrow may be missing

from tests.lake.making import LONG, export  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.imports import import_files  # noqa: E402 # pyarrow may be missing
from topics_lake.sink import chunks_of  # noqa: E402 # pyarrow may be missing


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_what_was_exported_comes_back_byte_for_byte_once(spark: Any, daemon: Daemon, tmp_path: Path, form: str) -> None:
    values = [*HARD, LONG, b"1"]
    with Engine(str(tmp_path / "store")) as log:
        log._wait(log.core.append("hard", Batch(datas=values, tags=['a "tag", \n'] * len(values))))
        export(log, tmp_path / "store", tmp_path / "lake", ["hard"], format=form)
    for _ in range(2):
        done = import_files(
            spark, [str(tmp_path / "lake")], form, f"back-{form}", daemon.socket, "", data="data", tag="tag"
        )
        assert (done.rows, done.files) == (len(values), 1)
    assert daemon.ok("tail", f"back-{form}", "--from", "0", "-o", "raw").splitlines() == values


def test_rows_without_a_data_column_become_objects_and_what_does_not_fit_is_named(
    spark: Any, daemon: Daemon, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_text("name,age\nÅsa,41\nBo,7\n", encoding="utf-8")
    import_files(spark, [str(path)], "csv", "people", daemon.socket, "")
    assert daemon.ok("tail", "people", "--from", "0", "-o", "raw").splitlines() == [
        '{"name":"Åsa","age":41}'.encode(),
        b'{"name":"Bo","age":7}',
    ]
    with pytest.raises(LakeError, match="no column 'body'"):
        import_files(spark, [str(path)], "csv", "people", daemon.socket, "", data="body")
    with pytest.raises(LakeError, match="no parquet files"):
        import_files(spark, [str(tmp_path)], "parquet", "people", daemon.socket, "")
    (tmp_path / "bad.ndjson").write_bytes(b'{"a":1}\n{"a":\n')
    with pytest.raises(LakeError, match=r"no JSON"):
        import_files(spark, [str(tmp_path / "bad.ndjson")], "json", "people", daemon.socket, "")


def test_values_of_parquet_keep_their_digits_and_what_json_cannot_say_is_named(
    spark: Any, daemon: Daemon, tmp_path: Path
) -> None:
    columns: dict[str, Any] = {
        "at": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC")),
        "took": pa.array([1_500_000_001], pa.duration("ns")),
        "big": pa.array([2**64 - 1], pa.uint64()),
        "none": pa.array([float("nan")]),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    import_files(spark, [str(path)], "parquet", "values", daemon.socket, "")
    assert daemon.ok("tail", "values", "--from", "0", "-o", "raw") == (
        b'{"at":"2023-11-14T22:13:20.123456789+00:00","took":"P0DT0H0M1.500000001S","big":18446744073709551615,"none":null}\n'
    )
    pq.write_table(pa.table({"day": pa.array([2_932_897], pa.date32())}), path)
    with pytest.raises(LakeError, match=r"a\.parquet: date value out of range"):
        import_files(spark, [str(path)], "parquet", "values", daemon.socket, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [("name\nÅsa\n".encode("latin-1"), "is not UTF-8"), (b"a,b,a\n1,2,3\n", "two columns of one name")],
)
def test_no_text_becomes_base64_and_no_column_is_dropped(
    spark: Any, daemon: Daemon, tmp_path: Path, text: bytes, message: str
) -> None:
    (tmp_path / "people.csv").write_bytes(text)
    with pytest.raises(LakeError, match=message):
        import_files(spark, [str(tmp_path)], "csv", "strangers", daemon.socket, "")
    assert daemon.ok("tail", "strangers", "--from", "0", "-o", "raw") == b""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"data": b'1,"data":2'}, "no JSON value"),
        ({"data": b'1,"tag":"mine"', "tag": "yours"}, "no JSON value"),
        ({"data": b"1", "meta": b'{},"data":2'}, "meta is no JSON value"),
        ({"data": b"[" * 100_000 + b"]" * 100_000}, "nests too deep"),
        ({"data": 7}, "data is no text: 7"),
        ({"data": None}, "has no data"),
    ],
)
def test_what_is_not_one_value_does_not_break_out_of_its_record(row: dict[str, Any], message: str) -> None:
    with pytest.raises(LakeError, match=message):
        list(chunks_of(iter([pa.RecordBatch.from_pylist([row])]), 10))


def test_spaces_and_halves_of_characters_stay_as_they_came() -> None:
    rows = [{"data": b" 1.10 "}, {"data": b'"\\ud83d"'}]
    (chunk,) = chunks_of(iter([pa.RecordBatch.from_pylist(rows)]), 10)
    assert chunk == [b'{"data": 1.10 }', b'{"data":"\\ud83d"}']
