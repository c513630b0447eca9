"""A seeded slice of the crash gate: every scenario, at one lag of its syncs, and short sequences, crashed at a part of
their moments.

`make crash` looks at all of it; this is what fits into a minute. A failure prints a token; `python -m tests.sim.gate
--replay TOKEN` does that one crash again.
"""

from __future__ import annotations

import random

import pytest

from tests.sim.faults import Fault
from tests.sim.gate import all_sequences
from tests.sim.probe import Effort, Tally
from tests.sim.runner import BY_NAME, run, run_with_faults
from tests.sim.scenarios import SCENARIOS
from tests.sim.sequences import sequence
from tests.sim.tasks import FAULTY, fault_pairs, single_faults

pytestmark = pytest.mark.slow

SLICE = Effort(images_max=8, moments_share=0.025, sample=3, deep_every=40, nested_max=3, nested_total_max=12)
SHORT = Effort(images_max=6, moments_share=0.06, sample=2, deep_every=60, nested_max=3, nested_total_max=9)
SEED = 20
SEQUENCES_DRAWN = 80


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_scenario_survives_its_crashes(name: str) -> None:
    scenario = BY_NAME[name]
    # One of its lags, each of which is taken by some scenarios.
    run(scenario, random.Random(name).choice(scenario.lags), SLICE, Tally(), seed=SEED)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_sequences_survive_their_crashes(length: int) -> None:
    rng = random.Random(SEED)
    letters = [names for names in all_sequences(length) if len(names) == length]
    tally = Tally()
    for index, names in enumerate(rng.sample(letters, min(len(letters), SEQUENCES_DRAWN))):
        run(sequence(names), (0, 4)[index % 2], SHORT, tally, seed=index)
    assert tally.compared > 10 * length, "nothing was looked at"


def test_single_faults_and_pairs_break_no_promise() -> None:
    rng = random.Random(SEED)
    singles = single_faults()
    runs = rng.sample(singles, 25) + fault_pairs(rng, 15, singles)
    for name, tokens in runs:
        run_with_faults(BY_NAME[name], [Fault.parse(token) for token in tokens], FAULTY, Tally())
