"""`topics write`: where records come from, how they are grouped, and what is said about those that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.support import INT, TERM, Daemon, command, finish, read_until

pytestmark = pytest.mark.slow


def test_write_prints_the_range_that_was_written(shared: Daemon, topic: str) -> None:
    assert shared.ok("write", topic, "a", "b", "c") == f"{topic} 1-3\n".encode()
    assert shared.ok("write", topic, "d") == f"{topic} 4-4\n".encode()


def test_write_gives_the_answers_of_the_api_as_json(shared: Daemon, topic: str) -> None:
    answer = json.loads(shared.ok("write", topic, "a", "b", "-o", "json"))
    assert (answer["first_seq"], answer["last_seq"], answer["created"]) == (1, 2, True)


def test_data_as_arguments_leaves_standard_input_alone(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "a", stdin=b"never read\n")
    assert shared.ok("tail", topic) == b"a\n"


def test_a_slow_producers_line_is_on_the_daemon_within_50_ms(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "first")
    follower = shared.start_command("tail", "-f", topic, "-n", "0")
    writer = shared.start_command("write", topic, stdin=subprocess.PIPE)
    assert writer.stdin is not None
    took: list[float] = []
    time.sleep(0.5)
    for number in range(30):
        begun = time.monotonic()
        writer.stdin.write(b"line %d\n" % number)
        writer.stdin.flush()
        assert read_until(follower, 1) == [b"line %d" % number]
        took.append(time.monotonic() - begun)
        if sum(one < 0.05 for one in took) == 3:
            break
    writer.stdin.close()
    writer.stdin = None
    assert finish(writer)[0] == 0
    finish(follower, INT)
    # On a busy machine some take longer; where lines were held back, none would be as quick.
    assert sum(one < 0.05 for one in took) == 3, took


def test_lines_that_come_together_travel_together(shared: Daemon, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2500))
    answers = shared.ok("write", topic, "-o", "ndjson", stdin=lines).splitlines()
    assert len(answers) <= 10
    assert shared.ok("tail", topic, "--from", "0") == lines


def test_a_batch_holds_at_most_as_many_records_as_asked(shared: Daemon, topic: str) -> None:
    answers = shared.ok("write", topic, "--batch", "4", "-o", "ndjson", *"abcdefghij").splitlines()
    assert [json.loads(answer)["count"] for answer in answers] == [4, 4, 2]


def test_a_refused_line_is_named_and_everything_before_it_is_in(shared: Daemon, topic: str, place: Path) -> None:
    path = place / "in.ndjson"
    path.write_bytes(b"1\n2\n\n3\nno json\n5\n")
    done = shared.run("write", topic, "--json", "-f", str(path))
    assert done.returncode == 1
    assert f"topics: {path}:5: ".encode() in done.stderr
    assert b"(invalid_request)" in done.stderr
    assert done.stdout == f"{topic} 1-3\n".encode()
    assert shared.ok("tail", topic, "--from", "0") == b"1\n2\n3\n"


def test_skip_goes_on_behind_refused_lines_and_still_ends_with_1(shared: Daemon, topic: str) -> None:
    done = shared.run("write", topic, "--json", "--on-error", "skip", stdin=b'1\nbad\n2\n{"a":\n3\n')
    assert done.returncode == 1
    assert b"topics: line 2: " in done.stderr
    assert b"topics: line 4: " in done.stderr
    assert b"3 records written, 2 refused" in done.stderr
    one = shared.run("write", topic, "--json", "--on-error", "skip", stdin=b"1\nbad\n")
    assert b"1 record written, 1 refused" in one.stderr
    assert shared.ok("tail", topic, "--from", "0") == b"1\n2\n3\n1\n"


def test_refused_lines_can_be_put_aside_as_they_came(shared: Daemon, topic: str, place: Path) -> None:
    bad = place / "bad.ndjson"
    done = shared.run("write", topic, "--json", "--on-error", f"file:{bad}", stdin=b'1\nb\xffd\n2\n{"a":\n')
    assert done.returncode == 1
    assert bad.read_bytes() == b'b\xffd\n{"a":\n'


def test_a_record_that_is_too_large_is_named_like_any_other(shared: Daemon, topic: str) -> None:
    big = b'"' + b"x" * (1 << 20) + b'"'
    done = shared.run("write", topic, "--json", stdin=b"1\n" + big + b"\n2\n")
    assert done.returncode == 1
    assert b"line 2: " in done.stderr
    assert b"(record_too_large)" in done.stderr


def test_a_refusal_of_the_whole_request_is_not_blamed_on_a_line(shared: Daemon, topic: str) -> None:
    done = shared.run("write", topic, "--tag", "x" * 300, "a", "b")
    assert done.returncode == 1
    assert b"argument" not in done.stderr
    done = shared.run("write", topic + "-nowhere", "--no-create", "a")
    assert done.returncode == 1
    assert b"(topic_not_found)" in done.stderr


def test_tag_node_and_meta_go_with_every_record(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--tag", "t é", "--node", "n", "--meta", "a=1", "--meta", "b==", "x")
    record = json.loads(shared.ok("get", topic, "1"))
    assert (record["$tag"], record["$node"], record["meta"]) == ("t é", "n", {"a": "1", "b": "="})


def test_a_tag_can_come_from_each_record(shared: Daemon, topic: str) -> None:
    lines = b'{"u":{"id":"a/b"}}\n{"u":{"id":7}}\n{"u":{}}\n'
    done = shared.run("write", topic, "--json", "--tag-from", "/u/id", "--on-error", "skip", stdin=lines)
    assert done.returncode == 1
    assert b"line 3: nothing to take at /u/id" in done.stderr
    assert shared.ok("tail", topic, "--from", "0", "--fields", "tag") == b"a/b\n7\n"


def test_keys_from_the_records_make_a_second_import_write_nothing(shared: Daemon, topic: str) -> None:
    lines = b'{"id":1}\n{"id":2}\n'
    for _ in range(2):
        shared.ok("write", topic, "--json", "--key-from", "/id", stdin=lines)
    assert shared.ok("tail", topic, "--from", "0", "-o", "raw") == lines
    more = b'{"id":1,"other":true}\n{"id":""}\n{"id":3}\n'
    done = shared.run("write", topic, "--json", "--key-from", "/id", "--on-error", "skip", stdin=more)
    assert done.returncode == 1
    assert b"line 1: " in done.stderr
    assert b"(idempotency_mismatch)" in done.stderr
    assert b"line 2: " in done.stderr
    assert shared.ok("tail", topic, "--from", "0", "-o", "raw") == lines + b'{"id":3}\n'


def test_a_key_that_is_given_makes_a_second_write_of_the_same_input_write_nothing(shared: Daemon, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2500))
    first = shared.ok("write", topic, "--idempotency-key", "import 1", stdin=lines)
    assert shared.ok("write", topic, "--idempotency-key", "import 1", stdin=lines) == first
    assert shared.ok("tail", topic, "--from", "0") == lines
    done = shared.run("write", topic, "--idempotency-key", "import 1", "other")
    assert done.returncode == 1
    assert b"(idempotency_mismatch)" in done.stderr


@pytest.mark.slow
def test_rate_keeps_to_so_many_records_a_second(shared: Daemon, topic: str) -> None:
    begun = time.monotonic()
    shared.ok("write", topic, "--rate", "100/s", *(str(number) for number in range(60)))
    assert time.monotonic() - begun > 0.5


def test_files_are_read_one_after_the_other_and_a_missing_one_writes_nothing(
    shared: Daemon, topic: str, place: Path
) -> None:
    (place / "a").write_bytes(b"1\n2")
    (place / "b").write_bytes(b"3\n")
    done = shared.run("write", topic, "-f", str(place / "a"), "-f", str(place / "missing"))
    assert done.returncode == 1
    assert b"missing cannot be read: no such file or directory (no_input)" in done.stderr
    shared.ok("write", topic, "-f", str(place / "a"), "-f", str(place / "b"), "-f", "-", stdin=b"4\n")
    assert shared.ok("tail", topic, "--from", "0") == b"1\n2\n3\n4\n"


def test_no_input_writes_nothing_and_is_no_failure(shared: Daemon, topic: str) -> None:
    assert shared.ok("write", topic, stdin=b"") == b""


@pytest.mark.parametrize(("signum", "code"), [(INT, 130), (TERM, 143)])
def test_a_signal_ends_a_write_after_whole_lines_and_says_where_to_go_on(
    shared: Daemon, topic: str, signum: int, code: int
) -> None:
    writer = shared.start_command("write", topic, stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(b"one\ntwo\nhalf a li")
    writer.stdin.flush()
    over = time.monotonic() + 30
    while shared.run("tail", topic, "--from", "0").stdout != b"one\ntwo\n":
        assert time.monotonic() < over, "whole lines are written though the next one is not there"
    time.sleep(0.2)  # until the writer has the answer
    ended, out, said = finish(writer, signum)
    assert (ended, out) == (code, f"{topic} 1-2\n".encode()), said
    assert b"stopped; in up to line 2" in said
    assert b"tail -n +3" in said
    assert shared.ok("tail", topic, "--from", "0") == b"one\ntwo\n"


@pytest.mark.slow
def test_memory_stays_flat_for_a_large_input(shared: Daemon, topic: str) -> None:
    def peak_kib(records: int) -> int:
        line = b'"' + b"x" * 998 + b'"\n'
        script = "import sys\nfor _ in range(int(sys.argv[1])): sys.stdout.buffer.write(sys.argv[2].encode() + b'\\n')"
        source = subprocess.Popen(
            [sys.executable, "-c", script, str(records), line.decode().strip()], stdout=subprocess.PIPE
        )
        writer = subprocess.Popen(
            command("write", topic, "--json", "-q"), env=shared.environment(), stdin=source.stdout, stdout=-3
        )
        assert source.stdout is not None
        source.stdout.close()
        _, status, usage = os.wait4(writer.pid, 0)
        writer.returncode = os.waitstatus_to_exitcode(status)
        source.wait(10)
        assert writer.returncode == 0
        return usage.ru_maxrss

    small, large = peak_kib(2000), peak_kib(30_000)
    assert large < small + 8 * 1024, (small, large)


@pytest.mark.parametrize("given", ["lines", "arguments"])
def test_a_topic_that_gets_full_says_how_far_the_write_has_come(shared: Daemon, topic: str, given: str) -> None:
    shared.ok("create", topic, "--cap-records", "50", "--discard", "reject")
    values = [str(number) for number in range(200)]
    if given == "lines":
        done = shared.run("write", topic, stdin="".join(f"{value}\n" for value in values).encode())
    else:
        done = shared.run("write", topic, *values)
    assert done.returncode == 1
    assert b"(topic_full)" in done.stderr
    last = int(done.stdout.split(b"-")[-1])
    assert f"in up to {given[:-1]} {last}; ".encode() in done.stderr
    assert shared.ok("tail", topic, "--from", "0").decode().split() == values[:last]
