"""Pieces of a body in, runs of whole lines out: where a stream of lines is cut into batches.

Pure, and bounded by who uses it: `held` says what waits, `cut` takes the front of it. A line may be as long as a batch
or longer, and then is a batch of its own; one that is longer than a line may be is refused before its end has come.
"""

from __future__ import annotations

from typing import Final

from engine.errors import Code, Refused

LINE_SLACK_BYTES: Final = 4096
"""White space around a value, and the end of its line, that a line may have beyond the largest record."""


class Lines:
    """What came of a body and was not taken."""

    __slots__ = ("_buffer", "_line_bytes_max", "_record_bytes_max", "_scanned", "_skips_blanks")

    def __init__(self, record_bytes_max: int, *, skips_blanks: bool = False) -> None:
        """`skips_blanks`: whether lines of white space are nothing, so that a run of them may hold any number."""
        self._skips_blanks = skips_blanks
        self._buffer = bytearray()
        self._record_bytes_max = record_bytes_max
        self._line_bytes_max = record_bytes_max + LINE_SLACK_BYTES
        self._scanned = 0
        """Bytes at the front that hold no end of a line."""

    def __len__(self) -> int:
        """Bytes that wait."""
        return len(self._buffer)

    def feed(self, piece: bytes) -> None:
        """Take what came."""
        self._buffer += piece

    def has_line(self) -> bool:
        """Whether a whole line waits. Raises `record_too_large` when what waits is too long to become one."""
        at = self._buffer.find(b"\n", self._scanned)
        self._scanned = at if at >= 0 else len(self._buffer)
        if self._scanned > self._line_bytes_max:
            raise Refused(
                Code.RECORD_TOO_LARGE,
                f"a line may hold a record of {self._record_bytes_max} bytes",
                {"limit": "max_record_bytes", "max": self._record_bytes_max},
            )
        return at >= 0

    def cut(self, bytes_max: int, lines_max: int, *, last: bool) -> tuple[bytes, int]:
        """Take whole lines from the front, and say how many: at most so many bytes and lines, but at least one line.

        `last`: nothing follows, so that what is behind the last line feed is a line too. Assumes that there is a line.
        """
        buffer = self._buffer
        if last and len(buffer) <= bytes_max:
            end = len(buffer)
        else:
            end = buffer.rfind(b"\n", 0, bytes_max) + 1
            # The first line is longer than that: it goes alone.
            end = end or buffer.find(b"\n") + 1 or len(buffer)
        run = bytes(buffer[:end])
        count = run.count(b"\n") + (not run.endswith(b"\n"))
        if count > lines_max and not (self._skips_blanks and run.isspace()):
            end -= len(run.split(b"\n", lines_max)[lines_max])
            run, count = run[:end], lines_max
        del buffer[:end]
        self._scanned = 0
        return run, count

    def clear(self) -> None:
        """Drop what waits."""
        self._buffer = bytearray()
        self._scanned = 0
