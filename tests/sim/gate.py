"""The crash gate: `python -m tests.sim.gate` (`make crash`), and without bound with `--long` (`make crash-long`).

Two processes share the work; a third waits for daemons that it kills. The work has parts: planted bugs and elided
syncs, each of which must be noticed; bit flips; runs with a fault; pairs of faults; scenarios and plays with every
crash; and short sequences of operations. Each part has a share of the CPU time, which it gets for as long as it has
something to do, so that none can starve another; what a part does not need is the others'. One table at the end says
what was looked at, how, and what came out, and a verdict names whatever is not as it must be (exit status 1), or fell
short of what is wanted (exit status 2).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import sys
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from tests.sim import elision, every, report, tasks
from tests.sim.scenarios import SCENARIOS
from tests.sim.sequences import ALPHABET
from tests.sim.tasks import Outcome, timed

ENDLESS = 1e9
"""Seconds of a run without a bound."""
PAIRS, PAIRS_LONG = 2_000, 20_000
"""Pairs of faults that are tried: in the time that there is, and without bound."""
FLIP_PARTS = 24
"""In how many tasks bits are flipped."""
CUTS, CUTS_LONG = 3, 12
"""Power failures drawn at each moment of a play."""
LARGE = ("rotation-unsynced", "full-disk", "two-shards-rotating")
"""Scenarios with more images than the others together: they come last, and where time has a bound, with a part of
their moments."""
LARGE_SHARE = 0.3
SHARES = {"planted": 4, "elided": 2, "flips": 2, "faults": 1.5, "pairs": 7, "scenarios": 6, "sequences": 3}
"""How the CPU time is shared among parts that all have something to do."""


@dataclass(slots=True)
class Part:
    """Tasks of one kind, of which any number may be left when the time is over."""

    name: str
    share: float
    tasks: deque[tuple[Any, ...]]
    """Each a function of `tasks` and its arguments."""
    used: float = 0.0
    """CPU seconds, those of tasks under way guessed."""
    done: int = 0
    cost: float = 1.0
    """What a task took, on the average."""

    @property
    def is_due(self) -> float:
        """The part for which this is least is the next one to get something to do."""
        return self.used / self.share

    def begins(self) -> tuple[Any, ...]:
        """A task that begins now."""
        self.used += self.cost
        return self.tasks.popleft()

    def ended(self, guessed: float, seconds: float) -> None:
        """A task took so long."""
        self.used += seconds - guessed
        self.done += 1
        self.cost += (seconds - self.cost) / self.done


@dataclass(slots=True)
class Gate:
    """One run of everything."""

    seconds: float
    seed: int
    workers: int
    pairs: int
    daemon: bool = True
    began: float = field(default_factory=time.time)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def until(self) -> float:
        return self.began + self.seconds

    @property
    def endless(self) -> bool:
        return self.seconds >= ENDLESS

    def run(self) -> list[Outcome]:
        """Everything, as far as the time reaches."""
        parts = self.parts()
        context = multiprocessing.get_context("fork")
        with (
            ProcessPoolExecutor(self.workers, mp_context=context, initializer=tasks.start_worker) as pool,
            ProcessPoolExecutor(1, mp_context=context) as outside,
        ):
            real: list[Future[Outcome]] = []
            if self.daemon:
                real.append(outside.submit(tasks.power_task, tasks.POWER_CUTS, self.seed))
                seconds = max(self.seconds - 90, 60)
                real.append(outside.submit(tasks.sigkill_task, tasks.SIGKILL_CYCLES, self.seed, seconds))
            self._share_out(pool, parts)
            for future in real:
                self._take(future.result())
        return self.outcomes

    def _share_out(self, pool: ProcessPoolExecutor, parts: list[Part]) -> None:
        """Give the pool tasks of the parts, one more than it can work on, until they or the time are over."""
        under_way: dict[Future[Outcome], tuple[Part, float]] = {}
        told = self.began
        while True:
            while len(under_way) <= self.workers and time.time() < self.until:
                part = min((part for part in parts if part.tasks), key=lambda part: part.is_due, default=None)
                if part is None:
                    break
                guessed = part.cost
                under_way[pool.submit(timed, *part.begins())] = part, guessed
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                part, guessed = under_way.pop(future)
                outcome = future.result()
                part.ended(guessed, outcome.seconds)
                self._take(outcome)
            if time.time() - told > 20:
                told = time.time()
                left = ", ".join(f"{part.name} {part.done}/{part.done + len(part.tasks)}" for part in parts)
                print(f"{told - self.began:4.0f} s: {left}", file=sys.stderr, flush=True)

    def _take(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if report.is_wrong(outcome):
            print(f"! {outcome.kind} {outcome.name}: {outcome.note}", file=sys.stderr, flush=True)

    # -- what there is to do ------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """The parts, each with its tasks in the order in which they are begun."""
        singles = tasks.single_faults()
        made: dict[str, Iterable[tuple[Any, ...]]] = {
            "planted": ((tasks.mutant_task, mutant.name) for mutant in every.MUTANTS),
            "elided": self._elided(),
            "flips": ((tasks.flips_task, part, FLIP_PARTS, self.until) for part in range(FLIP_PARTS)),
            "faults": self._faults(singles),
            "pairs": (
                (tasks.faults_task, chunk, self.until)
                for chunk in chunks(tasks.fault_pairs(random.Random(self.seed), self.pairs, singles), 50)
            ),
            "scenarios": self._scenarios(),
            "sequences": self._sequences(),
        }
        return [Part(name, SHARES[name], deque(these)) for name, these in made.items()]

    def _elided(self) -> Iterable[tuple[Any, ...]]:
        within = tasks.ARGUED_IN_LONG if self.endless else tasks.ARGUED_IN
        sites = tasks.reached_sites()
        # What has a reason to be missing takes longest, because nothing is found.
        for site in sorted(sites, key=lambda site: (tasks.argued(site) is not None, site.startswith(elision.DEAR))):
            yield tasks.elision_task, site, sites[site], within

    def _faults(self, singles: list[tuple[str, tuple[str, ...]]]) -> Iterable[tuple[Any, ...]]:
        mixed = random.Random(self.seed).sample(singles, len(singles))
        return ((tasks.faults_task, chunk, self.until) for chunk in chunks(mixed, 20))

    def _scenarios(self) -> Iterable[tuple[Any, ...]]:
        cuts = CUTS_LONG if self.endless else CUTS
        plays = [(tasks.play_task, name, shards, cuts) for name, play in every.PLAYS.items() for shards in play.shards]
        mixed: list[tuple[Any, ...]] = [*plays]
        large: list[tuple[Any, ...]] = []
        for scenario in SCENARIOS:
            effort = tasks.FULL
            if scenario.name in LARGE and not self.endless:
                effort = tasks.thinned(effort, LARGE_SHARE)
            these = [(tasks.scenario_task, scenario.name, lag, effort, self.seed, self.until) for lag in scenario.lags]
            (large if scenario.name in LARGE else mixed).extend(these)
        random.Random(self.seed).shuffle(mixed)
        # Without an end of the time the large ones are begun first, so that no process waits for another at the end.
        return [*large, *mixed] if self.endless else [*mixed, *large]

    def _sequences(self) -> Iterable[tuple[Any, ...]]:
        short, long = all_sequences(2), [names for names in all_sequences(3) if len(names) == 3]
        random.Random(self.seed).shuffle(long)
        # What a sequence begins with is looked at as a shorter one, at the same lag.
        for lag in tasks.SEQUENCE_LAGS:
            for group in chunks(short, 20):
                yield tasks.sequences_task, group, lag, self.seed, self.until
        for group in chunks(long, 20):
            for lag in tasks.SEQUENCE_LAGS:
                yield tasks.sequences_task, group, lag, self.seed, self.until


def all_sequences(length: int) -> list[tuple[str, ...]]:
    """Every sequence of operations up to a length."""
    return [names for count in range(1, length + 1) for names in itertools.product(sorted(ALPHABET), repeat=count)]


def chunks(items: list[Any], size: int) -> list[list[Any]]:
    """Lists of so many, and one of the rest."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def main() -> int:
    """Run the gate; exit status 0 when all is as it must be, 1 when it is not, 2 when too little was looked at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=560.0, help="bound of the whole run (default 560)")
    parser.add_argument("--long", action="store_true", help="no bound: everything, all sequences")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, help=f"pairs of faults (default {PAIRS}, {PAIRS_LONG} without a bound)")
    parser.add_argument("--no-daemon", action="store_true", help="leave the SIGKILL loop and the power cuts out")
    parser.add_argument("--replay", metavar="TOKEN", help="do again what a token names, and nothing else")
    options = parser.parse_args()
    if options.replay:
        from tests.sim.runner import replay

        replay(options.replay)
        print("nothing wrong")
        return 0
    pairs = options.pairs if options.pairs is not None else PAIRS_LONG if options.long else PAIRS
    seconds = ENDLESS if options.long else options.seconds
    gate = Gate(seconds, options.seed, options.workers, pairs, daemon=not options.no_daemon)
    outcomes = gate.run()
    wanted = report.wanted(seconds, pairs, daemon=gate.daemon)
    return report.report(outcomes, wanted, time.time() - gate.began)


if __name__ == "__main__":
    sys.exit(main())
