"""The rules as a whole: random histories of a queue agree with the model at every step."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.queue.stateful import QueueComparison


def run(examples: int, steps: int, *, derandomize: bool = False, seeded: int | None = None) -> None:
    """Histories of so many steps; `seeded`: those of this seed."""
    machine = type("Seeded", (QueueComparison,), {})
    run_state_machine_as_test(
        machine if seeded is None else seed(seeded)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=(Phase.generate,),
        ),
    )


def test_short_histories_agree_with_the_model() -> None:
    run(20, 15, derandomize=True)


@pytest.mark.slow
def test_long_histories_agree_with_the_model() -> None:
    run(120, 60)
