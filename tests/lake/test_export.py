"""Exports into a lake: everything once, what is missing is visible, and plain readers never see anything else."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.commands import Batch as Writes
from tests.cli.support import HARD
from tests.export.pins import SHARED
from tests.extras import extra

extra("pyarrow")
duckdb = extra("duckdb", "lake")
pandas = extra("pandas", "spark")

import pyarrow.parquet as pq  # noqa: E402 # pyarrow may be missing

from tests.lake.making import export, export_pin, new_pin, plain  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.export import Here, Task, TaskDone  # noqa: E402 # pyarrow may be missing
from topics_lake.files import FileWriter  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import Lake  # noqa: E402 # pyarrow may be missing

pytestmark = pytest.mark.slow
STEPS = ("tasks", "files", "manifest", "commit", "gaps", "end")


def lived(log: Engine) -> None:
    """A topic with a deleted front, deletes in the middle, and a capped one."""
    log.create("events", cap_records=400)
    for start in range(0, 600, 60):
        log.write("events", [{"n": n} for n in range(start, start + 60)], tag="t", node="n")
    log.delete("events", seqs=[250, 251, 300, 600])


def want(log: Engine, topic: str) -> list[tuple[int, bytes]]:
    return [(r["$seq"], json.dumps(r["data"], separators=(",", ":")).encode()) for r in log.read(topic) if "$seq" in r]


def test_five_runs_while_writing_goes_on_give_every_record_once(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        lived(log)
        expected: list[tuple[int, bytes]] = []
        for run in range(5):
            known = {seq for seq, _ in expected}
            expected += [row for row in want(log, "events") if row[0] not in known]
            (done,) = export(log, tmp_path / "store", lake, ["events"])
            assert done.rows + done.deleted + done.in_gaps == done.last - done.first + 1
            log.write("events", [{"run": run, "n": n} for n in range(37)])
            log.delete("events", seqs=[done.last + 3])
        rows = plain(lake)
        assert [(seq, data) for _, seq, data in rows] == sorted(expected)
        assert (export(log, tmp_path / "store", lake, ["events"])[0].rows, len(plain(lake))) == (36, len(rows) + 36)
        assert export(log, tmp_path / "store", lake, ["events"])[0].batch is None


def test_gaps_are_a_table_and_add_up(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        lived(log)
        (done,) = export(log, tmp_path / "store", lake, ["events"])
        tombstones = [r["$tombstone"] for r in log.read("events") if "$tombstone" in r]
    gaps = duckdb.sql(f"select first_seq, last_seq, reason from '{lake}.gaps/**/*.parquet'").fetchall()
    assert gaps == [(t["gap_from"], t["gap_to"], t["reason"]) for t in tombstones] == [(1, 200, "cap")]
    assert (done.rows, done.deleted, done.in_gaps) == (396, 4, 200)


def test_pandas_pyarrow_and_duckdb_agree_on_a_plain_listing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        lived(log)
        log.write("007", [1, 2])
        export(log, tmp_path / "store", lake, ["events", "007"])
        stamp = next(r["$ts"] for r in log.read("007"))
    frame = pandas.read_parquet(lake)
    rows = duckdb.sql(
        f"select topic, seq, data, epoch_ms(ts) from '{lake}/**/*.parquet' order by topic, seq"
    ).fetchall()
    assert len(frame) == len(rows) == 398
    assert {(str(t), s, bytes(d)) for t, s, d in zip(frame.topic, frame.seq, frame.data, strict=True)} >= {
        (t, s, d) for t, s, d, _ in rows if t == "events"
    }
    assert [row[3] for row in rows if row[0] in ("007", "7", 7)] == [stamp, stamp]
    assert (frame.ts.astype("int64") // 1000 == frame.ts_ms).all()
    assert str(frame.ts.dtype) == "datetime64[us, UTC]"


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_every_byte_survives_every_format(tmp_path: Path, form: str) -> None:
    lines = (SHARED / "hard.ndjson").read_bytes().splitlines() if SHARED.exists() else []
    values = [*HARD, *[line for line in lines if line.strip()], b'"' + b"z" * 1_000_000 + b'"']
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log._wait(log.core.append("hard", Writes(datas=values, tags=['"quoted", \n'] * len(values))))
        export(log, tmp_path / "store", lake, ["hard"], format=form)
    assert [data for _, _, data in plain(lake, form)] == values
    if form == "csv":
        frame = pandas.concat(pandas.read_csv(path, keep_default_na=False) for path in lake.rglob("*.csv"))
        assert [data.encode() for data in frame.data] == values
        assert set(frame.tag) == {'"quoted", \n'}


def test_a_recreated_topic_goes_on_in_a_new_epoch_and_what_was_lost_is_a_gap(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2, 3])
        export(log, tmp_path / "store", lake, ["t"])
        log.write("t", [4, 5])
        log.drop("t")
        log.write("t", [6])
        (done,) = export(log, tmp_path / "store", lake, ["t"])
    assert [(gap.first, gap.last, gap.reason) for gap in done.gaps] == [(4, None, "recreated")]
    assert [row[1:] for row in plain(lake)] == [(1, b"1"), (2, b"2"), (3, b"3"), (1, b"6")]


def test_a_range_without_rows_makes_no_batch_and_is_in_the_next_one(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2, 3])
        export(log, tmp_path / "store", lake, ["t"])
        log.write("t", [4, 5])
        log.delete("t", seqs=[4, 5])
        (empty,) = export(log, tmp_path / "store", lake, ["t"])
        assert (empty.batch, empty.first, empty.last) == (None, 4, 5)
        log.write("t", [6])
        (done,) = export(log, tmp_path / "store", lake, ["t"])
        assert (done.first, done.last, done.rows, done.deleted) == (4, 6, 1, 2)
        log.write("t", [7])
        log.delete("t", seqs=[7])
        export(log, tmp_path / "store", lake, ["t"])
        log.drop("t")
        log.write("t", [1])
        (again,) = export(log, tmp_path / "store", lake, ["t"])
        assert [(gap.first, gap.last, gap.reason) for gap in again.gaps] == [(7, 7, "recreated")]


class Died(Exception):
    """A run ends here."""


@pytest.mark.parametrize("at", STEPS)
def test_a_run_that_dies_anywhere_is_made_good_by_the_next(tmp_path: Path, at: str) -> None:
    lake = tmp_path / "lake"

    def step(name: str) -> None:
        if name == at:
            raise Died

    with Engine(str(tmp_path / "store")) as log:
        lived(log)
        whole = want(log, "events")
        export(log, tmp_path / "store", lake, ["events"], max_rows=150)
        before = plain(lake)
        path = new_pin(log, tmp_path / "store")
        with pytest.raises(Died):
            export_pin(path, lake, ["events"], step=step)
        after = plain(lake)
        assert after == before if at in STEPS[:4] else [row[1:] for row in after] == whole
        # A killed process leaves its staging behind.
        dead = Path(f"{lake}.staging/run-dead/events.batch")
        dead.mkdir(parents=True)
        (dead / "part-00000-dead.parquet").write_bytes(b"cut sho")
        export(log, tmp_path / "store", lake, ["events"])
        assert [row[1:] for row in plain(lake)] == whole
        assert sorted(os.listdir(f"{lake}.staging")) == ["LOCK"]
        epoch = log.core.state("events").epoch
        assert Lake(str(lake)).starts("events") == [(epoch, 1), (epoch, 354)]
        assert len(list(Path(f"{lake}.gaps").rglob("*.parquet"))) == 1


def test_a_reader_that_never_stops_sees_only_whole_batches(tmp_path: Path) -> None:
    lake, seen, stop = tmp_path / "lake", [0], threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            rows = plain(lake)
            seqs = [seq for _, seq, _ in rows]
            if seqs != list(range(1, len(seqs) + 1)) or len(seqs) % 50 or len(seqs) < seen[0]:
                wrong.append(seqs)
            seen[0] = len(seqs)

    reader = threading.Thread(target=read)
    with Engine(str(tmp_path / "store")) as log:
        reader.start()
        for _ in range(8):
            log.write("t", list(range(50)))
            export(log, tmp_path / "store", lake, ["t"])
        while seen[0] < 400 and not wrong:
            assert reader.is_alive()
        stop.set()
        reader.join()
    assert not wrong


def test_the_position_and_the_pin_decide_whatever_happens_meanwhile(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        lived(log)
        path = new_pin(log, tmp_path / "store")
        whole = want(log, "events")
        log.delete("events", before_seq=500)
        log.create("events", cap_records=10)
        log.drop("events")
        log._wait(log.core.checkpoint())
        export_pin(path, lake, ["events"])
    assert [row[1:] for row in plain(lake)] == whole


def test_a_file_that_has_other_rows_than_its_writer_says_is_not_committed(tmp_path: Path) -> None:
    class Lying(Here):
        def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
            for done in super().run(tasks):
                (path,) = [Path(tasks[0].attempts, file.path) for file in done.files]
                pq.write_table(pq.read_table(path).slice(1), path)
                yield done

    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2, 3])
        with pytest.raises(LakeError, match=r"has 2 rows, seqs 2-3; its writer told of 3, 1-3"):
            export(log, tmp_path / "store", tmp_path / "lake", ["t"], runner=Lying())
    assert plain(tmp_path / "lake") == []


def test_every_file_is_on_the_disk_before_it_is_in_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, synced = tmp_path / "lake", set()
    sync, rename = os.fsync, os.rename

    def syncing(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        sync(handle)

    renamed: list[str] = []

    def renaming(source: str, target: str, **where: Any) -> None:
        if Path(target).name.startswith("batch="):
            renamed.append(target)
            assert all(path.stat().st_ino in synced for path in [Path(source), *Path(source).rglob("*")]), target
        rename(source, target, **where)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "rename", renaming)
    with Engine(str(tmp_path / "store")) as log:
        for form in ("parquet", "json", "csv"):
            log.create(form, cap_records=2)
            log.write(form, [1, 2, 3])
            export(log, tmp_path / "store", lake, [form], format=form, partition_by="date")
    assert len([target for target in renamed if target.startswith(f"{lake}.gaps/")]) == 3
    assert len([target for target in renamed if target.startswith(f"{lake}/")]) == 3


def test_a_full_disk_is_said_with_its_place_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: FileWriter, batch: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2, 3])
        with monkeypatch.context() as patch:
            patch.setattr(FileWriter, "write", full)
            with pytest.raises(LakeError, match=r"/lake: No space left on device") as error:
                export(log, tmp_path / "store", lake, ["t"])
        assert "free some space" in error.value.hint
        assert os.listdir(f"{lake}.staging") == ["LOCK"]
        export(log, tmp_path / "store", lake, ["t"])
    assert len(plain(lake)) == 3


def test_two_exports_at_once_and_of_the_same_start_never_mix(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2, 3])
        with Lake(str(lake)).turn(), pytest.raises(LakeError, match="another export"):
            export(log, tmp_path / "store", lake, ["t"])

        def faster(name: str) -> None:
            if name == "commit":
                other = tmp_path / "other"
                export(log, tmp_path / "store", other, ["t"])
                shutil.copytree(other / "topic=t", lake / "topic=t")

        with pytest.raises(LakeError, match="cannot be put in place"):
            export(log, tmp_path / "store", lake, ["t"], step=faster)
        assert [row[1:] for row in plain(lake)] == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_rows_can_be_bounded_parted_by_time_and_cut_into_files(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        for _ in range(10):
            log.write("t", ["x" * 1000] * 30)
        (done,) = export(log, tmp_path / "store", lake, ["t"], max_rows=100, partition_by="date", max_file_bytes=20_000)
        assert (done.rows, done.last) == (100, 100)
        export(log, tmp_path / "store", lake, ["t"], until_seq=250, partition_by="hour")
        assert len(plain(lake)) == 250
    right = "count(*), bool_and((ts at time zone 'UTC')::date = date::date)"
    rows = duckdb.sql(f"select {right} from '{lake}/*/*/date=*/*.parquet'")
    assert rows.fetchall() == [(100, True)]
    assert list(lake.glob("topic=t/*/date=*/part-*.parquet"))
    assert list(lake.glob("topic=t/*/hour=*/part-*.parquet"))


def flipped(path: Path, text: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(text)] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_fails_or_becomes_a_gap(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [{"value": n} for n in range(100)])
        path = new_pin(log, tmp_path / "store")
        flipped(next(Path(path).rglob("*.data")), b'"value":41}')
        with pytest.raises(LakeError, match=r"'t', seq 42: damaged in meta/tails-"):
            export_pin(path, lake, ["t"])
        assert plain(lake) == []
        (done,) = export_pin(path, lake, ["t"], on_corrupt="gap")
    assert [(gap.first, gap.last, gap.reason) for gap in done.gaps] == [(42, 42, "corruption")]
    assert [seq for _, seq, _ in plain(lake)] == [seq for seq in range(1, 101) if seq != 42]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "xml"}, "--format"),
        ({"format": "delta"}, "delta is not supported yet"),
        ({"format": "iceberg"}, "iceberg is not supported yet"),
        ({"partition_by": "week"}, "--partition-by"),
        ({"on_corrupt": "ignore"}, "--on-corrupt"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1])
        with pytest.raises(LakeError, match=message):
            export(log, tmp_path / "store", tmp_path / "lake", ["t"], **settings)
        with pytest.raises(LakeError, match="no topic 'u'"):
            export(log, tmp_path / "store", tmp_path / "lake", ["u"])


def test_an_object_store_is_refused() -> None:
    with pytest.raises(LakeError, match="object stores are not supported yet"):
        Lake("s3a://bucket/lake")
