"""The small parser and Typer read every command line alike, or the small one leaves it to Typer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics_cli import app, full
from topics_cli.options import FLAG, Command, read_duration, read_rate, read_size
from topics_cli.parse import maybe_parse
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON

PLAIN = [command for command in COMMANDS.values() if not command.passes_through]
WORDS = [
    "a",
    "b.c",
    "-",
    "--",
    "5",
    "0",
    "10s",
    "k=v",
    "json",
    "fsync",
    "",
    "x y",
    "-x",
    "--nonsense",
    "1/s",
    "/id",
    "1KiB",
    "log",
    "true",
]


def by_typer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]] | None:
    """What Typer makes of a command line; None when it refuses it or shows help."""
    called: list[tuple[str, dict[str, Any]]] = []

    def note(command: Command, values: dict[str, Any]) -> int:
        called.append((command.name, values))
        return 0

    monkeypatch.setattr(app, "run", note)
    monkeypatch.setattr(full, "_report_usage", lambda *_: 2)
    full.run_full(words)
    return called[0] if called else None


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with options and arguments, right and wrong."""
    command = draw(st.sampled_from(PLAIN))
    words = [command.name]
    for option in draw(st.lists(st.sampled_from((*command.options, *COMMON)), max_size=4)):
        flag, value = draw(st.sampled_from(option.flags)), draw(st.sampled_from([*option.choices, *WORDS]))
        if option.kind is FLAG:
            words.append(flag)
        elif flag.startswith("--"):
            words += draw(st.sampled_from([[f"{flag}={value}"], [flag, value]]))
        else:
            words += draw(st.sampled_from([[flag + value], [flag, value]]))
    extra = draw(st.lists(st.sampled_from(WORDS), max_size=3))
    for word in extra:
        words.insert(draw(st.integers(1, len(words))), word)
    return words


@settings(max_examples=100)
@given(words=command_lines())
def test_both_parsers_read_alike_or_the_small_one_gives_up(words: list[str]) -> None:
    light = maybe_parse(words, COMMANDS, COMMON)
    if light is None:
        return
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert by_typer(words, monkeypatch) == (light[0].name, light[1])


@pytest.mark.parametrize(
    "words",
    [
        ["write", "t", "a", "--", "-b", "--tag"],
        ["write", "t", "--tag=x=y", "-f", "-", "-f", "b", "--json"],
        ["tail", "-fn5", "a", "b", "-0"],
        ["tail", "a", "-n", "5", "--from=7", "--retry-for", "0"],
        ["-o", "raw", "--socket=/s", "get", "t", "1", "2", "--raw"],
        ["-q", "diff", "t", "--wait", "2s", "--socket", "/s"],
        ["write", "t", "-"],
        ["write", "t", ""],
        ["ls"],
        ["ls", "pre", "--json"],
        ["set", "t", "a=b", "c=d"],
        ["create", "t", "--ttl", "7d", "--cap-bytes=1KiB", "--type", "queue"],
        ["delete", "t", "--seq", "1", "--seq", "2-3", "-y"],
    ],
)
def test_the_small_parser_takes_ordinary_command_lines(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    light = maybe_parse(words, COMMANDS, COMMON)
    assert light is not None
    assert by_typer(words, monkeypatch) == (light[0].name, light[1])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["tail"],
        ["tail", "--help"],
        ["tail", "t", "-n"],
        ["tail", "t", "-n", "x"],
        ["serve"],
        ["nonsense"],
        ["get", "t", "x"],
        ["diff", "t", "more"],
        ["write", "t", "--json=yes"],
        ["-o"],
        ["-o", "odd", "tail", "t"],
    ],
)
def test_the_small_parser_leaves_the_unusual_to_the_full_program(words: list[str]) -> None:
    assert maybe_parse(words, COMMANDS, COMMON) is None


def test_every_command_leads_to_a_function_and_every_option_has_help() -> None:
    for command in COMMANDS.values():
        assert callable(command.load())
        names = [option.name for option in (*command.options, *COMMON)] + [item.name for item in command.arguments]
        flags = [flag for option in (*command.options, *COMMON) for flag in option.flags]
        assert len(set(names)) == len(names)
        assert len(set(flags)) == len(flags)
        assert command.summary.endswith((".", "?"))
        assert all(option.help.endswith((".", ")", "'")) for option in command.options)


@pytest.mark.parametrize(
    ("word", "ms"), [("250ms", 250), ("5s", 5000), ("5", 5000), ("1.5h", 5_400_000), ("2d", 172_800_000), ("0", 0)]
)
def test_durations_are_read(word: str, ms: int) -> None:
    assert read_duration(word) == ms


def test_sizes_and_rates_are_read_and_nonsense_is_refused() -> None:
    assert [read_size(word) for word in ("10", "64KiB", "64k", "1.5M", "1GB")] == [10, 65536, 65536, 1572864, 1 << 30]
    assert [read_rate(word) for word in ("10", "10/s", "30/m")] == [10, 10, 0.5]
    for read, word in (
        (read_duration, "5 s"),
        (read_duration, "-1s"),
        (read_size, "1X"),
        (read_rate, "0"),
        (read_rate, "1/d"),
    ):
        with pytest.raises(ValueError, match="is not a"):
            read(word)
