"""The log driven by hand: groups, syncs, rotation, frames larger than a file, full and failing disks."""

from __future__ import annotations

import errno

import pytest

from engine.errors import StoreDamaged
from engine.formats.frame import BLOCK, FrameType, align_block, frame_len
from engine.formats.manifest import Manifest, decode_meta
from engine.limits import KIB
from engine.wal.chain import DATA_START
from engine.wal.prepare import RETRY_MS, Extend, Fill, Prepare
from engine.wal.wal import Chore
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut
from tests.wal.hand import TS, Hand, settings, values_of

SMALL = settings(file_kib=32, fill_kib=8, reserve_kib=4)


def manifest_of(disk: FakeDisk) -> Manifest:
    content = disk.cached_tree()["meta/MANIFEST"]
    assert content is not None
    return decode_meta(content, Manifest)


def failing(call: Call, effect: Effect, *, at: int = 0, path: str = "", lasting: bool = False) -> tuple[FaultFs, Hand]:
    """An open log whose disk begins to fail now."""
    fs = FaultFs(FakeDisk())
    hand = Hand(fs, SMALL)
    hand.append(1, 0, sync=True)
    while hand.chore():
        pass
    fs.faults.append(Fault(call, at, effect, lasting, path))
    fs._counts.append(0)
    return fs, hand


# --- groups ----------------------------------------------------------------------------------------------------------


def test_a_tick_is_one_write_a_shard_whatever_it_holds() -> None:
    fs = FaultFs(FakeDisk())
    hand = Hand(fs, SMALL)
    while hand.chore():
        pass
    before = fs.calls[Call.WRITE]
    for number in range(20):
        hand.stage(number % 3, number, "x" * 200)
    hand.write()
    assert fs.calls[Call.WRITE] == before + 1
    assert hand.wal.take_groups() == []


def test_every_frame_of_a_tick_says_the_tick_and_how_many_shards_it_touched() -> None:
    disk = FakeDisk()
    hand = Hand(disk, settings(shards=3))
    hand.stage(1, 0)
    hand.stage(2, 0, shard=2)
    hand.write()
    hand.append(1, 1, shard=1)
    items = Hand(disk.killed(), settings(shards=3)).items
    assert [(item.tick, item.tick_shards, item.shard) for item in items] == [(1, 2, 0), (1, 2, 2), (2, 1, 1)]


def test_bodies_in_parts_and_long_bodies_are_the_same_bytes_as_one_short_body() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    parts = (b'{"upto":', b"1", b"}")
    for body in (b"".join(parts), parts, (b" " * 20000, *parts), b" " * 20000 + b"".join(parts)):
        length = len(body) if isinstance(body, bytes) else sum(map(len, body))
        assert hand.make_room(0, length)
        hand.wal.stage(0, FrameType.RESERVE, 0, 0, 9, 0, TS, body)
    hand.write()
    items = Hand(disk.killed()).items
    assert [getattr(item, "body", b"").strip() for item in items] == [b'{"upto":1}'] * 4


def test_F08_a_short_write_is_completed() -> None:
    fs, hand = failing(Call.WRITE, Effect.SHORT, lasting=True)
    for number in range(1, 5):
        hand.append(1, number, "x" * 20000 if number == 2 else "y")
    assert hand.wal.shards[0].failed is None
    assert isinstance(fs.below, FakeDisk)
    assert len(values_of(Hand(fs.below.killed(), SMALL).items, 1)) == 9


@pytest.mark.parametrize("effect", [Effect.EIO, Effect.PARTIAL_EIO, Effect.ENOSPC, Effect.EROFS, Effect.ESTALE])
def test_F09_F25_any_error_of_a_group_write_ends_the_shard(effect: Effect) -> None:
    fs, hand = failing(Call.WRITE, effect)
    durable = hand.wal.shards[0].durable_lsn
    hand.stage(1, 1)
    hand.write()
    shard = hand.wal.shards[0]
    assert shard.failed is not None
    assert shard.written_lsn < shard.tip_lsn
    assert not hand.wal.room(0, 10)
    assert not hand.wal.room(0, 10, control=True)
    assert hand.wal.begin_sync(0) is None
    assert hand.wal.next_chore(0) is None
    assert shard.durable_lsn == durable
    assert isinstance(fs.below, FakeDisk)
    assert values_of(Hand(fs.below.killed(), SMALL).items, 1)[:1] == [b"0"]


# --- syncs -----------------------------------------------------------------------------------------------------------


def test_F07_what_is_written_after_a_sync_began_goes_to_a_fresh_block() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    job = hand.wal.begin_sync(0)
    assert job is not None
    lsn = hand.append(1, 1)
    assert lsn == BLOCK == job.lsn
    assert hand.wal.shards[0].durable_lsn == 0
    job.run(disk)
    hand.wal.sync_done(job, None)
    assert hand.wal.shards[0].durable_lsn == BLOCK
    assert hand.append(1, 2) == BLOCK + frame_len(4 + len(b'{"$seq":2,"$ts":1748450000000,"data":1}'))
    items = Hand(disk.killed()).items
    assert [getattr(item, "durable_lsn", None) for item in items] == [0, 0, BLOCK]


def test_there_is_one_sync_at_a_time_and_none_without_need() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    assert hand.wal.begin_sync(0) is None
    hand.append(1, 0)
    job = hand.wal.begin_sync(0)
    assert job is not None
    hand.append(1, 1)
    assert hand.wal.begin_sync(0) is None
    job.run(disk)
    hand.wal.sync_done(job, None)
    assert hand.sync()
    assert hand.wal.begin_sync(0) is None


@pytest.mark.parametrize("effect", [Effect.EIO, Effect.FAILED_SYNC])
def test_F10_a_failed_sync_is_final_even_if_the_next_would_succeed(effect: Effect) -> None:
    fs, hand = failing(Call.SYNC, effect)
    hand.append(1, 1)
    durable = hand.wal.shards[0].durable_lsn
    assert hand.sync()
    shard = hand.wal.shards[0]
    assert shard.failed is not None
    assert shard.durable_lsn == durable
    assert hand.wal.begin_sync(0) is None
    assert not hand.wal.room(0, 1)
    assert not hand.opened.stop()
    assert isinstance(fs.below, FakeDisk)
    assert values_of(Hand(fs.below.powered_off(Cut(0)), SMALL).items, 1) == [b"0"]


def test_F12_a_sync_that_succeeds_after_its_shard_failed_acks_nothing() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    job = hand.wal.begin_sync(0)
    assert job is not None
    hand.wal.shards[0].failed = OSError(errno.EIO, "a chore met it")
    job.run(disk)
    hand.wal.sync_done(job, None)
    assert hand.wal.shards[0].durable_lsn == 0


# --- room, rotation, large frames ------------------------------------------------------------------------------------


def test_the_log_goes_on_in_the_prepared_file_and_the_old_one_is_synced_and_closed() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    for number in range(60):
        assert hand.append(1, number, "x" * 1500) is not None
    assert hand.wal.rotations >= 2
    assert len(hand.wal.shards[0].retired) == hand.wal.rotations
    hand.sync()
    assert hand.wal.shards[0].retired == []
    after = Hand(disk.powered_off(Cut(0)), SMALL)
    assert len(values_of(after.items, 1)) == 120


def test_F19_a_file_is_used_only_after_it_its_name_and_the_manifest_are_durable() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    for number in range(60):
        hand.append(1, number, "x" * 1500)
        current = hand.wal.shards[0].current.log
        assert disk.powered_off(Cut(0)).cached_tree().get(current.path) is not None
        entry = manifest_of(disk.powered_off(Cut(0))).shards[0]
        assert entry.first_lsn >= current.first_lsn


def test_one_tick_may_end_in_the_next_file() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    staged = 0
    while hand.wal.rotations == 0:
        assert hand.stage(1, staged, "x" * 700) is not None
        staged += 1
    hand.stage(1, staged)
    (group,) = hand.wal.take_groups()
    assert len(group.writes) == 2
    group.run(disk)
    hand.wal.group_done(group, None)
    assert len(values_of(Hand(disk.killed(), SMALL).items, 1)) == 2 * staged + 1


@pytest.mark.parametrize("size", [30, 100, 333])
def test_a_frame_larger_than_a_file_gets_a_file_of_its_own(size: int) -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    hand.append(1, "before")
    assert hand.append(1, "x" * size * KIB) is not None
    assert hand.append(1, "after") is not None
    hand.sync()
    found = values_of(Hand(disk.powered_off(Cut(0)), SMALL).items, 1)
    assert [len(str(value)) > 1000 for value in found] == [False, True, False]
    assert hand.stop()
    again = Hand(disk.killed(), SMALL)
    assert values_of(again.items, 1) == found
    assert again.append(1, 1) is not None


def test_a_prepared_file_is_made_longer_for_a_frame_that_is_larger() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    while hand.wal.shards[0].next is None:
        hand.append(1, "x" * 1000)
    kinds: set[type[Chore]] = set()
    while not hand.wal.room(0, 100 * KIB):
        chore = hand.wal.next_chore(0)
        assert chore is not None
        kinds.add(type(chore))
        chore.run(disk)
        hand.wal.chore_done(chore, None)
    assert kinds == {Extend, Fill}
    assert manifest_of(disk).shards[0].size > 100 * KIB
    assert hand.append(1, "y" * 100 * KIB) is not None
    assert len(values_of(Hand(disk.killed(), SMALL).items, 1)) > 2


def test_only_filled_space_is_used() -> None:
    disk = FakeDisk()
    hand = Hand(disk, settings(file_kib=256, fill_kib=16, reserve_kib=0))
    shard = hand.wal.shards[0]
    assert shard.current.filled_lsn == 16 * KIB
    assert not hand.wal.room(0, 16 * KIB)
    assert hand.wal.full(0) is None
    chore = hand.wal.next_chore(0)
    assert isinstance(chore, Fill)
    assert hand.wal.next_chore(0) is None, "one in flight"
    chore.run(disk)
    hand.wal.chore_done(chore, None)
    assert hand.wal.room(0, 16 * KIB)


def test_shards_fill_up_to_their_lookahead_and_then_rest() -> None:
    hand = Hand(FakeDisk(), settings(shards=2, file_kib=256, fill_kib=16))
    count = 0
    while hand.chore():
        count += 1
    assert 0 < count < 10


# --- full disks ------------------------------------------------------------------------------------------------------


def fill_up(hand: Hand) -> int:
    """Append until there is no room; how many appends went in."""
    count = 0
    while hand.append(1, "x" * 500, sync=count % 8 == 0) is not None:
        count += 1
        assert count < 10_000
    return count


@pytest.mark.parametrize("effect", [Effect.ENOSPC, Effect.EDQUOT, Effect.EFBIG, Effect.EMFILE])
def test_F20_F24_lack_of_space_refuses_appends_and_passes_by_itself(effect: Effect) -> None:
    call = Call.CREATE if effect is Effect.EMFILE else Call.ALLOCATE
    fs, hand = failing(call, effect, lasting=True)
    fill_up(hand)
    full = hand.wal.full(0)
    assert full is not None
    assert full.errno == getattr(errno, effect.value)
    assert hand.wal.shards[0].failed is None
    fs.faults.clear()
    assert hand.append(1, "x" * 500) is None, "not tried again before a second has passed"
    hand.now_ms += RETRY_MS
    assert hand.append(1, "x" * 500) is not None
    assert hand.wal.full(0) is None


def test_F21_control_frames_have_a_reserve_on_a_full_disk() -> None:
    fs, hand = failing(Call.ALLOCATE, Effect.ENOSPC, lasting=True)
    fill_up(hand)
    held = 0
    body = b'{"ranges":[[1,2]]}'
    while hand.make_room(0, len(body), control=True):
        hand.wal.stage(0, FrameType.DELETE, 0, 0, 1, 0, TS, body)
        hand.write()
        held += frame_len(len(body))
    assert hand.wal.shards[0].reserve == 4 * KIB
    assert held >= 4 * KIB - 2 * frame_len(len(body))
    assert hand.wal.shards[0].failed is None
    hand.sync()
    assert isinstance(fs.below, FakeDisk)
    assert Hand(fs.below.powered_off(Cut(0)), SMALL).items[-1].tick == hand.wal.tick - 1


def test_F22_missing_inodes_are_called_so() -> None:
    disk = FakeDisk(inodes=8)
    hand = Hand(disk, SMALL)
    disk.inodes = len([path for path, content in disk.cached_tree().items() if content is not None])
    fill_up(hand)
    assert "no inodes left" in str(hand.wal.full(0))


def test_the_next_file_leaves_free_what_recovery_needs() -> None:
    disk = FakeDisk(capacity=800 * KIB)
    hand = Hand(disk, settings(file_kib=32, fill_kib=8, reserve_kib=4, disk_reserve=64 * KIB))
    fill_up(hand)
    assert 64 * KIB <= disk.space().bytes_free < (64 + 32) * KIB
    assert "must stay free" in str(hand.wal.full(0))
    image = disk.killed()
    assert Hand(image, hand.settings).append(1, 1) is not None


def test_the_reserve_for_recovery_is_at_most_an_eighth_of_a_small_disk() -> None:
    disk = FakeDisk(capacity=400 * KIB)
    hand = Hand(disk, settings(file_kib=32, fill_kib=8, reserve_kib=4, disk_reserve=64 * 1024 * KIB))
    fill_up(hand)
    assert disk.space().bytes_free < (50 + 32) * KIB


@pytest.mark.parametrize("call", [Call.CREATE, Call.WRITE, Call.SYNC, Call.RENAME, Call.SYNC_DIR, Call.ALLOCATE])
def test_F11_F18_an_error_of_the_disk_in_a_chore_ends_the_shard(call: Call) -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    while not isinstance(chore := hand.wal.next_chore(0), Prepare):
        if chore is not None:
            chore.run(disk)
            hand.wal.chore_done(chore, None)
        hand.append(1, "x" * 500)
    with pytest.raises(OSError, match="Input/output") as raised:
        chore.run(FaultFs(disk, [Fault(call, 0, Effect.EIO)]))
    hand.wal.chore_done(chore, raised.value)
    assert hand.wal.shards[0].failed is raised.value
    assert not hand.wal.room(0, 10)


@pytest.mark.parametrize("call", [Call.CREATE, Call.WRITE, Call.SYNC, Call.RENAME, Call.SYNC_DIR, Call.ALLOCATE])
@pytest.mark.parametrize("at", [0, 1])
def test_F20_a_preparation_that_failed_anywhere_for_lack_of_space_can_be_repeated(call: Call, at: int) -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    while not isinstance(chore := hand.wal.next_chore(0), Prepare):
        if chore is not None:
            chore.run(disk)
            hand.wal.chore_done(chore, None)
        hand.append(1, "x" * 500)
    faulty = FaultFs(disk, [Fault(call, at, Effect.ENOSPC)])
    error = None
    try:
        chore.run(faulty)
    except OSError as raised:
        error = raised
    assert (error is not None) == bool(faulty.struck)
    hand.wal.chore_done(chore, error)
    assert hand.wal.shards[0].full is error
    hand.now_ms += RETRY_MS
    count = fill_some(hand)
    assert len(values_of(Hand(disk.killed(), SMALL).items, 1)) >= count


def fill_some(hand: Hand) -> int:
    """Enough appends for several files."""
    for number in range(100):
        assert hand.append(1, "x" * 900) is not None, number
    return 100


def test_F10_a_failed_sync_of_a_fill_ends_the_shard_even_if_it_says_that_space_is_lacking() -> None:
    for effect in (Effect.ENOSPC, Effect.EDQUOT, Effect.EIO, Effect.FAILED_SYNC):
        disk = FakeDisk()
        hand = Hand(disk, SMALL)
        hand.append(1, 0)
        chore = hand.wal.next_chore(0)
        assert isinstance(chore, Fill)
        with pytest.raises(OSError, match="could not be synced") as raised:
            chore.run(FaultFs(disk, [Fault(Call.SYNC, 0, effect)]))
        hand.wal.chore_done(chore, raised.value)
        assert hand.wal.shards[0].failed is raised.value
        assert hand.wal.begin_sync(0) is None, "a sync would succeed now, without the frame"


# --- reading back ----------------------------------------------------------------------------------------------------


def test_a_frame_is_read_back_wherever_it_is_and_damage_is_not_served() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    places = [hand.append(1, number, "x" * (number * 531 % 20000)) for number in range(40)]
    for number, lsn in enumerate(places):
        assert lsn is not None
        header, body = hand.wal.read_body(disk, 0, lsn)
        assert header.first_seq == 2 * number + 1
        assert body.endswith(b'"}')
    log = hand.wal.file_of(0, places[7] or 0)
    file = disk._file(log.path)
    file.cache[log.offset(places[7] or 0) + 100] ^= 4
    with pytest.raises(StoreDamaged, match=log.path):
        hand.wal.read_body(disk, 0, places[7] or 0)
    hand.wal.read_body(disk, 0, places[8] or 0)


def test_the_manifest_records_where_the_log_ended() -> None:
    disk = FakeDisk()
    hand = Hand(disk)
    hand.append(1, 0)
    end = hand.wal.shards[0].tip_lsn
    assert hand.stop()
    (entry,) = manifest_of(disk).shards
    assert (entry.first_lsn, entry.run, entry.size, entry.end_lsn) == (0, 1, 64 * KIB, end)
    assert hand.wal.shards[0].tip_lsn == align_block(end)
    assert DATA_START == BLOCK


def test_a_chore_whose_file_the_log_went_into_meanwhile_is_taken_in() -> None:
    disk = FakeDisk()
    hand = Hand(disk, SMALL)
    while hand.wal.shards[0].next is None:
        hand.append(1, "x" * 1000)
    while hand.chore():
        pass
    assert not hand.wal.room(0, 100 * KIB)
    chore = hand.wal.next_chore(0)
    assert isinstance(chore, Extend)
    shard = hand.wal.shards[0]
    while hand.wal.rotations == 0:
        flags = len(hand.seqs)
        assert hand.wal.room(0, 1000, control=True)
        hand.wal.stage(0, FrameType.RESERVE, 0, 0, flags, 0, TS, b'{"upto":1}'.ljust(1000))
        hand.write()
    chore.run(disk)
    hand.wal.chore_done(chore, None)
    assert shard.current.log == chore.longer == shard.files[-1]
    assert hand.append(1, "y" * 50 * KIB) is not None
    assert len(Hand(disk.killed(), SMALL).items) > 10


def test_asking_for_chores_costs_nothing_in_most_ticks_and_none_is_missed() -> None:
    disk = FakeDisk(capacity=520 * KIB)
    hand = Hand(disk, settings(shards=2, file_kib=64, fill_kib=8, reserve_kib=4))
    quiet = 0
    for number in range(700):
        hand.stage(number % 3, "x" * (number * 131 % 900), shard=number % 2)
        hand.write()
        if number % 17 == 0:
            hand.sync(number % 2)
        if not hand.wal._look:
            quiet += 1
            for shard in hand.wal.shards:
                assert hand.wal._chore_for(shard, hand.now_ms) is None
        elif number % 5 == 0:
            hand.chore()
        hand.now_ms += 30
    assert quiet > 100
    assert hand.wal.shards[0].full is not None, "also on a full disk"
