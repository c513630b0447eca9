"""The simulator notices what it is there for: planted bugs, missing syncs, flipped bits, and wrong views."""

from __future__ import annotations

import random

import pytest

from tests.sim import elision
from tests.sim.every import MUTANTS
from tests.sim.flips import Sweep, places
from tests.sim.oracle import Crash
from tests.sim.tasks import argued, dry_runs, mutant_task
from tests.sim.view import look
from tests.sim.world import World

QUICK_MUTANTS = ("sync-skipped", "acked-when-only-queued", "no-crash-gap", "deletes-not-replayed", "copy-not-synced")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK_MUTANTS)
def test_planted_bug_is_noticed(name: str) -> None:
    outcome = mutant_task(name)
    assert outcome.ok, outcome.note


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [mutant.name for mutant in MUTANTS if mutant.name.startswith(("queue-", "router-", "tool-", "move-"))]
)
def test_a_planted_bug_of_queues_routers_tools_and_moves_is_noticed(name: str) -> None:
    outcome = mutant_task(name)
    assert outcome.ok, outcome.note


def test_the_list_of_planted_bugs_is_long_enough() -> None:
    assert len(MUTANTS) >= 100
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
def test_every_sync_in_the_sources_is_reached_by_the_scenarios() -> None:
    missing = {site.split("@")[0] for site in elision.sites_in_sources() if not argued(site)}
    assert len(missing) > 20
    for _, reached in dry_runs():
        missing -= {part.split("@")[0] for site in reached for part in site.split(" < ") if ":from" not in part}
        if not missing:
            return
    raise AssertionError(f"syncs that no scenario ever reaches prove nothing: {missing}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "power", "busy"), [(True, False, False), (False, False, False), (False, True, False), (False, False, True)]
)
def test_damage_is_full_state_gap_or_refusal(stop: bool, power: bool, busy: bool) -> None:
    sweep = Sweep(stop=stop, power=power, busy=busy)
    every = list(places(sweep))
    for damage, arguments in random.Random(3).sample(every, 120):
        damage(*arguments)
    report = sweep.report
    assert not report.silent, report.silent[:3]
    assert not report.false_alarms
    assert report.refused
    assert report.gap


def test_the_oracle_tells_a_lost_record_a_changed_one_and_one_too_many() -> None:
    world = World().start()
    world.append("t", 3)
    view = look(world.core)
    assert world.oracle.check(view, Crash.KILL) == []
    line = world.oracle.line("t")
    topic = view.topics["t"]
    for wrong in (
        type(view)({}, view.now),
        type(view)({**view.topics, "u": topic}, view.now),
    ):
        assert world.oracle.check(wrong, Crash.KILL) != []
    line.bytes[line.incarnation_after(len(line.steps)), 2] = b"other bytes"
    assert "changed its bytes" in world.oracle.check(view, Crash.KILL)[0]


def test_the_oracle_allows_what_was_not_acked_to_be_there_or_not() -> None:
    world = World().start()
    world.append("t")
    with_it = None
    world.append("t", wait=False)
    without = look(world.core)
    world.step()
    with_it = look(world.core)
    world.oracle.line("t").steps[-1].acked = False
    assert world.oracle.check(without, Crash.KILL) == []
    assert world.oracle.check(with_it, Crash.KILL) == []
    world.oracle.line("t").steps[-1].acked = True
    assert world.oracle.check(without, Crash.KILL) != []
