"""Faults while the log is written (faults.md, 1–25): one test a row, by its id."""

from __future__ import annotations

import random

import pytest

from engine.commands import Batch
from engine.core.commit import SYNC_STALL_MS
from engine.errors import Code, StoreError, StoreIOError, TopicsError, Unavailable
from engine.types import PageRequest
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultyProcess
from tests.sim.images import power_cuts
from tests.sim.media import SECTOR, Cut
from tests.sim.oracle import Crash
from tests.sim.probe import Effort, Prober, Tally
from tests.sim.view import look
from tests.sim.world import World

pytestmark = pytest.mark.slow


def world_with(*faults: Fault) -> tuple[World, FaultyProcess]:
    """A running store with two topics; then its process meets the faults, counted from now on."""
    process = FaultyProcess([])
    world = World()
    world.wrap = process
    world.start()
    world.append("d", 2)
    world.put("f", durability="fsync")
    world.append("f", 2)
    world.settle()
    assert process.first is not None
    for fault in faults:
        process.first.faults.append(fault)
        process.first._counts.append(0)
    return world, process


def fill(world: World, count: int) -> Unavailable:
    """Write until a write is refused; returns the refusal."""
    for _ in range(60):
        try:
            world.append("d", count, size=900, wait=False)
        except Unavailable as error:
            return error
        world.step(5)
    raise AssertionError("no write was refused")


def started(world: World) -> StoreIOError | None:
    """Start a process; the error of the disk that kept it from starting, or None."""
    try:
        world.start()
    except StoreIOError as error:
        return error
    return None


def stalled(world: World) -> bool:
    """Whether the store says that a sync hangs."""
    return world.core.commit.stalled


def reads(world: World, name: str) -> int:
    """How many records a reader gets."""
    return world.core.page(name, PageRequest(limit=1000)).count


def test_F01_a_batch_is_whole_or_absent_after_a_crash_before_its_sync() -> None:
    world = World().start()
    world.append("t", 3)
    prober = Prober("F01", Effort(sample=60, deep_every=0), Tally())
    world.probe = prober
    world.append("t", 9, size=300)
    assert len(prober.tally.hashes) > 60, "torn at every sector, and in free subsets"


def test_F02_a_retry_after_a_crash_between_sync_and_ack_gets_the_same_seq() -> None:
    world = World().start()
    world.put("f", durability="fsync")
    records = world.append("f", 2, key="k", wait=False)
    world.core.turn()
    job = world.core.sync_job()
    assert job is not None
    job.run(world.disk)
    world.power_off().start()
    retried = world.core.append("f", Batch([record.data for record in records]), key=b"k")
    world.wait(retried)
    answer = retried.value()
    assert (answer.first_seq, answer.last_seq, answer.deduped) == (1, 2, True)


@pytest.mark.parametrize("part", ["head", "tail", "hole"])
def test_F03_a_torn_batch_is_classified_set_aside_and_the_store_opens(part: str) -> None:
    world = World().start()
    world.append("t", 2)
    world.settle()
    world.append("t", 12, size=200, wait=False)
    step = world.disk.step
    world.core.turn()
    assert world.disk.last_write is not None
    file, offset, _, data, _ = world.disk.last_write
    sectors = list(range(offset // SECTOR, (offset + len(data)) // SECTOR))
    torn = {"head": sectors[2:], "tail": sectors[:2], "hole": sectors[2:4]}[part]
    cut = Cut(world.disk.step, tuple((file.number, sector, step) for sector in torn))
    world.power_off(cut).start()
    assert reads(world, "t") == 2
    assert world.disk.list("quarantine"), "what was cut is kept"
    world.append("t", 1)
    world.check()


def test_F04_log_files_are_never_used_again() -> None:
    world = World().start()
    names: dict[str, int] = {}
    for _ in range(12):
        world.append("t", 3, size=900)
        for path, node in world.disk.nodes():
            if path.endswith(".log"):
                assert names.setdefault(path, node.number) == node.number
    assert len(names) > 3


def test_F05_foreign_bytes_in_the_preallocated_tail_are_never_frames() -> None:
    world = World().start()
    world.append("t", 2)
    world.stop()
    tree = world.disk.cached_tree()
    path = next(path for path in tree if path.endswith(".log"))
    log = bytearray(tree[path] or b"")
    end = len(bytes(log).rstrip(b"\0")) // 4096 * 4096 + 4096
    log[end : end + 400] = bytes(log[4096:4496])
    disk = FakeDisk.of_tree({**tree, path: bytes(log)}, boot=world.disk.boot)
    fresh = World(disk, clock=world.clock.restart(), oracle=world.oracle)
    fresh.crash = Crash.STOP
    try:
        fresh.start()
    except StoreError:
        return
    fresh.check()


def test_F06_only_the_unsynced_end_is_touched_by_reordered_writes() -> None:
    world = World(lag=4).start()
    world.append("t", 3, size=300)
    world.settle()
    world.probe = Prober("F06", Effort(sample=80, deep_every=0), Tally())
    for _ in range(3):
        world.append("t", 2, size=700, wait=False)
        world.step(0.01)
    world.append("t")


def test_F07_a_sector_with_synced_bytes_is_never_written_again() -> None:
    world = World(lag=4).start()
    for _ in range(20):
        world.append("t", 1, wait=False)
        world.append("f", 1, ack_fsync=True)
    assert world.monitor.events > 40, "the order monitor has watched all of it"


def test_F08_a_short_write_is_completed() -> None:
    world, process = world_with(Fault(Call.WRITE, 0, Effect.SHORT))
    world.append("d", 20, size=200)
    assert process.first is not None
    assert [fault.effect for fault in process.first.struck] == [Effect.SHORT]
    world.check()
    world.kill().start()
    world.check()


@pytest.mark.parametrize("effect", [Effect.EIO, Effect.PARTIAL_EIO])
def test_F09_an_error_of_a_write_makes_the_shard_read_only(effect: Effect) -> None:
    world, _ = world_with(Fault(Call.WRITE, 0, effect))
    world.tolerant = True
    world.append("d", 12, size=200)
    assert [failure.code for failure in world.failures] == [Code.READ_ONLY]
    assert world.failures[0].detail == {"outcome": "unknown"}
    with pytest.raises(Unavailable) as refused:
        world.append("d")
    assert refused.value.code is Code.READ_ONLY
    assert reads(world, "d") == 2
    world.kill().start()
    world.append("d")


def test_F10_after_a_failed_sync_nothing_is_acked_and_nothing_retried() -> None:
    world, process = world_with(Fault(Call.SYNC, 0, Effect.FAILED_SYNC, path="wal/"))
    world.tolerant = True
    world.append("f")
    assert [(failure.code, failure.detail) for failure in world.failures] == [(Code.READ_ONLY, {"outcome": "unknown"})]
    assert process.first is not None
    syncs = process.first.calls[Call.SYNC]
    for _ in range(20):
        world.step(5)
    assert process.first.calls[Call.SYNC] == syncs, "fsyncgate: the next sync would lie"
    assert reads(world, "f") == 2
    for cut in power_cuts(world.disk, random.Random(1), 8):
        image = world.disk.powered_off(cut)
        again = World(image, clock=world.clock.reboot(), oracle=world.oracle.copy())
        again.crash = Crash.POWER
        again.start()


def test_F11_a_failed_sync_of_the_log_directory_ends_the_shard() -> None:
    world, process = world_with(Fault(Call.SYNC_DIR, 0, Effect.EIO, path="wal/"))
    world.tolerant = True
    for _ in range(12):
        try:
            world.append("d", 3, size=900)
        except TopicsError:
            break
    assert process.first is not None
    assert process.first.struck
    assert world.core.read_only
    world.kill().start()


def test_F12_a_sync_that_hangs_gives_its_waiters_unknown_and_may_still_succeed() -> None:
    world, _ = world_with()
    world.tolerant = True
    world.append("f", 1, wait=False)
    world.core.turn()
    job = world.core.sync_job()
    assert job is not None
    world.clock.tick(SYNC_STALL_MS + 1)
    world.core.advance()
    assert [failure.detail for failure in world.failures] == [{"outcome": "unknown"}]
    assert stalled(world)
    job.run(world.disk)
    world.core.sync_done(job, None)
    assert not stalled(world)
    assert len(world.failures) == 1, "no second answer"
    assert reads(world, "f") == 3, "a later success counts"


def test_F13_a_disk_that_lies_about_syncs_leaves_a_prefix_or_is_found_out() -> None:
    """Syncs that do nothing: after a power failure the start refuses, or shows the loss as a gap; never in silence."""
    world = World().start()
    world.append("d", 3)
    honest = FakeDisk.sync_file
    try:
        FakeDisk.sync_file = lambda self, handle, upto: None  # type: ignore[method-assign]  # the lie
        world.disk.on_step = None  # the order monitor would notice
        world.monitor.acked = lambda *_: None  # type: ignore[method-assign]  # the lie is what is tested
        for _ in range(6):
            world.append("d", 2, size=300)
            world.step(5)
    finally:
        FakeDisk.sync_file = honest  # type: ignore[method-assign]  # the truth again
    disk = world.disk.powered_off(Cut(0))
    again = World(disk, clock=world.clock.reboot())
    try:
        again.start()
    except StoreError:
        return
    page = again.core.page("d", PageRequest(limit=1000))
    rest = again.core.page("d", PageRequest(from_seq=page.next_from_seq))
    assert page.count == 3
    assert rest.tombstone is not None
    assert rest.tombstone.reason == "crash"


def test_F14_a_waiter_that_went_away_leaves_its_result_for_the_key() -> None:
    world = World().start()
    records = world.append("t", 2, key="k", wait=False)
    world.step()
    again = world.core.append("t", Batch([record.data for record in records]), key=b"k")
    world.wait(again)
    assert (again.value().first_seq, again.value().deduped) == (1, True)


def test_F15_an_error_while_applying_ends_the_process_and_recovery_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World().start()
    world.append("t", 2)
    world.append("t", 1, wait=False)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("engine.topic.state.Topic.apply_append", broken)
        with pytest.raises(RuntimeError):
            world.core.turn()
    world.kill().start()
    assert reads(world, "t") == 3, "it was written: a record is never skipped"


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_F16_an_error_while_encoding_refuses_that_command_alone(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World().start()
    world.append("t", 2)
    steps = world.disk.step

    def broken(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("engine.core.core.render", broken)
        with pytest.raises(error):
            world.core.append("t", Batch([b"1"]))
    assert world.disk.step == steps, "not a byte was written"
    world.append("t", 1)
    world.check()


def test_F17_a_crash_at_each_step_of_a_rotation_leaves_a_store_that_opens() -> None:
    world = World().start()
    world.append("t", 4, size=700)
    prober = Prober("F17", Effort(sample=4, deep_every=0), Tally())
    world.probe = prober
    files = len(world.disk.list("wal/shard-00"))
    for _ in range(4):
        world.append("t", 4, size=700)
    assert len(world.disk.list("wal/shard-00")) > files


def test_F18_a_failed_sync_of_the_file_that_was_left_behind_ends_the_shard() -> None:
    world, process = world_with()
    world.tolerant = True
    assert process.first is not None
    while world.core.wal.rotations == 0:
        world.append("d", 2, size=900, wait=False)
        world.clock.tick(0.01)
        world.core.turn()
        while (chore := world.core.chore()) is not None:
            chore.run(world.disk)
            world.core.chore_done(chore, None)
    process.first.faults.append(Fault(Call.SYNC, 0, Effect.FAILED_SYNC, path="wal/"))
    process.first._counts.append(0)
    world.append("f")
    assert world.core.read_only
    assert world.failures
    world.power_off().start()


def test_F19_nothing_is_acked_in_a_file_whose_entry_is_not_durable() -> None:
    world = World().start()
    world.put("f", durability="fsync")
    for _ in range(10):
        world.append("f", 2, size=1500)
        durable = world.disk.tree_after(Cut(0))
        seen = {path for path, _ in world.disk.nodes() if path.endswith(".log")}
        holding = [path for path in seen if world.core.wal.shards[0].current.log.path == path]
        assert all(path in durable for path in holding)
    assert world.core.wal.rotations > 1


@pytest.mark.parametrize("effect", [Effect.ENOSPC, Effect.EDQUOT, Effect.EFBIG])
def test_F20_without_space_appends_get_507_and_resume_by_themselves(effect: Effect) -> None:
    world, process = world_with(Fault(Call.ALLOCATE, 0, effect, lasting=True))
    assert fill(world, 2).code is Code.DISK_FULL
    assert reads(world, "d") > 2
    assert process.first is not None
    process.first.faults.clear()
    process.first._counts.clear()
    world.step(2000)
    world.settle()
    world.append("d", 2, size=900)
    world.check()


def test_F21_deletes_work_on_a_full_disk() -> None:
    world, _ = world_with(Fault(Call.ALLOCATE, 0, Effect.ENOSPC, lasting=True))
    fill(world, 1)
    for seq in range(1, 5):
        world.delete("d", seqs=(seq,))
    world.delete("f", before_seq=2)
    world.check()
    world.power_off().start()


def test_F22_without_inodes_it_is_507_and_says_inodes() -> None:
    world, _ = world_with()
    world.disk.inodes -= world.disk.space().inodes_free
    refused = fill(world, 2)
    assert refused.code is Code.DISK_FULL
    assert "inodes" in refused.message


def test_F24_without_descriptors_writes_are_put_off_not_lost_and_the_log_stays_whole() -> None:
    world, process = world_with(
        Fault(Call.CREATE, 0, Effect.EMFILE, lasting=True), Fault(Call.OPEN, 0, Effect.EMFILE, lasting=True)
    )
    assert fill(world, 1).retryable
    assert world.core.read_only is None
    world.delete("d", seqs=(1,))
    world.check()
    assert process.first is not None
    process.first.faults.clear()
    process.first._counts.clear()
    world.step(2000)
    for _ in range(6):
        world.append("d", 3, size=900)
    world.check()


def test_F25_a_file_system_that_turned_read_only_ends_the_shard_and_state_stays() -> None:
    world, _ = world_with(
        Fault(Call.WRITE, 0, Effect.EROFS, lasting=True), Fault(Call.CREATE, 0, Effect.EROFS, lasting=True)
    )
    world.tolerant = True
    before = look(world.core)
    world.append("d")
    assert world.failures[0].detail == {"outcome": "unknown"}
    assert look(world.core).topics == before.topics
    assert world.core.read_only


def test_F43_an_error_while_repairing_refuses_and_nothing_half_done_counts() -> None:
    world = World().start()
    world.append("t", 3, size=400)
    world.kill()
    disk = world.disk
    for call in (Call.CREATE, Call.WRITE, Call.SYNC, Call.RENAME, Call.SYNC_DIR, Call.ALLOCATE):
        at = 0
        while True:
            process = FaultyProcess([Fault(call, at, Effect.EIO)])
            again = World(disk.killed(), clock=world.clock.restart(), oracle=world.oracle.copy())
            again.wrap = process
            again.crash = Crash.KILL
            failed = started(again)
            assert failed is None or failed.exit_code == 74
            assert process.first is not None
            if not process.first.struck:
                break
            sound = World(again.disk.killed(), clock=again.clock.restart(), oracle=world.oracle.copy())
            sound.crash = Crash.KILL
            sound.start()
            at += 1
        assert at > 0 or call is Call.ALLOCATE, f"{call} is part of a recovery"
