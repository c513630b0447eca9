"""A place: what makes a file of it once, in a directory and in a bucket, and who must not be trusted with it."""

from __future__ import annotations

import errno
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.fs import OpenMode, OsFs
from engine.move.place import BucketPlace, DirectoryPlace, Place, PlaceFs
from engine.segment.objects import Got, Listed, ObjectError
from tests.sim.disk import FakeDisk


class Kept:
    """A bucket in memory; `blind`: it takes a conditional put for any put. `lose`: answers of puts that get lost."""

    def __init__(self, *, blind: bool = False, lose: int = 0) -> None:
        self.objects: dict[str, bytes] = {}
        self._blind, self._lose = blind, lose

    def put(self, key: str, data: bytes, *, new: bool) -> None:
        if new and not self._blind and key in self.objects:
            raise FileExistsError(key)
        self.objects[key] = data
        if self._lose:
            self._lose -= 1
            raise ObjectError("the answer got lost", again=True)

    def put_parts(self, key: str, parts: Iterator[bytes]) -> int:
        self.objects[key] = b"".join(parts)
        return 3

    def get(self, key: str, offset: int, length: int) -> Got:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return Got(self.objects[key][offset : offset + length], len(self.objects[key]))

    def head(self, key: str) -> int:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return len(self.objects[key])

    def list(self, prefix: str) -> Listed:
        rest = [key[len(prefix) :] for key in self.objects if key.startswith(prefix)]
        return Listed(sorted({name.partition("/")[0] for name in rest}), 1)

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


@pytest.mark.parametrize("kind", ["directory", "bucket", "bucket that loses an answer"])
def test_the_first_content_stays(kind: str) -> None:
    disk, kept = FakeDisk(), Kept(lose=int(kind.endswith("answer")))

    def place() -> Place:
        return DirectoryPlace(disk) if kind == "directory" else BucketPlace(kept)

    assert place().put_once("moves/t/x/TAKEN", b"one", "1") == b"one"
    assert place().put_once("moves/t/x/TAKEN", b"two", "2") == b"one"
    assert place().put_once("moves/t/x/TAKEN", b"one", "1") == b"one"
    assert place().list("moves/t/x") == ["TAKEN"]


def test_a_server_without_conditional_puts_is_refused() -> None:
    kept = Kept(blind=True)
    with pytest.raises(OSError, match="conditional put") as refused:
        BucketPlace(kept).put_once("moves/t/x/TAKEN", b"one", "1")
    assert refused.value.errno == errno.EOPNOTSUPP
    assert not kept.objects


def test_a_data_directory_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("x")
    with pytest.raises(OSError, match="data directory"):
        DirectoryPlace(OsFs(str(tmp_path)))


def test_what_an_attempt_has_left_is_in_nobodys_way() -> None:
    disk = FakeDisk()
    place = DirectoryPlace(disk)
    place.put("moves/t/x/TAKEN.1.tmp", [b"half"])
    assert place.put_once("moves/t/x/TAKEN", b"one", "1") == b"one"
    assert place.list("moves/t/x") == ["TAKEN"]


def _try(directory: str, mine: int, go: multiprocessing.synchronize.Event, results: multiprocessing.Queue[int]) -> None:
    place = DirectoryPlace(OsFs(directory))
    go.wait(60)
    for round_ in range(50):
        found = place.put_once(f"moves/t/{round_}/TAKEN", b"%d" % mine, str(mine))
        results.put(round_ * 1000 + int(found) * 10 + (int(found) == mine))


@pytest.mark.slow
def test_of_processes_that_try_at_once_each_is_told_the_same(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    go, results = context.Event(), context.Queue()
    arguments = [(str(tmp_path), mine, go, results) for mine in (1, 2, 3)]
    tried = [context.Process(target=_try, args=given, daemon=True) for given in arguments]
    for process in tried:
        process.start()
    go.set()
    told: dict[int, list[int]] = {}
    for _ in range(150):
        round_, found = divmod(results.get(timeout=120), 1000)
        told.setdefault(round_, []).append(found)
    for process in tried:
        process.join(60)
        assert process.exitcode == 0
    for round_, found in told.items():
        assert len({one // 10 for one in found}) == 1, f"round {round_} has more than one owner"
        assert sum(one % 10 for one in found) == 1


def test_files_of_a_place_are_read_and_nothing_else() -> None:
    place = DirectoryPlace(FakeDisk())
    place.put("base/meta/a", [b"0123456789"])
    place.put("base/meta/c", [b"other"])
    fs = PlaceFs(place, "base", {"meta/a": 10, "meta/c": 5})
    handle, other = fs.open("meta/a", OpenMode.READ), fs.open("meta/c", OpenMode.READ)
    assert fs.pread(other, 9, 0) == b"other"
    assert (fs.pread(handle, 4, 3), fs.pread(handle, 9, 8), fs.pread(handle, 1, 10), fs.size(handle)) == (
        b"3456",
        b"89",
        b"",
        10,
    )
    assert (fs.list(""), fs.list("meta"), fs.exists("meta"), fs.exists("b")) == (["meta"], ["a", "c"], True, False)
    with pytest.raises(FileNotFoundError):
        fs.open("meta/b", OpenMode.READ)
    for change in (
        lambda: fs.open("meta/b", OpenMode.CREATE),
        lambda: fs.unlink("meta/a"),
        lambda: fs.mkdir("x"),
        lambda: fs.rename("meta/a", "b"),
        lambda: fs.pwritev(handle, [b"x"], 0),
    ):
        with pytest.raises(OSError, match="only read"):
            change()
    fs.close(handle)
