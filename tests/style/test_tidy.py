"""The house rules that a machine can hold: which way imports point, where the outside world is touched, how long
things get, and what must never be written down.

Each check returns its complaints as a list of lines, and each is shown (in `test_tidy_bites.py`) to complain about a
planted offence: a rule that finds nothing may only be blind.
"""

from __future__ import annotations

import pytest

from tests.style import rules
from tests.style.sources import module_name, python_files, text, tracked, tree

SOURCES = [path for path in python_files() if path.parts[0] not in ("tests", "scripts")]
OTHERS = [path for path in python_files() if path.parts[0] in ("tests", "scripts")]


def test_there_is_something_to_judge() -> None:
    assert len(SOURCES) > 20, SOURCES
    assert len(OTHERS) > 20, OTHERS


def test_imports_point_one_way() -> None:
    complaints = [
        line
        for path in SOURCES
        for line in rules.wrong_imports(module_name(path), tree(path), is_package=path.name == "__init__.py")
    ]
    assert not complaints, "\n".join(complaints)


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = {module_name(path): tree(path) for path in SOURCES}
    assert not (circle := rules.import_circle(modules)), " → ".join(circle)


def test_the_engine_touches_the_outside_world_only_at_its_seams() -> None:
    complaints = [
        line
        for path in SOURCES
        if path.parts[0] == "engine"
        for line in rules.touches_outside(module_name(path), tree(path))
    ]
    assert not complaints, "\n".join(complaints)


def test_the_engine_needs_the_standard_library_xxhash_and_msgspec_alone() -> None:
    complaints = [
        line
        for path in SOURCES
        if path.parts[0] == "engine"
        for line in rules.foreign_packages(module_name(path), tree(path))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("rule", rules.FILE_RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: rules.FileRule) -> None:
    complaints = [line for path in SOURCES for line in rule(str(path), text(path), tree(path))]
    assert not complaints, "\n".join(complaints)


@pytest.mark.slow
@pytest.mark.parametrize("rule", rules.FILE_RULES, ids=lambda rule: rule.__name__)
def test_so_does_every_file_of_the_tests(rule: rules.FileRule) -> None:
    complaints = [line for path in OTHERS for line in rule(str(path), text(path), tree(path))]
    assert not complaints, "\n".join(complaints)


def test_init_files_only_re_export() -> None:
    complaints = [
        line
        for path in SOURCES
        if path.name == "__init__.py"
        for line in rules.more_than_exports(str(path), tree(path))
    ]
    assert not complaints, "\n".join(complaints)


def test_nothing_of_the_machine_it_was_made_on_is_written_down() -> None:
    complaints = []
    for path in tracked():
        try:
            content = text(path)
        except UnicodeDecodeError:
            continue  # a golden file: bytes, not words
        complaints += rules.forbidden_words(str(path), content)
    assert not complaints, "\n".join(complaints)
