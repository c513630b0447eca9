"""Making log files ahead: what is durable when, what a full disk says, what is left of a failed attempt."""

from __future__ import annotations

import contextlib
import errno

import pytest

from engine.formats.header import FILE_HEADER_LEN, FileKind, parse_file_header
from engine.fs import OpenMode
from engine.limits import KIB
from engine.wal.chain import DATA_START, LogFile
from engine.wal.prepare import (
    Extend,
    Fill,
    OpenFile,
    Prepare,
    abandon_log_file,
    begin_log_file,
    check_space,
    finish_log_file,
    zero_fill,
)
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs
from tests.sim.media import Cut

STORE_ID = bytes(range(16))
LOG = LogFile(0, 4096, 2, 64 * KIB)


def a_disk(capacity: int = 1 << 30, inodes: int = 1 << 20) -> FakeDisk:
    disk = FakeDisk(capacity=capacity, inodes=inodes)
    for directory in ("wal", "wal/shard-00", "meta"):
        disk.mkdir(directory)
        disk.fsync_dir(directory.rpartition("/")[0])
    return disk


def test_F19_a_prepared_file_is_durable_with_its_name_its_header_and_the_manifest() -> None:
    disk = a_disk()
    chore = Prepare(LOG, STORE_ID, 5, 10_000, 0, b"manifest")
    chore.run(disk)
    assert chore.made is not None
    assert chore.made.filled_lsn == 4096 + 12_288
    tree = disk.powered_off(Cut(0)).cached_tree()
    content = tree[LOG.path]
    assert content is not None
    assert len(content) == LOG.size
    header = parse_file_header(content)
    assert header is not None
    assert (header.kind, header.id, header.first, header.run) == (FileKind.WAL, 0, 4096, 2)
    assert (header.store_id, header.created_ms) == (STORE_ID, 5)
    assert not any(content[FILE_HEADER_LEN:])
    assert tree["meta/MANIFEST"] == b"manifest"
    disk.pwritev(chore.made.handle, [b"usable"], DATA_START)


@pytest.mark.parametrize("call", [Call.CREATE, Call.ALLOCATE, Call.WRITE, Call.SYNC, Call.RENAME, Call.SYNC_DIR])
def test_F17_a_failed_attempt_leaves_no_handle_and_nothing_in_the_way_of_the_next(call: Call) -> None:
    for at in range(3):
        disk = a_disk()
        faulty = FaultFs(disk, [Fault(call, at, Effect.ENOSPC)])
        chore = Prepare(LOG, STORE_ID, 5, 4096, 0, b"manifest")
        with contextlib.suppress(OSError):
            chore.run(faulty)
        assert (chore.made is None) == bool(faulty.struck)
        assert len(disk._handles) == (chore.made is not None)
        again = Prepare(LOG, STORE_ID, 6, 4096, 0, b"later")
        again.run(disk)
        assert disk.list("wal/shard-00") == [LOG.path.rpartition("/")[2]]
        assert disk.powered_off(Cut(0)).cached_tree()["meta/MANIFEST"] == b"later"


def test_F40_a_file_that_cannot_be_removed_is_left_and_replaced_by_the_next_attempt() -> None:
    disk = a_disk()
    handle = begin_log_file(disk, LOG, STORE_ID, 5)
    abandon_log_file(FaultFs(disk, [Fault(Call.UNLINK, 0, Effect.EACCES)]), LOG, handle)
    assert disk.exists(LOG.path + ".tmp")
    handle = begin_log_file(disk, LOG, STORE_ID, 5)
    finish_log_file(disk, LOG, handle)
    assert not disk.exists(LOG.path + ".tmp")


def test_F20_free_space_is_asked_before_anything_is_made() -> None:
    disk = a_disk(capacity=1000 * KIB)
    check_space(disk, 900 * KIB, 100 * KIB)
    with pytest.raises(OSError, match="must stay free") as raised:
        check_space(disk, 901 * KIB, 100 * KIB)
    assert raised.value.errno == errno.ENOSPC
    check_space(disk, 875 * KIB, 1 << 40)
    with pytest.raises(OSError, match=f"{125 * KIB} must stay free"):
        check_space(disk, 876 * KIB, 1 << 40)


def test_F22_lack_of_inodes_is_said_and_lack_of_blocks_is_not_called_so() -> None:
    with pytest.raises(OSError, match="no inodes left") as raised:
        begin_log_file(a_disk(inodes=0), LOG, STORE_ID, 5)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        begin_log_file(a_disk(capacity=8 * KIB), LOG, STORE_ID, 5)


def test_zeros_replace_what_was_there_exactly() -> None:
    disk = a_disk()
    handle = disk.open("x", OpenMode.CREATE)
    disk.pwritev(handle, [b"x" * 800 * KIB], 0)
    zero_fill(disk, handle, 10, 700 * KIB)
    content = disk.pread(handle, 800 * KIB, 0)
    assert content == b"x" * 10 + bytes(700 * KIB) + b"x" * (100 * KIB - 10)


def test_a_fill_is_synced_through_a_handle_of_its_own_and_ends_with_the_file() -> None:
    disk = a_disk()
    Prepare(LOG, STORE_ID, 5, 4096, 0, b"").run(disk)
    file = OpenFile(LOG, 99, 4096 + 4096)
    for length, filled in ((5000, 4096 + 4096 + 8192), (1 << 30, LOG.end_lsn)):
        chore = Fill(file, length)
        fs = FaultFs(disk)
        chore.run(fs)
        assert chore.filled_lsn == filled
        assert fs.calls[Call.OPEN] == fs.calls[Call.SYNC] == 1
        assert disk.size(3) == LOG.size


def test_F10_an_error_of_a_fill_is_raised() -> None:
    disk = a_disk()
    Prepare(LOG, STORE_ID, 5, 4096, 0, b"").run(disk)
    for call in (Call.OPEN, Call.WRITE, Call.SYNC):
        before = len(disk._handles)
        with pytest.raises(OSError, match="Input/output"):
            Fill(OpenFile(LOG, 99, 8192), 4096).run(FaultFs(disk, [Fault(call, 0, Effect.EIO)]))
        assert len(disk._handles) == before


def test_an_extended_file_is_durable_before_the_manifest_says_so() -> None:
    disk = a_disk()
    Prepare(LOG, STORE_ID, 5, 4096, 0, b"short").run(disk)
    chore = Extend(LOG, 128 * KIB, 0, b"long")
    with pytest.raises(OSError, match="Input/output"):
        chore.run(FaultFs(disk, [Fault(Call.SYNC, 0, Effect.EIO)]))
    assert disk.powered_off(Cut(0)).cached_tree()["meta/MANIFEST"] == b"short"
    chore.run(disk)
    tree = disk.powered_off(Cut(0)).cached_tree()
    assert tree["meta/MANIFEST"] == b"long"
    assert len(tree[LOG.path] or b"") == 128 * KIB == chore.longer.size
