"""The small parser: words to values, without importing anything.

It follows the option table as Typer's parser does (options anywhere, `--name value`, `--name=value`, `-n5`, flags in a
row, `--` ends options), and gives up with None at whatever is unusual: help, anything unknown, missing or badly
written, and at commands whose words are another program's. The full program then reads the same words, and says what
is wrong with them. A test holds the two together.
"""

from __future__ import annotations

from topics_cli.options import FLAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from topics_cli.options import Command, Option


def maybe_parse(
    words: list[str], commands: dict[str, Command], common: tuple[Option, ...]
) -> tuple[Command, dict[str, Any]] | None:
    """The command that `words` call and its values, or None when the full program has to look at them."""
    values: dict[str, Any] = {}
    at = _take_leading(words, common, values)
    if at is None or at >= len(words):
        return None
    command = commands.get(words[at])
    if command is None or command.passes_through:
        return None
    given = _take(words[at + 1 :], command, common)
    if given is None:
        return None
    for option in (*command.options, *common):
        values.setdefault(option.name, option.default)
    values.update(given)
    return command, values


def _take_leading(words: list[str], common: tuple[Option, ...], values: dict[str, Any]) -> int | None:
    """Read the options before the command; returns where the command stands."""
    flags = {flag: option for option in common for flag in option.flags}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        option = flags.get(name)
        if option is None:
            return None
        if option.kind is FLAG:
            if equals:
                return None
            values[option.name] = True
        else:
            if not equals:
                at += 1
                if at >= len(words):
                    return None
                value = words[at]
            if not _put(values, option, value):
                return None
        at += 1
    return at


def _take(words: list[str], command: Command, common: tuple[Option, ...]) -> dict[str, Any] | None:
    flags = {flag: option for option in (*command.options, *common) for flag in option.flags}
    values: dict[str, Any] = {}
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            rest.extend(waiting)
            break
        if len(word) < 2 or word[0] != "-":
            rest.append(word)
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            option = flags.get(name)
            if option is None or (option.kind is FLAG and equals):
                return None
            if option.kind is FLAG:
                values[option.name] = True
            else:
                given = value if equals else next(waiting, None)
                if given is None or not _put(values, option, given):
                    return None
        elif not _take_short(word, flags, values, waiting):
            return None
    return values if _place(rest, command, values) else None


def _take_short(word: str, flags: dict[str, Option], values: dict[str, Any], waiting: Any) -> bool:
    """Read a word of short options: `-f`, `-fn 5`, `-n5`."""
    for place, letter in enumerate(word[1:], 2):
        option = flags.get("-" + letter)
        if option is None:
            return False
        if option.kind is FLAG:
            values[option.name] = True
            continue
        value = word[place:] or next(waiting, None)
        return value is not None and _put(values, option, value)
    return True


def _put(values: dict[str, Any], option: Option, word: str) -> bool:
    try:
        value = option.read(word)
    except ValueError:
        return False
    if option.many:
        values.setdefault(option.name, []).append(value)
    else:
        values[option.name] = value
    return True


def _place(rest: list[str], command: Command, values: dict[str, Any]) -> bool:
    """Give the remaining words to the arguments, in order."""
    at = 0
    for argument in command.arguments:
        taken = rest[at:] if argument.many else rest[at : at + 1]
        at += len(taken)
        if not taken and argument.required:
            return False
        try:
            read = [argument.read(word) for word in taken]
        except ValueError:
            return False
        values[argument.name] = read if argument.many else read[0] if read else None
    return at == len(rest)
