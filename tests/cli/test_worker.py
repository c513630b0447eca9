"""`work`: what exit codes mean, and the worker as a process against a real daemon, which may die under it."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unicodedata import east_asian_width

import pytest

from tests.cli.support import INT, TERM, Daemon, Terminal, finish
from tests.cli.test_launch import is_gone
from tests.waiting import until
from topics_cli.worker import ACK, Plan

pytestmark = pytest.mark.slow

VALUES: dict[str, Any] = {
    "jobs": None,
    "batch": None,
    "timeout": 1500,
    "grace": None,
    "retry_code": [],
    "dead_code": [],
    "delay": None,
    "halt": None,
    "once": False,
    "until_empty": False,
}


def verdict(returncode: int, is_late: bool = False, **values: Any) -> tuple[str, str, str]:
    run: Any = SimpleNamespace(returncode=returncode, is_late=is_late)
    return Plan("q", "w", {**VALUES, **values}, 30_000).verdict(run)


def test_what_exit_codes_mean() -> None:
    assert verdict(0) == ACK
    assert verdict(65) == ("nack", ',"dead_letter":true,"reason":"exit 65"', "dead (exit 65)")
    assert verdict(75) == ("nack", ',"delay":"backoff","reason":"exit 75"', "later (exit 75)")
    assert verdict(1) == ("nack", ',"delay_ms":0,"reason":"exit 1"', "failed (exit 1)")
    assert verdict(-9, delay=500) == (
        "nack",
        ',"delay_ms":500,"reason":"killed by SIGKILL"',
        "failed (killed by SIGKILL)",
    )
    assert verdict(0, is_late=True)[1] == ',"delay":"backoff","reason":"timeout after 1.5 s"'


def test_exit_codes_can_be_given_other_meanings() -> None:
    assert "backoff" in verdict(3, retry_code=[3])[1]
    assert "backoff" in verdict(75, retry_code=[3])[1]
    assert "dead_letter" in verdict(4, dead_code=[4, 5])[1]
    assert "delay_ms" in verdict(65, dead_code=[4])[1]


# -- against a daemon ------------------------------------------------------------------------------------------------


def make(daemon: Daemon, queue: str, *jobs: str, **config: str) -> None:
    words = [word for name, value in config.items() for word in (f"--{name.replace('_', '-')}", value)]
    daemon.ok("create", queue, "--type", "queue", *words)
    if jobs:
        daemon.ok("write", queue, *jobs)


def state(daemon: Daemon, queue: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(daemon.ok("info", queue, "--json"))["queue"]
    return found


def later(counts: dict[str, int]) -> int:
    """Jobs that are to be tried again after backoff, which may have passed by now."""
    return counts["delayed"] + counts["ready"]


def test_a_command_runs_for_each_job_and_its_success_acks_it(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a", "b", "c")
    done = queues.run("work", topic, "--until-empty", "--", "cat")
    assert (done.returncode, done.stdout) == (0, b"a\nb\nc\n"), done.stderr
    assert done.stderr.count(b" done after ") == 3
    assert state(queues, topic)["acked"] == 3


def test_exit_codes_ack_retry_and_send_to_the_dead_letters(queues: Daemon, topic: str) -> None:
    make(queues, topic, "0", "65", "75", "1", max_deliveries="3", dead_letter=f"{topic}-dead")
    done = queues.run("work", topic, "--until-empty", "-j", "2", "--", "sh", "-c", 'exit "$1"', "sh", "{}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(b": 3 jobs are not done\n")
    counts = state(queues, topic)
    assert (counts["acked"], counts["dead_lettered"], later(counts), counts["in_flight"]) == (1, 2, 1, 0)
    rows = [line.split("\t") for line in queues.ok("dlq", "ls", topic).decode().splitlines()]
    assert sorted((row[3], row[5], row[7]) for row in rows) == [
        ("1", "nacked: exit 65", "65"),
        ("3", "nacked: exit 1", "1"),
    ]


def test_a_job_for_dead_letters_that_the_queue_has_not_is_tried_later(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    done = queues.run("work", topic, "--once", "--", "sh", "-c", "exit 65")
    assert done.returncode == 1
    assert b"tried again later" in done.stderr
    assert later(state(queues, topic)) == 1


def test_a_command_that_is_not_there_touches_no_job_and_exits_127(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    done = queues.run("work", topic, "--", "/nope")
    assert (done.returncode, done.stdout) == (127, b"")
    assert b"/nope: command not found (command_not_found)" in done.stderr
    assert queues.run("work", topic, "--", "/etc/passwd").returncode == 126
    assert state(queues, topic)["ready"] == 1
    assert json.loads(queues.ok("claim", topic))["deliveries"] == 1


def test_a_command_that_goes_away_gives_its_jobs_back_undelivered(queues: Daemon, topic: str, place: Path) -> None:
    make(queues, topic, "a", "b")
    script = place / "once.sh"
    script.write_text('#!/bin/sh\nrm "$0"\n')
    script.chmod(0o755)
    done = queues.run("work", topic, "--", str(script))
    assert done.returncode == 127, done.stderr
    counts = state(queues, topic)
    assert (counts["acked"], counts["ready"], counts["in_flight"]) == (1, 1, 0)
    assert json.loads(queues.ok("claim", topic))["deliveries"] == 1


def test_once_runs_one_command_and_says_whether_there_was_a_job(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a", "b")
    assert queues.run("work", topic, "--once", "--", "cat").stdout == b"a\n"
    assert queues.run("work", topic, "--once", "--", "false").returncode == 1
    queues.ok("work", topic, "--until-empty", "--", "true")
    assert queues.run("work", topic, "--once", "--", "true").returncode == 3


def test_batches_and_placeholders(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a", "b", "c", "d e")
    done = queues.run("work", topic, "--until-empty", "--batch", "3", "--", "printf", "[%s]", "{}")
    assert done.stdout == b"[a][b][c][d e]"
    assert state(queues, topic)["acked"] == 4


@pytest.mark.slow
def test_so_many_commands_run_at_a_time(queues: Daemon, topic: str) -> None:
    make(queues, topic, *"abcdefgh")
    begun = time.monotonic()
    queues.ok("work", topic, "--until-empty", "-j", "4", "--", "sleep", "0.5")
    assert 1.0 <= time.monotonic() - begun < 3.0


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended_with_all_it_has_started(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    script = "trap '' TERM; sleep 300 & echo $!; wait; sleep 300"
    done = queues.run("work", topic, "--once", "--timeout", "200ms", "--grace", "200ms", "--", "sh", "-c", script)
    assert done.returncode == 1
    assert b"timeout after 0.2 s" in done.stderr
    assert is_gone(int(done.stdout))
    assert later(state(queues, topic)) == 1


@pytest.mark.slow
def test_a_lease_is_extended_while_its_command_runs(queues: Daemon, topic: str, place: Path) -> None:
    make(queues, topic, "a", lease="1s")
    go = place / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.05; done"
    worker = queues.start_command("work", topic, "--once", "--", "sh", "-c", script)
    until(lambda: state(queues, topic)["in_flight"] == 1)
    over = time.monotonic() + 2.5
    while time.monotonic() < over:
        assert queues.run("claim", topic).returncode == 3
    go.touch()
    code, _, said = finish(worker)
    assert code == 0, said
    assert state(queues, topic)["acked"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("signum", [TERM, INT])
def test_a_signal_lets_what_runs_end_and_touches_nothing_more(
    queues: Daemon, topic: str, place: Path, signum: int
) -> None:
    make(queues, topic, "a", "b", "c")
    go = place / "go"
    worker = queues.start_command("work", topic, "--", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; cat")
    until(lambda: state(queues, topic)["in_flight"] == 1)
    worker.send_signal(signum)
    assert worker.stderr is not None
    assert b"stopping: 1 running may end" in worker.stderr.readline()
    go.touch()
    code, out, said = finish(worker)
    assert (code, out) == (128 + signum, b"a\n"), said
    counts = state(queues, topic)
    assert (counts["acked"], counts["ready"], counts["in_flight"]) == (1, 2, 0)


def test_a_worker_that_waits_ends_at_once_and_the_next_job_is_not_lost_to_it(queues: Daemon, topic: str) -> None:
    make(queues, topic)
    worker = queues.start_command("work", topic, "--", "cat")
    until(lambda: state(queues, topic).get("claim_waiters") == 1)
    begun = time.monotonic()
    assert finish(worker, TERM)[0] == 143
    assert time.monotonic() - begun < 2
    queues.ok("write", topic, "a")
    assert json.loads(queues.ok("claim", topic))["deliveries"] == 1


@pytest.mark.slow
def test_a_second_signal_ends_the_commands_too(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    worker = queues.start_command("work", topic, "--", "sh", "-c", "sleep 300 & echo $!; wait")
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    worker.send_signal(TERM)
    time.sleep(0.3)
    assert finish(worker, TERM)[0] == 143
    assert is_gone(child)


@pytest.mark.slow
@pytest.mark.parametrize("durable", ["true", "false"])
def test_a_worker_goes_on_over_a_daemon_that_is_killed_and_runs_nothing_twice(
    mortal_queues: Daemon, place: Path, durable: str
) -> None:
    daemon, log = mortal_queues, place / "log"
    make(daemon, "q", *(str(number) for number in range(20)), leases_durable=durable, lease="3s")
    script = f'read x; echo "$x" >> {log}; sleep 0.15'
    worker = daemon.start_command("work", "q", "-j", "2", "--", "sh", "-c", script)
    until(lambda: log.exists() and log.read_text().count("\n") >= 5)
    daemon.kill()
    time.sleep(0.1)
    daemon.start()
    # A claim whose answer was lost with the daemon holds its job until the deadline.
    until(lambda: state(daemon, "q")["acked"] == 20)
    code, _, said = finish(worker, TERM)
    assert code == 143, said
    assert b"lost" not in said
    assert sorted(log.read_text().split(), key=int) == [str(number) for number in range(20)]


@pytest.mark.slow
def test_a_killed_worker_frees_its_jobs_at_once(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a", "b", "c", lease="1h")
    worker = queues.start_command("work", topic, "-j", "2", "--", "sh", "-c", "sleep 300; :")
    until(lambda: state(queues, topic)["in_flight"] == 2)
    worker.kill()
    worker.wait(10)
    until(lambda: state(queues, topic)["ready"] == 3)
    assert queues.run("work", topic, "--once", "--", "cat").stdout == b"a\n"


@pytest.mark.slow
def test_a_worker_that_was_asked_for_the_end_leaves_every_count_as_it_was(queues: Daemon, topic: str) -> None:
    make(queues, topic, *map(str, range(40)), lease="1h")
    worker = queues.start_command("work", topic, "-j", "4", "--", "sh", "-c", "sleep 0.1; cat")
    until(lambda: state(queues, topic)["acked"] >= 4)
    code, out, said = finish(worker, TERM)
    assert code == 143, said
    counts = state(queues, topic)
    assert (counts["acked"], counts["in_flight"]) == (len(out.split()), 0)
    left = queues.ok("claim", topic, "-n", "100").splitlines()
    assert {json.loads(line)["deliveries"] for line in left} == {1}
    assert len(left) == 40 - len(out.split())


@pytest.mark.slow
def test_a_failing_job_comes_again_however_the_answers_cross(queues: Daemon, topic: str) -> None:
    """The claim or the push that brings it again may overtake the answer that it was given back."""
    make(queues, topic, "a", lease="1h", max_deliveries="12", dead_letter=f"{topic}-dead")
    for words in (["--until-empty"], []):
        worker = queues.start_command("work", topic, "-j", "2", *words, "--", "false")
        until(lambda: state(queues, topic)["dead_lettered"] == 1)
        assert finish(worker, *([] if words else [TERM]))[0] == (0 if words else 143)
        assert state(queues, topic)["in_flight"] == 0
        queues.ok("drop", topic, "--yes")
        make(queues, topic, "a", lease="1h", max_deliveries="12", dead_letter=f"{topic}-dead")


@pytest.mark.slow
def test_where_there_is_no_room_for_a_stream_jobs_are_claimed(place: Path) -> None:
    daemon = Daemon(place, TOPICS_MAX_SSE_CONNECTIONS="1")
    daemon.start()
    try:
        make(daemon, "q", "a", "b")
        first = daemon.start_command("work", "q", "--", "sleep", "300")
        until(lambda: state(daemon, "q")["in_flight"] == 1)
        second = daemon.start_command("work", "q", "--", "cat")
        until(lambda: state(daemon, "q")["acked"] == 1)
        code, out, said = finish(second, TERM)
        assert (code, out) == (143, b"b\n"), said
        first.kill()
        first.wait(10)
    finally:
        daemon.stop()


@pytest.mark.slow
def test_a_queue_that_is_dropped_stops_its_workers(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    worker = queues.start_command("work", topic, "--", "sleep", "300")
    until(lambda: state(queues, topic)["in_flight"] == 1)
    queues.ok("drop", topic, "--yes")
    code, _, said = finish(worker)
    assert code == 1
    assert b"is a queue no more (not_a_queue)" in said


@pytest.mark.slow
def test_a_terminal_shows_what_runs_and_what_the_commands_print(queues: Daemon, topic: str) -> None:
    make(queues, topic, "first", "second")
    words = ["work", topic, "--until-empty", "-j", "2", "--", "sh", "-c", "read x; echo got $x; sleep 0.5"]
    terminal = Terminal(queues.environment(), *words)
    seen = terminal.read_until(b"2 of 2 running")
    assert b" s  first\r" in seen
    code, seen = terminal.end()
    assert code == 0
    assert b"got first" in seen
    assert f"topics: {topic}: 2 done, 0 failed".encode() in seen
    assert b"dead" not in seen, "a queue moves jobs by itself"


def test_the_table_of_a_terminal_is_no_wider_and_is_taken_away_whole(queues: Daemon, topic: str) -> None:
    make(queues, topic, "日本語テキスト" * 20, "x" * 300, "\x1b[2J" * 60)
    words = ["work", topic, "--until-empty", "-j", "3", "--", "sh", "-c", "printf 'part of a line'; sleep 0.7"]
    code, seen = Terminal(queues.environment(), *words).end()
    assert code == 0
    text = seen.decode()
    tables = re.findall(r"\x1b\[\?7l(.*?)\x1b\[\?7h", text, re.DOTALL)
    assert len(tables) > 1
    rows = [row for table in tables for row in table.replace("\r", "").splitlines()]
    assert all(sum(2 if east_asian_width(char) in "WF" else 1 for char in row) < 80 for row in rows), rows
    assert any("日本" in row for row in rows)
    taken = [int(lines) for lines in re.findall(r"\r\x1b\[(\d+)A\x1b\[J", text)]
    assert taken == [len(table.replace("\r", "").splitlines()) for table in tables]
    assert text.count("part of a line\r\n") == 3


def test_a_second_signal_says_how_far_it_came(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    terminal = Terminal(queues.environment(), "work", topic, "--", "sleep", "60")
    terminal.read_until(b"1 of 1 running")
    terminal.type(b"\x03")
    terminal.read_until(b"a second signal ends them now")
    terminal.type(b"\x03")
    code, seen = terminal.end()
    assert code == 130
    assert seen.replace(b"\r", b"").endswith(b"topics: stopped: 0 done, 0 failed, 1 killed\n")


def test_failures_in_a_row_can_stop_the_worker(queues: Daemon, topic: str) -> None:
    make(queues, topic, *"0101111111")
    done = queues.run("work", topic, "--halt", "3", "--delay", "1h", "--", "sh", "-c", "read x; exit $x")
    assert done.returncode == 1
    assert b"3 commands have failed in a row, the last: failed (exit 1) (halted)" in done.stderr
    counts = state(queues, topic)
    assert (counts["acked"], counts["delayed"], counts["in_flight"]) == (2, 4, 0)


def test_a_run_to_the_end_says_that_some_are_not_done(queues: Daemon, topic: str, place: Path) -> None:
    make(queues, topic, "a", "b")
    script = f"read x; [ $x = a ] || [ -e {place}/tried ] || {{ touch {place}/tried; exit 1; }}"
    assert queues.run("work", topic, "--until-empty", "--", "sh", "-c", script).returncode == 0
    queues.ok("write", topic, "c")
    done = queues.run("work", topic, "--until-empty", "--", "sh", "-c", "exit 75")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"topics: {topic}: 1 job is not done".encode())


def test_commands_that_run_together_have_slots_of_their_own(queues: Daemon, topic: str, place: Path) -> None:
    make(queues, topic, *"abcdef")
    script = f"mkdir {place}/$TOPICS_SLOT && sleep 0.1 && rmdir {place}/$TOPICS_SLOT && echo $TOPICS_SLOT"
    done = queues.run("work", topic, "--until-empty", "-j", "2", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert set(done.stdout.split()) == {b"1", b"2"}


def test_mistakes_on_the_command_line_touch_no_job(queues: Daemon, topic: str) -> None:
    make(queues, topic, "a")
    for words in (
        ["--once", "--until-empty", "--", "true"],
        ["-j", "0", "--", "true"],
        ["--batch", "0", "--", "true"],
        ["--batch", "2", "--", "echo", "x{}"],
        ["--retry-code", "0", "--", "true"],
        ["--retry-code", "7", "--dead-code", "7", "--", "true"],
        ["-0", "--length", "--", "true"],
        [],
    ):
        assert queues.run("work", topic, *words).returncode == 2, words
    assert queues.run("work", f"{topic}-not-there", "--", "true").returncode == 1
    assert state(queues, topic)["ready"] == 1
    assert not [name for name in os.listdir("/tmp") if name.startswith("topics-work-")]
