"""Plays of routers: after each change of the disk the process is killed, and the power fails; what a start finds then
is held against what clients saw and what the second reader finds, then it goes on until every router is idle, and is
held against the sources.

Nothing is copied twice, nothing is skipped, what was seen in a dest stays the same record at the same seq and time,
and times never fall. Of `disk` topics a power failure may take the last moments; even then nothing is there twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.jobs import outcome
from engine.core.keeper import SLICE_NS, Phase
from engine.fs import Fs
from engine.routers.router import RouterSpec
from engine.topic.history import NotCached
from engine.types import ConfigChanges, Discard, Durability, Match
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.plays import Crashes, Play
from tests.sim.view import look
from tests.sim.world import TINY

Seen = dict[tuple[str, int], bytes]
SLICES_MAX = 10_000
"""Slices of routers in a row; more is a loop."""


@dataclass
class Told:
    """What clients know: records that they were shown, and what they took away."""

    seen: Seen = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    """Values that were deleted, or may have been."""
    deleted: set[tuple[str, int]] = field(default_factory=set)
    """The same of single records: what else holds the value goes on holding it."""
    acked: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    """Numbers of routers whose drop was answered."""

    def copy(self) -> Told:
        return Told(dict(self.seen), set(self.gone), set(self.deleted), set(self.acked), set(self.dropped))


class Net:
    """A store with topics and routers between them."""

    def __init__(self, disk: FakeDisk, clock: ManualClock, settings: Any, durability: Durability) -> None:
        self.disk, self.clock, self.settings, self.durability = disk, clock, settings, durability
        self.told = Told()
        self.value = 0
        self.core = Core.open(disk, clock, settings)

    def step(self, ms: float = 0.5) -> None:
        drive(self.core, self.disk, self.clock, ms, self.look)
        self.look()

    def turn(self) -> None:
        """Everything goes on for a while but checkpoints."""
        for _ in range(4):
            drive(self.core, self.disk, self.clock, 5, self.look, keep=False)
            self.look()

    def look(self) -> None:
        """A reader sees everything there is; what is in memory alone is nothing to rely on."""
        self.told.seen.update({key: line for key, line in records(self.core).items() if key[0] != "m"})

    def wait(self, ticket: Ticket[Any]) -> Any:
        for _ in range(400):
            if ticket.done:
                return ticket.value()
            self.step()
        raise AssertionError("an answer never comes")

    def restart(self, how: str) -> None:
        look, self.disk.on_step = self.disk.on_step, None
        if how == "stop":
            self.core.close()
        self.disk = self.disk.killed()
        self.disk.on_step = look
        self.clock = self.clock.restart()
        self.core = Core.open(self.disk, self.clock, self.settings)

    # -- what clients do

    def topics(self, *names: str, **config: Any) -> None:
        for name in names:
            self.wait(self.core.put_topic(name, ConfigChanges(durability=self.durability, **config)))

    def router(self, source: str, dest: str, *, earliest: bool = True, **spec: Any) -> None:
        self.wait(
            self.core.routers.put(
                f"{source}>{dest}", source, dest, RouterSpec(start="earliest" if earliest else "now", **spec)
            )
        )

    def drop(self, name: str) -> None:
        number = self.core.catalog.routers.by_name[name].number
        self.wait(self.core.routers.drop(name))
        self.told.dropped.add(number)

    def write(self, topic: str, count: int = 1, *, tag: str | None = None) -> None:
        values = list(range(self.value + 1, self.value + count + 1))
        self.value += count
        tags: list[str | None] | None = None if tag is None else [tag] * count
        self.wait(self.core.append(topic, Batch([b"%d" % value for value in values], tags=tags)))
        self.told.acked.update(values)

    def delete(self, topic: str, *values: int) -> None:
        self.told.gone.update(values)
        seqs = tuple(seq for (name, seq), line in records(self.core).items() if name == topic and data(line) in values)
        self.wait(self.core.delete(topic, DeleteSelector(seqs=seqs)))

    def idle(self, steps: int = 60) -> None:
        settle(self.core, self.disk, self.clock, steps)
        self.look()


def drive(
    core: Core,
    disk: Fs,
    clock: ManualClock,
    ms: float = 0.5,
    look: Callable[[], None] | None = None,
    *,
    keep: bool = True,
) -> None:
    """One round; `look` is called when what needs no sync is visible. `keep`: with the work of a checkpoint."""
    clock.tick(ms)
    core.advance()
    core.turn()
    for _ in range(SLICES_MAX):
        if not core.route():
            break
    else:
        raise AssertionError("routers never come to rest")
    if look is not None:
        look()
    for slot, job in list(core.forwarding.lacking.items()):
        core.read_done(job, outcome(job, disk))
        core.forwarding.again(slot, None)
    while (sync := core.sync_job()) is not None:
        core.sync_done(sync, outcome(sync, disk))
    while (chore := core.chore()) is not None:
        core.chore_done(chore, outcome(chore, disk))
    while keep and core.keep_step():
        pass
    if keep and (work := core.keep_job()) is not None:
        core.keep_done(work, outcome(work, disk))
    core.fresh.clear()


def settle(core: Core, disk: FakeDisk, clock: ManualClock, steps: int = 60) -> None:
    """Go on until nothing moves any more."""
    for _ in range(steps):
        drive(core, disk, clock, 25)
        moving = any(one.lag and one.blocked != "topic_full" for one in core.routers.page("", 100, "")[0])
        if not (core.busy or core.keeper.active or moving):
            return


def records(core: Core) -> Seen:
    """Every live record of every topic."""
    found: Seen = {}
    for name, slot in core.catalog.visible.items():
        topic = slot.topic
        for first, last in topic.live_runs(topic.at(core.now()).earliest_seq, topic.head):
            for seq in range(first, last + 1):
                while True:
                    try:
                        found[name, seq] = core.record(name, seq)
                        break
                    except NotCached as lack:
                        core.read_done(lack.job, outcome(lack.job, core.fs))
    return found


@lru_cache(1 << 16)
def stamped(line: bytes) -> tuple[int, int]:
    """Time and value of a record. The same records are looked at after each change of the disk."""
    record = json.loads(line)
    return record["$ts"], record["data"]


def data(line: bytes) -> int:
    return stamped(line)[1]


def values(found: Seen, topic: str) -> list[int]:
    """What the records of a topic hold, by seq."""
    return [data(line) for (name, _), line in sorted(found.items()) if name == topic]


def check_order(found: Seen, told: Told, sources: dict[str, str]) -> None:
    """Times never fall, no value is there twice, and copies keep the order of their source."""
    for topic in {name for name, _ in found}:
        lines = [stamped(line) for (name, _), line in sorted(found.items()) if name == topic]
        times = [ts for ts, _ in lines]
        assert times == sorted(times), f"times of {topic} fall"
        held = [value for _, value in lines]
        assert len(set(held)) == len(held), f"{topic} holds a record twice: {held}"
    for dest, source in sources.items():
        place = {value: index for index, value in enumerate(values(found, source))}
        order = [place[value] for value in values(found, dest) if value in place]
        assert order == sorted(order), f"copies of {source} in {dest} are out of order"


def check_seen(found: Seen, told: Told) -> None:
    """What was seen is there unchanged, or was taken away."""
    for key, line in told.seen.items():
        if key in found:
            assert found[key] == line, "a record that was seen is another one"
        else:
            assert key in told.deleted or data(line) in told.gone, f"{key} was seen and is gone"


Scenario = Callable[[Net], dict[str, str]]
"""Plays, and says which topic has its copies from where; what it may lose it puts into `told.gone`."""


def chain(net: Net) -> dict[str, str]:
    """a → b → c, with writes and a delete in between, a checkpoint, and a kill."""
    net.topics("a", "b", "c")
    net.router("a", "b")
    net.router("b", "c")
    net.write("a", 3)
    net.write("b", 2)
    net.step()
    net.write("a", 2)
    net.delete("a", 2)
    net.wait(net.core.checkpoint())
    net.write("a", 70)
    net.write("c")
    net.restart("kill")
    net.write("b")
    net.write("a", 2)
    net.wait(net.core.checkpoint())
    net.wait(net.core.checkpoint())
    net.write("a", 2)
    return {"b": "a", "c": "b"}


def cycle(net: Net) -> dict[str, str]:
    """a → b → c → a: each record goes round once."""
    net.topics("a", "b", "c")
    net.router("a", "b")
    net.router("b", "c")
    net.router("c", "a", allow_cycle=True)
    net.write("a", 2)
    net.write("b", 2)
    net.step()
    net.write("c", 2)
    net.wait(net.core.checkpoint())
    net.write("a", 2)
    net.restart("kill")
    net.write("c", 2)
    net.write("b", 2)
    net.wait(net.core.checkpoint())
    net.write("b", 2)
    return {}


def fan_out(net: Net) -> dict[str, str]:
    """One source, several dests: with a filter, one that is dropped and made again, one in memory alone."""
    net.topics("a", "b", "c")
    net.wait(net.core.put_topic("m", ConfigChanges(durability=Durability.EPHEMERAL)))
    net.write("a", 2, tag="x")
    net.router("a", "b")
    net.router("a", "c", filter=Match("Eq", "x"), preserve_tag=False, preserve_node=False)
    net.router("a", "m")
    net.write("a", 2)
    net.write("a", 2, tag="x")
    net.wait(net.core.checkpoint())
    net.drop("a>b")
    net.write("a", 2)
    net.router("a", "b", earliest=False)
    net.write("a", 2, tag="x")
    net.restart("kill")
    net.write("a", 2, tag="x")
    return {"b": "a", "c": "a"}


def blocked(net: Net) -> dict[str, str]:
    """A dest that is full makes its router wait, and what is freed is used."""
    net.topics("a")
    net.topics("b", cap_records=3, discard=Discard.REJECT)
    net.router("a", "b")
    net.write("a", 5)
    net.step()
    net.step()
    assert net.core.routers.get("a>b").blocked == "topic_full"
    net.delete("b", 1, 2)
    net.told.gone.update((1, 2))
    net.step(30)
    net.restart("kill")
    net.write("a", 1)
    net.step(30)
    net.delete("b", 3)
    net.step(30)
    net.wait(net.core.checkpoint())
    net.delete("b", 4, 5)
    net.step(30)
    net.idle()
    return {"b": "a"}


def trim(net: Net) -> dict[str, str]:
    """A source that lets go of records before its router has come to them: as many are a gap in the dest."""
    net.topics("a", cap_records=4)
    net.topics("b", cap_records=6, discard=Discard.REJECT)
    net.told.gone.update(range(1, 100))
    net.router("a", "b")
    net.write("a", 3)
    net.step()
    net.write("a", 9)
    net.step(30)
    net.delete("b", 1, 2, 3)
    net.step(30)
    net.wait(net.core.checkpoint())
    net.write("a", 5)
    net.restart("kill")
    net.delete("b", 9, 10)
    net.step(30)
    net.write("a", 3)
    return {"b": "a"}


def ring(net: Net) -> dict[str, str]:
    """a → b → c → a, where a lets go of records before they are copied: such a loss goes round once, as records do."""
    net.topics("a", cap_records=4)
    net.topics("b", "c")
    net.told.gone.update(range(1, 100))
    net.router("a", "b")
    net.router("b", "c")
    net.router("c", "a", allow_cycle=True)
    net.write("a", 9)
    net.wait(net.core.checkpoint())
    net.write("a", 9)
    net.restart("kill")
    net.write("a", 2)
    return {"b": "a", "c": "b"}


def sealed(net: Net) -> dict[str, str]:
    """A router that begins with history which lies in segments, while its source loses some of it."""
    net.topics("a", "b")
    for _ in range(8):
        net.write("a", 10)
    net.wait(net.core.checkpoint())
    net.wait(net.core.checkpoint())
    net.delete("a", *range(11, 21))
    net.router("a", "b")
    net.step()
    net.write("a", 2)
    net.wait(net.core.checkpoint())
    net.restart("kill")
    net.write("a", 2)
    return {"b": "a"}


def taken_down(net: Net) -> dict[str, str]:
    """While a checkpoint has taken the dest down and not the source yet, records are copied, and go from the source."""
    net.topics("d", "s")
    net.router("s", "d")
    for round_ in range(3):
        net.write("s", 4)
        net.idle()
        done = net.core.checkpoint()
        for _ in range(8):
            with net.clock.working(SLICE_NS):
                net.core.keep_step()
            if net.core.keeper.phase is Phase.TAKE:
                break
            net.turn()
        else:
            raise AssertionError("no slice ends between the two topics")
        net.value += 1
        appended = net.core.append("s", Batch([b"%d" % net.value]))
        net.turn()
        assert appended.done
        net.told.acked.add(net.value)
        seq = net.core.state("s").head_seq
        assert values(records(net.core), "d")[-1] == net.value, "it was not copied meanwhile"
        net.told.deleted.add(("s", seq))
        deleted = net.core.delete("s", DeleteSelector(seqs=(seq,)))
        net.turn()
        assert deleted.done
        assert net.core.keeper.phase is Phase.TAKE, "the source was taken down too early"
        net.wait(done)
        if round_ == 1:
            net.restart("kill")
    return {"d": "s"}


def late(net: Net) -> dict[str, str]:
    """Copies that come after younger writes of their dest get the time of these."""
    net.topics("a", "b")
    net.router("a", "b", earliest=False)
    for _ in range(3):
        net.core.forwarding.forwards.held = True
        net.write("a", 2)
        net.step(20)
        net.write("b")
        net.core.forwarding.forwards.held = False
        net.step(5)
        net.write("a")
    net.restart("kill")
    net.write("a")
    return {"b": "a"}


def changed(net: Net) -> dict[str, str]:
    """A router gets another definition, and records are copied while that is not on disk yet."""
    net.topics("a", "b")
    net.router("a", "b")
    for keeps in (False, True, False):
        net.write("a", 2, tag="x")
        net.step()
        spec = RouterSpec(start="earliest", preserve_tag=keeps, preserve_node=keeps)
        put = net.core.routers.put("a>b", "a", "b", spec)
        net.write("a", tag="x")
        net.wait(put)
        net.write("a", tag="x")
        net.step()
    net.wait(net.core.checkpoint())
    net.write("a", tag="x")
    net.restart("kill")
    net.write("a", tag="x")
    return {"b": "a"}


SCENARIOS: dict[str, Scenario] = {
    "chain": chain,
    "cycle": cycle,
    "fan-out": fan_out,
    "blocked": blocked,
    "trim": trim,
    "ring": ring,
    "sealed": sealed,
    "taken-down": taken_down,
    "late": late,
    "changed": changed,
}


def check_idle(found: Seen, told: Told, name: str, core: Core, *, exact: bool = True) -> None:
    """Once the routers have nothing to do: everything is where it belongs."""
    if name == "cycle" and not exact:
        return
    if name == "cycle":
        for topic in ("a", "b", "c"):
            assert set(values(found, topic)) >= told.acked, f"{topic} lacks {told.acked - set(values(found, topic))}"
        return
    if name == "ring" and exact and len(core.routers.page("", 100, "")[0]) == 3:
        heads = [core.catalog.visible[topic].topic.head for topic in ("a", "b", "c")]
        assert heads == [heads[0]] * 3, "what a was given is in b and c as well, as a copy or a part of a gap, and once"
    for router in core.routers.page("", 100, "")[0]:
        assert not router.lag or router.blocked, router
        source = {seq: line for (topic, seq), line in found.items() if topic == router.source}
        if router.dest == "m" or (name, router.dest) == ("fan-out", "b"):
            continue
        if router.spec.filter is not None:
            source = {seq: line for seq, line in source.items() if json.loads(line).get("$tag") == "x"}
            assert len(source) >= len(values(found, router.dest)), "only what passes is copied"
        wanted = {data(line) for seq, line in source.items() if seq <= router.cursor}
        lacks = wanted - set(values(found, router.dest)) - (told.gone if name in ("blocked", "trim", "ring") else set())
        assert not lacks, f"{router.dest} lacks {sorted(lacks)}"
        if name == "trim" and exact:
            head = core.catalog.visible[router.dest].topic.head
            assert head == router.cursor, "a seq of the source is a copy or a part of a gap"


def check(image: FakeDisk, net: Net, told: Told, name: str, sources: dict[str, str], *, power: bool) -> None:
    """What a start finds, and what becomes of it, against what clients saw and what lies in the sources."""
    clock = net.clock.reboot() if power else net.clock.restart()
    tree, boot = image.cached_tree(), image.boot
    core = Core.open(image, clock, net.settings)
    differs = disagreement(tree, boot, look(core, thorough=False), core, clock, net.settings)
    assert differs is None, f"the second reader: {differs}"
    found = records(core)
    assert not told.dropped & set(core.catalog.routers.by_number), "what was dropped is gone"
    told.deleted |= net.told.deleted  # a deletion that was on its way may be there
    told.gone |= net.told.gone
    exact = not power or net.durability is Durability.FSYNC
    if exact:
        check_seen(found, told)
    check_order(found, told, sources)
    settle(core, image, clock)
    found = records(core)
    if exact:
        check_seen(found, told)
    check_order(found, told, sources)
    check_idle(found, told, name, core, exact=exact)
    again = Core.open(image.killed(), clock.restart(), net.settings)
    assert {key: line for key, line in records(again).items() if key[0] != "m"} == {
        key: line for key, line in found.items() if key[0] != "m"
    }
    states = [(one.router, one.cursor, one.forwarded_total) for one in core.routers.page("", 100, "")[0]]
    assert states == [(one.router, one.cursor, one.forwarded_total) for one in again.routers.page("", 100, "")[0]]


def _play(name: str, durability: Durability) -> Callable[[int, Crashes[Told]], None]:
    def run(shards: int, crashes: Crashes[Told]) -> None:
        disk, clock = FakeDisk(), ManualClock()
        net = Net(disk, clock, TINY if shards == 1 else msgspec.structs.replace(TINY, wal_shards=shards), durability)
        crashes.watch(disk, lambda: net.told)
        sources = SCENARIOS[name](net)
        net.disk.on_step = None
        net.idle()
        check_seen(records(net.core), net.told)
        check_order(records(net.core), net.told, sources)
        check_idle(records(net.core), net.told, name, net.core)
        crashes.check(lambda image, told, power: check(image, net, told, name, sources, power=power))

    return run


PLAYS = tuple(
    Play(f"router-{name}-{durability.value}", _play(name, durability), (1, 3))
    for name in SCENARIOS
    for durability in (Durability.DISK, Durability.FSYNC)
)
