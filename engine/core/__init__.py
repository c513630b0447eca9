"""The engine behind one facade: `Core` and the `Ticket`s that it gives; `Inspection` for who only looks."""

from engine.core.core import Core
from engine.core.inspection import Inspection
from engine.core.ticket import Ticket

__all__ = ["Core", "Inspection", "Ticket"]
