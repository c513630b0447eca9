"""What commands print while a table stands on the terminal: it comes through us, and is shown a whole line at a time.

So lines of several commands never mix, and nothing that one of them prints moves the cursor out of its line: colours
and tabs stay, of a line that was overwritten (`\\r`) the last state is shown, and every other control byte is escaped.
"""

from __future__ import annotations

import os
import re
from typing import Final

from topics_cli.talk import for_terminal

LINE_BYTES_MAX: Final = 1 << 16
"""A line that grows longer is shown in pieces."""
_DRESS: Final = re.compile(r"(\x1b\[[0-9;:]*m|\t)")
_PLAIN: Final = b"\x1b[0m"


class Printed:
    """One output of a command."""

    __slots__ = ("_rest", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        """The descriptor where it goes."""
        self._rest = b""

    def lines(self, data: bytes) -> bytes:
        """What may be shown now that `data` has come as well: whole lines."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            whole.append(self._rest)
            self._rest = b""
        return b"".join(shown(line) for line in whole)

    def end(self) -> bytes:
        """What is left when no more can come: a line that was not ended."""
        rest, self._rest = self._rest, b""
        return shown(rest) if rest else b""


def shown(line: bytes) -> bytes:
    """A line as it is shown, with its end."""
    text = os.fsdecode(line.rstrip(b"\r").rpartition(b"\r")[2])
    pieces = _DRESS.split(text)
    out = [piece.encode() if place % 2 else for_terminal(piece) for place, piece in enumerate(pieces)]
    if any(piece.startswith(b"\x1b") for piece in out):
        out.append(_PLAIN)
    return b"".join(out) + b"\n"
