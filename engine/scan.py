"""The one seam to what is compiled (`_scan.c`, `_checks.c`), and what stands for it where it is not (docs/adr/0039).

Each function gives exactly what the Python that calls it would make, or None: "not mine", and Python decides. Where
there was no compiler when topics was installed, on a platform that is not the one it was compiled for, or where the
daemon is told to do without (`TOPICS_PURE=1`), nothing is theirs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

try:
    from engine import _scan as found
except ImportError:
    _built: Any = None
else:
    # What was compiled from an older source is as good as nothing, until it is compiled again.
    _built = found if all(hasattr(found, name) for name in ("write", "lines", "member", "render")) else None

try:
    from engine import _checks
except ImportError:
    _hashing: Any = None
else:
    _hashing = _checks

Texts: TypeAlias = list[str | None] | None
Metas: TypeAlias = list[bytes | None] | None
TooMany: TypeAlias = Literal[False]
"""That there are more records than there may be."""
Columns: TypeAlias = tuple[list[bytes], Texts, Texts, Metas, bytes | None]
"""Datas, tags, nodes and metas as in a `Batch`; and the body with `[]` for its records, where it has other members."""
Member: TypeAlias = tuple[str, int, int, int, int]
"""Its name, where its value begins and ends, where the next one begins, and 1; where the object ends, and 0."""
Parts: TypeAlias = tuple[bytes, bytes, bytes | None, bytes | None, bytes | None]
"""Fragments, strides, and the lengths of nodes, metas and tags as in `Rendered`, but bytes instead of arrays."""


def _not_mine(*_: object) -> None:
    """What everything is where nothing is compiled."""


write: Callable[[bytes, int, int], Columns | TooMany | None] = _not_mine
"""A write body whose values nest at most so deep, with at most so many records; False where more of them come first,
each as it may be."""
lines: Callable[[bytes, int, int], list[bytes] | None] = _not_mine
"""The values of an NDJSON body, with the same bounds."""
member: Callable[[bytes, int, int], Member | None] = _not_mine
"""The member of an object in these bytes whose key begins there, last; its value nests at most so deep."""
render: Callable[[list[bytes], Texts, Texts, Metas, int, int], Parts | None] = _not_mine
"""Datas, tags, nodes, metas, the first seq, and the ts, as fragments."""

checks: Callable[[bytes | bytearray | memoryview, array[int]], bytes | None] = _not_mine
"""Data and its strides: the lower half of the XXH3-64 of each fragment, 32 bits each (docs/adr/0066). Others may run
meanwhile."""


def choose(*, compiled: bool) -> None:
    """Use what is compiled, if it is there, or do without; for the whole process, before it begins to serve."""
    global write, lines, member, render, checks
    if compiled and _built is not None:
        write, lines, member, render = _built.write, _built.lines, _built.member, _built.render
    else:
        write = lines = member = render = _not_mine
    checks = _hashing.checks if compiled and _hashing is not None else _not_mine


def use(built: Any) -> None:
    """Take this for what is compiled (tests compile it in other ways), and use it."""
    global _built
    _built = built
    choose(compiled=True)


def is_built() -> bool:
    """Whether there is something compiled to choose."""
    return _built is not None


def is_compiled() -> bool:
    """Whether what is compiled is in use."""
    return write is not _not_mine


choose(compiled=True)
