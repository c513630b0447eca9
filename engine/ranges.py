"""Numbers in a row, said by their ends: inclusive runs `(first, last)`."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]


def runs_of(numbers: Iterable[int]) -> Ranges:
    """Numbers as inclusive runs in which each is one more than the one before, in the order given."""
    numbers = list(numbers)
    if len(numbers) == 1:
        return [(numbers[0], numbers[0])]
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return [(numbers[0], numbers[-1])]
    runs: Ranges = []
    first = last = -1
    for number in numbers:
        if number != last + 1 or first < 0:
            if first >= 0:
                runs.append((first, last))
            first = number
        last = number
    if first >= 0:
        runs.append((first, last))
    return runs


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Numbers that differ as ascending inclusive ranges that do not touch."""
    return runs_of(sorted(numbers))
