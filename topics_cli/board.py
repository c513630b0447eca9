"""What a worker shows: a line a job for a journal, or on a terminal a table that is drawn again as things change.

The table stands below everything else. Before anything is said it is taken away, and drawn again afterwards, so that
what the commands print scrolls by above it.
"""

from __future__ import annotations

import os
import time
from typing import Final

from topics_cli.launch import Running
from topics_cli.session import Session
from topics_cli.talk import columns, for_terminal

DRAW_S: Final = 0.2
DATA_BYTES_MAX: Final = 1000
"""How much of a job's data is looked at for its row; the terminal's width cuts it."""
ROWS_MAX: Final = 16
"""Commands that the table shows; of more only the number."""


class Board:
    """What is known about a worker's work, for people."""

    def __init__(self, session: Session, queue: str, jobs: int) -> None:
        self._talk = session.talk
        self._queue = queue
        self._jobs = jobs
        self._lines = 0
        self._drawn_at = 0.0
        self._is_midline = False
        """Whether the last thing that a command has printed did not end its line."""
        self.is_live = session.talk.is_live
        self.done = 0
        self.failed = 0
        self.dead = 0
        self.lost = 0
        self.ready: int | None = None
        """Jobs that wait in the queue, as the daemon last said."""

    def ended(self, run: Running, what: str) -> None:
        """A line for each job of a command that has ended."""
        for job in run.jobs:
            delivery = f", delivery {job.deliveries}" if job.deliveries > 1 else ""
            self.note(f"topics: {self._queue} {job.seq} {what} after {run.seconds:.2f} s{delivery}")

    def note(self, text: str) -> None:
        """A line about the work."""
        self.clear()
        self._talk.note(text)

    def pass_on(self, target: int, data: bytes) -> None:
        """What a command has printed."""
        self.clear()
        self._is_midline = not data.endswith(b"\n")
        try:
            while data:
                data = data[os.write(target, data) :]
        except OSError:
            pass

    def clear(self) -> None:
        """Take the table away."""
        self._talk.clear()
        if self._lines:
            self._write(f"\r\x1b[{self._lines}A\x1b[J")
            self._lines = 0
            self._drawn_at = 0.0

    @property
    def counts(self) -> str:
        """How many jobs have ended, and how."""
        lost = f", {self.lost} lost" if self.lost else ""
        return f"{self.done} done, {self.failed} failed, {self.dead} dead{lost}"

    def draw(self, running: list[Running], state: str = "") -> None:
        """Draw the table, if it is time."""
        if not self.is_live or time.monotonic() - self._drawn_at < DRAW_S:
            return
        width = columns() - 1
        rows = [_row(run)[:width] for run in running[:ROWS_MAX]]
        if len(running) > ROWS_MAX:
            rows.append(f"  and {len(running) - ROWS_MAX} more")
        waiting = "" if self.ready is None else f", {self.ready} ready"
        rows.append(f"{self._queue}: {len(running)} of {self._jobs} running, {self.counts}{waiting}{state}"[:width])
        self.clear()
        if self._is_midline:
            self._write("\n")
            self._is_midline = False
        self._write("".join(for_terminal(row).decode("utf-8", "replace") + "\n" for row in rows))
        self._lines = len(rows)
        self._drawn_at = time.monotonic()

    @staticmethod
    def _write(text: str) -> None:
        try:
            os.write(2, text.encode())
        except OSError:
            pass


def _row(run: Running) -> str:
    first = run.jobs[0]
    more = f" and {len(run.jobs) - 1} more" if len(run.jobs) > 1 else ""
    again = f"  delivery {first.deliveries}" if first.deliveries > 1 else ""
    data = first.data(raw=True)[:DATA_BYTES_MAX].decode("utf-8", "replace")
    return f"  {first.seq}{more}  {run.seconds:6.1f} s{again}  {data}"
