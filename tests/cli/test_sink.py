"""`tail --exec`, `--exec-batch`, `--speed` and `--server-cursor`; `topics cursor`: real commands, real signals."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.support import Daemon, finish, read_until

pytestmark = pytest.mark.slow


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _wait(path: Path, count: int, limit_s: float = 20.0) -> list[str]:
    over = time.monotonic() + limit_s
    while len(_lines(path)) < count:
        assert time.monotonic() < over, _lines(path)
        time.sleep(0.02)
    return _lines(path)


def test_a_command_runs_for_each_record_with_its_data_and_what_there_is_to_know(
    shared: Daemon, topic: str, tmp_path: Path
) -> None:
    shared.ok("write", topic, "--tag", "a b", "--node", "n", "--meta", "k=v", "--json", '"one\\ntwo"')
    shared.ok("write", topic, "--json", '{"x": 1.10}')
    out = tmp_path / "out"
    line = f'cat >>{out}; echo "|$TOPICS_TOPIC|$TOPICS_SEQ|$TOPICS_TAG|$TOPICS_NODE|$TOPICS_META|" >>{out}'
    shared.ok("tail", topic, "--from", "0", "--exec", line)
    assert out.read_text() == f'one\ntwo|{topic}|1|a b|n|{{"k":"v"}}|\n{{"x": 1.10}}|{topic}|2||||\n'


def test_a_batch_goes_to_one_command_in_the_framing_asked_for(shared: Daemon, topic: str, tmp_path: Path) -> None:
    shared.ok("write", topic, stdin=b"a\nb\nc\n")
    out = tmp_path / "out"
    line = f'tr "\\0" "," >>{out}; echo "$TOPICS_FIRST_SEQ-$TOPICS_LAST_SEQ $TOPICS_COUNT" >>{out}'
    shared.ok("tail", topic, "--from", "0", "-0", "--exec-batch", line)
    assert out.read_text() == "a,b,c,1-3 3\n"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [("exit 3", 1, b"exit 3"), ("/nope/nope", 127, b"exit 127"), ("kill -9 $$", 1, b"killed by SIGKILL")],
)
def test_where_a_command_fails_tail_ends_and_goes_on_there(
    shared: Daemon, topic: str, tmp_path: Path, line: str, code: int, said: bytes
) -> None:
    shared.ok("write", topic, stdin=b"a\nb\nc\n")
    cursor, out = tmp_path / "cursor", tmp_path / "out"
    words = ["tail", topic, "--from", "0", "--cursor", str(cursor), "--exec"]
    done = shared.run(*words, f'[ "$TOPICS_SEQ" = 2 ] && {{ {line}; exit $?; }}; cat >>{out}; echo >>{out}')
    assert (done.returncode, _lines(out)) == (code, ["a"])
    assert said in done.stderr
    assert b"--from 1" in done.stderr
    shared.ok("tail", topic, "--cursor", str(cursor), "--exec", f"cat >>{out}; echo >>{out}")
    assert _lines(out) == ["a", "b", "c"], "what failed is done again, and nothing twice"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_command_finish_and_the_cursor_says_so(
    shared: Daemon, topic: str, tmp_path: Path, signum: int
) -> None:
    shared.ok("write", topic, stdin=b"a\nb\nc\n")
    begun, out = tmp_path / "begun", tmp_path / "out"
    line = f"echo x >>{begun}; sleep 0.5; cat >>{out}; echo >>{out}"
    words = ["tail", topic, "-f", "--from", "0", "--server-cursor", f"c{signum}", "--exec", line]
    process = shared.start_command(*words)
    _wait(begun, 1)
    code, _, _ = finish(process, signum)
    assert (code, _lines(out)) == (128 + signum, ["a"])
    kept = json.loads(shared.ok("cursor", "info", topic, f"c{signum}", "-o", "json"))
    assert (kept["seq"], kept["lag"]) == (1, 2)


def test_a_server_cursor_goes_on_where_the_last_run_ended_also_after_a_kill(mortal: Daemon) -> None:
    mortal.ok("write", "t", stdin=b"a\nb\nc\n")
    assert mortal.ok("tail", "t", "--from", "0", "--server-cursor", "me") == b"a\nb\nc\n"
    mortal.ok("write", "t", "d")
    mortal.kill()
    mortal.start()
    process = mortal.start_command("tail", "t", "-f", "--server-cursor", "me")
    assert read_until(process, 1) == [b"d"]
    mortal.ok("write", "t", "e")
    assert read_until(process, 1) == [b"e"]
    assert finish(process, signal.SIGTERM)[0] == 143
    listed = mortal.ok("cursor", "ls", "t").decode().split("\t")
    assert listed[:3] == ["me", "5", "0"]
    assert mortal.ok("tail", "t", "--server-cursor", "me") == b""


def test_several_topics_have_a_cursor_each_and_a_name_that_is_none_is_refused(shared: Daemon, topic: str) -> None:
    other = topic + "-b"
    shared.ok("write", topic, "a")
    shared.ok("write", other, "b")
    words = ["tail", topic, other, "--from", "0", "--server-cursor", "both"]
    assert sorted(shared.ok(*words).splitlines()) == [b"a", b"b"]
    assert shared.ok(*words) == b""
    assert shared.run("tail", topic, "--server-cursor", "no/name").returncode == 1
    assert shared.run("tail", topic, "--server-cursor", "x", "--cursor", "y").returncode == 2


def test_cursors_are_set_compared_listed_and_dropped(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, stdin=b"a\nb\nc\n")
    assert shared.ok("cursor", "ls", topic) == b""
    assert shared.ok("cursor", "set", topic, "c", "2").decode().splitlines()[1] == "seq\t2"
    conflict = shared.run("cursor", "set", topic, "c", "3", "--if-seq", "1")
    assert (conflict.returncode, b"cursor_conflict" in conflict.stderr) == (1, True)
    shared.ok("cursor", "set", topic, "c", "3", "--if-seq", "2")
    assert json.loads(shared.ok("cursor", "ls", topic, "-o", "ndjson"))["lag"] == 0
    assert shared.ok("cursor", "ls", topic, "--fields", "name,seq") == b"c\t3\n"
    assert shared.ok("cursor", "drop", topic, "c") == b"c\tdropped\n"
    assert shared.run("cursor", "info", topic, "c").returncode == 1
    assert shared.run("cursor", "set", topic, "c").returncode == 2
    assert shared.run("cursor", "info", topic).returncode == 2


def test_with_a_speed_time_passes_between_records_as_it_did(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "a")
    time.sleep(1.0)
    shared.ok("write", topic, "b")
    begun = time.monotonic()
    assert shared.ok("tail", topic, "--from", "0", "--speed", "1x") == b"a\nb\n"
    took = time.monotonic() - begun
    assert took >= 1.0
    begun = time.monotonic()
    shared.ok("tail", topic, "--from", "0", "--speed", "100x")
    assert time.monotonic() - begun < took
    process = shared.start_command("tail", topic, "--from", "0", "--speed", "0.01x")
    assert read_until(process, 1) == [b"a"], "what is shown is out before the wait"
    assert finish(process, signal.SIGINT)[0] == 130
    assert shared.run("tail", topic, "--speed", "0x").returncode == 2
