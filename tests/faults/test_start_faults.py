"""Faults that a start meets (faults.md, 26–43 and 57–66): one test a row, by its id."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from engine.clock import STEADY_MS, EngineTime
from engine.core import Core
from engine.errors import StoreDamaged, StoreError, StoreForeign, StoreIOError, StoreLocked
from engine.formats.header import FORMAT_VERSION
from engine.formats.manifest import LOCK_PATH, MANIFEST_PATH, STORE_PATH, LockInfo, StoreInfo, decode_meta, encode_meta
from engine.fs import OsFs
from engine.limits import SYNC_WINDOW
from engine.types import ConfigChanges, PageRequest
from tests.sim.clock import ManualClock
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.images import power_cuts
from tests.sim.media import SECTOR, Cut, File, Tree
from tests.sim.oracle import Crash
from tests.sim.probe import Effort, Prober, Tally
from tests.sim.view import look
from tests.sim.world import TINY, World

pytestmark = pytest.mark.slow


def stopped(batches: int = 14, size: int = 900) -> World:
    """A store with several log files and three topics, all synced, stopped in good order."""
    world = World().start()
    world.append("a", 2)
    world.append("b", 2, key="k")
    for _ in range(batches):
        world.append("c", 2, size=size)
    world.settle()
    return world.stop()


def logs(tree: Tree) -> list[str]:
    """The log files, oldest first."""
    return sorted(path for path in tree if path.endswith(".log"))


def content(tree: Tree, path: str) -> bytes:
    """A file's bytes."""
    found = tree[path]
    assert found is not None
    return found


def is_read_only(core: Core) -> bool:
    """Whether the store takes no writes."""
    return core.read_only is not None


def open_tree(tree: Tree, clock: ManualClock, boot: str = "boot-1") -> Core:
    """Start on a directory with exactly this content."""
    return Core.open(FakeDisk.of_tree(tree, boot=boot), clock, TINY)


def refused(tree: Tree, clock: ManualClock, *, kind: type[StoreError] = StoreDamaged) -> StoreError:
    """The refusal of a start, which has changed nothing."""
    disk = FakeDisk.of_tree(tree, boot="boot-1")
    with pytest.raises(kind) as refusal:
        Core.open(disk, clock, TINY)
    assert disk.cached_tree() == tree, "a refusal changes nothing"
    assert "othing was changed" in str(refusal.value)
    return refusal.value


def spoil(tree: Tree, path: str, place: int, bit: int = 1) -> Tree:
    """The same directory with a bit flipped."""
    changed = bytearray(content(tree, path))
    changed[place] ^= bit
    return {**tree, path: bytes(changed)}


def frame_of(tree: Tree, text: bytes) -> tuple[str, int]:
    """Where a text that a client wrote lies: file and offset."""
    for path in logs(tree):
        place = content(tree, path).find(text)
        if place >= 0:
            return path, place
    raise AssertionError(f"{text!r} is nowhere")


def test_F26_a_flipped_bit_in_the_middle_of_the_log_is_damage_never_a_torn_tail() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    path, place = frame_of(tree, b'"m":"mk1-2.')
    core = open_tree(spoil(tree, path, place + 8), world.clock)
    assert core.state("a").damage == [(1, 2)]
    page = core.page("a", PageRequest())
    assert page.tombstone is not None
    assert (page.tombstone.reason, page.count) == ("corruption", 0)
    assert core.state("c").count == 28, "later records are served"


def test_F27_a_flipped_bit_in_the_last_acked_batch_is_damage() -> None:
    world = World().start()
    world.append("a", 2)
    (last,) = world.append("a", 1, ack_fsync=True)
    world.kill()
    tree = world.disk.cached_tree()
    path, place = frame_of(tree, last.data)
    core = open_tree(spoil(tree, path, place + 3), world.clock)
    assert core.state("a").damage == [(3, 3)]
    assert core.state("a").next_seq == 4, "its seq is not given again"


def test_F28_a_damaged_length_is_never_trusted() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    path = logs(tree)[0]
    for bit in range(8):
        for byte in range(4):
            message = str(refused(spoil(tree, path, 4096 + 4 + byte, 1 << bit), world.clock))
            assert path in message
            assert "4096" in message


@pytest.mark.parametrize("target", ["later", "earlier"])
def test_F29_a_valid_frame_in_the_wrong_place_is_damage(target: str) -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    path = logs(tree)[0]
    log = bytearray(content(tree, path))
    first, second = log[4096:8192], log[8192:12288]
    if target == "later":
        log[8192:12288] = first
    else:
        log[4096:8192] = second
    refused({**tree, path: bytes(log)}, world.clock)


def test_F30_a_missing_file_in_the_middle_is_refused() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    files = logs(tree)
    assert len(files) > 3
    gone = files[1]
    message = str(refused({path: body for path, body in tree.items() if path != gone}, world.clock))
    assert "missing" in message


def test_F31_a_missing_newest_file_is_refused() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    gone = logs(tree)[-1]
    assert gone in str(refused({path: body for path, body in tree.items() if path != gone}, world.clock))


@pytest.mark.parametrize("length", [100, 4096, 4096 + 700, 16383])
def test_F32_a_file_cut_short_in_the_middle_of_the_chain_is_refused(length: int) -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    path = logs(tree)[1]
    assert path in str(refused({**tree, path: content(tree, path)[:length]}, world.clock))


def test_F36_files_of_another_store_are_refused() -> None:
    world, other = stopped(), World(clock=ManualClock(1_700_000_000_000)).start()
    other.append("x", 1)
    for _ in range(14):
        other.append("c", 2, size=900)
    other.stop()
    tree, foreign = world.disk.cached_tree(), other.disk.cached_tree()
    path = logs(tree)[1]
    refused({**tree, path: content(foreign, path)}, world.clock, kind=StoreForeign)
    refused({**tree, MANIFEST_PATH: content(foreign, MANIFEST_PATH)}, world.clock, kind=StoreDamaged)


@pytest.mark.parametrize("effect", [Effect.EIO, Effect.EACCES])
@pytest.mark.parametrize("call", [Call.READ, Call.OPEN, Call.LIST])
def test_F37_what_cannot_be_read_is_never_taken_for_empty(call: Call, effect: Effect) -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    at = 0
    while True:
        disk = FakeDisk.of_tree(tree, boot="boot-1")
        faulty = FaultFs(disk, [Fault(call, at, effect)])
        refusal: StoreError | None = None
        try:
            Core.open(faulty, world.clock, TINY)
        except StoreIOError as error:
            refusal = error
        if not faulty.struck:
            break
        assert refusal is not None or at > 0, "an error was passed over"
        sound = World(disk.killed(), clock=world.clock.restart(), oracle=world.oracle.copy())
        sound.crash = Crash.KILL
        sound.start()
        at += 1
    assert at > 0


def test_F38_a_short_read_is_not_the_end_of_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fs = OsFs(str(tmp_path))
    (tmp_path / "f").write_bytes(bytes(range(256)) * 40)
    handle = os.open(tmp_path / "f", os.O_RDONLY)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: pread(fd, min(length, 700), offset))
    assert fs.pread(handle, 9000, 100) == (bytes(range(256)) * 40)[100:9100]
    assert len(fs.pread(handle, 1 << 20, 0)) == 10240
    os.close(handle)
    fs.shut()


def test_F39_a_newer_format_is_refused_with_both_versions() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    store = decode_meta(content(tree, STORE_PATH), StoreInfo)
    newer = encode_meta(StoreInfo(store_id=store.store_id, format=FORMAT_VERSION + 1, created_ms=store.created_ms))
    message = str(refused({**tree, STORE_PATH: newer}, world.clock, kind=StoreForeign))
    assert str(FORMAT_VERSION) in message
    assert str(FORMAT_VERSION + 1) in message


def test_F40_temporary_files_go_after_a_good_recovery_and_unknown_files_stay() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    extra: Tree = {
        "LOCK.tmp": b"half",
        "meta/MANIFEST.tmp": b"",
        "wal/shard-00/wal-00000000000000999424-9.log.tmp": b"x" * 100,
        "wal/shard-00/notes.txt": b"mine",
        "README": b"mine too",
    }
    disk = FakeDisk.of_tree({**tree, **extra}, boot="boot-1")
    Core.open(disk, world.clock, TINY)
    after = disk.cached_tree()
    assert not [path for path in after if path.endswith(".tmp")]
    assert after["README"] == b"mine too"
    assert after["wal/shard-00/notes.txt"] == b"mine"


def test_F41_a_crash_at_each_step_of_a_recovery_twice_over_converges() -> None:
    """Each image that SIGKILL or a power failure leaves of a write is recovered, and each such recovery is crashed."""
    world = World().start()
    world.append("t", 4, size=300)
    world.append("f", 1, ack_fsync=True)
    effort = Effort(images_max=8, sample=2, deep_every=2, nested_max=5, nested_total_max=200)
    prober = Prober("F41", effort, Tally())
    world.probe = prober
    world.append("t", 2, size=700)
    assert prober.tally.kinds["kill"] > 1
    assert prober.tally.kinds["power"] > 1
    assert prober.tally.nested > 100
    assert prober.tally.reopened > 2


def test_F42_the_end_of_the_log_is_repaired_durably_before_anything_new() -> None:
    """What a recovery cut is on no later image: neither by a crash right after it nor by one after new writes."""
    world = World().start()
    world.append("t", 2)
    world.settle()
    world.append("t", 9, size=400, wait=False)
    step = world.disk.step
    world.core.turn()
    assert world.disk.last_write is not None
    file, offset = world.disk.last_write[0], world.disk.last_write[1]
    world.power_off(Cut(world.disk.step, ((file.number, offset // SECTOR + 2, step),))).start()
    world.append("t", 1)
    for cut in power_cuts(world.disk, random.Random(2), 8):
        again = World(world.disk.powered_off(cut, "boot-7"), clock=world.clock.reboot(), oracle=world.oracle.copy())
        again.oracle.power_failures += 1
        again.crash = Crash.POWER
        again.start()


def test_F57_a_second_process_on_the_directory_is_told_and_changes_nothing(tmp_path: Path) -> None:
    first, second = OsFs(str(tmp_path / "d"), create=True), OsFs(str(tmp_path / "d"))
    core = Core.open(first, ManualClock(), TINY)
    before = sorted(path.name for path in (tmp_path / "d").rglob("*"))
    with pytest.raises(StoreLocked) as refusal:
        Core.open(second, ManualClock(), TINY)
    assert refusal.value.exit_code == 73
    assert sorted(path.name for path in (tmp_path / "d").rglob("*")) == before
    core.close()
    second.shut()
    first.shut()


def test_F58_a_directory_that_was_moved_away_makes_the_store_read_only(tmp_path: Path) -> None:
    fs, clock = OsFs(str(tmp_path / "d"), create=True), ManualClock()
    core = Core.open(fs, clock, TINY)
    assert not is_read_only(core)
    (tmp_path / "d").rename(tmp_path / "e")
    clock.tick(5000)
    core.advance()
    assert is_read_only(core)
    fs.shut()


def test_F60_storms_of_kills_leave_every_acked_record() -> None:
    world = World().start()
    for _ in range(25):
        world.append("t", 2, size=200)
        world.append("f", 1, ack_fsync=True)
        world.kill().start()
        world.check()
    assert len(logs(world.disk.cached_tree())) < 60


def test_F61_blocks_written_out_of_order_are_cut_at_the_hole_and_seqs_go_on_behind_a_gap() -> None:
    world = World().start()
    world.append("t", 2)
    world.append("t", 1, ack_fsync=True)
    world.lag = 1000
    world.append("t", 3, size=500)
    step = world.disk.step
    world.append("t", 3, size=500)
    nodes = [node for path, node in world.disk.nodes() if path.endswith(".log") and isinstance(node, File)]
    file, first = next(
        (file, change) for file in nodes for change in file.pending if change.data and any(change.data[:8])
    )
    assert first.step <= step
    world.power_off(Cut(world.disk.step, ((file.number, first.offset // SECTOR + 1, 0),))).start()
    page = world.core.page("t", PageRequest(from_seq=3))
    assert page.tombstone is not None
    assert page.tombstone.reason == "crash"
    assert world.core.state("t").next_seq == 3 + SYNC_WINDOW + 1


@pytest.mark.parametrize(
    ("boot", "lost"),
    [("boot-1", False), ("boot-2", True), ("", True)],
    ids=["same", "another", "unreadable"],
)
def test_F62_the_boot_id_decides_whether_seqs_were_lost(boot: str, lost: bool) -> None:
    world = World().start()
    world.append("t", 2)
    world.kill()
    core = open_tree(world.disk.cached_tree(), world.clock, boot)
    assert core.state("t").count == 2
    assert core.state("t").next_seq == (3 + SYNC_WINDOW if lost else 3)


def test_F62_a_lock_that_cannot_be_read_counts_as_another_boot() -> None:
    world = World().start()
    world.append("t", 2)
    world.kill()
    tree = spoil(world.disk.cached_tree(), LOCK_PATH, 5)
    assert open_tree(tree, world.clock).state("t").next_seq == 3 + SYNC_WINDOW


def test_F62_a_stop_in_good_order_needs_no_boot_id() -> None:
    world = stopped()
    tree = world.disk.cached_tree()
    assert decode_meta(content(tree, LOCK_PATH), LockInfo).state == "stopped"
    assert open_tree(tree, world.clock, "boot-5").state("a").next_seq == 3


def test_F66_a_clock_set_back_lets_no_time_fall_and_one_set_forward_expires_nothing_at_once() -> None:
    world = World().start()
    world.append("t", 1, config=ConfigChanges(ttl_ms=60_000))
    world.clock.wall_step(-3_600_000)
    world.append("t", 1)
    world.clock.wall_step(86_400_000 + 3_600_000)
    world.step(1000)
    world.append("t", 1)
    times = [ts for _, ts, _ in view_records(world)]
    assert times == sorted(times)
    assert len(times) == 3
    world.step(STEADY_MS + 1000)
    world.step(1)
    assert view_records(world) == []


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_F66_a_clock_set_forward_expires_nothing_at_once_across_a_restart_either(how: str) -> None:
    world = World().start()
    world.append("t", 1, config=ConfigChanges(ttl_ms=60_000))
    world.step(10_000)
    world.clock.wall_step(2 * 86_400_000)
    for _ in range(3):
        {"stop": world.stop, "kill": world.kill}[how]()
        world.start()
        world.append("t", 1)
        assert len(view_records(world)) == world.core.state("t").head_seq
    last = [ts for _, ts, _ in view_records(world)][-1]
    world.step(60_000 - 10_000)
    assert len(view_records(world)) == 3, "its own time goes on"
    world.step(STEADY_MS - 50_000 + 1000)
    world.step(1)
    assert view_records(world) == [], "it was no mistake"
    world.append("t", 1)
    assert next(ts for _, ts, _ in view_records(world)) > last + 86_400_000


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_F66_a_clock_set_back_revives_nothing_across_a_restart_either(how: str) -> None:
    world = World().start()
    world.append("t", 1, config=ConfigChanges(ttl_ms=60_000))
    world.settle().step(60_001)
    assert view_records(world) == []
    world.clock.wall_step(-3_600_000)
    {"stop": world.stop, "kill": world.kill}[how]()
    world.start()
    assert view_records(world) == []


def test_F66_after_another_boot_the_wall_clock_is_all_there_is() -> None:
    world = World().start()
    world.append("t", 1, config=ConfigChanges(ttl_ms=60_000))
    world.settle()
    same = World(disk=world.disk.killed(), clock=world.clock.reboot()).start()
    assert len(view_records(same)) == 1
    world.clock.wall_step(86_400_000)
    world.lose_nothing().start()
    assert view_records(world) == []


def view_records(world: World) -> list[tuple[object, int, bytes]]:
    """What readers of `t` get now."""
    records = look(world.core).topics["t"].records
    return [records[seq] for seq in sorted(records)]


def test_F66_engine_time_never_falls() -> None:
    clock = ManualClock()
    time = EngineTime(clock, 0)
    seen = []
    for step in (0, -5000, 90_000_000, -90_000_000, 10):
        clock.wall_step(step)
        clock.tick(10)
        seen.append(time.advance())
    assert seen == sorted(seen)
