"""Work on the cold tier that is not finished: what is joined into what, as an object of the tier (FORMATS.md, "Work").

Whoever puts the object of a name first, has that name: no two processes ever write a segment under the same one. It is
there before the first byte of the new segment, and goes after the last one of the old ones. Which segments count, is
for snapshots alone to say; this says to anybody else what lies there, and what for.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

WORK_DIR: Final = "work"
WORK_FORMAT: Final = 1
WORK_BYTES_MAX: Final = 1 << 20
"""Nobody writes a larger one: it names the segments that are joined, a few hundred at most."""

_NAME: Final = re.compile(r"([0-9a-f]{16})-(\d{20})-(\d{10})\.json(?:\.[0-9a-f]{16}\.tmp)?\Z")


class WorkState(StrEnum):
    """How far it is."""

    COPYING = "copying"
    """The new segment may be there, whole, in part or not at all."""
    COPIED = "copied"
    """It is there, and was read back. The next snapshot names it, if the process lives."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Some neighbouring segments of a topic that become one."""

    format: int
    store_id: str
    start: int
    """Of the process whose work it is (`starts` in LOCK)."""
    state: WorkState
    topic: str
    """Its id, 16 hexadecimal digits."""
    first: int
    last: int
    """Seqs of the new segment, inclusive."""
    number: int
    """Of the new segment."""
    old: list[str]
    """The data of the segments that are joined; their indexes lie beside it."""
    new: str
    """The data of the new one."""
    created_ms: int


def work_path(topic_id: int, first_seq: int, number: int) -> str:
    """Where the work on a segment is noted."""
    return f"{WORK_DIR}/{topic_id:016x}-{first_seq:020d}-{number:010d}.json"


def parse_work_name(name: str) -> tuple[int, int, int] | None:
    """Topic id, first seq and number, also of one that was never finished; None for a name of something else."""
    match = _NAME.match(name)
    return None if match is None else (int(match[1], 16), int(match[2]), int(match[3]))
