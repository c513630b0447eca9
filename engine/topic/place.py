"""A place in a topic that somebody has told it to keep."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where a cursor stands: the last seq that its reader is done with, and when it was set (engine time in ms)."""

    seq: int
    ts: int
