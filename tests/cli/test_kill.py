"""A daemon that is killed and started again under a command: nothing is missed, nothing comes twice."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.support import INT, Daemon, finish, read_until

pytestmark = pytest.mark.slow


def test_a_write_through_three_kills_puts_every_line_in_once_and_in_order(mortal: Daemon) -> None:
    values = [b'{"i":%d,"pad":"%s"}\n' % (number, b"x" * 60) for number in range(12_000)]
    writer = mortal.start_command("write", "t", "--json", "--batch", "100", stdin=subprocess.PIPE)
    assert writer.stdin is not None
    for part in range(4):
        writer.stdin.write(b"".join(values[part * 3000 : (part + 1) * 3000]))
        writer.stdin.flush()
        if part < 3:
            time.sleep(0.05)
            mortal.kill()
            time.sleep(0.1)
            mortal.start()
    writer.stdin.close()
    writer.stdin = None
    code, out, said = finish(writer)
    assert code == 0, said
    assert mortal.ok("tail", "t", "--from", "0", "-o", "raw") == b"".join(values)
    assert out.splitlines()[-1].startswith(b"t ")


def test_followers_of_two_topics_miss_and_repeat_nothing_through_a_kill(mortal: Daemon) -> None:
    mortal.ok("write", "a", "a0")
    mortal.ok("write", "b", "b0")
    follower = mortal.start_command("tail", "-f", "a", "b", "--from", "0", "--max", "6")
    assert sorted(read_until(follower, 2)) == [b"a0", b"b0"]
    mortal.ok("write", "a", "a1")
    assert read_until(follower, 1) == [b"a1"]
    mortal.kill()
    mortal.start()
    mortal.ok("write", "b", "b1")
    mortal.ok("write", "a", "a2", "a3")
    code, out, said = finish(follower)
    assert code == 0, said
    assert out.splitlines() == [b"b1", b"a2", b"a3"]


def test_a_follower_gives_up_with_69_when_the_daemon_stays_away_and_says_where_to_go_on(mortal: Daemon) -> None:
    mortal.ok("write", "t", "one", "two")
    follower = mortal.start_command("tail", "-f", "t", "--from", "0", "--retry-for", "300ms")
    read_until(follower, 2)
    mortal.kill()
    code, _, said = finish(follower)
    assert code == 69
    assert b"(no_daemon)" in said
    assert b"topics tail t -f --from 2" in said


def test_a_killed_daemon_is_reported_with_69_at_once_and_its_socket_file_named(mortal: Daemon) -> None:
    mortal.kill()
    begun = time.monotonic()
    for words in (["write", "t", "x"], ["tail", "t"], ["ls"], ["status"]):
        done = mortal.run(*words)
        assert done.returncode == 69, done
        assert b"left by one that is dead (no_daemon)" in done.stderr
        assert b"topics serve" in done.stderr
    assert time.monotonic() - begun < 10
    os.unlink(mortal.socket)
    done = mortal.run("ls")
    assert done.returncode == 69
    assert b"there is no socket" in done.stderr


def test_retry_for_waits_for_a_daemon_that_is_not_there_yet(mortal: Daemon) -> None:
    mortal.kill()
    waiting = mortal.start_command("write", "t", "patient", "--retry-for", "20s")
    time.sleep(0.3)
    mortal.start()
    code, out, said = finish(waiting)
    assert (code, out) == (0, b"t 1-1\n"), said


@pytest.mark.parametrize("words", [["write", "t", "x"], ["tail", "t", "-f"], ["ls"]])
def test_waiting_for_a_daemon_ends_within_a_tenth_of_a_second_of_ctrl_c(mortal: Daemon, words: list[str]) -> None:
    mortal.kill()
    waiting = mortal.start_command(*words, "--retry-for", "20s")
    time.sleep(1.0)
    begun = time.monotonic()
    code, _, said = finish(waiting, INT)
    assert code == 130, said
    assert time.monotonic() - begun < 0.5


def test_a_cursor_file_goes_on_where_the_last_line_was_written_through_kills_of_both_sides(mortal: Daemon) -> None:
    cursor = str(mortal.directory / "place")
    expected = [b"%d" % number for number in range(60)]
    seen: list[bytes] = []
    for part in range(3):
        mortal.ok("write", "t", *(word.decode() for word in expected[part * 20 : part * 20 + 20]))
        follower = mortal.start_command("tail", "-f", "t", "--from", "0", "--cursor", cursor)
        seen += read_until(follower, 20)
        mortal.kill()
        code, out, _ = finish(follower, INT if part % 2 else 15)
        assert code == (130 if part % 2 else 143)
        assert out == b""
        mortal.start()
    assert seen == expected
    assert b'"seq":60' in Path(cursor).read_bytes()
