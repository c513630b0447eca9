"""Which routers a caller is shown: those whose names, and those of both their topics, it may use.

Routes and metrics ask alike, so that neither tells of what the other keeps back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core import Core
    from engine.core.routers import RouterState
    from topics_daemon.auth import Caller


def routers_of(
    core: Core,
    caller: Caller,
    prefix: str,
    size: int,
    after: str = "",
    *,
    source: str | None = None,
    dest: str | None = None,
) -> tuple[list[RouterState], bool]:
    """Up to `size` routers that a caller may know of, by name, after a name, and whether there are more.

    Those with other names are not looked at: how many there are does not show in the time that it takes.
    """
    found: list[RouterState] = []
    for beginning in caller.ranges(prefix):
        found += core.routers.page(
            beginning, size + 1 - len(found), after, partial(shows_router, caller), source=source, dest=dest
        )[0]
        if len(found) > size:
            return found[:size], True
    return found, False


def shows_router(caller: Caller, state: RouterState) -> bool:
    """Whether a caller may know of a router: of its name, and of both its topics."""
    return all(map(caller.allows, (state.router, state.source, state.dest)))
