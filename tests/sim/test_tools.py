"""Backup, restore and recover at every cut of what they make: every play of `tools`."""

from __future__ import annotations

import pytest

from tests.sim.plays import Play, played
from tests.sim.tools import PLAYS


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
def test_a_tool_at_every_cut(play: Play) -> None:
    assert played(play, 1, cuts=1) > 50
