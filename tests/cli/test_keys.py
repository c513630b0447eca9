"""Keys on the command line: where they come from, that none is an argument, and what a refusal ends with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Daemon, clean_environment, run, short_directory
from topics_cli.table import COMMANDS
from topics_cli.table_quick import COMMON

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def keyed() -> Iterator[Daemon]:
    """A daemon with keys."""
    for directory in short_directory():
        daemon = Daemon(directory, TOPICS_API_KEYS="s3cret-full,s3cret-read:read,s3cret-mine:rw:mine")
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()


def test_a_key_comes_from_the_flag_the_variable_or_the_file_of_the_variable(keyed: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret-full\n")
    wrong = tmp_path / "wrong"
    wrong.write_text("s3cret-no\n")
    assert keyed.run("create", "a", "--key-file", str(file)).returncode == 0
    assert keyed.run("write", "a", "x", TOPICS_KEY="s3cret-full").returncode == 0
    assert keyed.run("tail", "a", TOPICS_KEY_FILE=str(file)).returncode == 0
    # The flag wins over the variable, which wins over the other one.
    assert keyed.run("ls", "--key-file", str(file), TOPICS_KEY="s3cret-no").returncode == 0
    assert keyed.run("ls", TOPICS_KEY="s3cret-full", TOPICS_KEY_FILE=str(wrong)).returncode == 0


@pytest.mark.parametrize(
    ("words", "key", "code"),
    [
        (["ls"], "", "unauthorized"),
        (["write", "a", "x"], "s3cret-no", "unauthorized"),
        (["write", "a", "x"], "s3cret-read", "forbidden"),
        (["diff", "other"], "s3cret-mine", "forbidden"),
        (["create", "mine"], "s3cret-mine", "forbidden"),
        (["drop", "other", "--yes"], "s3cret-mine", "forbidden"),
        (["tail", "other"], "s3cret-mine", "forbidden"),
    ],
)
def test_77_is_a_key_that_is_missing_wrong_or_not_good_for_it(
    keyed: Daemon, words: list[str], key: str, code: str
) -> None:
    more: Any = {"TOPICS_KEY": key} if key else {}
    done = keyed.run(*words, **more)
    assert done.returncode == 77, done
    assert code.encode() in done.stderr
    assert b"s3cret" not in done.stdout + done.stderr
    as_json = keyed.run(*words, "-o", "json", **more)
    assert json.loads(as_json.stderr.splitlines()[-1])["error"]["code"] == code


@pytest.mark.parametrize("key", ["two words", "line\nEvil: header", "schlüssel", "bell\x07"])
def test_what_no_header_can_carry_is_no_key_and_is_not_shown(keyed: Daemon, tmp_path: Path, key: str) -> None:
    done = keyed.run("ls", TOPICS_KEY=key)
    assert done.returncode == 78
    assert key[:3].encode() not in done.stderr
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe\n")
    assert keyed.run("ls", "--key-file", str(file)).returncode == 78


def test_no_option_takes_a_key_itself() -> None:
    options = [*COMMON, *(option for command in COMMANDS.values() for option in command.options)]
    flags = {flag for option in options for flag in option.flags if "key" in flag or "token" in flag}
    assert flags == {"--key-file", "--key-from", "--idempotency-key", "--token"}, "a move's token is a name, no secret"
    done = run("ls", "--key", "s3cret", environment=clean_environment())
    assert done.returncode == 2
