"""Plays of queues: after each change of the disk the process is killed, and the power fails, and what a start finds
then is held against what clients were told.

What was acked never comes back; a job that was written is in its queue or in the dead letters, never in both, never in
none; counters add up, and leases that were logged hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.jobs import outcome
from engine.core.requeue import plan_requeue, requeue
from engine.queue.commands import Ack, Claim, Extend, Nack
from engine.queue.events import Leased
from engine.types import ConfigChanges, Durability, TopicType
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.plays import Crashes, Play
from tests.sim.view import look
from tests.sim.world import TINY


@dataclass
class Told:
    """What clients know: of each job (its data) what was promised, and what was only asked for."""

    written: set[int] = field(default_factory=set)
    acking: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    requeued: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    """Every lease that was ever answered."""
    leased: dict[int, int] = field(default_factory=dict)
    """Of jobs whose leases were answered and not ended: the lease."""

    def copy(self) -> Told:
        return Told(
            set(self.written),
            set(self.acking),
            set(self.acked),
            set(self.moved),
            set(self.requeued),
            set(self.given),
            dict(self.leased),
        )


class Shop:
    """A store with a queue `q` whose dead letters are `dead`, one process after the other."""

    def __init__(self, disk: FakeDisk, clock: ManualClock, settings: Any) -> None:
        self.disk, self.clock, self.settings = disk, clock, settings
        self.told = Told()
        self.core = Core.open(disk, clock, settings)

    def step(self, ms: float = 0.5) -> None:
        core = self.core
        self.clock.tick(ms)
        core.advance()
        core.turn()
        while (job := core.sync_job()) is not None:
            core.sync_done(job, outcome(job, self.disk))
        while (chore := core.chore()) is not None:
            core.chore_done(chore, outcome(chore, self.disk))
        while core.keep_step():
            pass
        if (work := core.keep_job()) is not None:
            core.keep_done(work, outcome(work, self.disk))
        core.fresh.clear()

    def wait(self, ticket: Ticket[Any]) -> Any:
        for _ in range(400):
            if ticket.done:
                return ticket.value()
            self.step()
        raise AssertionError("an answer never comes")

    def restart(self, how: str) -> None:
        if how == "stop":
            self.core.close()
        self.disk.on_step = None
        self.disk = self.disk.killed()
        self.clock = self.clock.restart()
        self.core = Core.open(self.disk, self.clock, self.settings)

    # -- what clients do

    def make(self, **config: Any) -> None:
        changes = ConfigChanges(type=TopicType.QUEUE, dead_letter="dead", max_deliveries=2, lease_ms=60_000, **config)
        self.wait(self.core.put_topic("q", changes))

    def write(self, *datas: int) -> None:
        self.wait(self.core.append("q", Batch([b"%d" % data for data in datas])))
        self.told.written.update(datas)

    def claim(self, count: int) -> list[int]:
        waiter = self.core.queues.claim("q", Claim(node="n", max=count), 0)
        leased: Leased | None = self.wait(waiter.ticket).leased
        if leased is None:
            return []
        for lease_id, (seq, _) in enumerate(leased.jobs, leased.lease_id):
            assert lease_id not in self.told.given, "a lease is given once"
            self.told.given.add(lease_id)
            self.told.leased[seq] = lease_id
        return [seq for seq, _ in leased.jobs]

    def _over(self, seqs: list[int]) -> None:
        for seq in seqs:
            self.told.leased.pop(seq, None)

    def ack(self, *seqs: int, wait: bool = True) -> None:
        self._over(list(seqs))
        self.told.acking.update(seqs)
        ticket = self.core.queues.ack("q", Ack(node="n", seqs=list(seqs)))
        self._tell(ticket, lambda: self.told.acked.update(seqs))
        if wait:
            self.wait(ticket)

    def _tell(self, ticket: Ticket[Any], know: Callable[[], None]) -> None:
        """Let the client know something in the very moment of its answer, and look at what the disk has then."""

        def heard(_: Ticket[Any]) -> None:
            know()
            if self.disk.on_step is not None:
                self.disk.on_step(self.disk, "answer")

        assert not ticket.done
        ticket.on_done = heard

    def nack(self, *seqs: int, **how: Any) -> None:
        self._over(list(seqs))
        ticket = self.core.queues.nack("q", Nack(node="n", seqs=list(seqs), **how))
        if how.get("dead_letter") and not ticket.done:
            self._tell(ticket, lambda: self.told.moved.update(seqs))
        assert self.wait(ticket).seqs == list(seqs)

    def extend(self, *seqs: int) -> None:
        self.wait(self.core.queues.extend("q", Extend(node="n", seqs=list(seqs))))


def live(core: Core, name: str) -> dict[int, int]:
    """seq in `q` → how often it is there, by what the records hold (in `q` a job's data is its seq)."""
    slot = core.catalog.visible.get(name)
    found: dict[int, int] = {}
    if slot is not None:
        for first, last in slot.topic.live_runs(slot.topic.earliest_seq, slot.topic.head):
            for seq in range(first, last + 1):
                record = core.record(name, seq)
                data = int(record[record.index(b'"data":') + 7 :].partition(b",")[0].rstrip(b"}"))
                found[data] = found.get(data, 0) + 1
    return found


def check(disk: FakeDisk, shop: Shop, told: Told, durability: Durability, *, power: bool, durable: bool) -> None:
    """What a start finds, against what clients were told."""
    clock = shop.clock.reboot() if power else shop.clock.restart()
    tree, boot = disk.cached_tree(), disk.boot
    core = Core.open(disk, clock, shop.settings)
    assert disagreement(tree, boot, look(core), core, clock, shop.settings) is None
    here, dead = live(core, "q"), live(core, "dead")
    places = [*here.items(), *dead.items()]
    assert all(count == 1 for _, count in places)
    assert not here.keys() & dead.keys(), "a job is in one place"
    for name in ("q", "dead"):
        slot = core.catalog.visible.get(name)
        if slot is None or slot.host is None:
            continue
        queue = slot.host.queue
        assert queue.live == slot.topic.count
        assert queue.live == queue.ready + queue.in_flight + queue.delayed
        assert min(queue.ready, queue.in_flight, queue.delayed, queue.acked, queue.lost) >= 0
    if power and durability is not Durability.FSYNC:
        return
    assert not told.acked & here.keys(), "what was acked never comes back"
    assert not told.acked & dead.keys()
    assert told.written - told.acking <= here.keys() | dead.keys(), "no job vanishes"
    assert told.moved <= dead.keys()
    if told.written:
        queue = core.queues.find("q")[1].queue
        assert queue.written >= len(told.written)
        assert queue.acked >= len(told.acked)
        if not durable:
            assert queue.in_flight == 0
        else:
            held = {lease.seq: lease.lease_id for lease in core.queues.leases("q", 0, 100)}
            for seq, lease in told.leased.items():
                assert held.get(seq) == lease


def script(shop: Shop, **config: Any) -> None:
    """Jobs that are claimed, acked, given back, delayed, extended, and that die, a checkpoint and two restarts."""
    shop.make(**config)
    shop.write(1, 2, 3)
    assert shop.claim(2) == [1, 2]
    shop.ack(1)
    shop.nack(2, reason="no")
    shop.write(4, 5, 6)
    assert shop.claim(1) == [2]
    shop.extend(2)
    shop.nack(2, delay_ms=5)
    shop.step(10)
    assert shop.claim(2) == [3, 4], "the third delivery is none: job 2 would move, and its dead letters are made"
    for _ in range(9):
        if live(shop.core, "dead"):
            break
        shop.nack(*shop.claim(1), delivered=False)
        shop.step()
    assert set(live(shop.core, "dead")) == {2}
    shop.told.moved.add(2)
    shop.nack(3, dead_letter=True)
    shop.wait(shop.core.checkpoint())
    shop.ack(4)
    shop.restart("kill")
    shop.disk.on_step = None
    shop.told.leased.clear()
    assert shop.claim(1) in ([5], [6])
    shop.write(7)
    shop.restart("stop")
    counters = shop.core.state("q").queue
    assert counters is not None
    assert (counters["written"], counters["acked"], counters["dead_lettered"], counters["lost"]) == (7, 2, 2, 0)


def together_script(shop: Shop, **config: Any) -> None:
    """Acks of one tick, which share frames; some are still unanswered when the process is killed."""
    shop.make(**config)
    shop.write(*range(1, 11))
    for seq in range(1, 11):
        assert shop.claim(1) == [seq]
    for seq in (3, 1, 2):
        shop.ack(seq, wait=False)
    shop.step()
    shop.ack(9, wait=False)
    shop.write(11)
    shop.ack(4, wait=False)
    shop.ack(5, 7, wait=False)
    shop.nack(6)
    shop.wait(shop.core.checkpoint())
    shop.ack(8, wait=False)
    shop.ack(10)
    shop.restart("kill")
    counters = shop.core.state("q").queue
    assert counters is not None
    assert (counters["written"], counters["acked"], counters["lost"]) == (11, 9, 0)


def requeue_script(shop: Shop, **config: Any) -> None:
    """Dead letters that go back, a few at a time, beside writes that wait for syncs; where there are shards, the dead
    letters lie in one whose syncs come first."""
    core = shop.core
    for name in ("dead", "busy"):
        kind = TopicType.QUEUE if name == "dead" else TopicType.LOG
        shop.wait(core.put_topic(name, ConfigChanges(type=kind, durability=Durability.FSYNC)))
    shop.make(**config)
    while len(core.wal.shards) > 1 and core.catalog.visible["q"].shard <= core.catalog.visible["dead"].shard:
        shop.wait(core.drop_topic("q"))
        shop.make(**config)
    shop.write(1, 2, 3)
    shop.nack(*shop.claim(3), dead_letter=True)
    shop.told.moved.update((1, 2, 3))
    shop.write(4)
    shop.write(5)  # The queue is awake: its next write waits for no sync.
    for seqs, early in (((1,), False), ((2, 3), True)):
        waiting = core.append("busy", Batch.of(["waits for a sync"]))
        ticket = requeue(core, plan_requeue(core, "dead", DeleteSelector(seqs=seqs), None))
        if early and (job := core.sync_job()) is not None:
            core.sync_done(job, outcome(job, shop.disk))
        assert shop.wait(ticket).requeued == len(seqs)
        shop.told.requeued.update(seqs)
        shop.wait(waiting)
    shop.step()
    assert (live(core, "q"), live(core, "dead")) == (dict.fromkeys(range(1, 6), 1), {})


def requeue_check(disk: FakeDisk, shop: Shop, told: Told, *, power: bool) -> None:
    """A job that went back is in one of its places or in both, whatever the class of the queue that it goes to."""
    clock = shop.clock.reboot() if power else shop.clock.restart()
    tree, boot = disk.cached_tree(), disk.boot
    core = Core.open(disk, clock, shop.settings)
    assert disagreement(tree, boot, look(core), core, clock, shop.settings) is None
    here, dead = live(core, "q"), live(core, "dead")
    assert all(count == 1 for count in (*here.values(), *dead.values()))
    assert told.moved <= here.keys() | dead.keys(), "no job vanishes"
    if not power:
        assert told.requeued <= here.keys() - dead.keys(), "what was answered is done"


def _requeue_play(durability: Durability) -> Callable[[int, Crashes[Told]], None]:
    def run(shards: int, crashes: Crashes[Told]) -> None:
        disk, clock = FakeDisk(), ManualClock()
        shop = Shop(disk, clock, TINY if shards == 1 else msgspec.structs.replace(TINY, wal_shards=shards))
        crashes.watch(disk, lambda: shop.told)
        requeue_script(shop, durability=durability)
        crashes.check(lambda image, told, power: requeue_check(image, shop, told, power=power))

    return run


def _play(
    durability: Durability, durable: bool, run_script: Callable[..., None] = script
) -> Callable[[int, Crashes[Told]], None]:
    def run(shards: int, crashes: Crashes[Told]) -> None:
        disk, clock = FakeDisk(), ManualClock()
        shop = Shop(disk, clock, TINY if shards == 1 else msgspec.structs.replace(TINY, wal_shards=shards))
        crashes.watch(disk, lambda: shop.told)
        run_script(shop, durability=durability, leases_durable=durable)
        crashes.check(
            lambda image, told, power: check(image, shop, told, durability, power=power, durable=durable),
        )

    return run


PLAYS = (
    tuple(
        Play(f"queue-{durability.value}{'-leases' if durable else ''}", _play(durability, durable), (1, 2))
        for durability in (Durability.DISK, Durability.FSYNC)
        for durable in (False, True)
    )
    + tuple(
        Play(f"queue-together-{durability.value}", _play(durability, False, together_script), (1, 2))
        for durability in (Durability.DISK, Durability.FSYNC)
    )
    + tuple(
        Play(f"requeue-{durability.value}", _requeue_play(durability), (1, 2))
        for durability in (Durability.DISK, Durability.FSYNC)
    )
)
"""In a `-leases` one leases outlive a restart."""
