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


def when_refused(loop: asyncio.AbstractEventLoop, descriptor: int, then: Callable[[], None]) -> None:
    """Call `then` if what is written in this tick, to who has sent all it will, turns out to reach nobody."""
    try:
        kept = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        # There are no descriptors left. Leases end by themselves, only later.
        return
    if kept.family == socket.AF_UNIX:
        # Who is there is known already, and who has read the answer may be gone then.
        kept.close()
        return
    loop.call_later(REFUSED_WITHIN_S, _look, kept, then)


def _look(kept: socket.socket, then: Callable[[], None]) -> None:
    ending = ending_of(kept.fileno())
    kept.close()
    if ending is Ending.GONE:
        then()
