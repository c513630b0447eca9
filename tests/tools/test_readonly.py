"""A directory that is only looked at refuses everything else."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.fs import OpenMode
from engine.tools.readonly import ReadOnlyFs

CHANGES: dict[str, Callable[[ReadOnlyFs], object]] = {
    "open": lambda fs: fs.open("a", OpenMode.WRITE),
    "create": lambda fs: fs.open("b", OpenMode.CREATE),
    "pwritev": lambda fs: fs.pwritev(0, [b"x"], 0),
    "fdatasync": lambda fs: fs.fdatasync(0),
    "fsync_dir": lambda fs: fs.fsync_dir(""),
    "rename": lambda fs: fs.rename("a", "b"),
    "link": lambda fs: fs.link("a", "b"),
    "unlink": lambda fs: fs.unlink("a"),
    "rmdir": lambda fs: fs.rmdir("b"),
    "mkdir": lambda fs: fs.mkdir("b"),
    "allocate": lambda fs: fs.allocate(0, 0, 1),
    "truncate": lambda fs: fs.truncate(0, 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"whole")
    fs = ReadOnlyFs(str(tmp_path))
    with pytest.raises(OSError, match="only looked at") as raised:
        CHANGES[name](fs)
    assert raised.value.errno == errno.EROFS
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"whole"
    fs.shut()


def test_reading_works_and_takes_no_lock(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"whole")
    first, second = ReadOnlyFs(str(tmp_path)), ReadOnlyFs(str(tmp_path))
    assert first.lock()
    assert second.lock()
    handle = first.open("a", OpenMode.READ)
    assert first.pread(handle, 9, 0) == b"whole"
    first.close(handle)
    first.shut()
    second.shut()
