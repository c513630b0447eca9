"""Running one scenario under observation, and leading a token back to what it was found in.

A token reads `scenario@lag~fault~fault/moment/image/nested image`: the scenario (or the letters of a sequence), how
far its syncs lag, the faults of its first process, at which moment of the run which image of the disk was taken, and
what was tried inside the recovery of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import engine.core.core as core_module
import engine.core.ephemeral as ephemeral_module
import engine.core.replay as replay_module
import tests.sim.oracle as oracle_module
from engine import limits
from engine.errors import StoreError, TopicsError
from engine.fs import Fs
from tests.sim import every
from tests.sim.faults import Fault, FaultyProcess
from tests.sim.plays import played
from tests.sim.probe import Effort, FoundError, Prober, Tally
from tests.sim.scenarios import SCENARIOS, Scenario, world_for
from tests.sim.sequences import sequence
from tests.sim.world import World

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def scenario_named(name: str) -> Scenario:
    """A scenario by its name, or the sequence that the name spells."""
    return BY_NAME[name] if name in BY_NAME else sequence(tuple(name.split("+")))


@contextmanager
def scaled(scenario: Scenario) -> Iterator[None]:
    """The engine, and the oracle, with the windows of a scenario; what a planted bug has changed stays as it is."""
    places = [(place, "SYNC_WINDOW", scenario.window) for place in (core_module, replay_module, oracle_module)]
    places += [(place, "SEQ_BLOCK", scenario.window // 4) for place in (ephemeral_module, oracle_module)]
    usual = [(place, name, size) for place, name, size in places if getattr(place, name) == getattr(limits, name)]
    if scenario.window:
        for place, name, size in usual:
            setattr(place, name, size)
    try:
        yield
    finally:
        for place, name, _ in usual:
            setattr(place, name, getattr(limits, name))


def run(
    scenario: Scenario,
    lag: int,
    effort: Effort,
    tally: Tally,
    *,
    seed: int = 0,
    only: str | None = None,
    wrap: Callable[[Fs], Fs] = lambda fs: fs,
    deadline: Callable[[], bool] = lambda: False,
) -> World:
    """Run a scenario and look at the crashes of every moment; raises `FoundError` for what is wrong."""
    world = world_for(scenario, lag)
    world.wrap = wrap
    prober = Prober(f"{scenario.name}@{lag}", effort, tally, seed, only, deadline)
    if scenario.fresh:
        world.probe = prober
    try:
        with scaled(scenario):
            world.start()
            world.probe = prober
            scenario.run(world)
    except FoundError:
        raise
    except (AssertionError, StoreError, TopicsError, Exception) as error:
        raise FoundError(f"{scenario.name}@{lag}/live", f"{type(error).__name__}: {error}") from error
    return world


def run_with_faults(
    scenario: Scenario, faults: Sequence[Fault], effort: Effort, tally: Tally, *, seed: int = 0, only: str | None = None
) -> FaultyProcess:
    """Run a scenario whose first process meets faults; commands may fail, promises may not be broken."""
    process = FaultyProcess(faults)
    world = world_for(scenario, 0)
    world.wrap = process
    world.tolerant = True
    label = "~".join([f"{scenario.name}@0", *(fault.token() for fault in faults)])
    prober = Prober(label, effort, tally, seed, only)
    try:
        try:
            world.start()
        except StoreError:
            world.kill()
            world.start()
        world.probe = prober
        _tolerate(world, scenario)
        process.armed = False
        prober(world, "end")
        world.probe = lambda world, what: None
        if world.alive is not None:
            world.check()
            world.kill()
        world.start()
        world.append("after", 2)
        world.check()
    except FoundError:
        raise
    except (AssertionError, StoreError, TopicsError, Exception) as error:
        raise FoundError(f"{label}/live", f"{type(error).__name__}: {error}") from error
    return process


def _tolerate(world: World, scenario: Scenario) -> None:
    """Run a script to its end, or to the point where the store takes nothing more."""
    try:
        scenario.run(world)
    except (TopicsError, StoreError):
        pass


def parsed_label(label: str) -> tuple[str, int | None, list[Fault]]:
    """What the first part of a token names: scenario or play, lag (or shards; None where it names none), faults."""
    name, *faults = label.split("~")
    name, _, number = name.partition("@")
    return name, int(number) if number else None, [Fault.parse(fault) for fault in faults]


def replay(token: str) -> None:
    """Do again what a token names, and nothing else; raises what was found."""
    label, _, place = token.partition("/")
    name, number, faults = parsed_label(label)
    only = None if place in ("", "live") else "/".join(place.split("/")[:2])
    if name in every.PLAYS:
        played(every.PLAYS[name], number or 1, only=only, look=only is not None)
        return
    scenario = scenario_named(name)
    effort = Effort(
        open_every=1, deep_every=1 if place.count("/") > 1 else 0, nested_max=10_000, nested_total_max=100_000
    )
    if faults:
        run_with_faults(scenario, faults, effort, Tally(), only=only or "0/k")
    else:
        run(scenario, number or 0, effort, Tally(), only=only or "0/k")
