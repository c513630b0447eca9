"""Situations with checkpoints in them: sealing, tails files, snapshots, trimming, and whatever happens meanwhile.

Segments of eight records, so that every kind of file and each step between them occurs within a few operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import msgspec

import engine.core.keeper as keeper_module
import engine.core.sealing as sealing_module
from engine.errors import Unavailable
from engine.types import ConfigChanges, Match
from tests.sim.media import Cut
from tests.sim.world import TINY, World

SMALL = msgspec.structs.replace(
    TINY, segment_max_events=8, segment_age_ms=0, checkpoint_ms=1 << 40, stop_checkpoint_bytes=1 << 40
)
"""Checkpoints only when they are asked for."""
TWO_SMALL = msgspec.structs.replace(SMALL, wal_shards=2)
GROWING = msgspec.structs.replace(SMALL, wal_file_bytes=64 * 1024, wal_small_bytes=16 * 1024)
"""Log files that grow, and are small again."""
UNHURRIED = msgspec.structs.replace(SMALL, sync_interval_ms=1000)
"""No sync that nobody waits for."""
STOPPING = msgspec.structs.replace(SMALL, stop_checkpoint_bytes=0)


def seal(world: World) -> None:
    """Full stretches become segments, the rest a piece; then both are read, and the log goes on."""
    world.put("t", durability="disk")
    for _ in range(5):
        world.append("t", 4)
    world.checkpoint()
    world.check()
    world.append("t", 3, tag="red", node="n")
    world.checkpoint()
    world.check()
    world.append("t")


def tails(world: World) -> None:
    """A few records in several topics, one of which changes: pieces of older files are kept."""
    for name in ("a", "b", "c"):
        world.append(name, 3)
    world.checkpoint()
    world.append("b", 2)
    world.checkpoint()
    world.append("c", 1, ack_fsync=True)
    world.delete("a", seqs=(2,))
    world.checkpoint()
    world.kill().start()
    world.check()


def pending(world: World) -> None:
    """Writes of a synced class that are decided, and written, and not on the disk when topics are taken down."""
    world.append("f", 2, config=_changes(durability="fsync"))
    world.append("g", 1, config=_changes(durability="fsync"))
    world.settle()
    for _ in range(2):
        world.append("f", 1, wait=False, key=f"k{world.core.wal.tick}")
        world.step()
        ticket = world.core.checkpoint()
        world.append("f", 1, wait=False)
        world.delete("g", seqs=(1,), wait=False)
        world.put("f", cap_records=3, wait=False)
        world.step()
        world.append("g", 1, wait=False)
        world.wait(ticket)
        world.settle()
        world.check()
    world.kill().start()
    world.check()


def trim(world: World) -> None:
    """Several log files, of which two snapshots make most superfluous."""
    world.put("t", durability="disk")
    for _ in range(4):
        world.append("t", 4, size=900)
        world.append("t", 4, size=900)
        world.settle()
        world.checkpoint()
        world.settle()
    world.check()


def settles(world: World) -> None:
    """The log grows into larger files, and a checkpoint goes on in a small one, twice; so the large ones go."""
    world.put("t", durability="disk")
    for _ in range(14):
        world.append("t", 4, size=1000)
        world.settle()
    assert world.core.wal.shards[0].next is not None, "there is a large file, and one more prepared"
    world.append("f", 1, config=_changes(durability="fsync"), wait=False)
    world.checkpoint()
    world.append("t", 1)
    world.checkpoint()
    world.settle()
    assert world.core.wal.shards[0].files[0].size == 16 * 1024, "the large files are gone"
    world.check()
    for _ in range(6):
        world.append("t", 4, size=1000)
    world.settle()
    world.check()


def resumes(world: World) -> None:
    """The next file is made shorter and goes into use, with writes before the snapshot is there and after; then the one
    behind it does, and power fails."""
    world.put("t", durability="disk")
    for _ in range(14):
        world.append("t", 4, size=1000)
        world.settle()
    ticket = world.core.checkpoint()
    world.between = [*(partial(world.append, "t", 1, size=1000, wait=False), world.step)] * 3
    for _ in range(4):
        world.step()
    for _ in range(8):
        world.append("t", 4, size=1000, wait=False)
        world.step()
    world.wait(ticket)
    world.settle()
    world.power_off(Cut(0)).start()
    world.append("t", 4, size=1000)
    world.check()


def meanwhile(world: World) -> None:
    """Writes, deletes, a drop and a new topic while a checkpoint is under way."""
    world.put("t", durability="disk")
    world.put("f", durability="fsync")
    world.append("t", 9)
    world.append("f", 3)
    world.append("gone", 2)
    ticket = world.core.checkpoint()
    world.append("t", 2, wait=False)
    world.step()
    world.append("f", 1, wait=False)
    world.delete("t", seqs=(2,), wait=False)
    world.step()
    world.drop("gone", wait=False)
    world.append("new", 1, wait=False)
    world.wait(ticket)
    world.append("t", 1)
    world.settle()
    world.check()


def deletes(world: World) -> None:
    """Sealed records are deleted, by seq, tag and bound; the snapshots name what was."""
    world.append("t", 4, tag="red")
    world.append("t", 4, tag="blue")
    world.append("t", 4)
    world.checkpoint()
    world.delete("t", seqs=(2, 6))
    world.check()
    world.checkpoint()
    world.delete("t", match=Match("Eq", "blue"))
    world.checkpoint()
    world.delete("t", before_seq=5)
    world.check()
    world.checkpoint()
    world.check()
    world.delete("t", before_seq=13)
    world.checkpoint()
    world.checkpoint()
    world.check()


def rewrites(world: World) -> None:
    """Segments that are mostly dead are written again, and the old files go when neither snapshot names them."""
    world.put("t", durability="disk")
    for _ in range(3):
        world.append("t", 4, tag="red")
        world.append("t", 4)
        world.checkpoint()
    world.delete("t", seqs=(1, 2, 3, 4, 5, 7, *range(9, 15), 18))
    world.checkpoint()
    world.check()
    world.delete("t", seqs=(16, *range(19, 24)))
    world.checkpoint()
    world.append("t")
    world.checkpoint()
    world.check()


def caps(world: World) -> None:
    """A capped topic whose front lies in segments."""
    world.put("t", durability="disk", cap_records=12)
    for _ in range(4):
        world.append("t", 5)
        world.checkpoint()
        world.check()


def ages(world: World) -> None:
    """Records that grow too old, sealed or not."""
    world.put("t", durability="disk", ttl_ms=400)
    world.append("t", 8)
    world.checkpoint()
    world.clock.tick(300)
    world.append("t", 3)
    world.checkpoint()
    world.clock.tick(200)
    world.step()
    world.check()
    world.append("t")
    world.checkpoint()
    world.check()


def retries(world: World) -> None:
    """Keys outlive the log that they came from."""
    first = world.append("t", 2, key="k1")
    world.checkpoint()
    world.append("t", 1)
    world.checkpoint()
    world.append("t", records=first, key="k1")
    world.check()


def ephemeral(world: World) -> None:
    """What is in memory alone is in no snapshot; its seqs are."""
    world.put("e", durability="ephemeral")
    world.append("e", 3)
    world.append("d", 2)
    world.checkpoint()
    world.append("e", 1)
    world.checkpoint()
    world.check()


def gaps(world: World) -> None:
    """A power failure's gap goes into the snapshots."""
    world.append("t", 3)
    world.settle()
    world.append("t", 2)
    world.power_off(Cut(0))
    world.start()
    world.append("t", 2)
    world.checkpoint()
    world.append("t", 1)
    world.checkpoint()
    world.check()


def lives(world: World) -> None:
    """Starts from a snapshot, again and again."""
    world.append("t", 9)
    world.checkpoint()
    world.append("t", 2)
    world.kill().start()
    world.append("t", 2)
    world.checkpoint()
    world.delete("t", seqs=(3,))
    world.power_off(Cut(0)).start()
    world.append("t", 1)
    world.checkpoint()
    world.stop().start()
    world.append("t", 1)
    world.check()


def stops(world: World) -> None:
    """A stop in good order makes a checkpoint."""
    world.append("t", 9)
    world.append("u", 1, ack_fsync=True)
    world.stop().start()
    world.append("t", 1)
    world.delete("u", seqs=(1,))
    world.stop().start()
    world.check()


def shards(world: World) -> None:
    """Two shards, each with its own cut."""
    for name in ("a", "b", "c", "d"):
        world.append(name, 3)
    world.checkpoint()
    world.append("a", 2)
    world.append("b", 6)
    world.checkpoint()
    world.append("c", 1, ack_fsync=True)
    world.check()


def drops(world: World) -> None:
    """Topics with segments are dropped, made again and sealed again."""
    world.append("t", 9)
    world.checkpoint()
    world.drop("t")
    world.append("t", 8)
    world.checkpoint()
    world.drop("t")
    world.checkpoint()
    world.checkpoint()
    world.check()
    world.append("newest", 1)
    world.drop("newest")
    world.checkpoint()
    world.kill().start()
    world.append("t", 1)
    world.check()


def islands(world: World) -> None:
    """A few records before a wide hole, and what comes after it is sealed."""
    world.append("t", 2)
    world.settle()
    world.append("t", 1)
    world.power_off(Cut(0)).start()
    world.append("t", 8)
    world.append("e", 2)
    world.put("e", durability="ephemeral")
    world.append("e", 2)
    world.put("e", durability="disk")
    world.append("e", 8)
    world.checkpoint()
    world.check()
    world.append("t", 1)
    world.checkpoint()
    world.kill().start()
    world.check()


def between(world: World) -> None:
    """Everything that clients do, in between the calls of a checkpoint's jobs."""
    world.put("t", durability="disk")
    world.append("t", 9, tag="red")
    world.append("f", 3, config=_changes(durability="fsync"))
    world.append("gone", 9)
    world.append("capped", 9, config=_changes(durability="disk", cap_records=10))
    world.between = [
        *(lambda: world.append("t", 2, wait=False), world.step),
        *(lambda: world.delete("t", seqs=(2, 3), wait=False), world.step),
        *(lambda: world.append("capped", 4, wait=False), world.step),
        *(lambda: world.append("f", 1, wait=False, key="k"), world.step, world.step),
        *(lambda: world.delete("t", match=Match("Eq", "red"), wait=False), world.step),
        *(lambda: world.drop("gone", wait=False), world.step, world.step),
        *(lambda: world.append("gone", 1, wait=False), world.step, world.step),
        *(lambda: world.put("t", cap_records=3, wait=False), world.step, world.step),
        *(lambda: world.append("new", 8, wait=False), world.step),
    ]
    world.checkpoint()
    world.settle()
    world.check()
    world.kill().start()
    world.check()
    world.append("t", 8)
    world.between = [*((lambda: world.append("t", 1, wait=False)), world.step)] * 8
    world.checkpoint()
    world.settle()
    world.check()


def slices(world: World) -> None:
    """Everything that clients do, in between the slices of a checkpoint, each of which takes one topic."""
    names = ("a", "b", "c", "d", "e")
    for name in names:
        world.append(name, 4)
    world.append("big", 9)
    world.checkpoint()
    for name in names:
        world.append(name, 3)
    world.append("big", 9)
    world.delete("big", seqs=(3,))
    busy: list[Callable[[], object]] = [
        *(partial(world.append, name, 1, wait=False) for name in names),
        *(partial(world.delete, name, seqs=(2, 6), wait=False) for name in names),
        lambda: world.delete("big", seqs=(4, 12), wait=False),
        lambda: world.put("a", cap_records=2, wait=False),
        lambda: world.drop("b", wait=False),
        lambda: world.drop("e", wait=False),
        lambda: world.append("e", 1, wait=False),
        lambda: world.append("new", 2, wait=False),
    ]
    with _small_slices(world):
        ticket = world.core.checkpoint()
        for number in range(200):
            if ticket.done:
                break
            if number % 2 and number // 2 < len(busy):
                busy[number // 2]()
            world.step()
        assert ticket.done, "so many slices do not make a checkpoint"
    world.settle()
    world.check()
    world.checkpoint()
    world.kill().start()
    world.check()


@contextmanager
def _small_slices(world: World) -> Iterator[None]:
    before, world.sliced = world.sliced, True
    try:
        with mock.patch.object(keeper_module, "SWITCHED_AT_ONCE", 1):
            yield
    finally:
        world.sliced = before


def _until(world: World, phase: keeper_module.Phase) -> None:
    """Hardly any time passes until a checkpoint is so far."""
    while world.core.keeper.phase is not phase:
        world.step(0.01)


def unsynced(world: World) -> None:
    """Power fails as soon as a snapshot holds the newest writes; what clients write then stands where these stood."""
    world.sliced = True
    for count in (4, 3):
        for name in ("t", "between", "u"):
            world.append(name, 1, ack_fsync=True)
        world.core.checkpoint()
        _until(world, keeper_module.Phase.TAKE)
        world.append("u", count, size=2000, wait=False)  # it is taken down last
        _until(world, keeper_module.Phase.SWITCH)
        world.power_off(Cut(0)).start()
        world.append("t", 1)
        world.append("u", 1)
        world.kill().start()
        world.check()


def full(world: World) -> None:
    """The disk is full when a checkpoint begins: nothing comes of it but an alarm, and writes go on."""
    world.append("t", 9)
    world.checkpoint()
    before = world.disk.capacity
    for turn, count in enumerate((3, 9)):
        world.append("t", count)
        world.delete("t", seqs=(2 + turn,))
        world.watched = False  # a start needs room for a file of the log
        world.disk.capacity = before - world.disk.space().bytes_free + 6 * 1024
        ticket = world.core.checkpoint()
        world.wait(ticket)
        assert ticket.error is not None, "a checkpoint without room was made"
        world.check()
        world.append("t", 1)
        world.disk.capacity = before
        world.watched = True
        world.clock.tick(10_000)
        world.step()
        world.checkpoint()
        assert world.core.keeper.problem is None, "the alarm outlives its reason"
        world.kill().start()
        world.check()


def resharded(world: World) -> None:
    """The number of shards changes: a checkpoint comes first of all, and topics go on where they live now."""
    names = ("a", "b", "c", "d")
    for name in names:
        world.append(name, 3)
    world.settle()
    for shards in (2, 1, 3):
        world.stop()
        world.settings = msgspec.structs.replace(world.settings, wal_shards=shards)
        for name in names:
            world.oracle.placed(name, None)
        world.start()
        for name in names:
            world.append(name, 2)
        for _ in range(8):
            world.step()
        assert world.core.keeper.last is not None, "no checkpoint was made although the shards are others"
        world.checkpoint()
        world.kill().start()
        world.check()


def flood(world: World) -> None:
    """Clients write faster than segments are written: the checkpoint ends all the same, and holds what there was when
    it began, also where that is evicted, deleted or dropped before its segment has a place."""
    for turn in (1, 2):
        for _ in range(2):
            for name in ("t", "capped", "dropped"):
                world.append(name, 8)
        world.delete("t", seqs=(world.core.state("t").head_seq - 3,))
        flood: list[Callable[[], object]] = [partial(world.append, "t", 8, wait=False), world.step]
        trickle: list[Callable[[], object]] = [partial(world.append, "t", 2, wait=False), world.step]
        last = world.core.state("t").head_seq
        world.between = [
            *flood * 3,
            partial(world.put, "capped", cap_records=turn, wait=False),
            partial(world.drop, "dropped", wait=False),
            partial(world.delete, "t", seqs=(last - 1, last, last + 2), wait=False),
            *trickle * 60,
        ]
        with mock.patch.object(sealing_module, "SEAL_BYTES", 1):
            world.wait(world.core.checkpoint())
        assert world.between, "the flood was over before the checkpoint"
        world.between = []
        blocks = world.core.catalog.visible["t"].topic.tail.blocks
        assert max(block.last_seq for block in blocks if block.segment) == last, "what came meanwhile is the next one's"
        world.settle()
        world.check()
        if turn == 1:
            world.kill().start()
            world.check()
            world.put("capped", cap_records=20)
    world.checkpoint()
    world.checkpoint()
    world.power_off(Cut(0)).start()
    world.check()


def unfinished(world: World) -> None:
    """A process that dies in the middle of a checkpoint, and the next one makes it again; then the power fails."""
    for count in (2, 5, 9, 14):
        world.append("t", 9)
        world.append("u", 2)
        world.between = [*([world.step] * count), *([_die] * 50)] * 50
        try:
            world.wait(world.core.checkpoint())
        except _DiedError:
            pass
        world.between = []
        world.kill().start()
        world.append("t", 1)
        world.checkpoint()
        world.checkpoint()
        world.power_off(Cut(0)).start()
        world.check()


def refused(world: World) -> None:
    """The disk refuses all of the closed history, or the log, for a while, several times: who reads it is told to come
    again, checkpoints wait, and no record is lost, whatever became of the process meanwhile."""
    world.put("t", durability="disk")
    for _ in range(3):
        world.append("t", 8)
    world.append("u", 3, size=900)
    world.checkpoint()
    for ending in (".data", ".log"):
        if ending == ".log":
            for _ in range(6):
                world.append("t", 4, size=900)
            world.settle()
        world.kill().start()
        for pause_ms in (20_000, 30_000):
            _refuse(world, ending)
            for _ in range(3):
                _cannot_read(world)
                world.clock.tick(pause_ms // 3)
                world.step()
            _cannot_read(world)
            world.disk.refused = set()
            world.check()
            _forget(world)
            world.clock.tick(pause_ms)
    world.checkpoint()
    world.kill().start()
    world.check()


def _refuse(world: World, ending: str) -> None:
    tree = world.disk.cached_tree()
    world.disk.refused = {world.disk._file(path).number for path in tree if path.endswith(ending)}
    _forget(world)


def _forget(world: World) -> None:
    """Memory holds nothing of what was read."""
    cache = world.core.catalog.cache
    while cache.history.held:
        cache.history.give_back()
    bytes_max, cache.bytes_max = cache.bytes_max, 1
    cache.shrink()
    cache.shrink()
    cache.bytes_max = bytes_max


def _cannot_read(world: World) -> None:
    """What is there cannot be had now, and is not lost."""
    try:
        world.check()
    except Unavailable:
        return
    raise AssertionError("what the disk refuses was read, or is lost")


class _DiedError(BaseException):
    """The process is gone."""


def _die() -> None:
    raise _DiedError


def _changes(**changes: object) -> ConfigChanges:
    return msgspec.convert(changes, ConfigChanges)
