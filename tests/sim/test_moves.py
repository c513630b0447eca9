"""Topics that move between two stores, at a part of their cuts (`make crash` looks at all)."""

from __future__ import annotations

import pytest

from tests.sim.moves import PLAYS
from tests.sim.plays import Play, played


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.name)
@pytest.mark.parametrize(("shards", "share"), [(1, 0.1), (3, 0.15)])
def test_a_topic_has_one_owner_whatever_is_cut(play: Play, shards: int, share: float) -> None:
    images = played(play, shards, share=SHORT.get(play.name, share))
    assert images > 3 or play.name in UNCUT


SHORT = {"move-cancel": 1.0, "move-back": 0.5}
"""Plays of few moments, and the part of these that is looked at."""
UNCUT = ("move-race", "move-busy", "move-given-up")
"""Plays of two commands at once, or of refusals: nothing is killed in them."""
