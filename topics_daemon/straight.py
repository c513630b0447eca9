"""Writes that go straight into sockets, past the loop's transports, where the same bytes go into many of them.

A transport keeps what it is given until the end of the round, and writes it then: what that takes is most of what a
delivery takes above the kernel's part. Nothing may be written here while a transport has something that was to leave
before.

Where it is compiled (`_straight.c`, under the same choice as `engine/scan.py`) one call writes into all of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from engine import scan

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.streams import Stream

try:
    from topics_daemon import _straight as _found
except ImportError:
    _built: Any = None
else:
    _built = _found

GONE: Final = -1
"""Stands for what was taken where nothing is taken any more."""
AT_ONCE_MAX: Final = 64
"""Sockets that one call may be asked for."""


def write_all(sockets: list[int], data: bytes) -> list[tuple[int, int]]:
    """Write the same into all of these descriptors. Returns who did not take all of it: which one of them it is, and
    how much it took, or `GONE`."""
    if _built is not None and scan.is_compiled():
        short: list[tuple[int, int]] = _built.write_all(sockets, data)
        return short
    return write_each(sockets, data)


def write_each(sockets: list[int], data: bytes) -> list[tuple[int, int]]:
    """The same where nothing is compiled."""
    write, size = os.write, len(data)
    short: list[tuple[int, int]] = []
    for index, descriptor in enumerate(sockets):
        try:
            taken = write(descriptor, data)
        except BlockingIOError:
            taken = 0
        except OSError:
            taken = GONE
        if taken != size:
            short.append((index, taken))
    return short


def give(daemon: Daemon, streams: list[Stream], sockets: list[int], data: bytes, cursor: int) -> None:
    """Write what these streams are told, who stood at `cursor`, straight into their sockets. Empties the lists."""
    for index, taken in write_all(sockets, data):
        stream = streams[index]
        try:
            if taken != GONE:
                stream.outlet.write(data[taken:])
            elif stream.steady is not None:
                # It reaches nobody: the session's cursor must not pass it.
                stream.steady.cursor = cursor
                stream.gone()
                stream.connection.cut()
        except Exception as error:  # noqa: BLE001  # logged under an id; the reader comes back and goes on
            daemon.internal_error(error)
            stream.end(500, "internal")
    streams.clear()
    sockets.clear()


def is_built() -> bool:
    """Whether it is compiled."""
    return _built is not None
