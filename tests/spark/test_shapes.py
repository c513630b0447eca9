"""Typed columns beside the raw ones, and queries: nothing that does not fit is dropped, and every count is right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.commands import Batch as Writes
from tests.cli.support import HARD
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")
duckdb = extra("duckdb", "lake")

from tests.lake.making import export, export_pin, new_pin, plain  # noqa: E402 # pyarrow may be missing
from topics_lake.compact import Plan, compact  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.export import TopicDone  # noqa: E402 # pyarrow may be missing
from topics_lake.frames import OnFrames  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import BATCH_FILE, Lake  # noqa: E402 # pyarrow may be missing
from topics_lake.verify import verify  # noqa: E402 # pyarrow may be missing

CLICKS = [b'{"page":"/a","ms":120,"tag":"x"}', b'{"page":"/b","ms":1.10,"tag":"y"}', b'{"page":"/c","ms":7}']
ODD = [b"[1]", b'"text"', b"null", b'{"ms":"many"}', b'[{"ms":5}]', b'{"page":"/d","ms":99999999999999999999}']


def shaped(spark: Any, log: Engine, root: Path, lake: Path, *, said: list[str] | None = None, **how: Any) -> TopicDone:
    names = {name: how.pop(name) for name in ("select", "schema") if name in how}
    runner = OnFrames(spark, Lake(str(lake)), say=(said if said is not None else []).append, **names)
    (done,) = export(log, root, lake, ["t"], runner=runner, **how)
    return done


def write(log: Engine, datas: list[bytes]) -> None:
    log._wait(log.core.append("t", Writes(datas=datas)))


def sql(text: str) -> list[Any]:
    with duckdb.connect() as db:
        return list(db.sql(text).fetchall())


def wrong(lake: Path) -> list[str]:
    return [line for checked in verify(Lake(str(lake)), ["t"]) for line in checked.wrong]


def test_typed_columns_stand_beside_data_and_what_does_not_fit_stays_and_is_counted(spark: Any, tmp_path: Path) -> None:
    lake, ddl = tmp_path / "lake", tmp_path / "ddl"
    ddl.write_text("page string, ms bigint, tag string")
    with Engine(str(tmp_path / "store")) as log:
        write(log, [*CLICKS, *ODD, *HARD])
        log.delete("t", seqs=[3])
        done = shaped(spark, log, tmp_path / "store", lake, schema=str(ddl))
    fitting = [json.loads(data) for data in HARD if data.lstrip().startswith(b"{")]
    assert (done.rows, done.deleted, done.misfits) == (8 + len(HARD), 1, 7 + len(HARD) - len(fitting))
    assert [data for _, _, data in plain(lake)] == [*CLICKS[:2], *ODD, *HARD]
    files = f"'{lake}/**/*.parquet'"
    assert sql(f"select page, ms, data_tag, tag from {files} where seq <= 9 order by seq") == [
        ("/a", 120, "x", None),
        ("/b", None, "y", None),
        *[(None, None, None, None)] * 5,
        ("/d", None, None, None),
    ]
    assert wrong(lake) == []


def test_a_guess_is_shown_once_and_holds_for_the_batches_that_follow(spark: Any, tmp_path: Path) -> None:
    lake, said = tmp_path / "lake", list[str]()
    with Engine(str(tmp_path / "store")) as log:
        write(log, [b'{"a":1,"A":2,"b":{"c":[1.5]}}', b"3"])
        assert shaped(spark, log, tmp_path / "store", lake, schema="infer", said=said).misfits == 1
        write(log, [b'{"A":"now a text","new":1}'])
        assert shaped(spark, log, tmp_path / "store", lake, schema="infer", said=said).misfits == 1
        assert "guessed" in said[0]
        assert "b:struct<c:array<double>>" in said[0]
        assert said[1].endswith(said[0].partition("records: ")[2])
        place = Lake(str(lake))
        with place.turn():
            assert compact(place, "t", Plan()).batches == 1
    assert sql(f"select seq, b.c from '{lake}/**/*.parquet' order by seq") == [(1, [1.5]), (2, None), (3, None)]
    (start,) = place.starts("t")
    assert place.batch("t", *start).misfits == 2
    assert wrong(lake) == []


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_a_query_gives_rows_of_its_own_and_the_batch_adds_up(spark: Any, tmp_path: Path, form: str) -> None:
    lake, ddl = tmp_path / "lake", tmp_path / "ddl"
    ddl.write_text(json.dumps({"type": "struct", "fields": [
        {"name": "page", "type": "string", "nullable": True, "metadata": {}},
        {"name": "ms", "type": "double", "nullable": True, "metadata": {}},
    ]}))  # fmt: skip
    query = "select page, count(*) as n, struct(max(ms) as ms) as most, max(ts_ms) as ts_ms from records group by page"
    with Engine(str(tmp_path / "store")) as log:
        for _ in range(2):
            write(log, CLICKS * 50)
            done = shaped(
                spark, log, tmp_path / "store", lake, select=query, schema=str(ddl), format=form, partition_by="date"
            )
            assert (done.rows, done.last - done.first + 1) == (150, 150)
    place = Lake(str(lake))
    for _ in range(2):
        batches = [place.batch("t", *start) for start in place.starts("t")]
        assert all(batch.transformed and batch.adds_up for batch in batches)
        assert sum(file.rows for batch in batches for file in batch.files) == 6
        assert wrong(lake) == []
        ending = {"parquet": "parquet", "json": "ndjson", "csv": "csv"}[form]
        read = {"parquet": "read_parquet", "json": "read_json", "csv": "read_csv"}[form]
        rows = sql(f"select page, n, most from {read}('{lake}/*/*/date=*/*.{ending}') order by page")
        most = {"csv": lambda ms: json.dumps({"ms": ms}, separators=(",", ":"))}.get(form, lambda ms: {"ms": ms})
        assert rows == [(page, 50, most(ms)) for page, ms in (("/a", 120.0), ("/b", 1.1), ("/c", 7.0)) for _ in "12"]
        with place.turn():
            compact(place, "t", Plan())


def test_a_query_may_leave_all_rows_out(spark: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        write(log, CLICKS)
        done = shaped(spark, log, tmp_path / "store", lake, select="select * from records where seq > 100")
        assert (done.rows, done.files) == (3, 0)
        write(log, CLICKS)
        assert shaped(spark, log, tmp_path / "store", lake, select="select seq from records").first == 4
    assert sql(f"select seq from '{lake}/**/*.parquet' order by seq") == [(4,), (5,), (6,)]
    assert wrong(lake) == []


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"select": "select nothing from records"}, "Spark refuses this"),
        ({"select": "selec"}, "Spark refuses this"),
        ({"select": "select 1 as one"}, "does not read the table records exactly once"),
        ({"select": "select a.seq from records a join records b using (seq)"}, "exactly once"),
        ({"select": "select seq from records limit 1"}, "does not add up"),
        ({"select": "select seq from records", "partition_by": "date"}, "needs the column ts_ms"),
        ({"select": "select seq from records", "on_corrupt": "gap"}, "does not go with --select"),
        ({"schema": "/nowhere"}, "has no schema"),
        ({"select": "select cast(decode(data, 'UTF-8') as int) as n from records"}, r"Spark failed: \[CAST_INVALID"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_committed(
    spark: Any, tmp_path: Path, how: dict[str, Any], message: str
) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        write(log, CLICKS)
        with pytest.raises(LakeError, match=message):
            shaped(spark, log, tmp_path / "store", lake, **how)
    assert list(lake.rglob("*")) == []
    assert os.listdir(f"{lake}.staging") == ["LOCK"]


def test_damage_is_said_in_a_line(spark: Any, tmp_path: Path) -> None:
    with Engine(str(tmp_path / "store")) as log:
        write(log, CLICKS)
        path = new_pin(log, tmp_path / "store")
    data = next(Path(path).rglob("*.data"))
    content = bytearray(data.read_bytes())
    content[content.index(CLICKS[1])] ^= 1
    data.write_bytes(content)
    lake = tmp_path / "lake"
    with pytest.raises(LakeError, match=r"^topic 't', seq 2: damaged in meta/tails-") as error:
        export_pin(path, lake, ["t"], runner=OnFrames(spark, Lake(str(lake)), schema="infer"))
    assert error.value.code == "store_damaged"


class Kept:
    """The session of these tests, which no command stops."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "stop" else getattr(self._spark, name)


def test_the_command_takes_a_schema_and_a_query(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from topics_cli.app import main
    from topics_cli.commands import spark as command

    monkeypatch.setattr(command, "_spark", lambda *_: Kept(spark))
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        write(log, [*CLICKS, b"5"])
    words = ["spark-export", "t", "--to", str(lake), "--dir", str(tmp_path / "store"), "--schema", "infer"]
    assert main([*words, "--dry-run"]) == 0
    assert not lake.exists()
    assert main([*words, "--select", "select page from records"]) == 0
    assert sorted(sql(f"select page from '{lake}/**/*.parquet'"), key=str) == [("/a",), ("/b",), ("/c",), (None,)]
    (path,) = lake.rglob(BATCH_FILE)
    assert json.loads(path.read_bytes())["misfits"] == 1
