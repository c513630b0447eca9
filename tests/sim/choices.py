"""A run as a list of choices: enumerated, drawn from a seed, or replayed from a token.

Whatever a simulated run decides (which command, when a sync ends, which call fails) it asks of a `Choices`. The list
of answers is the run: written as a token, it reproduces that run alone, whatever enumerated or drew it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Answers to "which of n?": first those of a given list, then a random generator's, or 0 without one."""

    def __init__(self, given: Sequence[int] = (), rng: random.Random | None = None) -> None:
        self._given = list(given)
        self._rng = rng
        self.made: list[int] = []
        self.widths: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to `count` − 1."""
        at = len(self.made)
        if at < len(self._given):
            made = min(self._given[at], count - 1)
        else:
            made = self._rng.randrange(count) if self._rng is not None and count > 1 else 0
        self.made.append(made)
        self.widths.append(count)
        return made

    def of(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return options[self.below(len(options))]

    def token(self) -> str:
        """The choices made so far, as one word (trailing zeros left out: they are what replay falls back to)."""
        made = self.made[:]
        while made and not made[-1]:
            made.pop()
        return ".".join(map(str, made)) or "0"

    @classmethod
    def replay(cls, token: str) -> Choices:
        """The choices of a token, then zeros."""
        return cls([int(part) for part in token.split(".")])


def enumerate_runs(run: Callable[[Choices], T], runs_max: int | None = None) -> Iterator[tuple[Choices, T]]:
    """Every run that differs in at least one choice, in depth-first order; stops after `runs_max`."""
    given: list[int] = []
    done = 0
    while runs_max is None or done < runs_max:
        choices = Choices(given)
        yield choices, run(choices)
        done += 1
        at = len(choices.made) - 1
        while at >= 0 and choices.made[at] + 1 >= choices.widths[at]:
            at -= 1
        if at < 0:
            return
        given = [*choices.made[:at], choices.made[at] + 1]
