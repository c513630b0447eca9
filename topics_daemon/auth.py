"""Who a request comes from: the seam that API keys will fill.

A verdict depends on a request's head alone, so it is reached once for each distinct head, stored in it, and forgotten
when the keys change (the memo of heads is then emptied). With no keys configured everybody may do everything; that is
why an address which is not loopback is refused then (`listen`).
"""

from __future__ import annotations

from typing import Protocol

from topics_daemon.head import Head


class Gate(Protocol):
    """Decides whether a request may go on."""

    def admit(self, head: Head) -> None:
        """Raise the 401 or 403 that `head` deserves."""
        ...


class OpenGate:
    """No keys are configured."""

    def admit(self, head: Head) -> None:
        return None
