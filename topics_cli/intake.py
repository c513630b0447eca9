"""Where records to be written come from: arguments, files one after the other, or standard input.

`Intake` reads a piece at a time and only when asked, so memory stays flat for any input; every record knows its
source and number, which is how errors name it.
"""

from __future__ import annotations

import os
import stat

from topics_cli.exits import Failure
from topics_cli.framing import Cutter
from topics_cli.signals import POLLIN

READ_BYTES = 1 << 17
RECORD_BYTES_MAX = 64 * 1024 * 1024
"""One record may hold at most what one request may (TOPICS_MAX_BODY_BYTES)."""


class Source:
    """One place that records come from."""

    __slots__ = ("handle", "name", "size")

    def __init__(self, name: str, handle: int) -> None:
        self.name = name
        """"" for standard input."""
        self.handle = handle
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise Failure(f"{name} is a directory", "no_input", "")
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else 0

    def place(self, number: int) -> str:
        """How people name a record of this source."""
        return f"{self.name}:{number}" if self.name else f"line {number}"


class Intake:
    """Reads sources one after the other, and cuts them into records."""

    __slots__ = ("_cutter", "_framing", "_names", "at_end", "count", "read_bytes", "size", "source")

    def __init__(self, names: list[str], framing: str) -> None:
        self._names = names
        self._framing = framing
        self.size = 0
        """Bytes of all files together, 0 when that cannot be known."""
        sizes = [_size_of(name) for name in names]
        if all(size is not None for size in sizes):
            self.size = sum(size or 0 for size in sizes)
        self.read_bytes = 0
        self.count = 0
        """Number of the last record that the present source gave."""
        self.at_end = False
        """Whether the present source is exhausted."""
        self.source = self._open()
        self._cutter = Cutter(framing, RECORD_BYTES_MAX)

    def _open(self) -> Source:
        name = self._names.pop(0)
        if name in ("", "-"):
            try:
                return Source("", 0)
            except OSError as error:
                raise Failure("standard input is closed", "no_input", "give data, -f FILE, or a pipe") from error
        try:
            return Source(name, os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise _unreadable(name, error) from error

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for before reading."""
        return [] if self.at_end else [(self.source.handle, POLLIN)]

    def read(self) -> list[bytes]:
        """Read once; the records that this completes. Sets `at_end` when the source has no more."""
        try:
            data = os.read(self.source.handle, READ_BYTES)
        except OSError as error:
            raise _unreadable(self.source.name or "standard input", error) from error
        self.read_bytes += len(data)
        if data:
            return self._cutter.feed(data)
        self.at_end = True
        if self.source.handle > 0:
            os.close(self.source.handle)
        return self._cutter.end()

    def next_source(self) -> bool:
        """Go on with the next source; False when that was the last."""
        if not self._names:
            return False
        self.source = self._open()
        self._cutter = Cutter(self._framing, RECORD_BYTES_MAX)
        self.count = 0
        self.at_end = False
        return True


def _size_of(name: str) -> int | None:
    """The bytes that a file holds; None for what has no end of its own. Refuses what cannot be read."""
    if name in ("", "-"):
        try:
            status = os.fstat(0)
        except OSError:
            return None
    else:
        try:
            status = os.stat(name)
        except OSError as error:
            raise _unreadable(name, error) from error
        if not os.access(name, os.R_OK):
            raise Failure(f"{name} cannot be read: permission denied", "no_input", "")
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _unreadable(name: str, error: OSError) -> Failure:
    return Failure(f"{name} cannot be read: {(error.strerror or str(error)).lower()}", "no_input", "")
