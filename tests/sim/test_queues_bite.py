"""That the scenario of queues notices each planted bug, and nothing where there is none."""

from __future__ import annotations

import pytest

from engine.errors import TopicsError
from tests.sim.mutants_queues import PLANTED, Planted
from tests.sim.test_queues import at_every_cut
from tests.sim.world import TINY

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_is_noticed(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    with pytest.raises((AssertionError, TopicsError, RuntimeError, KeyError, LookupError)):
        at_every_cut(TINY, planted.durability, planted.durable_leases)
