"""What comes out of a pin in columns is what a reader gets, byte for byte, and damage is named exactly."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engine import Engine
from engine.clock import OsClock
from engine.commands import Batch
from engine.errors import DamagedRecords, StoreDamaged
from engine.tools.pinning import pin_stopped
from engine.tools.readonly import ReadOnlyFs
from tests.cli.support import HARD, ROOT, clean_environment
from tests.export.pins import SHARED, compared, fs_of, pin, pin_path, rows_of, told
from tests.extras import extra

extra("pyarrow")
np = extra("numpy")

from engine.export import columns, decode  # noqa: E402 # pyarrow may be missing
from engine.export.reader import Pin  # noqa: E402 # pyarrow may be missing

MIB = 1 << 20


def write(log: Engine, topic: str, datas: list[bytes], **columns: object) -> None:
    log._wait(log.core.append(topic, Batch(datas=datas, **columns)))  # type: ignore[arg-type]  # columns of a batch


def test_rows_are_what_a_reader_gets_with_every_part_that_there_is(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        for size in (1, 5, 63, 64, 65, 700):
            tags = [None if n % 3 else ('quoted " \\ tag' if n % 2 else "🙂ä") for n in range(size)]
            nodes = [None if n % 5 else f"node-{n}" for n in range(size)]
            metas = [None if n % 7 else b'{"m": [1,  2]}' for n in range(size)]
            write(log, "all", [b'{"n":%d}' % n for n in range(size)], tags=tags, nodes=nodes, metas=metas)
        log.delete("all", seqs=[1, 2, 70, 71, 898])
        found = pin(log, str(tmp_path))
        assert compared(rows_of(found, "all")) == told(log, "all")
        assert compared(rows_of(found, "all", 60, 200)) == [r for r in told(log, "all") if 60 <= r["$seq"] <= 200]
        assert rows_of(found, "all", 899) == []


@pytest.mark.slow
def test_every_byte_of_hard_values_survives(tmp_path: Path) -> None:
    lines = (SHARED / "hard.ndjson").read_bytes().splitlines() if SHARED.exists() else []
    values = [*HARD, *[line for line in lines if line.strip()], b'"' + b"y" * (MIB - 100) + b'"']
    with Engine(str(tmp_path)) as log:
        write(log, "hard", values)
        found = pin(log, str(tmp_path))
        assert [row["data"] for row in rows_of(found, "hard")] == values


def test_times_are_instants_in_utc_to_the_millisecond(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.write("t", [1])
        (record,) = told(log, "t")
        (row,) = rows_of(pin(log, str(tmp_path)), "t")
        assert row["ts_ms"] == record["$ts"]
        assert row["ts"] == dt.datetime.fromtimestamp(record["$ts"] / 1000, dt.UTC)


@pytest.mark.slow
def test_batches_have_one_schema_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BATCH_ROWS", 300)
    monkeypatch.setattr(decode, "BATCH_BYTES", 3 * MIB)
    monkeypatch.setattr(decode, "WINDOW_BYTES", MIB)
    with Engine(str(tmp_path)) as log:
        write(log, "small", [b"%d" % n for n in range(2000)])
        write(log, "large", [b'"' + b"z" * (MIB // 2) + b'"' for _ in range(70)])
        found = pin(log, str(tmp_path))
        for name, count in (("small", 2000), ("large", 70)):
            batches = list(found.topic(name).batches(1, 2**62))
            assert sum(batch.num_rows for batch in batches) == count
            assert all(batch.schema.equals(columns.SCHEMA, check_metadata=True) for batch in batches)
            assert max(batch.num_rows for batch in batches) <= 300
            assert max(batch.column("data").nbytes for batch in batches) <= 3 * MIB
        rows = [row for batch in decode.gathered(found.topic("small").batches(1, 2**62)) for row in batch.to_pylist()]
        assert [row["seq"] for row in rows] == list(range(1, 2001))


_LEAN = """
import sys
from topics_lake.export import Export, Settings
from topics_lake.lake import Lake

lake = Lake(sys.argv[2])
with lake.turn():
    (done,) = Export(lake, sys.argv[1], Settings()).run(["t"])
print(done.rows, "pandas" in sys.modules)
"""


@pytest.mark.slow
def test_an_export_does_without_pandas_whose_import_takes_longer_than_a_segment(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "store")) as log:
        write(log, "t", [b"%d" % n for n in range(1000)], tags=["a", "b"] * 500)
        path = pin_path(log, str(tmp_path / "store"))
    words = [sys.executable, "-c", _LEAN, path, str(tmp_path / "lake")]
    done = subprocess.run(words, env={**clean_environment(), "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    assert done.stdout.split() == [b"1000", b"False"]


def test_losses_account_for_every_seq(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.create("capped", cap_records=50)
        for _ in range(12):
            log.write("capped", list(range(10)))
        log.delete("capped", seqs=[71, 72, 90, 91, 120])
        topic = pin(log, str(tmp_path)).topic("capped")
        lost = topic.losses(1, topic.head)
        assert lost.gaps == [(1, 70, "cap")]
        assert lost.deleted == [(71, 72), (90, 91), (120, 120)]
        rows = sum(batch.num_rows for batch in topic.batches(1, topic.head))
        assert rows + lost.deleted_count + lost.gap_count == topic.head == 120
        assert topic.live(60, 95) == [(73, 89), (92, 95)]
        assert topic.losses(65, 71) == ([(71, 71)], [(65, 70, "cap")])


def test_what_is_expired_as_of_the_pin_is_a_gap_whatever_the_time_of_reading(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.create("young", ttl_ms=86_400_000)
        log.write("young", [1, 2, 3])
        log.delete("young", seqs=[2])
        path = pin_path(log, str(tmp_path))
        found = Pin(ReadOnlyFs(path))
        assert [row["seq"] for row in rows_of(found, "young")] == [1, 3]
        later = Pin(ReadOnlyFs(path))
        later.manifest = msgspec.structs.replace(later.manifest, ts=later.manifest.ts + 90_000_000)
        topic = later.topic("young")
        assert list(topic.batches(1, 3)) == []
        assert topic.losses(1, 3) == ([(2, 2)], [(1, 1, "ttl"), (3, 3, "ttl")])


def flip(path: str, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("count", [40, pytest.param(9_000, marks=pytest.mark.slow)])
def test_one_flipped_bit_costs_exactly_the_record_it_lies_in(tmp_path: Path, count: int) -> None:
    with Engine(str(tmp_path)) as log:
        write(log, "t", [b'{"number":%d}' % n for n in range(count)])
        found = pin(log, str(tmp_path))
        topic = found.topic("t")
        piece = topic.pieces[0]
        path = f"{found.fs.root}/{piece.data}"  # type: ignore[attr-defined]  # a real directory
        os.link(path, path + ".kept")
        data = Path(path).read_bytes()
        at = data.index(b'"number":19}')
        flip(path, at + 3)
        with pytest.raises(DamagedRecords, match=r"seq 20: damaged in .*") as error:
            list(topic.batches(1, count))
        assert (error.value.first, error.value.last, error.value.path) == (20, 20, piece.data)
        heard: list[tuple[int, int, str]] = []
        rows = rows_of(found, "t", damaged=lambda *what: heard.append(what))
        assert heard == [(20, 20, piece.data)]
        assert [row["seq"] for row in rows] == [seq for seq in range(1, count + 1) if seq != 20]


def test_a_flipped_bit_in_an_index_is_mended(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        write(log, "t", [b'{"number":%d}' % n for n in range(3000)])
        found = pin(log, str(tmp_path))
        piece = found.topic("t").pieces[0]
        flip(f"{found.fs.root}/{piece.index}", piece.index_offset + 64 + 32 * 100 + 1)  # type: ignore[attr-defined]  # a real directory
        assert [row["seq"] for row in rows_of(found, "t")] == list(range(1, 3001))


def test_a_pin_that_is_gone_says_so(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        write(log, "t", [b"1"])
        found = pin(log, str(tmp_path))
        topic = found.topic("t")
        os.unlink(f"{found.fs.root}/{topic.pieces[0].data}")  # type: ignore[attr-defined]  # a real directory
        with pytest.raises(StoreDamaged, match="expired, or was removed"):
            list(topic.batches(1, 1))


def test_records_in_memory_alone_are_refused(tmp_path: Path) -> None:
    with Engine(str(tmp_path)) as log:
        log.create("gone", durability="ephemeral")
        log.write("gone", [1])
        with pytest.raises(StoreDamaged, match="ephemeral"):
            pin(log, str(tmp_path)).topic("gone")


def test_seqs_that_no_column_holds_are_an_error() -> None:
    rows = np.zeros(1, dtype=columns.ROW)
    with pytest.raises(StoreDamaged, match="2\\^63"):
        columns.batch_of("t", 1, 2**63, rows, np.arange(1), b"", 0)


def test_a_stopped_store_is_pinned_aside_and_left_as_it_is(tmp_path: Path) -> None:
    with Engine(str(tmp_path / "store")) as log:
        log.create("capped", cap_records=5)
        log.write("capped", list(range(9)), tag="t")
        log.write("other", [1])
        log.delete("capped", seqs=[6])
        wanted = told(log, "capped")
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    target = fs_of(tmp_path / "scratch")
    source = ReadOnlyFs(str(tmp_path / "store"))
    where = pin_stopped(source, target, OsClock(), frozenset({"capped"}), lambda what, part: None)
    found = Pin(ReadOnlyFs(str(tmp_path / "scratch" / where)))
    assert found.names == ["capped"]
    assert compared(rows_of(found, "capped")) == wanted[1:]
    assert found.topic("capped").losses(1, 9) == ([(6, 6)], [(1, 4, "cap")])
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before
