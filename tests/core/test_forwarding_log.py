"""What routers cost the log, counted: bytes and syncs for one record of a source with 1, 10 and 100 dests.

The payload is in the log once (storage.md §8): a dest adds a position, and neither a copy nor a sync of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from engine.commands import Batch
from engine.core import forwarding
from engine.limits import MIB, EngineSettings
from engine.routers.router import RouterSpec
from tests.core.hand import Hand
from tests.core.test_forwarding import route

LARGE = EngineSettings(wal_file_bytes=16 * MIB, wal_fill_bytes=1 * MIB, cache_bytes=64 * MIB)
FANS = (1, 10, 100)
APPENDS = 20
POSITION_BYTES = 16
"""Of a dest in a Forward that has several."""
FORWARD_BYTES = 96
"""Of a Forward by itself: there is one for each `DESTS_MAX` dests."""


class Cost(NamedTuple):
    """Of one append, everything that follows from it included."""

    size: float
    frames: float
    syncs: float


def wired(fan: int, durability: str) -> Hand:
    """A source with so many dests, all of one class, and everything of their making done."""
    hand = Hand(settings=LARGE)
    for name in ("source", *(f"d{number}" for number in range(fan))):
        hand.create(name, durability=durability)
    for number in range(fan):
        hand.take(hand.core.routers.put(f"r{number}", "source", f"d{number}", RouterSpec()))
    hand.quieten()
    return hand


def append(hand: Hand, size: int, *, pause: bool) -> None:
    """One record, as a daemon drives it: written, synced where its class waits for that, and copied. `pause`: the next
    one comes later than the background sync."""
    ticket = hand.core.append("source", Batch([b'"%b"' % (b"x" * (size - 2))]))
    hand.turn()
    hand.sync()
    assert ticket.done, "the copies are off the write path"
    route(hand)
    if pause:
        hand.pass_ms(hand.settings.sync_interval_ms)
        hand.settle()


def cost(fan: int, size: int = 100, durability: str = "disk", *, pause: bool = False) -> Cost:
    """What an append of so many bytes costs the log."""
    hand = wired(fan, durability)
    for _ in range(2):  # Behind a silence the first is synced at once, and says more.
        append(hand, size, pause=pause)
    wal = hand.core.wal
    (shard,) = wal.shards

    def so_far() -> tuple[int, int, int]:
        return shard.tip_lsn, wal.order, wal.syncs

    before = so_far()
    for _ in range(APPENDS):
        append(hand, size, pause=pause)
    spent = Cost(*((now - then) / APPENDS for now, then in zip(so_far(), before, strict=True)))
    hand.settle()
    assert [len(hand.read(f"d{number}")) for number in range(fan)] == [APPENDS + 2] * fan
    return spent


def test_the_bytes_of_an_append_are_flat_up_to_positions() -> None:
    alone = cost(0)
    for fan in FANS:
        passes = -(-fan // forwarding.DESTS_MAX)
        found = cost(fan)
        assert found.frames == alone.frames + passes
        assert alone.size < found.size <= alone.size + passes * FORWARD_BYTES + fan * POSITION_BYTES, fan


def test_the_payload_is_in_the_log_once_however_many_dests_there_are() -> None:
    once = cost(0, 10_100).size - cost(0, 100).size
    for fan in FANS:
        assert cost(fan, 10_100).size - cost(fan, 100).size == once, fan


@pytest.mark.parametrize(("durability", "syncs"), [("memory", 1), ("disk", 1), ("fsync", 2)])
def test_the_syncs_of_an_append_are_as_many_at_every_fan_out(durability: str, syncs: int) -> None:
    """With `fsync` the append has its own, for its answer, and the copies one behind that, all of them together."""
    found = {fan: cost(fan, durability=durability, pause=True) for fan in FANS}
    assert {fan: one.syncs for fan, one in found.items()} == dict.fromkeys(FANS, syncs)
    # A sync ends a block of the log, and with that the appends with a hundred dests take as many blocks as with one.
    assert len({one.size for one in found.values()}) == 1
