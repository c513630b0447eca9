"""Topics that age, queues, keys, clocks that are set, stops and recoveries, drawn like the routers of `Wild`.

What holds whatever happens: besides what is asked for there, that no record comes back that is too old, whatever the
wall clock does and however the process ends; and that the counters of queues add up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.core.requeue import plan_requeue, requeue
from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.fs import Fs
from engine.limits import EngineSettings
from engine.queue.commands import Ack, Claim, Extend, Nack
from engine.tools.recover import Recovery
from engine.types import ConfigChanges, Discard, Match, TopicType
from tests.sim.disk import FakeDisk
from tests.sim.still import StillDisk
from tests.sim.test_routers_random import CLASSES, Wild
from tests.sim.world import TINY

QUEUES: Final = "qr"
DEAD: Final = "e"
NEVER: Final = 1 << 40
STEPS_MS: Final = (-3_600_000, -50, 40, 1_000, 86_400_000)
"""How far the wall clock is set."""
SEEDS: Final = (*range(30), 53, 385, 397)
"""The last ones showed a start that followed a clock that had been set back."""


class Wider(Wild):
    """Clients of everything that a store has."""

    names = "abcdqr"
    pauses = (0.5, 3, 30, 300)

    def draw(self) -> EngineSettings:
        choice = self.dice.choice
        return msgspec.structs.replace(
            TINY,
            wal_shards=choice((1, 1, 2, 3)),
            wal_file_bytes=choice((16, 64)) * 1024,
            segment_max_events=choice((4, 8, 40)),
            segment_age_ms=choice((0, 50)),
            checkpoint_ms=choice((100, NEVER)),
            checkpoint_bytes=choice((8, 256)) * 1024,
            stop_checkpoint_bytes=choice((0, NEVER)),
        )

    def end(self, *, settled: bool) -> None:
        how = self.dice.choice(("kill", "stop", "recover")) if settled else "kill"
        self.disk.on_step = None
        if how == "stop":
            self.core.close()
        super().end(settled=settled)
        if how == "recover":
            self.disk = self._recovered()
        if self.dice.random() < 0.5:
            self.clock.wall_step(self.dice.choice(STEPS_MS))

    def _recovered(self) -> FakeDisk:
        source = cast(Fs, StillDisk(self.disk.cached_tree(), self.disk.boot))
        recovery = Recovery(source, self.clock, lambda _: None, lambda *_: None, self.settings)
        recovery.read()
        disk = FakeDisk(boot=self.disk.boot)
        assert recovery.write(disk).complete
        return disk.killed()

    @staticmethod
    def lost_by_itself(slot: Slot, lines: list[int], lost: list[int]) -> bool:
        # A start moves jobs to the dead letters that were delivered too often, and lets others age.
        if slot.host is not None or slot.config.ttl_ms or slot.config.cap_bytes:
            return True
        return Wild.lost_by_itself(slot, lines, lost)

    def look(self) -> None:
        super().look()
        for name, slot in self.core.catalog.visible.items():
            counters = self.core.state(name, touch=False).queue
            if counters is None:
                continue
            live = counters["ready"] + counters["in_flight"] + counters["delayed"]
            ended = [counters[how] for how in ("acked", "dead_lettered", "deleted", "evicted", "lost")]
            assert live == slot.topic.at(self.core.now()).count
            assert counters["written"] == live + sum(ended)
            assert min(live, *ended) >= 0

    # -- what clients do -------------------------------------------------------------------------------------------

    def kinds(self) -> tuple[Callable[[str], Ticket[Any]], ...]:
        return (
            *super().kinds(),
            *([self.select, self.keyed] * 2),
            *([self.job] * 8),
            self.requeue,
            self.cursor,
            lambda name: self.core.checkpoint(),
        )

    def head(self, name: str) -> int:
        slot = self.core.catalog.visible.get(name)
        return 1 if slot is None else slot.topic.head

    def select(self, name: str) -> Ticket[Any]:
        match = self.dice.choice((None, Match("Eq", "x"), Match("Glob", "x")))
        below = self.dice.randrange(1, self.head(name) + 2) if match is None or self.dice.random() < 0.5 else None
        return self.core.delete(name, DeleteSelector(match=match, before_seq=below))

    def keyed(self, name: str) -> Ticket[Any]:
        self.value += 1
        key = b"k%d" % self.dice.randrange(6)
        return self.core.append(name, Batch([b"%d" % self.value]), key=key, ack_fsync=self.dice.random() < 0.3)

    def put(self, name: str) -> Ticket[Any]:
        choice = self.dice.choice
        if name not in self.core.catalog.tip:
            if name not in QUEUES:
                return super().put(name)
            changes = ConfigChanges(
                type=TopicType.QUEUE,
                dead_letter=choice((None, DEAD, QUEUES[name == "q"])),
                max_deliveries=choice((0, 1, 2, 3)),
                lease_ms=choice((1_000, 60_000)),
                leases_durable=choice((False, True)),
                durability=choice(CLASSES),
            )
            return self.core.put_topic(name, changes)
        changes = choice(
            (
                ConfigChanges(cap_records=choice((0, 5, 30))),
                ConfigChanges(cap_bytes=choice((0, 100))),
                *[ConfigChanges(ttl_ms=choice((0, 100, 1_000)))] * 2,
                ConfigChanges(discard=choice(tuple(Discard))),
                ConfigChanges(lease_ms=1_000, max_deliveries=choice((0, 2, 5))),
                ConfigChanges(leases_durable=choice((False, True))),
            )
        )
        return self.core.put_topic(name, changes)

    def job(self, _: str) -> Ticket[Any]:
        choice, name, node = self.dice.choice, self.dice.choice(QUEUES + DEAD), self.dice.choice("nm")
        leased = [lease.seq for lease in self.core.queues.leases(name, 0, 100)]
        seqs = self.dice.sample(leased, min(len(leased), choice((1, 2, 4))))
        kind = self.dice.randrange(8) if seqs else 0
        if kind < 3:
            match = choice((None, None, Match("Eq", "x")))
            return self.core.queues.claim(
                name, Claim(node=node, max=choice((1, 5)), match=match), choice((0, 50))
            ).ticket
        if kind < 5:
            return self.core.queues.ack(name, Ack(node, seqs))
        if kind < 6:
            return self.core.queues.extend(name, Extend(node=node, seqs=seqs))
        nack = Nack(
            node=node,
            seqs=seqs,
            delay_ms=choice((0, 20, None)),
            dead_letter=choice((False, True)),
            delivered=choice((False, True)),
        )
        return self.core.queues.nack(name, nack)

    def requeue(self, _: str) -> Ticket[Any]:
        name = self.dice.choice(QUEUES + DEAD)
        plan = plan_requeue(
            self.core, name, DeleteSelector(before_seq=self.head(name) + 1), self.dice.choice((None, "q"))
        )
        return requeue(self.core, plan)

    def cursor(self, name: str) -> Ticket[Any]:
        if self.dice.random() < 0.2:
            return self.core.cursors.drop(name, "reader")
        return self.core.cursors.put(name, "reader", self.dice.randrange(self.head(name) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_anything_in_any_order_under_kills_clocks_and_recoveries(seed: int) -> None:
    Wider(seed).play(120)
