"""Routers, topics and kills in a random order: what a start finds is what was there, and counts add up.

The plays of `routers` know what must come of them; here nobody does. So only what holds whatever happens is asked for:
a record that was seen stays the same record until it is taken away, and then stays away; times never fall; a router
never goes back; a start finds every record, cursor and count of hops that there was; and the second reader agrees.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.slot import Slot
from engine.errors import TopicsError
from engine.limits import EngineSettings
from engine.routers.router import RouterSpec
from engine.topic.history import NotCached
from engine.types import ConfigChanges, Durability, Match
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.routers import drive, records, settle, stamped
from tests.sim.view import look
from tests.sim.world import TINY

NAMES: Final = "abcd"
CLASSES: Final = (Durability.DISK, Durability.FSYNC, Durability.MEMORY)
FILTERS: Final = (None, None, Match("Eq", "x"), Match("Glob", "x"))


class KilledError(BaseException):
    """The process ends between two changes of the disk; nobody may catch this."""


class Wild:
    """A store whose clients do anything."""

    names: str = NAMES
    pauses: tuple[float, ...] = (0.5, 3, 30)

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.settings = self.draw()
        self.disk, self.clock = FakeDisk(), ManualClock()
        self.core = Core.open(self.disk, self.clock, self.settings)
        self.seen: dict[int, dict[int, bytes]] = {}
        """By topic (its number: a name may come back), what was there at the last look."""
        self.gone: dict[int, set[int]] = {}
        self.routers: dict[int, tuple[int, int]] = {}
        self.hops: dict[tuple[int, int], int] = {}
        self.open: list[Ticket[Any]] = []
        """Commands without an answer: a kill may find them done."""
        self.value = 0
        self.steps_left = 0
        self.disk.on_step = self._step_of_the_disk

    def draw(self) -> EngineSettings:
        """What the store runs with."""
        return msgspec.structs.replace(TINY, wal_shards=self.dice.choice((1, 2, 3)))

    def _step_of_the_disk(self, _disk: FakeDisk, _what: str) -> None:
        if self.steps_left:
            self.steps_left -= 1
            if not self.steps_left:
                raise KilledError

    def slots(self) -> dict[int, Slot]:
        return {slot.topic.id: slot for slot in self.core.catalog.visible.values()}

    @staticmethod
    def hops_of(slot: Slot, seq: int) -> int:
        return 0 if slot.hops is None else slot.hops.at(seq)[0]

    def look(self) -> None:
        """Compare everything with the last look, and remember it."""
        core, there = self.core, self.slots()
        self.open = [ticket for ticket in self.open if not ticket.done]
        found: dict[int, dict[int, bytes]] = {number: {} for number in there}
        for (name, seq), line in records(core).items():
            found[core.catalog.visible[name].topic.id][seq] = line
        for number, now in found.items():
            before, gone = self.seen.get(number, {}), self.gone.setdefault(number, set())
            gone |= before.keys() - now.keys()
            assert not gone & now.keys(), "what was taken away came back"
            assert all(now[seq] == line for seq, line in before.items() if seq in now), "a record is another one"
            times = [stamped(now[seq])[0] for seq in sorted(now)]
            assert times == sorted(times)
            assert there[number].topic.at(core.now()).count == len(now)
        self.seen = found
        self.hops = {(number, seq): self.hops_of(slot, seq) for number, slot in there.items() for seq in found[number]}
        before_routers, self.routers = self.routers, {}
        for router in core.catalog.routers.by_number.values():
            if router.active and not router.gone:
                place = self.routers[router.number] = router.cursor, router.forwarded
                assert place >= before_routers.get(router.number, (0, 0)), "a router went back"
        topics = [slot.topic for slot in core.catalog.by_id.values()]
        assert core.catalog.records_live == sum(topic.count for topic in topics)
        assert core.catalog.bytes_live == sum(topic.bytes for topic in topics)

    def end(self, *, settled: bool) -> None:
        """The process is killed; `settled`: while nothing moved."""
        self.disk = self.disk.killed()
        self.clock = self.clock.restart()

    @staticmethod
    def lost_by_itself(slot: Slot, lines: list[int], lost: list[int]) -> bool:
        """Whether these records may be gone: copies that came since the last look may have taken the oldest out of a
        topic with a cap."""
        return not lost or (bool(slot.config.cap_records) and lost == lines[: len(lost)])

    def restart(self, *, settled: bool = False) -> None:
        """The process ends, and another one starts."""
        self.steps_left = 0
        self.end(settled=settled)
        tree, boot = self.disk.cached_tree(), self.disk.boot
        self.core = Core.open(self.disk, self.clock, self.settings)
        view = look(self.core, thorough=False)
        assert disagreement(tree, boot, view, self.core, self.clock, self.settings) is None
        if not self.open:
            there = self.slots()
            assert self.seen.keys() <= there.keys()
            for number, lines in self.seen.items():
                slot = there[number]
                lost = [seq for seq in sorted(lines) if slot.topic.next_live(seq) != seq]
                assert self.lost_by_itself(slot, sorted(lines), lost), "a record is lost"
                for seq in lines.keys() - set(lost):
                    assert self.hops_of(slot, seq) == self.hops[number, seq]
            assert self.routers.keys() <= self.core.catalog.routers.by_number.keys()
        self.open = []
        self.look()
        self.disk.on_step = self._step_of_the_disk

    # -- what clients do -------------------------------------------------------------------------------------------

    def write(self, name: str) -> Ticket[Any]:
        count = self.dice.choice((1, 1, 2, 3, 40))
        values = range(self.value + 1, self.value + count + 1)
        self.value += count
        tag = self.dice.choice((None, "x", "xy"))
        return self.core.append(name, Batch([b"%d" % value for value in values], tags=[tag] * count))

    def delete(self, name: str) -> Ticket[Any]:
        seqs = sorted(seq for number, slot in self.slots().items() if slot.name == name for seq in self.seen[number])
        chosen = self.dice.sample(seqs, min(len(seqs), 5)) if seqs else [1]
        return self.core.delete(name, DeleteSelector(seqs=tuple(sorted(chosen))))

    def put(self, name: str) -> Ticket[Any]:
        if name in self.core.catalog.tip:
            return self.core.put_topic(name, ConfigChanges(cap_records=self.dice.choice((0, 5, 30))))
        return self.core.put_topic(name, ConfigChanges(durability=self.dice.choice(CLASSES)))

    def router(self, name: str) -> Ticket[Any]:
        source = self.dice.choice([other for other in self.names if other != name])
        spec = RouterSpec(
            start=self.dice.choice(("now", "earliest")),
            preserve_tag=self.dice.random() < 0.7,
            filter=self.dice.choice(FILTERS),
            allow_cycle=self.dice.random() < 0.6,
        )
        return self.core.routers.put(f"{source}>{name}", source, name, spec)

    def drop_router(self, name: str) -> Ticket[Any]:
        return self.core.routers.drop(self.dice.choice(sorted(self.core.catalog.routers.by_name) or [name]))

    def kinds(self) -> tuple[Callable[[str], Ticket[Any]], ...]:
        """What they may do, as often as they do it."""
        return (
            *([self.write] * 8),
            *([self.delete, self.router, self.router, self.put] * 2),
            self.drop_router,
            self.core.drop_topic,
            lambda name: self.core.checkpoint(),
        )

    def command(self) -> None:
        try:
            self.open.append(self.dice.choice(self.kinds())(self.dice.choice(self.names)))
        except (TopicsError, NotCached):
            pass  # refused, or to be asked again once a segment is read: others come

    def play(self, commands: int) -> None:
        dice = self.dice
        for _ in range(commands):
            try:
                if dice.random() < 0.06:
                    self.steps_left = dice.randrange(1, 40)
                self.command()
                for _ in range(dice.choice((0, 1, 1, 3))):
                    drive(self.core, self.disk, self.clock, dice.choice(self.pauses), keep=dice.random() < 0.7)
                    self.look()
                if dice.random() < 0.06:
                    settle(self.core, self.disk, self.clock)
                    self.look()
                    self.restart(settled=True)
            except KilledError:
                self.restart()
        self.disk.on_step = None
        settle(self.core, self.disk, self.clock, 200)
        self.look()
        assert not self.core.forwarding.forwards.outstanding
        assert not any(router.lag and not router.blocked for router in self.core.routers.page("", 100, "")[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_F65_anything_in_any_order_under_kills(seed: int) -> None:
    Wild(seed).play(120)
