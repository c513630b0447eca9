"""Situations with checkpoints in them: sealing, tails files, snapshots, trimming, and whatever happens meanwhile.

Segments of eight records, so that every kind of file and each step between them occurs within a few operations.
"""

from __future__ import annotations

import msgspec

from engine.types import Match
from tests.sim.media import Cut
from tests.sim.world import TINY, World

SMALL = msgspec.structs.replace(
    TINY, segment_max_events=8, segment_age_ms=0, checkpoint_ms=1 << 40, stop_checkpoint_bytes=1 << 40
)
"""Checkpoints only when they are asked for."""
TWO_SMALL = msgspec.structs.replace(SMALL, wal_shards=2)
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
        world.append(name, 2)
    world.checkpoint()
    world.append("b", 2)
    world.checkpoint()
    world.append("c", 1, ack_fsync=True)
    world.checkpoint()
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
