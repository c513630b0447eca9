"""topics, the engine: an append-only event log and job queue for one machine.

`from engine import Engine` opens a store in a script; nothing else of the engine is loaded before that is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.driver import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from engine.driver import Engine

        return Engine
    raise AttributeError(name)
