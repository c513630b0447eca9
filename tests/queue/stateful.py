"""The machine and the model side by side: every answer is compared, and what must always hold is looked at.

The clock is moved by hand, through engine time as the daemon has it: steps of the wall clock, suspension. A restart
makes a new machine from a snapshot and the log behind it. Acks may stay staged for a while before they are visible.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import hypothesis.strategies as st
import msgspec
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.clock import EngineTime
from engine.queue.commands import Ack, Claim, Extend, Nack, Settled
from engine.queue.events import (
    Acked,
    Appended,
    DeadLettered,
    Event,
    Leased,
    MoveRefused,
    Nacked,
    Removed,
    Restarted,
    Why,
    is_logged,
)
from engine.queue.machine import Queue
from engine.queue.snapshot import QueueSnapshot
from engine.queue.trail import Delivery
from engine.types import Match
from tests.queue.model import Ended, Model
from tests.queue.topic import Records, logged, queue_config
from tests.sim.clock import ManualClock

NODES = st.sampled_from(["ann", "bob"])
TAGS = st.sampled_from([None, "x", "x", "y"])
MATCHES = st.sampled_from([None, None, Match("Eq", "x"), Match("Glob", "y")])
LEASES = st.sampled_from([100, 300, 1000])
CONNS = st.sampled_from([0, 0, 1, 2])
CLAIMS = st.tuples(NODES, st.integers(1, 4), LEASES, MATCHES, CONNS)
RARELY = st.sampled_from([True, False, False])
PICKS = st.lists(st.integers(0, 99), min_size=1, max_size=4)

STEPS: Final[dict[str, tuple[int, dict[str, Any]]]] = {}
"""What may happen: how often, compared with the rest, and with what arguments."""


def step(weight: int, **arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One thing that may happen.

    Not a rule of its own: hypothesis switches some rules off for a whole history, and one without writes or claims
    shows nothing.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        STEPS[function.__name__] = (weight, arguments)
        return function

    return register


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """One step with its arguments."""
    name = draw(st.sampled_from([name for name, (weight, _) in STEPS.items() for _ in range(weight)]))
    return name, {argument: draw(strategy) for argument, strategy in STEPS[name][1].items()}


class QueueComparison(RuleBasedStateMachine):
    """Both queues; `told` is the model of what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.time = EngineTime(self.clock, 0)
        self.records = Records()
        self.queue = Queue(self.records)
        self.model = Model()
        self.told = Model()
        self.log: list[tuple[Event, str | None]] = []
        self.checkpoint: tuple[bytes, Records] | None = None
        self.pending: list[Acked] = []
        self.config = queue_config()
        self.last_leased: Leased | None = None
        self.next_lease_id = 1 << 32

    # -- the host --------------------------------------------------------------------------------------------------

    def now(self) -> int:
        now = self.time.advance()
        self.model.pass_time(now)
        return now

    def happen(self, event: Event, tag: str | None = None) -> None:
        topics_own = isinstance(event, Appended | Removed)
        if topics_own or is_logged(event, self.config.leases_durable):
            self.log.append((logged(event), tag))
        if isinstance(event, Acked | DeadLettered):
            self.queue.stage(event)
        if isinstance(event, Acked):
            self.pending.append(event)
        else:
            self.show(event)

    def show(self, event: Event) -> None:
        self.queue.apply(event)
        change_topic(self.records, event)

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that hear of what is logged with durable leases alone."""
        return (self.model, self.told) if self.config.leases_durable else (self.model,)

    # -- rules -----------------------------------------------------------------------------------------------------

    @rule(step=steps())
    def take_a_step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, arguments = step
        getattr(self, name)(**arguments)

    @initialize(durable=st.booleans(), max_deliveries=st.sampled_from([0, 0, 1, 3]), dead=st.booleans())
    def configure(self, durable: bool, max_deliveries: int, dead: bool) -> None:
        self.config = queue_config(
            leases_durable=durable, max_deliveries=max_deliveries, dead_letter="dead" if dead else None
        )
        for tag in ("x", None, "x", "y"):
            self.write(1, tag)

    @step(2, count=st.integers(1, 6), tag=TAGS)
    def write(self, count: int, tag: str | None) -> None:
        self.records.append(count, tag, self.now())
        self.happen(Appended(count), tag)
        self.model.write(count, tag)
        self.told.write(count, tag)

    @step(1, pick=st.integers(0, 99), width=st.integers(1, 2), why=st.sampled_from(list(Why)))
    def remove(self, pick: int, width: int, why: Why) -> None:
        if len(self.model.jobs) < 4:
            return
        self.settle_pending()
        first = sorted(self.model.jobs)[pick % len(self.model.jobs)]
        last = first + width - 1
        count = sum(first <= seq <= last for seq in self.records.tags)
        event = Removed(first, last, count, why)
        change_topic(self.records, event)
        self.happen(event)
        self.model.remove(first, last, why.value)
        self.told.remove(first, last, why.value)

    @step(
        5,
        claims=st.lists(CLAIMS, min_size=1, max_size=3),
        target_full=st.booleans(),
        toggle=st.booleans(),
    )
    def claim(
        self, claims: list[tuple[str, int, int, Match | None, int]], target_full: bool, toggle: bool = False
    ) -> None:
        if toggle:
            self.config = msgspec.structs.replace(self.config, leases_durable=not self.config.leases_durable)
        now = self.now()
        commands = [
            Claim(node=node, max=count, lease_ms=lease, match=match, conn=conn)
            for node, count, lease, match, conn in claims
        ]
        exhausted = self.config.max_deliveries if self.config.dead_letter is not None else 0
        given, moved = self.model.deal([(claim.max, claim.match) for claim in commands], exhausted)
        decision = self.queue.claim(commands, self.config, now, self.next_lease_id)
        got = [[] if leased is None else [seq for seq, _ in leased.jobs] for leased in decision.leased]
        assert got == given
        assert decision.next_lease_id == self.next_lease_id + sum(map(len, given))
        self.next_lease_id = decision.next_lease_id
        for command, leased in zip(commands, decision.leased, strict=True):
            if leased is not None:
                self.happen(leased)
                self.note_leased(command, leased, now)
        self.move(decision.moved, moved, now, target_full)

    @step(4, picks=PICKS, match=MATCHES, count=st.integers(1, 3))
    def nack_some_and_claim(self, picks: list[int], match: Match | None, count: int) -> None:
        """What makes second and third deliveries, all in one millisecond."""
        leased = sorted(seq for seq, job in self.model.jobs.items() if job.state == "leased" and not job.leaving)
        for seq in {leased[pick % len(leased)] for pick in picks if leased}:
            now = self.now()
            job = self.model.jobs[seq]
            if job.state == "leased":
                decision = self.queue.nack(Nack(node=job.node, seqs=[seq]), self.config, now)
                assert isinstance(decision.event, Nacked)
                self.happen(decision.event)
                self.note_nacked(decision.event, now, 0)
        self.claim([("ann", count, 1000, match, 0)], True)

    def note_leased(self, command: Claim, leased: Leased, now: int) -> None:
        assert command.lease_ms is not None
        for lease_id, (seq, deliveries) in enumerate(leased.jobs, leased.lease_id):
            assert self.model.jobs[seq].state == "ready", "a lease has one holder"
            assert deliveries == self.model.jobs[seq].deliveries + 1
            self.model.lease(seq, deliveries, command.node, lease_id, now, now + command.lease_ms, command.conn)
            if self.config.leases_durable:
                self.told.lease(seq, deliveries, command.node, lease_id, now, now + command.lease_ms, 0)
        if self.config.leases_durable:
            self.told.repeat = leased.repeat
        self.last_leased = leased

    def move(self, moved: DeadLettered | None, seqs: list[int], now: int, target_full: bool) -> None:
        assert [move.seq for move in moved.moves] == seqs if moved is not None else not seqs
        if moved is None:
            return
        for move in moved.moves:
            job = self.model.jobs[move.seq]
            assert move.deliveries == job.deliveries
            if job.state == "ready":
                assert [as_ended(step) for step in move.trail] == job.trail
        if target_full:
            self.refuse(moved, now)
            return
        self.happen(moved)
        for seq in seqs:
            for model in (self.model, self.told):
                del model.jobs[seq]
                model.gone["dead_lettered"] += 1

    def refuse(self, moved: DeadLettered, now: int) -> None:
        """The target is full or cannot be made."""
        leased = {move.seq for move in moved.moves if self.model.jobs[move.seq].state == "leased"}
        for event in self.queue.refuse_moves(moved, "dead is full", now):
            self.happen(event)
            if isinstance(event, Nacked):
                self.note_nacked(event, now)
            if isinstance(event, MoveRefused):
                assert {seq for seq, _ in event.jobs} == {move.seq for move in moved.moves} - leased
                for seq, ready_at in event.jobs:
                    full = 1000 * 2 ** (self.model.jobs[seq].deliveries - 1)
                    assert full * 8 <= (ready_at - now) * 10 <= full * 12
                    self.model.back(self.model.jobs[seq], ready_at, now)
        assert self.queue.dead_letter_problem == "dead is full"

    @step(3, node=NODES, picks=PICKS, fenced=st.sampled_from([None, "current", "old"]))
    def ack(self, node: str, picks: list[int], fenced: str | None) -> None:
        now = self.now()
        seqs, leases = self.aim(node, picks, fenced)
        decision = self.queue.ack(Ack(node=node, seqs=seqs, lease_ids=leases), now)
        for seq in self.compare(decision, node, seqs, leases, "gone"):
            assert self.model.jobs[seq].node == node, "nothing is acked that its holder had not claimed"
            self.model.jobs[seq].leaving = True
            self.told.jobs.pop(seq)
            self.told.gone["acked"] += 1
        if decision.event is not None:
            self.happen(decision.event)

    @step(1)
    def settle_pending(self) -> None:
        """What is staged becomes visible."""
        for event in self.pending:
            for seq in event.seqs:
                del self.model.jobs[seq]
                self.model.gone["acked"] += 1
            self.show(event)
        self.pending = []

    @step(
        2,
        node=NODES,
        picks=PICKS,
        fenced=st.sampled_from([None, "current", "old"]),
        delay=st.sampled_from([0, 0, 100, 250, None]),
        reason=st.sampled_from([None, "bad"]),
        straight=st.booleans(),
        target_full=st.booleans(),
    )
    def nack(
        self,
        node: str,
        picks: list[int],
        fenced: str | None,
        delay: int | None,
        reason: str | None,
        straight: bool,
        target_full: bool,
    ) -> None:
        now = self.now()
        seqs, leases = self.aim(node, picks, fenced)
        straight = straight and self.config.dead_letter is not None
        command = Nack(node=node, seqs=seqs, lease_ids=leases, delay_ms=delay, reason=reason, dead_letter=straight)
        decision = self.queue.nack(command, self.config, now)
        good = self.compare(decision, node, seqs, leases, "not_leased")
        if straight:
            self.move(decision.moved, good, now, target_full)
        elif decision.event is not None:
            self.happen(decision.event)
            assert isinstance(decision.event, Nacked)
            self.note_nacked(decision.event, now, delay)

    def note_nacked(self, event: Nacked, now: int, delay: int | None = None) -> None:
        for nacked in event.jobs:
            was = copy.copy(self.model.jobs[nacked.seq])
            if delay is None:
                full = 1000 * 2 ** (was.deliveries - 1)
                assert full * 8 <= (nacked.ready_at - now) * 10 <= full * 12
            else:
                assert nacked.ready_at == now + delay
            for model in (self.model, self.told):
                model.nack(was, nacked.ready_at, event.reason, now)

    @step(1, node=NODES, picks=PICKS, fenced=st.sampled_from([None, "current", "old"]), lease=LEASES)
    def extend(self, node: str, picks: list[int], fenced: str | None, lease: int) -> None:
        now = self.now()
        seqs, leases = self.aim(node, picks, fenced)
        command = Extend(node=node, seqs=seqs, lease_ids=leases, lease_ms=lease)
        decision = self.queue.extend(command, self.config, now)
        for seq in self.compare(decision, node, seqs, leases, None):
            for model in self.models:
                model.extend(seq, self.model.jobs[seq].lease, now + lease, now)
        if decision.event is not None:
            self.happen(decision.event)

    @step(1, conn=st.sampled_from([1, 2]))
    def connection_ends(self, conn: int) -> None:
        now = self.now()
        mine = [job for job in self.model.jobs.values() if job.conn == conn and job.state == "leased"]
        assert self.queue.held_by(conn) == len(mine)
        event = self.queue.release(conn, now)
        released = sorted(job.seq for job in mine if not job.leaving)
        assert released == ([] if event is None else [seq for seq, _ in event.jobs])
        for job in (self.model.jobs[seq] for seq in released):
            for model in self.models[::-1]:
                model.release(job.seq, job.lease, now)
        if event is not None:
            self.happen(event)

    @step(1, checkpoint=RARELY)
    def answer_was_never_written(self, checkpoint: bool) -> None:
        if self.last_leased is None:
            return
        if checkpoint:
            self.make_a_checkpoint()
        now = self.now()
        event = self.queue.undeliver(self.last_leased, now)
        undone = []
        for lease_id, (seq, deliveries) in enumerate(self.last_leased.jobs, self.last_leased.lease_id):
            job = self.model.jobs.get(seq)
            if job is not None and job.state == "leased" and job.lease == lease_id and not job.leaving:
                undone.append((seq, deliveries - 1))
                for model in (self.model, self.told):
                    model.undeliver(seq, deliveries - 1, now)
        assert undone == ([] if event is None else list(event.jobs))
        if event is not None:
            self.happen(event)
        self.last_leased = None

    # -- time and restarts -----------------------------------------------------------------------------------------

    @step(2, ms=st.sampled_from([1, 99, 100, 200, 700, 3_600_000]))
    def time_passes(self, ms: int) -> None:
        """Suspension is time that passes, too."""
        self.clock.tick(ms)

    @step(2)
    def time_comes_to_the_nearest_deadline(self) -> None:
        """One millisecond before it nothing has happened yet; at the deadline exactly it has."""
        now = self.now()
        self.queue.counters(now)
        wake = self.queue.next_wake_ms()
        waiting = [job.until for job in self.model.jobs.values() if job.state in ("leased", "delayed")]
        assert wake == (min(waiting) if waiting else None)
        if wake is not None:
            ready = self.queue.ready
            self.clock.tick(wake - now - 1)
            if self.now() == wake - 1:  # unless a step of the wall clock has been steady for long enough by now
                assert self.queue.counters(wake - 1).ready == ready
                self.clock.tick(1)
                assert self.queue.counters(self.now()).ready > ready

    @step(1, ms=st.sampled_from([-3_600_000, -1000, 1000, 86_400_000]))
    def the_wall_clock_steps(self, ms: int) -> None:
        before = self.now()
        self.clock.wall_step(ms)
        assert self.now() == before, "a step revives nothing and expires nothing"

    @step(1)
    def make_a_checkpoint(self) -> None:
        self.settle_pending()
        now = self.now()
        self.queue.counters(now)
        self.checkpoint = (msgspec.msgpack.encode(self.queue.snapshot()), copy.deepcopy(self.records))
        self.log = []
        self.told = copy.deepcopy(self.model)
        for job in self.told.jobs.values():
            job.conn = 0

    @step(2, durable=st.booleans(), checkpoint=RARELY)
    def restart(self, durable: bool, checkpoint: bool) -> None:
        self.config = msgspec.structs.replace(self.config, leases_durable=durable)
        if checkpoint:
            self.make_a_checkpoint()
        self.time = EngineTime(self.clock, self.now())
        now = self.now()
        if self.checkpoint is None:
            self.records = Records()
            self.queue = Queue(self.records)
        else:
            self.records = copy.deepcopy(self.checkpoint[1])
            snapshot = msgspec.msgpack.decode(self.checkpoint[0], type=QueueSnapshot)
            self.queue = Queue.restore(self.records, snapshot)
        for event, tag in self.log:
            if isinstance(event, Appended):
                self.records.append(event.count, tag, now)
            self.queue.apply(event)
            change_topic(self.records, event)
        self.queue.apply(Restarted(now, self.config.leases_durable))
        for seq, job in self.told.jobs.items():
            assert job.deliveries <= self.model.jobs[seq].deliveries, "a count may be low, never high"
        self.model = self.told.restarted(now, self.config.leases_durable)
        # What the new process thinks at its start is not in the log: a crash now would begin from the same place.
        self.pending = []
        self.last_leased = None
        self.next_lease_id += 1 << 16

    # -- helpers and what always holds -----------------------------------------------------------------------------

    def aim(self, node: str, picks: list[int], fenced: str | None) -> tuple[list[int], list[int] | None]:
        """Seqs to settle: mostly leased ones, and rather one's own; and their lease ids, right ones or old ones."""
        leased = sorted(seq for seq, job in self.model.jobs.items() if job.state == "leased")
        leased = [seq for seq in leased if self.model.jobs[seq].node == node or seq % 3 == 0] or leased
        seqs = [leased[pick % len(leased)] if leased and pick < 80 else pick % 12 for pick in picks]
        if fenced is None:
            return seqs, None
        lease_of = {seq: job.lease for seq, job in self.model.jobs.items()}
        return seqs, [lease_of.get(seq, 5) - (fenced == "old") for seq in seqs]

    def compare(
        self, decision: Settled, node: str, seqs: list[int], leases: list[int] | None, again: str | None
    ) -> list[int]:
        good: list[int] = []
        skipped: list[tuple[int, str]] = []
        for index, seq in enumerate(seqs):
            why = self.model.skip(seq, node, None if leases is None else leases[index])
            if why is not None:
                skipped.append((seq, why))
            elif seq not in good:
                good.append(seq)
            elif again is not None:
                skipped.append((seq, again))
        assert [(seq, why.value) for seq, why in decision.skipped] == skipped
        assert decision.seqs == good
        assert decision.waits == any(seq in self.model.jobs and self.model.jobs[seq].leaving for seq in seqs)
        return good

    @invariant()
    def counters_are_exact(self) -> None:
        counters = self.queue.counters(self.now())
        assert counters.ready == self.model.count("ready")
        assert counters.in_flight == self.model.count("leased")
        assert counters.delayed == self.model.count("delayed")
        for name, count in self.model.gone.items():
            assert getattr(counters, name) == count, name
        assert counters.written == self.model.head

    @invariant()
    def leases_are_the_same(self) -> None:
        leases = self.queue.leases(self.now(), 0, 100)
        wanted = sorted(
            (job.seq, job.node, job.lease, job.until, job.deliveries)
            for job in self.model.jobs.values()
            if job.state == "leased"
        )
        assert [(one.seq, one.node, one.lease_id, one.deadline, one.deliveries) for one in leases] == wanted

    def teardown(self) -> None:
        """No job vanishes: after a long time a claim without a filter gets every one that is left."""
        self.settle_pending()
        self.config = queue_config()
        self.clock.tick(86_400_000)
        now = self.now()
        decision = self.queue.claim([Claim(node="last", max=1000)], self.config, now, self.next_lease_id)
        got = [] if decision.leased[0] is None else [seq for seq, _ in decision.leased[0].jobs]
        assert sorted(got) == sorted(self.model.jobs)


def as_ended(step: Delivery) -> Ended:
    return (step.number, step.node, step.claimed, step.ended, step.how.value, step.reason)


def change_topic(records: Records, event: Event) -> None:
    """What the topic loses with an event."""
    if isinstance(event, Removed):
        gone = list(range(event.first, event.last + 1))
    elif isinstance(event, Acked):
        gone = list(event.seqs)
    elif isinstance(event, DeadLettered):
        gone = [move.seq for move in event.moves]
    else:
        return
    for seq in gone:
        records.tags.pop(seq, None)
