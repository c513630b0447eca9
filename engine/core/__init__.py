"""The engine behind one facade: `Core` and the `Ticket`s that it gives."""

from engine.core.core import Core
from engine.core.ticket import Ticket

__all__ = ["Core", "Ticket"]
