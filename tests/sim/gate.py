"""The crash gate: `python -m tests.sim.gate` (`make crash`), and without bound with `--long` (`make crash-long`).

Two processes share the work; a third waits for daemons that it kills. In this order: the planted bugs and the elided
syncs, each of which must be noticed; the bit flips; every scenario with every crash; pairs of faults; then short
sequences of operations in random order until the time is over. One table at the end says what was looked at, how, and
what came out; any line that is not as it must be makes the exit status 1.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.sim import elision, mutants, mutants_history, powercut, sigkill
from tests.sim.faults import Call, Effect, Fault
from tests.sim.flips import FlipReport, run_flips
from tests.sim.probe import Effort, FoundError, Tally
from tests.sim.runner import BY_NAME, run, run_with_faults
from tests.sim.scenarios import SCENARIOS
from tests.sim.sequences import ALPHABET, sequence

STATES_WANTED, STATES_WANTED_LONG = 200_000, 500_000
SIGKILL_CYCLES = 300
POWER_CUTS = 25

FULL = Effort(sample=24, deep_every=150, open_every=16, nested_max=10, nested_total_max=100)
QUICK = Effort(images_max=20, sample=4, deep_every=40, open_every=2, nested_max=6, nested_total_max=40)
"""For planted bugs: little at each moment, but a look at all moments."""
LIGHT = Effort(
    images_max=8, moments_share=0.4, sample=2, deep_every=60, open_every=4, nested_max=6, nested_total_max=40
)
MONITORED = Effort(moments_share=0)
"""Only what the order monitor and the live checks notice."""
HUNT = (MONITORED, LIGHT, QUICK)
GLANCE = Effort(images_max=8, moments_share=0.15, sample=2, open_every=4, deep_every=60, nested_total_max=40)
ARGUED_SCENARIOS = 8
"""In how many scenarios a sync whose absence is argued for is tried all the same, at a glance."""
MISFIT = re.compile(r"\b(TypeError|AttributeError|NameError|UnboundLocalError)\b")
SEQUENCES = Effort(images_max=200, sample=12, deep_every=200, open_every=16, nested_max=6, nested_total_max=40)
SEQUENCE_LAGS = (0, 4)
FAULTY = Effort(images_max=10, moments_share=0.2, sample=4, deep_every=0)
PAIRED = Effort(images_max=10, moments_share=0.02, sample=4, deep_every=0)
PAIRS, PAIRS_LONG = 2_000, 20_000
"""Pairs of faults that are tried, in the time that there is; and without bound."""

SHARES = {"flips": 0.35, "faults": 0.6, "scenarios": 0.8}
"""By which share of the time a section is ended, done or not. Planted bugs and elisions come first, all of them."""
LARGE = ("rotation-unsynced", "full-disk", "two-shards-rotating")
"""Scenarios with more images than the others together; they come last."""

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


def _start_worker() -> None:
    """A worker makes many short-lived stores: collecting garbage less often saves a tenth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


# -- tasks, each run in a process of the pool -------------------------------------------------------------------------


def scenario_task(name: str, lag: int, effort: Effort, seed: int, until: float) -> Outcome:
    """Every crash of one scenario."""
    outcome = Outcome("scenario", f"{name}@{lag}")
    scenario = BY_NAME[name]
    try:
        run(scenario, lag, effort, outcome.tally, seed=seed, deadline=lambda: time.time() > until)
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


def faults_task(pairs: list[tuple[str, tuple[str, ...]]], until: float) -> Outcome:
    """Runs with one or two faults each."""
    outcome = Outcome("faults", f"{len(pairs)} runs")
    for name, tokens in pairs:
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


def mutant_task(name: str) -> Outcome:
    """One planted bug: ok means that it was noticed."""
    mutant = next(mutant for mutant in mutants_history.ALL if mutant.name == name)
    with mutants.planted(mutant):
        return _hunted(Outcome("mutant", name), lambda: _hunt(mutant.where, lambda fs: fs))


def _hunted(outcome: Outcome, hunt: Callable[[], str | None]) -> Outcome:
    """The outcome of a hunt: what it found makes it good."""
    began = time.process_time()
    try:
        found = hunt()
        outcome.ok, outcome.note = found is not None, found or "nobody noticed"
    except AssertionError as misfit:
        outcome.ok, outcome.note = False, str(misfit)
    outcome.seconds = time.process_time() - began
    return outcome


def elision_task(site: str, where: tuple[str, ...]) -> Outcome:
    """One sync taken away: ok means that it was noticed, in one of the scenarios that reach it."""
    # What has a written reason is tried a little all the same: a catch would make the reason wrong.
    if argued(site):
        where = where[:ARGUED_SCENARIOS]
    efforts = (MONITORED, GLANCE) if argued(site) else HUNT
    hunt = partial(_hunt, where, elision.Elided(site), everywhere=False, efforts=efforts)
    return _hunted(Outcome("elision", site), hunt)


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


def _hunt_in(name: str, wrap: Callable[[Any], Any], effort: Effort) -> str | None:
    if name == "flips" or name.startswith("faults:"):
        return _hunt_sweep(name) if effort is LIGHT else None
    name, _, only = name.partition("@")
    for lag in (int(only),) if only else BY_NAME[name].lags:
        try:
            run(BY_NAME[name], lag, effort, Tally(), wrap=wrap)
        except FoundError as error:
            return _noticed(error)
    return None


def _noticed(error: FoundError) -> str:
    """Where a planted bug showed. A patch that does not fit what it patches shows too, and shows nothing."""
    if MISFIT.search(error.problem):
        raise AssertionError(f"the patch does not fit any more: {error.problem}")
    return error.token


def _hunt_sweep(name: str) -> str | None:
    if name == "flips":
        trouble = run_flips(0, 10, first_only=True).trouble
        return f"flips: {trouble[0]}" if trouble else None
    call, _, only = name.partition(":")[2].partition("@")
    for scenario, tokens in single_faults(Call(call)):
        if only and scenario != only:
            continue
        try:
            run_with_faults(BY_NAME[scenario], [Fault.parse(token) for token in tokens], FAULTY, Tally())
        except FoundError as error:
            return _noticed(error)
    return None


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


# -- what there is to do ----------------------------------------------------------------------------------------------


def all_sequences(length: int) -> list[tuple[str, ...]]:
    """Every sequence of operations up to a length."""
    return [names for count in range(1, length + 1) for names in itertools.product(sorted(ALPHABET), repeat=count)]


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


def fault_pairs(rng: random.Random, count: int) -> list[tuple[str, tuple[str, ...]]]:
    """Pairs of faults in one run, drawn."""
    singles = single_faults()
    by_name: dict[str, list[str]] = {}
    for name, tokens in singles:
        by_name.setdefault(name, []).append(tokens[0])
    pairs = []
    for _ in range(count):
        name = rng.choice(FAULT_SCENARIOS)
        pairs.append((name, tuple(rng.sample(by_name[name], 2))))
    return pairs


def reached_sites() -> dict[str, tuple[str, ...]]:
    """Every sync call that a dry run over all scenarios meets, with the scenarios that meet it most at their head."""
    counts: dict[str, dict[str, int]] = {}
    for scenario in SCENARIOS:
        plan = elision.Elided()
        for lag in scenario.lags[:1]:
            run(scenario, lag, Effort(images_max=8, sample=2, moments_share=0.15, deep_every=0), Tally(), wrap=plan)
        for site, count in plan.reached.items():
            counts.setdefault(site, {})[scenario.name] = count
    return {site: tuple(sorted(names, key=lambda name: -names[name])) for site, names in counts.items()}


# -- the gate ---------------------------------------------------------------------------------------------------------


class Gate:
    """One run of everything."""

    def __init__(self, seconds: float, seed: int, workers: int, pairs: int) -> None:
        self.began = time.time()
        self.seconds = seconds
        self.pairs = pairs
        self.seed = seed
        self.workers = workers
        self.outcomes: list[Outcome] = []
        self.sites: dict[str, tuple[str, ...]] = {}

    @property
    def until(self) -> float:
        return self.began + self.seconds

    def run(self, *, daemon: bool = True) -> bool:
        """Everything; whether all is as it must be."""
        context = multiprocessing.get_context("fork")
        self.sites = reached_sites()
        with (
            ProcessPoolExecutor(self.workers, mp_context=context, initializer=_start_worker) as pool,
            ProcessPoolExecutor(1, mp_context=context) as outside,
        ):
            killing = None
            if daemon:
                cutting = outside.submit(power_task, POWER_CUTS, self.seed)
                killing = outside.submit(sigkill_task, SIGKILL_CYCLES, self.seed, max(self.seconds - 90, 60))
            futures = self._submit_all(pool)
            for done, future in enumerate(futures, 1):
                self._take(future.result())
                if done % 10 == 0:
                    took = time.time() - self.began
                    print(f"{took:4.0f} s: {done} of {len(futures)} tasks", file=sys.stderr, flush=True)
            if killing is not None:
                self._take(killing.result())
                self._take(cutting.result())
        return self.report()

    def _submit_all(self, pool: ProcessPoolExecutor) -> list[Future[Outcome]]:
        """Everything for the pool: what must be done first, what takes any time that is left last."""
        rng = random.Random(self.seed)
        seed = self.seed
        short, long = all_sequences(2), [names for names in all_sequences(3) if len(names) == 3]
        rng.shuffle(long)
        # What a sequence begins with is looked at as a shorter one, at the same lag.
        groups = [(group, lag) for lag in SEQUENCE_LAGS for group in _chunks(short, 20)]
        groups += [(group, lag) for group in _chunks(long, 20) for lag in SEQUENCE_LAGS]
        singles = single_faults()
        endless = self.seconds > 1e6
        runs = rng.sample(singles, len(singles) // (1 if endless else 3))
        runs += fault_pairs(rng, self.pairs)
        rng.shuffle(runs)
        # Where there is an end of the time the large ones are cut by it; where there is none they are begun first.
        by_size = sorted(SCENARIOS, key=lambda scenario: (scenario.name in LARGE) is not endless)
        return [
            *(pool.submit(mutant_task, mutant.name) for mutant in mutants_history.ALL),
            *(pool.submit(elision_task, site, where) for site, where in sorted(self.sites.items())),
            *(pool.submit(flips_task, part, 8, self.by("flips")) for part in range(8)),
            *(pool.submit(faults_task, chunk, self.by("faults")) for chunk in _chunks(runs, 50)),
            *(
                pool.submit(scenario_task, scenario.name, lag, FULL, seed, self.by("scenarios"))
                for scenario in by_size
                for lag in scenario.lags
            ),
            *(pool.submit(sequences_task, group, lag, seed, self.until) for group, lag in groups),
        ]

    def by(self, section: str) -> float:
        """When a section has to be done, so that the later ones get their share."""
        return self.began + self.seconds * SHARES[section]

    def _take(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if not outcome.ok and not (outcome.kind == "elision" and argued(outcome.name)):
            print(f"! {outcome.kind} {outcome.name}: {outcome.note}", file=sys.stderr, flush=True)

    def of(self, kind: str) -> list[Outcome]:
        """The outcomes of one kind of task."""
        return [outcome for outcome in self.outcomes if outcome.kind == kind]

    def report(self) -> bool:
        """Print the table; whether all is as it must be."""
        tally, flips = Tally(), FlipReport()
        for outcome in self.outcomes:
            tally.add(outcome.tally)
            flips.add(outcome.flips)
        lives = [outcome.sigkill for outcome in self.of("sigkill")]
        elided, planted = self.of("elision"), self.of("mutant")
        caught = sum(outcome.ok for outcome in elided)
        reasons = sum(not outcome.ok and argued(outcome.name) is not None for outcome in elided)
        faults = sum(outcome.tried for outcome in self.of("faults"))
        pairs = sum(outcome.pairs for outcome in self.of("faults"))
        starts = sorted(ms for life in lives for ms in life.start_ms) or [0.0]
        acked, lost = sum(life.acked for life in lives), sum(life.lost for life in lives)
        sequences = len(all_sequences(3)) * len(SEQUENCE_LAGS)
        twice = sum(life.doubled for life in lives)
        rows = [
            ("scenarios × lags of syncs", f"{len(self.of('scenario'))}"),
            ("sequences of ≤ 3 operations × lags", f"{sum(o.tried for o in self.of('sequence'))} of {sequences}"),
            ("moments crashed", f"{tally.moments:,}"),
            ("distinct states, scanned, replayed and compared", f"{len(tally.hashes):,}"),
            ("  of these opened whole, read from every cursor", f"{tally.opened:,}"),
            ("  the second reader agreed on", f"{tally.read_otherwise:,}"),
            ("  kill / power", f"{tally.kinds['kill']:,} / {tally.kinds['power']:,}"),
            ("pruned (same disk seen before)", f"{tally.images - len(tally.hashes):,}"),
            ("comparisons with the oracle", f"{tally.compared:,}"),
            ("recovered twice, identical", f"{tally.reopened:,}"),
            ("written again and crashed again", f"{tally.written_again:,}"),
            ("recovery depth 2: crashes inside recovery", f"{tally.nested:,}"),
            ("runs with one fault / with a pair", f"{faults - pairs:,} / {pairs:,}"),
            ("elisions caught / argued / all", f"{caught} / {reasons} / {len(elided)}"),
            ("planted bugs caught / all", f"{sum(o.ok for o in planted)} / {len(planted)}"),
            ("damages tried (flips, removals, cuts)", f"{flips.tried:,}"),
            ("  of these started on, not only read", f"{flips.started:,}"),
            ("  full state / gap / refused", f"{flips.full:,} / {flips.gap:,} / {flips.refused:,}"),
            ("  silent / false alarms", f"{len(flips.silent)} / {len(flips.false_alarms)}"),
            ("SIGKILL cycles", f"{sum(life.cycles for life in lives)}"),
            (
                "  acked / lost / twice",
                f"{acked:,} / {lost} / {twice}",
            ),
            (
                "  start to ready, median / worst ms",
                f"{starts[len(starts) // 2]:.0f} / {starts[-1]:.0f}",
            ),
            ("power cuts on ext4 under the daemon", self._power()),
            ("seconds", f"{time.time() - self.began:.0f}"),
        ]
        width = max(len(name) for name, _ in rows)
        print()
        for name, value in rows:
            print(f"{name:<{width}}  {value}")
        wrong = [o for o in self.outcomes if not o.ok and not (o.kind == "elision" and argued(o.name))]
        if lives and sum(life.cycles for life in lives) < SIGKILL_CYCLES:
            print(f"fewer than {SIGKILL_CYCLES} SIGKILL cycles were done in the time")
        wanted = STATES_WANTED_LONG if self.seconds > 1e6 else STATES_WANTED
        if len(tally.hashes) < wanted:
            print(f"fewer than {wanted:,} states were looked at in the time")
        print("\nall as it must be" if not wrong else f"\n{len(wrong)} WRONG, listed above")
        return not wrong

    def _power(self) -> str:
        outcomes = self.of("power")
        if not outcomes:
            return "left out"
        cuts = outcomes[0].cuts
        if not cuts.cuts and outcomes[0].ok:
            return outcomes[0].note
        return (
            f"{cuts.cuts}: {cuts.acked:,} acked, {cuts.lost:,} of disk or memory lost and told, {len(cuts.wrong)} wrong"
        )


def argued(site: str) -> str | None:
    """The written reason why a sync may be missing, if there is one."""
    return next((reason for start, reason in elision.ARGUED.items() if site.startswith(start)), None)


def _chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def main() -> int:
    """Run the gate; exit status 0 when all is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=560.0, help="bound of the whole run (default 560)")
    parser.add_argument("--long", action="store_true", help="no bound: everything, all sequences")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, help=f"pairs of faults (default {PAIRS}, {PAIRS_LONG} without a bound)")
    parser.add_argument("--no-daemon", action="store_true", help="leave the SIGKILL loop out")
    parser.add_argument("--replay", metavar="TOKEN", help="do again what a token names, and nothing else")
    options = parser.parse_args()
    if options.replay:
        from tests.sim.runner import replay

        replay(options.replay)
        print("nothing wrong")
        return 0
    pairs = options.pairs if options.pairs is not None else PAIRS_LONG if options.long else PAIRS
    gate = Gate(1e9 if options.long else options.seconds, options.seed, options.workers, pairs)
    return 0 if gate.run(daemon=not options.no_daemon) else 1


if __name__ == "__main__":
    sys.exit(main())
