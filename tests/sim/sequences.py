"""Small operations, all sequences of which up to a length are scenarios too."""

from __future__ import annotations

import msgspec

from engine.types import ConfigChanges
from tests.sim.scenarios import Scenario, Script, changes
from tests.sim.scenarios_history import SMALL
from tests.sim.world import World

SEALING = msgspec.structs.replace(SMALL, segment_max_events=2)
"""What a sequence begins with is enough for a segment, so that a checkpoint in it makes every kind of file."""


def _settle_quiet(world: World) -> None:
    world.settle()


def _put_if_absent(world: World) -> None:
    world.put("t", durability="fsync")


def _delete_first(world: World, *, wait: bool = True) -> None:
    model = world.oracle.tip("t")
    if model is not None and model.live:
        world.delete("t", seqs=(next(iter(model.live)),), wait=wait)


def _ignore(_: object) -> None:
    return None


def _fsync() -> ConfigChanges:
    return changes(durability="fsync")


def _group(world: World) -> None:
    """Two writes in one group, and one more while it is under way."""
    world.append("t", 2, wait=False)
    world.append("u", 1, wait=False)
    world.step()
    world.append("t", 1)


def _keyed(world: World) -> None:
    """A keyed write; the second time it is met it is a retry."""
    model = world.oracle.tip("t")
    if model is not None and "k" in model.keys:
        first, last = model.keys["k"]
        if all(seq in model.live for seq in range(first, last + 1)):
            world.append("t", key="k", records=tuple(model.live[seq] for seq in range(first, last + 1)))
            return
    if model is None or "k" not in model.keys:
        world.append("t", 2, key="k")


def _meanwhile(world: World) -> None:
    """A checkpoint, and a write and a delete in between the calls of its jobs."""
    if world.oracle.tip("t") is None:
        world.append("t")
    world.between = [lambda: world.append("t", wait=False), world.step, lambda: _delete_first(world, wait=False)]
    world.checkpoint()
    world.between = []


ALPHABET: dict[str, Script] = {
    "append": lambda world: _ignore(world.append("t")),
    "group": _group,
    "synced": lambda world: _ignore(world.append("t", ack_fsync=True)),
    "fsync": lambda world: _ignore(world.append("f", config=_fsync())),
    "large": lambda world: _ignore(world.append("t", 6, size=1500)),
    "retry": _keyed,
    "delete": _delete_first,
    "cap": lambda world: world.put("t", cap_records=2),
    "class": _put_if_absent,
    "drop": lambda world: world.drop("t"),
    "quiet": _settle_quiet,
    "checkpoint": lambda world: world.checkpoint(),
    "meanwhile": _meanwhile,
    "stop": lambda world: _ignore(world.stop().start()),
    "kill": lambda world: _ignore(world.kill().start()),
    "power": lambda world: _ignore(world.power_off().start()),
}


def sequence(names: tuple[str, ...]) -> Scenario:
    """The scenario that is these letters in a row, with a topic to start from.

    Crashes are looked at from the last letter on: what comes before is the sequence without it, a scenario itself.
    """

    def run(world: World) -> None:
        world.watched = len(names) < 2
        world.append("t", 2)
        for index, name in enumerate(names, 1):
            world.watched = world.watched or index == len(names)
            ALPHABET[name](world)

    return Scenario("+".join(names), run, SEALING)
