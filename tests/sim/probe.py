"""Looking at crashes: every image of a moment is recovered, compared, and on a sample taken further.

A `Prober` hangs in a world's `probe`. At each moment it enumerates what SIGKILL and a power failure can leave, drops
what it has seen (by hash of the disk), opens the store on each new image as the next process would, takes a view, and
asks the oracle. On every `deep_every`-th new image it goes on: the process that recovered is killed at once and the
second recovery must show the same; the first recovery is crashed in its middle at every change it makes (depth 2); and
clients write again after it, and what they were told then must survive yet another crash.

What it finds is raised as `Found`, with a token that leads back to the image.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core import Core
from engine.errors import StoreError
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.images import kill_points, power_cuts
from tests.sim.media import Cut, Tree, tree_hash
from tests.sim.oracle import Crash, Oracle
from tests.sim.view import View, look
from tests.sim.world import World, WrongError


class FoundError(AssertionError):
    """A crash after which the store is wrong; `token` reproduces it."""

    def __init__(self, token: str, problem: str) -> None:
        super().__init__(f"{problem}\n  replay: {token}")
        self.token = token
        self.problem = problem


@dataclass(slots=True)
class Tally:
    """What was looked at; tallies of several processes are added."""

    moments: int = 0
    images: int = 0
    """Images enumerated."""
    hashes: set[bytes] = field(default_factory=set)
    """Distinct disk states that were opened and compared."""
    thorough: int = 0
    """Of these, those that were read from every cursor."""
    compared: int = 0
    """Comparisons with the oracle (one state may be compared at several moments)."""
    read_otherwise: int = 0
    """States on which the second reader agreed with the engine."""
    reopened: int = 0
    """States recovered a second time, for idempotence."""
    written_again: int = 0
    """States on which clients wrote again, and which were crashed again."""
    nested: int = 0
    """Images of crashes inside a recovery (depth 2); they are among `hashes` too."""
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.moments += other.moments
        self.images += other.images
        self.hashes |= other.hashes
        self.compared += other.compared
        self.thorough += other.thorough
        self.read_otherwise += other.read_otherwise
        self.reopened += other.reopened
        self.written_again += other.written_again
        self.nested += other.nested
        self.kinds += other.kinds


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is looked at."""

    images_max: int = 1_000_000
    """Images of one moment; above it a seeded sample is taken."""
    moments_share: float = 1.0
    """Share of the moments that are looked at."""
    sample: int = 24
    """Free subsets a moment."""
    deep_every: int = 16
    """Each how manieth distinct image is taken further; 0: none."""
    thorough_every: int = 8
    """Each how manieth distinct image is read from every cursor; the others are read through once."""
    nested_max: int = 12
    """Images of one moment inside a recovery."""
    nested_total_max: int = 150
    """Distinct images inside one recovery."""


class Prober:
    """The `probe` of a world."""

    def __init__(
        self,
        label: str,
        effort: Effort,
        tally: Tally,
        seed: int = 0,
        only: str | None = None,
        deadline: Callable[[], bool] = lambda: False,
    ) -> None:
        self.label = label
        self.effort = effort
        self.tally = tally
        self.only = only
        """Look at this image token alone (replay)."""
        self._rng = random.Random(seed)
        self._views: dict[bytes, View] = {}
        self._moment = 0
        self._new = 0
        self._asleep = False
        self._deadline = deadline

    def __call__(self, world: World, what: str) -> None:
        """One moment."""
        if self._asleep:
            return
        self._moment += 1
        if self.only is not None:
            moment, _, image = self.only.partition("/")
            if int(moment) != self._moment:
                return
            self._visit(world, image, what)
            return
        if self._rng.random() >= self.effort.moments_share or self._deadline():
            return
        self.tally.moments += 1
        tokens = [cut.token() for cut in power_cuts(world.disk, self._rng, self.effort.sample)]
        kills = _kill_tokens(world.disk, what)
        tokens[:0] = kills[:1]
        tokens += kills[1:]
        self.tally.images += len(tokens)
        if len(tokens) > self.effort.images_max:
            first = tokens[:4]
            tokens = first + self._rng.sample(tokens[4:], self.effort.images_max - len(first))
        for token in tokens:
            self._visit(world, token, what)

    def _visit(self, world: World, token: str, what: str) -> None:
        place = f"{self.label}/{self._moment}/{token}"
        disk, tree, crash = image_of(world.disk, token)
        key = tree_hash(tree) + (b"k" + disk.boot.encode() if disk is not None else b"p")
        oracle, more = world.oracle, 0
        if world.crash is Crash.POWER:
            # The process is still recovering from a power failure: what that may have lost is not settled yet.
            crash, more = Crash.POWER, 1
        view = self._views.get(key)
        fresh = view is None
        try:
            if view is None:
                before = disk.killed() if disk is not None else self._from_tree(world, tree)
                self.tally.thorough += self._is_thorough()
                view = self._recover(world, before, thorough=self._is_thorough())
                if self._is_thorough():
                    self._read_otherwise(world, tree, before.boot, view)
                self._views[key] = view
                self.tally.hashes.add(key)
                self.tally.kinds[crash.value] += 1
            self.tally.compared += 1
            wrong = oracle.check(view, crash, more)
            if wrong:
                raise WrongError("; ".join(wrong))
            self._new += fresh
            if fresh and not more and self.effort.deep_every and self._new % self.effort.deep_every == 0:
                self._deeper(world, disk, tree, crash, place)
        except FoundError:
            raise
        except (StoreError, AssertionError, Exception) as error:
            raise FoundError(place, f"at “{what}”: {type(error).__name__}: {error}") from error

    @staticmethod
    def _from_tree(world: World, tree: Tree, boot: str = "boot-1001") -> FakeDisk:
        return FakeDisk.of_tree(tree, boot=boot, capacity=world.disk.capacity, inodes=world.disk.inodes)

    def _is_thorough(self) -> bool:
        return self._new % self.effort.thorough_every == 0

    def _recover(
        self,
        world: World,
        disk: FakeDisk,
        on_step: Callable[[FakeDisk, str], None] | None = None,
        *,
        thorough: bool = False,
    ) -> View:
        disk.on_step = on_step
        clock = world.clock.reboot() if disk.boot != world.disk.boot else world.clock.restart()
        return look(Core.open(world.wrap(disk), clock, world.settings, world.limits), thorough=thorough)

    def _read_otherwise(self, world: World, tree: Tree, boot: str, view: View) -> None:
        """The second reader finds the same in the image as the engine."""
        differs = disagreement(tree, boot, view, world.clock, world.settings)
        if differs is not None:
            raise WrongError(f"the second reader: {differs}")
        self.tally.read_otherwise += 1

    def _deeper(self, world: World, disk: FakeDisk | None, tree: Tree, crash: Crash, place: str) -> None:
        def fresh_disk() -> FakeDisk:
            return disk.killed() if disk is not None else self._from_tree(world, tree)

        self._twice(world, fresh_disk(), place)
        self._inside(world, fresh_disk(), crash, place)
        self._onward(world, fresh_disk(), crash)

    def _twice(self, world: World, disk: FakeDisk, place: str) -> None:
        """Recovery is idempotent: killed right after it, the next process sees the same."""
        view = self._recover(world, disk, thorough=True)
        again = self._recover(world, disk.killed(), thorough=True)
        self.tally.reopened += 1
        if again.topics != view.topics and not _ages(view):
            raise FoundError(place + "/twice", _difference(view, again))

    def _inside(self, world: World, disk: FakeDisk, crash: Crash, place: str) -> None:
        """A crash at every change that recovery makes; what the first crash may have lost is what may be lost."""
        oracle = world.oracle.copy()
        seen: set[bytes] = set()

        def nested(inner: FakeDisk, what: str) -> None:
            if len(seen) >= self.effort.nested_total_max:
                return
            tokens = _kill_tokens(inner, what)
            tokens += [cut.token() for cut in power_cuts(inner, self._rng, 4)]
            if len(tokens) > self.effort.nested_max:
                tokens = [*tokens[:1], *self._rng.sample(tokens[1:], self.effort.nested_max - 1)]
            for token in tokens:
                second, image, kind = image_of(inner, token)
                key = tree_hash(image) + (b"k" if second is not None else b"p")
                if key in seen:
                    continue
                seen.add(key)
                self.tally.nested += 1
                self.tally.hashes.add(key)
                kind = Crash.POWER if Crash.POWER in (kind, crash) else kind
                before = second.killed() if second is not None else self._from_tree(world, image, "boot-1002")
                try:
                    wrong = oracle.check(self._recover(world, before), kind, 1)
                except Exception as error:
                    raise FoundError(f"{place}/{token}", f"inside “{what}”: {type(error).__name__}: {error}") from error
                if wrong:
                    raise FoundError(f"{place}/{token}", f"inside “{what}”: " + "; ".join(wrong))

        self._recover(world, disk, nested)

    def _onward(self, world: World, disk: FakeDisk, crash: Crash) -> None:
        """Clients write again, and a second crash must not take what they were told."""
        after = World(
            disk,
            settings=world.settings,
            clock=_later(world, disk),
            oracle=world.oracle.copy(),
            wrap=world.wrap,
            limits=world.limits,
        )
        after.crash = crash
        disk.free(1 << 22)
        after.start()
        for name in sorted(after.oracle.lines):
            model = after.oracle.tip(name)
            if model is None:
                continue
            for key in list(model.keys)[:1]:
                first, last = model.keys[key]
                if all(seq in model.live for seq in range(first, last + 1)):
                    after.append(name, key=key, records=tuple(model.live[seq] for seq in range(first, last + 1)))
            after.append(name)
            after.append(name, ack_fsync=True)
            if len(model.live) > 1:
                after.delete(name, seqs=(next(iter(model.live)),))
        after.append("onward")
        after.check()
        self.tally.written_again += 1
        if self._rng.random() < 0.5:
            after.kill()
        else:
            cuts = list(power_cuts(after.disk, self._rng, 4))
            after.power_off(self._rng.choice(cuts))
        after.start()
        after.check()


def _later(world: World, disk: FakeDisk) -> ManualClock:
    return world.clock.reboot() if disk.boot != world.disk.boot else world.clock.restart()


def _kill_tokens(disk: FakeDisk, what: str) -> list[str]:
    """SIGKILL now; and if a write has just been done, in its middle."""
    if not what.startswith("write"):
        return ["k"]
    return ["k" if wrote is None else f"k{wrote}" for wrote in kill_points(disk)]


def image_of(disk: FakeDisk, token: str) -> tuple[FakeDisk | None, Tree, Crash]:
    """The image that a token names: a killed disk (or None: only a tree counts), the tree that reads will see."""
    if token.startswith("k"):
        killed = disk.killed(int(token[1:]) if len(token) > 1 else None)
        return killed, killed.cached_tree(), Crash.KILL
    return None, disk.tree_after(Cut.parse(token)), Crash.POWER


def _ages(view: View) -> bool:
    return any(topic.config.ttl_ms for topic in view.topics.values())


def _difference(one: View, other: View) -> str:
    """Where two views of what should be the same differ."""
    if one.topics.keys() != other.topics.keys():
        return f"recovered twice: topics {sorted(one.topics)}, then {sorted(other.topics)}"
    for name, topic in one.topics.items():
        again = other.topics[name]
        for part in ("epoch", "head", "earliest", "count", "size", "config", "damage", "records", "pages"):
            if getattr(topic, part) != getattr(again, part):
                return f"recovered twice: {name}.{part} {getattr(topic, part)}, then {getattr(again, part)}"
    return "recovered twice: different"


__all__ = ["Effort", "FoundError", "Oracle", "Prober", "Tally", "image_of"]
