"""What a command line is made of: commands, arguments and options as data, and how their words are read.

One table of these (`table`) is what Typer's commands are made from, what the small parser of the fast commands
(`parse`) follows, and what completions and manual pages are to be generated from. Nothing here knows a command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FLAG = "flag"
TEXT = "text"
NUMBER = "number"
SEQS = "seqs"
"""A seq, or a range of them."""
DURATION = "duration"
MILLIS = "millis"
"""A duration whose bare number is milliseconds, as in the fields of a configuration."""
SIZE = "size"
RATE = "rate"
SPEED = "speed"
CHOICE = "choice"

SEQS_MAX = 10_000
"""Seqs of one range: each is a request of its own."""
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Option:
    """An option: its spellings, what kind of value it takes, and its help."""

    __slots__ = ("choices", "flags", "help", "kind", "many", "metavar", "name")

    def __init__(
        self,
        flags: str,
        kind: str,
        help: str,
        *,
        metavar: str = "",
        many: bool = False,
        choices: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        self.flags = tuple(flags.split())
        self.kind = kind
        self.help = help
        self.metavar = metavar
        self.many = many
        self.choices = choices
        self.name = name or max(self.flags, key=len).lstrip("-").replace("-", "_")

    @property
    def default(self) -> Any:
        """The value of an option that is not given."""
        return False if self.kind is FLAG else [] if self.many else None

    def read(self, word: str) -> Any:
        """The value that a word stands for; ValueError says what is wrong with it."""
        return read(self.kind, word, self.choices)


class Argument:
    """A positional argument."""

    __slots__ = ("choices", "help", "kind", "many", "metavar", "name", "required")

    def __init__(
        self,
        metavar: str,
        help: str,
        *,
        kind: str = TEXT,
        required: bool = True,
        many: bool = False,
        choices: tuple[str, ...] = (),
    ) -> None:
        self.name = metavar.lower()
        self.metavar = metavar
        self.help = help
        self.kind = kind
        self.required = required
        self.many = many
        self.choices = choices

    @property
    def default(self) -> Any:
        """The value of an argument that is not given."""
        return [] if self.many else None

    def read(self, word: str) -> Any:
        """The value that a word stands for; ValueError says what is wrong with it."""
        return read(self.kind, word, self.choices)


class Command:
    """A command: what it takes, and where the function is that does it (`module:function`, imported when it runs)."""

    __slots__ = ("arguments", "examples", "is_light", "name", "options", "passes_through", "run", "summary")

    def __init__(
        self,
        name: str,
        summary: str,
        run: str,
        *,
        arguments: tuple[Argument, ...] = (),
        options: tuple[Option, ...] = (),
        examples: tuple[str, ...] = (),
        is_light: bool = False,
        passes_through: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        self.run = run
        self.arguments = arguments
        self.options = options
        self.examples = examples
        self.is_light = is_light
        """Whether the command must start without importing anything heavy."""
        self.passes_through = passes_through
        """Whether its words belong to another program."""

    def load(self) -> Callable[..., int]:
        """Import the function that does the work."""
        module, _, function = self.run.partition(":")
        loaded: Callable[..., int] = getattr(__import__(module, fromlist=(function,)), function)
        return loaded


def read(kind: str, word: str, choices: tuple[str, ...]) -> Any:
    """Read a word as a value of a kind; ValueError says what is wrong with it."""
    if kind is NUMBER:
        return read_number(word)
    if kind is SEQS:
        return read_seqs(word)
    if kind is DURATION:
        return read_duration(word)
    if kind is MILLIS:
        return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else read_duration(word)
    if kind is SIZE:
        return read_size(word)
    if kind is RATE:
        return read_rate(word)
    if kind is SPEED:
        return read_speed(word)
    if kind is CHOICE and word not in choices:
        raise ValueError(f"{word!r} is not one of {', '.join(choices)}")
    return word


def read_number(word: str) -> int:
    """A whole number from 0."""
    if word.isascii() and word.isdigit() and len(word) <= 20:
        return int(word)
    raise ValueError(f"{word!r} is not a whole number")


def read_seqs(word: str) -> range:
    """The seqs of `7`, or of `7-9`."""
    first, dash, last = word.partition("-")
    try:
        seqs = range(read_number(first), read_number(last if dash else first) + 1)
    except ValueError:
        raise ValueError(f"{word!r} is not a seq, nor a range such as 7-9") from None
    if not 0 < seqs.stop - seqs.start <= SEQS_MAX:
        raise ValueError(f"{word!r} is not a range of 1 to {SEQS_MAX} seqs")
    return seqs


def read_duration(word: str) -> int:
    """Milliseconds from `250ms`, `5s`, `1.5h`, `2d`; a bare number is seconds."""
    digits = word.rstrip("mshdw")
    unit = word[len(digits) :] or "s"
    if unit in _MS and _is_decimal(digits):
        return int(float(digits) * _MS[unit])
    raise ValueError(f"{word!r} is not a duration such as 250ms, 5s, 2h or 7d")


def read_size(word: str) -> int:
    """Bytes from `4096`, `64MiB`, `64M`, `1.5GiB`."""
    digits = word.rstrip("iBKMGTkmgt")
    unit = word[len(digits) :].upper().removesuffix("B").removesuffix("I")
    if unit in _BYTES and _is_decimal(digits):
        return int(float(digits) * _BYTES[unit]) if "." in digits else int(digits) * _BYTES[unit]
    raise ValueError(f"{word!r} is not a size such as 4096, 64KiB or 1.5GiB")


def read_rate(word: str) -> float:
    """Records a second from `100`, `100/s`, `30/m`."""
    count, slash, per = word.partition("/")
    if _is_decimal(count) and float(count) > 0 and (not slash or per in ("s", "m", "h")):
        return float(count) / (_MS[per] / 1000 if slash else 1)
    raise ValueError(f"{word!r} is not a rate such as 100, 100/s or 30/m")


def read_speed(word: str) -> float:
    """How many times as fast: `10x`, `0.5x`, `2`."""
    number = word.removesuffix("x")
    if _is_decimal(number) and float(number) > 0:
        return float(number)
    raise ValueError(f"{word!r} is not a speed such as 1x, 10x or 0.5x")


def _is_decimal(text: str) -> bool:
    whole, _, part = text.partition(".")
    return text.isascii() and (whole + part).isdigit() and bool(whole) and len(text) <= 20
