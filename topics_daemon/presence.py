"""Whether the other side of a connection is still there to take what is done on its behalf.

A client that has sent all it will may still read (`shutdown`, `nc -N`), or be gone. Over a Unix socket the kernel knows
which. Over TCP both send the same, and only something that comes there tells them apart: who is gone refuses it. So
neither is waited for any longer, both are answered with what there is, and a little later it is looked at whether the
answer was refused.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Callable
from enum import IntEnum
from typing import Final

REFUSED_WITHIN_S: Final = 0.05
"""How long an answer may take to come there and its refusal to come back: at once on one machine, a network's way else.
The connection stays open for as long."""
KEPT_MAX: Final = 32
"""Connections that are kept open so: none of them counts as one."""


class Ending(IntEnum):
    """How far the other side has ended a connection."""

    NONE = 0
    """It may say more."""
    HALF = 1
    """It has said all it will, and may still read, or be gone."""
    GONE = 2
    """Nothing reaches it."""


def descriptor_of(transport: asyncio.Transport) -> int:
    """The socket of a connection, or −1 if it is closed on our side."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None or transport.is_closing() else int(sock.fileno())


def ending_of(descriptor: int) -> Ending:
    """How far the other side has ended it: the kernel knows before the loop has told what came before."""
    if descriptor < 0:
        return Ending.GONE
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    found = poll.poll(0)
    if not found:
        return Ending.NONE
    return Ending.HALF if found[0][1] == select.POLLRDHUP else Ending.GONE


class Refusals:
    """Looks, a little later, whether what was written to who has said all it will was refused."""

    __slots__ = ("_kept", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept = 0
        """Sockets that are kept open until they are looked at."""

    def watch(self, descriptor: int, then: Callable[[], None]) -> None:
        """Call `then` if what is written in this tick turns out to reach nobody; where too much is watched it is taken
        to have come there."""
        if self._kept >= KEPT_MAX:
            return
        try:
            kept = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            # There are no descriptors left. Leases end by themselves, only later.
            return
        if kept.family == socket.AF_UNIX:
            # Who is there is known already, and who has read the answer may be gone then.
            kept.close()
            return
        self._kept += 1
        self._loop.call_later(REFUSED_WITHIN_S, self._look, kept, then)

    def _look(self, kept: socket.socket, then: Callable[[], None]) -> None:
        self._kept -= 1
        ending = ending_of(kept.fileno())
        kept.close()
        if ending is Ending.GONE:
            then()
