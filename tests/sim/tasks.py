"""The tasks of the crash gate: what a process of its pool does at once, and how closely it looks."""

from __future__ import annotations

import gc
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.sim import elision, every, mutants, powercut, sigkill
from tests.sim.faults import Call, Effect, Fault
from tests.sim.flips import FlipReport, run_flips
from tests.sim.monitor import OrderError
from tests.sim.plays import played
from tests.sim.probe import Effort, FoundError, Tally
from tests.sim.runner import BY_NAME, parsed_label, run, run_with_faults
from tests.sim.scenarios import SCENARIOS
from tests.sim.sequences import sequence

FULL = Effort(sample=24, deep_every=150, open_every=16, nested_max=10, nested_total_max=100)
QUICK = Effort(images_max=20, sample=4, deep_every=40, open_every=2, nested_max=6, nested_total_max=40)
"""For planted bugs: little at each moment, but a look at all moments."""
LIGHT = Effort(
    images_max=8, moments_share=0.4, sample=2, deep_every=60, open_every=4, nested_max=6, nested_total_max=40
)
MONITORED = Effort(moments_share=0)
"""Only what the order monitor and the live checks notice."""
HUNT = (MONITORED, LIGHT, QUICK)
PLAY_CUTS = 5
"""Power failures drawn at each moment of a play in which one of two did not show anything."""
GLANCE = Effort(images_max=8, moments_share=0.15, sample=2, open_every=4, deep_every=60, nested_total_max=40)
ARGUED_IN, ARGUED_IN_LONG = 3, 8
"""In how many scenarios a sync whose absence is argued for is tried all the same, at a glance."""
OPENED = Effort(images_max=8, sample=2, moments_share=0.15, deep_every=0, open_every=8)
TORN = "rotation"
"""A scenario with images whose recovery sets bytes aside."""
SIGKILL_CYCLES = 300
POWER_CUTS = 25
MISFIT = re.compile(r"\b(TypeError|AttributeError|NameError|UnboundLocalError)\b")
SEQUENCES = Effort(images_max=200, sample=12, deep_every=200, open_every=16, nested_max=6, nested_total_max=40)
SEQUENCE_LAGS = (0, 4)
FAULTY = Effort(images_max=10, moments_share=0.2, sample=4, deep_every=0)
PAIRED = Effort(images_max=10, moments_share=0.02, sample=4, deep_every=0)
FAULT_SCENARIOS = (
    "single-disk",
    "single-fsync",
    "interleaved",
    "rotation",
    "clean-stop",
    "deletes",
    "history-seal",
    "history-deletes",
    "history-tails",
    "history-cold-move",
)
EFFECTS: dict[Call, tuple[Effect, ...]] = {
    Call.WRITE: (Effect.EIO, Effect.ENOSPC, Effect.EROFS, Effect.SHORT, Effect.PARTIAL_EIO),
    Call.SYNC: (Effect.FAILED_SYNC, Effect.EIO, Effect.SLOW),
    Call.SYNC_DIR: (Effect.EIO,),
    Call.RENAME: (Effect.EIO, Effect.ENOSPC),
    Call.CREATE: (Effect.ENOSPC, Effect.EMFILE, Effect.EDQUOT),
    Call.ALLOCATE: (Effect.ENOSPC, Effect.EFBIG, Effect.EDQUOT),
    Call.OPEN: (Effect.EMFILE, Effect.EIO),
    Call.READ: (Effect.EIO,),
    Call.UNLINK: (Effect.EACCES,),
    Call.TRUNCATE: (Effect.EIO,),
}


@dataclass(slots=True)
class Outcome:
    """What one task brought."""

    kind: str
    name: str
    ok: bool = True
    note: str = ""
    tally: Tally = field(default_factory=Tally)
    flips: FlipReport = field(default_factory=FlipReport)
    sigkill: sigkill.Report = field(default_factory=sigkill.Report)
    cuts: powercut.CutReport = field(default_factory=powercut.CutReport)
    tried: int = 0
    pairs: int = 0
    """Of the runs with faults, those with two."""
    seconds: float = 0.0
    """CPU time of the process that did it."""


def start_worker() -> None:
    """A worker makes many short-lived stores: collecting garbage less often saves a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def thinned(effort: Effort, share: float) -> Effort:
    """The same effort at a share of the moments."""
    return replace(effort, moments_share=effort.moments_share * share)


def timed(task: Callable[..., Outcome], *arguments: object) -> Outcome:
    """Do a task, and note what it cost."""
    began = time.process_time()
    outcome = task(*arguments)
    outcome.seconds = time.process_time() - began
    return outcome


# -- crashes ----------------------------------------------------------------------------------------------------------


def scenario_task(name: str, lag: int, effort: Effort, seed: int, until: float) -> Outcome:
    """Every crash of one scenario."""
    outcome = Outcome("scenario", f"{name}@{lag}")
    try:
        run(BY_NAME[name], lag, effort, outcome.tally, seed=seed, deadline=lambda: time.time() > until)
    except FoundError as error:
        outcome.ok, outcome.note = False, str(error)
    return outcome


def play_task(name: str, shards: int, cuts: int) -> Outcome:
    """One play, with so many drawn power failures a moment."""
    outcome = Outcome("play", f"{name}@{shards}")
    try:
        played(every.PLAYS[name], shards, outcome.tally, cuts=cuts)
    except FoundError as error:
        outcome.ok, outcome.note = False, str(error)
    return outcome


def sequences_task(letters: list[tuple[str, ...]], lag: int, seed: int, until: float) -> Outcome:
    """Short sequences; stops when the time is over."""
    outcome = Outcome("sequence", f"{len(letters)} sequences")
    for names in letters:
        if time.time() > until:
            break
        outcome.tried += 1
        tally = Tally()
        try:
            run(sequence(names), lag, SEQUENCES, tally, seed=seed)
        except FoundError as error:
            outcome.ok, outcome.note = False, str(error)
            break
        finally:
            outcome.tally.add(tally)
    return outcome


def faults_task(runs: list[tuple[str, tuple[str, ...]]], until: float) -> Outcome:
    """Runs with one or two faults each."""
    outcome = Outcome("faults", f"{len(runs)} runs")
    for name, tokens in runs:
        if time.time() > until:
            break
        outcome.tried += 1
        outcome.pairs += len(tokens) > 1
        effort = FAULTY if len(tokens) == 1 else PAIRED
        try:
            run_with_faults(BY_NAME[name], [Fault.parse(token) for token in tokens], effort, outcome.tally)
        except FoundError as error:
            outcome.ok, outcome.note = False, str(error)
            break
    return outcome


# -- what must be noticed ---------------------------------------------------------------------------------------------


def mutant_task(name: str) -> Outcome:
    """One planted bug: ok means that it was noticed."""
    mutant = next(mutant for mutant in every.MUTANTS if mutant.name == name)
    # What shows in a play is none of the scenarios' business.
    everywhere = not any(every.is_play(place) for place in mutant.where)
    with mutants.planted(mutant):
        return _hunted(Outcome("mutant", name), lambda: _hunt(mutant.where, lambda fs: fs, everywhere=everywhere))


def elision_task(site: str, where: tuple[str, ...], argued_in: int) -> Outcome:
    """One sync taken away: ok means that it was noticed, in one of the scenarios that reach it."""
    # What has a written reason is tried a little all the same: a catch would make the reason wrong.
    if argued(site):
        where = where[:argued_in]
    efforts = (MONITORED, GLANCE) if argued(site) else HUNT
    hunt = partial(_hunt, where, elision.Elided(site), everywhere=False, efforts=efforts)
    return _hunted(Outcome("elision", site), hunt)


def argued(site: str) -> str | None:
    """The written reason why a sync may be missing, if there is one."""
    return next((reason for start, reason in elision.ARGUED.items() if site.startswith(start)), None)


def _hunted(outcome: Outcome, hunt: Callable[[], str | None]) -> Outcome:
    """The outcome of a hunt: what it found makes it good."""
    try:
        found = hunt()
        outcome.ok, outcome.note = found is not None, found or "nobody noticed"
    except OrderError as early:  # while the store was made that a sweep is over
        outcome.note = str(early)
    except AssertionError as misfit:
        outcome.ok, outcome.note = False, str(misfit)
    return outcome


def _hunt(
    first: tuple[str, ...], wrap: Callable[[Any], Any], *, everywhere: bool = True, efforts: tuple[Effort, ...] = HUNT
) -> str | None:
    """Look for trouble, at the likely places first; what was found, or None."""
    others = [scenario.name for scenario in SCENARIOS if everywhere and scenario.name not in first]
    # All efforts at the likely places, then all of them everywhere else.
    for names in (first, others):
        for effort in efforts:
            for name in names:
                found = _hunt_in(name, wrap, effort)
                if found is not None:
                    return found
    return None


def _hunt_in(place: str, wrap: Callable[[Any], Any], effort: Effort) -> str | None:
    """Look at one place, as closely as that."""
    if place.startswith(("flips", "faults:")):
        return _hunt_sweep(place) if effort is LIGHT else None
    name, lag, faults = parsed_label(place)
    try:
        if name in every.PLAYS:
            if effort in (MONITORED, LIGHT):
                played(every.PLAYS[name], lag or 1, wrap=wrap, cuts=PLAY_CUTS if effort is LIGHT else 0, hunt=True)
        elif faults:
            if effort is LIGHT:
                run_with_faults(BY_NAME[name], faults, FAULTY, Tally())
        else:
            for each in BY_NAME[name].lags if lag is None else (lag,):
                run(BY_NAME[name], each, effort, Tally(), wrap=wrap)
    except FoundError as error:
        return _noticed(error)
    return None


def _noticed(error: FoundError) -> str:
    """Where a planted bug showed. A patch that does not fit what it patches shows too, and shows nothing."""
    if MISFIT.search(error.problem):
        raise AssertionError(f"the patch does not fit any more: {error.problem}")
    return error.token


def _hunt_sweep(place: str) -> str | None:
    if place.startswith("flips"):
        trouble = run_flips(0, 10, first_only=True, only=place.partition("@")[2]).trouble
        return f"flips: {trouble[0]}" if trouble else None
    call, _, only = place.partition(":")[2].partition("@")
    for scenario, tokens in single_faults(Call(call)):
        if only and scenario != only:
            continue
        try:
            run_with_faults(BY_NAME[scenario], [Fault.parse(token) for token in tokens], FAULTY, Tally())
        except FoundError as error:
            return _noticed(error)
    return None


def dry_runs() -> Iterator[tuple[str, dict[str, int]]]:
    """Every scenario and play, and how often it meets each sync call; the plays first, which meet most of them."""
    for play in every.PLAYS.values():
        if play.takes_wrap:
            plan = elision.Elided()
            played(play, 1, wrap=plan, look=False)
            yield f"{play.name}@1", plan.reached
    # What only starts from torn images do (setting bytes aside) shows when some of these are opened.
    for scenario, effort in [(BY_NAME[TORN], OPENED), *((one, MONITORED) for one in SCENARIOS)]:
        plan = elision.Elided()
        run(scenario, scenario.lags[0], effort, Tally(), wrap=plan)
        yield scenario.name, plan.reached


def reached_sites() -> dict[str, tuple[str, ...]]:
    """Every sync call that a dry run over all scenarios and plays meets, with those that meet it most at their head."""
    counts: dict[str, dict[str, int]] = {}
    for place, reached in dry_runs():
        for site, count in reached.items():
            counts.setdefault(site, {})[place] = count
    likely = {site: [place for start, place in elision.LIKELY.items() if site.startswith(start)] for site in counts}
    return {site: (*likely[site], *sorted(names, key=lambda name: -names[name])) for site, names in counts.items()}


# -- damage, and real processes ---------------------------------------------------------------------------------------


def flips_task(part: int, parts: int, until: float) -> Outcome:
    """A share of the bit flips."""
    outcome = Outcome("flips", f"part {part}")
    outcome.flips = run_flips(part, parts, deadline=lambda: time.time() > until)
    trouble = outcome.flips.trouble
    outcome.ok, outcome.note = not trouble, "; ".join(trouble[:2])
    return outcome


def sigkill_task(cycles: int, seed: int, seconds: float) -> Outcome:
    """Lives of the real daemon."""
    outcome = Outcome("sigkill", f"{cycles} cycles")
    with tempfile.TemporaryDirectory(prefix="topics-sigkill-") as directory:
        try:
            outcome.sigkill = sigkill.cycles(Path(directory), cycles, seed, seconds)
        except Exception as error:
            outcome.sigkill.wrong.append(f"{type(error).__name__}: {error}")
    outcome.ok, outcome.note = not outcome.sigkill.wrong, "; ".join(outcome.sigkill.wrong[:3])
    return outcome


def power_task(cuts: int, seed: int) -> Outcome:
    """Power cuts on a real file system, where the machine allows making one."""
    outcome = Outcome("power", f"{cuts} cuts")
    with tempfile.TemporaryDirectory(prefix="topics-power-") as directory:
        try:
            outcome.cuts = powercut.power_cuts(Path(directory), cuts, seed, sigkill.SMALL_STEPS)
        except powercut.NotPossibleError as error:
            outcome.note = f"not possible here: {error}"
            return outcome
        except Exception as error:
            outcome.cuts.wrong.append(f"{type(error).__name__}: {error}")
    outcome.ok, outcome.note = not outcome.cuts.wrong, "; ".join(outcome.cuts.wrong[:3])
    return outcome


# -- which faults there are -------------------------------------------------------------------------------------------


def calls_of(name: str) -> dict[Call, int]:
    """How often a scenario's first process calls what can fail."""
    process = run_with_faults(BY_NAME[name], (), FAULTY, Tally())
    assert process.first is not None
    return process.first.calls


def single_faults(only: Call | None = None) -> list[tuple[str, tuple[str, ...]]]:
    """Every fault (of one call) at every place of the fault scenarios."""
    return [
        (name, (Fault(call, at, effect).token(),))
        for name in FAULT_SCENARIOS
        for call, count in calls_of(name).items()
        if only in (None, call)
        for at in range(count)
        for effect in EFFECTS.get(call, ())
    ]


def fault_pairs(
    rng: random.Random, count: int, singles: list[tuple[str, tuple[str, ...]]]
) -> list[tuple[str, tuple[str, ...]]]:
    """Pairs of `single_faults` in one run, drawn."""
    by_name: dict[str, list[str]] = {}
    for name, tokens in singles:
        by_name.setdefault(name, []).append(tokens[0])
    pairs = []
    for _ in range(count):
        name = rng.choice(FAULT_SCENARIOS)
        pairs.append((name, tuple(rng.sample(by_name[name], 2))))
    return pairs
