"""The pages that are made of the results say what the results say, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.bench import pages


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(pages.RESULTS.read_text(encoding="utf-8"))
    return loaded


def test_the_pages_are_made_of_the_results_that_lie_beside_them(results: dict[str, Any]) -> None:
    for path, text in pages.pages(results).items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m tests.bench.pages`"


def test_a_figure_that_changes_changes_the_pages(results: dict[str, Any]) -> None:
    other = copy.deepcopy(results)
    row = next(row for row in other["rows"] if row["peers"] and row["name"].startswith("POST 1 × "))
    row["figure"]["median"] = 4321.0
    for path, text in pages.pages(results).items():
        changed = pages.pages(other)[path]
        assert "4,321" not in text
        assert "4,321" in changed


def test_a_peer_that_was_not_there_is_said_to_be_missing(results: dict[str, Any]) -> None:
    alone = copy.deepcopy(results)
    for row in alone["rows"]:
        row["peers"] = {}
    assert pages.peers_page(alone).count("Not in this run.") == 5


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        pages.with_table("no marks", "| |\n")
