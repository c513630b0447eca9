"""Starts that begin from a snapshot find what a start from the whole log would."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from engine.commands import Batch, DeleteSelector
from engine.core import Core
from engine.core.reads import until_read
from engine.errors import TopicsError
from engine.formats.snapshot import TopicImage
from engine.limits import KIB, EngineSettings
from engine.topic.image import dump
from engine.types import ConfigChanges, Durability, Match
from tests.core.hand import Hand
from tests.sim.disk import FakeDisk
from tests.sim.view import TopicView, look
from tests.store.checkpoint import checkpoint

pytestmark = pytest.mark.slow


def without_snapshots(disk: FakeDisk) -> FakeDisk:
    """The same disk with its log alone."""
    kept = {
        path: content
        for path, content in disk.cached_tree().items()
        if not path.startswith(("meta/snap", "meta/tails", "topics/"))
    }
    return FakeDisk.of_tree(kept, boot=disk.boot)


def started(hand: Hand, disk: FakeDisk) -> Core:
    """A start on the disk."""
    return hand.reopen(disk).core


def images_of(core: Core) -> dict[str, TopicImage]:
    """All that the topics are, but for where their records lie."""
    return {name: dump(slot.topic, 0, 0) for name, slot in core.catalog.visible.items()}


def test_a_start_from_a_snapshot_is_one_from_the_log() -> None:
    hand = Hand()
    hand.create("a", cap_records=5)
    hand.create("b", ttl_ms=1000)
    hand.create("idle")
    for number in range(8):
        hand.write("a", number)
        hand.write("b", number, "x")
    hand.write("idle", 1)
    hand.take(hand.core.delete("b", DeleteSelector(seqs=(3, 4, 9))))
    checkpoint(hand.core, hand.disk, 1, sync=hand.sync)
    hand.write("a", "more")
    hand.write("new", 1)
    hand.take(hand.core.delete("b", DeleteSelector(seqs=(5,))))
    hand.take(hand.core.drop_topic("idle"))
    disk = hand.disk.killed()
    again = started(hand, disk)
    assert again.store.snapshot is not None
    assert again.store.snapshot.number == 1
    fresh = started(hand, without_snapshots(hand.disk.killed()))
    assert fresh.store.snapshot is None
    assert look(again).topics == look(fresh).topics
    assert images_of(again) == images_of(fresh)


SEEDS = 60
CLASSES = ["disk", "disk", "memory", "fsync", "ephemeral"]


class Life:
    """Random commands, never waited for."""

    def __init__(self, seed: int, shards: int, reshards: bool = False) -> None:
        self.rng = random.Random(seed)
        self.reshards = reshards
        settings = EngineSettings(
            wal_shards=shards,
            wal_file_bytes=64 * KIB,
            wal_fill_bytes=16 * KIB,
            wal_reserve_bytes=8 * KIB,
            disk_reserve_bytes=64 * KIB,
            cache_bytes=self.rng.choice([20 * KIB, 1024 * KIB]),
        )
        self.hand = Hand(settings=settings)
        self.ephemeral: set[str] = set()
        """Topics that were ephemeral at some time."""

    def step(self) -> None:
        rng, hand, core = self.rng, self.hand, self.hand.core
        name = rng.choice("abcde")
        try:
            match rng.randrange(16):
                case 0 | 1 | 2 | 3 | 4:
                    values = [f"{rng.random()}" * rng.choice([1, 1, 20]) for _ in range(rng.randrange(1, 6))]
                    tags = [rng.choice([None, "t", "u"]) for _ in values] if rng.random() < 0.4 else None
                    key = b"%d" % rng.randrange(20) if rng.random() < 0.3 else None
                    core.append(name, Batch.of(values, tags=tags), key=key, ack_fsync=rng.random() < 0.2)
                case 5:
                    config = self.config()
                    core.put_topic(name, config)
                    if config.durability is Durability.EPHEMERAL:
                        self.ephemeral.add(name)
                case 6 if rng.random() < 0.4:
                    core.drop_topic(name)
                case 7:
                    seqs = tuple(rng.randrange(1, 60) for _ in range(4))
                    match = rng.choice([None, None, Match("Eq", "t")])
                    self.delete(name, DeleteSelector(seqs=seqs if match is None else None, match=match))
                case 8:
                    self.delete(name, DeleteSelector(before_seq=rng.randrange(1, 30)))
                case 9 | 10:
                    hand.turn()
                case 11:
                    hand.sync()
                case 12:
                    hand.chores()
                case 13:
                    hand.pass_ms(rng.choice([1, 20, 400]))
                case 14:
                    hand.quieten()
                case _:
                    hand.settle()
        except TopicsError:
            pass

    def delete(self, name: str, selector: DeleteSelector) -> None:
        """With what it has to read, if there is something."""
        core = self.hand.core
        until_read(core, lambda: core.delete(name, selector), lambda _: self.hand.settle())

    def config(self) -> ConfigChanges:
        rng = self.rng
        return ConfigChanges(
            durability=Durability(rng.choice(CLASSES)),
            cap_records=rng.choice([0, 0, 3, 12]),
            cap_bytes=rng.choice([0, 0, 200]),
            ttl_ms=rng.choice([0, 0, 300]),
            auto_create=rng.choice([True, True, False]),
            idempotency_window_ms=rng.choice([100, 100_000]),
        )

    def restart(self) -> None:
        """A kill, and a start from what it left, perhaps with another number of shards."""
        if self.reshards:
            shards = self.rng.choice([1, 2, 3, 4])
            self.hand.settings = msgspec.structs.replace(self.hand.settings, wal_shards=shards)
        disk = self.hand.disk.killed()
        self.hand = self.hand.reopen(disk)

    def checkpoint(self, number: int) -> None:
        """At this moment, whatever is staged or in flight."""
        checkpoint(self.hand.core, self.hand.disk, number, own_files=self.rng.random() < 0.5, sync=self.hand.settle)


def comparable(view: TopicView) -> Any:
    """All of a topic that a start from a snapshot must show as one from the log does; of ephemeral records the reasons
    for their loss may differ."""
    return (view.epoch, view.head, view.config, view.count, view.size, view.records, view.problem, view.damage)


@pytest.mark.parametrize(("shards", "reshards"), [(1, False), (3, False), (2, True)])
def test_random_lives(shards: int, reshards: bool) -> None:
    for seed in range(SEEDS):
        life = Life(seed, shards, reshards)
        for _ in range(life.rng.randrange(60)):
            life.step()
        life.checkpoint(1)
        for _ in range(life.rng.randrange(30)):
            life.step()
        for number in range(2, 2 + life.rng.randrange(4)):
            if life.rng.random() < 0.6:
                life.restart()
                for _ in range(life.rng.randrange(25)):
                    life.step()
            life.checkpoint(number)
            for _ in range(life.rng.randrange(20)):
                life.step()
        mine = started(life.hand, life.hand.disk.killed())
        theirs = started(life.hand, without_snapshots(life.hand.disk.killed()))
        assert mine.store.snapshot is not None
        assert mine.catalog.closed_names == theirs.catalog.closed_names
        assert mine.catalog.last_id == theirs.catalog.last_id
        assert mine.catalog.last_epoch == theirs.catalog.last_epoch
        views, wanted = look(mine).topics, look(theirs).topics
        assert views.keys() == wanted.keys(), seed
        for name, view in views.items():
            assert comparable(view) == comparable(wanted[name]), (seed, name)
        images, others = images_of(mine), images_of(theirs)
        for name in images.keys() - life.ephemeral:
            assert images[name] == others[name], (seed, name)
