"""Everything that the gate has to do with, by name: plays, and planted bugs."""

from __future__ import annotations

from tests.sim import moves, mutants_history, queues, routers, tools
from tests.sim.mutants_joined import JOINED
from tests.sim.mutants_moves import MOVES
from tests.sim.mutants_queues import QUEUES
from tests.sim.mutants_routers import ROUTERS
from tests.sim.mutants_time import TIME
from tests.sim.mutants_tools import TOOLS

PLAYS = {play.name: play for play in (*queues.PLAYS, *routers.PLAYS, *tools.PLAYS, *moves.PLAYS)}
MUTANTS = (*mutants_history.ALL, *JOINED, *TIME, *QUEUES, *ROUTERS, *TOOLS, *MOVES)


def is_play(place: str) -> bool:
    """Whether a place where planted bugs show (`Mutant.where`) is a play."""
    return place.partition("@")[0] in PLAYS
