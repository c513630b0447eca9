"""Looking at crashes: every image of a moment is read as a start would, compared, and on samples taken further.

A `Prober` hangs in a world's `probe`. At each moment it enumerates what SIGKILL and a power failure can leave and drops
what it has seen (by hash of the disk). Of each new image it makes a view by scan and replay on a file system that
refuses writes (`engine.core.Inspection`), and asks the oracle; images seen before are asked about again whenever the
oracle has learned something.

Every `open_every`-th new image is opened as the next process would: executed, read from every cursor, compared again,
with what was read before too, and given to the second reader. Every `deep_every`-th goes further: the process that
recovered is killed at once and the second recovery must show the same; the first recovery is crashed in its middle at
every change it makes (depth 2); and clients write again after it, and what they were told then must survive yet another
crash.

What it finds is raised as `FoundError`, with a token that leads back to the image.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core import Core, Inspection
from engine.errors import StoreError, StoreMissing
from tests.sim.agreement import disagreement
from tests.sim.clock import ManualClock
from tests.sim.cold import cold_tree
from tests.sim.disk import FakeDisk
from tests.sim.imager import Image, Imager
from tests.sim.images import kill_points, power_cuts
from tests.sim.media import Cut, Tree
from tests.sim.oracle import Crash, Judged, Oracle
from tests.sim.still import StillDisk
from tests.sim.view import Parsed, View, look
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
    """Distinct disk states that were scanned, replayed and compared."""
    opened: int = 0
    """Of these, those that were opened whole, read from every cursor and compared again."""
    compared: int = 0
    """Comparisons with the oracle (one state is compared anew when the oracle knows more)."""
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
        self.opened += other.opened
        self.compared += other.compared
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
    open_every: int = 8
    """Each how manieth distinct image is opened and read from every cursor; the others are only read through."""
    deep_every: int = 16
    """Each how manieth distinct image is taken further; 0: none."""
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
        self._imager = Imager()
        self._views: dict[bytes, View] = {}
        self._parsed: Parsed = {}
        self._judged: Judged = {}
        self._said: set[tuple[bytes, Crash, int]] = set()
        """The images that were compared with what the oracle knows now."""
        self._version: object = None
        self._moment = 0
        self._new = 0
        self._inner = 0
        self._deadline = deadline

    def __call__(self, world: World, what: str) -> None:
        """One moment."""
        self._moment += 1
        if self.only is not None:
            moment, _, token = self.only.partition("/")
            if int(moment) == self._moment:
                self._imager.look(world.disk)
                self._visit(world, image_of(self._imager, token), what)
            return
        if not world.watched or self._rng.random() >= self.effort.moments_share or self._deadline():
            return
        self.tally.moments += 1
        self._imager.look(world.disk)
        images = _images(self._imager, what, self._rng, self.effort.sample)
        self.tally.images += len(images)
        if len(images) > self.effort.images_max:
            first = images[:4]
            images = first + self._rng.sample(images[4:], self.effort.images_max - len(first))
        for image in images:
            self._visit(world, image, what)

    def _visit(self, world: World, image: Image, what: str) -> None:
        crash, more = image.crash, 0
        if world.crash is Crash.POWER:
            # The process is still recovering from a power failure: what that may have lost is not settled yet.
            crash, more = Crash.POWER, 1
        if self._version != world.oracle.version:
            self._version = world.oracle.version
            self._said.clear()
        if (image.key, crash, more) in self._said:
            return
        try:
            view = self._views.get(image.key)
            fresh = view is None
            if view is None:
                view = self._views[image.key] = self._read(world, self._imager, image)
                self.tally.kinds[crash.value] += 1
            _demand(world.oracle.check(view, crash, more, self._judged))
            self._said.add((image.key, crash, more))
            self.tally.hashes.add(image.key)
            self.tally.compared += 1
            if fresh:
                self._new += 1
                self._further(world, image, view, crash, more)
        except FoundError:
            raise
        except (StoreError, AssertionError, Exception) as error:
            raise FoundError(self._place(image), f"at “{what}”: {type(error).__name__}: {error}") from error

    def _place(self, image: Image) -> str:
        return f"{self.label}/{self._moment}/{image.token}"

    # -- one image ----------------------------------------------------------------------------------------------------

    def _read(self, world: World, imager: Imager, image: Image, boot: str = "boot-1001") -> View:
        """What a start would find: scanned and replayed, nothing written."""
        boot = imager.disk.boot if image.crash is Crash.KILL else boot
        store = StillDisk(image.tree, boot)
        try:
            found = world.begun(lambda fs: Inspection(fs, _later(world, boot), world.settings), store)
            return look(found, thorough=False, parsed=self._parsed)
        except StoreMissing:
            # What becomes of a directory in which the first start did not get to its end, only a start can say.
            return look(self._open(world, self._disk(world, imager, image, boot)), thorough=False)

    @staticmethod
    def _disk(world: World, imager: Imager, image: Image, boot: str = "boot-1001") -> FakeDisk:
        """The disk on which the next process would be started."""
        if image.cut is None:
            disk = imager.disk.killed(image.wrote)
            tree = disk.cached_tree()
        else:
            tree = imager.disk.tree_after(image.cut)
            disk = FakeDisk.of_tree(tree, boot=boot, capacity=world.disk.capacity, inodes=world.disk.inodes)
        assert tree == image.tree, "an image is not the disk that its token says"
        return disk

    def _open(
        self,
        world: World,
        disk: FakeDisk,
        on_step: Callable[[FakeDisk, str], None] | None = None,
    ) -> Core:
        """Start the engine there, as the next process would."""
        disk.on_step = on_step
        clock = _later(world, disk.boot)
        return world.begun(lambda fs: Core.open(fs, clock, world.settings, world.limits), world.wrap(disk))

    def _further(self, world: World, image: Image, view: View, crash: Crash, more: int) -> None:
        """The sample of images that are opened, and the smaller one that is taken further still."""
        effort = self.effort
        if effort.open_every and self._new % effort.open_every == 0:
            disk = self._disk(world, self._imager, image)
            boot = disk.boot
            core = self._open(world, disk)
            opened = look(core)
            _demand(world.oracle.check(opened, crash, more))
            _demand(_differences("read and opened", view, opened))
            self._read_otherwise(world, image.tree, boot, opened, core)
            self.tally.opened += 1
        if not more and effort.deep_every and self._new % effort.deep_every == 0:
            place = self._place(image)
            self._twice(world, self._disk(world, self._imager, image), place)
            self._inside(world, self._disk(world, self._imager, image), crash, place)
            self._onward(world, self._disk(world, self._imager, image), crash)

    def _read_otherwise(self, world: World, tree: Tree, boot: str, view: View, core: Core) -> None:
        """The second reader finds the same in the image as the engine."""
        differs = disagreement(tree, boot, view, core, world.clock, world.settings, cold_tree(tree))
        if differs is not None:
            raise WrongError(f"the second reader: {differs}")
        self.tally.read_otherwise += 1

    def _twice(self, world: World, disk: FakeDisk, place: str) -> None:
        """Recovery is idempotent: killed right after it, the next process sees the same."""
        view = look(self._open(world, disk))
        again = look(self._open(world, disk.killed()))
        self.tally.reopened += 1
        wrong = _differences("recovered twice", view, again)
        if wrong:
            raise FoundError(place + "/twice", wrong[0])

    def _inside(self, world: World, disk: FakeDisk, crash: Crash, place: str) -> None:
        """A crash at every change that recovery makes; what the first crash may have lost is what may be lost."""
        oracle = world.oracle.copy()
        imager = Imager()
        judged: Judged = {}
        seen: set[bytes] = set()

        def nested(inner: FakeDisk, what: str) -> None:
            if len(seen) >= self.effort.nested_total_max:
                return
            imager.look(inner)
            images = _images(imager, what, self._rng, 4)
            if len(images) > self.effort.nested_max:
                images = [*images[:1], *self._rng.sample(images[1:], self.effort.nested_max - 1)]
            for image in images:
                if image.key in seen:
                    continue
                seen.add(image.key)
                kind = Crash.POWER if Crash.POWER in (image.crash, crash) else image.crash
                try:
                    view = self._read(world, imager, image, "boot-1002")
                    _demand(oracle.check(view, kind, 1, judged))
                    self.tally.nested += 1
                    self.tally.compared += 1
                    self.tally.hashes.add(image.key)
                    self._inner += 1
                    if self.effort.open_every and self._inner % self.effort.open_every == 0:
                        opened = look(self._open(world, self._disk(world, imager, image, "boot-1002")), thorough=False)
                        _demand(oracle.check(opened, kind, 1))
                        _demand(_differences("read and opened", view, opened))
                        self.tally.opened += 1
                except Exception as error:
                    what = f"inside “{what}”: {type(error).__name__}: {error}"
                    raise FoundError(f"{place}/{image.token}", what) from error

        self._open(world, disk, nested)

    def _onward(self, world: World, disk: FakeDisk, crash: Crash) -> None:
        """Clients write again, and a second crash must not take what they were told."""
        after = World(
            disk,
            settings=world.settings,
            clock=_later(world, disk.boot),
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


def _demand(wrong: list[str]) -> None:
    if wrong:
        raise WrongError("; ".join(wrong))


def _later(world: World, boot: str) -> ManualClock:
    """The clock that the next process finds, in this boot or another one."""
    return world.clock.restart() if boot == world.disk.boot else world.clock.reboot()


def _images(imager: Imager, what: str, rng: random.Random, sample: int) -> list[Image]:
    """What may be there after SIGKILL now, then after a power failure; and last, if a write has just been done, after
    SIGKILL in its middle."""
    disk = imager.disk
    images = [imager.kill()]
    images += [imager.power(cut) for cut in power_cuts(disk, rng, sample, lambda file: imager.of(file).touched)]
    if what.startswith("write"):
        images += [imager.kill(wrote) for wrote in kill_points(disk) if wrote is not None]
    return images


def image_of(imager: Imager, token: str) -> Image:
    """The image that a token names."""
    if token.startswith("k"):
        return imager.kill(int(token[1:]) if len(token) > 1 else None)
    return imager.power(Cut.parse(token))


def _differences(when: str, one: View, other: View) -> list[str]:
    """Where two views of what should be the same differ, in what both have looked at."""
    if one.topics.keys() != other.topics.keys():
        return [f"{when}: topics {sorted(one.topics)}, then {sorted(other.topics)}"]
    if any(topic.config.ttl_ms for topic in one.topics.values()):
        return []
    for name, topic in one.topics.items():
        again = other.topics[name]
        parts = ["epoch", "head", "earliest", "next_seq", "count", "size", "config", "damage", "records"]
        if len(topic.pages) == len(again.pages):
            parts.append("pages")
        for part in parts:
            if getattr(topic, part) != getattr(again, part):
                return [f"{when}: {name}.{part} {getattr(topic, part)}, then {getattr(again, part)}"]
    return []


__all__ = ["Effort", "FoundError", "Oracle", "Prober", "Tally", "image_of"]
