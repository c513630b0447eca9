"""Topics that move between two stores, at a part of their cuts (`make crash` looks at all)."""

from __future__ import annotations

import pytest

from tests.sim.moves import PLAYS
from tests.sim.plays import Play, played


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
def test_a_topic_has_one_owner_whatever_is_cut(play: Play) -> None:
    images = played(play, 1, share=1.0 if play.name == "move-cancel" else 0.25)
    assert images > 3 or play.name in UNCUT


UNCUT = ("move-race", "move-busy", "move-given-up")
"""Plays of two commands at once, or of refusals: nothing is killed in them."""
