"""The real events: five runs over deletes, a capped topic and a recreated one; pandas, DuckDB and Spark agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine import Engine
from engine.commands import Batch as Writes
from tests.export.pins import SHARED
from tests.extras import extra

extra("pyarrow")
extra("pyspark", "spark")
duckdb = extra("duckdb", "lake")
pandas = extra("pandas", "spark")

from tests.cli.support import ROOT  # noqa: E402 # pyarrow may be missing
from tests.lake.making import export  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import Lake  # noqa: E402 # pyarrow may be missing
from topics_lake.spark import OnSpark  # noqa: E402 # pyarrow may be missing
from topics_lake.verify import verify  # noqa: E402 # pyarrow may be missing

TOPICS = ["all", "capped", "reborn"]
Row = tuple[str, int, int, bytes, int]


def events() -> list[bytes]:
    """The commits of the shared data, else the sample of the repository."""
    path = SHARED / "commits.ndjson"
    return [
        line for line in (path if path.exists() else ROOT / "sample/events.ndjson").read_bytes().splitlines() if line
    ]


def test_five_runs_of_real_events_and_three_engines_agree(spark: Any, tmp_path: Path) -> None:
    lines = events()
    step = max(len(lines) // 5, 1)
    lake, want = tmp_path / "lake", set[Row]()
    lost: list[tuple[str, int, int, int | None, str]] = []
    with Engine(str(tmp_path / "store")) as log:
        log.create("capped", cap_records=step // 2)
        written = dict.fromkeys(TOPICS, 0)
        for run in range(5):
            part = lines[run * step : (run + 1) * step]
            if run == 3:
                head = written["reborn"]
                log.write("reborn", ["never exported"] * 2)
                log.drop("reborn")
                lost.append(("reborn", 3, head + 1, None, "recreated"))
                written["reborn"] = 0
            for topic in TOPICS:
                log._wait(log.core.append(topic, Writes(datas=part)))
                written[topic] += len(part)
            head = written["all"]
            log.delete("all", seqs=[head - 3, head - 2])
            (gap,) = [r["$tombstone"] for r in log.read("capped") if "$tombstone" in r]
            lost.append(("capped", 2, max(gap["gap_from"], written["capped"] - len(part) + 1), gap["gap_to"], "cap"))
            for done in export(log, tmp_path / "store", lake, TOPICS, runner=OnSpark(spark) if run % 2 else None):
                assert done.rows + done.deleted + done.in_gaps == done.last - done.first + 1
                base = written[done.topic] - len(part)
                for r in log.read(done.topic):
                    if "$seq" in r and r["$seq"] > base:
                        want.add((done.topic, done.epoch, r["$seq"], part[r["$seq"] - base - 1], r["$ts"]))
            export(log, tmp_path / "store", lake, TOPICS)
    files = f"'{lake}/**/*.parquet'"
    with duckdb.connect() as db:
        rows = db.sql(f"select topic, epoch, seq, data, epoch_ms(ts), ts_ms from {files}").fetchall()
        gaps = db.sql(f"select topic, first_seq, last_seq, reason from '{lake}.gaps/**/*.parquet'").fetchall()
    assert len(rows) == len(want)
    assert {row[:5] for row in rows} == want
    assert all(row[4] == row[5] for row in rows)
    frame = pandas.read_parquet(lake)
    stamps = frame.ts.astype("int64") // 1000
    columns = (frame.topic.astype(str), frame.epoch, frame.seq, frame.data, stamps)
    assert {(t, int(e), int(s), bytes(d), int(ts)) for t, e, s, d, ts in zip(*columns, strict=True)} == want
    read = spark.read.parquet(str(lake)).selectExpr("topic", "epoch", "seq", "data", "unix_millis(ts)").collect()
    assert {(t, e, s, bytes(d), ts) for t, e, s, d, ts in read} == want
    assert len(frame) == len(read) == len(want)
    assert sorted(gaps, key=str) == sorted(((t, a, b, why) for t, _, a, b, why in lost), key=str)
    checked = list(verify(Lake(str(lake)), TOPICS))
    assert [each.wrong for each in checked] == [[]] * 4
    assert all(each.rows + each.deleted + each.in_gaps == each.last - each.first + 1 for each in checked)
    json.loads(rows[0][3])
