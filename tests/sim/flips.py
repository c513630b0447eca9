"""Bits that flip and files that go, on a quiet disk: nothing less may come out in silence.

The store that is damaged here has several topics of all classes, deletes, caps, a dropped name and rotated files; all
of it is synced. Another one has snapshots, segments and tails files too, of which not the log is damaged. Every third
byte of every file gets a bit flipped (which bit follows from the place), of small ones each byte; every file is
removed, and cut at as many places, log files at every page. After each the store is opened, and what comes out
must be one of three: the full state; a refusal; or exactly the documented loss: the damaged ranges are named in the
topic's state, readers meet them as tombstones, and everything else is as it was, deleted and evicted records gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from engine.core import Core, Inspection
from engine.core.reads import Reads
from engine.errors import StoreError, StoreMissing
from engine.limits import EngineSettings, OnCorruption
from engine.types import ConfigChanges, Match
from tests.sim.disk import FakeDisk
from tests.sim.media import PAGE, SECTOR, Tree
from tests.sim.model import Model
from tests.sim.oracle import Line, check_topic
from tests.sim.scenarios_history import SMALL
from tests.sim.still import StillDisk
from tests.sim.view import Parsed, TopicView, View, look
from tests.sim.world import TINY, World

STRIDE = 3
SMALL_BYTES = 256
"""Up to which size a file is damaged at each byte."""
HISTORY = msgspec.structs.replace(SMALL, segment_max_events=4)
"""The settings of a store with snapshots, segments and tails files."""
START_EVERY = 16
"""Each how manieth damage the engine is also started on."""


@dataclass(slots=True)
class FlipReport:
    """What came out."""

    tried: int = 0
    full: int = 0
    gap: int = 0
    refused: int = 0
    silent: list[str] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)
    files_removed: int = 0
    files_cut: int = 0
    started: int = 0
    """Those that the engine was started on; the others were only read."""

    @property
    def trouble(self) -> list[str]:
        """What is not as it must be."""
        return self.silent + self.false_alarms

    def add(self, other: FlipReport) -> None:
        """Add another report to this one."""
        self.tried += other.tried
        self.full += other.full
        self.gap += other.gap
        self.refused += other.refused
        self.silent += other.silent
        self.false_alarms += other.false_alarms
        self.files_removed += other.files_removed
        self.files_cut += other.files_cut
        self.started += other.started


def quiet_world(*, stop: bool, busy: bool = False, settings: EngineSettings = TINY) -> World:
    """A store with something of everything, all synced; stopped in good order, or killed when quiet.

    `busy`: killed right after two last writes, which nothing in the log proves to be on disk. With the settings of
    `HISTORY` two checkpoints were made of it, and there is log behind both.
    """
    world = World(settings=settings).start()
    world.append("plain", 3, tag="a", node="n")
    world.append("plain", 2, size=200, meta=b'{"k":"v"}')
    world.put("synced", durability="fsync")
    world.append("synced", 2, key="key")
    world.append("capped", 4, config=msgspec.convert({"cap_records": 3}, ConfigChanges))
    world.append("capped", 2)
    world.delete("plain", seqs=(2,))
    world.delete("plain", match=Match("Eq", "a"))
    world.append("plain", 2)
    world.append("gone", 1)
    world.drop("gone")
    world.put("memory", durability="memory")
    for _ in range(3):
        world.append("memory", 3, size=800)
    world.put("plain", cap_records=50)
    if settings is HISTORY:
        world.append("plain", 8, tag="red")
        world.checkpoint()
        world.delete("plain", seqs=(9, 11))
        world.append("memory", 1)
        world.checkpoint()
        world.append("plain", 2)
    world.settle()
    world.append("synced", 1)
    world.append("plain", 1)
    world.settle()
    if busy:
        world.append("synced", 1)
        world.append("plain", 2)
    if stop:
        world.stop()
    else:
        world.kill()
    return world


class Sweep:
    """Damages of one quiet store."""

    def __init__(self, *, stop: bool, power: bool = False, busy: bool = False, settings: EngineSettings = TINY) -> None:
        self.world = quiet_world(stop=stop, busy=busy, settings=settings)
        self.busy = busy
        """Only the log is damaged then: without LOCK the start rightly takes it for a power failure."""
        self.zero_all = not power
        """Whether zeroed sectors must be noticed in the last block too; a power failure may have taken that one."""
        self.tree: Tree = self.world.disk.cached_tree()
        self.boot = "boot-9" if power else self.world.disk.boot
        self.settings = settings
        self.label = f"{'stopped' if stop else 'killed'}{'+power' if power else ''}{' busy' if busy else ''}"
        self.label += " history" if settings is HISTORY else ""
        self.report = FlipReport()
        self._opened = 0
        self._parsed: Parsed = {}
        self._judged: dict[int, str | None] = {}
        """What is wrong with a topic's view, by the view, which `_parsed` keeps."""
        self.models: dict[str, Model | None] = {
            name: line.model(len(line.steps)) for name, line in self.world.oracle.lines.items()
        }
        if self._open(self.tree, "undamaged") != "full":
            self.report.false_alarms.append(f"{self.label}: undamaged")

    def logs(self) -> list[str]:
        """The log files."""
        return [path for path in self.tree if path.endswith(".log")]

    def zeroable(self, path: str) -> int:
        """Up to where something proves that a log file's bytes were on disk."""
        used = {name: len((self.tree[name] or b"").rstrip(b"\0")) for name in self.logs()}
        last = max(name for name in used if used[name] > PAGE)
        if self.zero_all or path < last:
            return len(self.tree[path] or b"")
        return (used[path] - 1) // PAGE * PAGE if path == last else 0

    def flip(self, path: str, place: int) -> str:
        """Flip one bit of one byte."""
        content = bytearray(self.tree[path] or b"")
        content[place] ^= 1 << (place // STRIDE % 8)
        return self._try({**self.tree, path: bytes(content)}, f"{path}:{place}")

    def zero(self, path: str, place: int, length: int) -> str:
        """Zero a sector or a page."""
        content = bytearray(self.tree[path] or b"")
        content[place : place + length] = bytes(len(content[place : place + length]))
        return self._try({**self.tree, path: bytes(content)}, f"{path}:{place} zeroed {length}")

    def remove(self, path: str) -> str:
        """Remove a file."""
        self.report.files_removed += 1
        return self._try({name: content for name, content in self.tree.items() if name != path}, f"{path} removed")

    def cut(self, path: str, length: int) -> str:
        """Cut a file short."""
        self.report.files_cut += 1
        return self._try({**self.tree, path: (self.tree[path] or b"")[:length]}, f"{path} cut at {length}")

    def _try(self, tree: Tree, what: str) -> str:
        self.report.tried += 1
        outcome = self._open(tree, what)
        if outcome == "full":
            self.report.full += 1
        elif outcome == "gap":
            self.report.gap += 1
        elif outcome == "refused":
            self.report.refused += 1
        return outcome

    def _open(self, tree: Tree, what: str) -> str:
        """What a start makes of a damaged tree: read always, and started on a sample, which must agree."""
        self._opened += 1
        try:
            inspection = Inspection(StillDisk(tree, self.boot), self.world.clock.restart(), self.settings)
            outcome = self._outcome(inspection, what)
        except StoreMissing:
            return self._start(tree, what)
        except StoreError:
            outcome = "refused"
        if self._opened % START_EVERY == 0 and outcome != "silent":
            started = self._start(tree, what)
            if started not in (outcome, "silent"):
                self.report.silent.append(f"{self.label} {what}: {outcome} when read, {started} when started")
        return outcome

    def _start(self, tree: Tree, what: str) -> str:
        """Start the engine on it."""
        self.report.started += 1
        disk = FakeDisk.of_tree(tree, boot=self.boot)
        try:
            core = Core.open(disk, self.world.clock.restart(), self.settings)
        except StoreError as error:
            if disk.step and self.report.tried and disk.cached_tree() != tree:
                self.report.silent.append(f"{self.label} {what}: refused, but had changed something ({error})")
            return "refused"
        return self._outcome(core, what)

    def _outcome(self, store: Reads, what: str) -> str:
        try:
            if self.settings is HISTORY:
                look(store, thorough=False)  # what is wrong with a segment shows when it is read
            view = look(store, thorough=False, parsed=self._parsed)
            wrong = self._judge(view)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong is None:
            return "gap" if any(topic.damage for topic in view.topics.values()) else "full"
        self.report.silent.append(f"{self.label} {what}: {wrong}")
        return "silent"

    def _judge(self, view: View) -> str | None:
        """Whether a view is the full state less what it says is damaged."""
        for name in view.topics.keys() | self.models.keys():
            model, seen = self.models.get(name), view.topics.get(name)
            if model is None or seen is None:
                if (model is None) != (seen is None):
                    return f"{name} is {'missing' if seen is None else 'back'}"
                continue
            known = self._judged.get(id(seen), "")
            if known == "" or model.config.ttl_ms:
                known = self._judged[id(seen)] = _judge_topic(self.world.oracle.lines[name], model, seen, view.now)
            if known is not None:
                return known
        return None


def _judge_topic(line: Line, model: Model, seen: TopicView, now: int) -> str | None:
    model = model.copy()
    model.expire(now)
    if seen.config != model.config:
        return f"{line.name}: config {seen.config}, not {model.config}"
    if seen.epoch != line.epochs[model.incarnation]:
        return f"{line.name}: epoch {seen.epoch}"
    for first, last in seen.damage:
        for seq in range(first, last + 1):
            model.live.pop(seq, None)
        model.lost = [entry for entry in model.lost if not (first <= entry[0] and entry[1] <= last)]
        model.lost.append((first, last, "corruption"))
    return check_topic(model, seen, line)


def places(sweep: Sweep, stride: int = STRIDE) -> Iterator[tuple[Callable[..., str], tuple[object, ...]]]:
    """Every damage of a sweep, as (method, arguments)."""
    for path, content in sorted(sweep.tree.items()):
        if content is None or (sweep.busy and not path.endswith(".log")):
            continue
        if sweep.settings is HISTORY and not path.startswith(("topics/", "meta/")):
            continue
        step = 1 if len(content) < SMALL_BYTES else stride
        for place in range(0, len(content), step):
            yield sweep.flip, (path, place)
        for size in (SECTOR, PAGE) if path.endswith(".log") and not sweep.busy else ():
            for place in range(0, sweep.zeroable(path), size):
                if any(content[place : place + size]):
                    yield sweep.zero, (path, place, size)
        yield sweep.remove, (path,)
        lengths = range(0, len(content), PAGE if path.endswith(".log") else step)
        for length in lengths:
            yield sweep.cut, (path, length)


ENDS = (
    (True, False, False, 1, TINY),
    (False, False, False, 1, TINY),
    (False, True, False, 3, TINY),
    (False, False, True, 3, TINY),
    (True, False, False, 1, HISTORY),
    (False, True, False, 3, HISTORY),
)
"""How the store ended: stopped in good order; killed when quiet; that, and then a power failure; killed right after two
writes. The number thins the flips out: a third of the places where it is 3. The last two have closed history."""


def run_flips(
    part: int,
    parts: int,
    stride: int = STRIDE,
    deadline: Callable[[], bool] = lambda: False,
    *,
    first_only: bool = False,
    only: str = "",
) -> FlipReport:
    """A share of all damages, for each way in which a quiet store may have ended, and under `refuse`.

    With `first_only` the first thing that is not as it must be is enough, and places are tried in any order; `only`:
    the store that ended so.
    """
    total = FlipReport()
    for stop, power, busy, thinning, settings in ENDS:
        sweep = Sweep(stop=stop, power=power, busy=busy, settings=settings)
        if only not in ("", sweep.label):
            continue
        order = list(enumerate(places(sweep, stride)))
        if first_only:
            random.Random(part).shuffle(order)
        for index, (damage, arguments) in order:
            # Other damages are few: the hunt for planted bugs tries all of them.
            if index % (parts * thinning) == part if damage.__name__ == "flip" else index % parts == part or first_only:
                damage(*arguments)
            if deadline() or (first_only and sweep.report.trouble):
                break
        total.add(sweep.report)
        if first_only and total.trouble:
            return total
    if only:
        return total
    strict = msgspec.structs.replace(TINY, on_corruption=OnCorruption.REFUSE)
    sweep = Sweep(stop=True, settings=strict)
    for path in sweep.logs():
        for place in range(part * stride, len(sweep.tree[path] or b""), stride * parts * 16):
            if sweep.flip(path, place) == "gap":
                sweep.report.silent.append(f"refuse: {path}:{place} was served with a gap")
    total.add(sweep.report)
    return total
