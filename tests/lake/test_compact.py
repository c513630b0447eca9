"""Small batches become few: every row and gap stays, whatever dies, and readers never see one twice or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.commands import Batch as Writes
from tests.cli.support import HARD, ROOT, clean_environment
from tests.extras import extra

extra("pyarrow")
duckdb = extra("duckdb", "lake")
pandas = extra("pandas", "spark")

import pyarrow.parquet as pq  # noqa: E402 # pyarrow may be missing

from engine.export.decode import BATCH_BYTES  # noqa: E402 # pyarrow may be missing
from tests.lake.making import LONG, export, plain  # noqa: E402 # pyarrow may be missing
from topics_lake import exchange as exchanging  # noqa: E402 # pyarrow may be missing
from topics_lake.compact import Compacted, Plan, compact  # noqa: E402 # pyarrow may be missing
from topics_lake.errors import LakeError  # noqa: E402 # pyarrow may be missing
from topics_lake.files import read_rows  # noqa: E402 # pyarrow may be missing
from topics_lake.lake import BATCH_FILE, Lake  # noqa: E402 # pyarrow may be missing
from topics_lake.verify import verify  # noqa: E402 # pyarrow may be missing

pytestmark = pytest.mark.slow
STEPS = ("merge", "file", "manifest", "switch", "switched", "end")


def joined(lake: Path, topic: str = "t", step: Any = lambda name: None, **plan: Any) -> Compacted:
    place = Lake(str(lake))
    with place.turn():
        return compact(place, topic, Plan(**plan), step=step)


def filled(root: Path, lake: Path, runs: int = 6, **settings: Any) -> None:
    """A capped topic with deletes, exported in some runs; a second one beside it."""
    with Engine(str(root)) as log:
        log.create("t", cap_records=100)
        for run in range(runs):
            log.write("t", [{"run": run, "n": n} for n in range(60)] * 2, tag="t")
            log.delete("t", seqs=[120 * run + 100])
            log.write("other", [run])
            export(log, root, lake, ["t", "other"], **settings)


def wrong(lake: Path, topic: str = "t") -> list[str]:
    return [line for checked in verify(Lake(str(lake)), [topic]) for line in checked.wrong]


def gaps(lake: Path) -> list[Any]:
    with duckdb.connect() as db:
        table = f"'{lake}.gaps/**/*.parquet'"
        rows = db.sql(f"select topic, epoch, first_seq, last_seq, reason from {table} order by 3").fetchall()
    return list(rows)


def test_many_batches_become_one_with_the_same_rows_gaps_and_sums(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    filled(tmp_path / "store", lake)
    rows, lost = plain(lake), gaps(lake)
    frame = pandas.read_parquet(lake / "topic=t").drop(columns="batch")
    assert len(lost) == 6
    tables = set(Path(f"{lake}.gaps").rglob("*.parquet"))
    done = joined(lake)
    assert len(tables) == 6
    assert not tables & set(Path(f"{lake}.gaps").rglob("*.parquet")), "no name has two contents"
    assert (done.batches_before, done.batches, done.files_before, done.files) == (6, 1, 6, 1)
    assert (plain(lake), gaps(lake), wrong(lake)) == (rows, lost, [])
    after = pandas.read_parquet(lake / "topic=t").drop(columns="batch")
    pandas.testing.assert_frame_equal(after.sort_values("seq"), frame.sort_values("seq"))
    (start,) = Lake(str(lake)).starts("t")
    batch = Lake(str(lake)).batch("t", *start)
    assert (batch.first, batch.last, batch.merged, batch.adds_up) == (1, 720, 6, True)
    (part,) = (lake / "topic=t").rglob("*.parquet")
    assert pq.read_metadata(part).num_row_groups == 1
    assert [first for _, first in Lake(str(lake)).starts("other")] == list(range(1, 7))
    assert os.listdir(f"{lake}.staging") == ["LOCK"]
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1, 2])
        (more,) = export(log, tmp_path / "store", lake, ["t"])
    assert (more.first, more.last) == (721, 722)
    assert joined(lake).batches == 1
    assert (len(plain(lake)), wrong(lake)) == (len(rows) + 2, [])
    assert joined(lake).batches_before == 1


def test_bounds_are_kept_and_batches_that_stay_are_the_same_files(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    filled(tmp_path / "store", lake, partition_by="date")
    place = Lake(str(lake))
    sizes = [sum(file.bytes for file in place.batch("t", *start).files) for start in place.starts("t")]
    before = plain(lake)
    newest = next(Path(place.directory("t", *place.starts("t")[-1])).rglob("*.parquet"))
    inode = newest.stat().st_ino
    dry = compact(place, "t", Plan(batch_bytes=2 * max(sizes), keep=1), dry_run=True)
    assert (dry.batches_before, dry.batches, dry.files) == (6, 4, None)
    assert len(place.starts("t")) == 6
    assert joined(lake, batch_bytes=2 * max(sizes), keep=1).batches == 4
    assert [first for _, first in place.starts("t")] == [1, 241, 481, 601]
    assert newest.stat().st_ino == inode
    assert (plain(lake), wrong(lake)) == (before, [])
    assert list(lake.glob("topic=t/*/date=*/part-*.parquet"))
    assert joined(lake, max_file_bytes=1).files == 4
    assert len(place.starts("t")) == 1
    assert (plain(lake), wrong(lake)) == (before, [])


@pytest.mark.parametrize("form", ["json", "csv"])
def test_text_is_joined_byte_for_byte(tmp_path: Path, form: str) -> None:
    lake, values = tmp_path / "lake", [*HARD, LONG]
    with Engine(str(tmp_path / "store")) as log:
        for _ in range(3):
            log._wait(log.core.append("t", Writes(datas=values, tags=['"quoted", \n'] * len(values))))
            export(log, tmp_path / "store", lake, ["t"], format=form)
    assert wrong(lake) == []
    assert joined(lake).files == 1
    assert [data for _, _, data in plain(lake, form)] == values * 3
    assert wrong(lake) == []


def test_a_joined_file_of_long_records_is_read_in_batches_of_bounded_size(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        for _ in range(3):
            log.write("t", ["x" * 1_000_000] * 20)
            export(log, tmp_path / "store", lake, ["t"])
    assert joined(lake).files == 1
    (part,) = (lake / "topic=t").rglob("*.parquet")
    sizes = [batch.nbytes for batch in read_rows(str(part), "parquet")]
    assert sum(sizes) > 60_000_000
    assert max(sizes) <= BATCH_BYTES + 1_000_100
    assert (len(plain(lake)), wrong(lake)) == (60, [])


def test_epochs_and_forms_are_not_mixed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Engine(str(tmp_path / "store")) as log:
        for form in ("parquet", "parquet", "csv", "csv"):
            log.write("t", [1, 2])
            export(log, tmp_path / "store", lake, ["t"], format=form)
        log.drop("t")
        log.write("t", [3])
        export(log, tmp_path / "store", lake, ["t"])
    assert joined(lake).batches == 3
    assert [first for _, first in Lake(str(lake)).starts("t")] == [1, 5, 1]
    assert (len(plain(lake)), len(plain(lake, "csv")), wrong(lake)) == (5, 4, [])


def test_what_was_touched_or_is_foreign_stops_it_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    filled(tmp_path / "store", lake, runs=3)
    before = sorted(lake.rglob("*"))
    mine = lake / "topic=t" / "README"
    mine.write_text("mine")
    with pytest.raises(LakeError, match=r"README is no file of an export|README/ is no file"):
        joined(lake)
    mine.unlink()
    inside = next((lake / "topic=t").iterdir()) / "mine.parquet"
    inside.write_text("mine")
    with pytest.raises(LakeError, match=r"mine\.parquet is no file of an export"):
        joined(lake)
    inside.unlink()
    part = next((lake / "topic=t").rglob("part-*"))
    content = part.read_bytes()
    part.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    with pytest.raises(LakeError, match="was touched"):
        joined(lake)
    part.write_bytes(content)
    monkeypatch.setattr(exchanging, "_RENAME_EXCHANGE", 1 << 20)
    with pytest.raises(LakeError, match="cannot change places"):
        joined(lake)
    assert sorted(lake.rglob("*")) == before
    assert (wrong(lake), os.listdir(f"{lake}.staging")) == ([], ["LOCK"])


class Died(Exception):
    """A run ends here."""


@pytest.mark.parametrize("at", STEPS)
def test_a_run_that_dies_anywhere_is_made_good_by_the_next_export(tmp_path: Path, at: str) -> None:
    lake = tmp_path / "lake"
    filled(tmp_path / "store", lake, runs=3)
    rows, lost = plain(lake), gaps(lake)

    def step(name: str) -> None:
        if name == at:
            raise Died

    with pytest.raises(Died):
        joined(lake, step=step)
    assert (plain(lake), gaps(lake)) == (rows, lost)
    with Engine(str(tmp_path / "store")) as log:
        log.write("t", [1])
        export(log, tmp_path / "store", lake, ["t"])
    assert (len(plain(lake)), gaps(lake), wrong(lake)) == (len(rows) + 1, lost, [])
    assert joined(lake).batches == 1
    assert (len(plain(lake)), gaps(lake), wrong(lake)) == (len(rows) + 1, lost, [])


SCRIPT = """
import os, signal, sys
from topics_lake import compact, exchange, gaps
from topics_lake.lake import Lake

lake, at = sys.argv[1:]
def kill(name):
    if name == at:
        os.kill(os.getpid(), signal.SIGKILL)

if at == "exchanged":
    def exchanged(one, other):
        exchange.exchange(one, other)
        os.kill(os.getpid(), signal.SIGKILL)
    compact.exchange = exchanged
elif at == "gaps exchanged":
    def exchanged(one, other):
        exchange.exchange(one, other)
        os.kill(os.getpid(), signal.SIGKILL)
    gaps.exchange = exchanged
into = Lake(lake)
with into.turn():
    compact.compact(into, "t", compact.Plan(), step=kill)
"""


def test_killed_at_every_step_under_readers_that_never_stop(tmp_path: Path) -> None:
    lake, stop = tmp_path / "lake", threading.Event()
    seen: list[Any] = []
    counts = {"whole": 0, "again": 0}
    filled(tmp_path / "store", lake, runs=3)
    state = {"rows": plain(lake), "gaps": gaps(lake)}

    def read() -> None:
        while not stop.is_set():
            known = dict(state)
            try:
                rows, lost = plain(lake), gaps(lake)
            except duckdb.IOException:
                counts["again"] += 1
                continue
            counts["whole"] += 1
            # An export may have ended in between: then it is what there is now.
            if rows not in (known["rows"], state["rows"]) or lost not in (known["gaps"], state["gaps"]):
                seen.append((len(rows), lost))

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    for at in (*STEPS[:4], "exchanged", "switched", "gaps exchanged", "end"):
        words = [sys.executable, "-c", SCRIPT, str(lake)]
        killed = subprocess.run([*words, at], env=environment, capture_output=True, timeout=120)
        assert killed.returncode == -signal.SIGKILL, (at, killed)
        assert (plain(lake), gaps(lake)) == (state["rows"], state["gaps"]), at
        joined(lake)
        assert (plain(lake), gaps(lake), wrong(lake)) == (state["rows"], state["gaps"], []), at
        assert len(Lake(str(lake)).starts("t")) == 1
        stop.set()
        reader.join()
        with Engine(str(tmp_path / "store")) as log:
            for _ in range(2):
                log.write("t", list(range(150)))
                export(log, tmp_path / "store", lake, ["t"])
        state.update(rows=plain(lake), gaps=gaps(lake))
        stop.clear()
        reader = threading.Thread(target=read)
        reader.start()
    stop.set()
    reader.join()
    assert not seen
    assert counts["whole"] > 20, counts
    names = {path.name.partition("-")[0] for path in lake.rglob("*") if path.is_file()}
    assert names == {"part", BATCH_FILE}
    assert os.listdir(f"{lake}.staging") == ["LOCK"]
