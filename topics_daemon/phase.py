"""Where a connection of HTTP/1.1 is; `http1` draws how it gets from one phase to the next."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Phase(IntEnum):
    """Where a connection is."""

    HEAD = 0
    BODY = 1
    GATHER = 2
    INFLATE = 3
    WAIT = 4
    STREAM = 5
    LINGER = 6
    CLOSED = 7


HEAD: Final = Phase.HEAD
BODY: Final = Phase.BODY
GATHER: Final = Phase.GATHER
INFLATE: Final = Phase.INFLATE
WAIT: Final = Phase.WAIT
STREAM: Final = Phase.STREAM
LINGER: Final = Phase.LINGER
CLOSED: Final = Phase.CLOSED
# A member of an enum costs 120 ns to reach, a global 40, and a request passes a dozen of them.
