"""The limits of a shard: the shortcut for appends says what the long way says."""

from __future__ import annotations

import itertools

import pytest

from engine.formats.frame import NO_FRAME
from engine.fs import OpenMode
from engine.limits import KIB
from engine.wal.chain import DATA_START, LogFile
from engine.wal.prepare import OpenFile
from engine.wal.shard import GroupWrite, Shard
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.wal.hand import Hand, settings

BLOCKS = 4096


def a_shard(filled: int, room: int, ahead: int | None, tip: int, reserve: int) -> Shard:
    """A shard in units of blocks: filled part and room of its file, filled part of the next one."""
    log = LogFile(0, 0, 1, DATA_START + room * BLOCKS)
    shard = Shard(0, [log], OpenFile(log, 3, filled * BLOCKS), tip * BLOCKS, tip * BLOCKS)
    if ahead is not None:
        following = LogFile(0, log.end_lsn, 1, log.size)
        shard.next = OpenFile(following, 4, following.first_lsn + ahead * BLOCKS)
    shard.reserve = reserve * BLOCKS
    shard.set_limit()
    return shard


def test_the_shortcut_for_appends_never_promises_more_than_the_long_way() -> None:
    promised = 0
    for room, filled, ahead, tip, reserve, total in itertools.product(
        (2, 4), (0, 1, 2, 3, 4), (None, 0, 1, 3), (0, 1, 2, 3), (0, 1, 2), (1, 2, 3, 5)
    ):
        if filled > room or tip > filled:
            continue
        shard = a_shard(filled, room, ahead, tip, reserve)
        if shard.tip_lsn + total * BLOCKS <= shard.append_limit:
            promised += 1
            assert shard.fits(total * BLOCKS, shard.reserve)
        if shard.fits(total * BLOCKS, shard.reserve):
            left = filled - tip + (ahead or 0)
            assert left - total >= reserve
            assert total <= filled - tip or (tip + total > room and total <= (ahead or 0))
    assert promised > 50


def test_the_reserve_is_at_most_a_quarter_of_a_file() -> None:
    shard = a_shard(4, 4, None, 0, 0)
    shard.set_reserve(1024 * KIB, DATA_START + 4 * BLOCKS)
    assert shard.reserve == BLOCKS
    shard.set_reserve(100, DATA_START + 4 * BLOCKS)
    assert shard.reserve == 100
    assert shard.last_lsn == NO_FRAME


def test_rotation_goes_to_the_first_lsn_of_the_prepared_file() -> None:
    shard = a_shard(4, 4, 2, 3, 1)
    old = shard.current
    shard.rotate()
    assert shard.retired == [old]
    assert shard.next is None
    assert shard.tip_lsn == shard.current.log.first_lsn == 4 * BLOCKS
    assert shard.append_limit == (4 + 2 - 1) * BLOCKS


@pytest.mark.parametrize("buffers", [[b"a" * 10, b"b", b"c" * 9000, b"d" * 3000], [b"e" * 12011]])
def test_F08_a_short_write_is_completed_from_any_buffer_on(buffers: list[bytes]) -> None:
    for effects in range(1, 9):
        disk = FakeDisk()
        Hand(disk, settings(), live=False)
        log = LogFile(0, 0, 1, 64 * KIB)
        fs = FaultFs(disk, [Fault(Call.WRITE, at, Effect.SHORT) for at in range(effects)])
        handle = disk.open(log.path, OpenMode.WRITE)
        GroupWrite(0, 1, 5000, [(OpenFile(log, handle, 64 * KIB), 8192, buffers)]).run(fs)
        assert disk.pread(handle, 12011, log.offset(8192)) == b"".join(buffers)
        assert fs.calls[Call.WRITE] > 1


def test_a_group_of_more_buffers_than_one_call_takes_is_written_whole() -> None:
    disk = FakeDisk()
    Hand(disk, settings(), live=False)
    log = LogFile(0, 0, 1, 64 * KIB)
    buffers = [bytes([65 + number % 26]) * (number % 7 + 1) for number in range(3000)]
    handle = disk.open(log.path, OpenMode.WRITE)
    GroupWrite(0, 1, 5000, [(OpenFile(log, handle, 64 * KIB), 0, buffers)]).run(disk)
    whole = b"".join(buffers)
    assert disk.pread(handle, len(whole), DATA_START) == whole
