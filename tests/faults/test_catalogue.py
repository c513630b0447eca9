"""Every row of faults.md has a test that carries its number in its name: `F07` of the faults, `S03` of the threats.

A number in a name says that the test shows (a part of) the outcome that the row demands; several tests may share a row.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
FAULTS: Final = range(1, 71)
THREATS: Final = (
    "DNS rebinding",
    "browser CSRF",
    "cross-site WebSocket",
    "cross-protocol",
    "request smuggling",
    "slowloris",
    "header limits",
    "many tiny chunks",
    "decompression bomb",
    "body size",
    "deep or odd JSON",
    "names as paths",
    "socket permissions",
    "live socket stolen",
    "peer credentials",
    "token compare",
    "log injection",
    "response/SSE injection",
    "terminal escapes",
    "restore archive",
    "symlink races",
    "resource caps",
    "EMFILE on accept",
    "errors",
)
"""The security table, in its order: the first is S01."""
ROWS: Final = [f"F{number:02}" for number in FAULTS] + [f"S{number:02}" for number in range(1, len(THREATS) + 1)]


def numbered(name: str) -> list[str]:
    """The rows that a test's name carries."""
    found = re.match(r"test_((?:[FS][0-9]{2}_)+)", name)
    return found[1].split("_")[:-1] if found else []


def shown() -> dict[str, list[str]]:
    """Row → the tests that carry its number."""
    tests: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE):
            for row in numbered(name):
                tests.setdefault(row, []).append(f"{path.relative_to(TESTS)}::{name}")
    return tests


@pytest.fixture(scope="module")
def tests() -> dict[str, list[str]]:
    return shown()


def test_each_row_has_a_test(tests: dict[str, list[str]]) -> None:
    assert [row for row in ROWS if row not in tests] == []


def test_no_test_carries_a_number_that_is_no_row(tests: dict[str, list[str]]) -> None:
    assert {row: names for row, names in tests.items() if row not in ROWS} == {}


def test_names_are_read() -> None:
    assert numbered("test_F20_S05_a_thing") == ["F20", "S05"]
    assert numbered("test_a_thing_F20") == numbered("test_F2_x") == numbered("test_f20_x") == []
