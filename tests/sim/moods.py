"""How a simulated cold tier is, whatever it is made of."""

from __future__ import annotations

from enum import Enum


class Mood(Enum):
    """How the tier is."""

    WELL = "well"
    GONE = "gone"
    """Its file system is not mounted: an empty directory."""
    LYING = "lying"
    """Writes succeed, and a byte of each is another one."""
    EXPIRED = "expired"
    """A bucket whose credentials are good no more."""
    VANISHED = "vanished"
    """A bucket in which the data of segments is not found."""
    STALE = "stale"
    """A bucket whose listings lag behind."""


class Moody:
    """The mood, and what goes wrong a number of times.

    refusals        requests that are answered with 503
    lost_answers    puts that are done, and whose answer does not come
    garbles         gets of data whose first byte is another one
    cuts            gets of data that lack their last byte
    """

    def __init__(self) -> None:
        self.mood = Mood.WELL
        self.refusals = self.lost_answers = self.garbles = self.cuts = 0
