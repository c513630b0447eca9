"""The progress of long work on files: a line on a terminal with how far it is and when it will be done."""

from __future__ import annotations

import time

from topics_cli.session import Session
from topics_cli.times import show_duration

EVERY_S = 0.2
"""How often the line is drawn."""
ETA_AFTER_S = 2.0
"""Before that a guess is worth nothing."""


class Progress:
    """One piece of work, from 0 to 1. It also notices signals."""

    __slots__ = ("_began", "_drawn", "_session", "is_due", "label")

    def __init__(self, session: Session, label: str) -> None:
        self.label = label
        self.is_due = False
        """Whether the last call was one that is worth showing."""
        self._session = session
        self._began = self._drawn = time.monotonic()

    def heard(self, part: float) -> None:
        """So much is done. Raises `Stopped` after a signal."""
        self._session.stop.check()
        now = time.monotonic()
        self.is_due = now - self._drawn >= EVERY_S
        if not self.is_due:
            return
        self._drawn = now
        elapsed = now - self._began
        text = f"{self.label}  {min(part, 1.0):.0%}"
        if elapsed >= ETA_AFTER_S and 0.01 < part < 1:
            text += f", {show_duration(int(elapsed * (1 - part) / part * 1000))} to go"
        self._session.talk.progress(text)

    def end(self) -> None:
        """Take the line away."""
        self._session.talk.clear()
