"""Reconciling, as a pure function: a whole topic adds up, and each way in which one does not is named with its seqs."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from topics_cli.harness.ledger import Seen, Sent
from topics_cli.harness.reconcile import ASKED_FOR, Check, Evidence, ranges, reconcile, written_by_metrics
from topics_cli.harness.samples import rise

HEAD = 30


def check_of(producer: int, n: int) -> int:
    """Every record has a check of its own."""
    return producer * 100_000 + n + 7


def check_at(seq: int) -> int:
    """Of the record at a seq of `topic`."""
    return check_of(0, seq - 1)


def seen(*seqs: int, kind: str = "diff", **more: Any) -> Seen:
    """A reader that read these."""
    return Seen(
        "reader-1-t", "t", kind, array("Q", seqs), array("I", map(check_at, seqs)), more.pop("told", []), **more
    )


def topic(**changes: Any) -> Evidence:
    """Three batches of ten, all kept, and a reader that read them."""
    values: dict[str, Any] = {
        "topic": "t",
        "is_queue": False,
        "may_lose": frozenset(),
        "sent": [(0, Sent(n, 10, "t", n + 1, n + 10)) for n in (0, 10, 20)],
        "state": {"head_seq": HEAD, "count": HEAD},
        "kept": [(seq, check_at(seq)) for seq in range(1, HEAD + 1)],
        "told": [],
        "seen": [seen(*range(1, HEAD + 1))],
        "check_of": check_of,
    }
    values |= changes
    values["kept_checks"] = array("I", (check for _, check in values["kept"]))
    values["kept"] = array("Q", (seq for seq, _ in values["kept"]))
    return Evidence(**values)


def wrong(evidence: Evidence) -> dict[str, str]:
    """The questions that were not answered well."""
    checks: list[Check] = reconcile(evidence)
    assert {check.question for check in checks} >= {"acked", "kept", "no more", "counts"}
    return {check.question: check.said for check in checks if not check.is_good}


def without(*seqs: int) -> list[tuple[int, int]]:
    """What is kept, less these."""
    return [(seq, check_at(seq)) for seq in range(1, HEAD + 1) if seq not in seqs]


def test_a_whole_topic_adds_up() -> None:
    assert wrong(topic()) == {}


def test_a_lost_record_is_named() -> None:
    found = wrong(topic(kept=without(17), state={"head_seq": HEAD, "count": 29}))
    assert found["kept"] == "acked, not there, and nothing says why: 1 record (17)"
    assert "count is 29, 30 by what clients saw" in found["counts"]


def test_a_record_that_holds_other_bytes_is_named() -> None:
    kept = [(seq, check + (seq == 4)) for seq, check in without()]
    assert wrong(topic(kept=kept)) == {"kept": "with other bytes than were sent: 1 record (4)"}


def test_a_doubled_batch_is_named() -> None:
    kept = without() + [(HEAD + 1 + place, check_at(11 + place)) for place in range(10)]
    found = wrong(topic(kept=kept, state={"head_seq": 40, "count": 40}))
    assert found["no more"] == "there twice: 10 records (31-40)"
    assert "head_seq is 40, 30 by what clients saw" in found["counts"]


def test_a_record_that_nobody_sent_is_named() -> None:
    found = wrong(topic(kept=[*without(), (31, 1)], state={"head_seq": 31, "count": 31}))
    assert found["no more"] == "sent by nobody: 1 record (31)"


def test_a_seq_that_was_given_twice_is_named() -> None:
    found = wrong(topic(sent=[(0, Sent(0, 10, "t", 1, 10)), (0, Sent(10, 20, "t", 10, 29))]))
    assert found["acked"] == "given to two records: 1 seq (10)"


def test_an_ack_beyond_the_head_is_named() -> None:
    found = wrong(topic(state={"head_seq": 20, "count": 20}, kept=without(*range(21, 31))))
    assert found["acked"] == "acked beyond the head 20: 10 records (21-30)"


@pytest.mark.parametrize(("there", "said"), [(10, {}), (0, {}), (7, {"no more", "counts"})])
def test_a_request_that_was_never_answered_is_there_whole_or_not_at_all(there: int, said: Any) -> None:
    sent = [*topic().sent, (0, Sent(HEAD, 10, "t", None, None))]
    kept = without() + [(HEAD + 1 + place, check_of(0, HEAD + place)) for place in range(there)]
    seqs = range(1, HEAD + there + 1)
    evidence = topic(sent=sent, kept=kept, seen=[seen(*seqs)], state={"head_seq": len(seqs), "count": len(seqs)})
    assert wrong(evidence).keys() >= set(said)
    assert bool(wrong(evidence)) == bool(said)


@pytest.mark.parametrize(
    ("seqs", "said"),
    [
        ([*range(1, 16), *range(17, 31)], "missing: 1 record (16)"),
        ([*range(1, 31), 5], "doubled: 1 record (5)"),
        ([*range(1, 15), 16, 15, *range(17, 31)], "out of order: 1 record (15)"),
        (list(range(1, 21)), "missing: 10 records (21-30)"),
    ],
)
def test_what_a_reader_skipped_or_read_twice_is_named(seqs: list[int], said: str) -> None:
    assert wrong(topic(seen=[seen(*seqs)])) == {"read": said}


def test_a_reader_that_got_other_bytes_is_named() -> None:
    reader = seen(*range(1, 31))
    reader.checks[8] += 1
    assert wrong(topic(seen=[reader])) == {"read": "with other bytes than were sent: 1 record (9)"}


def test_loss_that_was_asked_for_and_told_adds_up_and_any_other_does_not() -> None:
    told = [{"gap_from": 1, "gap_to": 12, "reason": "cap"}]
    changes: dict[str, Any] = {"kept": without(*range(1, 13)), "told": told, "state": {"head_seq": 30, "count": 18}}
    late = seen(*range(13, 31), told=told)
    assert wrong(topic(**changes, seen=[late], may_lose=frozenset(ASKED_FOR))) == {}
    found = wrong(topic(**changes, seen=[late]))
    assert found["kept"] == "told to be lost (cap): 12 records (1-12)"
    assert found["read"] == "told to be lost (cap): 12 records (1-12)"
    silent = topic(**changes, seen=[seen(*range(13, 31))], may_lose=frozenset(ASKED_FOR))
    assert wrong(silent) == {"read": "missing: 12 records (1-12)"}


def queue(acked: int, **changes: Any) -> Evidence:
    """The same as a queue, of which the first jobs are acked."""
    counts = {"written": HEAD, "acked": acked, "ready": HEAD - acked, "in_flight": 0, "delayed": 0}
    counts |= {"dead_lettered": 0, "deleted": 0, "evicted": 0, "lost": 0}
    values: dict[str, Any] = {
        "is_queue": True,
        "kept": without(*range(1, acked + 1)),
        "seen": [seen(*range(1, acked + 1), kind="work")],
        "state": {"head_seq": HEAD, "count": HEAD - acked, "queue": counts},
    }
    return topic(**(values | changes))


def test_a_queue_adds_up_when_every_job_is_done_once_or_still_there() -> None:
    assert wrong(queue(30)) == {}
    assert wrong(queue(20)) == {}


def test_jobs_that_were_done_twice_or_never_are_named() -> None:
    found = wrong(queue(20, seen=[seen(*range(1, 21), kind="work"), seen(20, kind="work")]))
    assert found == {"done": "acked twice: 1 job (20)"}
    found = wrong(queue(20, kept=without(*range(1, 22))))
    assert found["kept"] == "acked, not there, and nothing says why: 1 record (21)"
    found = wrong(queue(20, kept=without(*range(1, 20))))
    assert found["kept"] == "done, and still there: 1 job (20)"


@pytest.mark.parametrize("counter", ["written", "acked", "ready", "dead_lettered", "deleted", "evicted", "lost"])
def test_each_counter_of_a_queue_has_its_part_in_the_sum(counter: str) -> None:
    evidence = queue(20)
    evidence.state["queue"][counter] += 1
    assert "counts" in wrong(evidence), counter


def test_an_ack_whose_answer_was_lost_counts_only_where_an_answer_could_be_lost() -> None:
    worker = seen(*range(1, 20), kind="work", skipped={20: "gone"}, lost=1)
    assert wrong(queue(20, seen=[worker])) == {}
    found = wrong(queue(20, seen=[seen(*range(1, 20), kind="work", skipped={20: "gone"})]))
    assert found["done"] == "gone before their ack: 1 job (20)"


def test_counters_are_compared_as_exactly_as_they_can_be() -> None:
    assert written_by_metrics(30, 30, is_alone=True, why_not="").is_good
    assert not written_by_metrics(31, 30, is_alone=True, why_not="").is_good
    assert written_by_metrics(31, 30, is_alone=False, why_not="").is_good
    assert not written_by_metrics(29, 30, is_alone=False, why_not="").is_good
    assert written_by_metrics(None, 30, is_alone=True, why_not="restarted").said == "not compared: restarted"


def test_a_counter_that_began_anew_or_is_not_seen_is_not_compared() -> None:
    born, name = "process_start_time_seconds", "topics_records_written_total"
    base, final = {born: 1.0, name: 5.0}, {born: 1.0, name: 12.0}
    assert rise(base, final, name) == (7.0, "")
    assert rise(base, {born: 2.0, name: 3.0}, name) == (None, "the daemon was started again, and counts from 0 since")
    assert rise(base, None, name)[0] is None
    assert "limited" in rise({born: 1.0}, {born: 1.0}, name)[1]


def test_ranges_are_short() -> None:
    assert ranges([9, 3, 7, 8]) == "3, 7-9"
    assert ranges(range(1, 100, 2)).endswith(" and 40 more ranges")
