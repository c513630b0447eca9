"""The manual pages, as groff and mandoc read them: no warning, and a sample of what a reader sees."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from scripts.manual import PAGES
from tests.style.sources import ROOT
from topics_cli.table import COMMANDS

pytestmark = pytest.mark.slow


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} on this machine (.ci/run installs it)")


def test_groff_formats_every_page_without_a_warning() -> None:
    _needs("man")
    for page in PAGES:
        done = subprocess.run(
            ["man", "--warnings", "-l", str(ROOT / page)],
            env={"MANWIDTH": "80", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), page


def test_mandoc_finds_nothing_to_say() -> None:
    _needs("mandoc")
    pages = [str(ROOT / page) for page in PAGES]
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", *pages], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_page_shows_options_and_examples_as_they_are_typed() -> None:
    _needs("mandoc")
    shown = subprocess.run(
        ["mandoc", "-Tutf8", "-O", "width=78", str(ROOT / "man/topics-tail.1")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    plain = "".join(shown[at] for at in range(len(shown)) if shown[at] != "\b" and shown[at + 1 : at + 2] != "\b")
    for example in COMMANDS["tail"].examples:
        assert example in plain
    assert "--fail-on-gap" in plain
