"""What is said of a directory that a command could not fill, or may not."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from topics_cli.exits import Failure
from topics_cli.filled import check_empty, unfinished


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "free some space there"), (errno.EROFS, "mount it for writing"), (errno.EIO, "look at the disk")],
)
def test_an_error_of_the_disk_says_what_helps_and_what_the_directory_is_now(number: int, said: str) -> None:
    failure = unfinished(OSError(number, "bad luck"), "new", "store")
    assert failure.what == "bad luck (new)"
    assert failure.hint.startswith("what is in new is no store")
    assert said in failure.hint
    assert failure.hint.endswith("remove it, and run this again")
    before = unfinished(OSError(number, "bad luck", "wal/x.log"), None, "store")
    assert before.what == "bad luck (wal/x.log)"
    assert before.hint.startswith("nothing was written")


def test_what_a_command_that_did_not_end_has_left_is_called_so(tmp_path: Path) -> None:
    check_empty(str(tmp_path), "STORE")
    check_empty(str(tmp_path / "new"), "STORE")
    (tmp_path / "mine").touch()
    with pytest.raises(Failure, match="is not empty") as caught:
        check_empty(str(tmp_path), "STORE")
    assert "empty directory" in caught.value.hint
    for begun in (tmp_path / "meta", tmp_path / "LOCK"):
        begun.mkdir()
        with pytest.raises(Failure) as caught:
            check_empty(str(tmp_path), "STORE")
        assert "did not end" in caught.value.hint
        begun.rmdir()
    (tmp_path / "meta").mkdir()
    with pytest.raises(Failure) as caught:
        check_empty(str(tmp_path), "STORE")
    assert "did not end" in caught.value.hint
    (tmp_path / "STORE").touch()
    with pytest.raises(Failure) as caught:
        check_empty(str(tmp_path), "STORE")
    assert "empty directory" in caught.value.hint
