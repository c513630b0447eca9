"""The size ladder measures what it says, and its page says what was measured."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.bench import ladder, report, rows_ladder
from tests.bench.figures import Row, Spread
from tests.bench.rows_http import Plan

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ladder.DIRECTORY / "ladder.json").read_text(encoding="utf-8"))
    return loaded


def test_the_page_is_made_of_the_results_that_lie_beside_it(results: dict[str, Any]) -> None:
    for name, text in ladder.pages(results).items():
        assert (ladder.DIRECTORY / name).read_text(encoding="utf-8") == text, name
    sizes = [row["extra"]["size"] for row in results["rows"][::2]]
    assert sizes == list(rows_ladder.SIZES)


def test_a_figure_that_changes_changes_page_and_plot(results: dict[str, Any]) -> None:
    other = copy.deepcopy(results)
    other["rows"][2]["figure"]["median"] = 4321.0
    pages, changed = ladder.pages(results), ladder.pages(other)
    assert "4,321" not in pages["ladder.md"]
    assert "4,321" in changed["ladder.md"]
    assert pages["ladder.svg"] != changed["ladder.svg"]


def test_the_plot_is_a_picture_with_a_line_for_each_figure_and_limit(results: dict[str, Any]) -> None:
    drawing = ET.fromstring(ladder.pages(results)["ladder.svg"])
    said = {text.text for text in drawing.iter(f"{SVG}text")}
    assert said >= {"append", "streaming read", "disk", "loopback", "copying", "12", "11,760"}
    assert len(list(drawing.iter(f"{SVG}circle"))) == 5 * len(rows_ladder.SIZES)


def test_a_request_holds_at_most_a_mebibyte_and_a_thousand_records() -> None:
    for size in rows_ladder.SIZES:
        request = rows_ladder.request_of("t", size)
        head, _, body = request.partition(b"\r\n\r\n")
        lines = body.splitlines()
        assert f"Content-Length: {len(body)}".encode() in head
        assert {len(line) for line in lines} == {size}
        assert len(lines) == rows_ladder.batch_of(size) <= 1000
        assert size * len(lines) <= 1 << 20


def test_rows_of_the_ladder_are_kept_apart_from_the_others(tmp_path: Path) -> None:
    one = Spread(2.0, 1.0, 3.0)
    report.save([Row("other", "s", one, "none", None)], tmp_path, [1.0])
    assert not (tmp_path / "ladder.json").exists()
    spread = {"median": 2.0, "low": 1.0, "high": 3.0}
    names = ((rows_ladder.append_name(12), ("disk",)), (rows_ladder.read_name(12), ("loopback", "memory")))
    rungs = [
        Row(
            name,
            "payload MB/s",
            one,
            "goal",
            None,
            rate=one,
            extra={"size": 12, "cpu_us": spread, "limits": dict.fromkeys(limits, spread)},
        )
        for name, limits in names
    ]
    before = (tmp_path / "results.json").read_text()
    report.save(rungs, tmp_path, [1.0])
    assert (tmp_path / "results.json").read_text() == before
    assert "| 12 | 2.00 (1.00 … 3.00) |" in (tmp_path / "ladder.md").read_text()


@pytest.mark.slow
def test_a_rung_is_measured_against_a_real_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISK_BYTES", "MEMORY_BYTES", "READ_BYTES"):
        monkeypatch.setattr(rows_ladder, name, 4 << 20)
    append, read = rows_ladder.run_all([2940], Plan(tmp_path, 1, 1))
    for row, limit in ((append, "disk"), (read, "loopback")):
        assert row.figure.median > 0.1
        assert row.rate is not None
        assert row.rate.median * 2940 / 1e6 == pytest.approx(row.figure.median)
        assert row.met is (row.figure.median >= row.extra["limits"][limit]["median"] / 2)
    assert list(tmp_path.iterdir()) == []
