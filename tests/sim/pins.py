"""Export pins: a pin is a store as of its checkpoint, whatever happens to the store that it was made in."""

from __future__ import annotations

from engine.checkpoint.pin import Below, PinJob, UnpinJob, export_dir
from engine.core import Inspection
from tests.sim.view import TopicView, look
from tests.sim.world import World

PIN = "0000000000000007"
Topics = dict[str, TopicView]


def same(one: Topics, other: Topics, why: str) -> None:
    """Both have the same topics, records and losses, as far as readers can tell."""
    assert one.keys() == other.keys(), f"{why}: topics {sorted(one)}, then {sorted(other)}"
    for name, topic in one.items():
        assert topic.problem is None, topic.problem
        for part in ("epoch", "head", "earliest", "count", "size", "config", "pages", "records", "damage"):
            was, now = getattr(topic, part), getattr(other[name], part)
            assert was == now, f"{why}: {name}.{part} {was}, then {now}"


def _pinned(world: World, names: frozenset[str] | None) -> PinJob:
    job = PinJob(PIN, world.core.store.store_id, 1, names, None)
    world.wait(world.core.keeper.aside(job))
    return job


def _check_pin(world: World, wanted: Topics) -> None:
    inspection = Inspection(Below(world.disk, export_dir(PIN)), world.clock, world.settings)
    same(wanted, dict(look(inspection).topics), "pin")
    inspection.close()


def pinned(world: World) -> None:
    """Pins while a store goes on: what they hold is what was there, and all of it goes with them."""
    world.append("t", 9, tag="red")
    world.append("u", 3)
    world.append("v", 2)
    world.checkpoint()
    world.delete("t", seqs=(2, 5))
    world.append("t", 1)
    world.checkpoint()
    whole = dict(look(world.core).topics)
    for names in (None, frozenset({"t"})):
        job = _pinned(world, names)
        manifest = job.manifest
        assert manifest is not None
        some = {name: topic for name, topic in whole.items() if names is None or name in names}
        assert {one.name for one in manifest.topics} == some.keys(), "other topics are pinned than were asked for"
        deletes = [(2, 2), (5, 5)] if names is None else [(2, 3), (5, 5)]
        assert [one.deleted for one in manifest.topics if one.name == "t"] == [deletes], "deletes not listed"
        _check_pin(world, some)
        if names is None:
            world.delete("t", seqs=(3,))
            world.drop("u")
            whole.pop("u")
            for _ in range(3):
                world.append("t", 9)
                world.checkpoint()
            _check_pin(world, some)
            world.wait(world.core.keeper.aside(UnpinJob([PIN])))
            assert not world.disk.exists(export_dir(PIN)), "a pin that was let go of is there"
            whole = dict(look(world.core).topics)
        world.append("t", 1)
    world.kill().start()
    world.wait(world.core.keeper.aside(UnpinJob()))
    assert not world.disk.list("exports"), "pins of another process are there"
    world.check()
