"""`claim`, `ack`, `nack`, `extend` and `dlq` as processes against a real daemon."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.support import HARD, Daemon, finish

pytestmark = pytest.mark.slow


@pytest.fixture
def queue(queues: Daemon, topic: str) -> str:
    """A queue of this test alone, with dead letters after two deliveries."""
    words = ["--type", "queue", "--max-deliveries", "2", "--dead-letter", f"{topic}-dead", "--lease", "20s"]
    queues.ok("create", topic, *words)
    return topic


def claimed(out: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def state(daemon: Daemon, queue: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(daemon.ok("info", queue, "--json"))["queue"]
    return found


def test_a_claim_prints_a_line_a_job_with_its_lease_and_an_empty_queue_exits_3(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a", "b", "c")
    jobs = claimed(queues.ok("claim", queue, "-n", "2", "--lease", "1m"))
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in jobs] == [(1, "a", 1), (2, "b", 1)]
    assert all(str(job["lease_id"]).startswith("lease_") for job in jobs)
    assert queues.ok("claim", queue, "-o", "text") == b"c\n"
    done = queues.run("claim", queue)
    assert (done.returncode, done.stdout) == (3, b"")


def test_what_is_claimed_comes_out_byte_for_byte(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "--json", stdin=b"\n".join(HARD) + b"\n")
    assert queues.ok("claim", queue, "-n", "100", "-o", "raw") == b"\n".join(HARD) + b"\n"


def test_a_claim_waits_for_a_job(queues: Daemon, queue: str) -> None:
    claim = queues.start_command("claim", queue, "--wait", "20s", "-o", "text")
    time.sleep(0.3)
    queues.ok("write", queue, "at last")
    code, out, said = finish(claim)
    assert (code, out) == (0, b"at last\n"), said
    begun = time.monotonic()
    assert queues.run("claim", queue, "--wait", "300ms").returncode == 3
    assert time.monotonic() - begun >= 0.3


def test_jobs_that_cannot_be_shown_are_given_back_as_if_never_claimed(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a", "b")
    with open("/dev/full", "wb") as full:
        claim = queues.start_command("claim", queue, "-n", "2", "--lease", "1h", stdout=full)
        code, _, said = finish(claim)
    assert code == 1
    assert b"(output_failed)\n  2 jobs given back, as if never claimed\n" in said
    assert (state(queues, queue)["in_flight"], state(queues, queue)["ready"]) == (0, 2)
    assert [job["deliveries"] for job in claimed(queues.ok("claim", queue, "-n", "2"))] == [1, 1]


def test_a_reader_that_went_away_keeps_what_it_was_given(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, *(letter * 50_000 for letter in "abcdefgh"))
    claim = queues.start_command("claim", queue, "-n", "8", "--lease", "1h", "-o", "text")
    assert claim.stdout is not None
    assert claim.stdout.readline() == b"a" * 50_000 + b"\n"
    claim.stdout.close()
    assert claim.wait(30) == 141
    counts = state(queues, queue)
    assert counts["in_flight"] >= 1
    assert counts["in_flight"] + counts["ready"] == 8
    assert counts["ready"] >= 3


def test_a_claim_takes_only_jobs_with_the_tag(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a", "--tag", "x")
    queues.ok("write", queue, "b", "--tag", "y1")
    assert queues.ok("claim", queue, "-n", "9", "--tag", "y*", "-o", "text") == b"b\n"


def test_claimed_jobs_are_acked_through_a_pipe(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a", "b", "c")
    lines = queues.ok("claim", queue, "-n", "3")
    assert queues.ok("ack", queue, "-", stdin=lines) == f"{queue}\t3 acked\n".encode()
    again = queues.run("ack", queue, stdin=lines)
    assert again.returncode == 6
    assert f"{queue} 1 was not acked: gone (skipped)".encode() in again.stderr
    assert state(queues, queue)["acked"] == 3


def test_a_stale_ack_changes_nothing_names_the_job_and_exits_6(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a")
    old = queues.ok("claim", queue, "--lease", "100ms")
    time.sleep(0.15)
    new = queues.ok("claim", queue)
    done = queues.run("ack", queue, stdin=old)
    assert (done.returncode, done.stdout) == (6, f"{queue}\t0 acked\n".encode())
    assert f"{queue} 1 was not acked: stale_lease (skipped)".encode() in done.stderr
    assert state(queues, queue)["in_flight"] == 1
    queues.ok("ack", queue, stdin=new)


def test_another_holder_settles_nothing(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a")
    queues.ok("claim", queue, "--node", "ann")
    for verb in ("ack", "nack", "extend"):
        done = queues.run(verb, queue, "1", "--node", "bob")
        assert done.returncode == 6
        assert b"other_holder" in done.stderr
    assert queues.run("ack", queue, "1", TOPICS_NODE="ann").returncode == 0


def test_a_nack_gives_back_at_once_later_or_to_the_dead_letters(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a", "b", "c")
    queues.ok("claim", queue, "-n", "3")
    assert queues.ok("nack", queue, "1") == f"{queue}\t1 nacked\n".encode()
    queues.ok("nack", queue, "2", "--backoff", "--reason", "busy")
    queues.ok("nack", queue, "3", "--dead", "--reason", "no good")
    counts = state(queues, queue)
    assert (counts["ready"] + counts["delayed"], counts["dead_lettered"]) == (2, 1)
    assert queues.run("nack", queue, "1", "--dead", "--backoff").returncode == 2


def test_dead_letters_that_have_no_place_say_how_to_make_one(queues: Daemon, topic: str) -> None:
    queues.ok("create", topic, "--type", "queue")
    queues.ok("write", topic, "a")
    queues.ok("claim", topic)
    done = queues.run("nack", topic, "1", "--dead")
    assert done.returncode == 1
    advice = done.stderr.decode().splitlines()[1]
    assert f"topics set {topic} dead_letter={topic}-dead" in advice
    queues.ok("set", topic, f"dead_letter={topic}-dead")
    assert queues.ok("nack", topic, "1", "--dead") == f"{topic}\t1 nacked\n".encode()


@pytest.mark.slow
def test_an_extended_lease_holds(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a")
    lease_s = 3.0
    begun = time.monotonic()
    queues.ok("claim", queue, "--lease", f"{lease_s}s")
    assert queues.ok("extend", queue, "1", "--lease", "1m") == f"{queue}\t1 extended\n".encode()
    time.sleep(max(0.0, begun + lease_s + 0.5 - time.monotonic()))
    assert queues.run("claim", queue).returncode == 3


def test_input_that_is_no_job_is_named_by_its_line(queues: Daemon, queue: str) -> None:
    done = queues.run("ack", queue, stdin=b"1\n\nwhat\n")
    assert done.returncode == 1
    assert b"line 3 is neither a seq nor a claimed job (bad_input)" in done.stderr


def test_dead_letters_are_listed_shown_requeued_and_purged(queues: Daemon, queue: str) -> None:
    dead = f"{queue}-dead"
    assert queues.run("dlq", "ls", queue).returncode == 3
    queues.ok("write", queue, "a", "b")
    queues.ok("claim", queue, "-n", "2", "--node", "ann")
    queues.ok("nack", queue, "1", "2", "--dead", "--reason", "no good", "--node", "ann")
    rows = [line.split("\t") for line in queues.ok("dlq", "ls", queue).decode().splitlines()]
    assert [(row[0], row[1], row[2], row[3], row[5], row[7]) for row in rows] == [
        ("1", queue, "1", "1", "nacked: no good", "a"),
        ("2", queue, "2", "1", "nacked: no good", "b"),
    ]
    shown = queues.ok("dlq", "show", queue, "2").decode()
    assert f"from\t{queue} 2\n" in shown
    assert "ann" in shown
    assert "nacked: no good" in shown
    assert queues.ok("dlq", "requeue", queue, "1", "--dry-run") == f"{dead}\t1 dead letter would be requeued\n".encode()
    assert queues.ok("dlq", "requeue", queue, "1") == f"{dead}\t1 dead letter requeued\n".encode()
    assert queues.ok("claim", queue, "-o", "text") == b"a\n"
    assert queues.ok("dlq", "purge", queue, "--all") == f"{dead}\t1 dead letter deleted\n".encode()
    assert queues.run("dlq", "ls", dead).returncode == 3
    assert queues.run("dlq", "requeue", queue).returncode == 2
    assert queues.run("dlq", "what", queue).returncode == 2


def test_seqs_that_are_no_dead_letters_are_named_and_exit_3(queues: Daemon, queue: str) -> None:
    dead = f"{queue}-dead"
    queues.ok("write", queue, "a")
    queues.ok("claim", queue, "--node", "ann")
    queues.ok("nack", queue, "1", "--dead", "--node", "ann")
    for words in (["show"], ["requeue", "--dry-run"], ["requeue"]):
        done = queues.run("dlq", words[0], queue, "1", "9", *words[1:])
        assert done.returncode == 3
        assert done.stderr == f"topics: there is no dead letter 9 in {dead} (not_found)\n".encode()
        assert done.stdout


def test_jobs_that_wait_and_records_of_a_log_are_no_dead_letters(queues: Daemon, queue: str) -> None:
    for name, kind in ((f"{queue}-log", "log"), (f"{queue}-other", "queue")):
        queues.ok("create", name, "--type", kind)
        queues.ok("write", name, "a", "b", "--meta", "k=v")
        for words in (["ls", name], ["show", name, "1"], ["purge", name, "--all"], ["purge", name, "1"]):
            assert queues.run("dlq", *words).returncode == 3
        assert queues.ok("tail", name, "--from", "0") == b"a\nb\n"


def test_info_shows_the_counters_of_a_queue(queues: Daemon, queue: str) -> None:
    queues.ok("write", queue, "a", "b")
    queues.ok("claim", queue)
    lines = queues.ok("info", queue).decode().splitlines()
    assert "queue.ready\t1" in lines
    assert "queue.in_flight\t1" in lines


def test_a_log_is_no_queue(queues: Daemon, topic: str) -> None:
    queues.ok("write", topic, "a")
    for words in (["claim", topic], ["ack", topic, "1"], ["work", topic, "--", "true"]):
        done = queues.run(*words)
        assert done.returncode == 1
        assert b"(not_a_queue)" in done.stderr
