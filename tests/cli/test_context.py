"""`topics context`: named places in a file of the user, and where they stand among the other ways to say where."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.support import Daemon, clean_environment, run

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "config"


def _topics(home: Path, *words: str, cwd: Path | None = None, **more: str) -> CompletedProcess[bytes]:
    environment = {**clean_environment(), "XDG_CONFIG_HOME": str(home), **more}
    return run(*words, environment=environment, cwd=cwd or home.parent)


def test_a_context_in_use_says_where_the_daemon_is(shared: Daemon, topic: str, home: Path) -> None:
    shared.ok("write", topic, "x")
    assert _topics(home, "context", "set", "here", "--socket", shared.socket).returncode == 0
    assert _topics(home, "context", "use", "here").returncode == 0
    assert _topics(home, "tail", topic).stdout == b"x\n"
    assert b"context here" in _topics(home, "status").stdout
    assert (home / "topics/contexts.toml").stat().st_mode & 0o077 == 0
    # What is nearer wins: a directory's file, the environment, an option.
    (home.parent / ".topics.toml").write_text('url = "http://127.0.0.1:1"\n')
    assert _topics(home, "tail", topic).returncode == 69
    (home.parent / ".topics.toml").unlink()
    assert _topics(home, "tail", topic, TOPICS_SOCKET="/nowhere").returncode == 69
    assert _topics(home, "tail", topic, "--url", "http://127.0.0.1:1").returncode == 69
    assert _topics(home, "context", "use", "none").returncode == 0
    assert b"context" not in _topics(home, "context", "show").stdout


def test_contexts_are_listed_changed_and_dropped(home: Path) -> None:
    assert _topics(home, "context").stdout == b""
    _topics(home, "context", "set", "a", "--url", "http://127.0.0.1:1", "--key-file", "key", cwd=home.parent)
    _topics(home, "context", "set", "b", "--socket", 'quo"te\\d')
    _topics(home, "context", "use", "b")
    listed = json.loads(_topics(home, "context", "ls", "--json").stdout)
    assert listed == [
        {"name": "a", "used": False, "url": "http://127.0.0.1:1", "key_file": str(home.parent / "key")},
        {"name": "b", "used": True, "socket": str(home.parent / 'quo"te\\d')},
    ]
    assert _topics(home, "context", "ls", "--fields", "name,used").stdout == b"a\t-\nb\t*\n"
    _topics(home, "context", "drop", "b")
    assert _topics(home, "context", "ls").stdout.startswith(b"-\ta\thttp://127.0.0.1:1")
    assert _topics(home, "context", "show", "a").stdout.startswith(b"socket\t-\nurl\thttp://127.0.0.1:1\n")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["use", "nobody"], 3),
        (["show", "nobody"], 3),
        (["drop", "nobody"], 3),
        (["set", "x"], 2),
        (["set", "bad/name", "--socket", "s"], 2),
        (["set", "none", "--socket", "s"], 2),
        (["set", "x", "--url", "ftp://x"], 78),
        (["use"], 2),
    ],
)
def test_mistakes_change_nothing(home: Path, words: list[str], code: int) -> None:
    done = _topics(home, "context", *words)
    assert done.returncode == code, done
    assert not (home / "topics").exists()


@pytest.mark.parametrize("text", ["use = 3", "contexts = 1", "contexts = {a = 1}", 'use = "gone"', "no toml"])
def test_a_file_that_is_broken_is_said_and_never_passed_over(home: Path, text: str) -> None:
    (home / "topics").mkdir(parents=True)
    (home / "topics/contexts.toml").write_text(text)
    done = _topics(home, "ls")
    assert done.returncode == 78
    assert b"contexts.toml" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_dry_run_of_contexts_changes_nothing(home: Path) -> None:
    assert _topics(home, "context", "set", "a", "--url", "http://127.0.0.1:1", "--dry-run").returncode == 0
    assert _topics(home, "context", "ls", "-o", "json").stdout == b"[]\n"
    _topics(home, "context", "set", "a", "--url", "http://127.0.0.1:1")
    assert _topics(home, "context", "drop", "a", "--dry-run").stdout == b"a\twould be dropped\n"
    listed = b'{"name":"a","used":false,"url":"http://127.0.0.1:1"}'
    assert _topics(home, "context", "ls", "-o", "json").stdout == b"[" + listed + b"]\n"
    assert _topics(home, "context", "ls", "-o", "ndjson").stdout == listed + b"\n"
    shown = _topics(home, "context", "show", "a", "--json").stdout
    assert shown == b'{"socket":"-","url":"http://127.0.0.1:1","key_file":"-"}\n'
