"""The simulated disk: it reads like a real one, and it forgets what a real one may forget."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from engine.fs import Fs, OpenMode, OsFs, replace_file, write_whole
from tests.sim.choices import Choices, enumerate_runs
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.images import kill_points, power_cuts
from tests.sim.media import ALL, Cut, tree_hash


def write(fs: Fs, path: str, data: bytes, offset: int = 0, *, new: bool = True) -> int:
    handle = fs.open(path, OpenMode.CREATE if new else OpenMode.WRITE)
    write_whole(fs, handle, (data,), offset)
    return handle


def random_work(fs: Fs, choices: Choices, steps: int) -> None:
    """The same calls, whatever file system they meet."""
    names = ["a", "d/b", "d/c"]
    handles: dict[str, int] = {}
    fs.mkdir("d")
    for step in range(steps):
        name = choices.of(names)
        call = choices.below(8)
        if name not in handles and not fs.exists(name):
            handles[name] = fs.open(name, OpenMode.CREATE)
        elif name not in handles:
            handles[name] = fs.open(name, OpenMode.WRITE)
        handle = handles[name]
        if call < 3:
            offset = choices.below(3000)
            write_whole(fs, handle, (bytes([step % 255 + 1]) * (1 + choices.below(900)),), offset)
        elif call == 3:
            fs.truncate(handle, choices.below(4000))
        elif call == 4:
            fs.allocate(handle, 0, 1 + choices.below(5000))
        elif call == 5:
            fs.fdatasync(handle)
            fs.fsync_dir("d")
        elif call == 6:
            other = choices.of(names)
            for path in {name, other}:
                if path in handles:
                    fs.close(handles.pop(path))
            fs.rename(name, other)
        else:
            fs.close(handles.pop(name))
            fs.unlink(name)
    for handle in handles.values():
        fs.close(handle)


def content(fs: Fs) -> dict[str, bytes]:
    found = {}
    for path in ("a", "d/b", "d/c"):
        if fs.exists(path):
            handle = fs.open(path, OpenMode.READ)
            found[path] = fs.pread(handle, 1 << 20, 0)
            assert len(found[path]) == fs.size(handle)
            fs.close(handle)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_reads_like_a_real_file_system(seed: int, tmp_path: Path) -> None:
    real, fake = OsFs(str(tmp_path)), FakeDisk()
    for fs in (real, fake):
        random_work(fs, Choices((), random.Random(seed)), 60)
    assert content(fake) == content(real)
    assert fake.list("d") == real.list("d")
    real.shut()


@pytest.mark.parametrize("seed", range(20))
def test_every_image_is_between_what_is_durable_and_what_was_written(seed: int) -> None:
    """All arrived is what reads see; none arrived is what the last syncs covered; a killed process sees the cache."""
    disk = FakeDisk()
    random_work(disk, Choices((), random.Random(seed)), 40)
    everything = disk.cached_tree()
    assert disk.tree_after(Cut(ALL)) == everything
    assert disk.killed().cached_tree() == everything
    for cut in power_cuts(disk, random.Random(seed), 8):
        assert Cut.parse(cut.token()) == cut
        assert disk.killed().tree_after(cut) == disk.tree_after(cut), "a killed process changes nothing on the disk"
    for path, _ in disk.nodes():
        if path != "d" and disk.exists(path):
            handle = disk.open(path, OpenMode.WRITE)
            disk.fdatasync(handle)
            disk.close(handle)
    disk.fsync_dir("d")
    disk.fsync_dir("")
    assert disk.tree_after(Cut(0)) == everything


def test_nothing_is_durable_before_its_sync() -> None:
    disk = FakeDisk()
    handle = write(disk, "f", b"x" * 1000)
    assert disk.tree_after(Cut(0)) == {}
    disk.fsync_dir("")
    assert disk.tree_after(Cut(0)) == {"f": b""}, "an entry without its data"
    disk.fdatasync(handle)
    assert disk.tree_after(Cut(0)) == {"f": b"x" * 1000}


def test_a_rename_may_arrive_without_its_data_and_old_or_new_is_always_there() -> None:
    disk = FakeDisk()
    write(disk, "f", b"old")
    disk.fdatasync(3)
    disk.fsync_dir("")
    write(disk, "g", b"new")
    disk.rename("g", "f")
    seen = {disk.tree_after(cut).get("f") for cut in power_cuts(disk, random.Random(0))}
    assert seen == {b"old", b"new", b"", bytes(3)}
    replaced = FakeDisk()
    write(replaced, "f", b"old")
    replaced.fdatasync(3)
    replaced.fsync_dir("")
    contents: set[bytes | None] = set()
    replaced.on_step = lambda disk, what: contents.update(
        disk.tree_after(cut).get("f") for cut in power_cuts(disk, random.Random(0))
    )
    replace_file(replaced, "f", b"new")
    assert contents == {b"old", b"new"}, "replace_file gives one or the other at every step"


def test_sectors_tear_and_go_missing() -> None:
    disk = FakeDisk()
    handle = write(disk, "f", bytes(4 * 512))
    disk.fdatasync(handle)
    disk.fsync_dir("")
    disk.pwritev(handle, [b"1" * 512 + b"2" * 512, b"3" * 512], 256)
    images = {disk.tree_after(cut)["f"] for cut in power_cuts(disk, random.Random(0))}
    assert len(images) == 16, "every subset of the four sectors that the write touches"
    assert {len(image or b"") for image in images} == {2048}


def test_a_failed_sync_leaves_pages_that_no_later_sync_writes() -> None:
    disk = FakeDisk()
    handle = write(disk, "f", bytes(2048))
    disk.fdatasync(handle)
    disk.fsync_dir("")
    faulty = FaultFs(disk, [Fault(Call.SYNC, 0, Effect.FAILED_SYNC)])
    disk.pwritev(handle, [b"a" * 512], 0)
    with pytest.raises(OSError, match="Input"):
        faulty.fdatasync(handle)
    disk.pwritev(handle, [b"b" * 512], 1024)
    faulty.fdatasync(handle)
    assert disk.pread(handle, 512, 0) == b"a" * 512, "reads still show it"
    assert disk.tree_after(Cut(0))["f"] == bytes(1024) + b"b" * 512 + bytes(512)
    assert {(disk.tree_after(cut)["f"] or b"")[:1] for cut in power_cuts(disk, random.Random(0))} == {b"\0", b"a"}


def test_a_sync_that_began_earlier_leaves_later_writes_pending() -> None:
    disk = FakeDisk()
    handle = write(disk, "f", bytes(8192))
    disk.fdatasync(handle)
    disk.fsync_dir("")
    disk.pwritev(handle, [b"a" * 512], 0)
    view = disk.begin_sync()
    disk.pwritev(handle, [b"b" * 512], 4096)
    view.fdatasync(handle)
    durable = disk.tree_after(Cut(0))["f"]
    assert durable is not None
    assert durable[:1] == b"a"
    assert durable[4096:4097] == b"\0"


def test_a_kill_cuts_the_write_under_way() -> None:
    disk = FakeDisk()
    handle = write(disk, "f", b"x" * 100)
    disk.pwritev(handle, [b"y" * 1000], 50)
    seen = {disk.killed(wrote).cached_tree()["f"] for wrote in kill_points(disk)}
    assert b"x" * 50 + b"y" * 1000 in seen
    assert b"x" * 100 in seen
    assert b"x" * 50 + b"y" * 462 in seen
    for wrote in kill_points(disk):
        killed = disk.killed(wrote)
        assert killed.tree_after(Cut(ALL)) == killed.cached_tree()


def test_space_runs_out_and_comes_back() -> None:
    disk = FakeDisk(capacity=16384, inodes=2)
    handle = write(disk, "f", b"x" * 8192)
    with pytest.raises(OSError, match="No space") as failed:
        disk.allocate(handle, 0, 20000)
    assert failed.value.errno == errno.ENOSPC
    assert disk.size(handle) == 8192
    assert disk.space().bytes_free == 8192
    assert disk.pwritev(handle, [b"y" * 12000], 8192) == 8192, "a write takes what fits"
    with pytest.raises(OSError, match="No space"):
        disk.pwritev(handle, [b"z"], 16384)
    disk.truncate(handle, 4096)
    assert disk.space().bytes_free == 12288
    other = disk.open("g", OpenMode.CREATE)
    with pytest.raises(OSError, match="No space"):
        disk.open("h", OpenMode.CREATE)
    disk.close(other)
    disk.unlink("g")
    disk.unlink("f")
    assert disk.space().bytes_free == 12288, "an open file keeps its space"
    disk.close(handle)
    assert disk.space().bytes_free == 16384
    assert disk.space().inodes_free == 2


def test_tokens_replay_runs() -> None:
    runs = {choices.token(): result for choices, result in enumerate_runs(lambda c: (c.below(2), c.below(3)))}
    assert len(runs) == 6
    for token, result in runs.items():
        again = Choices.replay(token)
        assert (again.below(2), again.below(3)) == result
    fault = Fault(Call.SYNC, 3, Effect.FAILED_SYNC, lasting=True, path="wal/")
    assert Fault.parse(fault.token()) == fault


def test_hash_tells_trees_apart() -> None:
    assert tree_hash({"a": b"1"}) != tree_hash({"a": b"2"}) != tree_hash({"b": b"2"})
    assert tree_hash({"a": None}) != tree_hash({"a": b""})
