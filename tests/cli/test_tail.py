"""`topics tail`: where it begins and ends, what it shows, and how it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.support import INT, TERM, Daemon, command, finish, read_until

pytestmark = pytest.mark.slow


def write_twenty(daemon: Daemon, topic: str) -> str:
    """Make a topic of twenty records, tagged odd and even; the first two have a node."""
    records = b""
    for number in range(1, 21):
        node = b'"$node":"n%d",' % number if number <= 2 else b""
        records += b'{%b"data":"%d","$tag":"%b"}\n' % (node, number, b"odd" if number % 2 else b"even")
    daemon.ok("write", topic, "--records", stdin=records)
    return topic


@pytest.fixture(scope="module")
def twenty(shared: Daemon) -> str:
    """A topic of twenty records, to be read only."""
    return write_twenty(shared, "twenty")


@pytest.fixture
def own(shared: Daemon, topic: str) -> str:
    """A topic of twenty records of this test alone."""
    return write_twenty(shared, topic)


def numbers(out: bytes) -> list[int]:
    """The numbers in lines."""
    return [int(line) for line in out.split()]


def test_tail_shows_the_last_ten(shared: Daemon, twenty: str) -> None:
    assert numbers(shared.ok("tail", twenty)) == list(range(11, 21))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "3"], [18, 19, 20]),
        (["-n", "0"], []),
        (["-n", "100"], list(range(1, 21))),
        (["--from", "17"], [18, 19, 20]),
        (["--from", "0", "--max", "2"], [1, 2]),
        (["--since", "1h"], list(range(1, 21))),
        (["--since", "2100-01-01"], []),
        (["--from", "0", "--until", "2001-01-01"], []),
        (["--until", "now"], list(range(1, 21))),
        (["-n", "2", "--tag", "odd"], [17, 19]),
        (["--from", "0", "--tag", "e*", "--max", "3"], [2, 4, 6]),
        (["--from", "0", "--max", "2", "--node", "n1"], [2, 3]),
        (["-n", "19", "--node", "n1", "--node", "n2"], list(range(3, 21))),
    ],
)
def test_tail_begins_and_ends_where_it_is_told(
    shared: Daemon, twenty: str, words: list[str], expected: list[int]
) -> None:
    assert numbers(shared.ok("tail", twenty, *words)) == expected


def test_the_last_records_are_found_behind_deleted_ones(shared: Daemon, own: str) -> None:
    shared.ok("delete", own, "--seq", "6-19")
    assert numbers(shared.ok("tail", own, "-n", "3")) == [4, 5, 20]


def test_max_is_exact_while_following_a_burst(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "0")
    follower = shared.start_command("tail", "-f", topic, "-n", "0", "--max", "1500")
    time.sleep(0.5)
    shared.ok("write", topic, stdin=b"".join(b"%d\n" % number for number in range(4000)))
    code, out, _ = finish(follower)
    assert code == 0
    assert numbers(out) == list(range(1500))


def test_several_topics_are_merged_by_time(shared: Daemon, topic: str) -> None:
    for number in range(6):
        shared.ok("write", f"{topic}-{'ab'[number % 2]}", str(number))
    assert numbers(shared.ok("tail", topic + "-b", topic + "-a", "--from", "0")) == list(range(6))
    lines = shared.ok("tail", topic + "-a", topic + "-b", "--from", "0", "-o", "ndjson").splitlines()
    assert [json.loads(line)["$topic"][-1] for line in lines] == list("ababab")


def test_a_gap_is_told_on_stderr_and_in_ndjson_and_fails_where_asked(shared: Daemon, topic: str) -> None:
    shared.ok("create", topic, "--cap-records", "2")
    shared.ok("write", topic, *"abcde")
    done = shared.run("tail", topic, "--from", "0")
    assert (done.returncode, done.stdout) == (0, b"d\ne\n")
    assert done.stderr == f"gap {topic} 1-3 cap\n".encode()
    lines = shared.ok("tail", topic, "--from", "0", "-o", "ndjson").splitlines()
    assert json.loads(lines[0])["$tombstone"]["reason"] == "cap"
    assert len(lines) == 3
    done = shared.run("tail", topic, "--from", "0", "--fail-on-gap")
    assert (done.returncode, done.stdout) == (7, b"")
    assert b"--from 3" in done.stderr
    done = shared.run("tail", topic, topic + "", "--from", "2")
    assert done.stderr == f"gap {topic} 3-3 cap\n".encode()


def test_idle_exit_ends_a_follower_that_meets_nothing_new(shared: Daemon, twenty: str) -> None:
    begun = time.monotonic()
    assert numbers(shared.ok("tail", twenty, "-f", "-n", "1", "--idle-exit", "300ms")) == [20]
    assert time.monotonic() - begun < 3


def test_an_idle_follower_costs_nothing_here_and_at_the_daemon(shared: Daemon, own: str, topic: str) -> None:
    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    shared.ok("write", topic + "-b", "x")
    followers = [
        shared.start_command("tail", "-f", own, "-n", "1"),
        shared.start_command("tail", "-f", own, topic + "-b", "-n", "1"),
        shared.start_command("tail", "-f", own, "--from", "19"),
    ]
    for follower, lines in zip(followers, (1, 2, 1), strict=True):
        read_until(follower, lines)
    assert shared.process is not None
    pids = [follower.pid for follower in followers]
    time.sleep(0.3)
    before = [ticks(pid) for pid in pids]
    daemon_before = ticks(shared.process.pid)
    time.sleep(2.0)
    assert max(now - then for now, then in zip(map(ticks, pids), before, strict=True)) < 5
    assert ticks(shared.process.pid) - daemon_before < 20
    for follower in followers:
        assert finish(follower, INT)[0] == 130


def test_ctrl_c_ends_a_follower_with_130_and_a_hint(shared: Daemon, twenty: str) -> None:
    follower = shared.start_command("tail", "-f", twenty)
    read_until(follower, 10)
    code, _, said = finish(follower, INT)
    assert code == 130
    assert said == f"topics: stopped; go on with: topics tail {twenty} -f --from 20\n".encode()
    follower = shared.start_command("tail", "-f", twenty, "--exec", "cat; echo")
    read_until(follower, 10)
    _, _, said = finish(follower, INT)
    hint = f"topics: stopped; go on with: topics tail {twenty} -f --from 20, and the other options\n"
    assert said == hint.encode()


def test_sigterm_ends_a_follower_with_143_and_saves_its_cursor(shared: Daemon, own: str, place: Path) -> None:
    cursor = place / "place"
    follower = shared.start_command("tail", "-f", own, "--from", "15", "--cursor", str(cursor))
    read_until(follower, 5)
    assert finish(follower, TERM)[0] == 143
    assert json.loads(cursor.read_bytes())[own]["seq"] == 20
    shared.ok("write", own, "21")
    assert numbers(shared.ok("tail", own, "--cursor", str(cursor))) == [21]
    assert shared.ok("tail", own, "--cursor", str(cursor)) == b""
    assert [path.name for path in place.iterdir()] == ["place"]


@pytest.mark.slow
def test_a_cursor_never_runs_ahead_of_what_was_written_out(shared: Daemon, topic: str, place: Path) -> None:
    shared.ok("write", topic, stdin=b"".join(b"%d\n" % number for number in range(60_000)))
    cursor = place / "place"
    reader = shared.start_command("tail", topic, "--from", "0", "--cursor", str(cursor))
    lines = read_until(reader, 1000)
    time.sleep(0.3)
    reader.send_signal(signal.SIGKILL)
    assert reader.stdout is not None
    lines += reader.stdout.read().splitlines()
    finish(reader)
    saved = json.loads(cursor.read_bytes())[topic]["seq"] if cursor.exists() else 0
    assert saved <= len(lines)


def test_a_damaged_cursor_file_is_refused_with_78(shared: Daemon, twenty: str, place: Path) -> None:
    (place / "cursor").write_text("{nonsense")
    done = shared.run("tail", twenty, "--cursor", str(place / "cursor"))
    assert done.returncode == 78
    assert b"is not a cursor file (bad_cursor)" in done.stderr
    (place / "empty").touch()
    assert numbers(shared.ok("tail", twenty, "--cursor", str(place / "empty"), "--from", "19")) == [20]


def test_a_closed_pipe_ends_it_silently_with_141(shared: Daemon, twenty: str) -> None:
    reader = shared.start_command("tail", twenty, "-f")
    read_until(reader, 10)
    assert reader.stdout is not None
    reader.stdout.close()
    assert reader.wait(5) == 141
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    reader.stderr.close()
    script = f"{' '.join(map(str, command('tail', twenty, '-f')))} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], env=shared.environment(), capture_output=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == (b"11\n141\n", b"")


@pytest.mark.slow
def test_a_reader_that_has_stopped_reading_does_not_keep_a_signal_waiting(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, stdin=b"".join(b"%d %b\n" % (number, b"x" * 100) for number in range(5000)))
    reader = shared.start_command("tail", topic, "--from", "0")
    time.sleep(1.0)
    begun = time.monotonic()
    reader.send_signal(TERM)
    assert reader.wait(5) == 143
    assert time.monotonic() - begun < 1.0
    finish(reader)


def test_a_topic_that_is_dropped_and_made_again_is_followed_with_a_gap(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "old", "old")
    follower = shared.start_command("tail", "-f", topic, "--idle-exit", "20s")
    read_until(follower, 2)
    shared.ok("drop", topic, "--yes")
    code, _, said = finish(follower)
    assert code == 0
    assert b"was dropped" in said


@pytest.mark.slow
def test_of_several_topics_one_that_was_dropped_is_read_no_further(shared: Daemon, topic: str) -> None:
    """It was said to be over, and came back as another topic, with a gap, a moment later."""
    other = f"{topic}-other"
    shared.ok("write", topic, "1")
    shared.ok("write", other, "2")
    follower = shared.start_command("tail", topic, other, "-f", "--from", "0")
    read_until(follower, 2)
    shared.ok("drop", topic)
    assert follower.stderr is not None
    assert follower.stderr.readline() == f"topics: topic {topic} was dropped\n".encode()
    shared.ok("write", topic, "again")
    time.sleep(1)
    shared.ok("write", other, "3")
    assert read_until(follower, 1) == [b"3"]
    _, out, said = finish(follower, INT)
    assert (out, b"gap" in said) == (b"", False)


@pytest.mark.slow
def test_a_daemon_that_was_said_to_be_gone_is_said_to_be_back(mortal: Daemon, topic: str) -> None:
    mortal.ok("write", topic, "1")
    mortal.ok("write", f"{topic}-b", "1")
    follower = mortal.start_command("tail", topic, f"{topic}-b", "-f", "--from", "0")
    read_until(follower, 2)
    mortal.kill()
    assert follower.stderr is not None
    assert follower.stderr.readline().endswith(b"; trying again\n")
    mortal.start()
    mortal.ok("write", topic, "2")
    assert read_until(follower, 1) == [b"2"]
    _, _, said = finish(follower, INT)
    first, *rest = said.splitlines()
    assert first == f"topics: {mortal.socket} answers again".encode()
    assert not any(b"again" in line for line in rest), "neither is said twice, however many topics are followed"


def test_a_cursor_of_a_topic_that_was_made_anew_reads_it_from_its_beginning(
    shared: Daemon, topic: str, place: Path
) -> None:
    cursor = str(place / "place")
    shared.ok("write", topic, "old", "old", "old")
    shared.ok("tail", topic, "--cursor", cursor)
    shared.ok("drop", topic, "--yes")
    shared.ok("write", topic, "new", "new2")
    done = shared.run("tail", topic, "--cursor", cursor)
    assert done.stdout == b"new\nnew2\n"
    assert done.stderr == f"gap {topic} 1-2 recreated\n".encode()
    assert shared.run("tail", topic, "--cursor", cursor).stdout == b""


def test_fields_and_templates_pick_from_each_record(shared: Daemon, topic: str) -> None:
    shared.ok("write", topic, "--json", "--tag", "t", '{"a":{"b":[1.10,"x\\ty"]},"n":null}')
    assert shared.ok("tail", topic, "--fields", "seq,tag,data.a.b.0,data.none") == b"1\tt\t1.10\t\n"
    assert shared.ok("tail", topic, "-t", "{seq}:{data.a.b.1}{{}}") == b"1:x\ty{}\n"
    assert (
        shared.ok("tail", topic, "--fields", "seq,data.a", "-o", "ndjson")
        == b'{"seq":1,"data.a":{"b":[1.10,"x\\ty"]}}\n'
    )


def test_json_is_one_array(shared: Daemon, twenty: str) -> None:
    assert [int(record["data"]) for record in json.loads(shared.ok("tail", twenty, "-o", "json"))] == list(
        range(11, 21)
    )
    assert json.loads(shared.ok("tail", twenty, "-n", "0", "-o", "json")) == []
