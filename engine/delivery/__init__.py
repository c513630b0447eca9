"""Who is served next, and how hard the daemon is pressed (operations.md, "Priorities and pressure")."""

from engine.delivery.bands import Ready
from engine.delivery.governor import Governor, Observed, signs

__all__ = ["Governor", "Observed", "Ready", "signs"]
