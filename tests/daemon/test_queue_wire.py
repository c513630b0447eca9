"""What queues.md says, sentence by sentence, where only the wire shows it: clamps, what is hidden, dead letters that
find no room, requeues, timers that move, counters to the last job."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.kit import Answer, DaemonProcess, clean_environment, daemon_process, make_queue, post, request, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        yield running


def ask(daemon: DaemonProcess, name: str, verb: str, **body: Any) -> Answer:
    return daemon.ask(post(f"/v0/topics/{name}/{verb}", body))


def claim(daemon: DaemonProcess, name: str, node: str = "n", **body: Any) -> list[dict[str, Any]]:
    answer = ask(daemon, name, "claim", node=node, **body)
    assert answer.status == 200, answer
    jobs: list[dict[str, Any]] = answer.json["claimed"]
    return jobs


def state(daemon: DaemonProcess, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = daemon.ask(request("GET", f"/v0/topics/{name}")).json
    return shown


def counters(daemon: DaemonProcess, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = state(daemon, name)["queue"]
    kept = ("acked", "dead_lettered", "deleted", "evicted", "lost")
    live = shown["ready"] + shown["in_flight"] + shown["delayed"]
    assert shown["written"] == live + sum(shown[name] for name in kept), shown
    return shown


def test_max_is_clamped_and_seqs_are_bounded(daemon: DaemonProcess) -> None:
    make_queue(daemon, "many", *range(1500))
    jobs = claim(daemon, "many", max=5000)
    assert len(jobs) == 1000
    assert len({job["lease_id"] for job in jobs}) == 1000
    for seqs in ([], list(range(1, 1002))):
        for verb in ("ack", "nack", "extend"):
            answer = ask(daemon, "many", verb, node="n", seqs=seqs)
            assert (answer.status, answer.code) == (400, "batch_too_large")
        answer = ask(daemon, "many", "requeue", seqs=seqs)
        assert (answer.status, answer.code) == (400, "batch_too_large")
    acked = ask(
        daemon, "many", "ack", node="n", seqs=[job["$seq"] for job in jobs], lease_ids=[job["lease_id"] for job in jobs]
    )
    assert (acked.json["acked"], acked.json["ready"], acked.json["in_flight"]) == (1000, 500, 0)


def test_a_claim_is_bounded_in_bytes_and_always_gives_one_job(daemon: DaemonProcess) -> None:
    make_queue(daemon, "large", *["x" * 100_000] * 5)
    assert len(claim(daemon, "large", max=5, max_bytes=1)) == 1
    assert len(claim(daemon, "large", max=5, max_bytes=250_000)) == 2
    assert len(claim(daemon, "large", max=5)) == 2


def test_the_same_words_ask_anew_each_time(daemon: DaemonProcess) -> None:
    """What a worker repeats is not read again; its warnings are, and so is what the topic says by then."""
    make_queue(daemon, "words", *range(4))
    first, second = claim(daemon, "words"), claim(daemon, "words")
    assert first[0]["lease_id"] != second[0]["lease_id"]
    for _ in range(2):
        odd = ask(daemon, "words", "claim", node="n", wait=5)
        assert odd.json["warnings"] == ["unknown field wait"]
    assert claim(daemon, "words") == []
    daemon.write("words", 5)
    daemon.ask(request("PUT", "/v0/topics/words", {"lease_ms": 60_000}))
    assert claim(daemon, "words")[0]["deadline"] < time.time() * 1000 + 100_000


def _waits(daemon: DaemonProcess, name: str) -> tuple[threading.Thread, list[Any]]:
    """Somebody who waits for a job, and where it is put with the time of its coming."""
    got: list[Any] = []

    def wait() -> None:
        jobs = claim(daemon, name, "later", wait_ms=20_000)
        got.extend((time.monotonic(), jobs))

    thread = threading.Thread(target=wait)
    thread.start()
    while not state(daemon, name)["queue"]["claim_waiters"]:
        time.sleep(0.01)
    return thread, got


@pytest.mark.parametrize(("lease_ms", "extended_ms"), [(60_000, 300), (300, 1200)])
def test_who_waits_is_woken_when_a_lease_ends_wherever_its_end_was_moved(
    daemon: DaemonProcess, lease_ms: int, extended_ms: int
) -> None:
    name = f"moved:{lease_ms}"
    make_queue(daemon, name, "a")
    seq = claim(daemon, name, lease_ms=lease_ms)[0]["$seq"]
    thread, got = _waits(daemon, name)
    began = time.monotonic()
    assert ask(daemon, name, "extend", node="n", seqs=[seq], lease_ms=extended_ms).json["extended"] == 1
    thread.join()
    took_ms = (got[0] - began) * 1000
    assert [job["$seq"] for job in got[1]] == [seq]
    assert extended_ms - 50 <= took_ms < 15_000, "at its end, and not when the waiting would have ended"


def test_the_name_of_a_holder_is_bounded_as_that_of_a_writer_is(daemon: DaemonProcess) -> None:
    make_queue(daemon, "named", 1)
    for node, status in (("é" * 64, 200), ("é" * 64 + "x", 400)):
        answer = ask(daemon, "named", "claim", node=node)
        assert answer.status == status, answer
    worker = daemon.ask(request("GET", f"/v0/topics/named/work?node={'x' * 129}"))
    assert (worker.status, worker.json["error"]["detail"]) == (400, {"field": "node"})


def test_a_claim_that_moves_a_job_is_answered_when_it_is_moved_though_it_gets_others(daemon: DaemonProcess) -> None:
    for turn in range(2):  # The first time the target has to be made.
        make_queue(daemon, f"poisoned{turn}", "bad", "good", max_deliveries=1, dead_letter="buried")
        claim(daemon, f"poisoned{turn}")
        ask(daemon, f"poisoned{turn}", "nack", node="n", seqs=[1])
        answer = ask(daemon, f"poisoned{turn}", "claim", node="n", max=5)
        assert [job["data"] for job in answer.json["claimed"]] == ["good"]
        assert answer.json["ready"] == 0
        shown = counters(daemon, f"poisoned{turn}")
        assert (shown["ready"], shown["in_flight"], shown["dead_lettered"]) == (0, 1, 1)
        assert [record["data"] for record in daemon.read("buried")["records"]] == ["bad"] * (turn + 1)


def test_a_dead_letter_that_finds_no_room_stays_and_the_state_says_so(daemon: DaemonProcess) -> None:
    make_queue(daemon, "full", "there already", cap_records=1, discard="reject")
    make_queue(daemon, "tried", "a", max_deliveries=1, dead_letter="full")
    claim(daemon, "tried")
    ask(daemon, "tried", "nack", node="n", seqs=[1])
    assert claim(daemon, "tried") == []
    shown = counters(daemon, "tried")
    assert (shown["delayed"], shown["dead_lettered"]) == (1, 0)
    assert "full" in shown["dead_letter_problem"]
    daemon.ask(post("/v0/topics/full/delete", {"seqs": [1]}))
    # Ready again after backoff, and then there is room; somebody who claims on the way moves it.
    deadline = time.monotonic() + 30
    while counters(daemon, "tried")["dead_lettered"] == 0:
        assert time.monotonic() < deadline
        assert claim(daemon, "tried", wait_ms=1000) == []
    assert (
        "dead_letter_problem" not in counters(daemon, "tried") or not counters(daemon, "tried")["dead_letter_problem"]
    )
    assert [record["data"] for record in daemon.read("full")["records"]] == ["a"]


def test_a_missing_target_is_made_as_a_queue_of_the_same_class_and_jobs_come_back_from_it(
    daemon: DaemonProcess,
) -> None:
    make_queue(daemon, "work:now", durability="fsync", max_deliveries=1, dead_letter="work:dead")
    records = [{"data": {"of": tag}, "tag": tag} for tag in ("red", "red", "blue", "green")]
    daemon.ask(post("/v0/topics/work:now", {"records": records}))
    jobs = claim(daemon, "work:now", max=9)
    sent = ask(
        daemon, "work:now", "nack", node="n", seqs=[job["$seq"] for job in jobs], dead_letter=True, reason="broken"
    )
    assert sent.json["nacked"] == 4
    made = state(daemon, "work:dead")
    assert (made["config"]["type"], made["config"]["durability"]) == ("queue", "fsync")
    assert counters(daemon, "work:now")["dead_lettered"] == 4
    assert ask(daemon, "work:dead", "requeue", match="red").json["requeued"] == 2
    make_queue(daemon, "work:other")
    assert ask(daemon, "work:dead", "requeue", seqs=[3], to="work:other").json["requeued"] == 1
    back = claim(daemon, "work:now", max=9)
    assert [(job["data"], job["deliveries"]) for job in back] == [({"of": "red"}, 1)] * 2
    for job in back:
        assert job["meta"]["$dead_letter_trail"][0]["reason"] == "broken"
        assert "$dead_letter_from" not in job["meta"]
    assert [job["data"] for job in claim(daemon, "work:other")] == [{"of": "blue"}]
    # A requeue is a new write there, and a delete here.
    assert (counters(daemon, "work:now")["written"], counters(daemon, "work:dead")["deleted"]) == (6, 3)


def test_the_counters_are_exact_whatever_becomes_of_jobs(daemon: DaemonProcess) -> None:
    make_queue(daemon, "counted", *range(20), max_deliveries=1, dead_letter="counted:dead")
    jobs = claim(daemon, "counted", max=8)
    assert ask(daemon, "counted", "ack", node="n", seqs=[1, 2, 3]).json["acked"] == 3
    assert ask(daemon, "counted", "nack", node="n", seqs=[4], dead_letter=True).json["nacked"] == 1
    assert ask(daemon, "counted", "nack", node="n", seqs=[5], delay_ms=60_000).json["nacked"] == 1
    daemon.ask(post("/v0/topics/counted/delete", {"seqs": [6, 15]}))
    late = ask(daemon, "counted", "ack", node="n", seqs=[6, 1, 9], lease_ids=[job["lease_id"] for job in jobs[5:8]])
    assert late.json["skipped"] == [6, 1, 9]
    assert [row["detail"] for row in late.json["skipped_detail"]] == ["gone", "gone", "not_leased"]
    daemon.ask(request("PUT", "/v0/topics/counted", {"cap_records": 10}))
    shown = counters(daemon, "counted")
    wanted = {"written": 20, "acked": 3, "dead_lettered": 1, "deleted": 2, "evicted": 4, "in_flight": 0, "ready": 10}
    assert {name: shown[name] for name in wanted} == wanted
    assert ask(daemon, "counted", "ack", node="n", seqs=[7, 8]).json["skipped"] == [7, 8]


def test_lease_ids_are_for_those_who_may_write() -> None:
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS="full,reader:read")) as daemon:
        head = "Authorization: Bearer "
        daemon.ask(request("PUT", "/v0/topics/q", {"type": "queue"}, head + "full"))
        daemon.ask(post("/v0/topics/q", {"records": [{"data": 1}]}, head + "full"))
        daemon.ask(post("/v0/topics/q/claim", {"node": "n"}, head + "full"))
        for key, shows in (("full", True), ("reader", False)):
            row = daemon.ask(request("GET", "/v0/topics/q/leases", None, head + key)).json["leases"][0]
            assert ("lease_id" in row) is shows


def test_a_lease_id_is_never_given_twice_not_even_after_a_kill(tmp_path: Path) -> None:
    seen: set[str] = set()
    for _ in range(3):
        daemon = start(tmp_path)
        try:
            if not seen:
                make_queue(daemon, "q", *range(3))
            found = {job["lease_id"] for job in claim(daemon, "q", max=3)}
            assert len(found) == 3, "not durable, so all are ready again"
            assert not found & seen
            seen |= found
        finally:
            daemon.stop(signal.SIGKILL)
