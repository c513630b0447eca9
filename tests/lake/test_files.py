"""Files of an export, read back: whatever the rows are, and wherever a reader happens to cut the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.extras import extra

pa = extra("pyarrow")

from topics_lake import files  # noqa: E402 # pyarrow may be missing


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small file has many."""
    monkeypatch.setattr(files, "_CSV_BYTES", (500, 1 << 20))


def test_csv_keeps_every_byte_wherever_a_block_ends(tmp_path: Path) -> None:
    dice = random.Random(7)
    path, lengths = tmp_path / "rows.csv", [dice.choice((0, 1, 30, 400, 9000)) for _ in range(300)]
    datas = ["".join(dice.choice(('"', ",", "\r\n", "\r", "\n", "é")) for _ in range(length)) for length in lengths]
    writer = files.FileWriter(
        str(path), "csv", "none", pa.schema([("seq", pa.int64()), ("data", pa.string())]), raw=False
    )
    writer.write(pa.RecordBatch.from_pydict({"seq": list(range(1, 301)), "data": datas}))
    writer.close()
    rows = [row for batch in files.read_rows(str(path), "csv") for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == list(range(1, 301))
    assert [number for number, row in enumerate(rows) if row["data"] != datas[number].encode()] == []


def test_what_is_no_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 1000 + "3\n", encoding="utf-8")
    with pytest.raises(pa.ArrowInvalid, match="Expected 2 columns, got 1"):
        list(files.csv_batches(str(path), {}))
