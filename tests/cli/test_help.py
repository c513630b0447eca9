"""Help: the same page however it was asked for, at any width, and without the libraries of the full program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.support import PYTHON, ROOT, Daemon, clean_environment
from topics_cli.help import folded, maybe_help, page, usage_of
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON

PLAIN = [command for command in COMMANDS.values() if not command.passes_through]
ASKED = """
import sys
from topics_cli.app import main
code = main(sys.argv[1:])
print({"typer", "rich", "click", "re", "inspect", "json"} & set(sys.modules), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("width", [40, 60, 80, 100, 300])
def test_every_page_fits_and_names_everything(width: int) -> None:
    for command in PLAIN:
        lines = page(command, width, is_dressed=False)
        text = "\n".join(lines)
        for option in (*command.options, *COMMON):
            assert all(flag in text for flag in option.flags)
            assert option.help.split()[0] in text
        assert all(argument.metavar in text for argument in command.arguments)
        assert all(f"  {example}" in lines for example in command.examples)
        folding = lines[: lines.index("Examples:")] if command.examples else lines
        wide = [line for line in folding[1:] if len(line) > min(width, 100)]
        assert all(line.startswith("  -") or "|" in line for line in wide), (
            "names may be too long for a line, words not"
        )
    listed = page(None, width, is_dressed=False)[1:]
    assert all(len(line) <= min(width, 100) or "|" in line for line in listed)
    assert all(any(f"{line} ".startswith(f"  {name} ") for line in listed) for name in COMMANDS)


def test_dress_changes_nothing_but_the_dress() -> None:
    for command in (None, *PLAIN):
        dressed = "\n".join(page(command, 80, is_dressed=True))
        for code in ("\x1b[1m", "\x1b[36m", "\x1b[0m"):
            assert code in dressed
            dressed = dressed.replace(code, "")
        assert dressed.split("\n") == page(command, 80, is_dressed=False)


def test_folding_breaks_between_words_alone() -> None:
    assert folded("", 5) == [""]
    assert folded("one two three", 7) == ["one two", "three"]
    assert folded("a-very-long-word b", 5) == ["a-very-long-word", "b"]


def test_only_plain_questions_are_answered_quickly() -> None:
    for words in (["--help"], ["-h"], ["help"], ["tail", "-h"], ["help", "tail"]):
        assert maybe_help(words) is not None, words
    for words in ([], ["tail"], ["tial", "--help"], ["help", "tial"], ["serve", "--help"], ["tail", "a", "--help"]):
        assert maybe_help(words) is None, words


def test_the_page_is_the_same_however_it_was_asked_for(shared: Daemon) -> None:
    quick = shared.ok("tail", "--help")
    assert quick.decode().startswith(f"Usage: {usage_of(COMMANDS['tail'])}\n")
    for words in (["tail", "-h"], ["help", "tail"], ["tail", "x", "--help"], ["-q", "tail", "--help", "x"]):
        assert shared.ok(*words) == quick, words
    assert shared.ok("-q", "--help") == shared.ok("--help")
    assert b"\x1b[1mUsage:" in shared.ok("--color", "always", "tail", "--help")


def test_help_starts_without_the_libraries_of_the_full_program() -> None:
    for words in (["--help"], ["help", "tail"]):
        done = subprocess.run(
            [PYTHON, "-I", "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r}){ASKED}", *words],
            capture_output=True,
            text=True,
            env=clean_environment(),
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "set()\n")


def test_help_that_cannot_be_written_says_so() -> None:
    for words in ("--help", "tail x --help"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m topics_cli {words} >/dev/full"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
        )
        assert (done.returncode, "No space left on device" in done.stderr) == (1, True)
