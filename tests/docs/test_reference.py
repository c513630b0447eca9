"""The documents keep up with the code: pages are fresh, dependencies have their line, links lead somewhere."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from engine.errors import WHEN, Code
from engine.version import VERSION
from scripts.docs import PAGES, ROUTE_ABOUT, documented_routes
from scripts.sample import events
from tests.style.sources import ROOT, text, tracked

DOCUMENTS = [path for path in tracked() if path.suffix == ".md"]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_generated_page_is_what_the_code_says(page: str) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == PAGES[page](), "run `make docs`, and look at what changed"


def test_every_error_code_says_when_it_is_given() -> None:
    assert set(WHEN) == set(Code)


def test_every_bound_says_what_it_is_for() -> None:
    rows = [line.split(" | ") for line in PAGES["docs/reference/limits.md"]().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


def test_every_route_says_what_it_is_for() -> None:
    assert set(ROUTE_ABOUT) == {(method, path) for method, path, _ in documented_routes()}


def _required() -> dict[str, set[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: {re.split(r"[\s<>=!~;\[]", wanted, maxsplit=1)[0] for wanted in names if "topics[" not in wanted}
        for extra, names in groups.items()
    }  # fmt: skip


def test_every_dependency_has_its_line() -> None:
    lines = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8").splitlines()
    rows = {found[1]: line.split("|") for line in lines if (found := re.match(r"\| `([^`]+)` \|", line))}
    for extra, names in _required().items():
        for name in names:
            cells = [cell.strip() for cell in rows.get(name, [])][1:-1]
            assert cells, f"docs/dependencies.md has no line for {name}"
            assert all(cells), f"docs/dependencies.md leaves a cell of {name} empty"
            assert (cells[1] == extra) if extra else (len(cells) == 4), f"{name} is in another table"
    assert set(rows) == set().union(*_required().values()), "docs/dependencies.md has lines for what is not needed"


def test_the_lock_names_everything_that_setup_installs() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9_.-]+)==", lock, re.MULTILINE))
    required = _required()
    wanted = {name.lower().replace("_", "-") for name in required[""] | required["test"]}
    assert wanted | {"setuptools"} <= pinned
    for name, rest in re.findall(r"^([a-z0-9_.-]+)==(.*(?:\n .*)*)", lock, re.MULTILINE):
        assert "--hash=sha256:" in rest, f"{name} has no hash"
    assert "://" not in lock


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_links_lead_somewhere(path: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(ROOT / path)):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            there = (ROOT / path).parent / file if file else ROOT / path
            assert there.exists(), f"{path}: {target}"
            assert not anchor or anchor in _anchors(there.read_text(encoding="utf-8")), f"{path}: {target}"


def _anchors(document: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", document, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_change_log_knows_this_version() -> None:
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_sample_is_what_its_script_makes() -> None:
    lines = (ROOT / "sample/events.ndjson").read_text(encoding="utf-8").splitlines()
    assert lines == events()
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_the_guarantees_name_tests_that_are_there() -> None:
    named = re.findall(r"`(tests/[^`]+)`", (ROOT / "GUARANTEES.md").read_text(encoding="utf-8"))
    assert len(named) > 3
    assert [path for path in named if not (ROOT / path).exists()] == []
