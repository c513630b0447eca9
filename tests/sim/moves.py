"""Plays of topics that move: two stores and a place on one disk; after each change of it everything is killed, and the
power fails. What the next processes find then is held to this, before and after the commands are given once more:

- never more than one of the two takes writes, and in the end exactly one does;
- what was acked and not deleted is there once, at its seq, as it was; what was deleted stays away, gaps stay gaps;
- the next record gets the next seq, and counters of a queue, cursors and idempotency keys go on as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from engine.checkpoint.pin import Below, UnpinJob, export_dir
from engine.commands import Batch, DeleteSelector
from engine.core import Core, Ticket
from engine.core.jobs import outcome
from engine.errors import Code, StoreError, TopicsError
from engine.formats.moving import MoveState, move_dir
from engine.fs import Fs, OpenMode
from engine.move.export import read_taken
from engine.move.place import DirectoryPlace
from engine.move.steps import Attach, Detach, Steps, Work, attach, cancel, detach
from engine.queue.commands import Ack, Claim
from engine.queue.snapshot import QueueSnapshot
from engine.topic.history import NotCached
from engine.types import ConfigChanges, Durability, TopicType
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.plays import Crashes, Play
from tests.sim.routers import drive
from tests.sim.view import look
from tests.sim.world import TINY

NAME = "t"
PLACE = "shared"
ABSENT = "absent"
READS_MAX = 20
"""Reads after which a record must have come."""


@dataclass
class Told:
    """What clients know of the topic."""

    acked: dict[int, int] = field(default_factory=dict)
    """Seq → value."""
    deleted: set[int] = field(default_factory=set)
    cursor: int = 0
    done: str = ""
    """The last command that was answered."""

    def copy(self) -> Told:
        return Told(dict(self.acked), set(self.deleted), self.cursor, self.done)


class Side:
    """One of the two stores, driven by hand."""

    def __init__(
        self,
        disk: FakeDisk,
        name: str,
        clock: ManualClock,
        shards: int = 1,
        wrap: Callable[[Fs], Fs] = lambda fs: fs,
    ) -> None:
        self.disk, self.name, self.clock, self._wrap = disk, name, clock, wrap
        self.fs: Fs = wrap(Below(disk, name))
        self.pins = 0
        self.settings = TINY if shards == 1 else msgspec.structs.replace(TINY, wal_shards=shards)
        self.core = Core.open(self.fs, clock, self.settings)
        self.core.keeper.aside(UnpinJob())

    def step(self) -> None:
        drive(self.core, self.fs, self.clock, 1)

    def wait(self, ticket: Ticket[Any]) -> Any:
        for _ in range(600):
            if ticket.done:
                if ticket.error is not None:
                    raise ticket.error
                return ticket.result
            self.step()
        raise AssertionError("an answer never comes")

    def run(self, steps: Steps, until: str = "") -> Any:
        """Go through steps, all of them here and now, or up to the work that is called so: then that work."""
        return self.go_on(steps, None, until)

    def go_on(self, steps: Steps, work: Any, until: str = "") -> Any:
        """Go on with steps that were stopped at a work."""
        error: Exception | None = None
        answer = None if work is None else work.run()
        while True:
            try:
                asked = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as done:
                return done.value
            answer, error = None, None
            if until and isinstance(asked, Work) and asked.what == until:
                return asked
            try:
                answer = asked.run() if isinstance(asked, Work) else self.wait(asked)
            except (TopicsError, StoreError, OSError) as failure:
                error = failure

    # -- commands

    def place(self) -> DirectoryPlace:
        return DirectoryPlace(self._wrap(Below(self.disk, PLACE)))

    def detach(self) -> Any:
        return self.run(self.detaching())

    def detaching(self) -> Steps:
        self.pins += 1
        asked = Detach(NAME, PLACE, "http://there", f"{self.pins:016x}", self.clock.wall_ms())
        return detach(self.core, self.place, lambda pin: Below(self.fs, export_dir(pin)), asked)

    def cancel(self) -> Any:
        return self.run(self.cancelling())

    def cancelling(self) -> Steps:
        return cancel(self.core, self.place, NAME, self.clock.wall_ms())

    def attach(self) -> Any:
        return self.run(self.attaching())

    def attaching(self) -> Steps:
        return attach(self.core, self.place, self.fs, self.clock, Attach(NAME, None, "http://here"))

    def write(self, *values: int, key: bytes | None = None) -> Any:
        return self.wait(self.core.append(NAME, Batch([b"%d" % value for value in values]), key=key, create=False))

    def state(self) -> str:
        """`here` where it takes writes, `absent`, or how far away it is."""
        slot = self.core.catalog.visible.get(NAME)
        if slot is None:
            return ABSENT
        return "here" if slot.moved is None else str(slot.moved.state)

    def queue(self) -> QueueSnapshot:
        host = self.core.catalog.visible[NAME].host
        assert host is not None
        return host.queue.snapshot()

    def held(self) -> dict[int, int]:
        """Every live record, by seq."""
        topic = self.core.catalog.visible[NAME].topic
        runs = topic.live_runs(topic.earliest_seq, topic.head)
        return {seq: self._record(seq) for first, last in list(runs) for seq in range(first, last + 1)}

    def _record(self, seq: int) -> int:
        for _ in range(READS_MAX):
            try:
                return int(json.loads(self.core.record(NAME, seq))["data"])
            except NotCached as lack:
                done = self.core.read_done(lack.job, outcome(lack.job, self.fs))
                assert done.error is None, f"record {seq} cannot be read: {done.error}"
        raise AssertionError(f"record {seq} is never there")


def refusal(call: Callable[[], Any]) -> Code | None:
    """The code that a command is refused with; None when it is done."""
    try:
        call()
    except TopicsError as error:
        return error.code
    return None


def open_sides(
    disk: FakeDisk, clock: ManualClock, shards: int, wrap: Callable[[Fs], Fs] = lambda fs: fs
) -> tuple[Side, Side]:
    for name in ("a", "b", PLACE):
        disk.mkdir(name)
    disk.fsync_dir("")
    a = Side(disk, "a", clock, shards, wrap)
    clock.tick(7)  # a store's id is made of the moment
    b = Side(disk, "b", clock, shards, wrap)
    assert a.core.store.store_id != b.core.store.store_id
    return a, b


def fill(side: Side, told: Told, durability: Durability, kind: TopicType = TopicType.LOG) -> None:
    """A topic with a history of every kind: segments, a tail, deletions in both, a gap, a cursor, a key."""
    side.wait(side.core.put_topic("other", ConfigChanges()))
    side.wait(side.core.put_topic(NAME, ConfigChanges(durability=durability, type=kind, cap_records=14)))

    def write(*values: int, key: bytes | None = None) -> None:
        first = side.write(*values, key=key).first_seq
        told.acked.update({first + index: value for index, value in enumerate(values)})

    write(1, 2, 3, 4, 5, 6)
    side.wait(side.core.checkpoint())
    write(*range(7, 17))
    for seq in (1, 2):
        del told.acked[seq]  # by the cap
    told.deleted.update((5, 9))
    side.wait(side.core.delete(NAME, DeleteSelector(seqs=(5, 9))))
    side.wait(side.core.checkpoint())
    told.deleted.update((4, 12))
    side.wait(side.core.delete(NAME, DeleteSelector(seqs=(4, 12))))
    write(17, 18, key=b"k")
    for seq in told.deleted:
        told.acked.pop(seq, None)
    if kind is TopicType.LOG:
        side.wait(side.core.cursors.put(NAME, "reader", 11))
        told.cursor = 11


def check_held(side: Side, told: Told, *, exact: bool = True) -> None:
    found = side.held()
    wrong = {seq: value for seq, value in told.acked.items() if found.get(seq) != value}
    assert not wrong, f"{side.name} does not hold {wrong}"
    back = told.deleted & found.keys()
    assert not back, f"{side.name} holds what was deleted: {sorted(back)}"
    if exact:
        assert found.keys() == told.acked.keys(), f"{side.name} holds {sorted(found)}"


def owners(a: Side, b: Side) -> list[str]:
    return [side.name for side in (a, b) if side.state() == "here"]


def started(disk: FakeDisk, name: str, clock: ManualClock, shards: int) -> Side:
    """The next process of a store, which finds what the second reader finds."""
    whole, boot = disk.cached_tree(), disk.boot
    side = Side(disk, name, clock, shards)
    tree = {path.removeprefix(f"{name}/"): content for path, content in whole.items() if path.startswith(f"{name}/")}
    differs = disagreement(tree, boot, look(side.core, thorough=False), side.core, clock, side.settings)
    assert differs is None, f"the second reader of {name}: {differs}"
    return side


def both_started(disk: FakeDisk, shards: int) -> tuple[Side, Side]:
    """The next processes of both stores, a minute later."""
    clock = ManualClock()
    clock.tick(60_000)
    return started(disk, "a", clock, shards), started(disk, "b", clock, shards)


def check_one(disk: FakeDisk, told: Told, power: bool, shards: int, *, surely: bool) -> None:
    """What the next two processes find, and what becomes of it when the commands are given again."""
    a, b = both_started(disk, shards)
    if a.state() == ABSENT and b.state() == ABSENT:
        assert not told.acked, "the topic is gone"
        return
    assert len(owners(a, b)) <= 1, "two stores take writes"
    before = {side.name: side.state() for side in (a, b)}
    if before["b"] == "here":
        check_held(b, told, exact=not power or surely)
    if told.done == "attach":
        assert before == {"a": before["a"], "b": "here"}, f"it was attached, and is {before}"
    if told.done == "cancel":
        assert before["a"] == "here", f"it was taken back, and is {before}"
        check_held(a, told)
        return
    if told.done == "detach":
        assert before["a"] in (MoveState.OFFERED, MoveState.TAKEN), f"it was detached, and is {before}"
    # The operator says it all again.
    if b.state() != "here":
        assert refusal(a.detach) in (None, Code.TOPIC_MOVED)
        assert a.state() != "here", "a detached topic takes writes"
        if told.done != "cancel":
            b.attach()
    else:
        assert b.attach().created is False
        a.detach() if a.state() == "offered" else None
    assert owners(a, b) == ["b"], f"in the end {owners(a, b)} take writes"
    check_held(b, told, exact=not power or surely)
    go_on(a, b, told, shards)


def go_on(a: Side, b: Side, told: Told, shards: int) -> None:
    """The new owner goes on where the old one was, also after a restart; the old one refuses."""
    head = b.core.catalog.visible[NAME].topic.head
    assert head == a.core.catalog.visible[NAME].topic.head, "seqs went on elsewhere than at the head"
    again = b.write(17, 18, key=b"k") if told.acked.get(18) == 18 and told.acked.get(17) == 17 else None
    assert again is None or (again.deduped, again.first_seq) == (True, 17), "a known key was forgotten"
    assert b.write(99).first_seq == head + 1, "the next seq is another one"
    assert refusal(lambda: a.write(1)) is Code.TOPIC_MOVED, "the old owner takes a write"
    held, floor = b.held(), b.core.catalog.visible[NAME].topic.floor.ranges()
    b.wait(b.core.checkpoint())
    b.wait(b.core.checkpoint())
    once = started(b.disk.killed(), "b", b.clock, shards)
    assert once.held() == held, f"a restart finds {sorted(once.held())}, there were {sorted(held)}"
    assert once.core.catalog.visible[NAME].topic.floor.ranges() == floor, "a gap is another one"
    if told.cursor:
        assert once.core.cursors.get(NAME, "reader").seq == told.cursor, "a cursor is elsewhere"


def _moves(durability: Durability) -> Callable[[int, Crashes[Told]], None]:
    def run(shards: int, crashes: Crashes[Told]) -> None:
        disk, told = FakeDisk(), Told()
        a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
        fill(a, told, durability)
        a.wait(a.core.checkpoint())
        crashes.watch(disk, lambda: told)
        a.detach()
        told.done = "detach"
        b.attach()
        told.done = "attach"
        b.wait(b.core.checkpoint())
        disk.on_step = None
        crashes.check(lambda image, known, power: check_one(image, known, power, shards, surely=True))
        a.detach() if a.state() == "offered" else None
        go_on(a, b, told, shards)

    return run


def _comes_back(shards: int, crashes: Crashes[Told]) -> None:
    """Taken back, and offered again."""
    disk, told = FakeDisk(), Told()
    a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
    fill(a, told, Durability.FSYNC)
    a.wait(a.core.checkpoint())
    a.detach()
    crashes.watch(disk, lambda: told)
    a.cancel()
    told.done = "cancel"
    a.wait(a.core.checkpoint())
    assert refusal(b.attach) is Code.TOPIC_MOVED, "what was taken back is attached"
    disk.on_step = None
    crashes.check(partial(check_back, shards))
    told.acked[19] = 19
    assert a.write(19).first_seq == 19
    a.detach()
    b.attach()
    check_held(b, told)


def check_back(shards: int, disk: FakeDisk, told: Told, power: bool) -> None:
    """Whoever is faster now, the other one does not have it."""
    a, b = both_started(disk, shards)
    assert told.done != "cancel" or a.state() == "here", "what was taken back is not here"
    assert refusal(b.attach) in (None, Code.TOPIC_MOVED)
    assert refusal(a.cancel) in (None, Code.TOPIC_MOVED)
    assert len(owners(a, b)) == 1, f"{owners(a, b)} take writes"
    check_held(a if a.state() == "here" else b, told)


def _there_and_back(shards: int, crashes: Crashes[Told]) -> None:
    """To the other store and home again, with records of both; then dropped, and not to be had again."""
    disk, told = FakeDisk(), Told()
    a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
    fill(a, told, Durability.FSYNC)
    a.detach()
    b.attach()
    a.detach()  # it sees that b has it
    told.acked[19], told.acked[20] = 19, 20
    b.write(19, 20)
    b.detach()
    a.wait(a.core.put_topic("more", ConfigChanges()))
    shard_of = a.core.catalog.shard_of
    away, home = a.core.catalog.visible[NAME].shard, shard_of(a.core.catalog.last_id + 1)
    assert shards == 1 or home < away, "what ends here and what begins are to lie in two shards, synced in this order"
    crashes.watch(disk, lambda: told)
    a.attach()
    told.done = "attach"
    a.wait(a.core.checkpoint())
    disk.on_step = None

    def check(image: FakeDisk, known: Told, power: bool) -> None:
        home, away = both_started(image, shards)
        assert away.state() in ("offered", "taken")
        assert known.done != "attach" or home.state() == "here"
        home.attach()
        check_held(home, known)
        home.wait(home.core.drop_topic(NAME))
        home.wait(home.core.checkpoint())
        home.wait(home.core.checkpoint())
        later = started(home.disk.killed(), "a", home.clock, shards)
        assert refusal(later.attach) is Code.TOPIC_EXISTS_INCOMPATIBLE, "what was dropped is attached again"

    crashes.check(check)


def _queue(shards: int, crashes: Crashes[Told]) -> None:
    """A queue with jobs that are ready, leased and acked."""
    disk, told = FakeDisk(), Told()
    a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
    fill(a, told, Durability.FSYNC, TopicType.QUEUE)
    leased = a.wait(a.core.queues.claim(NAME, Claim(node="w", max=4), 0).ticket).leased
    jobs = [seq for seq, _ in leased.jobs]
    acked = jobs[:2]
    a.wait(a.core.queues.ack(NAME, Ack("w", acked)))
    for seq in acked:
        del told.acked[seq]
        told.deleted.add(seq)
    counters = a.queue()
    crashes.watch(disk, lambda: told)
    a.detach()
    told.done = "detach"
    b.attach()
    told.done = "attach"
    disk.on_step = None
    there = b.queue()
    for name in ("live", "acked", "dead_lettered", "deleted", "evicted", "lost"):
        assert getattr(there, name) == getattr(counters, name), f"{name} is another number"
    assert [job.deliveries for job in there.jobs if job.seq in jobs[2:]] == [1, 1]
    crashes.check(lambda image, known, power: check_one(image, known, power, shards, surely=True))


def _race(shards: int, crashes: Crashes[Told]) -> None:
    """Two at the same moment, of whom each has seen that nobody has the topic: one gets it."""
    for first, second in (("attach", "cancel"), ("cancel", "attach"), ("attach", "attach")):
        disk, told = FakeDisk(), Told()
        a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
        fill(a, told, Durability.FSYNC)
        a.detach()
        other = b
        if first == second:
            disk.mkdir("c")
            b.clock.tick(7)
            other = Side(disk, "c", b.clock, shards, crashes.wrap)
        slow = a.cancelling() if first == "cancel" else b.attaching()
        work = (a if first == "cancel" else b).run(slow, "take back" if first == "cancel" else "take")
        winner = a if second == "cancel" else other
        winner.cancel() if second == "cancel" else winner.attach()
        loser = a if first == "cancel" else b
        told_no = refusal(partial(loser.go_on, slow, work))
        assert told_no is Code.TOPIC_MOVED, f"{second} and {first} both have it"
        sides = {id(side): side for side in (a, b, other)}.values()
        assert [side for side in sides if side.state() == "here"] == [winner]
        check_held(winner, told)


def _busy(shards: int, crashes: Crashes[Told]) -> None:
    """Writes are on their way when the topic is sealed: what was acked moves along, what comes later is refused."""
    disk, told = FakeDisk(), Told()
    a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
    fill(a, told, Durability.FSYNC)
    flying = a.core.append(NAME, Batch([b"19"]), create=False)
    steps = a.detaching()
    work = a.run(steps, "look")
    assert refusal(lambda: a.core.append(NAME, Batch([b"20"]))) is Code.TOPIC_MOVING
    assert refusal(lambda: a.core.drop_topic(NAME)) is Code.TOPIC_MOVING
    a.go_on(steps, work)
    assert flying.value().first_seq == 19
    told.acked[19] = 19
    b.attach()
    check_held(b, told)


def _given_up(shards: int, crashes: Crashes[Told]) -> None:
    """A place that fails leaves the topic where it was; a copy there that is damaged is not taken."""
    disk, told = FakeDisk(), Told()
    a, b = open_sides(disk, ManualClock(), shards, crashes.wrap)
    fill(a, told, Durability.DISK)
    steps = a.detaching()
    a.run(steps, "export")
    try:
        steps.throw(OSError("the place is gone"))
    except OSError:
        pass
    assert a.state() == "here", "a topic that could not be exported takes no writes"
    told.acked[19] = 19
    a.write(19)
    move = a.detach()
    base = f"{PLACE}/{move_dir(NAME, move.token)}"
    victim = next(path for path in walk(disk, base) if path.endswith(".data"))
    handle = disk.open(victim, OpenMode.WRITE)
    byte = disk.pread(handle, 1, 200)
    disk.pwritev(handle, [bytes([byte[0] ^ 1])], 200)
    try:
        b.attach()
        raise AssertionError("a damaged export is attached")
    except StoreError:
        pass
    assert (b.state(), read_taken(b.place(), NAME, move.token)) == (ABSENT, None)
    assert not any("/seg-" in path for path in walk(disk, "b")), "a copy that was given up stays"
    disk.pwritev(handle, [byte], 200)
    b.attach()
    check_held(b, told)


def walk(disk: FakeDisk, base: str) -> list[str]:
    """Every file below a directory."""
    return [path for path, content in disk.cached_tree().items() if content is not None and path.startswith(base + "/")]


PLAYS: tuple[Play, ...] = (
    Play("move-fsync", _moves(Durability.FSYNC), (1, 3), takes_wrap=True),
    Play("move-disk", _moves(Durability.DISK), (1, 3), takes_wrap=True),
    Play("move-cancel", _comes_back, (1, 3), takes_wrap=True),
    Play("move-back", _there_and_back, (1, 3), takes_wrap=True),
    Play("move-queue", _queue, (1, 3), takes_wrap=True),
    Play("move-race", _race, (1, 3), takes_wrap=True),
    Play("move-busy", _busy, (1, 3), takes_wrap=True),
    Play("move-given-up", _given_up, (1, 3), takes_wrap=True),
)
