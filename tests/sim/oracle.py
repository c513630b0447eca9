"""The oracle: for every record, whether it must be there, may be there, or must not.

Operations on one topic are one line: their frames follow each other in one shard, so what a crash leaves is the state
after some number of them. The oracle keeps the line of each topic with what was answered, which gives the bounds: an
operation acked by its class (or covered by a sync that ended well) *must* be there, one that is under way or unknown
*may* be, one that was refused *must not*. A view is right when every topic in it equals the model after an allowed
number of operations, plus exactly the losses that the crash's kind allows: none for a killed process, a `crash` gap of
whole windows after a power failure for classes that do not wait for the disk, everything for ephemeral ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from engine.limits import SEQ_BLOCK, SYNC_WINDOW
from engine.types import Durability
from tests.sim.model import Append, Create, Model, Op, apply, check_page
from tests.sim.view import TopicView, View

Judgement = tuple[str, str | None, tuple[int, Model | None]]
"""A topic's name, what is wrong with its view, and which number of its steps (and which model) it matches."""
Judged = dict[object, Judgement]

WAITING = (Durability.FSYNC,)
"""Classes whose answers wait for the disk."""


class Crash(Enum):
    """What happened between the last ack and the view."""

    NONE = "none"
    KILL = "kill"
    POWER = "power"
    STOP = "stop"
    """A clean stop."""


@dataclass(slots=True)
class Step:
    """One operation in a topic's line."""

    op: Op
    now: int
    acked: bool = False
    synced: bool = False
    """Its answer promised that it is on the disk."""
    needs_sync: bool = False
    turn: int = -1
    """Which tick of the engine wrote it, where it is known."""


@dataclass(slots=True)
class Line:
    """One topic name: a base state, the operations since, and what is known about them."""

    name: str
    base: Model | None = None
    steps: list[Step] = field(default_factory=list)
    covered: int = 0
    """Steps below this are covered by a sync that ended well."""
    quiet: bool = False
    """All it has is synced and marked, and nothing has been asked of it since."""
    told: int = 0
    """The highest seq that anybody was told of, in the present incarnation."""
    epochs: dict[int, int] = field(default_factory=dict)
    """incarnation → epoch, as far as learned."""
    bytes: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """(incarnation, seq) → the bytes that a reader once got."""
    passed: int = 0
    """Incarnations that were over when the line was last settled."""
    models: list[Model | None] = field(default_factory=list)
    """The model after each number of steps, as far as it was needed."""
    version: int = 0
    """Counts what was learned about it, so that an answer about a view may be remembered until then."""

    def model(self, count: int) -> Model | None:
        """The topic after the first `count` steps."""
        if not self.models:
            self.models.append(self.base)
        while len(self.models) <= count:
            step = self.steps[len(self.models) - 1]
            incarnation = self.incarnation_after(len(self.models))
            self.models.append(apply(self.name, self.models[-1], step.op, step.now, incarnation))
        return self.models[count]

    def incarnation_after(self, count: int) -> int:
        """Which incarnation of the name is the newest after `count` steps."""
        created = sum(isinstance(step.op, Create) for step in self.steps[:count])
        return (0 if self.base is None else self.base.incarnation) + self.passed + created

    def forget_from(self, index: int) -> None:
        """Models from step `index` on have to be made anew."""
        del self.models[index + 1 :]

    def floor(self, crash: Crash) -> int:
        """How many steps must be there."""
        if crash is Crash.POWER:
            synced = [index for index, step in enumerate(self.steps, 1) if step.synced]
            return max([self.covered, *synced[-1:]])
        acked = [index for index, step in enumerate(self.steps, 1) if step.acked]
        return max([0, *acked[-1:]])


class Oracle:
    """What the clients of one store were told."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.shards: dict[str, int] = {}
        """Where topics live, if there are several shards."""
        self.power_failures = 0
        self._windows = 1
        self._version = 0

    def line(self, name: str) -> Line:
        """The line of a topic name."""
        return self.lines.setdefault(name, Line(name))

    def tip(self, name: str) -> Model | None:
        """The topic after everything that was asked and not refused."""
        line = self.line(name)
        return line.model(len(line.steps))

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever something was learned."""
        return self._version, self.power_failures

    def _learned(self, line: Line) -> None:
        self._version += 1
        line.version = self._version

    # -- what happens -------------------------------------------------------------------------------------------------

    def asked(self, name: str, op: Op, now: int, *, needs_sync: bool, turn: int = -1) -> Step:
        """An operation was taken by the engine (not refused at once)."""
        line = self.line(name)
        step = Step(op, now, needs_sync=needs_sync, turn=turn)
        line.steps.append(step)
        line.quiet = False
        self._learned(line)
        if isinstance(op, Create):
            line.told = 0
        return step

    def acked(self, name: str, step: Step) -> None:
        """It was answered with success."""
        line = self.line(name)
        step.acked = True
        step.synced = step.needs_sync
        self._learned(line)
        index = next(at for at, other in enumerate(line.steps) if other is step) + 1
        model = line.model(index)
        if model is not None and isinstance(step.op, Append):
            line.told = max(line.told, model.head)

    def refused(self, name: str, step: Step) -> None:
        """It was answered with a failure that promises that nothing happened."""
        line = self.line(name)
        index = next(at for at, other in enumerate(line.steps) if other is step)
        line.forget_from(index)
        del line.steps[index]
        self._learned(line)

    def forget_ticks(self, since: int) -> None:
        """In which tick steps were written is not known from this one on."""
        for line in self.lines.values():
            for step in line.steps:
                if step.turn >= since:
                    step.turn = -1
                    self._learned(line)

    def sync_began(self) -> dict[str, int]:
        """What a sync that begins now will cover: everything acked by now (so written before it)."""
        return {name: max(line.covered, line.floor(Crash.KILL)) for name, line in self.lines.items()}

    def sync_ended(self, covered: dict[str, int]) -> None:
        """A sync (of all shards) ended well."""
        for name, count in covered.items():
            line = self.lines[name]
            if count > line.covered:
                line.covered = count
                self._learned(line)

    def now_quiet(self) -> None:
        """Everything has been synced and marked."""
        for line in self.lines.values():
            if all(step.acked for step in line.steps):
                line.covered, line.quiet = len(line.steps), True
                self._learned(line)

    def read(self, name: str, seq: int, text: bytes) -> str | None:
        """A reader of the live store got these bytes; says what is wrong if they have changed."""
        line = self.line(name)
        known = line.bytes.setdefault((line.incarnation_after(len(line.steps)), seq), text)
        self._learned(line)
        return None if known == text else f"{name}: seq {seq} changed from {known!r} to {text!r}"

    def answered_epoch(self, name: str, epoch: int) -> None:
        """An answer said which incarnation it was about."""
        line = self.line(name)
        line.epochs.setdefault(line.incarnation_after(len(line.steps)), epoch)
        self._learned(line)

    def placed(self, name: str, shard: int | None) -> None:
        """Where a topic lives; None: nowhere any more."""
        self._version += 1
        if shard is None:
            self.shards.pop(name, None)
        else:
            self.shards[name] = shard

    def copy(self) -> Oracle:
        """The same knowledge, to go on from in another direction."""
        twin = Oracle()
        twin.power_failures = self.power_failures
        twin._version = self._version
        twin.shards = dict(self.shards)
        for name, line in self.lines.items():
            twin.lines[name] = replace(
                line,
                steps=[replace(step) for step in line.steps],
                epochs=dict(line.epochs),
                bytes=dict(line.bytes),
                models=[],
            )
        return twin

    # -- what is compared ---------------------------------------------------------------------------------------------

    def check(self, view: View, crash: Crash, more_failures: int = 0, judged: Judged | None = None) -> list[str]:
        """What is wrong with a view after a crash of this kind (empty when all is right).

        Each power failure, and each recovery from one that did not get to its end, may leave one window's gap.
        `judged` remembers what was said about topics' views: it may be given again as long as all views that were
        judged with it are kept.
        """
        self._windows = max(self.power_failures, 1) + more_failures
        found = list(self._judge(view, crash, judged))
        wrong = [why for _, why, _ in found if why]
        if not wrong and crash is Crash.KILL:
            wrong = self._split_turns({name: match[0] for name, _, match in found})
        return wrong

    def _split_turns(self, counts: dict[str, int]) -> list[str]:
        """After a kill no turn is there on one of its shards and wholly absent on another.

        (On one shard a group may be cut in its middle: its writes are atomic each, not together.)
        """
        there: dict[int, set[int]] = {}
        gone: dict[int, set[int]] = {}
        for name, count in counts.items():
            shard = self.shards.get(name)
            if shard is None:
                continue
            for index, step in enumerate(self.lines[name].steps):
                if step.turn >= 0:
                    (there if index < count else gone).setdefault(step.turn, set()).add(shard)
        return [
            f"turn {turn}: shards {sorted(there[turn])} kept it, shards {sorted(gone[turn] - there[turn])} lost it"
            for turn in there.keys() & gone.keys()
            if gone[turn] - there[turn]
        ]

    def settle(self, view: View, crash: Crash) -> None:
        """Go on from a view that was right: what it shows is the base now."""
        for name, _, match in list(self._judge(view, crash)):
            line = self.lines[name]
            count, model = match
            line.passed = line.incarnation_after(count) - (0 if model is None else model.incarnation)
            line.base = model
            line.steps, line.models, line.covered = [], [], 0
            line.told = max(line.told, 0 if model is None else model.head)
            self._learned(line)

    def _judge(self, view: View, crash: Crash, judged: Judged | None = None) -> Iterator[Judgement]:
        for name in view.topics.keys() - self.lines.keys():
            yield name, f"{name}: a topic that nobody made", (0, None)
        for name, line in self.lines.items():
            seen = view.topics.get(name)
            if judged is None:
                yield self._judge_line(line, seen, crash, view.now)
                continue
            # What has no age is the same at any time: time cannot make a topic right or wrong.
            now = view.now if seen is not None and seen.config.ttl_ms else 0
            key = (name, line.version, crash, self._windows, id(seen), now)
            said = judged.get(key)
            if said is None:
                said = judged[key] = self._judge_line(line, seen, crash, view.now)
            yield said

    def _judge_line(self, line: Line, seen: TopicView | None, crash: Crash, now: int) -> Judgement:
        problems: list[str] = []
        for count in range(len(line.steps), line.floor(crash) - 1, -1):
            wrong, model = self._compare(line, count, seen, crash, now)
            if wrong is None:
                return line.name, None, (count, model)
            problems.append(f"as after {count} of {len(line.steps)}: {wrong}")
        bound = f"{line.name} ({crash.value}, must have {line.floor(crash)}): "
        return line.name, bound + " | ".join(problems), (0, None)

    def _compare(
        self, line: Line, count: int, seen: TopicView | None, crash: Crash, now: int
    ) -> tuple[str | None, Model | None]:
        model = line.model(count)
        if seen is None or model is None:
            return (None if seen is None and model is None else f"there: {seen is not None}"), None
        if seen.problem is not None:
            return seen.problem, None
        model = model.copy()
        wrong = self._check_identity(line, model, seen)
        if wrong is not None:
            return wrong, None
        model.expire(now)
        wrong = self._play_crash(line, count, model, seen, crash)
        if wrong is not None:
            return wrong, None
        return check_topic(model, seen, line), model

    @staticmethod
    def _check_identity(line: Line, model: Model, seen: TopicView) -> str | None:
        known = line.epochs.get(model.incarnation)
        if known is not None and seen.epoch != known:
            return f"epoch {seen.epoch}, not {known}"
        earlier = [epoch for incarnation, epoch in line.epochs.items() if incarnation < model.incarnation]
        if known is None and seen.epoch <= max(earlier, default=0):
            return f"epoch {seen.epoch} is not above those of earlier incarnations"
        if seen.config != model.config:
            return f"config {seen.config}, not {model.config}"
        if seen.damage:
            return f"damage {seen.damage} where there is none"
        return None

    def _play_crash(self, line: Line, count: int, model: Model, seen: TopicView, crash: Crash) -> str | None:
        """Put into `model` the loss that this crash may bring; says what is wrong with the head if it cannot be."""
        newest = line.incarnation_after(count) == line.incarnation_after(len(line.steps))
        told = line.told if newest else 0
        if model.volatile and crash is not Crash.NONE and model.config.durability is Durability.EPHEMERAL:
            if not told <= seen.head <= model.head + 3 * SEQ_BLOCK:
                return f"ephemeral head {seen.head} after {told} was told"
            model.lose_volatile(seen.head)
            return None
        if crash is not Crash.NONE:
            # What was written while the topic was ephemeral is gone; the rest is as safe as the class is now.
            model.lose_volatile(model.head)
        ahead = seen.head - model.head
        if crash is not Crash.POWER or model.config.durability in WAITING:
            return None if not ahead else f"head {seen.head}, not {model.head}"
        if seen.head < told:
            return f"head {seen.head} although seq {told} was acked: it would be given again"
        if model.config.durability is Durability.EPHEMERAL:
            allowed = 0 <= ahead <= 3 * SEQ_BLOCK
        else:
            allowed = ahead >= 0 and ahead % SYNC_WINDOW == 0 and ahead // SYNC_WINDOW <= self._windows
        if not allowed:
            return f"head {seen.head}, {ahead} beyond {model.head}"
        if ahead and line.quiet:
            return f"a gap of {ahead} in a topic that was quiet"
        model.crash_gap(seen.head)
        return None


def check_topic(model: Model, seen: TopicView, line: Line) -> str | None:
    """Compare one topic with its model, losses included."""
    if seen.next_seq != seen.head + 1:
        return f"next_seq {seen.next_seq} after head {seen.head}"
    if (seen.count, seen.size) != (len(model.live), model.bytes):
        return f"count, bytes {(seen.count, seen.size)}, not {(len(model.live), model.bytes)}"
    for page in seen.pages:
        wrong = check_page(model, page)
        if wrong is not None:
            return wrong
    last_ts = 0
    for seq in sorted(seen.records):
        record, ts, text = seen.records[seq]
        if record != model.live[seq]:
            return f"seq {seq} is {record}, not {model.live[seq]}"
        known = line.bytes.get((model.incarnation, seq))
        if known is not None and known != text:
            return f"seq {seq} changed its bytes from {known!r} to {text!r}"
        if ts < last_ts:
            return f"time falls from {last_ts} to {ts} at seq {seq}"
        last_ts = ts
    return None
