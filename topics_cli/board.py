"""What a worker shows: a line a job for a journal, or on a terminal a table that is drawn again as things change.

The table stands below everything else. Before anything is said it is taken away, and drawn again afterwards, so that
what the commands print scrolls by above it. It never fills the screen, and no row of it is wider: what has wrapped or
scrolled off could not be taken away. A terminal that was made narrower meanwhile has folded its rows; that is counted.
"""

from __future__ import annotations

import os
import time
from typing import Final

from topics_cli.launch import Running
from topics_cli.printed import Printed
from topics_cli.session import Session
from topics_cli.talk import columns, fitted, width_of

DRAW_S: Final = 0.2
DATA_BYTES_MAX: Final = 1000
"""How much of a job's data is looked at for its row; the terminal's width cuts it."""
ROWS_MAX: Final = 16
"""Commands that the table shows at most; of more only the number."""
ROWS_LEFT: Final = 4
"""What of the terminal's height is left to everything else."""
_NO_WRAP: Final = "\x1b[?7l"
_WRAP: Final = "\x1b[?7h"


class Board:
    """What is known about a worker's work, for people."""

    def __init__(self, session: Session, queue: str, jobs: int) -> None:
        self._talk = session.talk
        self._queue = queue
        self._jobs = jobs
        self._widths: list[int] = []
        """Of each row that stands there, in columns."""
        self._drawn_at = 0.0
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

    def pass_on(self, output: Printed, data: bytes) -> None:
        """What a command has printed; nothing when it is all that it prints."""
        lines = output.lines(data) if data else output.end()
        if lines:
            self.clear()
            _write(output.target, lines)

    def clear(self) -> None:
        """Take the table away."""
        self._talk.clear()
        if self._widths:
            _write(2, self._taken_away().encode())
            self._drawn_at = 0.0

    def _taken_away(self) -> str:
        """What takes the table away."""
        width = columns()
        lines = sum(max(1, -(-one // width)) for one in self._widths)
        self._widths = []
        return f"\r\x1b[{lines}A\x1b[J" if lines else ""

    @property
    def counts(self) -> str:
        """How many jobs have ended here, and how. A queue moves those that failed too often by itself, and says nothing
        of it here: that none is dead is not ours to tell."""
        dead = f", {self.dead} dead" if self.dead else ""
        lost = f", {self.lost} lost" if self.lost else ""
        return f"{self.done} done, {self.failed} failed{dead}{lost}"

    def draw(self, running: list[Running], state: str = "") -> None:
        """Draw the table, if it is time."""
        if not self.is_live or time.monotonic() - self._drawn_at < DRAW_S:
            return
        self._talk.clear()
        most = max(1, min(ROWS_MAX, _height() - ROWS_LEFT))
        digits = max((len(str(run.jobs[0].seq)) for run in running[:most]), default=0)
        rows = [_row(run, digits) for run in running[:most]]
        if len(running) > most:
            rows.append(f"  and {len(running) - most} more")
        waiting = "" if self.ready is None else f", {self.ready} ready"
        rows.append(f"{self._queue}{state}: {len(running)} of {self._jobs} running, {self.counts}{waiting}")
        rows = [fitted(row, columns() - 1) for row in rows]
        _write(2, (self._taken_away() + _NO_WRAP + "".join(row + "\n" for row in rows) + _WRAP).encode())
        self._widths = [sum(map(width_of, row)) for row in rows]
        self._drawn_at = time.monotonic()


def _row(run: Running, digits: int) -> str:
    first = run.jobs[0]
    more = f" and {len(run.jobs) - 1} more" if len(run.jobs) > 1 else ""
    again = f"  delivery {first.deliveries}" if first.deliveries > 1 else ""
    data = first.data(raw=False)[:DATA_BYTES_MAX].decode("utf-8", "replace")
    return f"  {first.seq:>{digits}}{more}  {run.seconds:6.1f} s{again}  {data}"


def _height() -> int:
    try:
        return os.get_terminal_size(2).lines or 24
    except OSError:
        return 24


def _write(handle: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError:
        pass
