"""What a run of the gate brought: the table, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim import every
from tests.sim.flips import FlipReport
from tests.sim.probe import Tally
from tests.sim.tasks import POWER_CUTS, SIGKILL_CYCLES, Outcome, argued

LONG_SECONDS = 1_000
"""From how much time on as much is wanted as without a bound."""
STATES, STATES_LONG = 200_000, 500_000
DEPTH_2, WRITTEN_AGAIN = 1_000, 50
FLIPS = 10_000
FAULTS, FAULTS_LONG = 300, 600
SITUATIONS, SITUATIONS_LONG = 80, 150
ELISIONS = 40


@dataclass(slots=True)
class Counted:
    """Everything that was counted, added up."""

    outcomes: list[Outcome]
    tally: Tally
    flips: FlipReport

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> Counted:
        """The sums over all tasks."""
        tally, flips = Tally(), FlipReport()
        for outcome in outcomes:
            tally.add(outcome.tally)
            flips.add(outcome.flips)
        return cls(outcomes, tally, flips)

    def kind(self, kind: str) -> list[Outcome]:
        """The outcomes of one kind of task."""
        return [outcome for outcome in self.outcomes if outcome.kind == kind]

    @property
    def pairs(self) -> int:
        return sum(outcome.pairs for outcome in self.kind("faults"))

    @property
    def singles(self) -> int:
        return sum(outcome.tried for outcome in self.kind("faults")) - self.pairs

    @property
    def cycles(self) -> int:
        """Lives of the real daemon that ended by SIGKILL."""
        return sum(outcome.sigkill.cycles for outcome in self.kind("sigkill"))

    @property
    def situations(self) -> int:
        """Scenarios and plays, each at one lag or number of shards."""
        return len(self.kind("scenario")) + len(self.kind("play"))

    def counts(self) -> dict[str, int]:
        """What the verdict looks at, by the names of `wanted`."""
        return {
            "distinct states": len(self.tally.hashes),
            "scenarios and plays × lags or shards": self.situations,
            "crashes inside recovery": self.tally.nested,
            "states written on": self.tally.written_again,
            "runs with a fault": self.singles,
            "pairs of faults": self.pairs,
            "planted bugs": len(self.kind("mutant")),
            "elided syncs": len(self.kind("elision")),
            "damages": self.flips.tried,
            "SIGKILL cycles": self.cycles,
            "power cuts": sum(outcome.cuts.cuts for outcome in self.kind("power")),
        }


def is_wrong(outcome: Outcome) -> bool:
    """Whether an outcome is not as it must be."""
    return not outcome.ok and not (outcome.kind == "elision" and argued(outcome.name))


def wanted(seconds: float, pairs: int, *, daemon: bool) -> dict[str, int]:
    """How much has to be looked at, in a run of so many seconds."""
    long = seconds >= LONG_SECONDS
    return {
        "distinct states": STATES_LONG if long else STATES,
        "scenarios and plays × lags or shards": SITUATIONS_LONG if long else SITUATIONS,
        "crashes inside recovery": DEPTH_2,
        "states written on": WRITTEN_AGAIN,
        "runs with a fault": FAULTS_LONG if long else FAULTS,
        "pairs of faults": pairs,
        "planted bugs": len(every.MUTANTS),
        "elided syncs": ELISIONS,
        "damages": FLIPS,
        **({"SIGKILL cycles": SIGKILL_CYCLES, "power cuts": POWER_CUTS} if daemon else {}),
    }


def too_few(counted: Counted, wanted: dict[str, int]) -> list[str]:
    """What stayed below the number that is wanted."""
    counts = counted.counts()
    if counted.kind("power") and all(outcome.ok and outcome.note for outcome in counted.kind("power")):
        wanted = {name: number for name, number in wanted.items() if name != "power cuts"}  # the table says why
    return [f"{name} {counts[name]:,} of {number:,}" for name, number in wanted.items() if counts[name] < number]


def report(outcomes: list[Outcome], wanted: dict[str, int], seconds: float) -> int:
    """Print the table and the verdict; the exit status."""
    counted = Counted.of(outcomes)
    rows = [*_crashes(counted), *_proofs(counted), *_processes(counted), ("seconds", f"{seconds:.0f}"), _cpu(counted)]
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    wrong = [outcome for outcome in outcomes if is_wrong(outcome)]
    few = too_few(counted, wanted)
    print("\nall as it must be" if not wrong else f"\n{len(wrong)} WRONG, listed above", end="")
    print(f", but too little was looked at: {'; '.join(few)}" if few else ", and as much as is wanted")
    return 1 if wrong else 2 if few else 0


def _crashes(counted: Counted) -> list[tuple[str, str]]:
    tally = counted.tally
    return [
        ("scenarios × lags, and plays × shards", f"{len(counted.kind('scenario'))} + {len(counted.kind('play'))}"),
        ("sequences of ≤ 3 operations × lags", f"{sum(outcome.tried for outcome in counted.kind('sequence')):,}"),
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
        ("runs with one fault / with a pair", f"{counted.singles:,} / {counted.pairs:,}"),
    ]


def _proofs(counted: Counted) -> list[tuple[str, str]]:
    elided, planted, flips = counted.kind("elision"), counted.kind("mutant"), counted.flips
    caught = sum(outcome.ok for outcome in elided)
    reasons = sum(not outcome.ok and argued(outcome.name) is not None for outcome in elided)
    return [
        ("elisions caught / argued / all", f"{caught} / {reasons} / {len(elided)}"),
        ("planted bugs caught / all", f"{sum(outcome.ok for outcome in planted)} / {len(planted)}"),
        ("damages tried (flips, removals, cuts)", f"{flips.tried:,}"),
        ("  of these started on, not only read", f"{flips.started:,}"),
        ("  full state / gap / refused", f"{flips.full:,} / {flips.gap:,} / {flips.refused:,}"),
        ("  silent / false alarms", f"{len(flips.silent)} / {len(flips.false_alarms)}"),
    ]


def _processes(counted: Counted) -> list[tuple[str, str]]:
    lives = [outcome.sigkill for outcome in counted.kind("sigkill")]
    starts = sorted(ms for life in lives for ms in life.start_ms) or [0.0]
    acked, lost = sum(life.acked for life in lives), sum(life.lost for life in lives)
    return [
        ("SIGKILL cycles", f"{counted.cycles}" if lives else "left out"),
        ("  acked / lost / twice", f"{acked:,} / {lost} / {sum(life.doubled for life in lives)}"),
        ("  start to ready, median / worst ms", f"{starts[len(starts) // 2]:.0f} / {starts[-1]:.0f}"),
        ("power cuts on ext4 under the daemon", _power(counted)),
    ]


def _power(counted: Counted) -> str:
    outcomes = counted.kind("power")
    if not outcomes:
        return "left out"
    cuts = outcomes[0].cuts
    if not cuts.cuts and outcomes[0].ok:
        return outcomes[0].note
    return f"{cuts.cuts}: {cuts.acked:,} acked, {cuts.lost:,} of disk or memory lost and told, {len(cuts.wrong)} wrong"


def _cpu(counted: Counted) -> tuple[str, str]:
    """Where the CPU time of the pool went."""
    spent: dict[str, float] = {}
    for outcome in counted.outcomes:
        kind = "pair" if outcome.kind == "faults" and outcome.pairs else outcome.kind
        spent[kind] = spent.get(kind, 0) + outcome.seconds
    return "CPU seconds of the pool", ", ".join(f"{kind} {took:.0f}" for kind, took in spent.items() if took)
