"""Help: pages made from the option table, in one form for pipes, files and terminals.

Typer and Rich could do it, at a quarter of a second a page. The full program gives its help here, too, so that a page
looks the same however it was asked for; `maybe_help` knows the words by which everybody asks, and needs neither.
"""

from __future__ import annotations

from topics_cli import exits
from topics_cli.options import CHOICE, FLAG, Argument, Command, Option
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON
from topics_cli.talk import columns, speaks_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from topics_cli.session import Session

ABOUT = "An append-only event log on one machine: write, read and follow topics."
VERSION = Option("--version", FLAG, "Show the versions, and end.")
HELP = Option("-h --help", FLAG, "Show this message and exit.")
WIDTH_MAX = 100
"""Longer lines are hard to read, however wide the terminal."""
WIDTH_MIN = 40
BESIDE_MAX = 30
"""An option that takes no more columns has its help beside it, any other below; narrow terminals leave less room."""
_BOLD, _CYAN, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[0m"


def maybe_help(words: list[str]) -> tuple[Command, dict[str, Any]] | None:
    """The page that `words` ask for plainly (`--help`, `help tail`, `tail -h`), as a command to run, or None."""
    if words[:1] == ["help"]:
        names = words[1:]
    elif words[-1:] in (["--help"], ["-h"]):
        names = words[:-1]
    else:
        return None
    command = COMMANDS.get(names[0]) if names else None
    if len(names) > 1 or (command is None) is not (not names) or (command is not None and command.passes_through):
        return None
    return PAGE, {"name": names[0] if names else None}


def show(session: Session, values: dict[str, Any]) -> int:
    """Show the page of a command, or of them all."""
    name = values["name"]
    lines = page(COMMANDS[name] if name else None, columns(), is_dressed=session.out.is_dressed)
    session.out.write("".join(f"{line}\n" for line in lines).encode("utf-8" if speaks_utf8() else "ascii"))
    return exits.DONE


PAGE = Command("help", "Show help.", "topics_cli.help:show", is_light=True)
"""What `maybe_help` gives: no row of the table, for `help` is a way to ask, and takes no options."""


def page(command: Command | None, width: int, *, is_dressed: bool) -> list[str]:
    """The lines of a page, none wider than `width` columns where words allow it; None: the page of all commands."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    lines: list[str] = []

    def heading(text: str) -> None:
        lines.extend(["", f"{_BOLD}{text}:{_PLAIN}" if is_dressed else f"{text}:"])

    def rows(title: str, rows: list[tuple[str, str, str]]) -> None:
        heading(title)
        lines.extend(_rows(rows, width, is_dressed=is_dressed))

    heading("Usage")
    lines.pop(0)
    lines[0] += f" {usage_of(command)}"
    lines += ["", *(f"  {line}" for line in folded(ABOUT if command is None else command.summary, width - 2))]
    if command is None:
        rows("Options", [_option(option) for option in (VERSION, *COMMON, HELP)])
        rows("Commands", [(each.name, "", each.summary) for each in COMMANDS.values()])
        return lines
    if command.arguments:
        rows("Arguments", [_argument(argument) for argument in command.arguments])
    rows("Options", [_option(option) for option in (*command.options, HELP)])
    rows("Everywhere", [_option(option) for option in COMMON])
    if command.examples:
        heading("Examples")
        lines += [f"  {example}" for example in command.examples]
    return lines


def usage_of(command: Command | None) -> str:
    """How a command is called: `topics get [OPTIONS] TOPIC SEQ...`."""
    if command is None:
        return "topics [OPTIONS] COMMAND [ARGS]..."
    words = ["topics", command.name, "[OPTIONS]"]
    for argument in command.arguments:
        word = argument.metavar + ("..." if argument.many else "")
        words.append(word if argument.required else f"[{word}]")
    return " ".join(words)


def _option(option: Option) -> tuple[str, str, str]:
    value = "|".join(option.choices) if option.kind is CHOICE else option.metavar
    return ", ".join(sorted(option.flags, key=len)), "" if option.kind is FLAG else value, option.help


def _argument(argument: Argument) -> tuple[str, str, str]:
    return argument.metavar, "|".join(argument.choices) if argument.kind is CHOICE else "", argument.help


def _rows(rows: list[tuple[str, str, str]], width: int, *, is_dressed: bool) -> list[str]:
    """Lines of names, what they take, and their help beside them or below."""
    most = min(BESIDE_MAX, width // 3)
    lefts = [f"{name} {value}" if value else name for name, value, _ in rows]
    beside = max((len(left) for left in lefts if len(left) <= most), default=most)
    lines = []
    for (name, _, text), left in zip(rows, lefts, strict=True):
        shown = f"  {_CYAN}{name}{_PLAIN}{left[len(name) :]}" if is_dressed else f"  {left}"
        texts = folded(text, width - beside - 4)
        if len(left) <= beside:
            shown += " " * (beside - len(left) + 2) + texts.pop(0)
        lines += [shown, *(" " * (beside + 4) + text for text in texts)]
    return lines


def folded(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns, broken between words alone; one line at least."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines
