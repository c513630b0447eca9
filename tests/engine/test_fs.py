"""The real file system and the simulated ones: reads that must not wait, what is no file, a full disk."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from engine.fs import INODES_MANY, NoInodes, OpenMode, OsFs, Space, create, remedy, write_whole
from tests.sim.disk import FakeDisk
from tests.sim.faults import Call, Effect, Fault, FaultFs

CONTENT = bytes(range(256)) * 64


def test_what_is_in_the_page_cache_is_read_at_once(tmp_path: pathlib.Path) -> None:
    fs = OsFs(str(tmp_path))
    handle = fs.open("file", OpenMode.CREATE)
    write_whole(fs, handle, (CONTENT,), 0)
    for offset, length in ((0, 10), (5000, 9000), (0, len(CONTENT)), (len(CONTENT) - 3, 100), (len(CONTENT) + 5, 9)):
        assert fs.pread_nowait(handle, length, offset) == CONTENT[offset : offset + length]
    fs.fdatasync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    assert fs.pread_nowait(handle, 4096, 8192) in (None, CONTENT[8192:12288])
    assert fs.pread(handle, len(CONTENT), 0) == CONTENT
    assert fs.pread_nowait(handle, 4096, 8192) == CONTENT[8192:12288]
    fs.close(handle)
    with pytest.raises(OSError, match="descriptor"):
        fs.pread_nowait(handle, 1, 0)
    fs.shut()


@pytest.mark.parametrize("mode", [OpenMode.READ, OpenMode.WRITE])
def test_a_pipe_or_a_directory_of_a_files_name_is_an_error_and_waited_for_by_nobody(
    mode: OpenMode, tmp_path: pathlib.Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    fs = OsFs(str(tmp_path))
    for name in ("pipe", "directory"):
        with pytest.raises(OSError, match=r"no regular file|Is a directory"):
            fs.open(name, mode)
    fs.shut()


def test_F22_missing_inodes_are_called_so_and_only_where_there_is_an_end_of_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="no inodes left") as raised:
        create(FakeDisk(inodes=0), "file")
    assert isinstance(raised.value, NoInodes)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, "file")
    assert remedy(raised.value) == "remove files there"
    lost = FakeDisk(inodes=0)

    def unknown() -> Space:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(lost, "space", unknown)
        with pytest.raises(OSError, match="No space left") as raised:
            create(lost, "file")
    assert raised.value.errno == errno.ENOSPC
    disk = FakeDisk(capacity=0)
    handle = create(disk, "file")
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(disk, handle, (b"x",), 0)
    assert remedy(raised.value) == "free some space there"
    fs = OsFs(str(tmp_path))
    now = os.statvfs(tmp_path)
    assert fs.space().inodes_free <= now.f_files
    bare = os.statvfs_result((*now[:5], 0, 0, 0, *now[8:]))
    monkeypatch.setattr(os, "fstatvfs", lambda _: bare)
    assert fs.space().inodes_free == INODES_MANY
    fs.shut()


def test_F37_an_error_of_reading_names_the_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta").mkdir()
    fs = OsFs(str(tmp_path))
    handle = create(fs, "meta/file")

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(OSError, match="Input/output error: 'meta/file'") as raised:
        fs.pread(handle, 10, 0)
    assert raised.value.errno == errno.EIO
    fs.close(handle)
    fs.shut()


def test_a_system_that_cannot_tell_is_asked_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = OsFs(str(tmp_path))
    handle = fs.open("file", OpenMode.CREATE)
    write_whole(fs, handle, (CONTENT,), 0)
    asked = []

    def preadv(*_: object) -> int:
        asked.append(1)
        raise OSError(95, "EOPNOTSUPP")

    monkeypatch.setattr(os, "preadv", preadv)
    assert fs.pread_nowait(handle, 10, 3) == CONTENT[3:13]
    assert fs.pread_nowait(handle, 10, 3) == CONTENT[3:13]
    assert len(asked) == 1
    fs.close(handle)
    fs.shut()


def test_part_of_a_read_is_no_answer(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = OsFs(str(tmp_path))
    handle = fs.open("file", OpenMode.CREATE)
    write_whole(fs, handle, (CONTENT,), 0)
    monkeypatch.setattr(os, "preadv", lambda *_: 7)
    assert fs.pread_nowait(handle, 10, 0) is None
    fs.close(handle)
    fs.shut()


def test_the_simulated_disks_answer_as_they_are_told() -> None:
    disk = FakeDisk()
    handle = disk.open("file", OpenMode.CREATE)
    write_whole(disk, handle, (CONTENT,), 0)
    assert disk.pread_nowait(handle, 9, 4) == CONTENT[4:13]
    disk.page_cache = False
    assert disk.pread_nowait(handle, 9, 4) is None
    faulty = FaultFs(disk, [Fault(Call.READ, 1, Effect.EIO)])
    handle = faulty.open("file", OpenMode.READ)
    assert faulty.pread_nowait(handle, 1, 0) is None
    with pytest.raises(OSError, match="Input/output"):
        faulty.pread_nowait(handle, 1, 0)
