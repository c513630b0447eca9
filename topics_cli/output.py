"""What goes to stdout: data, and nothing else.

`Out` gathers bytes and writes them whole lines at a time. A pipe is written to in pieces that it can take without
blocking, so that a reader that has stopped reading never keeps a signal waiting, and a reader that has gone away is
noticed at once (`OutputClosed`). Pipes and `-o raw` get the bytes as they are; a terminal gets them without anything
that it would obey.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from topics_cli.exits import Failure, OutputClosed, Stopped
from topics_cli.signals import POLLOUT, is_gone
from topics_cli.talk import for_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from topics_cli.signals import Stop

PIPE_BYTES = 4096
"""A pipe that says it is writable takes this much without blocking (PIPE_BUF)."""
BUFFER_BYTES = 1 << 16
GRACE_S = 0.1
"""How long a stuck reader may keep us from ending after a signal."""

TEXT, TABLE, JSON, NDJSON, RAW = "text", "table", "json", "ndjson", "raw"
API_FORMS = (JSON, NDJSON, RAW)
"""Forms that show what the API said."""


class Out:
    """stdout."""

    __slots__ = (
        "_give_up_at",
        "_held",
        "_parts",
        "_stop",
        "brought",
        "form",
        "handle",
        "is_dressed",
        "is_file",
        "is_terminal",
    )

    def __init__(self, stop: Stop, form: str | None, color: str | None, handle: int = 1) -> None:
        self._stop = stop
        self.handle = handle
        self.form = form
        """What `-o` said, None when it was not given."""
        self.is_terminal = _is_terminal(handle)
        self.is_dressed = _wants_color(color, self.is_terminal)
        """Whether colours are wanted."""
        self.is_file = _is_file(handle)
        self.brought = 0
        """Bytes that have gone out."""
        self._parts: list[bytes] = []
        self._held = 0
        self._give_up_at = 0.0
        """When a reader that is stuck is given up, 0 before a signal has come."""

    def write(self, data: bytes) -> None:
        """Take data; it goes out when enough is there, or at `flush`."""
        self._parts.append(data)
        self._held += len(data)
        if self._held >= BUFFER_BYTES:
            self.flush()

    def line(self, text: str) -> None:
        """A line of text made by us, in cells that tabs divide; what is in them is escaped on a terminal."""
        if self.is_terminal:
            self.write(b"  ".join([for_terminal(cell) for cell in text.split("\t")]) + b"\n")
        else:
            self.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def text(self, data: bytes) -> None:
        """A record's text, on a line of its own."""
        self.write((for_terminal(data.decode("utf-8", "backslashreplace")) if self.is_terminal else data) + b"\n")

    def document(self, body: bytes) -> None:
        """An answer of the API as it is, and a line feed."""
        if self.is_terminal and self.form != RAW:
            self.text(body)
        else:
            self.write(body + b"\n")

    @property
    def taken(self) -> int:
        """Bytes that were taken, gone out or not."""
        return self.brought + self._held

    def flush(self) -> None:
        """Write everything out. Raises `OutputClosed`, or `Stopped` when a signal came and the reader is stuck."""
        if not self._parts:
            return
        data = memoryview(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
        self._parts.clear()
        self._held = 0
        try:
            while data:
                if self.is_file:
                    data = self._cut_off(data, os.write(self.handle, data))
                    continue
                wait_s = None
                if self._stop.signum:
                    self._give_up_at = self._give_up_at or time.monotonic() + GRACE_S
                    wait_s = self._give_up_at - time.monotonic()
                    if wait_s <= 0:
                        # It is still to be written: nobody may take it for shown.
                        self._parts.append(bytes(data))
                        raise Stopped(self._stop.signum)
                ready = self._stop.wait([(self.handle, POLLOUT)], wait_s).get(self.handle, 0)
                if is_gone(ready):
                    raise OutputClosed
                if ready:
                    data = self._cut_off(data, os.write(self.handle, _whole_lines(data)))
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ECONNRESET):
                raise OutputClosed from error
            raise Failure(f"the output cannot be written: {error.strerror}", "output_failed", "") from error

    def _cut_off(self, data: memoryview, count: int) -> memoryview:
        self.brought += count
        return data[count:]

    @property
    def watch(self) -> list[tuple[int, int]]:
        """What to wait for to notice that the reader has gone."""
        return [] if self.is_file else [(self.handle, 0)]


def _whole_lines(data: memoryview) -> memoryview:
    """As many lines as a pipe takes at once, so that an end in the middle leaves no half one; part of a longer line."""
    piece = data[:PIPE_BYTES]
    return piece[: bytes(piece).rfind(b"\n") + 1] or piece


def _is_terminal(handle: int) -> bool:
    try:
        return os.isatty(handle)
    except OSError:
        return False


def _is_file(handle: int) -> bool:
    """Whether writing never waits for a reader."""
    try:
        mode = os.fstat(handle).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not _is_terminal(handle))


def _wants_color(color: str | None, is_terminal: bool) -> bool:
    if color in ("always", "never"):
        return color == "always"
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    return is_terminal and not dumb and not os.environ.get("NO_COLOR")
